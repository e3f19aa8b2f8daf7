"""Number of rows that a release counts of one person; mechanisms state it and files keep it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bayesprivmrf.checks import truth, whole_number
from bayesprivmrf.release.codec import LARGEST_WHOLE, Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRows:
    """Rule by which a release counts rows if one person may have several.

    Parameters
    ----------
    at_most
        Largest number of rows that are counted of one person.
    is_weighed
        True if each of a person's K counted rows has the weight 1/K, so that the release counts persons. Otherwise
        each row counts as one record.

    Raises
    ------
    ArgumentError
        `at_most` is not a whole number of at least 1, or `is_weighed` is not a boolean.

    Examples
    --------
    >>> PersonRows(at_most=5).dependent, PersonRows(at_most=5, is_weighed=True).dependent
    (5, 1)
    """

    at_most: int
    is_weighed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "at_most", whole_number("at_most", self.at_most, 1, LARGEST_WHOLE))
        object.__setattr__(self, "is_weighed", truth("is_weighed", self.is_weighed))

    @property
    def dependent(self) -> int:
        """Largest number of records that one person contributes; 1 if a person's rows weigh as much as one record."""
        return 1 if self.is_weighed else self.at_most

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> PersonRows | None:
        """Return the rule in the settings of a release, for older files that do not state it separately."""
        most = settings.get("at_most")
        if settings.get("person") is None or type(most) is not int or not 1 <= most <= LARGEST_WHOLE:
            return None
        return cls(at_most=most, is_weighed="grid" in settings)

    @staticmethod
    def content(rows: PersonRows | None, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry for a file; it is empty if the settings imply the rule, as in files of older versions."""
        if rows == PersonRows.of_settings(settings):
            return {}
        stated = None if rows is None else {"at_most": rows.at_most, "is_weighed": rows.is_weighed}
        return {"person_rows": stated}

    @classmethod
    def restored(cls, content: Fields, settings: Mapping[str, Any]) -> PersonRows | None:
        """Return the rule that a file states, or otherwise the rule in its settings."""
        if "person_rows" not in content:
            return cls.of_settings(settings)
        if content["person_rows"] is None:
            return None
        stated = Fields(content["person_rows"])
        return cls(at_most=stated.whole("at_most", 1), is_weighed=stated.truth("is_weighed"))
