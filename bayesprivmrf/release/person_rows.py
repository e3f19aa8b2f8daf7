"""Number of rows of one person that a release counts, as stated by its mechanism and kept in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bayesprivmrf.checks import truth, whole_number
from bayesprivmrf.release.codec import Fields

# largest number that a file can hold
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonRows:
    """Rule by which a release counts rows where one person may have several.

    Parameters
    ----------
    at_most
        The most rows of one person that are counted.
    is_weighed
        Whether each of a person's K counted rows weighs 1/K, so that the release is of persons; otherwise each row
        counts as one record.

    Raises
    ------
    ArgumentError
        `at_most` is no whole number of rows, or `is_weighed` is neither True nor False.
    """

    at_most: int
    is_weighed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "at_most", whole_number("at_most", self.at_most, 1, _MOST))
        object.__setattr__(self, "is_weighed", truth("is_weighed", self.is_weighed))

    @property
    def dependent(self) -> int:
        """Largest number of records in a fit from one person; 1 if a person has the weight of one record."""
        return 1 if self.is_weighed else self.at_most

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> PersonRows | None:
        """Return the rule from the settings of a release, for older files that do not state it separately."""
        most = settings.get("at_most")
        if settings.get("person") is None or type(most) is not int or not 1 <= most <= _MOST:
            return None
        return cls(at_most=most, is_weighed="grid" in settings)

    @staticmethod
    def content(rows: PersonRows | None, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry for a file: none if the settings say the same, as in files of older versions."""
        if rows == PersonRows.of_settings(settings):
            return {}
        held = None if rows is None else {"at_most": rows.at_most, "is_weighed": rows.is_weighed}
        return {"person_rows": held}

    @classmethod
    def restored(cls, content: Fields, settings: Mapping[str, Any]) -> PersonRows | None:
        """Return the rule that a file states, or otherwise the one in its settings."""
        if "person_rows" not in content:
            return cls.of_settings(settings)
        if content["person_rows"] is None:
            return None
        held = Fields(content["person_rows"])
        return cls(at_most=held.whole("at_most", 1), is_weighed=held.truth("is_weighed"))
