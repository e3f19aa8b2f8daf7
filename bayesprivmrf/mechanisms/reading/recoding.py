"""The declared recoding of values into states: each value by itself, whatever stands in the other rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ArgumentError, DataError
from bayesprivmrf.mechanisms.reading.coding import BREAKS, distinct_values
from bayesprivmrf.mechanisms.reading.frame import column_names, frame_of, guarded, in_memory, repeated_error
from bayesprivmrf.model.declaration_file import Declaration, RecodingRule
from bayesprivmrf.model.domain import Label, label_key

if TYPE_CHECKING:
    import pandas as pd


def recode(declaration: Declaration, data: Any) -> pd.DataFrame:
    """Records whose values are the declared states, by the declared rules.

    Parameters
    ----------
    declaration
        The declaration of the model file.
    data
        Any data frame that narwhals knows (pandas, Polars, PyArrow, ...); a lazy one is collected, its declared
        columns alone.

    Returns
    -------
    DataFrame
        One column a declared variable, in declared order, of type object, same rows. A value that no rule covers
        stays as it is, and counting refuses it.

    Raises
    ------
    DataError
        `data` is not a data frame, lacks a declared column or has one twice, or holds values of a kind that
        cannot be looked up (lists, records). No message holds a value.
    MemoryError
        Recoding ran out of memory.

    Notes
    -----
    Text is compared with declared text as it stands; where the declaration has numbers (or true and false),
    text that spells one is taken for it. ``1`` and ``1.0`` are one value, ``True`` and ``1`` are two.

    A record's states depend on that record alone, so records that differ in one person's answers still do so once
    they are recoded, and a mechanism's guarantee for the recoded records is one for the records. `distinct_values`
    says why looking up each distinct value once does not break this.
    """
    if not isinstance(declaration, Declaration):
        raise ArgumentError(
            f"`declaration` must be the declaration of a model file, got a {type(declaration).__name__}; read one by "
            "read_declaration."
        )
    frame = frame_of(data, declaration.rules)
    return guarded(
        "recoding",
        lambda: _recoded_frame(declaration.rules, data, frame),
        "columns must hold single values: text, numbers, dates or truth values.",
    )


def _recoded_frame(rules: Mapping[str, RecodingRule], data: Any, frame: Any) -> pd.DataFrame:
    import pandas as pd

    names = column_names(data, frame)
    by_text = {str(column): column for column in names}
    for variable in rules:
        if variable not in by_text:
            raise DataError(
                f"the data must have the column {variable!r}, which the model declares; the fields of a CSV file "
                "must be separated by commas, semicolons or tabs, and its first row must name the columns."
            )
        if names.count(by_text[variable]) > 1:
            raise repeated_error()
    frame = in_memory(frame, [by_text[variable] for variable in rules])
    columns = {v: _recoded(frame.get_column(by_text[v]), rule) for v, rule in rules.items()}
    # as objects: a type inferred from all rows would change what one of them holds, a date into a time for instance
    recoded = pd.DataFrame(columns, index=getattr(frame.to_native(), "index", None), dtype=object)
    recoded.attrs[BREAKS] = {v: rule.breaks for v, rule in rules.items() if rule.breaks}
    return recoded


def _recoded(column: Any, rule: RecodingRule) -> np.ndarray:
    """Labels of a column: each distinct value is looked up once."""
    positions, distinct = distinct_values(column)
    label_of = _by_value(rule) if rule.breaks is None else _by_bin(rule, rule.breaks)
    labels = [*map(label_of, distinct), rule.missing]  # a missing value's position is -1
    return np.fromiter(labels, dtype=object, count=len(labels))[positions]


def _by_value(rule: RecodingRule) -> Callable[[Any], Any]:
    """Return the label of one value, where the rule names values or the data holds the states themselves."""
    groups = [(label,) for label in rule.states] if rule.values is None else rule.values
    targets = rule.states if rule.values is None else rule.targets
    known = {label_key(v): t for group, t in zip(groups, targets, strict=True) for v in group}

    def label_of(value: Any) -> Any:
        for reading in (value, *_readings(value)):
            key = label_key(reading)
            if key in known:
                return known[key]
        return value if rule.other is None else rule.other

    return label_of


def _by_bin(rule: RecodingRule, breaks: tuple[float, ...]) -> Callable[[Any], Any]:
    """Return the label of one value, where the rule has bins: right-closed, of finite numbers."""

    def label_of(value: Any) -> Any:
        number = _number(value)
        if number is not None and isfinite(number):
            return rule.targets[bisect_left(breaks, number)]
        return value if rule.other is None else rule.other

    return label_of


def _number(value: Any) -> float | None:
    """Return the double nearest to a number, or to what a text spells; None for anything else."""
    is_plain = type(value) in (float, str, int)  # asked first for speed
    if not is_plain and (isinstance(value, bool) or not isinstance(value, str | Real | Decimal)):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):  # a time span of NumPy counts as a real number and is none
        return None


def _readings(value: Any) -> list[Label]:
    """Values that a text spells besides itself: an integer, a number, or a truth value."""
    if not isinstance(value, str):
        return []
    text = value.strip()
    if text.lower() in {"true", "false"}:
        return [text.lower() == "true"]
    readings: list[Label] = []
    for kind in (int, float):  # int first: a long code must not lose digits
        try:
            readings.append(kind(text))
        except ValueError:
            continue
    return readings
