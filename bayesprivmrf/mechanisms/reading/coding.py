"""Codes of columns of labels in memory; the states come from the declaration, and never from the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from bayesprivmrf.checks import instance_of, whole_number
from bayesprivmrf.errors import UndeclaredStateError
from bayesprivmrf.model import Domain
from bayesprivmrf.model.domain import Label, Variable, codes_by_key, label_key

# Key in the `attrs` of a recoded frame: the public breaks of each binned column, by its name
BREAKS = "bayesprivmrf.breaks"

# Rows that are processed at a time; they fit in the first cache of a core
CHUNK = 1 << 15
# two values of these types are equal only if they are the same label
_EXACT = {str, bytes, int, float, type(None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """Mapping from the labels of one variable to the codes 0, 1, ... in declared order.

    Parameters
    ----------
    variable, states
        The variable and its states, as declared.
    missing, other
        Codes for missing and undeclared values; ``None`` makes such values an error.
    breaks
        Right ends of the intervals into which `recode` put the numbers of the column, for error messages; empty
        otherwise.
    """

    variable: Variable
    states: tuple[Label, ...]
    missing: int | None = None
    other: int | None = None
    breaks: tuple[float, ...] = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Smallest unsigned integer type for all codes and two marks, undeclared and missing."""
        return np.min_scalar_type(len(self.states) + 1)

    def encode(self, series: Any) -> np.ndarray:
        """Return the code of each value of an eager narwhals series.

        Raises
        ------
        UndeclaredStateError
            A value is missing or undeclared, and no state is declared for it.
        """
        undeclared = len(self.states)
        absent = len(self.states) + 1
        dtype = series.dtype
        is_boolean = type_name(dtype) == "Boolean"
        is_narrow = type_name(dtype) not in {"UInt64", "Int128", "UInt128"}
        is_whole = is_boolean or (dtype.is_integer() and is_narrow)
        if is_whole or dtype.is_float():
            missing = is_missing(series)
            if is_whole and missing.any():
                series = series.fill_null(False if is_boolean else 0)
            values = series.to_numpy()
            if is_whole:
                codes = self._from_integers(values, is_boolean=is_boolean)
            else:
                codes = self._from_floats(values)
            codes[missing] = absent
        else:
            positions, distinct = distinct_values(series)
            codes = np.array([*self._looked_up(distinct), absent], dtype=self.dtype)[positions]
        marks = (absent, self.missing, missing_error), (undeclared, self.other, undeclared_error)
        for mark, code, error in marks:
            marked = codes == mark
            if marked.any():
                if code is None:
                    raise error(self)
                codes[marked] = code
        return codes

    def _from_integers(self, values: np.ndarray, *, is_boolean: bool) -> np.ndarray:
        targets = {
            int(label): code  # type: ignore[call-overload]
            for code, label in enumerate(self.states)
            if label_fits(label, is_boolean=is_boolean) and label == int(label)  # type: ignore[call-overload]
        }
        codes = np.full(values.size, len(self.states), dtype=self.dtype)
        targets = {value: code for value, code in targets.items() if -(2**63) <= value < 2**63}
        if not targets:
            return codes
        low = min(targets)
        span = max(targets) - min(targets) + 1
        if span > 1 << 16:  # a larger lookup table would not fit in the second cache of a core
            return _searched(values.astype(np.int64), np.int64, targets, codes)
        lookup = np.full(span + 1, len(self.states), dtype=self.dtype)
        for value, code in targets.items():
            lookup[value - low] = code
        for start in range(0, values.size, CHUNK):
            # a difference that wraps around is large as an unsigned number, so it is outside the table
            place = (values[start : start + CHUNK].astype(np.int64) - low).view(np.uint64)
            codes[start : start + CHUNK] = lookup[np.minimum(place, span).view(np.int64)]
        return codes

    def _from_floats(self, values: np.ndarray) -> np.ndarray:
        targets: dict[float, int] = {}
        for code, label in enumerate(self.states):
            if label_fits(label, is_boolean=False) and float(label) == label:  # type: ignore[arg-type]
                targets[float(label)] = code  # type: ignore[arg-type]
        codes = np.full(values.size, len(self.states), dtype=self.dtype)
        if targets:
            return _searched(values.astype(np.float64, copy=False), np.float64, targets, codes)
        return codes

    def _looked_up(self, values: Sequence[Any]) -> Iterator[int]:
        """Yield the codes of text, categories, dates and objects; a value that is not hashable is undeclared."""
        known = codes_by_key(self.states)
        undeclared = len(self.states)
        for value in values:
            try:
                yield known.get(label_key(value), undeclared)
            except TypeError:
                yield undeclared


def codings_of(
    domain: Domain,
    missing: Mapping[Variable, int] | None,
    other: Mapping[Variable, int] | None,
    data: Any = None,
) -> list[Coding]:
    """Return the coding of each variable of a domain, in declared order, with the breaks in the data's `attrs`."""
    missing = missing or {}
    other = other or {}
    attributes = getattr(data, "attrs", None)
    if isinstance(attributes, dict):
        binned = attributes.get(BREAKS, {})
    else:
        binned = {}
    return [
        Coding(
            variable=v,
            states=states,
            missing=missing.get(v),
            other=other.get(v),
            breaks=binned.get(str(v), ()),
        )
        for v, states in zip(domain.variables, domain.states, strict=True)
    ]


def in_memory_codes(
    frame: Any, codings: list[Coding], columns: Mapping[Variable, Any]
) -> dict[Variable, np.ndarray]:
    """Return the codes of each declared column of an eager narwhals frame, by variable."""
    if frame.implementation.is_polars():
        codes = _polars_text_codes(frame.to_native(), codings, columns)
    else:
        codes = {}
    for coding in codings:
        if coding.variable not in codes:
            codes[coding.variable] = coding.encode(frame.get_column(columns[coding.variable]))
    return codes


def _polars_text_codes(
    native: Any, codings: list[Coding], columns: Mapping[Variable, Any]
) -> dict[Variable, Any]:
    """Return the codes of text columns of a Polars frame, from one query that Polars runs in parallel."""
    import polars as pl

    text = [
        c
        for c in codings
        if native.schema[columns[c.variable]] in (pl.String, pl.Categorical, pl.Enum)
    ]
    expressions = []
    for place, coding in enumerate(text):
        column = pl.col(columns[coding.variable])
        undeclared = len(coding.states)
        if coding.missing is None and native.get_column(columns[coding.variable]).null_count():
            raise missing_error(coding)
        code = {
            label: position
            for position, label in enumerate(coding.states)
            if isinstance(label, str)
        }
        found = column.cast(pl.Enum(list(code)), strict=False).to_physical()
        order = list(range(len(code)))
        if list(code.values()) != order:
            found = found.replace_strict(order, list(code.values()), default=None)
        width = {1: pl.UInt8, 2: pl.UInt16}.get(coding.dtype.itemsize, pl.UInt32)
        found = found.cast(width).fill_null(undeclared if coding.other is None else coding.other)
        if coding.missing is not None:
            found = (
                pl.when(column.is_null()).then(pl.lit(coding.missing, dtype=width)).otherwise(found)
            )
        expressions.append(found.alias(str(place)))
    coded = native.select(expressions)
    codes = {
        coding.variable: coded.get_column(str(place)).to_numpy()
        for place, coding in enumerate(text)
    }
    for coding in text:
        if codes[coding.variable].size and codes[coding.variable].max() == len(coding.states):
            raise undeclared_error(coding)
    return codes


def declared_codes(name: str, domain: Domain, codes: Any) -> dict[Variable, int]:
    """Return checked codes by variable; the variables and codes must be declared."""
    given = {} if codes is None else codes
    instance_of(
        name,
        given,
        Mapping,
        "be a mapping from variables to codes of their states, or None",
        "write a dict",
    )
    return {
        v: whole_number(name, code, 0, len(domain.states_of(v)) - 1) for v, code in given.items()
    }


def label_fits(label: Label, *, is_boolean: bool) -> bool:
    """Return True if a label can be a value of a Boolean column, or else of a column of numbers."""
    if label_key(label)[0]:
        return is_boolean
    return not is_boolean and isinstance(label, Real | Decimal) and abs(label) < np.inf


def missing_error(coding: Coding) -> UndeclaredStateError:
    """Return the error for a missing value, which does not reveal its place or number."""
    return UndeclaredStateError(
        f"column {coding.variable!r} must hold no missing value; drop or fill them, or declare a state for them "
        "and name it in the mechanism's `missing=`, or by the key `missing` in a model file."
    )


def undeclared_error(coding: Coding) -> UndeclaredStateError:
    """Return the error for an undeclared value, which does not reveal the value or its number."""
    if coding.breaks:
        least = coding.breaks[0]
        most = coding.breaks[-1]
        return UndeclaredStateError(
            f"column {coding.variable!r} must hold only finite numbers, which the model file puts into "
            f"{len(coding.breaks) + 1} intervals (the first up to {least:.15g}, the last above {most:.15g}), but has "
            "another value; correct the column, or declare a state for the rest and name it by the key `other` in "
            "the model file, or in the mechanism's `other=`."
        )
    kinds = sorted({type(label).__name__ for label in coding.states})
    # the declaration alone decides on this hint: the type of a column may depend on one person's value
    bins = {"Interval": "pd.cut(column, breaks)", "str": "pd.cut(column, breaks, labels=states)"}
    if len(kinds) == 1:
        cut = bins.get(kinds[0])
    else:
        cut = None
    if cut:
        recode = f"recode the column (numbers such as ages into bins: `{cut}`)"
    else:
        recode = "recode the column"
    return UndeclaredStateError(
        f"column {coding.variable!r} must hold only the declared states of its variable (labels of type "
        f"{' and '.join(kinds)}; text, numbers and truth values are different labels); {recode}, declare the states "
        "that it lacks, or declare a state for the rest and name it in the mechanism's `other=`, or by the key "
        "`other` in a model file."
    )


def type_name(dtype: Any) -> str:
    """Return the name of a narwhals type, such as ``"Boolean"`` or ``"String"``."""
    return type(dtype).__name__


def _searched(
    values: np.ndarray, kind: Any, targets: Mapping[Any, int], codes: np.ndarray
) -> np.ndarray:
    """Return codes of numbers by binary search among the declared ones; other numbers keep their entry in `codes`."""
    declared = np.array(sorted(targets), dtype=kind)
    order = np.array([targets[value] for value in sorted(targets)], dtype=codes.dtype)
    place = np.minimum(np.searchsorted(declared, values), declared.size - 1)
    return np.where(declared[place] == values, order[place], codes)


def is_missing(series: Any) -> np.ndarray:
    """Return the mask of missing values of an eager narwhals series: null, or NaN in a column of floats."""
    return (
        series.is_null() | series.is_nan() if series.dtype.is_float() else series.is_null()
    ).to_numpy()


def distinct_values(series: Any) -> tuple[np.ndarray, list[Any]]:
    """Return the position of each value of an eager narwhals series in a list of values, -1 if missing, and the list.

    The position of a value depends on that value alone, and not on the values in other rows: two rows share a
    position only if their values are the same label.

    - A typed column has values of one type, and its engine compares them exactly.
    - A column of Python objects may hold anything, and its inferred type may hold only for the first hundred rows. A
      hash table over it would treat ``True`` and ``1``, or ``(True,)`` and ``np.complex64(1)``, as one value,
      whichever came first, so that one record could change the codes of all others. So only objects of plain types
      are grouped: text and numbers in one group, truth values in another. Within a group, equal values are the same
      label. Every other object is listed separately.
    """
    native = series.to_native()
    engine = series.implementation
    positions: Any
    distinct: Any
    is_object = engine.is_pandas_like() and native.dtype == object
    is_object = (
        is_object or type_name(series.dtype) in {"Object", "Unknown"} or series.dtype.is_nested()
    )
    # text that pandas stores as Python strings is hashed as objects are, see `_factorized`
    is_object = is_object or (
        engine.is_pandas() and getattr(native.dtype, "storage", None) == "python"
    )
    if (
        is_object
        or not len(series)
        or not (engine.is_pandas() or engine.is_pyarrow() or engine.is_polars())
    ):
        if engine.is_pandas():
            return _distinct_objects(native.to_numpy(dtype=object))
        return _distinct_objects(np.fromiter(series.to_list(), dtype=object, count=len(series)))
    if engine.is_pandas():
        import pandas as pd

        is_category = isinstance(native.dtype, pd.CategoricalDtype)
        if is_category:
            positions = native.cat.codes
            distinct = native.cat.categories
        else:
            positions, distinct = pd.factorize(native)
    elif engine.is_pyarrow():
        encoded = native.dictionary_encode().combine_chunks()
        if not hasattr(encoded, "indices"):
            encoded = encoded.chunk(0)
        positions = encoded.indices.fill_null(0)
        distinct = encoded.dictionary
    else:
        distinct = native.unique().drop_nulls()
        positions = native.replace_strict(distinct, np.arange(len(distinct)), default=-1)
    if engine.is_polars():
        labels = distinct.to_list()
    else:
        labels = distinct.tolist()
    return np.where(is_missing(series), np.intp(-1), np.asarray(positions)), labels


def _distinct_objects(values: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    import pandas as pd

    positions = np.full(values.size, -1, dtype=np.intp)
    distinct = []
    kinds = set(map(type, values))
    for group in filter(None, (kinds & _EXACT, kinds & {bool}, kinds - _EXACT - {bool})):
        rows: Any = slice(None)
        if group != kinds:
            rows = np.fromiter(
                (type(value) in group for value in values), dtype=bool, count=values.size
            )
        own = values[rows]
        if group <= _EXACT or group <= {bool}:
            places, found = _factorized(own)
        else:
            places = np.where(pd.isna(own), -1, np.arange(own.size))
            found = own
        positions[rows] = np.where(places < 0, -1, places + len(distinct))
        distinct.extend(found)
    return positions, distinct


def _factorized(values: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    r"""Return the position of each object in a list of distinct ones, -1 for None and NaN; and that list.

    Before pandas 3.1 the hash table of pandas reads text up to its first null character, so that ``"yes"`` takes
    the position of an earlier ``"yes\0x"``. Then one record would decide the codes of others. So the result is
    compared with the values, and where it differs a dictionary replaces it.
    """
    import pandas as pd

    places, found = pd.factorize(values)
    known = places >= 0
    if np.array_equal(found[places[known]], values[known]):
        return places, list(found)
    index: dict[Any, int] = {}
    places[known] = [index.setdefault(value, len(index)) for value in values[known]]
    return places, list(index)
