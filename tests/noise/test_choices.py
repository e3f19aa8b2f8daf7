"""Choices by the exponential mechanism: the law, its cost by brute force, and an audit."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from bayesprivmrf.audit import audit
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.noise import SecureNoise, SimulatedNoise
from bayesprivmrf.noise import source as choices
from bayesprivmrf.privacy import selection, selection_rho, selection_scale

LEVEL = 1e-4


def source(seed: int) -> SimulatedNoise:
    return SimulatedNoise(np.random.default_rng(seed))


def law(scores: np.ndarray, scale: float) -> np.ndarray:
    weights = np.exp((scores - scores.max()) / scale)
    return weights / weights.sum()


def test_gumbel_numbers_have_their_law():
    draws = choices.gumbel(200_000, source(1).words)
    assert stats.kstest(draws, "gumbel_r").pvalue > LEVEL
    tail = choices.gumbel(2_000_000, source(2).words)
    expected = -math.expm1(-math.exp(-9.0)) * tail.size  # about 250 above 9
    assert abs((tail > 9).sum() - expected) < 4 * math.sqrt(expected)


def test_leading_zeros_are_counted_exactly():
    words = [*range(9), *(1 << bit for bit in range(64)), *((1 << bit) - 1 for bit in range(1, 65))]
    words += [
        word ^ low for word in words[9:] for low in (1, 0x7FF, 0x801)
    ]  # beside a float's rounding
    expected = [64 - word.bit_length() for word in words]
    assert choices.leading_zeros(np.array(words, dtype=np.uint64)).tolist() == expected


def test_the_secure_source_has_the_same_law():
    assert stats.kstest(choices.gumbel(50_000, SecureNoise().words), "gumbel_r").pvalue > 1e-6


def test_a_row_of_zero_words_goes_on_to_the_next_word():
    rows = iter(
        [
            np.zeros(2, np.uint64),
            np.zeros(2, np.uint64),
            np.array([0, 1 << 63], np.uint64),
            np.array([1], np.uint64),
        ]
    )
    far, near = choices.gumbel(2, lambda size: next(rows))
    # U of 2^-(64 + 64 + 63 + 1) and of 2^-65, both in the upper half's tail
    assert far == pytest.approx(-math.log(-math.log((1 + 2.0**-53) * 2.0**-193)), rel=1e-12)
    assert near == pytest.approx(-math.log(-math.log((1 + 2.0**-53) * 2.0**-66)), rel=1e-12)


@pytest.mark.parametrize("scale", [0.5, 2.0, 30.0])
def test_choices_follow_the_exponential_mechanism(scale):
    scores = np.array([0, 3, 5, 1, 5])
    chosen = source(3).choose(np.tile(scores, (60_000, 1)), scale)
    seen = np.bincount(chosen, minlength=5)
    expected = 60_000 * law(scores, scale)
    kept = expected > 5
    assert (
        stats.chisquare(seen[kept], expected[kept] * seen[kept].sum() / expected[kept].sum()).pvalue
        > LEVEL
    )


def test_what_is_not_eligible_is_never_chosen_and_does_not_set_the_best_score():
    scores = np.tile([10**9, 4, 3], (20_000, 1))
    eligible = np.tile([False, True, True], (20_000, 1))
    seen = np.bincount(source(4).choose(scores, 1.0, eligible), minlength=3)
    assert seen[0] == 0
    assert stats.binomtest(int(seen[1]), 20_000, 1 / (1 + math.exp(-1))).pvalue > LEVEL


def test_several_choices_are_choices_in_turn():
    scores = np.array([0, 2, 3])
    pairs = source(5).choose_several(np.tile(scores, (60_000, 1)), 1.5, 2)
    orders = list(itertools.permutations(range(3), 2))
    first = law(scores, 1.5)
    expected = [first[a] * first[b] / (1 - first[a]) for a, b in orders]
    seen = [int(((pairs[:, 0] == a) & (pairs[:, 1] == b)).sum()) for a, b in orders]
    assert stats.chisquare(seen, 60_000 * np.array(expected)).pvalue > LEVEL


def test_scores_far_below_the_best_stop_falling():
    chosen = source(6).choose(np.array([[0, -(2**60)], [0, -301]]), 1.0)
    assert chosen.tolist() == [0, 0]


@pytest.mark.parametrize("score_range", [0.5, 2.0, 8.0])
def test_no_pair_of_score_vectors_within_the_range_costs_more(score_range):
    # over all extreme moves of four candidates: Renyi divergence of every order at most rho times the order
    rho = selection_rho(score_range, 2.0)
    rng = np.random.default_rng(7)
    worst = 0.0
    for _ in range(40):
        scores = rng.normal(0, 3, 4)
        for moves in itertools.product((0.0, score_range), repeat=4):
            p, q = law(scores, 2.0), law(scores + np.array(moves), 2.0)
            for order in (1.01, 2.0, 5.0, 30.0):
                divergence = math.log((p**order * q ** (1 - order)).sum()) / (order - 1)
                assert divergence <= rho * order * (1 + 1e-9)
                worst = max(worst, divergence / order)
    assert worst > 0.7 * rho * (0.5 if score_range > 4 else 1)  # and the constant is not idle


def test_the_scale_is_the_smallest_that_keeps_to_the_budget():
    scale = selection_scale(4.0, 0.5, 10)
    assert selection_rho(4.0, scale, 10) <= 0.5
    assert scale == pytest.approx(4.0 * math.sqrt(10 / 4.0), rel=1e-9)
    assert selection_rho(4.0, scale * (1 - 1e-8), 10) > 0.5
    assert selection_rho(1.0, 1.0) > 1 / 8  # the rounding is paid for
    assert selection_rho(1.0, 1.0) < (1 + 3 * selection.ROUNDING) / 8


@pytest.mark.parametrize("rho", [0.0, -1.0, math.nan, math.inf, 1e-30])
def test_a_budget_out_of_range_is_refused(rho):
    with pytest.raises(ArgumentError, match="rho"):
        selection_scale(1.0, rho)


STEPS = 50


def counts_of_first(first_is_better: bool, scale: float, seed: int):
    """Attack statistic: how often the first of two candidates was chosen in 50 worst-case choices."""
    noise = source(seed)
    scores = np.array([1, 0] if first_is_better else [0, 1]) * 1000

    def run(runs: int) -> np.ndarray:
        chosen = noise.choose(np.tile(scores, (runs * STEPS, 1)), scale)
        return (chosen == 0).reshape(runs, STEPS).sum(axis=1)

    return run


def exact_curve(score_range: float, scale: float):
    """Return epsilon(delta) of the counts above, by bisection on the sum over their binomial laws."""
    up = 1 / (1 + math.exp(-score_range / (2 * scale)))
    k = np.arange(STEPS + 1)
    p, q = stats.binom.pmf(k, STEPS, up), stats.binom.pmf(k, STEPS, 1 - up)

    def epsilon(delta: float) -> float:
        low, high = 0.0, STEPS * score_range / scale
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (
                (middle, high)
                if np.maximum(p - math.exp(middle) * q, 0).sum() > delta
                else (low, middle)
            )
        return high

    return epsilon


@pytest.mark.parametrize(
    ("share", "caught"), [pytest.param(1.0, False, marks=pytest.mark.slow), (0.9, True)]
)
def test_an_audit_passes_the_scale_and_catches_nine_tenths_of_it(share, caught):
    scale = selection_scale(2000.0, 1.0, STEPS)
    used = share * scale
    result = audit(
        counts_of_first(True, used, 8),
        counts_of_first(False, used, 9),
        exact_curve(2000.0, scale),
        runs=40_000,
        deltas=(0.1, 0.03, 0.01),
    )
    assert result.is_violated == caught
