"""A model declared in a TOML file: variables, states, the public recoding rules, and cliques.

The file is public knowledge. It may say how values of a data file become states (`values`, `breaks`,
`missing`, `other`); those rules are fixed before any data is read and are kept here as plain values.
`bayesprivmrf.records` applies them.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.domain import Domain, Label, label_key
from bayesprivmrf.model.specification import ModelSpecification, warn_of_dropped

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

__all__ = ["Declaration", "RecodingRule", "read_declaration"]

_FILE_KEYS = {"title", "variables", "cliques", "impossible"}
_VARIABLE_KEYS = {"states", "values", "breaks", "missing", "other"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecodingRule:
    """How the values of one column become the states of one variable.

    Parameters
    ----------
    states
        The declared states, in order.
    targets
        The states that `values` or `breaks` lead to, in order: all but those that only `missing` or `other`
        lead to.
    values
        Data values that mean each target; None where the data hold the states themselves.
    breaks
        Right ends of all numeric bins but the last, increasing: bin i is ``breaks[i-1] < x <= breaks[i]``, the
        first and the last are unbounded. None where the variable is not binned.
    missing
        The state of a missing value; None refuses one.
    other
        The state of a value that no rule covers; None refuses one.
    """

    states: tuple[Label, ...]
    targets: tuple[Label, ...]
    values: tuple[tuple[Label, ...], ...] | None = None
    breaks: tuple[float, ...] | None = None
    missing: Label | None = None
    other: Label | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What a model file declares.

    Parameters
    ----------
    title
        One line about the population or the survey; empty where the file has none.
    specification
        Variables, states, cliques and structural zeros.
    rules
        Rule of each variable: how data values become its states.
    """

    title: str
    specification: ModelSpecification
    rules: Mapping[str, RecodingRule]

    @property
    def network(self) -> DiscreteMarkovNetwork:
        """The same declaration as a pgmpy network with unit factors."""
        return self.specification.to_pgmpy()


def read_declaration(path: str | Path) -> Declaration:
    """Declaration that a TOML file holds.

    Parameters
    ----------
    path
        A file with tables ``[variables.NAME]`` (keys `states`, and at most one of `values` and `breaks`,
        besides `missing` and `other`), a list ``cliques``, and any number of ``[[impossible]]`` tables. The
        command-line guide describes it.

    Raises
    ------
    ModelError
        The file cannot be read, is not TOML, has an unknown key, or declares something inconsistent; the
        message names the file and the place.

    Examples
    --------
    >>> from importlib.resources import files
    >>> declaration = read_declaration(files("bayesprivmrf") / "data" / "fair_survey.toml")
    >>> len(declaration.specification.domain.variables), len(declaration.specification.cliques)
    (9, 9)
    """
    name = Path(str(path)).name
    try:
        content = tomllib.loads(Path(str(path)).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"the model file {name!r} is not TOML: {error}.") from error
    except (OSError, ValueError) as error:  # a ValueError is a name that no file can have
        reason = getattr(error, "strerror", error)
        raise ModelError(f"the model file {str(path)!r} cannot be read: {reason}.") from error
    except RecursionError:
        raise ModelError(
            f"the model file {name!r} is nested too deeply; it must be tables of lists."
        ) from None
    try:
        return _declaration(content)
    except ModelError as error:
        raise ModelError(f"in the model file {name!r}: {error}") from error


def _declaration(content: Mapping[str, Any]) -> Declaration:
    _refuse_unknown(content, _FILE_KEYS, "the file")
    variables = content.get("variables")
    if not isinstance(variables, Mapping) or not variables:
        raise ModelError("at least one table [variables.NAME] is needed, got none.")
    rules = {variable: _rule(variable, table) for variable, table in variables.items()}
    domain = Domain.from_states({variable: rule.states for variable, rule in rules.items()})
    cliques = content.get("cliques")
    if cliques is not None and not isinstance(cliques, list):
        raise ModelError(f"`cliques` must be a list of lists of variable names, got {cliques!r}.")
    impossible = content.get("impossible", [])
    if not (isinstance(impossible, list) and all(isinstance(zero, Mapping) for zero in impossible)):
        raise ModelError("`impossible` must be tables [[impossible]] of the form variable = state.")
    specification = ModelSpecification(
        domain=domain,
        cliques=tuple((v,) for v in domain.variables) if cliques is None else tuple(cliques),
        impossible=tuple(tuple(zero.items()) for zero in impossible),
        cliques_declared=cliques is not None,
    )
    warn_of_dropped(specification, cliques or (), stacklevel=3)
    return Declaration(title=str(content.get("title", "")), specification=specification, rules=rules)


def _rule(variable: str, table: Any) -> RecodingRule:
    where = f"[variables.{variable}]"
    if not isinstance(table, Mapping):
        raise ModelError(f"{where} must be a table with the key `states`, got {table!r}.")
    _refuse_unknown(table, _VARIABLE_KEYS, where)
    states = table.get("states")
    if not isinstance(states, list) or not states:
        raise ModelError(f"{where} must list its `states`, got {states!r}; write states = ['no', 'yes'].")
    if any(not isinstance(label, str | int | float | bool) for label in states):
        raise ModelError(f"the `states` of {where} must be text, numbers or true and false.")
    declared = {label_key(label) for label in states}
    for key in ("missing", "other"):
        if key in table and not (_is_scalar(table[key]) and label_key(table[key]) in declared):
            raise ModelError(
                f"`{key}` of {where} must be one of its states, got {table[key]!r}; add it to `states`."
            )
    if "values" in table and "breaks" in table:
        raise ModelError(f"{where} must have `values` or `breaks`, not both.")
    catch_all = {label_key(table[key]) for key in ("missing", "other") if key in table}
    is_mapped = "values" in table or "breaks" in table
    targets = tuple(label for label in states if not (is_mapped and label_key(label) in catch_all))
    return RecodingRule(
        states=tuple(states),
        targets=targets,
        values=_values(where, table["values"], len(targets)) if "values" in table else None,
        breaks=_breaks(where, table["breaks"], len(targets)) if "breaks" in table else None,
        missing=table.get("missing"),
        other=table.get("other"),
    )


def _values(where: str, values: Any, number: int) -> tuple[tuple[Label, ...], ...]:
    if not isinstance(values, list) or len(values) != number:
        got = len(values) if isinstance(values, list) else values
        raise ModelError(
            f"`values` of {where} must hold one entry for each of its {number} states (those of `missing` and "
            f"`other` not counted), got {got!r}."
        )
    groups = tuple(tuple(value) if isinstance(value, list) else (value,) for value in values)
    seen: set[tuple[bool, Any]] = set()
    for value in (value for group in groups for value in group):
        if not _is_scalar(value):
            raise ModelError(f"`values` of {where} must be text, numbers or true and false, got {value!r}.")
        if label_key(value) in seen:
            raise ModelError(f"`values` of {where} must name each value once, got {value!r} twice.")
        seen.add(label_key(value))
    return groups


def _breaks(where: str, breaks: Any, number: int) -> tuple[float, ...]:
    if not isinstance(breaks, list) or not all(
        isinstance(b, int | float) and not isinstance(b, bool) and math.isfinite(b) for b in breaks
    ):
        raise ModelError(f"`breaks` of {where} must be a list of finite numbers, got {breaks!r}.")
    if len(breaks) + 1 != number:
        raise ModelError(
            f"`breaks` of {where} must hold one number fewer than its {number} states (those of `missing` and "
            f"`other` not counted), got {len(breaks)}."
        )
    if any(not left < right for left, right in itertools.pairwise(breaks)):
        raise ModelError(f"`breaks` of {where} must increase, got {breaks!r}.")
    return tuple(float(b) for b in breaks)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool) and value == value


def _refuse_unknown(table: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ModelError(f"{where} has the unknown key {key!r}; the known ones are {sorted(known)}.")
