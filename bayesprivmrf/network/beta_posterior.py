r"""Posterior of beta given a released estimate, by the simulated law: post-processing, so no budget is spent.

.. math:: p(\beta \mid t) \propto p(\beta)\, p(t \mid \beta)

on a fine grid over the law's span, with the likelihood of `estimate_likelihood`. One number is known and one unknown,
so that the posterior is summed, not sampled by a Markov chain: draws are independent.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import generator, whole_number
from bayesprivmrf.errors import ArgumentError, SamplingWarning
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.network.estimate_law import EstimateLaw
from bayesprivmrf.network.estimate_likelihood import likelihood

if TYPE_CHECKING:
    import xarray as xr

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
