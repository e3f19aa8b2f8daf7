"""Private Frank-Wolfe: exact sums, sensitivity by brute force, the law of a choice, its cost, an audit, recovery."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from bayesprivmrf.audit import audit
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning import frank_wolfe
from bayesprivmrf.learning.frank_wolfe import RESIDUAL_UNIT
from bayesprivmrf.mechanisms.frank_wolfe import choices, choose_atoms
from bayesprivmrf.mechanisms.frank_wolfe import frank_wolfe as search
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import Adjacency, Exposure, step_rho, step_scale

LEVEL = 1e-4
ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
RADIUS = 1.7


def source(seed: int) -> SimulatedNoise:
    return SimulatedNoise(np.random.default_rng(seed))


def codes_of(spins) -> np.ndarray:
    return ((np.asarray(spins) + 1) // 2).astype(np.uint8)


def ising(
    codes: np.ndarray, counts=None, radius: float = RADIUS
) -> frank_wolfe.LogisticRegressions:
    """One regression a node on a constant and all nodes, itself included: the caller's mask leaves it out."""
    p = codes.shape[1]
    counts = np.ones(len(codes), np.int64) if counts is None else counts
    return frank_wolfe.LogisticRegressions(
        frank_wolfe.Design.with_constant(codes, (2,) * p), codes, counts, radius, np.arange(p)
    )


def moved(regressions, seed: int, steps: int):
    """The same regressions after a few steps along atoms drawn at random."""
    rng = np.random.default_rng(seed)
    rows, groups = len(regressions.coefficients), len(regressions.design.cardinalities)
    widths = np.diff(regressions.design.starts)
    for step in range(1, steps + 1):
        chosen = rng.integers(0, groups, rows)
        signs = rng.choice(np.array([-1, 1], np.int8), (rows, widths.max()))
        signs[np.arange(widths.max()) >= widths[chosen, None]] = 0
        regressions.sums()
        regressions.move(frank_wolfe.Atoms(groups=chosen, signs=signs), step)
    return regressions


# the choice of an atom


def atom_law(sums: np.ndarray, starts, scale: float, eligible) -> dict:
    weights = {}
    for group in np.flatnonzero(eligible):
        part = sums[starts[group] : starts[group + 1]]
        for signs in itertools.product((-1, 1), repeat=len(part)):
            weights[group, signs] = float(part @ np.array(signs)) / scale
    total = logsumexp(list(weights.values()))
    return {atom: math.exp(score - total) for atom, score in weights.items()}


@pytest.mark.parametrize("starts", [[0, 1, 2, 3, 4], [0, 2, 3, 6, 8]], ids=["signs", "groups"])
def test_atoms_follow_the_exponential_mechanism(starts):
    sums = np.array([30, -12, 4, 25, -31, 2, 14, -9])[: starts[-1]]
    eligible = np.array([True, True, False, True])
    size = 60_000
    atoms = choose_atoms(
        np.tile(sums, (size, 1)),
        np.array(starts),
        np.full(size, 20.0),
        source(1),
        np.tile(eligible, (size, 1)),
    )
    law = atom_law(sums, starts, 20.0, eligible)
    widths = np.diff(starts)
    seen = dict.fromkeys(law, 0)
    for group, signs in zip(atoms.groups.tolist(), atoms.signs.tolist(), strict=True):
        seen[group, tuple(signs[: widths[group]])] += 1
    assert (atoms.signs[widths[atoms.groups] == 1, 1:] == 0).all()
    assert stats.chisquare(list(seen.values()), size * np.array(list(law.values()))).pvalue > LEVEL


@pytest.mark.parametrize("scale", [0.01, 0.2, 1.0, 50.0])
def test_the_mass_of_a_group_is_that_of_its_atoms_each_held_up(scale):
    rng = np.random.default_rng(2)
    starts = np.array([0, 1, 4, 6, 7])
    sums = rng.integers(-100, 100, (6, 7))
    best = np.abs(np.add.reduceat(np.abs(sums), starts[:-1], axis=1)).max(axis=1)
    clamp = choices.CLAMP
    expected = np.empty((6, 4))
    for row, group in itertools.product(range(6), range(4)):
        part = sums[row, starts[group] : starts[group + 1]]
        scores = choices.sign_table(len(part)) @ part
        expected[row, group] = logsumexp(np.maximum((scores - best[row]) / scale, -clamp))
    absolute = np.abs(sums)
    best_of = np.add.reduceat(absolute, starts[:-1], axis=1)
    masses = choices.log_masses(sums, absolute, best_of, best, starts, np.full((6, 1), scale))
    np.testing.assert_allclose(masses, expected, rtol=0, atol=2.0**-43)
    narrow = choices.log_masses(
        sums, absolute, absolute, best, np.arange(8), np.full((6, 1), scale)
    )
    pairs = np.stack([absolute, -absolute]) - best[:, None]
    np.testing.assert_allclose(
        narrow, logsumexp(np.maximum(pairs / scale, -clamp), axis=0), rtol=0, atol=2.0**-43
    )


# sums and sensitivity


def test_sums_are_those_of_whole_residuals_and_margins():
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 2, (5000, 4)).astype(np.uint8)
    regressions = moved(ising(codes), 4, 7)
    spins = np.hstack([2 * codes.astype(int) - 1, np.ones((5000, 1), int)])
    margins = spins @ regressions.coefficients.T
    w = regressions.iterates
    exact = 1 / (1 + np.exp(spins[:, :4] * (spins @ w.T)))  # sigma(-y margin)
    whole = np.rint(RESIDUAL_UNIT * exact)
    sums = regressions.sums()
    np.testing.assert_array_equal(regressions.margins, margins)
    expected = (spins[:, :4] * whole).astype(int).T @ spins
    np.testing.assert_array_equal(sums, expected)
    assert sums.dtype == np.int64


def test_sums_do_not_depend_on_order_or_on_merging_equal_records():
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 2, (9000, 3)).astype(np.uint8)
    distinct, counts = np.unique(codes, axis=0, return_counts=True)
    plain = moved(ising(codes), 6, 9).sums()
    np.testing.assert_array_equal(moved(ising(codes[rng.permutation(9000)]), 6, 9).sums(), plain)
    np.testing.assert_array_equal(moved(ising(distinct, counts), 6, 9).sums(), plain)


def test_threads_give_the_same_sums():
    codes = np.random.default_rng(14).integers(0, 2, (17_000, 30)).astype(np.uint8)
    plain, shared = moved(ising(codes), 15, 3), ising(codes)
    shared.workers = 3
    np.testing.assert_array_equal(moved(shared, 15, 3).sums(), plain.sums())
    np.testing.assert_array_equal(shared.margins, plain.margins)


def test_sums_of_nobody_are_zero():
    assert not moved(ising(np.zeros((0, 3), np.uint8)), 1, 3).sums().any()


def records(p: int) -> np.ndarray:
    return codes_of(list(itertools.product((-1, 1), repeat=p)))


@pytest.mark.parametrize("steps", [0, 1, 3, 40, 200])
def test_one_record_moves_no_choice_by_more_than_its_bound(steps):
    # all records of three nodes: their sums, so that all neighbours are differences of two, or one
    each = [moved(ising(record[None]), 7, steps) for record in records(3)]
    bounds = each[0].bounds
    sums = np.array([one.sums() for one in each])  # (records, nodes, columns)
    scores = np.concatenate([sums, -sums], axis=2)
    added = (scores.max(axis=2) - scores.min(axis=2)).max(axis=0)
    change = scores[:, None] - scores[None]
    replaced = (change.max(axis=3) - change.min(axis=3)).max(axis=(0, 1))
    assert (added <= 2 * bounds).all()
    assert (replaced <= 4 * bounds).all()
    assert (replaced > 3.9 * bounds).any()
    if steps <= 3:  # and some node attains it
        assert (added == 2 * bounds).any()
        assert (replaced == 4 * bounds).any()


def test_a_bound_is_the_logistic_function_at_the_norm():
    regressions = moved(ising(records(4)), 8, 30)
    norm = np.abs(regressions.iterates).sum(axis=1)
    np.testing.assert_allclose(
        regressions.bounds / RESIDUAL_UNIT, 1 / (1 + np.exp(-norm)), atol=2e-4
    )
    assert (ising(records(4)).bounds == RESIDUAL_UNIT // 2).all()


# cost


def test_the_scale_keeps_to_the_budget_and_is_the_smallest():
    exposure = Exposure.of_logistic(30)
    for adjacency, reach in ((REPLACE, 4), (ADD, 2)):
        scale = step_scale(exposure, 0.3, 25, adjacency)
        assert scale == pytest.approx(reach * math.sqrt(25 * 30 / (8 * 0.3)), rel=1e-9)
        assert step_rho(exposure, scale, 25, adjacency) <= 0.3
        assert step_rho(exposure, scale * (1 - 1e-8), 25, adjacency) > 0.3


@pytest.mark.parametrize("rho", [0.0, -1.0, math.nan, math.inf, 1e-300])
def test_a_budget_out_of_range_is_refused(rho):
    with pytest.raises(ArgumentError, match="rho"):
        step_scale(Exposure.of_logistic(3), rho, frank_wolfe.LARGEST_STEPS, REPLACE)


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    return float(np.log((p**order * q ** (1 - order)).sum()) / (order - 1))


@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_no_neighbours_of_a_small_data_set_cost_more_than_a_step_may(adjacency):
    # exact laws of one step of all three nodes, over all data sets of two records and all their neighbours
    sums = {record: moved(ising(records(3)[[record]]), 9, 3).sums() for record in range(8)}
    state = moved(ising(records(3)), 9, 3)
    exposure = Exposure.of_logistic(3)
    eligible = np.hstack([~np.eye(3, dtype=bool), np.ones((3, 1), bool)])
    scales = step_scale(exposure, 0.5, 1, adjacency) * state.bounds

    def laws(members) -> list[np.ndarray]:
        total = sum((sums[m] for m in members), np.zeros((3, 4), int))
        return [
            np.array(list(atom_law(total[r], range(5), scales[r], eligible[r]).values()))
            for r in range(3)
        ]

    worst = 0.0
    for base in range(8):
        for one in range(8):
            others = [()] if adjacency is ADD else [(k,) for k in range(8)]
            for other in others:
                pair = laws((base, one)), laws((base, *other))
                for order in (1.01, 2.0, 8.0):
                    for p, q in (pair, pair[::-1]):
                        cost = sum(renyi(a, b, order) for a, b in zip(p, q, strict=True)) / order
                        worst = max(worst, cost)
    assert 0.3 * 0.5 < worst <= 0.5


RUNS_OF_STEPS = 4


def chosen_up(label: int, scale_share: float, seed: int):
    """Attack statistic: how often +1 is chosen in all first steps on one record of this label."""
    codes = np.array([[label]], np.uint8)
    regression = frank_wolfe.LogisticRegressions(
        frank_wolfe.Design(codes=np.ones((1, 1), np.uint8), cardinalities=(2,)),
        codes,
        np.ones(1, np.int64),
        1.0,
        np.arange(1),
    )
    sums, bounds = regression.sums(), regression.bounds
    scale = scale_share * bounds * step_scale(Exposure.of_logistic(1), 1.0, RUNS_OF_STEPS, REPLACE)
    noise = source(seed)

    def run(runs: int) -> np.ndarray:
        size = runs * RUNS_OF_STEPS
        atoms = choose_atoms(
            np.tile(sums, (size, 1)),
            np.array([0, 1]),
            np.full(size, float(scale[0])),
            noise,
            np.ones((size, 1), bool),
        )
        return (atoms.signs[:, 0] == 1).reshape(runs, RUNS_OF_STEPS).sum(axis=1)

    return run


def exact_curve(delta: float) -> float:
    """Return epsilon(delta) of the count above at the stated scale, whose log odds are +-2 over the multiple."""
    up = 1 / (1 + math.exp(-2 / step_scale(Exposure.of_logistic(1), 1.0, RUNS_OF_STEPS, REPLACE)))
    k = np.arange(RUNS_OF_STEPS + 1)
    p, q = stats.binom.pmf(k, RUNS_OF_STEPS, up), stats.binom.pmf(k, RUNS_OF_STEPS, 1 - up)
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
def test_an_audit_passes_the_scale_and_catches_nine_tenths_of_it(share, caught):
    result = audit(
        chosen_up(1, share, 10),
        chosen_up(0, share, 11),
        exact_curve,
        runs=150_000,
        deltas=(0.1, 0.03, 0.01),
    )
    assert result.is_violated == caught


# the iterates


@pytest.mark.slow
def test_the_mean_iterate_nears_the_constrained_optimum_without_noise():
    rng = np.random.default_rng(12)
    codes = rng.integers(0, 2, (2000, 3)).astype(np.uint8)
    flip = rng.random(2000) < 0.2
    codes[:, 2] = np.where(flip, 1 - codes[:, 0], codes[:, 0])
    w = search(
        ising(codes, radius=5.0),
        steps=800,
        multiple=1e-3,
        source=source(13),
        eligible=np.hstack([~np.eye(3, dtype=bool), np.ones((3, 1), bool)]),
    )
    agree = (codes[:, 0] == codes[:, 2]).mean()
    assert w[2, 0] == pytest.approx(math.log(agree / (1 - agree)), abs=0.05)
    assert w[0, 2] == pytest.approx(w[2, 0], abs=0.05)
    assert abs(w[0, 1]) < 0.12
    assert (np.diag(w) == 0).all()
    assert (np.abs(w).sum(axis=1) <= 5.0 * (1 + 1e-12)).all()
