r"""Likelihood and posterior of beta given a released estimate, from its simulated sampling distribution.

Both are post-processing of the release and spend no privacy budget. The posterior

.. math:: p(\beta \mid t) \propto p(\beta)\, p(t \mid \beta)

is computed on a fine grid over the simulated span. There is one unknown number, so the posterior is integrated on the
grid instead of sampled by a Markov chain, and its draws are independent.

A released value t is one of the two ends of the range, each with positive probability, or lies between them:

.. math:: p(t \mid \beta) = a_-(\beta) \ \text{at the first},\quad a_+(\beta) \ \text{at the last},\quad
    (1 - a_-(\beta) - a_+(\beta))\, f_\beta(t) \ \text{between}.

:math:`f_\beta` is a Gaussian kernel density, mirrored at finite ends. Between the simulated betas, the
probabilities of the ends and the quantiles of :math:`f_\beta` are interpolated linearly. Interpolated quantiles
follow a density that moves and widens with beta. A linear interpolation of the densities themselves would be
bimodal.
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
from bayesprivmrf.network.estimate_law import EstimateLaw, end_shares

if TYPE_CHECKING:
    import xarray as xr


# number of quantiles that represent the distribution of estimates between the ends
_LEVELS = 1000


def likelihood(law: EstimateLaw, value: float, betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the likelihood of each beta, and the effective number of simulated estimates behind it.

    Parameters
    ----------
    law
        Simulated distribution of the estimate.
    value
        The released number.
    betas
        Betas within the simulated span, shape (K,).

    Returns
    -------
    likelihoods : FloatArray
        Shape (K,): a probability if the value is an end of the range, otherwise a density.
    simulations : FloatArray
        Shape (K,): the effective number of simulated estimates equal to the end, or under the kernel of the density.

    Raises
    ------
    ArgumentError
        No beta has enough simulated estimates between the ends.
    """
    low, high = end_shares(law)
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
        if (
            kept.size >= 20
        ):  # quantiles of fewer estimates would be too noisy; the nearest beta's are used instead
            rows[place] = np.interp(levels * (kept.size - 1), np.arange(kept.size), kept)  # `kept` is sorted
    known = np.flatnonzero(np.isfinite(rows[:, 0]))
    if not known.size:
        raise ArgumentError(
            "`law` must have at least 20 estimates between the ends of the range at some beta, but has fewer at "
            "each; raise `configurations`."
        )
    nearest = known[np.abs(np.arange(law.betas.size)[:, None] - known).argmin(axis=1)]
    return rows[nearest]


def _kernel_density(
    law: EstimateLaw, rows: FloatArray, value: float, betas: FloatArray, size: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the density at one value for each beta, and the effective fraction of simulations under its kernel."""
    after = np.clip(np.searchsorted(law.betas, betas), 1, law.betas.size - 1)
    share = ((betas - law.betas[after - 1]) / (law.betas[after] - law.betas[after - 1]))[:, None]
    points = (1 - share) * rows[after - 1] + share * rows[after]
    quarter = _LEVELS // 4
    # the interquartile range of a normal distribution is 1.349 standard deviations
    spread = np.minimum((points[:, -quarter] - points[:, quarter - 1]) / 1.349, points.std(axis=1))
    # bandwidth by Silverman's rule, at least the spacing of released values
    width = np.maximum(0.9 * spread * size**-0.2, law.spacing)[:, None]
    kernel = np.exp(-0.5 * ((value - points) / width) ** 2)
    # mirror at the ends, so that no probability is lost beyond them
    mirrored = kernel.copy()
    for end in law.ends:
        if math.isfinite(end):
            mirrored += np.exp(-0.5 * ((2 * end - value - points) / width) ** 2)
    density = mirrored.mean(axis=1) / (math.sqrt(2 * math.pi) * width[:, 0])
    squares = (kernel**2).sum(axis=1)
    # Kish's effective number of points under the kernel, as a fraction
    effective = np.divide(kernel.sum(axis=1) ** 2, squares, out=np.zeros_like(squares), where=squares > 0)
    return density, effective / _LEVELS


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
        Simulated distribution of the estimate.
    value
        The released number.
    prior
        None for a uniform prior on the simulated span; a frozen continuous SciPy distribution; or a function from an
        array of betas to their log density, which need not be normalized. The prior is truncated to the span.
    chains, draws
        Shape of the draws, all of which are independent.
    rng
        A seed or a generator for the draws.

    Returns
    -------
    xarray.DataTree
        Groups `posterior` and `prior` (``beta``), `sample_stats` (``effective_simulations``: the effective number of
        simulated estimates behind the likelihood of each draw), `observed_data` (``inverse_temperature``) and
        `constant_data` (on ``beta_grid``: ``prior_density``, ``posterior_density``, ``likelihood``,
        ``effective_simulations``).

    Warns
    -----
    SamplingWarning
        The likelihood rests on fewer than fifty simulated estimates, on average over the posterior.

    Raises
    ------
    ArgumentError
        The prior has the wrong type, is not finite, or has no mass in the span; or no beta of the span makes the
        estimate possible.
    """
    shape = whole_number("chains", chains, least=1), whole_number("draws", draws, least=1)
    random = generator(rng)
    # a fine grid, between whose points densities are linear; its number of points is arbitrary
    grid = np.linspace(law.betas[0], law.betas[-1], 2001)
    before = _normalized(grid, _prior_density(prior, grid))
    likelihoods, simulations = likelihood(law, value, grid)
    if not (before * likelihoods).max() > 0:
        raise ArgumentError(
            "`prior` must have mass where the estimate is possible, but no beta of the simulated span has both; "
            "widen the prior or the span."
        )
    after = _normalized(grid, before * likelihoods)
    sampled = {
        name: sampled_of(grid, density, shape, random)
        for name, density in (("posterior", after), ("prior", before))
    }
    counted = np.interp(sampled["posterior"], grid, simulations)
    mean = float(counted.mean())
    if not mean >= 50:  # the mean of fifty estimates has a standard error of 14 % of their standard deviation
        warnings.warn(
            f"the posterior rests on about {mean:.0f} simulated estimates, fewer than 50; raise `configurations`.",
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
    """Return the prior's density on the grid, up to a factor."""
    if prior is None:
        return np.ones(grid.size)
    function: Callable[[FloatArray], Any] | None = getattr(prior, "logpdf", None)
    if function is None and callable(prior):
        function = prior
    if function is None or isinstance(prior, type):
        raise ArgumentError(
            f"`prior` must be a frozen continuous SciPy distribution or a log density, got {type(prior).__name__}; "
            "scipy.stats.halfnorm(scale=1) is an example."
        )
    logs = np.asarray(function(grid), dtype=np.float64)
    if logs.shape != grid.shape or not (logs < np.inf).all() or not (logs > -np.inf).any():
        raise ArgumentError(
            "`prior` must return one log density for each beta of an array, below infinity, and above minus infinity "
            f"somewhere in {grid[0]:g} to {grid[-1]:g}, but returned something else; check its support."
        )
    return np.exp(logs - logs.max())


def _normalized(grid: FloatArray, density: FloatArray) -> FloatArray:
    """Return a density on the grid with integral one."""
    return density / np.trapezoid(density / density.max(), grid) / density.max()


def sampled_of(
    grid: FloatArray, density: FloatArray, shape: tuple[int, int], rng: np.random.Generator
) -> FloatArray:
    """Return draws from a density that is linear between grid points."""
    masses = (density[1:] + density[:-1]) / 2
    cumulated = np.cumsum(masses)
    cell = np.searchsorted(cumulated, rng.random(shape) * cumulated[-1], side="right")
    cell = np.minimum(cell, masses.size - 1)
    left, right = density[cell], density[cell + 1]
    u = rng.random(shape)
    # solve left x + (right - left) x^2 / 2 = u (left + right) / 2 for the place x within the cell, without
    # cancellation
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
    """Return the ArviZ tree of the draws; `posterior` describes its groups."""
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
