"""Entries of published tables: numbers with separators of thousands, and symbols with a declared meaning."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import DataError
from bayesprivmrf.noise import Suppressed, Within
from bayesprivmrf.noise.likelihood import Likelihood
from bayesprivmrf.noise.published import HIDDEN
from bayesprivmrf.readers.columns import (
    Number,
    as_number,
    checked_decimal,
    number_of,
    plain_number,
)
from bayesprivmrf.readers.grids import Grid, TypedNumber
from bayesprivmrf.readers.labels_of_tables import plain_text

# A whole number whose thousands are separated by commas, spaces or apostrophes
_GROUPED = re.compile(r"[+-]?\d{1,3}([, '’]\d{3})+")
# A number that is 1410 or 1.41, as its point separates thousands or decimals
_UNCLEAR = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
# The same with a comma, in a file whose fields semicolons separate
_UNCLEAR_COMMA = re.compile(r"[+-]?\d+,\d+")
# Symbols that agencies print in place of a count, which an error may therefore show
_USUAL = re.compile(
    r"\(?[a-z]\)?|\[[a-z]{1,5}\]|\.{1,3}c?|[-–—*#:]{1,3}|[<>≤≥] ?\d{1,3}|\d{1,3} ?[-–] ?\d{1,3}|n/?a|suppressed|conf",
    re.IGNORECASE,
)
# Meaning of `withheld`, in messages
_MUST = (
    "map marks that are not numbers to pairs of bounds, to None for any count, or to a number if they have no digit, "
    "such as {'<5': (1, 4), 'x': None, '-': 0}"
)


@dataclass(frozen=True)
class Bounds:
    """Counts that a symbol stands for, both ends included; an infinite end stands for any count."""

    low: float
    high: float


# Meaning of every symbol for which a count may be any
_ANY = Bounds(0, math.inf)


class Marks:
    """Symbols with a meaning, and the names of the columns of counts and of symbols.

    Parameters
    ----------
    withheld
        The meaning of each symbol: the smallest and the largest count; a number; or None for any count.
    columns
        The file's names of columns; ``value`` and ``symbol`` are read here.
    decimal
        The decimal mark, if it is declared.

    Raises
    ------
    ArgumentError
        `withheld` is no such mapping, or `decimal` no decimal mark.
    """

    def __init__(self, withheld: Any, columns: Mapping[Any, str], decimal: str | None) -> None:
        self._meanings = _meanings(withheld)
        self._decimal = checked_decimal(decimal)
        self._names = {role: plain_text(name) for role, name in columns.items()}

    def is_value_name(self, name: str) -> bool:
        """Return True for the name that the caller gave of the column of counts."""
        return plain_text(name) == self._names.get("value")

    def is_symbol_name(self, name: str) -> bool:
        """Return True for the name that the caller gave of the column of symbols."""
        return plain_text(name) == self._names.get("symbol")

    def has_meaning(self, text: str) -> bool:
        """Return True for a symbol with a declared meaning."""
        return text in self._meanings

    def is_number(self, text: str) -> bool:
        """Return True for a number, with or without separators of thousands."""
        return not math.isnan(self._number(text))

    def _number(self, text: str) -> float:
        """Return the number that a text is; NaN if it is none."""
        if isinstance(text, TypedNumber):
            return as_number(text)
        if self._decimal is not None:
            return as_number(plain_number(text, self._decimal))
        if _GROUPED.fullmatch(text):
            return float(re.sub(r"[, '’]", "", text))
        return as_number(text)

    def _is_unclear(self, text: str, grid: Grid) -> bool:
        """Return True for a number whose mark separates thousands or decimals."""
        if isinstance(text, TypedNumber) or self._decimal is not None:
            return False
        if not grid.has_commas and _UNCLEAR_COMMA.fullmatch(text) is not None:
            return True
        return _UNCLEAR.fullmatch(text) is not None

    def is_count(self, text: str) -> bool:
        """Return True for a number, a symbol with a meaning, or text that looks like either."""
        return (
            text in self._meanings
            or self.is_number(text)
            or _USUAL.fullmatch(text) is not None
            or _is_percentage(text)
        )

    def meaning(self, text: str, grid: Grid, where: str) -> float | Bounds:
        """Return the number of an entry, or the bounds that its symbol stands for.

        Raises
        ------
        DataError
            The entry is empty or a symbol without a meaning, a percentage, or a number with two readings.
        """
        if text in self._meanings:
            return self._meanings[text]
        what = f"the counts of {grid.name}"
        place = f"in {where}"
        is_share = _is_percentage(text)
        seen = f"a percentage {place}"
        require(not is_share, what, "be counts", seen, "remove the percentages", error=DataError)
        is_clear = not self._is_unclear(text, grid)
        seen = f"one {place} whose mark separates thousands or decimals"
        remedy = "write `decimal=','` or `decimal='.'`, the mark of decimals"
        require(is_clear, what, "have one reading", seen, remedy, error=DataError)
        number = self._number(text)
        if not text:
            seen = f"an empty entry {place}"
            remedy = "say in `withheld` what it means, such as {'': (1, 4)}; it is not read as 0"
        elif _USUAL.fullmatch(text):
            seen = f"{text!r} {place}"
            remedy = f"say in `withheld` what it means, such as {{{text!r}: (1, 4)}}, or None for any count"
        else:
            seen = f"something else {place}"
            remedy = "say in `withheld` what it means, or remove it"
        must = "be finite numbers, or symbols with a meaning"
        require(math.isfinite(number), what, must, seen, remedy, error=DataError)
        return number

    def are_used(self, texts: Sequence[str]) -> list[str]:
        """Return the symbols that occur among some texts."""
        return [mark for mark in self._meanings if mark in texts]


def _is_percentage(text: str) -> bool:
    """Return True for a number with a sign of percent."""
    return text.endswith("%") and not math.isnan(as_number(text[:-1].replace(",", ".")))


def _meanings(withheld: Any) -> dict[str, float | Bounds]:
    """Return the number or the bounds that each symbol stands for, after checks."""
    if withheld is None:
        return {}
    given = instance_of("withheld", withheld, Mapping, _MUST)
    found = {}
    for mark, meaning in given.items():
        text = " ".join(str(mark).split())
        is_mark = math.isnan(as_number(text)) and _GROUPED.fullmatch(text) is None
        require(is_mark, "withheld", _MUST, "a number as a mark")
        found[text] = _meaning(text, meaning)
    return found


def _meaning(mark: str, meaning: Any) -> float | Bounds:
    """Return the number or the bounds that a symbol stands for."""
    if meaning is None:
        return _ANY
    if not isinstance(meaning, tuple | list):
        number = as_number(meaning)
        # "<5" stands for no single number
        is_right = math.isfinite(number) and not any(map(str.isdigit, mark))
        require(is_right, "withheld", _MUST, f"{mark!r} and a {type(meaning).__name__}")
        return number
    require(len(meaning) == 2, "withheld", _MUST, f"{len(meaning)} bounds")
    low = as_number(meaning[0])
    high = as_number(meaning[1])
    are_whole = all(math.isfinite(end) and end == round(end) for end in (low, high))
    must = "have pairs of whole bounds, the first at most the second"
    require(are_whole and low <= high, "withheld", must, "others")
    return Bounds(low, high)


def number_within(bounds: Bounds, law: Likelihood) -> Number:
    """Return a count of which bounds are known, as a number with its likelihood; None if it may be any."""
    if math.isinf(bounds.high):
        return None
    # exact counts beside hidden ones are those of suppression, which all estimators read
    if law.is_additive and not law.is_exact:
        # `Within` refuses a distribution that is not discrete
        return Within.between(bounds.low, bounds.high, law)  # type: ignore[arg-type]
    return HIDDEN, Suppressed(int(bounds.low), int(bounds.high) + 1)


def stated_numbers(
    entries: Sequence[Any], laws: Sequence[Likelihood], withheld: Mapping[Any, Any] | None
) -> list[Number]:
    """Return the number and the likelihood of each row of a table in long form.

    Raises
    ------
    ArgumentError
        `withheld` is no mapping from symbols to their meaning.
    DataError
        An entry is neither a number nor a symbol.
    """
    meanings = _meanings(withheld)
    remedy = "state in `withheld` the bounds of a withheld count, such as {'<10': (0, 9)}"
    found = []
    for row, (entry, law) in enumerate(zip(entries, laws, strict=True), start=1):
        meaning = meanings.get(" ".join(str(entry).split()), entry)
        if isinstance(meaning, Bounds):
            found.append(number_within(meaning, law))
        else:
            seen = f"something else in row {row}"
            found.append((number_of("the entries of `value`", meaning, remedy, seen), law))
    return found
