"""Draws of a number or table with their interval."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.interval_frame import RowStatus
from bayesprivmrf.inference.limits import Ends, limits_of_draws
from bayesprivmrf.inference.posterior.results.draws import Draws
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


@dataclass(frozen=True, eq=False, kw_only=True)
class Quantity:
    """A function of the model over the posterior.

    Parameters
    ----------
    draws
        Its value in each draw, dims chain and draw, then the value's own.
    estimate
        Mean over the draws.
    lower, upper
        The interval; its tails are equal except for a probability near 0 or 1 (`bayesprivmrf.inference.limits`).
    prob
        Probability of the interval.
    frame
        The same numbers with the columns of `Posterior.interval`: one row for each entry in C order, labeled by the
        coordinates of the draws.
    """

    draws: xr.DataArray
    estimate: xr.DataArray
    lower: xr.DataArray
    upper: xr.DataArray
    prob: float
    frame: pd.DataFrame

    @property
    def status(self) -> str:
        """Worst `RowStatus` of all rows of `frame`."""
        return max(self.frame["status"], key=list(RowStatus).index, default=RowStatus.OK.value)

    @property
    def note(self) -> str:
        """Note of the first row that has this status."""
        return next(iter(self.frame.loc[(self.frame["status"] == self.status).to_numpy(), "note"]), "")

    def __repr__(self) -> str:
        if self.estimate.ndim == 0:
            return (
                f"Quantity({float(self.estimate):.4g}, {self.prob:.0%} interval "
                f"{float(self.lower):.4g} to {float(self.upper):.4g}; {self.status}: {self.note})"
            )
        return f"Quantity(shape {self.estimate.shape}, {self.prob:.0%} interval; {self.status}: {self.note})"


def draws_of(draws: Draws, function: Callable[[Solution], Any], most: int) -> xr.DataArray:
    """Return the values of a function at each thinned draw, dims chain and draw first."""
    import xarray as xr

    if not callable(function):
        raise ArgumentError(f"`function` must be callable, got {type(function).__name__}; see `quantity`.")
    most = whole_number("draws", most, 1)
    values, template = [], None
    for chain, draw in draws.pairs(most):
        value = function(draws.solution(chain, draw))
        template = value if isinstance(value, xr.DataArray) else template
        values.append(_as_numbers(value))
        if values[-1].shape != values[0].shape:
            raise ArgumentError(
                f"`function` must give one shape in every draw, got {values[0].shape} and {values[-1].shape}."
            )
    kept = draws.thinned(most)
    undefined = sum(bool(np.isnan(value).any()) for value in values)
    if undefined:
        raise ArgumentError(
            f"`function` must give numbers in every draw, got NaN in {undefined} of {len(values)}, as 0 / 0 does; "
            "say in it what the quantity is there."
        )
    array = np.array(values).reshape(draws.shape[0], len(kept), *values[0].shape)
    own = [f"value_{axis}" for axis in range(array.ndim - 2)] if template is None else list(template.dims)
    coords: dict[Hashable, Any] = {"chain": np.arange(draws.shape[0]), "draw": kept}
    if template is not None:
        coords |= {name: template.coords[name] for name in template.coords if name not in coords}
    return xr.DataArray(array, dims=("chain", "draw", *own), coords=coords)


def _as_numbers(value: Any) -> FloatArray:
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"`function` must give a number or an array of numbers, got {type(value).__name__}."
        ) from error


def interval_of_draws(
    draws: FloatArray, prob: float, ends: Ends = (-np.inf, np.inf), *, is_whole: bool = False
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean over the first two axes, and the limits that `limits_of_draws` gives."""
    return draws.mean(axis=(0, 1)), *limits_of_draws(draws, prob, ends, is_whole=is_whole)
