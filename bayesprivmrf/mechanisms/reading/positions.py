"""Total order of the values in a user's column, for every type that is accepted.

`exact_value` gives values one exact and transitive equality, and `positions_of` gives the positions of events one
order. Both matter for privacy. The comparison of ``np.float32(2**24)`` with whole numbers near it, for
example, is not transitive: one person's value could decide how the values of all others are sorted. So a value is
compared as an exact number, date or period, or it is refused. Text is refused as a position, because ``q10`` sorts
before ``q2``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ArgumentError, DataError
from bayesprivmrf.mechanisms.reading.coding import distinct_values, type_name
from bayesprivmrf.model.domain import Label, label_key, listed
from bayesprivmrf.model.tables import IntArray

# types of values that have one exact and transitive equality in the form of `exact_value`
_EXACT = {str, bytes, int, bool, float, Decimal, UUID, date, datetime, time, timedelta}
# most digits before or after the point of a decimal number that becomes a fraction; each number takes as many bytes
_DIGITS = 400
# kinds of positions, for messages
_KINDS = "numbers, dates, times, periods or ordered categories"


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Positions of events, one for each row.

    Parameters
    ----------
    keys
        Numbers in the order of the positions, shape (rows,); equal for equal positions.
    steps
        Exact numbers whose difference is the number of steps between two positions, shape (rows,). None for dates
        and times, which have no unit.
    """

    keys: np.ndarray
    steps: np.ndarray | None


def exact_value(value: Any) -> Any:
    """Return a value in a form whose equality is exact and transitive, or None if it has no such form.

    If a equals b and b equals c, but a differs from c, then the position of b determines how many persons there are,
    and one person changes the rows of others. Numbers of NumPy become Python numbers, which compare exactly; its
    extended ``longdouble`` has no such form. Pandas timestamps outside the years 1 to 9999 have no such form either,
    because equal ones of different resolution have different hash values. Times with a zone become UTC. Otherwise
    Python would compare the two occurrences of a repeated hour by the clock within a zone, and by the moment across
    zones.
    """
    if isinstance(value, np.integer | np.floating | np.bool_ | np.str_ | np.bytes_):
        value = value.item()
    is_known = type(value) in _EXACT or _pandas_name(value) in {"Timestamp", "Timedelta", "Period"}
    if not is_known or value != value:
        return None
    if isinstance(value, datetime) and not MINYEAR <= value.year <= MAXYEAR:
        return None
    is_zoned = isinstance(value, datetime) and value.utcoffset() is not None
    if is_zoned:
        return value.astimezone(UTC)
    return value


def _pandas_name(value: Any) -> str:
    """Return the name of a class of pandas, which may not be imported; empty for other classes."""
    kind = type(value)
    if kind.__module__.partition(".")[0] == "pandas":
        return kind.__name__
    return ""


@dataclass(frozen=True, slots=True)
class DeclaredOrder:
    """Positions that a caller lists in order.

    Parameters
    ----------
    argument
        The argument that lists them.
    places
        Place of each position, by the key of its label.
    """

    argument: str
    places: dict[Any, int]

    @classmethod
    def of(cls, argument: str, order: Sequence[Label]) -> DeclaredOrder:
        """Return the order of a list.

        Raises
        ------
        ArgumentError
            The list is no sequence, is empty, repeats a position, or holds a value without an exact equality.
        """
        values = [
            exact_value(value) for value in listed(f"`{argument}`", order, error=ArgumentError)
        ]
        is_exact = all(value is not None for value in values)
        must = "hold positions: text, numbers, dates or periods"
        remedy = "write them as the data have them, as order=[...]"
        require(is_exact, argument, must, "another kind of value", remedy)
        places = {label_key(value): place for place, value in enumerate(values)}
        seen = f"{len(values)} of which {len(places)} are different"
        require(0 < len(places) == len(values), argument, "name each position once, in order", seen)
        return cls(argument, places)


def positions_of(series: Any, name: Hashable, order: DeclaredOrder | None) -> Positions:
    """Return the positions in a column without missing values.

    Parameters
    ----------
    series
        The column, an eager narwhals series.
    name
        The column's name, for messages.
    order
        The declared positions; None for the order of the values themselves.

    Raises
    ------
    DataError
        A position is not declared; or the values have no total order, such as text, or values of several kinds.
    """
    what = f"column {name!r}"
    dtype = series.dtype
    if order is None and (codes := _category_codes(series)) is not None:
        return Positions(keys=codes, steps=codes)
    # columns of one type, whose values need not be looked at one by one
    if order is None and type_name(dtype) not in {"Int128", "UInt128"}:
        if dtype.is_integer():
            values = series.to_numpy()
            if values.dtype.kind != "u":
                values = values.astype(np.int64)
            return Positions(keys=values, steps=values)
        # exact for the narrower types; infinity is no position and is refused below
        if dtype.is_float() and np.isfinite(values := series.to_numpy().astype(np.float64)).all():
            return Positions(keys=values, steps=_exact_steps(values))
        if dtype.is_temporal():
            # Python's times of a day are coarser than those of Polars
            is_polars = series.implementation.is_polars()
            if is_polars:
                values = series.to_native().to_physical().to_numpy()
            else:
                values = series.to_numpy()
            if values.dtype.kind in "imM":
                return Positions(keys=values.astype(np.int64), steps=None)
    rows, distinct = distinct_values(series)
    values = [exact_value(value) for value in distinct]
    if order is not None:
        places = [order.places.get(label_key(value), -1) for value in values]
        must = f"hold only positions that `{order.argument}` lists"
        seen = "another value, or one of another type"
        remedy = "list all of them as order=[...], with values of the column's type"
        if order.argument == "names":
            remedy += ', or pass gaps="ignore" if `names` only name the steps'
        require(min(places, default=0) >= 0, what, must, seen, remedy, error=DataError)
        codes = np.array(places, dtype=np.int64)[rows]
        return Positions(keys=codes, steps=codes)
    # other columns, such as those of objects
    found = [_comparable(value) for value in values]
    kinds = {kind for kind, _ in found}
    remedy = (
        "pass the positions in their order as order=[...], or convert the column to numbers, to dates or to an "
        "ordered category"
    )
    if None in kinds:
        seen = "text or another kind of value"
    else:
        seen = "values of several kinds"
    must = f"hold positions that have an order, all of one kind ({_KINDS})"
    require(len(kinds) < 2 and None not in kinds, what, must, seen, remedy, error=DataError)
    # dense ranks: equal values, such as 1 and 1.0, share a key
    ranks: dict[Any, int] = {}
    for key in sorted(key for _, key in found):
        ranks.setdefault(key, len(ranks))
    own = np.array([ranks[key] for _, key in found], dtype=np.int64)
    numbers = np.fromiter((key for _, key in found), dtype=object, count=len(found))
    has_steps = all(kind == "number" or isinstance(kind, tuple) for kind in kinds)
    return Positions(keys=own[rows], steps=numbers[rows] if has_steps else None)


def _exact_steps(values: np.ndarray) -> np.ndarray:
    """Return floats as numbers with exact differences.

    The difference of two floats is rounded: ``1.1 - 0.1 == 1``. That of the fractions is not. The same floats become
    fractions in a column of objects, to which a decimal number of another person turns the column. So the steps of a
    person would depend on the others.
    """
    distinct, rows = np.unique(values, return_inverse=True)
    if (np.floor(distinct) == distinct).all() and (abs(distinct) <= 2.0**53).all():
        return values.astype(np.int64)
    exact = np.fromiter(map(Fraction, distinct.tolist()), dtype=object, count=distinct.size)
    return exact[rows]


def _category_codes(series: Any) -> IntArray | None:
    """Return the codes of an ordered category, in the declared order of its categories; None for other columns.

    The order belongs to the column's type, which is public as declared states are. The values do not decide it: a
    `polars.Categorical` is not ordered, and the parts of an Arrow column must share one dictionary.
    """
    native = series.to_native()
    if series.implementation.is_pandas_like():
        is_ordered = bool(getattr(native.dtype, "ordered", False))
        if is_ordered:
            return native.cat.codes.to_numpy().astype(np.int64)
        return None
    if series.implementation.is_polars() and type_name(series.dtype) == "Enum":
        return native.to_physical().to_numpy().astype(np.int64)
    if series.implementation.is_pyarrow() and getattr(native.type, "ordered", False):
        parts = native.chunks
        is_one = all(part.dictionary.equals(parts[0].dictionary) for part in parts)
        if is_one:
            codes = [part.indices.to_numpy(zero_copy_only=False) for part in parts]
        else:
            codes = None
        if codes is None:
            return None
        return np.concatenate([np.zeros(0, np.int64), *codes]).astype(np.int64)
    return None


def _comparable(value: Any) -> tuple[Any, Any]:
    """Return the kind of an exact value, and a key with a total order within the kind; (None, None) without one."""
    match value:
        case bool() | str() | bytes() | UUID() | None:
            return None, None
        case int():
            return "number", value
        case float() if math.isfinite(value):
            return "number", int(value) if value.is_integer() else Fraction(value)
        case Decimal() if value.is_finite() and abs(value.adjusted()) <= _DIGITS:
            return "number", int(value) if value == value.to_integral_value() else Fraction(value)
        case datetime():
            return (
                "moment" if value.utcoffset() is not None else "time of a clock and a calendar"
            ), value
        case date():
            return "date", value
        case timedelta():
            return "span", value
        case time() if value.tzinfo is None:
            return "time of a day", value
    if _pandas_name(value) == "Period":
        # a frequency of two months has steps of two ordinals
        return ("period", value.freqstr), Fraction(value.ordinal, value.freq.n)
    return None, None
