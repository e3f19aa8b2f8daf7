"""Multiplicative weights: what they find, what one record does to their scores, and an audit of noisy sums."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from repeats import few

from bayesprivmrf.audit import audit, gaussian_epsilon
from bayesprivmrf.learning import parities
from bayesprivmrf.mechanisms import discrete_gaussian_laws, promised_loss
from bayesprivmrf.mechanisms.parities import Steps, multiplicative_weights, parity_sums
from bayesprivmrf.model import FloatArray, Monomials
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import (
    Adjacency,
    DiscreteGaussian,
    NoNoise,
    parity_l2_sensitivity,
    squared_l2_sensitivity,
)


def source(seed: int) -> SimulatedNoise:
    return SimulatedNoise(np.random.default_rng(seed))


def records(p: int) -> np.ndarray:
    return np.array(list(itertools.product((-1, 1), repeat=p)), dtype=np.int8)


def sums_of(rows: np.ndarray, family: Monomials) -> np.ndarray:
    return parity_sums(rows, np.ones(len(rows), dtype=np.int64), family)


def triple_sums(total: int) -> tuple[Monomials, np.ndarray, FloatArray]:
    """Sums of a distribution on four variables with one strong triple, and its expectations."""
    family = Monomials.complete(4, 3)
    spectrum = np.zeros(16)
    spectrum[0b0111], spectrum[0b1000] = 0.8, 0.4
    weights = np.exp(parities.walsh_hadamard(spectrum))
    means = parities.walsh_hadamard(weights / weights.sum())[family.masks]
    return family, np.rint(total * means).astype(np.int64), means


def test_without_noise_multiplicative_weights_find_the_expectations():
    family, sums, means = triple_sums(100_000)
    settings = {"rounds": 60, "choice_scale": 0.01, "measurement": NoNoise()}
    found = multiplicative_weights(sums, family, 100_000.0, source(1), Steps(**settings))
    assert found[0] == 1.0
    assert np.abs(found - means).max() < 1e-4


def test_multiplicative_weights_are_near_under_noise():
    family, sums, means = triple_sums(5_000)
    settings = {"rounds": 8, "choice_scale": 20.0, "measurement": DiscreteGaussian(20.0)}
    found = multiplicative_weights(sums, family, 5_000.0, source(2), Steps(**settings))
    assert np.abs(found - means).max() < 0.05
    assert np.abs(means).max() > 0.5


@pytest.mark.parametrize(("adjacency", "moved"), [("add-or-remove-one", 1), ("replace-one", 2)])
def test_no_record_moves_the_scores_of_a_choice_over_a_larger_range(adjacency, moved):
    family = Monomials.complete(3, 3)
    rng = np.random.default_rng(3)
    rows = records(3)
    ranges = []
    for _ in range(40):
        data = rows[rng.integers(8, size=5)]
        model = np.rint(rng.uniform(-5, 5, len(family) - 1)).astype(
            np.int64
        )  # what was rounded is public
        for new in rows:
            other = (
                np.concatenate([data[1:], new[None]])
                if moved == 2
                else np.concatenate([data, new[None]])
            )
            gap, gap_other = (sums_of(each, family)[1:] - model for each in (data, other))
            for change in (
                np.abs(gap_other) - np.abs(gap),
                np.concatenate([gap_other, -gap_other]) - np.concatenate([gap, -gap]),
            ):
                assert np.abs(change).max() <= moved
                ranges.append(change.max() - change.min())
            assert np.abs(gap_other - gap).max() <= moved  # a measurement's sensitivity
    assert max(ranges) == 2 * moved


@pytest.mark.parametrize("adjacency", few(Adjacency))
@pytest.mark.parametrize(("share", "caught"), [(1.0, False), (0.9, True)])
def test_an_audit_of_noisy_sums_passes_their_noise_and_catches_nine_tenths_of_it(
    adjacency, share, caught
):
    family, rho = Monomials.complete(4, 2), 0.5
    (law,) = discrete_gaussian_laws([1.0], rho, parity_l2_sensitivity(family, adjacency))
    assert float(promised_loss([law], parity_l2_sensitivity(family, adjacency))) <= rho
    rows = records(4)
    before = rows[:2] if adjacency is Adjacency.REPLACE_ONE else rows[:1]
    # the record that moves the sums furthest: two of four variables flipped, or any one that is added
    after = np.stack([rows[0], rows[1] * np.array([1, 1, -1, -1], dtype=np.int8)])
    sums = [sums_of(each, family) for each in (before, after)]
    apart = int(((sums[1] - sums[0]) ** 2).sum())
    assert apart == squared_l2_sensitivity(family, adjacency)
    used = DiscreteGaussian(share * law.scale)

    def statistic(which: int):
        noise = source(6 + which)

        def run(runs: int) -> FloatArray:
            noisy = noise.add(np.tile(sums[which], runs), used).reshape(runs, -1)
            return noisy @ (sums[1] - sums[0]).astype(float)

        return run

    mu = math.sqrt(apart) / law.scale
    result = audit(
        statistic(0),
        statistic(1),
        lambda delta: gaussian_epsilon(mu, delta),
        runs=100_000,
        deltas=(0.1, 0.03),
    )
    assert result.is_violated == caught
