"""Whole records of models with levels of areas: against sums over all tables, relaxed counts, and their own prior."""

import numpy as np
import pandas as pd
import pytest
from inference.conftest import tables_of
from inference.posterior.drawn import finished_of, formulation_on
from inference.posterior.test_exact_effects import six_sweeps
from repeats import few
from scipy.special import gammaln, logsumexp, softmax
from scipy.stats import chisquare, ks_2samp, norm

import bayesprivmrf as bpm
from bayesprivmrf import mechanisms
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference import LatentCounts, gather
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.noise import Within
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics

AREAS = ["n1", "s1", "n2", "s2"]  # their regions do not lie in one piece
REGIONS = {"north": ["n1", "n2"], "south": ["s1", "s2"]}
IN_REGIONS = q.coarsened("area", "ill", area=REGIONS)
OF_REGIONS = q.coarsened("area", area=REGIONS)
TABLE = q.table("area", "ill")
_BATCHES = 50


def nested(states=(1, 0), **further):
    """Four areas in two regions, by illness; further variables beside it."""
    network = bpm.declare(
        {"area": AREAS, "ill": list(states), **further},
        [("area", "ill"), *(("ill", name) for name in further)],
        levels={"area": {"region": REGIONS}},
    )
    return ModelSpecification.from_pgmpy(network)


TINY = nested()


def released(model, joint, noisy, law, *, exact=(), within=(), total=True, seed=3):
    """Answers about people by joint state, each with noise, without, or within bounds."""
    rng, counts = np.random.default_rng(seed), tables_of(model, joint)
    tables = [(query, query.bind(model).answers(counts)) for query in (*noisy, *exact, *within)]
    given = [
        Measurement(query, own + law.draw(own.shape, rng), law)
        for query, own in tables[: len(noisy)]
    ]
    for query, own in tables[len(noisy) :]:
        is_exact = query in exact
        values = own if is_exact else np.maximum(own - 1, 0) + 1.0
        given.append(Measurement(query, values, NoNoise() if is_exact else Within(1.0)))
    return NoisyStatistics.from_measurements(
        model, given, total=float(joint.sum()) if total else None
    )


def compositions(total, parts):
    """All tables of so many cells with so many records."""
    if parts == 1:
        return np.array([[total]])
    return np.concatenate(
        [
            np.insert(compositions(total - first, parts - 1), 0, first, axis=1)
            for first in range(total + 1)
        ]
    )


def projections(groups):
    """Onto what is constant within each group of states and sums to zero, and onto what sums to zero in each."""
    within = np.equal.outer(groups, groups) / np.bincount(groups)[groups]
    return within - 1 / len(groups), np.eye(len(groups)) - within


def drawn_logs(model, size, rng):
    """Logarithms of the prior's tables of areas by a second variable, up to a constant, shape (size, cells).

    Written anew: each effect of the areas is a sum of a part between regions and one within them, normal in the
    directions that each has, of a scale of its own.
    """
    areas, states = model.shapes[0]
    (regions,), labels = (level.areas for level in model.levels), model.domain.states_of("area")
    between, within = projections(
        np.array([next(k for k, own in enumerate(regions) if one in own) for one in labels])
    )
    centred = np.eye(states) - 1 / states
    line = np.arange(states) - (states - 1) / 2
    joint = np.outer(line, line) / (line @ line) if model.ordinal else centred
    logs, common = np.zeros((size, areas, states)), 0.6 * rng.standard_normal(size)
    for left, right in (
        (None, centred),
        (between, None),
        (within, None),
        (between, joint),
        (within, joint),
    ):
        spread = np.sqrt(0.2**2 + 0.5**2) * rng.standard_normal(
            size
        )  # of what its kind shares, and its own
        drawn = rng.standard_normal(
            (size, 1 if left is None else areas, 1 if right is None else states)
        )
        drawn = drawn if left is None else left @ drawn
        drawn = drawn if right is None else drawn @ right
        logs += 0.4 * np.exp(common + spread)[:, np.newaxis, np.newaxis] * drawn
    return logs.reshape(size, -1)


def summed(evidence, totals, size):
    """Draws of the prior's probabilities, and all tables of records, each with its weight in the posterior.

    Nothing of the engine is used: the noise judges every table that so many records can have.
    """
    logs = drawn_logs(evidence.specification, size, np.random.default_rng(9))
    log_p = logs - logsumexp(logs, axis=1, keepdims=True)
    joint = [compositions(records, logs.shape[1]) for records in totals]
    ways = []
    for records, sets in zip(totals, joint, strict=True):
        own = gammaln(records + 1) - gammaln(sets + 1).sum(axis=1) - np.log(records)
        answers = evidence.answers(sets.astype(float))
        for position, (law, one) in enumerate(zip(evidence.noise, answers, strict=True)):
            noisy = evidence.noisy_counts[slice(*evidence.offsets[position : position + 2])]
            own = own + law.log_density(noisy - one.reshape(len(sets), -1)).sum(axis=1)
        ways.append(own)
    sets, ways = np.concatenate(joint), np.concatenate(ways)
    sets, ways = sets[np.isfinite(ways)], ways[np.isfinite(ways)]
    weight = np.exp(log_p @ sets.T + ways)
    return np.exp(log_p), weight.sum(axis=1), sets, weight.sum(axis=0)


def effective(indicators):
    """Effective number of draws of events, shape (chain, draw, event): by the variance of means of batches."""
    chains, draws, events = indicators.shape
    batches = indicators.reshape(chains * _BATCHES, draws // _BATCHES, events).mean(axis=1)
    overall = indicators.mean(axis=(0, 1))
    error = batches.var(axis=0, ddof=1) / len(batches)
    return (
        overall
        * (1 - overall)
        / np.maximum(error, overall * (1 - overall) / (chains * draws) + 1e-12)
    )


def require_same(formulation, totals, *, draws=2500, size=8000):
    """Distribution functions and means of the chains are the sum's, at 1e-4 for all events together.

    Events are that a probability is below the sum's quantiles at 5, 25, 50, 75 and 95 %, and that a count is at most
    each number. The error is that of both sides, by batches of the chains and by the weights' effective number.
    """
    mu, by_draw, counts, by_set = summed(formulation.evidence, totals, size)
    by_draw, by_set = by_draw / by_draw.sum(), by_set / by_set.sum()
    drawn = formulation.sample(draws=draws, tune=300, chains=2, seed=1, time_limit=1e-9)
    finished = formulation.finish(drawn.draws, np.random.default_rng(0))
    worth = 1 / np.sum(by_draw**2)
    found, expected = [], []
    for cell in range(mu.shape[1]):
        order = np.argsort(mu[:, cell])
        reached = np.cumsum(by_draw[order])
        for share in (0.05, 0.25, 0.5, 0.75, 0.95):
            end = mu[order[np.searchsorted(reached, share)], cell]
            expected.append(by_draw[mu[:, cell] <= end].sum())
            found.append(finished.marginals[..., cell] <= end)
        for end in range(max(totals)):
            expected.append(by_set[counts[:, cell] <= end].sum())
            found.append(finished.counts[..., cell] <= end)
    for end in totals:
        expected.append(by_set[counts.sum(axis=1) <= end].sum())
        found.append(finished.total <= end)
    found, expected = np.stack(found, axis=-1).astype(float), np.array(expected)
    error = np.sqrt(
        expected * (1 - expected) * (1 / np.maximum(effective(found), 50) + 1 / worth) + 1e-7
    )
    missed = np.abs(found.mean(axis=(0, 1)) - expected) / error
    assert missed.max() < norm.isf(0.5e-4 / missed.size), (missed.argmax(), missed.max())
    assert worth > 1000  # else the sum itself would say little
    mean = np.concatenate([by_draw @ mu, by_set @ counts])
    deviation = np.sqrt(np.concatenate([by_draw @ mu**2, by_set @ counts**2]) - mean**2)
    got = np.concatenate([finished.marginals, finished.counts], axis=-1).mean(axis=(0, 1))
    assert np.abs(got - mean)[deviation > 1e-6].max() < 0.15 * deviation.max()


PEOPLE = np.array([2, 0, 0, 1, 1, 0, 0, 1])  # of (n1, 1), (n1, 0), (s1, 1), ...


@pytest.mark.parametrize(
    ("noisy", "law", "totals"),
    [
        pytest.param([TABLE, IN_REGIONS], Laplace(1.0), [5], marks=pytest.mark.slow),
        (
            [IN_REGIONS, q.table("ill")],
            Gaussian(1.5),
            [2, 3, 4],
        ),  # areas of a region told by nothing
    ],
    ids=["areas and regions", "regions alone"],
)
def test_probabilities_and_records_have_the_posterior_of_the_sum_over_all_tables(
    noisy, law, totals
):
    evidence = gather(released(TINY, PEOPLE, noisy, law, total=len(totals) == 1))
    settings = {} if len(totals) == 1 else {"total_range": (totals[0], totals[-1])}
    formulation = formulation_on(evidence, formulation="exact", **settings)
    assert formulation.name == "exact"
    assert not formulation.keeps_sums
    require_same(formulation, totals)


@pytest.mark.parametrize(
    "known",
    few(
        [
            {"exact": [OF_REGIONS]},
            {"exact": [OF_REGIONS], "within": [q.table("area")]},
        ]
    ),
    ids=["regions", "regions, areas within bounds"],
)
def test_records_beside_held_sums_of_larger_areas_have_it_too(known):
    """`auto` takes whole records there."""
    evidence = gather(released(TINY, PEOPLE, [TABLE], Laplace(1.5), **known), takes_bounds=True)
    formulation = formulation_on(evidence)
    assert formulation.keeps_sums
    require_same(formulation, [5])


def test_parts_beside_linear_scores_have_it_too():
    """What is measured of them tells more than the statistics, and what `auto` takes is whole records."""
    network = bpm.declare(
        {"area": AREAS[:3], "ill": [2, 0, 1]},
        [("area", "ill")],
        levels={"area": {"region": {"north": ["n1", "n2"], "south": ["s1"]}}},
        ordinal=["ill"],
    )
    model = ModelSpecification.from_pgmpy(network)
    joint = np.array([1, 0, 0, 0, 1, 1, 0, 0, 1])
    regions = q.coarsened("area", "ill", area={"north": ["n1", "n2"], "south": ["s1"]})
    evidence = gather(released(model, joint, [TABLE, regions], Laplace(1.5)))
    formulation = formulation_on(evidence)
    assert formulation.name == "exact"
    assert not formulation.keeps_sums
    assert {"2, region", "2, area"} <= set(formulation.relaxed.latent.effects_prior.orders)
    require_same(formulation, [4])


def deeper():
    """Five areas in three tracts in two counties, by three groups."""
    levels = {
        "county": {"A": ["a1", "a2", "b1"], "B": ["c1", "c2"]},
        "tract": {"a": ["a1", "a2"], "b": ["b1"], "c": ["c1", "c2"]},
    }
    states = {"group": ["x", "z", "y"], "area": ["c1", "a1", "b1", "a2", "c2"]}
    return ModelSpecification.from_pgmpy(
        bpm.declare(states, [("area", "group")], levels={"area": levels})
    )


@pytest.mark.parametrize(
    ("law", "is_followed"),
    [pytest.param(DiscreteLaplace(1.0), False, marks=pytest.mark.slow), (Gaussian(9.0), True)],
)
@pytest.mark.slow
def test_a_chain_that_starts_in_its_law_stays_in_it(law, is_followed):
    """Scales of three levels, effects, records, N and noise from their joint law have it six sweeps later.

    Two-sample tests at 1e-4 / 40 numbers on 200 replicates of the first and last state.
    """
    model = deeper()
    counties = q.coarsened("area", "group", area={"A": ["a1", "a2", "b1"], "B": ["c1", "c2"]})
    given = released(model, np.full(15, 4), [q.table("area", "group"), counties], law, total=False)
    formulation = formulation_on(gather(given), formulation="exact", total_range=(20, 120))
    assert formulation.name == "exact"
    assert not formulation.keeps_sums
    assert (
        formulation.relaxed.latent.effects_prior.count == 7
    )  # the group's, and of each level the areas' and the pair's
    for before, after in six_sweeps(formulation, law, 200, is_followed=is_followed):
        assert ks_2samp(before, after, method="asymp").pvalue > 1e-4 / 40


@pytest.mark.slow
@pytest.mark.parametrize("exact", [[], [OF_REGIONS]], ids=["noise alone", "regions held"])
def test_truths_of_the_prior_rank_evenly_among_draws(exact):
    """Simulation-based calibration: ranks among 64 thinned draws in 5 bins, chi-squared at 1e-4 / 21 numbers."""
    law, rng, records, ranks = DiscreteLaplace(2.0), np.random.default_rng(11), 40, []
    empty = released(TINY, np.full(8, 5), [TABLE, IN_REGIONS], law, exact=exact)
    prior = formulation_on(gather(empty), formulation="exact").prior_draws(40, rng)
    for k in range(40):
        counts = prior.counts[0, k].astype(int)
        assert counts.sum() == records
        given = released(TINY, counts, [TABLE, IN_REGIONS], law, exact=exact, seed=100 + k)
        formulation = formulation_on(gather(given, takes_bounds=True), formulation="exact")
        drawn = formulation.sample(draws=640, tune=100, chains=1, seed=k, time_limit=1e-9)
        found = formulation.finish(drawn.draws, rng)
        draws = np.concatenate([found.marginals, found.counts, found.scales], axis=-1)[0, 9::10]
        truth = np.concatenate([prior.marginals[0, k], counts, prior.scales[0, k]])
        below, equal = (draws < truth).sum(axis=0), (draws == truth).sum(axis=0)
        ranks.append(below + np.floor(rng.random(truth.size) * (equal + 1)).astype(int))
    for own in np.transpose(ranks):
        assert chisquare(np.bincount(own // 13, minlength=5)).pvalue > 1e-4 / 21


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.SamplingWarning"
)  # a busy machine ends it early
def test_many_people_have_the_posterior_of_the_relaxed_counts():
    """2,000 people: means and quartiles of μ and of counts within .25 deviations of NUTS', deviations within 15 %.

    Five standard errors of 400 effective draws.
    """
    rng = np.random.default_rng(3)
    joint = rng.multinomial(2000, softmax(drawn_logs(TINY, 1, rng)[0]))
    given, found = released(TINY, joint, [TABLE, IN_REGIONS], DiscreteLaplace(20.0)), []
    for name in ("exact", "log-linear"):
        posterior = LatentCounts(formulation=name).fit(given, rng=1, draws=1000)
        assert posterior.stats["formulation"] == name
        finished = finished_of(posterior)
        drawn = np.concatenate([finished.marginals, finished.counts], axis=-1).reshape(4000, -1)
        found.append(
            (
                np.vstack([drawn.mean(axis=0), np.quantile(drawn, [0.25, 0.75], axis=0)]),
                drawn.std(axis=0),
            )
        )
    (place, deviation), (expected, spread) = found
    assert np.abs((place - expected) / spread).max() < 0.25
    assert deviation == pytest.approx(spread, rel=0.15)


@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.SamplingWarning"
)  # fifty draws are not mixed
def test_draws_give_exact_totals_of_larger_areas_back_and_keep_bounds():
    """Of a model of two cliques, with the totals of regions exact, areas within bounds, and other tables noisy."""
    model = nested(sex=["f", "m"])
    joint = np.random.default_rng(5).integers(0, 9, 16)
    noisy = [TABLE, q.table("ill", "sex"), IN_REGIONS]
    given = released(
        model, joint, noisy, Laplace(2.0), exact=[OF_REGIONS], within=[q.table("area")]
    )
    short = {"draws": 50, "tune": 20, "chains": 2, "time_limit": 1e-9}
    posterior = LatentCounts().fit(given, rng=1, **short)
    assert posterior.stats["formulation"] == "exact"
    regions, people = posterior.interval(OF_REGIONS, of="records"), joint.reshape(4, 4).sum(axis=1)
    assert (regions["lower"] == regions["upper"]).all()
    assert regions["estimate"].tolist() == [people[0] + people[2], people[1] + people[3]]
    areas = posterior.interval(["area"], of="records")
    middle = np.maximum(people - 1, 0) + 1
    assert (areas["lower"] >= middle - 1).all()
    assert (areas["upper"] <= middle + 1).all()
    shares = posterior.interval(["area", "sex"])
    assert (shares["lower"] < shares["upper"]).all()


def test_what_remains_refused_says_what_to_do():
    plain = released(TINY, PEOPLE, [TABLE], Laplace(1.0))
    with pytest.raises(
        ModelError, match=r"no effects for levels of areas or scores .*; use .*'exact'"
    ):
        LatentCounts(formulation="hyper-dirichlet").fit(plain)
    with pytest.raises(ArgumentError, match="`concentration` belongs to the hyper-Dirichlet prior"):
        LatentCounts(formulation="exact", concentration=1.0).fit(plain)
    crossed = released(TINY, PEOPLE, [TABLE], Laplace(1.0), exact=[q.table("area"), IN_REGIONS])
    with pytest.raises(ModelError, match=r"nested or disjoint in each table.*state a noise"):
        LatentCounts().fit(crossed, rng=1)
    with pytest.raises(ArgumentError, match="formulation='exact'"):
        LatentCounts(formulation="log-linear").fit(
            released(TINY, PEOPLE, [TABLE], Laplace(1.0), exact=[OF_REGIONS])
        )


def test_without_a_wish_whole_records_are_taken_only_where_relaxed_counts_cannot():
    plain = gather(released(TINY, PEOPLE, [TABLE, IN_REGIONS], Laplace(1.0)))
    assert type(formulation_on(plain)).__name__ == "LogLinear"
    assert formulation_on(plain, formulation="exact").name == "exact"
    held = gather(
        released(TINY, PEOPLE, [TABLE], Laplace(1.0), within=[IN_REGIONS]), takes_bounds=True
    )
    assert formulation_on(held).name == "exact"


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
def test_smooth_scores_take_normal_effects_too_whole_records_or_relaxed():
    """A scale for the line and one for the rest: Dirichlet rows would leave the declared scores out unsaid."""
    network = bpm.declare(
        states={"a": range(3), "b": range(3)},
        cliques=[("a", "b")],
        ordinal={"a": "smooth", "b": "smooth"},
    )
    data = pd.DataFrame(np.random.default_rng(1).integers(0, 3, (60, 2)), columns=["a", "b"])
    release = mechanisms.LaplaceStatistics(epsilon=2.0).release(network, data, rng=1)
    for asked, taken in (("auto", "log-linear"), ("exact", "exact")):
        found = LatentCounts(formulation=asked).fit(release, rng=1, draws=50, tune=50, chains=2)
        assert found.stats["formulation"] == taken
    with pytest.raises(ModelError, match="without `ordinal`"):
        LatentCounts(formulation="hyper-dirichlet").fit(release)
