"""From a column of labels to codes, without ever reading the states off the data."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Number, Real
from typing import Any

import numpy as np

from bayesprivmrf.errors import DataError, UndeclaredStateError
from bayesprivmrf.model.domain import Label, Variable, label_key

__all__ = [
    "CHUNK",
    "Coding",
    "label_fits",
    "match_columns",
    "missing_error",
    "type_name",
    "undeclared_error",
]

CHUNK = 1 << 15  # rows handled at a time: what a core's first cache holds
_LARGEST_LOOKUP = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """How one variable's labels become codes 0, 1, ... in declared order.

    Parameters
    ----------
    variable, states
        As declared.
    missing, other
        The codes that missing and undeclared values go to; ``None`` makes them an error.
    """

    variable: Variable
    states: tuple[Label, ...]
    missing: int | None = None
    other: int | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Smallest unsigned integer type that holds every code and two marks, undeclared and missing."""
        return np.min_scalar_type(len(self.states) + 1)

    def encode(self, series: Any) -> np.ndarray:
        """Return the code of each value of an eager narwhals series.

        Raises
        ------
        UndeclaredStateError
            A value is missing or undeclared, and no declared state takes it.
        """
        undeclared = len(self.states)
        dtype = series.dtype
        missing = (series.is_null() | series.is_nan() if dtype.is_float() else series.is_null()).to_numpy()
        if missing.any():
            if self.missing is None:
                raise missing_error(self)
        else:
            missing = None
        is_boolean = type_name(dtype) == "Boolean"
        if is_boolean or (dtype.is_integer() and type_name(dtype) not in {"UInt64", "Int128", "UInt128"}):
            codes = self._from_integers(series, missing is not None, is_boolean=is_boolean)
        elif dtype.is_float():
            codes = self._from_floats(series.to_numpy())
        else:
            codes = self._from_distinct(series)
        if missing is not None:
            codes[missing] = self.missing
        if codes.size and codes.max() == undeclared:
            if self.other is None:
                raise undeclared_error(self)
            codes[codes == undeclared] = self.other
        return codes

    def _from_integers(self, series: Any, has_missing: bool, *, is_boolean: bool) -> np.ndarray:
        if has_missing:
            series = series.fill_null(False if is_boolean else 0)
        targets = {
            int(label): code  # type: ignore[call-overload]
            for code, label in enumerate(self.states)
            if label_fits(label, is_boolean=is_boolean) and label == int(label)  # type: ignore[call-overload]
        }
        values = series.to_numpy()
        codes = np.full(values.size, len(self.states), dtype=self.dtype)
        targets = {value: code for value, code in targets.items() if -(2**63) <= value < 2**63}
        if not targets:
            return codes
        low, span = min(targets), max(targets) - min(targets) + 1
        if span > _LARGEST_LOOKUP:
            return _searched(values.astype(np.int64), np.int64, targets, codes)
        lookup = np.full(span + 1, len(self.states), dtype=self.dtype)
        for value, code in targets.items():
            lookup[value - low] = code
        for start in range(0, values.size, CHUNK):
            # a difference that wraps around is large when seen as unsigned, so it cannot hit the table
            place = values[start : start + CHUNK].astype(np.int64)
            place -= low
            unsigned = place.view(np.uint64)
            np.minimum(unsigned, span, out=unsigned)
            np.take(lookup, place, out=codes[start : start + CHUNK], mode="clip")
        return codes

    def _from_floats(self, values: np.ndarray) -> np.ndarray:
        targets: dict[float, int] = {}
        for code, label in enumerate(self.states):
            if label_fits(label, is_boolean=False) and float(label) == label:  # type: ignore[arg-type]
                targets[float(label)] = code  # type: ignore[arg-type]
        codes = np.full(values.size, len(self.states), dtype=self.dtype)
        return (
            _searched(values.astype(np.float64, copy=False), np.float64, targets, codes) if targets else codes
        )

    def _from_distinct(self, series: Any) -> np.ndarray:
        """Codes of text, categories, dates and objects: every distinct value is looked up once."""
        known = {label_key(label): code for code, label in enumerate(self.states)}
        # A hash table takes True for 1, so objects that may be either are looked up one by one.
        may_confuse = type_name(series.dtype) == "Object" and any(
            isinstance(label, Number) for label in self.states
        )
        if may_confuse:
            return _looked_up(series, known, self.dtype)
        try:
            positions, distinct = _distinct(series)
        except TypeError:  # unhashable values
            return _looked_up(series, known, self.dtype)
        lookup = np.full(len(distinct) + 1, len(self.states), dtype=self.dtype)
        for position, value in enumerate(distinct):
            lookup[position] = _find(known, value)
        return lookup[positions]  # a missing value's position is -1, the entry left undeclared


def label_fits(label: Label, *, is_boolean: bool) -> bool:
    """Whether a label can be a value of a Boolean column, or else of a column of numbers."""
    if label_key(label)[0]:
        return is_boolean
    return not is_boolean and isinstance(label, Real | Decimal) and abs(label) < np.inf


def match_columns(variables: Sequence[Variable], columns: Iterable[Hashable]) -> dict[Variable, Any]:
    """Return the column of each variable: the one of that name, else the one named ``str(name)``.

    Raises
    ------
    DataError
        A variable has no column.
    """
    named = {label_key(column): column for column in columns}
    found: dict[Variable, Any] = {}
    for variable in variables:
        key = next((key for key in (label_key(variable), label_key(str(variable))) if key in named), None)
        if key is None:
            raise DataError(
                f"the data must have a column for each variable, but none is named {variable!r}; "
                "rename the column, or declare the variable under the column's name."
            )
        found[variable] = named[key]
    return found


def missing_error(coding: Coding) -> UndeclaredStateError:
    """Error for a missing value, without saying where or how many."""
    return UndeclaredStateError(
        f"column {coding.variable!r} must hold no missing value; drop or fill them, or declare a state for them "
        "and name it in the mechanism's `missing=`, or by the key `missing` in a model file."
    )


def undeclared_error(coding: Coding) -> UndeclaredStateError:
    """Error for an undeclared value, without saying which or how many."""
    kinds = sorted({type(label).__name__ for label in coding.states})
    return UndeclaredStateError(
        f"column {coding.variable!r} must hold only the declared states of its variable (labels of type "
        f"{' and '.join(kinds)}; text and numbers are different labels, truth values are neither); recode "
        "the column, declare the missing states, or declare a state for the rest and name it in the mechanism's "
        "`other=`, or by the key `other` in a model file."
    )


def type_name(dtype: Any) -> str:
    """Name of a narwhals type, such as ``"Boolean"`` or ``"String"``."""
    return type(dtype).__name__


def _searched(values: np.ndarray, kind: Any, targets: Mapping[Any, int], codes: np.ndarray) -> np.ndarray:
    """Codes of numbers by binary search among the declared ones; others keep what `codes` holds."""
    declared = np.array(sorted(targets), dtype=kind)
    order = np.array([targets[value] for value in sorted(targets)], dtype=codes.dtype)
    place = np.minimum(np.searchsorted(declared, values), declared.size - 1)
    return np.where(declared[place] == values, order[place], codes)


def _find(known: Mapping[Any, int], value: Any) -> int:
    try:
        return known.get(label_key(value), len(known))
    except TypeError:
        return len(known)


def _looked_up(series: Any, known: Mapping[Any, int], dtype: np.dtype[Any]) -> np.ndarray:
    return np.fromiter((_find(known, value) for value in series.to_list()), dtype=dtype, count=len(series))


def _distinct(series: Any) -> tuple[np.ndarray, Sequence[Any]]:
    """Position of each value in the list of distinct ones (-1 where missing), by the frame's own means."""
    native = series.to_native()
    if series.implementation.is_pyarrow():
        encoded = native.dictionary_encode().combine_chunks()
        encoded = encoded if hasattr(encoded, "indices") else encoded.chunk(0)
        return encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()
    if series.implementation.is_pandas():
        if type_name(series.dtype) in {"Categorical", "Enum"}:
            return native.cat.codes.to_numpy(), list(native.cat.categories)
        import pandas as pd

        positions, distinct = pd.factorize(native)
        return positions, list(distinct)
    distinct = series.unique().drop_nulls().to_list()
    places = {value: place for place, value in enumerate(distinct)}
    return np.fromiter((places.get(value, -1) for value in series.to_list()), dtype=np.int64), distinct
