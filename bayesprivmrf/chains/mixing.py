"""Diagnostic of whether the chains of a simulation have forgotten where they started."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.errors import SamplingWarning

#: Largest split R-hat of a simulation that is trusted: the bound of Brooks and Gelman (1998).
LARGEST_RHAT = 1.2


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Mixing:
    """Diagnostic of a simulation, from two numbers that are recorded after each sweep.

    Half of the chains start disordered, with each node's outcome drawn by a fair coin. The other half start
    ordered, with all outcomes +1. If both halves agree, the chains have forgotten their starts.

    Parameters
    ----------
    energy
        Energy s'Js after each sweep, shape (sweeps, chains), without the first half of the burn-in.
    order
        Order after each sweep, of the same shape: the sum over the connected components of abs(sum of s), divided
        by n. The magnetization itself would not do. It is symmetric about 0, because each draw gets a random sign.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> mixing = Mixing(energy=rng.normal(size=(200, 4)), order=rng.normal(size=(200, 4)))
    >>> mixing.trusted
    True
    """

    energy: np.ndarray
    order: np.ndarray

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.energy.shape[1]

    @property
    def sweeps(self) -> int:
        """Number of recorded sweeps of each chain."""
        return self.energy.shape[0]

    @cached_property
    def energy_rhat(self) -> float:
        """Split R-hat of the energy."""
        return split_rhat(self.energy)

    @cached_property
    def order_rhat(self) -> float:
        """Split R-hat of the order."""
        return split_rhat(self.order)

    @cached_property
    def energy_ess(self) -> float:
        """Effective sample size for the mean energy, over all chains: ArviZ's ``ess(method="mean")``.

        The first use imports ArviZ, which takes seconds.
        """
        return _effective_size(self.energy)

    @cached_property
    def order_ess(self) -> float:
        """Effective sample size for the mean order, computed as `energy_ess`."""
        return _effective_size(self.order)

    def __repr__(self) -> str:
        return (
            f"Mixing(energy_rhat={self.energy_rhat:.3f}, order_rhat={self.order_rhat:.3f}, chains={self.chains}, "
            f"sweeps={self.sweeps})"
        )

    @property
    def trusted(self) -> bool:
        """True if both R-hats are at most 1.2."""
        return self.energy_rhat <= LARGEST_RHAT and self.order_rhat <= LARGEST_RHAT

    def warn(self, moves: str) -> None:
        """Give a SamplingWarning unless the simulation can be trusted; `moves` decides which remedy it names."""
        if not self.trusted:
            warnings.warn(
                "the simulation has not mixed: chains with ordered and disordered starts still differ (R-hat "
                f"{self.energy_rhat:.2f} for the energy, {self.order_rhat:.2f} for the order, at most {LARGEST_RHAT} "
                f"wanted); {remedy(moves)}, and do not trust draws at this beta if that does not help.",
                SamplingWarning,
                stacklevel=4,
            )


def remedy(moves: str) -> str:
    """Return advice for chains that have not mixed with such moves, as a part of a sentence."""
    longer = "raise `burn_in` and `sweeps`"
    return f'{longer}, or pass `moves="swendsen-wang"`' if moves == "heat-bath" else longer


def split_rhat(trace: np.ndarray) -> float:
    """Return split R-hat, as ArviZ's ``rhat(method="split")`` does.

    Each chain is split into two halves of N sweeps. R-hat is sqrt(1 - 1/N + B/(N W)), with W the mean variance
    within a half and B/N the variance of the halves' means (Gelman et al., Bayesian Data Analysis, 3rd edition,
    section 11.4). A trace that is constant up to rounding gives 1. Every simulation computes R-hat, so ArviZ, whose
    import takes seconds, is not used here.

    Parameters
    ----------
    trace
        Shape (sweeps, chains).

    Returns
    -------
    float
        Split R-hat, at least sqrt(1 - 1/N). NaN for fewer than four sweeps, and infinite if the halves are constant
        but differ.
    """
    half = trace.shape[0] // 2
    if half < 2:
        return np.nan
    halves = np.concatenate([trace[:half], trace[-half:]], axis=1)
    within = float(halves.var(axis=0, ddof=1).mean())
    between = float(halves.mean(axis=0).var(ddof=1))
    rounding = (1e-10 * float(np.abs(halves).max())) ** 2
    if between <= rounding:
        return 1.0
    return float(np.sqrt(1 - 1 / half + between / within)) if within > 0 else np.inf


def _effective_size(trace: np.ndarray) -> float:
    """Return ArviZ's effective sample size for the mean, or NaN for fewer than four sweeps."""
    import arviz as az

    if len(trace) < 4:
        return math.nan
    return float(az.ess(trace, chain_axis=1, draw_axis=0, method="mean"))
