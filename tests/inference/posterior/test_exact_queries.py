"""Whole records given answers to queries: against sums over all data sets, for each kind and both engines."""

import numpy as np
import pytest
from inference.conftest import simulated_counts, specification
from inference.posterior.drawn import finished_of
from inference.posterior.engines import NormalEffects, Rows
from inference.posterior.test_exact_effects import summed
from repeats import few

from bayesprivmrf import queries as q
from bayesprivmrf.inference import LatentCounts, gather
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace
from bayesprivmrf.release import Measurement, NoisyStatistics

TREE = specification({v: ["n", "y"] for v in "abc"}, [("a", "b"), ("b", "c")])
CYCLE = specification({v: [0, 1] for v in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
ODD = (
    specification(  # integer names, labels that are not sorted, a variable of one state, one apart
        {3: [1, 0], 1: ["x", "a"], 2: [1, 0], 7: ["only"], 5: [2, 0], 0: [1, 0]},
        [(1, 3, 7), (3, 2), (2, 0), (0, 1), (5,)],
    )
)
ZEROS = specification(
    {"a": [0, 1, 2], "b": [0, 1], "c": [0, 1, 2]},
    [("a", "b"), ("b", "c")],
    [(("a", 2), ("b", 0)), (("b", 1), ("c", 0))],
)


def asked(model, kind):
    """Queries of one kind."""
    clique, (first, second) = model.cliques[0], model.cliques[0][:2]
    states = model.domain.states_of(first)
    cells = int(np.prod(model.shapes[0]))
    like = model.domain.states_of(second)
    alike = [c[:2] for c in model.cliques if all(model.domain.states_of(v) == like for v in c[:2])]
    return {
        "tables": [
            q.table(*reversed(clique)),
            q.table(second),
            q.table(second),
            q.table(*model.cliques[-1]),
        ],
        "coarsened": [
            q.coarsened(*clique, groups={first: {"one": [states[0]], "rest": states[1:]}}),
            q.coarsened(second, groups={second: {"all": model.domain.states_of(second)}}),
        ],
        "weighted": [q.weighted(*clique, matrix=[np.arange(cells) - 1, 3 * np.eye(cells)[0]])],
        "parities": [q.parities(2)],
        "pooled": [q.pooled(alike), q.pooled([(v,) for v in dict.fromkeys(sum(alike, ()))])],
    }[kind]


KINDS = ("tables", "coarsened", "weighted", "parities", "pooled")


def release(model, queries, law, seed, records):
    rng = np.random.default_rng(seed)
    counts, _ = simulated_counts(model, records, rng)
    given = []
    for query in queries:
        exact = query.bind(model).answers(counts)
        given.append(Measurement(query, exact + law.draw(exact.shape, rng), law))
    return NoisyStatistics.from_measurements(model, given, total=records)


def agrees(formulation, totals, draws=4000, size=8000, potentials=None, *, within=(0.15, 0.13)):
    """Means within .15 deviations of the sum, 4.5 standard errors of 8,000 draws worth a ninth each."""
    mean, deviation = summed(formulation, totals, size=size, potentials=potentials)
    drawn = formulation.sample(draws=draws, tune=300, chains=2, seed=1, time_limit=1e-9)
    finished = formulation.finish(drawn.draws, np.random.default_rng(0))
    found = np.concatenate(
        [finished.marginals, finished.counts, finished.total[..., np.newaxis]], axis=-1
    )
    found = found.reshape(2 * draws, -1)
    moves = deviation > 1e-9
    np.testing.assert_allclose(found[:, ~moves] - mean[~moves], 0.0, atol=1e-6)
    assert np.abs((found.mean(axis=0) - mean)[moves] / deviation[moves]).max() < within[0]
    assert found.std(axis=0)[moves] == pytest.approx(deviation[moves], rel=within[1], abs=0.008)


def near(formulation, totals, **given):
    """As `agrees`, where 5,000 draws are worth 1,650 and more."""
    agrees(formulation, totals, draws=2500, within=(0.12, 0.1), **given)


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        # other tables and groups of states are those of `test_exact_records.py` and of weights
        ("weighted", DiscreteLaplace(0.7)),
        ("pooled", Gaussian(1.5)),
        pytest.param("parities", DiscreteLaplace(0.7), marks=pytest.mark.slow),
        *(pytest.param(kind, Gaussian(1.5), marks=pytest.mark.slow) for kind in KINDS[:3]),
    ],
)
def test_records_of_a_tree_have_the_posterior_of_the_sum_over_all_data_sets(kind, law):
    evidence = gather(release(TREE, asked(TREE, kind), law, 7, 4))
    agrees(Rows(evidence=evidence, concentration=0.7, total=4), [4])


@pytest.mark.parametrize("kind", few(["parities", "weighted"]))
def test_an_unknown_number_of_records_too(kind):
    evidence = gather(release(TREE, asked(TREE, kind), Laplace(1.5), 8, 4))
    agrees(Rows(evidence=evidence, concentration=1.0, total_range=(2, 5)), range(2, 6))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[1:])  # all of them together are in the next test
def test_records_of_a_cycle_too(kind):
    evidence = gather(release(CYCLE, asked(CYCLE, kind), DiscreteLaplace(1.0), 9, 3))
    agrees(NormalEffects(evidence=evidence, scale=1.0, total_range=(2, 3)), range(2, 4))


def test_all_kinds_together_with_odd_names_a_variable_of_one_state_and_one_apart():
    queries = [query for kind in KINDS for query in asked(ODD, kind)]
    evidence = gather(release(ODD, queries, Gaussian(4.0), 10, 2))
    near(NormalEffects(evidence=evidence, scale=1.2, total=2), [2])


def test_impossible_cells_hold_no_record():
    queries = [q.parities(2), q.pooled([("a",), ("c",)])]
    evidence = gather(release(ZEROS, queries, DiscreteLaplace(1.0), 11, 3))
    near(NormalEffects(evidence=evidence, scale=1.0, total=3), [3])


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
def test_many_records_are_near_what_many_precise_answers_say():
    """Of many answers; the bounded factors of the proposal would bend the law, if they entered it."""
    model = CYCLE
    counts, _ = simulated_counts(model, 4000, np.random.default_rng(12), scale=0.6)
    queries = [q.parities(2)] * 4 + [q.table(*clique) for clique in model.cliques]
    laws, rng = DiscreteLaplace(1.0), np.random.default_rng(13)
    given = []
    for query in queries:
        exact = query.bind(model).answers(counts)
        given.append(Measurement(query, exact + laws.draw(exact.shape, rng), laws))
    made = NoisyStatistics.from_measurements(model, given, total=4000)
    posterior = LatentCounts(formulation="exact").fit(
        made, rng=1, draws=60, tune=60, chains=2, time_limit=1e-9
    )
    assert posterior.stats["formulation"] == "exact"
    latent = finished_of(posterior).counts.reshape(-1, model.size)
    assert (latent == np.rint(latent)).all()
    assert np.abs(latent.mean(axis=0) - counts).max() < 6
    assert latent.std(axis=0).max() < 3
