"""Answers without noise: every estimator gives them back, and those that contradict each other are refused."""

from itertools import product

import numpy as np
import pytest
from inference.conftest import AWKWARD, simulated_counts, specification

from bayesprivmrf import analysis
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ConsistencyWarning, ModelError
from bayesprivmrf.inference import (
    CGM,
    LatentCounts,
    NaiveMLE,
    NoiseAwareMAP,
    Status,
    gather,
    least_squares,
)
from bayesprivmrf.model import Effects
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics

MODELS = {
    name: specification(*AWKWARD[name])
    for name in ("tree", "cycle", "disconnected", "one state", "three-way")
}
CYCLE = MODELS["cycle"]
ZEROS = specification(
    {"a": ["x", "y"], "b": [0, 1, 2], "c": [0, 1]},
    [("a", "b"), ("b", "c"), ("c", "a")],
    [(("a", "x"), ("b", 1))],
)


def release(model, counts, exact, noisy, law, seed=1, total=None):
    rng, given = np.random.default_rng(seed), []
    for query, own in [(query, NoNoise()) for query in exact] + [(query, law) for query in noisy]:
        answers = query.bind(model).answers(counts)
        given.append(Measurement(query, answers + own.draw(answers.shape, rng), own))
    return NoisyStatistics.from_measurements(model, given, total=total)


KINDS = ["table", "nested", "weighted", "parities", "pooled"]
ESTIMATORS = {"naive": NaiveMLE(), "cgm": CGM(), "map": NoiseAwareMAP()}


def invariants(model, kind):
    """Exact queries that tell something beside the total."""
    first = model.domain.variables[0]
    states = model.domain.states_of(first)
    return {
        "table": [q.table(first)],
        "nested": [q.table(*model.cliques[0]), q.table(first)],
        "weighted": [q.weighted(first, matrix=[np.arange(len(states)) + 1])],
        "parities": [q.parities(1)],
        "pooled": [q.pooled([(first,), (model.domain.variables[-1],)])],
    }[kind]


@pytest.mark.parametrize(
    ("name", "kind", "estimator"),
    [
        pytest.param(name, kind, ESTIMATORS[estimator], id=f"{name}-{kind}-{estimator}")
        for (i, name), (j, kind) in product(enumerate(MODELS), enumerate(KINDS))
        for estimator in [list(ESTIMATORS)[(i + j) % len(ESTIMATORS)]]
    ],
)
def test_an_estimate_gives_answers_without_noise_back(name, kind, estimator):
    """Each model with each kind of query, and each estimator with each model and with each kind."""
    model = MODELS[name]
    first, last = model.domain.variables[0], model.domain.variables[-1]
    if kind == "pooled" and model.domain.states_of(first) != model.domain.states_of(last):
        pytest.skip("their states are not alike")
    counts, _ = simulated_counts(model, 500, np.random.default_rng(3), scale=0.7)
    noisy = [q.table(*clique) for clique in model.cliques]
    made = release(model, counts, invariants(model, kind), noisy, Laplace(8.0))
    evidence = gather(made)
    solution = estimator.fit(made)
    missed = evidence.noisy_counts - evidence.total * evidence.gathered(solution.marginals.flat)
    assert np.abs(missed[evidence.is_exact]).max() < 1e-4
    assert solution.status in ("converged", "stopped early", "iteration limit")


@pytest.mark.parametrize(
    "estimator", [NaiveMLE(), CGM(), NoiseAwareMAP()], ids=["naive", "cgm", "map"]
)
def test_with_impossible_cells_and_another_law_too(estimator):
    counts, _ = simulated_counts(ZEROS, 400, np.random.default_rng(4), scale=0.5)
    made = release(ZEROS, counts, [q.table("b"), q.table("a", "c")], [q.parities(2)], Gaussian(9.0))
    solution = estimator.fit(made)
    evidence = gather(made)
    missed = evidence.noisy_counts - 400 * evidence.gathered(solution.marginals.flat)
    assert np.abs(missed[evidence.is_exact]).max() < 1e-4
    assert not solution.marginals.flat[~ZEROS.possible].any()


def test_least_squares_meets_constraints_and_is_the_limit_of_ever_less_noise():
    counts, _ = simulated_counts(CYCLE, 400, np.random.default_rng(5))
    exact = [q.table("a"), q.table("b", "c"), q.coarsened("b", b={"all": [0, 1, 2]})]
    noisy = [q.parities(2), q.table("d", "a")]
    made = release(CYCLE, counts, exact, noisy, Laplace(5.0))
    found, evidence = least_squares.least_squares(gather(made)), gather(made)
    shown = evidence.gathered(found.counts)
    assert np.abs(shown - evidence.noisy_counts)[evidence.is_exact].max() < 1e-8
    values = made.measurements
    near = [Measurement(each.query, each.values, Gaussian(1e-4)) for each in values[:3]] + list(
        values[3:]
    )
    limit = least_squares.least_squares(
        gather(NoisyStatistics.from_measurements(CYCLE, near, total=400))
    )
    assert np.allclose(found.counts, limit.counts, atol=1e-4)
    assert np.allclose(found.variances, limit.variances, atol=1e-4)
    given = Effects.of(CYCLE.cardinalities, CYCLE.scopes), *least_squares.noisy_rows(evidence)
    one, other = least_squares.by_equations(*given), least_squares.by_products(*given)
    assert np.allclose(one.counts, other.counts, atol=1e-5)
    assert np.array_equal(one.undetermined, other.undetermined)


def test_the_noise_aware_estimate_is_the_limit_of_ever_less_noise():
    """With its intervals: of what is known they keep the sampling of the people alone."""
    counts, _ = simulated_counts(CYCLE, 400, np.random.default_rng(6), scale=0.5)
    noisy = [q.table(*clique) for clique in CYCLE.cliques]
    made = release(CYCLE, counts, [q.table("a"), q.table("b")], noisy, Laplace(6.0))
    near = [Measurement(each.query, each.values, Gaussian(0.3)) for each in made.measurements[:2]]
    limit = NoisyStatistics.from_measurements(CYCLE, near + list(made.measurements[2:]), total=400)
    exact, close = NoiseAwareMAP(scale=0.5).fit(made), NoiseAwareMAP(scale=0.5).fit(limit)
    assert np.abs(exact.marginals.flat - close.marginals.flat).max() < 2e-3
    for variables in (["a"], ["a", "b"]):
        one, other = (each.interval(variables) for each in (exact, close))
        assert np.allclose(one[["lower", "upper"]], other[["lower", "upper"]], atol=4e-3)


def test_answers_without_noise_tell_the_number_of_records_together():
    counts, _ = simulated_counts(CYCLE, 300, np.random.default_rng(7))
    parts = [
        q.weighted("a", matrix=[[1, 0]]),
        q.weighted("b", matrix=[[1, 1, 0]]),
        q.weighted("b", matrix=[[0, 0, 1]]),
    ]
    evidence = gather(release(CYCLE, counts, parts, [q.table("a", "b")], Laplace(5.0)))
    assert (evidence.total, evidence.total_standard_error) == (300, 0)
    alone = gather(release(CYCLE, counts, parts[:1], [q.table("a", "b")], Laplace(5.0)))
    assert alone.total_standard_error > 0


@pytest.mark.parametrize(
    ("exact", "total"),
    [
        ([(q.table("a"), [123, 77]), (q.table("b"), [100, 50, 49])], None),
        ([(q.table("a"), [123, 77]), (q.weighted("a", matrix=[[1, 2]]), [276])], None),
        ([(q.weighted("a", matrix=[[1, 1]]), [123])], 200),
        ([(q.table("a"), [223, -23])], None),
        (
            [
                (q.table("a", "b"), [1, 2, 3, 4, 5, 6]),
                (q.coarsened("b", b={"u": [2, 1], "v": [0]}), [13, 8]),
            ],
            None,
        ),
    ],
)
def test_answers_that_contradict_each_other_are_refused_without_their_values(exact, total):
    given = [Measurement(query, np.array(values), NoNoise()) for query, values in exact]
    given.append(Measurement(q.table("c", "d"), np.full(4, 50), DiscreteLaplace(40.0)))
    for estimator in (NaiveMLE(), CGM(), NoiseAwareMAP(), LatentCounts()):
        with pytest.raises(ModelError, match="contradict each other") as caught:
            estimator.fit(NoisyStatistics.from_measurements(CYCLE, given, total=total))
        assert "23" not in str(caught.value)


def test_intervals_beside_exact_margins_hold_tables_that_noise_blurs():
    """90 % intervals of 120 probabilities, of which 0.9 are expected; 0.8 is three standard errors below.

    They held 0.6 when the scales of the effects did not learn from exact answers.
    """
    pairs = [("a", "b"), ("b", "c")]
    model = specification({"a": [0, 1, 2], "b": [0, 1, 2], "c": [0, 1]}, pairs)
    held = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        energy = rng.normal(0, 0.7, (3, 3))[:, :, np.newaxis] + rng.normal(0, 0.7, (3, 2))
        shares = np.exp(energy) / np.exp(energy).sum()
        table = rng.multinomial(1000, shares.ravel()).reshape(shares.shape)
        counts = np.concatenate([table.sum(axis=2).ravel(), table.sum(axis=0).ravel()])
        margins = [q.table(name) for name in "abc"]
        noisy = [q.table(*pair) for pair in pairs]
        solution = NoiseAwareMAP().fit(
            release(model, counts, margins, noisy, DiscreteLaplace(20.0), seed, 1000)
        )
        for pair, axis in zip(pairs, (2, 0), strict=True):
            truth = shares.sum(axis=axis).ravel()
            rows = solution.interval(list(pair))
            held.append((rows["lower"] <= truth) & (truth <= rows["upper"]))
    assert np.mean(np.concatenate(held)) > 0.8


PAIR = specification({"a": range(4), "b": range(5)}, [("a", "b")])


def beside_exact_margins(effects, seed):
    """Release of 1,000 people with exact margins and a noisy table; the effects have a standard deviation."""
    rng = np.random.default_rng(seed)
    counts, _ = simulated_counts(PAIR, 1000, rng, scale=effects)
    margins = [q.table("a"), q.table("b")]
    return release(PAIR, counts, margins, [q.table("a", "b")], DiscreteLaplace(30.0), seed, 1000)


def test_a_given_scale_that_exact_margins_contradict_is_not_trusted():
    """Exact margins are met whatever the prior, so that the misfit of the numbers alone does not tell."""
    for seed in range(5):
        made = beside_exact_margins(1.0, seed)
        for scale in (0.0001, 0.01, 0.05):
            with pytest.warns(ConsistencyWarning, match="contradicts the given `scale`"):
                solution = NoiseAwareMAP(scale=scale).fit(made)
            assert solution.status is Status.NOT_TRUSTED
            assert any("leave `scale` to be learned" in problem for problem in solution.problems)
        assert NoiseAwareMAP().fit(made).status is Status.CONVERGED


def test_a_right_scale_is_not_accused_beside_exact_margins():
    """Of 30 releases none, at a level of 0.001 each."""
    for scale in (0.1, 0.3, 0.8):
        for seed in range(10):
            solution = NoiseAwareMAP(scale=scale).fit(beside_exact_margins(scale, 100 + seed))
            assert solution.status is Status.CONVERGED
            assert solution.stats["scale_tail"] > 1e-3


def test_odds_ratios_that_noise_hides_have_the_uncertainty_of_their_scale():
    """The error is above that of the learned scale, and below the exact one of its prior given the main effects.

    A local log odds ratio is twice a standard normal coordinate times the scale. The exact error was computed by
    400,000 draws of the scales, weighted by the density of the main effects.
    """
    model = specification({"a": range(3), "b": range(3)}, [("a", "b")])
    margin = np.exp(0.3 * np.array([-1.0, 0.0, 1.0]))
    counts = np.rint(1000 * np.outer(margin, margin) / margin.sum() ** 2).ravel()
    margins = [q.table("a"), q.table("b")]
    law = DiscreteLaplace(10_000.0)
    made = release(model, counts, margins, [q.table("a", "b")], law, 1, counts.sum())
    solution = NoiseAwareMAP().fit(made)
    rows = analysis.odds_ratios(solution, "a", "b")
    errors = np.log(rows["upper"] / rows["lower"]).to_numpy() / (2 * 1.6449)
    assert (errors > 1.2 * 2 * solution.stats["scale_of_order_2"]).all()
    assert (errors < 1.58).all()
    assert (rows["status"] == "prior").all()


def test_exact_counts_of_0_hold_their_cells_whatever_the_scale_of_their_effects():
    """The effect of a state without a record is without bound, and must not pass for the uncertainty of its scale."""
    counts = np.array([0, 0, 0, 500, 60, 40, 280, 80, 40])
    model = specification({"a": range(3), "b": range(3)}, [("a", "b")])
    made = release(
        model, counts, [q.table("a")], [q.table("a", "b")], DiscreteLaplace(30.0), 1, 1000
    )
    solution = NoiseAwareMAP().fit(made)
    none = solution.interval(["a", "b"]).loc[0]
    assert (none["upper"] <= 1 - 0.1 ** (1 / 1000) + 1e-12).all()
    known = solution.effects().loc["a"]
    assert (known["upper"] - known["lower"]).max() < 20


def test_a_right_scale_is_not_accused_where_laplace_noise_hides_the_effects():
    """Of 60 releases none at a level of 0.001; of their p-values one in ten is below 0.1, or fewer."""
    tails = []
    for seed in range(60):
        rng = np.random.default_rng(400 + seed)
        counts, _ = simulated_counts(PAIR, 300, rng, scale=0.1)
        made = release(PAIR, counts, [], [q.table("a", "b")], DiscreteLaplace(100.0), seed, 300)
        solution = NoiseAwareMAP(scale=0.1).fit(made)
        assert solution.status is Status.CONVERGED
        tails.append(solution.stats["scale_tail"])
    # 13 or more of 60 have a probability below 0.01 at a level of 0.1
    assert np.sum(np.array(tails) < 0.1) < 13
