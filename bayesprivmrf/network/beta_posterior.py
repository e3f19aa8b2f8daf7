r"""Posterior of beta given a released estimate, by the simulated law: post-processing, so no budget is spent.

.. math:: p(\beta \mid t) \propto p(\beta)\, p(t \mid \beta)

on a fine grid over the law's span, with the likelihood of `estimate_likelihood`. One number is known and one unknown,
so that the posterior is summed, not sampled by a Markov chain: draws are independent.

The likelihood of beta given a released estimate, from the simulated law.

A released value is one of the two ends with a positive probability each, or lies between them:

.. math:: p(t \mid \beta) = a_-(\beta) \ \text{at the first},\quad a_+(\beta) \ \text{at the last},\quad
    (1 - a_-(\beta) - a_+(\beta))\, f_\beta(t) \ \text{between}.

Between grid points the probabilities of the ends are straight lines, and so are the quantiles of :math:`f_\beta`:
a density that moves and widens with beta is followed, where a straight line between two densities would make it
bimodal. :math:`f_\beta(t)` is a Gaussian kernel density, mirrored at finite ends.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import generator, whole_number
from bayesprivmrf.errors import ArgumentError, SamplingWarning
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.network.estimate_law import EstimateLaw

if TYPE_CHECKING:
    import xarray as xr

    from bayesprivmrf.network.estimate_law import EstimateLaw


_LEVELS = 1000  # quantiles that stand for a law between the ends
_FEWEST = 20  # estimates between the ends from which a law's quantiles are taken
_QUARTILES = 1.349  # distance of a normal law's quartiles, in standard deviations


def likelihood(law: EstimateLaw, value: float, betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the likelihood of each beta, and how many independent simulations it rests on.

    Parameters
    ----------
    law
        Simulated estimates.
    value
        The released number.
    betas
        Within the law's span, shape (K,).

    Returns
    -------
    likelihoods, simulations
        Shape (K,). A likelihood is a probability where the value is an end of the range, else a density. For an end,
        simulations are the effective number of those that are that end; for a density, the effective number under the
        kernel.

    Raises
    ------
    ArgumentError
        No beta was simulated with enough estimates between the ends.
    """
    half = law.spacing / 2
    low = (law.sorted_rows < law.ends[0] + half).mean(axis=1)
    high = (law.sorted_rows > law.ends[1] - half).mean(axis=1)
    size = np.interp(betas, law.betas, law.effective_size)
    for is_end, share in zip(law.at_end(value), (low, high), strict=True):
        if is_end:
            probability = np.interp(betas, law.betas, share)
            return probability, probability * size
    between = np.interp(betas, law.betas, 1 - low - high)
    rows = _quantiles_between(law)
    density, share = _kernel_density(law, rows, value, betas, np.maximum(size * between, 2.0))
    return between * density, size * between * share


def _quantiles_between(law: EstimateLaw) -> FloatArray:
    """Return quantiles of the estimates strictly between the ends, shape (B, _LEVELS)."""
    half = law.spacing / 2
    levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
    rows = np.full((law.betas.size, _LEVELS), np.nan)
    for place, row in enumerate(law.sorted_rows):
        kept = row[(row >= law.ends[0] + half) & (row <= law.ends[1] - half)]
        if kept.size >= _FEWEST:
            rows[place] = np.interp(levels * (kept.size - 1), np.arange(kept.size), kept)  # it is sorted
    known = np.flatnonzero(np.isfinite(rows[:, 0]))
    if not known.size:
        raise ArgumentError(
            "`law` must have estimates between the ends of the range at some beta, but almost none was simulated; "
            "raise `configurations`."
        )
    nearest = known[np.abs(np.arange(law.betas.size)[:, None] - known).argmin(axis=1)]
    return rows[nearest]


def _kernel_density(
    law: EstimateLaw, rows: FloatArray, value: float, betas: FloatArray, size: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the density at one value for each beta, and the share of the simulations under its kernel."""
    after = np.clip(np.searchsorted(law.betas, betas), 1, law.betas.size - 1)
    share = ((betas - law.betas[after - 1]) / (law.betas[after] - law.betas[after - 1]))[:, None]
    points = (1 - share) * rows[after - 1] + share * rows[after]
    quarter = _LEVELS // 4
    spread = np.minimum((points[:, -quarter] - points[:, quarter - 1]) / _QUARTILES, points.std(axis=1))
    # Silverman's rule, no narrower than the grid of released values
    width = np.maximum(0.9 * spread * size**-0.2, law.spacing)[:, None]
    kernel = np.exp(-0.5 * ((value - points) / width) ** 2)
    # mirrored at the ends, so that no mass is lost beyond them
    mirrored = kernel.copy()
    for end in law.ends:
        if math.isfinite(end):
            mirrored += np.exp(-0.5 * ((2 * end - value - points) / width) ** 2)
    density = mirrored.mean(axis=1) / (math.sqrt(2 * math.pi) * width[:, 0])
    squares = (kernel**2).sum(axis=1)
    return density, np.divide(
        kernel.sum(axis=1) ** 2, squares, out=np.zeros_like(squares), where=squares > 0
    ) / (_LEVELS)


# Points of the grid of beta, between which densities are straight lines; arbitrary.
_POINTS = 2001
# Simulations below which a warning is given: the mean of fifty errs by 14 % of their standard deviation.
_FEW = 50.0


def posterior(
    law: EstimateLaw,
    value: float,
    prior: Any = None,
    *,
    chains: int = 4,
    draws: int = 1000,
    rng: int | np.random.Generator | None = None,
) -> xr.DataTree:
    r"""Return draws of beta given the released value, as an ArviZ tree.

    Parameters
    ----------
    law
        Law of the released estimate.
    value
        The released number.
    prior
        None for a uniform one on the law's span; a frozen SciPy distribution of a continuous number; or a
        function from an array of betas to their log density, normalised or not. Held to the law's span.
    chains, draws
        Shape of the draws; all are independent.
    rng
        A seed or a generator, for the draws.

    Returns
    -------
    xarray.DataTree
        Groups `posterior` and `prior` (``beta``), `sample_stats` (``effective_simulations`` at each draw: how many
        independent simulated estimates its likelihood rests on), `observed_data` (``inverse_temperature``) and
        `constant_data` (on ``beta_grid``: ``prior_density``, ``posterior_density``, ``likelihood``,
        ``effective_simulations``).

    Warns
    -----
    SamplingWarning
        The likelihood rests on fewer than fifty simulations, on average over the posterior.

    Raises
    ------
    ArgumentError
        The prior is none of the three, or not finite, or has no mass in the span; no beta of the span makes the
        estimate possible.
    """
    shape = whole_number("chains", chains, least=1), whole_number("draws", draws, least=1)
    random = generator(rng)
    grid = np.linspace(law.betas[0], law.betas[-1], _POINTS)
    before = _normalised(grid, _prior_density(prior, grid))
    likelihoods, simulations = likelihood(law, value, grid)
    if not (before * likelihoods).max() > 0:
        raise ArgumentError(
            "`prior` must have mass where the estimate is possible, but no beta of the law's span has both; widen "
            "the prior or the span."
        )
    after = _normalised(grid, before * likelihoods)
    sampled = {
        name: sampled_of(grid, density, shape, random)
        for name, density in (("posterior", after), ("prior", before))
    }
    counted = np.interp(sampled["posterior"], grid, simulations)
    mean = float(counted.mean())
    if not mean >= _FEW:
        warnings.warn(
            f"the posterior rests on {mean:.0f} simulated estimates, {_FEW:.0f} wanted; raise `configurations`.",
            SamplingWarning,
            stacklevel=3,
        )
    curves = {
        "prior_density": before,
        "posterior_density": after,
        "likelihood": likelihoods,
        "effective_simulations": simulations,
    }
    return _tree(law, value, grid, sampled, counted, curves)


def _prior_density(prior: Any, grid: FloatArray) -> FloatArray:
    """Density on the grid, up to a factor."""
    if prior is None:
        return np.ones(grid.size)
    function: Callable[[FloatArray], Any] | None = getattr(prior, "logpdf", None)
    if function is None and callable(prior):
        function = prior
    if function is None or isinstance(prior, type):
        raise ArgumentError(
            f"`prior` must be a frozen continuous SciPy distribution or a log density, got {type(prior).__name__}; "
            "scipy.stats.halfnorm(scale=1) is one."
        )
    logs = np.asarray(function(grid), dtype=np.float64)
    if logs.shape != grid.shape or not (logs < np.inf).all() or not (logs > -np.inf).any():
        raise ArgumentError(
            "`prior` must give one log density below infinity for each of an array of betas, above minus infinity "
            f"somewhere in {grid[0]:g} to {grid[-1]:g}, but gave something else; check its support."
        )
    return np.exp(logs - logs.max())


def _normalised(grid: FloatArray, density: FloatArray) -> FloatArray:
    return density / np.trapezoid(density / density.max(), grid) / density.max()


def sampled_of(
    grid: FloatArray, density: FloatArray, shape: tuple[int, int], rng: np.random.Generator
) -> FloatArray:
    """Draws from a density that is a straight line between grid points."""
    masses = (density[1:] + density[:-1]) / 2
    cumulated = np.cumsum(masses)
    cell = np.searchsorted(cumulated, rng.random(shape) * cumulated[-1], side="right")
    cell = np.minimum(cell, masses.size - 1)
    left, right = density[cell], density[cell + 1]
    u = rng.random(shape)
    # share x of the cell with left x + (right - left) x^2 / 2 = u (left + right) / 2, without cancellation
    total = left + right
    share = u * total / (left + np.sqrt(left**2 + u * (right - left) * total))
    return grid[cell] + share * (grid[cell + 1] - grid[cell])


def _tree(
    law: EstimateLaw,
    value: float,
    grid: FloatArray,
    sampled: dict[str, FloatArray],
    counted: FloatArray,
    curves: dict[str, FloatArray],
) -> xr.DataTree:
    import xarray as xr

    drawn = ("chain", "draw")
    chains, draws = counted.shape
    coordinates = {"chain": np.arange(chains), "draw": np.arange(draws)}
    groups = {name: xr.Dataset({"beta": (drawn, beta)}, coords=coordinates) for name, beta in sampled.items()}
    groups["sample_stats"] = xr.Dataset({"effective_simulations": (drawn, counted)}, coords=coordinates)
    for name in ("posterior", "prior", "sample_stats"):
        groups[name].attrs["sample_dims"] = list(drawn)
    groups["observed_data"] = xr.Dataset({"inverse_temperature": value})
    groups["constant_data"] = xr.Dataset(
        {name: ("beta_grid", curve) for name, curve in curves.items()}, coords={"beta_grid": grid}
    )
    tree = xr.DataTree.from_dict({f"/{name}": dataset for name, dataset in groups.items()})
    tree.attrs["law"] = repr(law)
    return tree
