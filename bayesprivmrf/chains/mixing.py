"""Whether the chains of a simulation have forgotten where they started."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.errors import SamplingWarning

if TYPE_CHECKING:
    from bayesprivmrf.chains.heat_bath import Moves

__all__ = ["Mixing", "effective_size", "remedy", "split_rhat"]

_LARGEST_RHAT = 1.2


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """Diagnostic of a simulation, from two numbers that it notes after each sweep.

    Half of the chains start disordered, each node by a fair coin, and half ordered, all at +1; if they agree,
    neither start matters any more.

    Parameters
    ----------
    energy_rhat, order_rhat
        Split R-hat of the energy s'Js, and of the order, sum over the components of abs(sum of s) over n. The
        order and not the magnetisation, for that is symmetric about 0 and each draw's sign is drawn afresh.
    energy_ess, order_ess
        Effective number of independent sweeps, over all chains.
    chains, sweeps
        Number of chains, and of sweeps of each that were noted (all but the first half of the burn-in).
    """

    energy_rhat: float
    energy_ess: float
    order_rhat: float
    order_ess: float
    chains: int
    sweeps: int

    @classmethod
    def of(cls, energy: np.ndarray, order: np.ndarray) -> Mixing:
        """Return the diagnostic of two traces of shape (sweeps, chains)."""
        return cls(
            energy_rhat=split_rhat(energy),
            energy_ess=effective_size(energy),
            order_rhat=split_rhat(order),
            order_ess=effective_size(order),
            chains=energy.shape[1],
            sweeps=energy.shape[0],
        )

    @property
    def trusted(self) -> bool:
        """Whether both R-hats are at most 1.2."""
        return self.energy_rhat <= _LARGEST_RHAT and self.order_rhat <= _LARGEST_RHAT

    def warn(self, moves: Moves) -> None:
        """Give a SamplingWarning unless the run, by such moves, can be trusted."""
        if not self.trusted:
            warnings.warn(
                "the simulation has not mixed: chains that start ordered and disordered still differ (R-hat of the "
                f"energy {self.energy_rhat:.2f}, of the order {self.order_rhat:.2f}, at most {_LARGEST_RHAT} "
                f"wanted); {remedy(moves)}, and distrust draws at this beta if that does not help.",
                SamplingWarning,
                stacklevel=4,
            )


def remedy(moves: Moves) -> str:
    """Return what to do about chains that have not mixed by such moves, as part of a sentence."""
    longer = "raise `burn_in` and `sweeps`"
    return f'{longer}, or pass `moves="swendsen-wang"`' if moves == "heat-bath" else longer


def split_rhat(trace: np.ndarray) -> float:
    """Return split R-hat (Gelman et al., Bayesian Data Analysis, 3rd edition, section 11.4).

    Each chain is cut in two halves of N sweeps; R-hat is sqrt(1 - 1/N + B/(N W)) with W the mean variance in
    a half and B/N the variance of their means. A trace that is constant to rounding gives 1.

    Parameters
    ----------
    trace
        Shape (sweeps, chains).

    Returns
    -------
    float
        At least sqrt(1 - 1/N); NaN for fewer than four sweeps; infinite where the halves are constant and differ.
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


def effective_size(trace: np.ndarray) -> float:
    """Return the effective number of independent values in chains, by Geyer's initial positive monotone sequence.

    The autocorrelation at each lag is 1 - (W - mean autocovariance) / V with W the mean variance in a chain and
    V = (1 - 1/N) W + B/N (Vehtari et al. 2021, section 3.2); it is summed in pairs until a pair is negative.

    Parameters
    ----------
    trace
        Shape (sweeps, chains).

    Returns
    -------
    float
        NaN for fewer than four sweeps; the number of values where the trace is constant.
    """
    sweeps, chains = trace.shape
    if sweeps < 4:
        return np.nan
    centred = trace - trace.mean(axis=0)
    spectrum = np.fft.rfft(centred, n=2 * sweeps, axis=0)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=0)[:sweeps].mean(axis=1) / sweeps
    within = covariance[0] * sweeps / (sweeps - 1)
    between = float(trace.mean(axis=0).var(ddof=1)) if chains > 1 else 0.0
    total = covariance[0] + between
    if total <= (1e-10 * float(np.abs(trace).max())) ** 2:
        return float(trace.size)
    correlation = 1 - (within - covariance) / total
    correlation[0] = 1.0
    pairs = correlation[: sweeps // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = int(np.argmax(pairs < 0)) if (pairs < 0).any() else pairs.size
    time = -1 + 2 * float(np.minimum.accumulate(pairs[:stop]).sum())
    return float(trace.size / max(time, 1 / np.log10(trace.size)))
