"""Whole records of chains of one matrix: against sums over all data sets, and by the law that a right chain keeps."""

from itertools import pairwise

import numpy as np
import pytest
from inference.conftest import simulated_counts
from inference.posterior.test_exact_effects import summed
from scipy.stats import ks_2samp

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf import sequences
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference import gather
from bayesprivmrf.inference.posterior.forest import draw_log_rows, draw_tables
from bayesprivmrf.inference.posterior.latent_prior import draw_totals
from bayesprivmrf.inference.posterior.whole_records.transitions import SharedTransitions
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian
from bayesprivmrf.release import Measurement, NoisyStatistics


def chain(states, length, order=1, end=None):
    network = bpm.markov_chain(range(states), length, order, share="transitions", end=end)
    return ModelSpecification.from_pgmpy(network)


def windows(model, order=1):
    names = [f"x{t + 1}" for t in range(len(model.domain.variables))]
    return [tuple(names[t : t + order + 1]) for t in range(len(names) - order)]


def release_of(model, queries, law, records, seed, *, total=None):
    rng = np.random.default_rng(seed)
    counts, _ = simulated_counts(model, records, rng)
    given = []
    for query in queries:
        exact = query.bind(model).answers(counts)
        given.append(Measurement(query, exact + law.draw(exact.shape, rng), law))
    return NoisyStatistics.from_measurements(model, given, total=total)


def asked(model, kind, order=1):
    own, first = windows(model, order), f"x{1}"
    return {
        "sums": [q.pooled(own), q.table(first)],
        "steps": [q.table(*reversed(own[0])), q.table(*own[1])],
        "sums and a step": [q.pooled(own), q.table(*own[-1])],
        "weights": [q.weighted(*own[0], matrix=[np.arange(2 ** (order + 1)) - 1])],
    }[kind]


def conditionals(model):
    """Log of the first window's table, and of the others' given what leads to them; 0 where nothing can be."""

    def logs(prior):
        flat, marginals = np.zeros_like(prior.marginals[0]), prior.marginals[0]
        for clique, (start, stop) in enumerate(pairwise(model.offsets)):
            rows = marginals[:, start:stop].reshape(len(flat), -1, model.shapes[clique][-1])
            whole = rows.sum(axis=-1, keepdims=True) if clique else 1.0
            ratio = rows / np.where(whole > 0, whole, 1.0)
            flat[:, start:stop] = np.log(np.where(rows > 0, ratio, 1.0)).reshape(len(flat), -1)
        return flat

    return logs


@pytest.mark.parametrize(
    ("kind", "law", "order", "alpha", "totals", "end"),
    [
        pytest.param("sums", DiscreteLaplace(1.0), 1, 0.5, None, None, marks=pytest.mark.slow),
        ("sums", DiscreteLaplace(3.0), 1, None, range(2, 5), None),
        pytest.param("steps", DiscreteLaplace(1.0), 1, 0.7, None, None, marks=pytest.mark.slow),
        pytest.param("weights", Gaussian(1.5), 1, 1.0, None, None, marks=pytest.mark.slow),
        ("sums", DiscreteLaplace(1.0), 2, 0.6, None, None),
        ("sums", DiscreteLaplace(1.0), 1, None, None, "end"),
        pytest.param("sums", DiscreteLaplace(1.0), 2, 0.6, None, "end", marks=pytest.mark.slow),
    ],
)
def test_the_posterior_is_that_of_the_sum_over_all_data_sets(kind, law, order, alpha, totals, end):
    """Means within .15 deviations, 4.5 standard errors of 7,000 draws worth a seventh each, and the sum's own."""
    model = chain(2, order + 2, order, end)
    records = 4 if order == 1 else 2
    known = records if totals is None else None
    release = release_of(model, asked(model, kind, order), law, records, 5, total=known)
    given = {"evidence": gather(release), "concentration": alpha}
    given |= {"total": records} if totals is None else {"total_range": (totals[0], totals[-1])}
    formulation = SharedTransitions(**given)
    mean, deviation = summed(
        formulation, totals or [records], size=10_000, potentials=conditionals(model)
    )
    drawn = formulation.sample(draws=3500, tune=300, chains=2, seed=1, time_limit=1e-9)
    finished = formulation.finish(drawn.draws, np.random.default_rng(0))
    found = np.concatenate(
        [finished.marginals, finished.counts, finished.total[..., np.newaxis]], axis=-1
    )
    found = found.reshape(7_000, -1)
    moves = deviation > 1e-9
    np.testing.assert_allclose(found[:, ~moves] - mean[~moves], 0.0, atol=1e-6)
    assert np.abs((found.mean(axis=0) - mean)[moves] / deviation[moves]).max() < 0.15
    assert found.std(axis=0)[moves] == pytest.approx(deviation[moves], rel=0.13, abs=0.012)


@pytest.mark.parametrize(
    ("kind", "order", "end"),
    [
        ("sums and a step", 1, None),
        pytest.param("sums", 2, None, marks=pytest.mark.slow),
        pytest.param("sums", 1, "end", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_a_chain_that_starts_in_its_law_stays_in_it(kind, order, end):
    """Shapes, rows, records, N and noise from their joint law; twenty sweeps later they have it still.

    Two-sample tests at 1e-4 on 100 replicates of the first and last state: a wrong acceptance ratio moves them.
    """
    model, law = chain(3, 4 + order, order, end), DiscreteLaplace(4.0)
    queries = asked(model, kind, order)
    rng, first, last = np.random.default_rng(3), [], []
    blank = SharedTransitions(
        evidence=gather(release_of(model, queries, law, 30, 1)), total_range=(10, 60)
    )
    sums, supported = blank._pooled, np.sort(blank.forest.cells)
    bound = [query.bind(model) for query in queries]
    for _ in range(100):
        position = rng.standard_normal(blank.shape_prior.size)
        log_rows = draw_log_rows(
            blank.shape_prior.forest, blank.shape_prior.shapes(position)[:, np.newaxis], rng
        )
        total = draw_totals(None, (10, 60), 1, rng)
        own = draw_tables(blank.forest, blank._in_windows(log_rows), total, rng)[:, 0]
        counts, whole = own[np.argsort(blank.forest.cells)], np.zeros(model.size, np.int64)
        whole[supported] = counts
        given = []
        for each in bound:
            exact = each.answers(whole)
            given.append(Measurement(each.query, exact + law.draw(exact.shape, rng), law))
        evidence = gather(NoisyStatistics.from_measurements(model, given))
        formulation = SharedTransitions(evidence=evidence, total_range=(10, 60))
        state = formulation.chain(rng)
        state.total, state.state.counts[:] = int(total[0]), own
        state.state.sums[:] = np.rint(
            np.concatenate([a.ravel() for a in evidence.answers(whole.astype(float))])[
                evidence.possible
            ]
        )
        state.kept["log_rows"][:], state.kept["shape_position"][:] = log_rows[:, 0], position
        after = state.run(1, 20)
        for found, number, cells, rows in (
            (first, total[0], counts, log_rows[:, 0]),
            (
                last,
                after["total"][0],
                after["counts"][0][formulation.forest.places],
                after["log_rows"][0],
            ),
        ):
            added = sums(cells)
            found.append(
                [
                    number,
                    added[0],
                    added[-1],
                    added[-2],
                    cells[0],
                    cells[-1],
                    rows[0],
                    rows[-1],
                    rows[-2],
                ]
            )
    for before, after in zip(np.transpose(first), np.transpose(last), strict=True):
        assert ks_2samp(before, after).pvalue > 1e-4


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")  # few draws
def test_every_question_takes_the_posterior_of_a_chain():
    model = chain(3, 6)
    own = windows(model)
    release = release_of(model, [q.pooled(own), q.table("x1")], DiscreteLaplace(5.0), 500, 2)
    posterior = bpm.LatentCounts().fit(
        release, rng=1, draws=100, tune=100, chains=2, prior=True, time_limit=1e-9
    )
    assert posterior.stats["formulation"] == "exact"
    assert posterior.stats["model"] == "shared transitions"
    assert "counts[x5,x6]" in posterior.tree["posterior"]
    assert set(posterior.tree["log_prior"]) == {"rows[x1]", "rows[x1,x2]"}
    tables = (
        posterior.tree["posterior"]["marginal[x2,x3]"],
        posterior.tree["posterior"]["marginal[x4,x5]"],
    )
    rows = [table.values / table.values.sum(axis=-1, keepdims=True) for table in tables]
    assert np.allclose(*rows)
    records = posterior.interval(["x1", "x2"], of="records")
    assert (records["lower"] <= records["upper"]).all()
    assert np.isfinite(posterior.interval(["x1", "x6"])["estimate"]).all()
    assert (posterior.predictive_check(rng=1)["p_value"] > 1e-3).all()
    assert posterior.summary()["formulation"] == "exact"
    assert posterior.synthetic(2, rng=1)[0].shape[1] == 6
    for function in (
        sequences.transition_matrix,
        sequences.stationary_law,
        sequences.sojourn_times,
    ):
        table = function(posterior)
        assert (table["lower"] <= table["upper"]).all()
        rests_on = "one transition matrix for all steps|memory beyond one step not tested"
        assert table["note"].str.contains(rests_on).all()
    assert (sequences.hitting_times(posterior, 0)["upper"] >= 0).all()
    with pytest.raises(ModelError, match="no PyMC model"):
        _ = posterior.pymc_model


def test_what_a_chain_with_shared_transitions_cannot_take_is_refused():
    model = chain(2, 4)
    release = release_of(model, [q.pooled(windows(model))], DiscreteLaplace(5.0), 100, 2)
    for formulation in ("log-linear", "hyper-dirichlet"):
        with pytest.raises(ModelError, match="'exact' or 'auto'"):
            bpm.LatentCounts(formulation=formulation).fit(release)
    with pytest.raises(ArgumentError, match="`scale`"):
        bpm.LatentCounts(scale=1.0).fit(release)
    with pytest.raises(ArgumentError, match="does not use NUTS"):
        bpm.LatentCounts().fit(release, target_accept=0.9)
