r"""Whether the chains can be believed: rank-normalised R-hat, effective sample sizes, and what NUTS says of itself.

Judged on what the sampler moved, never on what was drawn afterwards: marginals carry fresh independent noise in
each draw, and would look well mixed over a latent table that is not.

References
----------
Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021). Rank-normalization, folding, and localization: an improved
R-hat. Bayesian Analysis 16, 667-718.
Betancourt (2016). Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo. arXiv:1604.00695.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.errors import SamplingWarning
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.sampled import Sampled
from bayesprivmrf.inference.posterior.sampling import Sampler
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.model.tables import FloatArray

__all__ = ["Diagnosis", "diagnose", "warn_of"]

LARGEST_R_HAT = 1.01
SMALLEST_ESS = 100
"""Effective draws a chain, in the bulk and in the tails."""
LARGEST_DIVERGING = 0.002
"""Share of draws that may have diverged."""
LARGEST_SATURATED = 0.05
"""Share of draws whose tree may have reached its greatest depth."""
SMALLEST_BFMI = 0.3
_FEWEST = 8
"""Draws of a chain below which nothing is judged."""

_DEPTH = {"nutpie": "maxdepth", "pymc": "max_treedepth"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What was found of one sampling.

    Parameters
    ----------
    r_hat, ess_bulk, ess_tail
        The worst over all judged numbers; NaN where none varies.
    diverging, saturated
        Share of the draws that diverged, or whose tree reached its greatest depth.
    bfmi
        Energy Bayesian fraction of missing information, the worst chain's; NaN with too few draws.
    status
        How the sampling ended.
    problems
        Each failing, with its remedy.
    """

    r_hat: float
    ess_bulk: float
    ess_tail: float
    diverging: float
    saturated: float
    bfmi: float
    status: Status
    problems: tuple[str, ...] = ()

    def as_stats(self) -> dict[str, float]:
        """The numbers, for `Posterior.stats`."""
        names = ("r_hat", "ess_bulk", "ess_tail", "diverging", "saturated", "bfmi")
        return {name: getattr(self, name) for name in names}


def diagnose(sampled: Sampled, judged: Sequence[str], evidence: Evidence, sampler: Sampler) -> Diagnosis:
    """Judge a sampling on the variables that its formulation names."""
    varying = _varying([sampled.draws[name] for name in judged])
    chains, draws = sampled.statistics["lp"].shape
    r_hat, bulk, tail = _mixing(varying)
    diverging = float(np.mean(sampled.statistics["diverging"]))
    saturated = float(np.mean(sampled.statistics["reached_max_treedepth"]))
    bfmi = _bfmi(sampled.statistics["energy"])
    problems, slow, broken = [], False, False
    least = SMALLEST_ESS * chains
    if draws < _FEWEST:
        slow = True
        problems.append(f"{draws} draws are too few to judge; take {_FEWEST} or more")
    elif varying.shape[-1] and not (r_hat < LARGEST_R_HAT and min(bulk, tail) >= least):
        slow = True
        problems.append(
            f"the chains have not mixed: R-hat {r_hat:.3f} (wanted: below {LARGEST_R_HAT}), effective draws "
            f"{bulk:.0f} in the bulk and {tail:.0f} in the tails (wanted: {least}); raise `draws` and `tune`"
        )
    if not saturated <= LARGEST_SATURATED:
        slow = True
        problems.append(
            f"{saturated:.0%} of the draws reached the greatest tree depth, so that each moves little; raise "
            f"`{_DEPTH[sampler]}` (10 unless set), or take LatentCounts(smoothing=0.5), which rounds off the "
            "kinks of a Laplace likelihood and says so"
        )
    if not diverging <= LARGEST_DIVERGING:
        broken = True
        problems.append(
            f"{diverging:.1%} of the draws diverged: there are regions that the sampler cannot enter; raise "
            "`target_accept` (0.8 unless set) and `tune`"
        )
    if bfmi < SMALLEST_BFMI:
        broken = True
        problems.append(
            f"the energy hardly changes between draws (E-BFMI {bfmi:.2f}, wanted: {SMALLEST_BFMI} or more), so "
            "that heavy tails are not reached; raise `tune` and `draws`"
        )
    if sampled.is_interrupted:
        problems.append(f"sampling was stopped early: {chains} chains of {draws} draws were kept")
    return Diagnosis(
        r_hat=r_hat,
        ess_bulk=bulk,
        ess_tail=tail,
        diverging=diverging,
        saturated=saturated,
        bfmi=bfmi,
        status=_status(evidence, broken=broken, slow=slow, interrupted=sampled.is_interrupted),
        problems=tuple(problems),
    )


def warn_of(diagnosis: Diagnosis) -> None:
    """One `SamplingWarning` for a sampling with problems."""
    if diagnosis.problems:
        text = "; ".join(diagnosis.problems)
        warnings.warn(f"{text}. `posterior.stats` has the numbers.", SamplingWarning, stacklevel=4)


def _status(evidence: Evidence, *, broken: bool, slow: bool, interrupted: bool) -> Status:
    if broken or not evidence.has_total:
        return Status.NOT_TRUSTED
    if interrupted:
        return Status.STOPPED_EARLY
    return Status.ITERATION_LIMIT if slow else Status.CONVERGED


def _varying(draws: Sequence[np.ndarray]) -> FloatArray:
    """Judged numbers that are not constant up to rounding, shape (chain, draw, numbers)."""
    flat = [np.asarray(values, dtype=float).reshape(*values.shape[:2], -1) for values in draws]
    if not flat:
        return np.zeros((1, 1, 0))
    together = np.concatenate(flat, axis=-1)
    spread = np.ptp(together, axis=(0, 1))
    return together[..., spread > 1e-9 * np.maximum(1.0, np.abs(together).max(axis=(0, 1)))]


def _mixing(varying: FloatArray) -> tuple[float, float, float]:
    """Worst R-hat and effective sample sizes of the bulk and of the tails; NaN where nothing varies."""
    import arviz as az
    import xarray as xr

    chains, draws, numbers = varying.shape
    if not numbers or draws < _FEWEST:
        return np.nan, np.nan, np.nan
    if chains == 1:  # its halves are compared
        half = draws // 2
        varying = np.stack([varying[0, :half], varying[0, half : 2 * half]])
    judged = xr.Dataset({"judged": (("chain", "draw", "number"), varying)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        r_hat = az.rhat(judged)["judged"].values
        bulk = az.ess(judged, method="bulk")["judged"].values
        tail = az.ess(judged, method="tail")["judged"].values
    return float(np.max(r_hat)), float(np.min(bulk)), float(np.min(tail))


def _bfmi(energy: FloatArray) -> float:
    r"""Smallest over the chains of :math:`\sum_t (E_t - E_{t-1})^2 / \sum_t (E_t - \bar E)^2`."""
    if energy.shape[1] < _FEWEST:
        return np.nan
    changes = (np.diff(energy, axis=1) ** 2).sum(axis=1)
    spread = ((energy - energy.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.min(changes / spread))
