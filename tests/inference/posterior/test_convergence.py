"""Convergence diagnostics of many numbers at once, against those of ArviZ for one number after the other."""

import arviz as az
import numpy as np
import pytest
import xarray as xr

from bayesprivmrf.inference.posterior.results import diagnostics

NUMBERS = 5
KEPT = (-0.9, 0.0, 0.6, 0.99)


def by_arviz(numbers):
    """Return R-hat and the effective sample sizes of bulk and tails, each of shape (numbers,)."""
    data = xr.Dataset({"judged": (("chain", "draw", "number"), numbers)})
    found = [az.rhat(data), az.ess(data, method="bulk"), az.ess(data, method="tail")]
    return [each["judged"].values for each in found]


def autoregressions(chains, draws, seed):
    """Return numbers whose draws are noise plus a multiple of the draw before, with several multiples."""
    numbers = np.random.default_rng(seed).standard_normal((chains, draws, len(KEPT) * NUMBERS))
    for at in range(1, draws):
        numbers[:, at] += np.repeat(KEPT, NUMBERS) * numbers[:, at - 1]
    return numbers


def far_apart(numbers):
    return numbers + 3 * np.arange(len(numbers))[:, None, None]


def stuck(numbers):
    """Return chains that never move, each somewhere else."""
    return np.broadcast_to(numbers[:, :1], numbers.shape).copy()


SHAPES = {
    "real": lambda numbers: numbers,
    "whole": np.round,
    "two values": lambda numbers: (numbers > 0).astype(float),
    "far apart": far_apart,
    "stuck": stuck,
}


@pytest.mark.filterwarnings(
    "ignore::RuntimeWarning"
)  # ArviZ divides by zero where chains are stuck
@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize(("chains", "draws"), [(2, 4), (3, 9), (4, 101), (2, 400)])
def test_all_numbers_at_once_have_the_diagnostics_of_arviz(form, chains, draws):
    numbers = SHAPES[form](autoregressions(chains, draws, seed=draws))
    numbers = numbers[..., np.ptp(numbers, axis=(0, 1)) > 0]
    assert numbers.size
    for ours, theirs in zip(diagnostics.convergence_of(numbers), by_arviz(numbers), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-10, nan_ok=True)


def test_numbers_have_the_same_diagnostics_in_blocks():
    """Of 200 draws in all, 655 numbers are in a block, and 20 numbers in 40 copies are in two."""
    numbers = autoregressions(4, 50, seed=3)
    alone = diagnostics.convergence_of(numbers)
    together = diagnostics.convergence_of(np.tile(numbers, 40))
    for ours, theirs in zip(together, alone, strict=True):
        np.testing.assert_array_equal(ours, np.tile(theirs, 40))


def test_mixing_does_not_depend_on_the_settings_of_arviz():
    numbers = autoregressions(4, 200, seed=4)
    mixing = diagnostics.mixing_of([numbers])
    with az.rc_context({"stats.ci_prob": 0.5}):
        assert diagnostics.mixing_of([numbers]) == mixing
