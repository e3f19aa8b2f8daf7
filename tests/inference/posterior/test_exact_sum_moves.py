"""Whole records with sums known without noise, in models of several cliques: against sums over all data sets."""

import warnings

import numpy as np
import pytest
from inference.conftest import AWKWARD, simulated_counts, specification
from inference.posterior.drawn import finished_of, formulation_on
from inference.posterior.engines import NormalEffects, Rows
from inference.posterior.test_exact_effects import TIED
from inference.posterior.test_exact_queries import CYCLE, ODD, TREE, agrees, near
from inference.posterior.test_exact_transitions import conditionals
from repeats import few

from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ModelError, SamplingWarning
from bayesprivmrf.inference import LatentCounts, gather
from bayesprivmrf.inference.posterior.whole_records.transitions import SharedTransitions
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.noise import Within
from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics

CROSSED = specification({"a": [0, 1], "b": [0, 1, 2]}, [("a", "b")])
TABLE = q.table("b", "c")


def release(model, records, *, noisy, law, exact=(), within=(), after=(), total=True, seed=3):
    """Answers about simulated records: noisy, exact, within bounds without noise, and within bounds after noise."""
    rng = np.random.default_rng(seed)
    counts, _ = simulated_counts(model, records, rng, scale=0.5)
    given = []
    for query in [*noisy, *exact, *within, *after]:
        answers = query.bind(model).answers(counts)
        if query in exact:
            given.append(Measurement(query, answers, NoNoise()))
        elif query in within:
            given.append(Measurement(query, np.maximum(answers - 1, 0) + 1.0, Within(1.0)))
        elif query in after:
            given.append(
                Measurement(query, np.full(len(answers), 1.0), Within(1.0, DiscreteLaplace(1.5)))
            )
        else:
            given.append(Measurement(query, answers + law.draw(answers.shape, rng), law))
    return NoisyStatistics.from_measurements(model, given, total=records if total else None)


def held(made):
    return gather(made, takes_bounds=True)


RECORDS = {
    "exact ends of a tree": (TREE, {"exact": [q.table("a"), q.table("c")]}, 5),
    "an exact table, the other within bounds": (
        TREE,
        {"exact": [q.table("a", "b")], "within": [TABLE]},
        5,
    ),
    "a cell, a margin and bounds after noise": (
        TREE,
        {
            "exact": [q.weighted("a", "b", matrix=[[1, 0, 0, 0]]), q.table("c")],
            "after": [q.table("b")],
        },
        5,
    ),
    "bounds alone, of two tables": (TREE, {"within": [q.table("b", "a"), TABLE]}, 5),
}


@pytest.mark.parametrize("case", few(RECORDS, most=2))
def test_records_of_a_tree_have_the_posterior_of_the_sum_over_all_data_sets(case):
    """With noisy answers of all kinds beside them, those that read two cliques among them."""
    model, known, records = RECORDS[case]
    noisy = [q.parities(2), q.pooled([("a", "b"), ("b", "c")])]
    evidence = held(release(model, records, noisy=noisy, law=DiscreteLaplace(3.0), **known))
    near(Rows(evidence=evidence, concentration=0.7, total=records), [records])


def test_bounds_with_an_unknown_number_of_records_too():
    known = {"within": [q.table("a"), q.table("c")], "after": [q.table("b")]}
    made = release(
        TREE, 4, noisy=[q.table("b", "a")], law=DiscreteGaussian(1.5), total=False, **known
    )
    evidence = held(made)
    near(Rows(evidence=evidence, concentration=1.0, total_range=(2, 5)), range(2, 6))


def test_tables_that_cross_in_one_clique_too():
    """Rows and columns known, as no moves of single cells keep them."""
    made = release(
        CROSSED, 6, noisy=[q.table("a", "b")], law=Laplace(1.0), exact=[q.table("a"), q.table("b")]
    )
    formulation = formulation_on(held(made), 10, concentration=0.6)
    assert isinstance(formulation, Rows)
    near(formulation, [6])


EFFECTS = {
    "two tables that share a variable": (
        CYCLE,
        {"exact": [q.table("a", "b"), q.table("b", "c")]},
        4,
    ),
    "margins and bounds around a cycle": (
        CYCLE,
        {"exact": [q.table("a"), q.table("c")], "within": [q.table("d")]},
        4,
    ),
    "a three-way table": (
        specification(*AWKWARD["three-way"]),
        {"exact": [q.table("b")], "within": [q.table("c", "a")]},
        3,
    ),
    "integer names and a variable of one state": (
        ODD,
        {"exact": [q.table(1), q.table(2, 0)], "within": [q.table(5)]},
        3,
    ),
    "tied potentials": (TIED, {"exact": [q.table("a"), q.table("c")]}, 4),
}


LONG = (
    "a three-way table",
    "integer names and a variable of one state",
    "two tables that share a variable",
    "margins and bounds around a cycle",
)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if case in LONG else []) for case in EFFECTS],
)
def test_records_of_other_models_too(case):
    model, known, records = EFFECTS[case]
    made = release(model, records, noisy=[q.parities(2)], law=Gaussian(2.5), **known)
    formulation = formulation_on(held(made), 10, scale=1.0)
    assert isinstance(formulation, NormalEffects)
    compared = agrees if case in LONG else near
    compared(
        formulation, [records], size=10_000
    )  # some cells' deviations are known by rare draws alone


@pytest.mark.slow
def test_steps_of_shared_transitions_may_be_within_bounds_after_noise():
    """Counts of each window withheld after noise: exchanges of tails weigh the bounds, as moves of records do."""
    chain = ModelSpecification(
        domain=TREE.domain, cliques=TREE.cliques, ties=(TREE.cliques,), shares_transitions=True
    )
    first, middle, last = chain.domain.variables
    law, pooled = Within(3.0, DiscreteLaplace(0.5)), q.pooled([(first, middle), (middle, last)])
    given = [Measurement(query, np.full(4, 3.0), law) for query in (q.table(first, middle), pooled)]
    made = NoisyStatistics.from_measurements(chain, given, total=6)
    formulation = formulation_on(held(made), 10, concentration=0.8)
    near(formulation, [6], size=10_000, potentials=conditionals(chain))


def test_records_of_a_chain_of_shared_transitions_too():
    """Its first and last states known, and bounds in between: against the sum over draws of the prior's rows."""
    chain = ModelSpecification(
        domain=TREE.domain, cliques=TREE.cliques, ties=(TREE.cliques,), shares_transitions=True
    )
    first, middle, last = chain.domain.variables
    known = {"exact": [q.table(first), q.table(last)], "within": [q.table(middle)]}
    pooled = q.pooled([(first, middle), (middle, last)])
    made = release(chain, 4, noisy=[q.table(first, middle), pooled], law=Laplace(1.5), **known)
    formulation = formulation_on(held(made), 10, concentration=0.8)
    assert isinstance(formulation, SharedTransitions)

    near(formulation, [4], size=10_000, potentials=conditionals(chain))
    window = release(chain, 4, noisy=[pooled], law=Laplace(1.5), exact=[q.table(first, middle)])
    with pytest.raises(ModelError, match="tables of single times"):
        LatentCounts().fit(window, rng=1)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
def test_every_draw_gives_the_exact_answers_back():
    """And stays within the bounds; intervals of what is known have no width."""
    model = specification({v: [0, 1, 2] for v in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d")])
    exact, within = (
        [q.table("a", "b"), q.table("d")],
        [q.weighted("b", "c", matrix=np.eye(9)[[0, 4]])],
    )
    noisy = [q.table("b", "c"), q.table("c", "d")]
    made = release(model, 150, noisy=noisy, law=Laplace(3.0), exact=exact, within=within)
    posterior = LatentCounts().fit(made, rng=1, draws=100, tune=50, chains=2, time_limit=1e-9)
    assert posterior.stats["formulation"] == "exact"
    counts = finished_of(posterior).counts.reshape(-1, model.size)
    given = {measurement.query: measurement for measurement in made.measurements}
    for query in exact:
        answers = query.bind(model).answers(counts)
        assert (answers == given[query].values).all()
    answers = within[0].bind(model).answers(counts)
    assert np.abs(answers - given[within[0]].values).max() <= 1.0
    people = posterior.interval(["a", "b"], of="records")
    assert (people["lower"] == people["upper"]).all()
    shares = posterior.interval(["a", "b"])
    assert (shares["lower"] < shares["upper"]).all()
    with pytest.raises(ModelError, match="PyMC relaxes the counts"):
        _ = posterior.pymc_model


@pytest.mark.slow
def test_intervals_hold_at_their_level_beside_exact_margins():
    """Records of probabilities from the prior, their margins known: 90 % intervals of counts, at a level of 1e-4."""
    rng, inside, number = np.random.default_rng(8), 0, 0
    model = specification({v: [0, 1, 2] for v in "abc"}, [("a", "b"), ("b", "c")])
    law, exact = DiscreteLaplace(3.0), [q.table("a"), q.table("b"), q.table("c")]
    for trial in range(25):
        rows = rng.dirichlet(np.full(9, 0.7)).reshape(3, 3)
        joint = rows[:, :, np.newaxis] * rng.dirichlet(np.full(3, 0.7), 3)[np.newaxis]
        truth = rng.multinomial(100, joint.ravel()).reshape(3, 3, 3)
        counts = np.concatenate([truth.sum(axis=2).ravel(), truth.sum(axis=0).ravel()])
        given = [Measurement(one, one.bind(model).answers(counts), NoNoise()) for one in exact]
        given += [
            Measurement(one, one.bind(model).answers(counts) + law.draw(9, rng), law)
            for one in (q.table("a", "b"), q.table("b", "c"))
        ]
        evidence = held(NoisyStatistics.from_measurements(model, given))
        formulation = Rows(evidence=evidence, concentration=0.7, total=100)
        drawn = formulation.sample(draws=200, tune=40, chains=1, seed=trial, time_limit=0.0).draws[
            "counts"
        ]
        shaken = np.asarray(drawn).reshape(-1, 18) + rng.uniform(-0.5, 0.5, (200, 18))
        lower, upper = np.quantile(shaken, [0.05, 0.95], axis=0)
        told = counts + rng.uniform(-0.5, 0.5, 18)
        inside, number = inside + int(((lower <= told) & (told <= upper)).sum()), number + 18
    # cells of one table hang together: of the 18 about 8 are free
    assert abs(inside - 0.9 * number) < 3.9 * np.sqrt(0.09 * number * 18 / 8) + 0.02 * number


def test_relaxed_counts_and_what_moves_may_not_link_are_refused_with_a_remedy():
    made = release(TREE, 20, noisy=[TABLE], law=Laplace(1.0), exact=[q.table("a")])
    for formulation in ("hyper-dirichlet", "log-linear"):
        with pytest.raises(ArgumentError, match="formulation='exact'"):
            LatentCounts(formulation=formulation).fit(made)
    with pytest.raises(
        ArgumentError, match=r"draws whole records.*except `cores` and `progress_bar`\."
    ):
        LatentCounts().fit(made, sampler="pymc")
    around = [q.table(*clique) for clique in CYCLE.cliques]
    made = release(CYCLE, 20, noisy=[q.parities(1)], law=Laplace(1.0), exact=around)
    with pytest.raises(ModelError, match=r"form a tree.*NoiseAwareMAP"):
        LatentCounts().fit(made, rng=1)
    everything = release(TREE, 20, noisy=[], law=Laplace(1.0), exact=[q.table("a", "b"), TABLE])
    with pytest.raises(ArgumentError, match="no measurement in this release has noise"):
        LatentCounts().fit(everything)


def test_a_bound_that_leaves_the_number_of_records_alone_is_kept():
    model = specification({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, [("a", "b"), ("b", "c")])
    given = [
        Measurement(q.weighted("a", matrix=[[1.0, 0.0]]), np.array([10.0]), Within(0.5)),
        Measurement(q.table("b", "c"), np.array([3.0, 2.0, 2.0, 3.0]), DiscreteLaplace(2.0)),
    ]
    release = NoisyStatistics.from_measurements(model, given, total=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # so few draws
        posterior = LatentCounts().fit(release, rng=1, draws=100, tune=50, chains=2, time_limit=1)
    counts = posterior.tree["posterior"]["counts[a,b]"].to_numpy().reshape(-1, 2, 2)
    assert (counts[:, 0].sum(axis=1) == 10).all()


def test_sums_that_neighbours_bound_across_what_they_share_are_refused():
    """Two sums say n(a=0) = 5; the other clique's bound keeps a sum of parts of (a, b) from being told beforehand."""
    model = specification(
        {"a": [0, 1], "b": [0, 1], "x": [0, 1], "y": [0, 1, 2]}, [("a", "b", "x"), ("a", "b", "y")]
    )
    whole, part = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    whole[0], part[1, 0, 0] = 1, 1
    value, law = Within.between(0, 30)
    given = [
        Measurement(
            q.weighted("a", "b", "x", matrix=[(whole + part).ravel(), (whole + 2 * part).ravel()]),
            np.array([7.0, 9.0]),
            NoNoise(),
        ),
        Measurement(q.weighted("a", "b", "y", matrix=np.eye(1, 12)), np.array([value]), law),
        Measurement(q.table("a", "b", "y"), np.arange(12.0), DiscreteLaplace(3.0)),
    ]
    with pytest.raises(ModelError, match="restrict each other across"):
        LatentCounts().fit(NoisyStatistics.from_measurements(model, given), rng=1)
