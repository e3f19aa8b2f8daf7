"""Regressions for any alphabet: residuals, sensitivity by brute force, an audit, recovery."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

from bayesprivmrf.audit import audit
from bayesprivmrf.learning import frank_wolfe
from bayesprivmrf.learning.frank_wolfe import RESIDUAL_UNIT, SoftmaxRegressions
from bayesprivmrf.mechanisms.frank_wolfe import choose_atoms
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import Adjacency, Exposure, step_rho, step_scale

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
STATES = (2, 3, 4)
EVERY = np.array(list(itertools.product(*map(range, STATES))), dtype=np.uint8)


def source(seed: int) -> SimulatedNoise:
    return SimulatedNoise(np.random.default_rng(seed))


def softmaxes(
    codes: np.ndarray, radius: float = 1.3, states=STATES, counts=None
) -> SoftmaxRegressions:
    counts = np.ones(len(codes), np.int64) if counts is None else counts
    design = frank_wolfe.Design.with_constant(codes, states)
    return SoftmaxRegressions(design, codes, counts, radius, np.arange(len(states)), states)


def pairs(codes: np.ndarray, radius: float = 2.6, counts=None) -> frank_wolfe.LogisticRegressions:
    counts = np.ones(len(codes), np.int64) if counts is None else counts
    node, one, other = np.array(
        [(i, a, b) for i, k in enumerate(STATES) for a in range(k) for b in range(a)]
    ).T
    return frank_wolfe.LogisticRegressions(
        frank_wolfe.Design.with_constant(codes, STATES), codes, counts, radius, node, (one, other)
    )


def moved(regressions, seed: int, steps: int):
    """The same regressions after a few steps along atoms drawn at random."""
    rng = np.random.default_rng(seed)
    rows, groups = len(regressions.coefficients), len(regressions.design.cardinalities)
    widths = np.diff(regressions.design.starts)
    for _ in range(steps):
        chosen = rng.integers(0, groups, rows)
        signs = rng.choice(np.array([-1, 1], np.int8), (rows, widths.max()))
        signs[np.arange(widths.max()) >= widths[chosen, None]] = 0
        regressions.sums()
        regressions.move(frank_wolfe.Atoms(groups=chosen, signs=signs), 1)
    return regressions


def ranges(scores: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Range over atoms of a change of sums: twice its largest group's absolute sum."""
    return 2 * np.add.reduceat(np.abs(scores), starts[:-1], axis=-1).max(axis=-1)


# residuals


@pytest.mark.parametrize("steps", [0, 2, 9, 9000])
def test_softmax_residuals_are_rounded_probabilities(steps):
    regressions = softmaxes(EVERY)
    if steps == 9000:  # so that bits of the margins are dropped
        regressions.move(
            frank_wolfe.Atoms(
                groups=np.zeros(9, np.int64), signs=np.eye(9, 4, dtype=np.int8)[:, :1]
            ),
            steps,
        )
        steps = 3
    regressions = moved(regressions, 1, steps)
    w = regressions.iterates
    features = np.hstack(
        [
            2.0 * EVERY[:, :1] - 1,
            EVERY[:, 1:2] == np.arange(3),
            EVERY[:, 2:] == np.arange(4),
            np.ones((24, 1)),
        ]
    )
    out = np.empty((len(EVERY), 9))
    regressions._residuals(slice(None), regressions.design.codes, out)
    start = 0
    for i, k in enumerate(STATES):
        expected = np.eye(k)[EVERY[:, i]] - softmax(features @ w[start : start + k].T, axis=1)
        here = out[:, start : start + k]
        assert np.abs(here - RESIDUAL_UNIT * expected).max() <= 0.5 * k + 0.3
        assert (here.sum(axis=1) == 0).all()
        start += k


def test_sums_do_not_depend_on_order_or_on_merging_equal_records():
    rng = np.random.default_rng(2)
    codes = EVERY[rng.integers(0, len(EVERY), 9000)]
    distinct, counts = np.unique(codes, axis=0, return_counts=True)
    for kind in (softmaxes, pairs):
        plain = moved(kind(codes), 3, 7).sums()
        assert plain.any()
        np.testing.assert_array_equal(moved(kind(codes[rng.permutation(9000)]), 3, 7).sums(), plain)
        np.testing.assert_array_equal(moved(kind(distinct, counts=counts), 3, 7).sums(), plain)


def test_a_pair_regression_has_no_records_of_other_states():
    sums = pairs(EVERY[EVERY[:, 2] == 3]).sums()
    node, one, other = np.array(
        [(i, a, b) for i, k in enumerate(STATES) for a in range(k) for b in range(a)]
    ).T
    is_in = (node != 2) | (one == 3) | (other == 3)
    assert not sums[~is_in].any()
    assert sums[is_in].any(axis=1).all()


# sensitivity


@pytest.mark.parametrize("kind", ["softmax", "pairs"])
@pytest.mark.parametrize("steps", [0, 1, 5, 40])
@pytest.mark.parametrize("radius", [0.7, 9.0])
def test_one_record_moves_all_choices_together_by_no_more_than_the_exposure(kind, steps, radius):
    make = softmaxes if kind == "softmax" else pairs
    each = [moved(make(record[None], radius), 4, steps) for record in EVERY]
    starts, bounds = each[0].design.starts, each[0].bounds
    sums = np.array([one.sums() for one in each])
    exposure = Exposure.of_softmax(STATES) if kind == "softmax" else Exposure.of_pairs(STATES)
    added = ((ranges(sums, starts) / (2 * bounds)) ** 2).sum(axis=-1)
    replaced = ((ranges(sums[:, None] - sums[None], starts) / (4 * bounds)) ** 2).sum(axis=-1)
    assert added.max() <= exposure.squares
    assert replaced.max() <= exposure.squares
    if kind == "pairs" and steps == 0:
        assert added.max() == exposure.squares
        assert replaced.max() > 0.99 * exposure.squares
    if kind == "softmax" and steps == 0:  # residuals of (1 - 1/k) and 1/k: less than the worst
        worst = sum(((1 - 1 / k) ** 2 + (k - 1) / k**2) / (1 - 1 / k) ** 2 for k in STATES)
        assert added.max() == pytest.approx(worst, rel=1e-2)


def saturated(label: int, feature: int) -> SoftmaxRegressions:
    """One record of three states whose probability is all on state 0 (feature +1) or all on state 1 (feature -1)."""
    codes = np.array([[feature]], np.uint8)
    design = frank_wolfe.Design.with_constant(codes, (2,))
    one = SoftmaxRegressions(
        design, np.array([[label]], np.uint8), np.ones(1, np.int64), 14.0, np.arange(1), (3,)
    )
    for step in range(20):
        one.sums()
        signs = np.array([[1], [-1], [1 if step % 2 else -1]], np.int8)
        one.move(frank_wolfe.Atoms(groups=np.zeros(3, np.int64), signs=signs), 1)
    return one


def test_two_records_attain_the_exposure_of_a_softmax():
    one, other = saturated(label=0, feature=0), saturated(label=1, feature=1)
    change = one.sums() - other.sums()
    squares = ((2 * np.abs(change[:, 1]) / (4 * one.bounds)) ** 2).sum()
    assert 0.998 * 2 < squares <= Exposure.of_softmax((3,)).squares == 2


def test_the_exposures_of_unequal_alphabets():
    assert Exposure.of_softmax((2, 5, 1, 3)) == Exposure(squares=6, choices=10)
    assert Exposure.of_pairs((2, 5, 1, 3)) == Exposure(squares=1 + 4 + 2, choices=1 + 10 + 3)
    assert Exposure.of_pairs((2,) * 7) == Exposure.of_logistic(7)


def test_an_added_record_costs_a_fourth_of_a_replaced_one():
    exposure = Exposure.of_pairs(STATES)
    assert step_scale(exposure, 1.0, 9, ADD) == pytest.approx(
        step_scale(exposure, 1.0, 9, REPLACE) / 2
    )
    assert step_rho(exposure, 30.0, 9, ADD) == pytest.approx(
        step_rho(exposure, 30.0, 9, REPLACE) / 4
    )


# an audit

STEPS = 2


def chosen_signs(label: int, feature: int, share: float, seed: int):
    """Attack statistic: how often states 0 and 1 choose the signs that the record pulls them to."""
    one = saturated(label, feature)
    scales = share * one.bounds * step_scale(Exposure.of_softmax((3,)), 1.0, STEPS, REPLACE)
    noise, sums, start = source(seed), one.sums()[:2, 1:], np.array([0, 1])

    def run(runs: int) -> np.ndarray:
        size = runs * STEPS
        atoms = choose_atoms(
            np.tile(sums, (size, 1)),
            start,
            np.tile(scales[:2], size),
            noise,
            np.ones((2 * size, 1), bool),
        )
        pulled = atoms.signs[:, 0].reshape(size, 2) == np.array([1, -1])
        return pulled.reshape(runs, 2 * STEPS).sum(axis=1)

    return run


def exact_curve(delta: float) -> float:
    """Return epsilon(delta) of two choices a step whose log odds are +-2 over the multiple."""
    size = 2 * STEPS
    up = 1 / (1 + math.exp(-2 / step_scale(Exposure.of_softmax((3,)), 1.0, STEPS, REPLACE)))
    k = np.arange(size + 1)
    p, q = stats.binom.pmf(k, size, up), stats.binom.pmf(k, size, 1 - up)
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if np.maximum(p - math.exp(middle) * q, 0).sum() > delta
            else (low, middle)
        )
    return high


@pytest.mark.parametrize(("share", "caught"), [(1.0, False), (0.9, True)])
def test_an_audit_passes_the_softmax_scale_and_catches_nine_tenths_of_it(share, caught):
    result = audit(
        chosen_signs(0, 0, share, 5),
        chosen_signs(1, 1, share, 6),
        exact_curve,
        runs=100_000,
        deltas=(0.1, 0.03, 0.01),
    )
    assert result.is_violated == caught


# steps


def test_default_steps_grow_with_the_signal_and_never_fall_below_ten():
    def steps(total, rho=1.0, adjacency=ADD):
        fitted = frank_wolfe.PairwiseByPairs(
            cardinalities=(2,) * 50,
            eligible=~np.eye(50, dtype=bool),
            width=1.0,
            rho=rho,
            adjacency=adjacency,
        )
        return fitted.steps_for(total)

    assert steps(1.0) == 10
    assert steps(8e5) == pytest.approx(4 * steps(1e5), rel=0.02)
    assert steps(1e5, rho=4.0, adjacency=REPLACE) == steps(1e5)


# recovery


def pairwise_sample(seed: int, states: tuple[int, ...], width: float, size: int):
    """Chain of random centred tables, and records drawn from its exact law."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(states)])
    W, theta = np.zeros((starts[-1], starts[-1])), np.zeros(starts[-1])
    for i in range(len(states)):
        here = slice(starts[i], starts[i + 1])
        field = rng.normal(size=states[i])
        theta[here] = field - field.mean()
        if i + 1 < len(states):
            there = slice(starts[i + 1], starts[i + 2])
            table = rng.normal(size=(states[i], states[i + 1]))
            table -= table.mean(axis=0)
            W[here, there] = table - table.mean(axis=1, keepdims=True)
    W += W.T
    largest = np.maximum.reduceat(np.abs(W), starts[:-1], axis=1).sum(axis=1) + np.abs(theta)
    W, theta = W * width / largest.max(), theta * width / largest.max()
    cells = np.array(list(itertools.product(*map(range, states))))
    flat = cells + starts[:-1]
    log = theta[flat].sum(axis=1) + W[flat[:, :, None], flat[:, None, :]].sum(axis=(1, 2)) / 2
    drawn = rng.choice(len(cells), size, p=softmax(log))
    rows, counts = np.unique(drawn, return_counts=True)
    return W, theta, cells[rows].astype(np.uint8), counts.astype(np.int64)


@pytest.mark.parametrize("kind", [frank_wolfe.PairwiseBySoftmax, frank_wolfe.PairwiseByPairs])
def test_tables_of_unequal_alphabets_are_recovered(kind):
    states = (3, 2, 1, 4)
    W, theta, codes, counts = pairwise_sample(9, states, 1.0, 10**6)
    fitted = kind(
        cardinalities=states,
        eligible=~np.eye(4, dtype=bool),
        width=1.0,
        rho=100.0,
        adjacency=ADD,
        steps=300,
    )
    found, fields = fitted.learn(codes, counts, None, source(10))
    assert np.abs(W).max() > 0.2
    np.testing.assert_allclose(found, W, atol=0.02)
    np.testing.assert_allclose(fields, theta, atol=0.02)
    sums = np.add.reduceat(np.column_stack([found, fields]), fitted.starts[:-1], axis=0)
    np.testing.assert_allclose(sums, 0, atol=1e-12)


def test_what_is_not_eligible_stays_zero():
    _, _, codes, counts = pairwise_sample(11, (3, 2, 4), 1.0, 10**5)
    eligible = np.zeros((3, 3), bool)
    eligible[0, 1] = eligible[1, 0] = True
    fitted = frank_wolfe.PairwiseBySoftmax(
        cardinalities=(3, 2, 4), eligible=eligible, width=1.0, rho=1.0, adjacency=ADD, steps=60
    )
    found, fields = fitted.learn(codes, counts, None, source(12))
    assert found[:3, 3:5].any()
    assert not found[:5, 5:].any()
    assert not found[5:, 5:].any()
    assert fields[5:].any()
