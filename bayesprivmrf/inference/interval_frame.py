"""Common format of interval tables: estimate, lower, upper, and how far each row can be trusted.

Every `interval` method of the library returns the result of `interval_frame`. Remarks are columns, not attributes of
the frame, so that files and merged tables keep them. `Status` states how a fit ended, `RowStatus` how far a row can
be trusted.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.cards import escaped
from bayesprivmrf.checks import instance_of, number_array, require, truth
from bayesprivmrf.escapes import printable
from bayesprivmrf.model.tables import free_names

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.model import Domain


class Status(enum.StrEnum):
    """Status of a fit at its end; a fit that has not converged raises no exception."""

    CONVERGED = "converged"
    """The optimality condition holds to the stated tolerance."""
    ITERATION_LIMIT = "iteration limit"
    """The fit used all its iterations before it converged."""
    STOPPED_EARLY = "stopped early"
    """The stopping rule of CGM ended the path on purpose; or another fit failed or was interrupted."""
    DIVERGED = "diverged"
    """The objective has no finite optimum along the path, or is not a number."""
    NOT_TRUSTED = "not trusted"
    """A check of the result failed; for example, loopy belief propagation did not converge."""
    APPROXIMATE = "approximate"
    """The fit ended well, on approximate marginals or an approximate likelihood."""


# Most words of a note, by the contract of interval frames
_MOST_WORDS = 20
# Note of a row without remarks
MEASURED = "measured in this release"


class RowStatus(enum.StrEnum):
    """Degree to which an interval can be trusted, ordered from best to worst."""

    OK = "ok"
    """The interval has no remark."""
    MODEL = "model"
    """The interval rests on declared independences, ties, shared transitions or scores that no measurement checks."""
    PRIOR = "prior"
    """The prior has more influence on the interval than the release."""
    DOUBTFUL = "doubtful"
    """The fit was cut short, or the interval is known to be too narrow for this row."""
    NOT_TRUSTED = "not trusted"
    """A check of the fit or of this row failed."""


# row status and note of each fit status that lowers the rows; the rest change nothing
_OF_FITS = {
    Status.ITERATION_LIMIT: (RowStatus.DOUBTFUL, "the fit reached its iteration limit"),
    Status.STOPPED_EARLY: (RowStatus.DOUBTFUL, "the fit stopped early"),
    Status.DIVERGED: (RowStatus.NOT_TRUSTED, "the fit diverged"),
    Status.NOT_TRUSTED: (RowStatus.NOT_TRUSTED, "the fit is not trusted"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A remark on some rows of an interval frame.

    Parameters
    ----------
    status
        Status of the rows; a worse status from another remark takes precedence.
    note
        Short text; several notes of one row are joined by "; ".
    rows
        Mask of the rows, in their order; None for every row.
    """

    status: RowStatus
    note: str
    rows: np.ndarray | None = None


# Remark on rows of an estimate without intervals
POINT = Mark(RowStatus.OK, "a point estimate, which has no interval")


def interval_frame(
    estimate: Any,
    lower: Any,
    upper: Any,
    index: pd.Index,
    *,
    status: Status,
    marks: Sequence[Mark] = (),
    is_simulated: bool = False,
    is_unprotected: bool = False,
) -> pd.DataFrame:
    """Return the frame of an interval, with the columns `estimate`, `lower`, `upper`, `status` and `note`.

    A level of the index that is called like a column gets an underscore, so that `reset_index` and CSV files keep
    both.

    Parameters
    ----------
    estimate, lower, upper
        Numbers, one for each row in C order, or one for all rows.
    index
        Labels of the rows, a plain Index for one variable.
    status
        Status of the fit. No row gets a better status than its fit.
    marks
        Remarks; the status of a row is the worst one that applies to it.
    is_simulated
        Whether the noise of a release behind the fit was seeded. Every note then begins with "simulated;".
    is_unprotected
        Whether the fit is of the data without noise. Every note then begins with "unprotected;".
    """
    import pandas as pd

    rows = len(instance_of("index", index, pd.Index, "be a pandas Index"))
    instance_of("status", status, Status, "be a Status")
    prefix = ""
    if truth("is_simulated", is_simulated):
        prefix = "simulated"
    if truth("is_unprotected", is_unprotected):
        prefix = "unprotected"
    numbers = {"estimate": estimate, "lower": lower, "upper": upper}
    columns = {name: np.ravel(number_array(name, own)) for name, own in numbers.items()}
    # rounding errors of impossible cells may end at minus zero, which would be printed with its sign
    columns = {name: np.where(own == 0, 0, own) for name, own in columns.items()}
    for name, own in columns.items():
        must = f"hold one number for each of {rows} rows, or one for all"
        require(own.size in (1, rows), name, must, own.size)
    for mark in instance_of("marks", marks, Sequence, "be a list of marks", "write [Mark(...)]"):
        instance_of("marks", mark, Mark, "hold marks", "write Mark(status, note)")
    applies = [np.ones(rows, bool) if mark.rows is None else np.ravel(mark.rows) for mark in marks]
    said = [
        status_and_note(
            [mark for mark, own in zip(marks, applies, strict=True) if own[row]], status, prefix
        )
        for row in range(rows)
    ]
    columns = {name: np.broadcast_to(own, rows) for name, own in columns.items()}
    columns |= {
        "status": [row_status for row_status, _ in said],
        "note": [note for _, note in said],
    }
    return _labeled(pd.DataFrame(columns), index)


def joined_frames(frames: Sequence[pd.DataFrame], index: pd.Index) -> pd.DataFrame:
    """Return interval frames below one another, with the labels of all their rows.

    Parameters
    ----------
    frames
        Frames with the columns of `interval_frame`.
    index
        Labels of all rows.
    """
    import pandas as pd

    whole = pd.concat([pd.DataFrame(frame) for frame in frames], ignore_index=True)
    return _labeled(whole, index)


def with_level(intervals: pd.DataFrame, prob: float, *, is_joint: bool = False) -> pd.DataFrame:
    """Store the probability of the intervals in ``attrs``, from which a report reads it; return the frame."""
    intervals.attrs |= {"prob": prob, "simultaneous": is_joint}
    return intervals


def _labeled(frame: pd.DataFrame, index: pd.Index) -> pd.DataFrame:
    """Return the frame with an index whose levels have other names than its columns."""
    import pandas as pd

    labeled = frame.set_axis(index.set_names(free_names(index.names, list(frame.columns))))
    if isinstance(index, pd.MultiIndex):
        levels = index.levels
    else:
        levels = [index]
    return escaped(labeled, itertools.chain(index.names, *levels))


def point_status(status: Status) -> Status:
    """Return the status that rows of a point estimate start from: CGM stops early on purpose."""
    if status is Status.STOPPED_EARLY:
        return Status.CONVERGED
    return status


def status_and_note(marks: Sequence[Mark], status: Status, prefix: str) -> tuple[str, str]:
    """Return the worst status of a row, and its notes in few words: the prefix first, then the worst note."""
    if status in _OF_FITS:
        given = [Mark(*_OF_FITS[status])]
    else:
        given = []
    ordered = sorted([*given, *marks], key=lambda mark: -list(RowStatus).index(mark.status))
    if ordered:
        worst = ordered[0].status
    else:
        worst = RowStatus.OK
    notes = list(dict.fromkeys(mark.note for mark in ordered)) or [MEASURED]
    text = printable(_shortened(notes, _MOST_WORDS - bool(prefix)))
    return worst.value, f"{prefix}; {text}" if prefix else text


def _shortened(notes: Sequence[str], most: int) -> str:
    """Return as many notes as fit into a number of words, in their order, and how many more there are.

    The first note is always there. If it alone is too long, words in its middle are left out: a note begins with
    what is wrong, and ends with what decides or with what to measure.
    """
    if len("; ".join(notes).split()) <= most:
        return "; ".join(notes)
    kept = [notes[0]]
    for note in notes[1:]:
        text = _with_rest([*kept, note], len(notes) - len(kept) - 1)
        if len(text.split()) <= most:
            kept.append(note)
    hidden = len(notes) - len(kept)
    words = notes[0].split()
    left = most - len(_with_rest(kept[1:], hidden).split())
    if len(words) > left:
        # one word is the ellipsis
        half = left // 2
        kept[0] = " ".join([*words[: left - 1 - half], "…", *words[-half:]])
    return _with_rest(kept, hidden)


def _with_rest(notes: Sequence[str], hidden: int) -> str:
    """Return notes in one text that ends with the number of hidden ones."""
    text = "; ".join(notes)
    if hidden:
        text += f" and {hidden} more"
    return text


def joint_index(domain: Domain, variables: Sequence[Hashable]) -> pd.Index:
    """Return the joint states of some variables in C order; a plain Index for one variable."""
    import pandas as pd

    states = [list(domain.states_of(variable)) for variable in variables]
    if len(states) == 1:
        return pd.Index(states[0], name=variables[0], tupleize_cols=False)
    return pd.MultiIndex.from_product(states, names=list(variables))
