"""Maximum likelihood from noisy means: exact against theory, Gibbs against exact; targets and the filter."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.inference.loglinear_fit import (
    MomentsFinder,
    closed_form,
    fit_means,
    is_narrow,
)
from bayesprivmrf.learning import LearnedIsing, select_measure
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.mechanisms.select_measure import measured_on_rows
from bayesprivmrf.model import Domain, Effects
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import DiscreteGaussian
from bayesprivmrf.release import Provenance


def model(cards, pairs, seed=1, size=0.5):
    """Effects, their true coordinates, means, and the tables of pairs and variables."""
    effects = Effects.of(cards, (*pairs, *((v,) for v in range(len(cards)))))
    beta = np.random.default_rng(seed).normal(0, size, effects.size)
    mu = marginal_engine(cards, effects.scopes).marginals(effects.potentials(beta))[1]
    sizes = [np.prod([cards[v] for v in scope]) for scope in effects.scopes]
    parts = [
        part.reshape([cards[v] for v in scope])
        for part, scope in zip(np.split(mu, np.cumsum(sizes)[:-1]), effects.scopes, strict=True)
    ]
    return effects, beta, effects.pull_back(mu), parts[: len(pairs)], parts[len(pairs) :]


TREE = ((2, 3, 2, 4, 1), [(0, 1), (1, 2), (1, 3)])
LOOP = ((2, 3, 2, 2), [(0, 1), (1, 2), (2, 3), (0, 3)])


@pytest.mark.parametrize(("cards", "pairs"), [TREE, LOOP])
def test_the_exact_fit_finds_the_model_of_its_means(cards, pairs):
    effects, beta, means, _, _ = model(cards, pairs)
    fit = fit_means(effects, means, np.zeros(effects.size), MomentsFinder(1e4, 2))
    assert fit.status == "converged"
    assert fit.inference == "exact"
    np.testing.assert_allclose(fit.coordinates, beta, atol=1e-4)


def test_the_closed_form_is_exact_on_a_tree_and_not_on_a_loop():
    for (cards, pairs), is_exact in ((TREE, True), (LOOP, False)):
        effects, beta, _, joint, single = model(cards, pairs)
        error = np.abs(closed_form(effects, joint, single) - beta).max()
        assert (error < 1e-10) == is_exact


def test_gibbs_agrees_with_the_exact_fit():
    cards, pairs = (
        (2,) * 12,
        [(i, (i + 1) % 12) for i in range(12)] + [(i, (i + 5) % 12) for i in range(0, 12, 3)],
    )
    effects, beta, means, joint, single = model(cards, pairs, size=0.9)
    start = closed_form(effects, joint, single)
    finder = MomentsFinder(1e4, 3, "gibbs")
    fit = fit_means(effects, means, np.zeros(effects.size), finder, start=start)
    assert fit.status == "approximate"
    # 262,144 draws that depend on each other: deviations of coordinates are about 2 to 6 in 512
    assert np.abs(fit.coordinates - beta).max() < 0.04
    assert np.abs(start - beta).max() > 0.04


def test_the_ridge_is_that_of_the_stated_objective():
    effects, _, means, _, _ = model(*LOOP)
    ridges = np.linspace(0.05, 0.4, effects.size)
    fit = fit_means(effects, means, ridges, MomentsFinder(1e4, 4))
    mu = marginal_engine(effects.cardinalities, effects.scopes).marginals(
        effects.potentials(fit.coordinates)
    )[1]
    np.testing.assert_allclose(
        effects.pull_back(mu) - means + ridges * fit.coordinates, 0, atol=2e-5
    )


def test_impossible_means_have_a_finite_estimate():
    effects, _, means, _, _ = model(*LOOP)
    fit = fit_means(effects, 3 * means, np.full(effects.size, 0.05), MomentsFinder(1e3, 5))
    assert np.isfinite(fit.coordinates).all()
    assert np.abs(fit.coordinates).max() < 50


def test_wide_models_are_left_to_sampling():
    chain = [(i, i + 1) for i in range(99)]
    complete = list(itertools.combinations(range(60), 2))
    assert is_narrow((2,) * 100, chain)
    assert not is_narrow((2,) * 60, complete)


def measured(cards, form, noise, n=3000, seed=6):
    free = [v for v, k in enumerate(cards) if k > 1]
    plan = select_measure.MeasurementPlan(
        cardinalities=cards,
        form=form,
        candidates=np.array(list(itertools.combinations(free, 2))),
        count=len(free) * (len(free) - 1) // 2,
        one_way=DiscreteGaussian(noise),
        two_way=DiscreteGaussian(noise),
        selection_scale=None,
    )
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, k, n) for k in cards], axis=1).astype(np.uint8)
    codes[:, 1] = np.where(rng.random(n) < 0.6, codes[:, 0] % cards[1], codes[:, 1])
    found = measured_on_rows(codes, np.ones(n, dtype=np.int64), float(n), plan, SimulatedNoise(rng))
    return select_measure.PairTargets.of(found, plan, float(n), 0.0), codes


def test_moments_and_tables_give_the_same_means():
    moments, _ = measured((2,) * 4, "moments", 1e-3)
    tables, _ = measured((2,) * 4, "tables", 1e-3)
    for a, b in zip((*moments.single, *moments.pair), (*tables.single, *tables.pair), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_tables_without_noise_are_given_back():
    targets, codes = measured((3, 2, 1, 4), "tables", 1e-3)
    for (i, j), table in zip(targets.pairs.tolist(), targets.tables(), strict=True):
        exact = np.zeros(table.shape)
        np.add.at(exact, (codes[:, i], codes[:, j]), 1 / len(codes))
        np.testing.assert_allclose(table, exact, atol=1e-12)


def test_what_measures_a_mean_more_often_measures_it_better():
    noise = 20.0
    errors, stated = [], []
    for seed in range(60):
        noisy, _ = measured((3, 2, 2), "tables", noise, seed=seed)
        exact, _ = measured((3, 2, 2), "tables", 1e-3, seed=seed)
        errors.append(np.concatenate(noisy.single) - np.concatenate(exact.single))
        stated = np.repeat(noisy.single_noise, [2, 1, 1])
    ratio = np.mean(np.square(errors), axis=0) / stated
    assert (ratio > 0.55).all()  # 60 draws: chi-squared at level 1e-3 a side
    assert (ratio < 1.65).all()
    assert (stated < noise**2 / 3000**2).all()


def test_only_dependent_pairs_stand_out():
    kept = np.array(
        [measured((2,) * 5, "moments", 30.0, seed=seed)[0].standing_out() for seed in range(25)]
    )
    assert kept[:, 0].all()  # the pair (0, 1)
    assert kept[:, 1:].mean() < 0.09  # 225 pairs, at most 0.05 each: level 1e-2


def test_where_all_is_noise_hardly_ever_does_a_pair_stand_out():
    targets, _ = measured((2,) * 8, "moments", 1e5)  # far more than records
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(300):
        pair = list(rng.normal(0, targets.pair_noise**0.5, (28, 1, 1)))
        found += replace(targets, single=[np.zeros(1)] * 8, pair=pair).standing_out().any()
    assert 12 <= found <= 50  # of 300 at a rate of a tenth: level 1e-3


def test_with_nothing_but_sampling_a_false_pair_is_rare():
    kept = np.array(
        [measured((2,) * 5, "moments", 1e-3, seed=seed)[0].standing_out() for seed in range(25)]
    )
    assert kept[:, 0].all()
    assert kept[:, 1:].mean() < 0.09  # the tail is that of two deviations with so few candidates


def independent(shares, total: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """All records of independent two-state variables, and how many there are of each."""
    codes = np.array(list(itertools.product((0, 1), repeat=len(shares))), dtype=np.uint8)
    return codes, rng.multinomial(
        total, np.where(codes, shares, 1 - np.asarray(shares)).prod(axis=1)
    )


def test_no_more_pairs_of_rare_states_stand_out_by_noise_than_the_rate_allows():
    """A noisy number of records moves all covariances of rare states at once: left out, the rate was .21."""
    total, law = 100_000, DiscreteGaussian(50.0)
    pairs = np.array(list(itertools.combinations(range(6), 2)))
    plan = select_measure.MeasurementPlan(
        cardinalities=(2,) * 6,
        form="moments",
        candidates=pairs,
        count=len(pairs),
        one_way=DiscreteGaussian(55.0),
        two_way=DiscreteGaussian(29.0),
        selection_scale=None,
    )
    rng = np.random.default_rng(8)
    source, runs, found = SimulatedNoise(rng), 500, 0
    for _ in range(runs):
        codes, counts = independent([0.005] * 6, total, rng)
        noisy = float(source.add(np.array([total]), law)[0])
        measured = measured_on_rows(codes, counts, noisy, plan, source)
        targets = select_measure.PairTargets.of(measured, plan, noisy, law.variance)
        found += bool(targets.standing_out().any())
    # false discoveries where nothing is true: one in ten at most; the level of this test is 1e-4
    assert found / runs < 0.1 + 3.72 * np.sqrt(0.1 * 0.9 / runs)


def test_a_pair_at_the_limit_of_its_interval_is_left_out_as_often_as_the_interval_may_miss():
    total, law, share = 20_000, DiscreteGaussian(200.0), 0.05
    plan = select_measure.MeasurementPlan(
        cardinalities=(2, 2),
        form="moments",
        candidates=np.array([[0, 1]]),
        count=1,
        one_way=DiscreteGaussian(20.0),
        two_way=DiscreteGaussian(10.0),
        selection_scale=None,
    )
    learned = LearnedIsing(
        domain=Domain.from_states({"a": [0, 1], "b": [0, 1]}),
        guarantee=bpm.PrivacyGuarantee(rho=1.0, adjacency="add-or-remove-one"),
        provenance=Provenance(mechanism="by hand"),
        coupling_matrix=np.zeros((2, 2)),
        field_vector=np.full(2, np.log(share / (1 - share)) / 2),
        total=total,
        total_noise=law,
        map=select_measure.CouplingsByMeasurement(plan=plan, total_noise=law),
    )
    upper = float(learned.couplings_interval(0.9, rng=1)["upper"].iloc[0])
    spread = share * (1 - share)
    covariance = spread * np.tanh(
        4 * upper * spread
    )  # the module's; the slope at independence is 4 times the square
    table = np.multiply.outer([1 - share, share], [1 - share, share]) + covariance * np.array(
        [[1, -1], [-1, 1]]
    )
    codes = np.array(list(itertools.product((0, 1), repeat=2)), dtype=np.uint8)
    rng = np.random.default_rng(9)
    source, runs, left_out = SimulatedNoise(rng), 600, 0
    for _ in range(runs):
        noisy = float(source.add(np.array([total]), law)[0])
        counts = rng.multinomial(total, table.ravel())
        measured = measured_on_rows(codes, counts, noisy, plan, source)
        left_out += (
            not select_measure.PairTargets.of(measured, plan, noisy, law.variance)
            .standing_out()
            .any()
        )
    # 3.9 standard errors, and a fifth for what is of first order
    assert left_out / runs == pytest.approx(0.05, abs=0.01 + 3.9 * np.sqrt(0.05 * 0.95 / runs))
