"""Whether the chains of a simulation have forgotten where they started."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.errors import SamplingWarning

#: Largest split R-hat of a run that is trusted: the bound of Brooks and Gelman (1998).
LARGEST_RHAT = 1.2


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Mixing:
    """Diagnostic of a simulation, from two numbers that it notes after each sweep.

    Half of the chains start disordered, each node by a fair coin, and half ordered, all at +1; if they agree,
    neither start matters any more.

    Parameters
    ----------
    energy, order
        The energy s'Js, and the order: the sum over the components of abs(sum of s), over n. The order and not the
        magnetisation, for that is symmetric about 0 and each draw's sign is drawn afresh. Both have shape (sweeps,
        chains) and leave out the first half of the burn-in.
    """

    energy: np.ndarray
    order: np.ndarray

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.energy.shape[1]

    @property
    def sweeps(self) -> int:
        """Number of sweeps of each chain that were noted."""
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
        """Effective number of independent sweeps for the mean energy, over all chains: ArviZ's `ess_mean`.

        ArviZ loads at the first use, which takes seconds.
        """
        return _effective_size(self.energy)

    @cached_property
    def order_ess(self) -> float:
        """Effective number of independent sweeps for the mean order, as `energy_ess`."""
        return _effective_size(self.order)

    def __repr__(self) -> str:
        return (
            f"Mixing(energy_rhat={self.energy_rhat:.3f}, order_rhat={self.order_rhat:.3f}, chains={self.chains}, "
            f"sweeps={self.sweeps})"
        )

    @property
    def trusted(self) -> bool:
        """Whether both R-hats are at most 1.2."""
        return self.energy_rhat <= LARGEST_RHAT and self.order_rhat <= LARGEST_RHAT

    def warn(self, moves: str) -> None:
        """Warn, with a SamplingWarning, unless the run by such moves can be trusted."""
        if not self.trusted:
            warnings.warn(
                "the simulation has not mixed: chains that start ordered and disordered still differ (R-hat of the "
                f"energy {self.energy_rhat:.2f}, of the order {self.order_rhat:.2f}, at most {LARGEST_RHAT} "
                f"wanted); {remedy(moves)}, and distrust draws at this beta if that does not help.",
                SamplingWarning,
                stacklevel=4,
            )


def remedy(moves: str) -> str:
    """Return what to do about chains that have not mixed by such moves, as part of a sentence."""
    longer = "raise `burn_in` and `sweeps`"
    return f'{longer}, or pass `moves="swendsen-wang"`' if moves == "heat-bath" else longer


def split_rhat(trace: np.ndarray) -> float:
    """Return split R-hat, the number of ArviZ's `rhat(method="split")`.

    Each chain is cut in two halves of N sweeps; R-hat is sqrt(1 - 1/N + B/(N W)) with W the mean variance in
    a half and B/N the variance of their means (Gelman et al., Bayesian Data Analysis, 3rd edition, section 11.4).
    A trace that is constant to rounding gives 1. Every simulation needs it, and ArviZ takes seconds to load.

    Parameters
    ----------
    trace
        Shape (sweeps, chains).

    Returns
    -------
    float
        Split R-hat, at least sqrt(1 - 1/N); NaN for fewer than four sweeps; infinite where the halves are constant
        and differ.
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
    """Return ArviZ's effective sample size for the mean; NaN for fewer than four sweeps."""
    import arviz as az

    if len(trace) < 4:
        return math.nan
    return float(az.ess(trace, chain_axis=1, draw_axis=0, method="mean"))
