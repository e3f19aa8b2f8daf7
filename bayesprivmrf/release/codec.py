"""Conversion between the common parts of release files and JSON values.

Reading checks every type, so that an altered file raises a `ReleaseFileError`.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bayesprivmrf.errors import ReleaseFileError
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

    def _checked(self, name: str, holds: Callable[[Any], bool], what: str, optional: bool) -> Any:
        value = self[name]
        if not holds(value) and not (optional and value is None):
            raise ReleaseFileError(
                f"`{name}` must be {what}{' or null' * optional}, got {reprlib.repr(value)}"
            )
        return value

    def whole(self, name: str, least: int, largest: int = LARGEST_WHOLE, *, optional: bool = False) -> Any:
        """Return a whole number from `least` to `largest`."""
        return self._checked(
            name,
            lambda value: type(value) is int and least <= value <= largest,
            f"a whole number from {least} to {largest}",
            optional,
        )

    def number(self, name: str, *, optional: bool = False) -> Any:
        """Return a finite number."""
        return self._checked(name, _is_number, "a finite number", optional)

    def positive(self, name: str, *, optional: bool = False) -> Any:
        """Return a finite number above zero."""
        return self._checked(
            name, lambda value: _is_number(value) and value > 0, "positive and finite", optional
        )

    def truth(self, name: str) -> bool:
        """Return a boolean."""
        return self._checked(name, lambda value: isinstance(value, bool), "true or false", False)

    def text(self, name: str, *choices: str) -> Any:
        """Return text, which is one of the choices if there are any."""
        what = " or ".join(choices) or "text"
        return self._checked(
            name, lambda text: isinstance(text, str) and text in (choices or (text,)), what, False
        )

    def items(self, name: str) -> list[Any]:
        """Return a list."""
        return self._checked(name, lambda value: isinstance(value, list), "a list", False)

    def mapping(self, name: str) -> dict[str, Any]:
        """Return a mapping of names to values, whose types are not checked."""
        return self._checked(name, lambda value: isinstance(value, dict), "names and values", False)

    def law(self, name: str, *, optional: bool = False) -> Any:
        """Return a noise distribution."""
        return None if optional and self[name] is None else noise_from_dict(self.mapping(name))


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
        raise ReleaseFileError(f"its couplings must be above the diagonal of a matrix of {size} rows")
    return np.stack([rows, columns]).astype(np.int64)


def domain_content(domain: Domain) -> dict[str, Any]:
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


def model_content(model: ModelSpecification) -> dict[str, Any]:
    """Return the cliques, structural zeros, ties, scores and levels of a model, as positions in its domain."""
    domain = model.domain
    tied = [[[domain.index(v) for v in scope] for scope in group] for group in model.ties]
    shared = {"ties": tied, "shares_transitions": model.shares_transitions} if tied else {}
    if model.ordinal:
        shared["ordinal"] = [
            [domain.index(one.variable), list(one.values), one.is_smooth] for one in model.ordinal
        ]
    if model.levels:
        shared["levels"] = [
            [
                domain.index(one.variable),
                one.name,
                [[domain.code(one.variable, s) for s in a] for a in one.areas],
            ]
            for one in model.levels
        ]
    return shared | {
        "cliques": [list(scope) for scope in model.scopes],
        "impossible": [
            [[domain.index(v), domain.code(v, label)] for v, label in assignment]
            for assignment in model.impossible
        ],
    }


def restored_model(content: Fields, domain: Domain, **declared: Any) -> ModelSpecification:
    """Return the model that `model_content` described; the entry of impossible cells is optional."""
    names = domain.variables
    scopes = [positions(scope, len(names)) for scope in content.items("cliques")]
    zeros = content.items("impossible") if "impossible" in content else []
    ties = content.items("ties") if "ties" in content else []
    return ModelSpecification(
        domain=domain,
        cliques=tuple(tuple(names[v] for v in scope) for scope in scopes),
        impossible=tuple(tuple(_assigned(pair, domain) for pair in zero) for zero in zeros),
        ties=tuple(
            tuple(tuple(names[v] for v in positions(scope, len(names))) for scope in group) for group in ties
        ),
        shares_transitions=bool(ties) and content.truth("shares_transitions"),
        ordinal=tuple(_scores(one, domain) for one in content.items("ordinal"))
        if "ordinal" in content
        else (),
        levels=tuple(_level(one, domain) for one in content.items("levels")) if "levels" in content else (),
        **declared,
    )


def _scores(item: Any, domain: Domain) -> Scores:
    """Return the scores of an ordered variable."""
    place, values, is_smooth = item
    (variable,) = positions([place], len(domain.variables))
    return Scores(variable=domain.variables[variable], values=tuple(values), is_smooth=bool(is_smooth))


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


def query_content(query: Query, domain: Domain) -> dict[str, Any]:
    """Return a query as JSON values.

    Raises
    ------
    ReleaseFileError
        The query's class names no kind, so that its file could not be read.
    """
    # a class that inherits its kind would be read as its base class
    if "kind" not in vars(type(query)) or not QUERY_KINDS.holds(type(query)):
        raise ReleaseFileError(
            f"queries of the class {type(query).__name__} have no written form; give the class a `kind`, `_content` "
            "and `_restored`, as `bayesprivmrf.queries.Query` says"
        )
    return {"query": query.kind, **query._content(domain)}


def restored_query(content: Fields, domain: Domain) -> Query:
    """Return the query that `query_content` described."""
    kind = content.text("query")
    made = QUERY_KINDS.find(kind)
    if made is None:
        raise ReleaseFileError(
            f"no installed package brings its queries of the kind {kind!r}; install the package that made them, or "
            "import the module that defines the kind"
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


def details_content(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return public numbers about a release as JSON values; some of them may be NumPy scalars."""
    return plain({name: v.item() if isinstance(v, np.generic) else v for name, v in details.items()})
