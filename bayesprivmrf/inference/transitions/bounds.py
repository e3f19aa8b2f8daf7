"""Bounds of functions of a chain, and the delta method for estimates with a covariance.

Each type of fit answers by its method `_chain_bounds`: a posterior by quantiles of its draws, an estimate with a
covariance by the delta method, and any other without bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayesprivmrf.inference.interval_frame import POINT, Mark, RowStatus
from bayesprivmrf.inference.limits import cut_limits, half_width
from bayesprivmrf.inference.transitions.rows import TransitionRows
from bayesprivmrf.model.tables import FloatArray

# Half the distance between the points of a difference, in standard deviations; the error is of its square
_STEP = 1e-3


class Bounds(NamedTuple):
    """Estimates of a function of a chain, lower and upper bounds, and marks for some of them."""

    estimates: FloatArray
    lower: FloatArray
    upper: FloatArray
    marks: tuple[Mark, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ChainFunction:
    """Function of a part of a chain's marginals, such as a step's matrix of transitions.

    Parameters
    ----------
    part
        The part, from marginals of the cliques, shape (..., cells).
    part_of_rows
        The part, from π and P of a chain that shares them.
    function
        Function of the part, of arrays with leading axes as well.
    is_share
        Whether its values are probabilities, which lie between 0 and 1; else they are times above 0.
    """

    part: Callable[[FloatArray], FloatArray]
    part_of_rows: Callable[[TransitionRows, FloatArray, FloatArray], FloatArray]
    function: Callable[[FloatArray], FloatArray]
    is_share: bool

    def of_marginals(self, flat: FloatArray) -> FloatArray:
        """Return the function's values at marginals of the cliques."""
        return self.function(self.part(flat))

    def without_bounds(self, flat: FloatArray) -> Bounds:
        """Return the values of a point estimate."""
        values = self.of_marginals(flat)
        nothing = np.full(values.shape, np.nan)
        return Bounds(values, nothing, nothing, (POINT,))


def delta_errors(
    function: Callable[[FloatArray], FloatArray], point: FloatArray, covariance: FloatArray
) -> FloatArray:
    """Return standard errors of a function of coordinates, by differences along the axes of their covariance."""
    values, vectors = np.linalg.eigh(covariance)
    moves = _STEP * (vectors * np.sqrt(np.maximum(values, 0.0))).T
    slopes = (function(point + moves) - function(point - moves)) / (2 * _STEP)
    return np.sqrt(np.square(slopes).sum(axis=0))


def delta_bounds(
    values: FloatArray, errors: FloatArray, of_sampling: FloatArray, prob: float, is_share: bool
) -> Bounds:
    """Return bounds from standard errors: normal and cut at 0 and 1, or normal on the scale of logarithms.

    Bounds are doubtful where the normal interval reaches 0 or 1, or, for a time, where that of the rate, one over the
    time, reaches 0. Where the errors of sampling alone reach as far, there are too few records.
    """
    reach, alone = (half_width(each, prob) for each in (errors, of_sampling))
    if is_share:
        lower, upper = cut_limits(values, errors, errors, prob)
        few = (values - alone <= 0) | (values + alone >= 1)
        hidden = ((lower <= 0) | (upper >= 1)) & ~few
        text, hides = "too few records: the normal interval reaches 0 or 1", "the interval reaches 0 or 1"
    else:
        factor = np.exp(np.divide(reach, values, out=np.zeros_like(values), where=values > 0))
        lower, upper = values / factor, values * factor
        few = (values > 0) & (alone >= values)
        hidden = (values > 0) & (reach >= values) & ~few
        text, hides = "too few records: no upper bound", "no upper bound"
    marks = [(text, few), (f"the noise hides it: {hides}", hidden)]
    if is_share and values.ndim == 2:  # the other transitions of such rows are unreliable as well
        share = hidden.mean(axis=1, keepdims=True)
        # beyond this share, coverage of the other transitions is 0.78 (hidden-transitions-row.csv)
        marks.append(("the noise hides most of this row", ~hidden & ~few & (share > 0.4)))
    return Bounds(
        values, lower, upper, tuple(Mark(RowStatus.DOUBTFUL, note, np.ravel(rows)) for note, rows in marks)
    )
