"""Conversion between the common parts of release files and JSON values.

Reading checks every type, so that an altered file raises a `ReleaseFileError`. One of these parts is the number of
rows that a release counts of one person, which mechanisms state.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.checks import truth, whole_number
from bayesprivmrf.errors import ReleaseFileError
from bayesprivmrf.files import Json
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.contrast_parts import Level, Scores
from bayesprivmrf.model.labels import encoded, labels, positions
from bayesprivmrf.privacy import noise_from_dict
from bayesprivmrf.queries import QUERY_KINDS, Query

# Largest whole number in a file, that of the type int64
LARGEST_WHOLE = 2**63 - 1


class Fields:
    """Entries of a file by name; a missing entry or one of the wrong type raises a `ReleaseFileError`."""

    def __init__(self, values: Any) -> None:
        if not isinstance(values, dict):
            raise ReleaseFileError(f"names and values must be there, got {reprlib.repr(values)}")
        self._values = values

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise ReleaseFileError(f"`{name}` must be there, got none")
        return self._values[name]

    def _checked(self, name: str, is_right: bool, what: str, optional: bool = False) -> Any:
        value = self[name]
        if not is_right and not (optional and value is None):
            must = f"{what}{' or null' * optional}"
            raise ReleaseFileError(f"`{name}` must be {must}, got {reprlib.repr(value)}")
        return value

    def whole(
        self, name: str, least: int, largest: int = LARGEST_WHOLE, *, optional: bool = False
    ) -> Any:
        """Return a whole number from `least` to `largest`."""
        is_right = type(self[name]) is int and least <= self[name] <= largest
        return self._checked(name, is_right, f"a whole number from {least} to {largest}", optional)

    def number(self, name: str, *, optional: bool = False) -> Any:
        """Return a finite number."""
        return self._checked(name, _is_number(self[name]), "a finite number", optional)

    def positive(self, name: str, *, optional: bool = False) -> Any:
        """Return a finite number above zero."""
        is_right = _is_number(self[name]) and self[name] > 0
        return self._checked(name, is_right, "positive and finite", optional)

    def truth(self, name: str) -> bool:
        """Return a boolean."""
        return self._checked(name, isinstance(self[name], bool), "true or false")

    def text(self, name: str, *choices: str) -> Any:
        """Return text, which is one of the choices if there are any."""
        is_right = isinstance(self[name], str) and self[name] in (choices or (self[name],))
        return self._checked(name, is_right, " or ".join(choices) or "text")

    def items(self, name: str) -> list[Any]:
        """Return a list."""
        return self._checked(name, isinstance(self[name], list), "a list")

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a mapping of names to values, whose types are not checked."""
        return self._checked(name, isinstance(self[name], dict), "names and values")

    def law(self, name: str, *, optional: bool = False) -> Any:
        """Return a noise distribution."""
        if optional and self[name] is None:
            return None
        return noise_from_dict(self.mapping(name))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def numbers(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a file's array after a check of its shape, in which -1 stands for any length."""
    if len(array.shape) != len(shape) or any(
        there != wanted >= 0 for there, wanted in zip(array.shape, shape, strict=True)
    ):
        raise ReleaseFileError(f"its array must be of shape {shape}, got {array.shape}")
    return array


def upper_places(places: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Return the positions above the diagonal of a matrix as integers, from the floats of a file's array."""
    rows, columns = places
    whole = (np.rint(rows) == rows) & (np.rint(columns) == columns)
    if not (whole & (rows >= 0) & (rows < columns) & (columns < size)).all():
        raise ReleaseFileError(
            f"its couplings must be above the diagonal of a matrix of {size} rows"
        )
    return np.stack([rows, columns]).astype(np.int64)


def domain_content(domain: Domain) -> dict[str, Json]:
    """Return the variables and states of a domain as JSON values."""
    return {
        "variables": [encoded(v) for v in domain.variables],
        "states": [[encoded(label) for label in states] for states in domain.states],
    }


def restored_domain(content: Fields) -> Domain:
    """Return the domain that `domain_content` described."""
    return Domain(
        variables=labels(content["variables"]),
        states=tuple(labels(states) for states in content.items("states")),
    )


def model_content(model: ModelSpecification) -> dict[str, Json]:
    """Return the cliques, structural zeros, ties, scores and levels of a model, as positions in its domain.

    The interactions are there if they are not the cliques themselves.
    """
    domain = model.domain
    shared = {}
    if model.ties:
        tied = [[[domain.index(v) for v in scope] for scope in group] for group in model.ties]
        shared |= {"ties": tied, "shares_transitions": model.shares_transitions}
    if model.ordinal:
        shared["ordinal"] = [
            [domain.index(s.variable), list(s.values), s.is_smooth] for s in model.ordinal
        ]
    if model.levels:
        shared["levels"] = [
            [
                domain.index(v),
                one.name,
                [[domain.code(v, state) for state in area] for area in one.areas],
            ]
            for one in model.levels
            for v in [one.variable]
        ]
    if model.interactions is not None:
        shared["interactions"] = [list(scope) for scope in model.believed.scopes]
    zeros = [
        [[domain.index(v), domain.code(v, label)] for v, label in zero] for zero in model.impossible
    ]
    return shared | {"cliques": [list(scope) for scope in model.scopes], "impossible": zeros}


def restored_model(content: Fields, domain: Domain, **declared: Any) -> ModelSpecification:
    """Return the model that `model_content` described; the entry of impossible cells is optional."""

    def optional(name: str) -> list[Any]:
        if name in content:
            return content.items(name)
        return []

    def variables(places: Any) -> tuple[Any, ...]:
        return tuple(domain.variables[v] for v in positions(places, len(domain.variables)))

    ties = optional("ties")
    interactions = None
    if "interactions" in content:
        interactions = tuple(map(variables, content.items("interactions")))
    return ModelSpecification(
        domain=domain,
        cliques=tuple(map(variables, content.items("cliques"))),
        impossible=tuple(
            tuple(_assigned(pair, domain) for pair in zero) for zero in optional("impossible")
        ),
        ties=tuple(tuple(map(variables, group)) for group in ties),
        shares_transitions=bool(ties) and content.truth("shares_transitions"),
        ordinal=tuple(
            Scores(variable=variables([place])[0], values=tuple(values), is_smooth=bool(is_smooth))
            for place, values, is_smooth in optional("ordinal")
        ),
        levels=tuple(_level(one, domain) for one in optional("levels")),
        interactions=interactions,
        **declared,
    )


def _level(item: Any, domain: Domain) -> Level:
    """Return one level of a variable's areas."""
    place, name, areas = item
    (variable,) = positions([place], len(domain.variables))
    states = domain.states[variable]
    groups = tuple(tuple(states[s] for s in positions(area, len(states))) for area in areas)
    return Level(variable=domain.variables[variable], name=str(name), areas=groups)


def _assigned(pair: list[Any], domain: Domain) -> tuple[Any, Any]:
    """Return a variable and its state from their positions."""
    (variable,) = positions(pair[:1], len(domain.variables))
    (code,) = positions(pair[1:], domain.cardinalities[variable])
    return domain.variables[variable], domain.states[variable][code]


def query_content(query: Query, domain: Domain) -> dict[str, Json]:
    """Return a query as JSON values.

    Raises
    ------
    ReleaseFileError
        The query's class names no kind, so that its file could not be read.
    """
    # a class that inherits its kind would be read as its base class
    if "kind" not in vars(type(query)) or not QUERY_KINDS.holds(type(query)):
        remedy = "give the class a `kind`, `_content` and `_restored`, as `bayesprivmrf.queries.Query` says"
        raise ReleaseFileError(
            f"queries of the class {type(query).__name__} have no written form; {remedy}"
        )
    return {"query": query.kind, **query._content(domain)}


def restored_query(content: Fields, domain: Domain) -> Query:
    """Return the query that `query_content` described."""
    kind = content.text("query")
    made = QUERY_KINDS.find(kind)
    if made is None:
        remedy = "install the package that made them, or import the module that defines the kind"
        raise ReleaseFileError(
            f"no installed package brings its queries of the kind {kind!r}; {remedy}"
        )
    return made._restored(content, domain)


def plain(value: Any) -> Any:
    """Return a setting as a JSON value; values that JSON cannot represent become text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return float(value)
    return str(value)


def details_content(details: Mapping[str, Any]) -> dict[str, Json]:
    """Return public numbers about a release as JSON values; some of them may be NumPy scalars."""
    return plain(
        {name: v.item() if isinstance(v, np.generic) else v for name, v in details.items()}
    )


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
        if (
            settings.get("person") is None
            or type(most) is not int
            or not 1 <= most <= LARGEST_WHOLE
        ):
            return None
        return cls(at_most=most, is_weighed="grid" in settings)

    @staticmethod
    def content(rows: PersonRows | None, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry for a file; it is empty if the settings imply the rule, as in files of older versions."""
        if rows == PersonRows.of_settings(settings):
            return {}
        if rows is None:
            stated = None
        else:
            stated = {"at_most": rows.at_most, "is_weighed": rows.is_weighed}
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
