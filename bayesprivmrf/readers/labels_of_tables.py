"""Labels of published tables: which texts are declared states, variables, or the names of totals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.model.labels import is_total_name

# What the totals of offices count
_COUNTED = r"(people|persons|population|usual residents|residents|households|records|responses)"
# Labels of a total, as in "Total - Age", "Total people, by age", "All ages", "Both sexes", "Persons"
_TOTAL = re.compile(
    rf"(grand )?total( {_COUNTED})?( stated)?(\s*[-,(*].*)?"
    rf"|all ({_COUNTED}|ages|sexes|genders|categories|groups|ethnic groups)|both (sexes|genders)|persons"
)
# Dashes that offices print in ranges
_DASHES = str.maketrans("–—‑−", "----")
# Marks of ranges, around which offices print spaces or not
_AROUND = re.compile(r" ?([<>≤≥=-]) ?")
# Rates, such as "per 1,000 people"
_RATE = r"\bper (1[ ,]?0{2,3}([ ,]?000)?|thousand|million)\b"
# Averages, which are no counts either; the means of transport are a variable
_AVERAGE = r"\b(?!means of (trans|travel|access|pay))(mean|median|average)s?\b"
# Names of a column of percentages, rates or averages
_SHARE = rf".*({_AVERAGE}|%|\bper ?cent\b|\bpercent|\bproportion|\brates?\b|\bshares?\b|{_RATE}).*"
# Units of thousands, as in "(in thousands)", "Unit: thousands", "thousand persons" and "'000", and not in "rounded to
# the nearest thousand", "20 thousand" or "two million"
_NUMBERS = "".join(
    rf"(?<!\b{word} )" for word in ("a", "one", "two", "three", "four", "five", "ten")
)
_THOUSANDS = (
    r"\bin (thousands|millions)\b|\bunits? of (a|one) (thousand|million)\b"
    r"|['’(]000s?\b|^(thousand|million)s?( of)? (people|persons|households)\b"
    rf"|(?<!nearest )(?<!closest )(?<!to )(?<!\d ){_NUMBERS}\b(thousand|million)s?(\)|$)"
)
# Marks of footnotes at the end of a label, as in "Female [note 1]" and "Female²"
_FOOTNOTE = re.compile(r"( ?\[(note )?\w{1,2}\]|[¹²³⁴⁵⁶⁷⁸⁹⁰]+)+$")
# Titles of a table of percentages, rates, averages or thousands: "Percentage of ..." and "..., per cent"; remarks on
# percentages are none
_SHARE_TITLE = re.compile(
    rf"(table [\w.]+\W*)?(%|percent(age)?s?|per cent|proportions?|shares?|rates?)( (of|by|distribution)\b.*)?"
    rf"|(table [\w.]+\W*)?{_AVERAGE}.*|.*(%|\bper ?cent|\bpercentages?)\W*|.*({_RATE}|{_THOUSANDS}).*"
)
# The same as the name of a column, or an entry of a column of units
_UNIT = re.compile(rf"{_SHARE}|.*({_THOUSANDS}).*")


def plain_text(label: Any) -> str:
    """Return the text of a label in lower case, with plain dashes and single spaces, without a colon at its end.

    Examples
    --------
    >>> plain_text(" 30 – 60:"), plain_text(18.0)
    ('30-60', '18')
    """
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    text = " ".join(str(label).split()).translate(_DASHES)
    return _AROUND.sub(r"\1", text).rstrip(":").rstrip().casefold()


def is_share_title(text: str) -> bool:
    """Return True for a title above a table of percentages, rates, averages or thousands.

    Examples
    --------
    >>> is_share_title("Table 3: Percentage of people by age"), is_share_title("Percentages may not add up.")
    (True, False)
    """
    return _SHARE_TITLE.fullmatch(plain_text(text)) is not None


def is_unit_of_shares(text: str) -> bool:
    """Return True for a unit that is no count: percentages, rates, averages or thousands."""
    return _UNIT.fullmatch(plain_text(text)) is not None


def is_of_thousands(text: str) -> bool:
    """Return True for a note that says that the numbers are thousands.

    Examples
    --------
    >>> is_of_thousands("Note: Numbers in thousands."), is_of_thousands("Rounded to the nearest thousand.")
    (True, False)
    """
    return re.search(_THOUSANDS, plain_text(text).rstrip(".")) is not None


@dataclass(frozen=True)
class _Names[T]:
    """Things by their names: exact ones, and plain ones that no two of them share."""

    exact: dict[str, T]
    plain: dict[str, T]

    @classmethod
    def of(cls, named: Sequence[tuple[Any, T]]) -> _Names[T]:
        """Return the things of pairs of a name and a thing."""
        texts = [plain_text(name) for name, _ in named]
        plain = {
            text: thing
            for text, (_, thing) in zip(texts, named, strict=True)
            if texts.count(text) == 1
        }
        return cls({str(name): thing for name, thing in named}, plain)

    def get(self, text: str) -> T | None:
        """Return the thing with a name; None if there is none, or several have it but for its spelling.

        Marks of footnotes at the end of a name are no part of it, unless they are declared.
        """
        found = self.exact.get(text, self.plain.get(plain_text(text)))
        if found is None:
            return self.plain.get(plain_text(_FOOTNOTE.sub("", text)))
        return found


class Labels:
    """Declared variables and states, found by the texts of a published table.

    Parameters
    ----------
    model
        The declared model.
    called
        The table's name of a variable, where it differs from the declared one.
    """

    def __init__(self, model: ModelSpecification, called: Mapping[Any, str]) -> None:
        self.domain = model.domain
        variables = model.domain.variables
        self._variables = _Names.of([(called.get(one, one), one) for one in variables])
        self._codes = {
            one: _Names.of([(state, code) for code, state in enumerate(states)])
            for one, states in zip(variables, model.domain.states, strict=True)
        }

    def variable(self, text: str) -> Variable | None:
        """Return the variable with this name; None if there is none."""
        return self._variables.get(text)

    def code(self, variable: Variable, text: str) -> int | None:
        """Return the position of a state of a variable; None if the text is none of its states."""
        return self._codes[variable].get(text)

    def variables_with(self, text: str) -> list[Variable]:
        """Return the variables that have this text as a state."""
        return [variable for variable in self._codes if self.code(variable, text) is not None]

    def is_total(self, text: str) -> bool:
        """Return True for the name of a total that no variable has as a state."""
        plain = plain_text(text)
        # "*" is the library's own mark in tables in long form
        is_named = plain == "*" or is_total_name(plain) or _TOTAL.fullmatch(plain) is not None
        return is_named and not self.variables_with(text)

    def is_label(self, text: str) -> bool:
        """Return True for a declared state, or the name of a total."""
        return bool(text) and (bool(self.variables_with(text)) or self.is_total(text))
