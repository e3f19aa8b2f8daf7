"""Labels of published tables: which texts are declared states, variables, or the names of totals."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
# Names of a column of percentages or rates
_SHARE = re.compile(r".*(%|\bper ?cent\b|\bpercent|\bproportion|\brates?\b|\bshares?\b).*")


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


def is_share_name(text: str) -> bool:
    """Return True for the name of a column of percentages or rates."""
    return _SHARE.fullmatch(plain_text(text)) is not None


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
        self._variables = {
            plain_text(called.get(variable, variable)): variable
            for variable in model.domain.variables
        }
        self._codes = {variable: self._found(variable) for variable in model.domain.variables}

    def _found(self, variable: Variable) -> dict[str, int]:
        """Return the states of a variable by their texts; texts that two states share are exact ones."""
        states = self.domain.states_of(variable)
        plain = [plain_text(state) for state in states]
        by_text = {text: code for code, text in enumerate(plain) if plain.count(text) == 1}
        return by_text | {str(state): code for code, state in enumerate(states)}

    def variable(self, text: str) -> Variable | None:
        """Return the variable with this name; None if there is none."""
        return self._variables.get(plain_text(text))

    def code(self, variable: Variable, text: str) -> int | None:
        """Return the position of a state of a variable; None if the text is none of its states."""
        codes = self._codes[variable]
        return codes.get(text, codes.get(plain_text(text)))

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
