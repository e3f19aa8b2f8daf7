"""Intervals of the couplings and fields of a learned model, with the remarks on each row.

`bayesprivmrf.learning.models.parameters` describes the two methods that give the limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.interval_frame import Mark, RowStatus, interval_frame
from bayesprivmrf.learning import calibrated
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.progress import moving_bar

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.learning.models.parameters import LearnedParameters

type Method = Literal["linearised", "calibrated"]


@dataclass(frozen=True, kw_only=True)
class CouplingsAsked:
    """Checked arguments of `couplings_interval`.

    Parameters
    ----------
    prob
        Coverage of each interval, in (0, 1).
    of
        ``"couplings"`` or ``"fields"``.
    method
        Method of the limits; None takes the linearised one where it exists.
    replicates
        Number of simulated releases of the calibrated method.
    size
        Number of records to simulate.
    progress_bar
        Whether the calibrated method shows its progress; None where a person watches.
    """

    prob: float
    of: Literal["couplings", "fields"]
    method: Method | None
    replicates: int
    size: float
    progress_bar: bool | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class _VectorLimits:
    """Limits of all parameters of a learned model.

    Parameters
    ----------
    method
        Method that gave them.
    low, high
        Lower and upper limits, nats, in the order of the vector of parameters.
    is_unresponsive
        Mask of the entries that the learner's estimate hardly answers to.
    """

    method: Method
    low: FloatArray
    high: FloatArray
    is_unresponsive: np.ndarray


def couplings_frame(
    learned: LearnedParameters, asked: CouplingsAsked, random: np.random.Generator
) -> pd.DataFrame:
    """Return the intervals that `LearnedParameters.couplings_interval` describes."""
    index = learned.labels(asked.of)
    places = learned.places(asked.of)
    limits = _vector_limits(learned, asked, random)
    is_absent, moves = learned.by_support()
    # couplings that the declaration excludes have limits of 0
    is_absent &= limits.low < limits.high
    is_unbounded = (np.isinf(limits.low) | np.isinf(limits.high)) & ~is_absent
    narrow = "the learner hardly answers to its size, so limits may be too narrow"
    held = "held by the declared width, which shrinks larger ones"
    unbounded = "no finite limit: the released numbers do not bound it"
    rows = (
        (RowStatus.OK, f"{limits.method} limits", ~(is_unbounded | is_absent)),
        (RowStatus.DOUBTFUL, unbounded, is_unbounded),
        (RowStatus.PRIOR, "of a state that may have no record", is_absent),
        (RowStatus.PRIOR, "moves with effects of a state that may have no record", moves),
        (RowStatus.DOUBTFUL, narrow, limits.is_unresponsive),
        (RowStatus.MODEL, held, learned._held_by_width()),
    )
    marks = [Mark(status, note, mask[places]) for status, note, mask in rows]
    if learned.unsupported is None:
        marks.append(Mark(RowStatus.DOUBTFUL, "not known whether each state has records"))
    return interval_frame(
        learned.vector()[places],
        np.where(is_absent, -np.inf, limits.low)[places],
        np.where(is_absent, np.inf, limits.high)[places],
        index,
        status=learned.status,
        marks=marks,
        is_simulated=learned.provenance.simulated,
    )


def _vector_limits(
    learned: LearnedParameters, asked: CouplingsAsked, random: np.random.Generator
) -> _VectorLimits:
    """Return limits by the method that was asked for, or else by the linearised one where it exists."""
    first_order: Any = None
    if asked.method != "calibrated":
        first_order = getattr(learned.map, "linearised", None)
    found = None
    if first_order is not None:
        found = first_order(learned, asked.prob, asked.size, random)
    if found is not None:
        low, high = found
        is_unresponsive = np.zeros(learned.vector().size, dtype=bool)
        return _VectorLimits(
            method="linearised", low=low, high=high, is_unresponsive=is_unresponsive
        )
    if asked.method == "linearised":
        raise ArgumentError(
            "`method` must not be 'linearised' for this release, which was made by neither SelectMeasure nor "
            "Frank-Wolfe with two states, single variables measured and enough steps; leave it out."
        )
    with moving_bar("Simulating releases", asked.progress_bar) as progress:
        low, high, is_unresponsive = calibrated.limits(
            learned, asked.prob, asked.replicates, random, asked.size, progress
        )
    return _VectorLimits(method="calibrated", low=low, high=high, is_unresponsive=is_unresponsive)
