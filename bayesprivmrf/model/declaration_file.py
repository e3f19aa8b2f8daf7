"""Models declared in TOML files: variables, states, recoding rules, cliques and structural zeros.

A model file is public. It may define how the values of a data file become states (`values`, `breaks`, `bins`,
`missing`, `other`). These rules are fixed before any data is read, and are stored as plain values. The function
`bayesprivmrf.records.recode` applies them.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesprivmrf.checks import nearest
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.domain import Domain, Label, label_key
from bayesprivmrf.model.specification import ModelSpecification, warn_of_dropped

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# Keys of the whole file
_FILE_KEYS = {"title", "variables", "cliques", "impossible"}
# Keys of a variable's table
_VARIABLE_KEYS = {"states", "values", "breaks", "bins", "missing", "other"}
# Limits of a file, so that a malicious file is refused within seconds; a declaration in Python has no limits
_MOST_STATES, _MOST_VARIABLES = 100_000, 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecodingRule:
    """Rule by which the values of a column become the states of a variable.

    Parameters
    ----------
    states
        The declared states, in order.
    targets
        The states to which `values` or `breaks` lead, in order: all states except those to which only `missing` or
        `other` leads.
    values
        Data values that stand for each target; None if the data contain the states themselves.
    breaks
        Right ends of all numeric bins except the last, increasing. Bin i is ``breaks[i-1] < x <= breaks[i]``; the
        first and the last bin are unbounded. None if the variable is not binned.
    missing
        The state of a missing value; with None, missing values are refused.
    other
        The state of a value that no rule covers; with None, such values are refused.
    """

    states: tuple[Label, ...]
    targets: tuple[Label, ...]
    values: tuple[tuple[Label, ...], ...] | None = None
    breaks: tuple[float, ...] | None = None
    missing: Label | None = None
    other: Label | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Declaration in a model file.

    Parameters
    ----------
    title
        One line about the population or the survey; empty if the file has none.
    specification
        Variables, states, cliques and structural zeros.
    rules
        Recoding rule of each variable.
    """

    title: str
    specification: ModelSpecification
    rules: Mapping[str, RecodingRule]

    @property
    def network(self) -> DiscreteMarkovNetwork:
        """The same declaration as a pgmpy network with unit factors."""
        return self.specification.to_pgmpy()


def read_declaration(path: str | Path) -> Declaration:
    """Read the declaration in a TOML file.

    Parameters
    ----------
    path
        A file with tables ``[variables.NAME]``, a list ``cliques``, and any number of tables ``[[impossible]]``. The
        table of a variable has the key `states`, at most one of `values`, `breaks` and `bins`, and optionally
        `missing` and `other`. The guide to the command line describes the file.

    Returns
    -------
    Declaration
        The model, the title and the recoding rules.

    Raises
    ------
    ModelError
        The file cannot be read, is not TOML, has an unknown key, or declares an inconsistent model. The message names
        the file and the place.

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
    except (OSError, ValueError) as error:  # a name that no file can have raises a ValueError
        reason = getattr(error, "strerror", error)
        raise ModelError(f"the model file {str(path)!r} cannot be read: {reason}.") from error
    except RecursionError:
        raise ModelError(
            f"the model file {name!r} must consist of tables of lists, but is nested more deeply."
        ) from None
    try:
        return declaration_of(content)
    except ModelError as error:
        raise ModelError(f"in the model file {name!r}: {error}") from error


def declaration_of(content: Mapping[str, Any]) -> Declaration:
    """Return the declaration in the tables of a model file."""
    _refuse_unknown(content, _FILE_KEYS, "the file")
    variables = content.get("variables")
    if not isinstance(variables, Mapping) or not variables:
        raise ModelError("at least one table [variables.NAME] is needed, got none.")
    if len(variables) > _MOST_VARIABLES:
        raise ModelError(
            f"a model file may have at most {_MOST_VARIABLES:,} variables, got {len(variables):,}; declare a larger "
            "model in Python."
        )
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
    """Return the recoding rule in the table of a variable."""
    where = f"[variables.{variable}]"
    if not isinstance(table, Mapping):
        raise ModelError(f"{where} must be a table with the key `states`, got {table!r}.")
    _refuse_unknown(table, _VARIABLE_KEYS, where)
    if "bins" in table:
        table = _written_out(where, table)
    states = table.get("states")
    if not isinstance(states, list) or not states:
        raise ModelError(f"{where} must list its `states`, got {states!r}; write states = ['no', 'yes'].")
    if len(states) > _MOST_STATES:
        raise ModelError(
            f"{where} may have at most {_MOST_STATES:,} `states`, got {len(states):,}; merge some, or declare the "
            "model in Python."
        )
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


def _written_out(where: str, table: Mapping[str, Any]) -> dict[str, Any]:
    r"""Return the table with `states` and `breaks` in place of `bins`, which are b bins of equal width (to - from)/b.

    The first bin includes all values below `from` and the last bin all values above `to`, so that every value has a
    bin. Breaks are exact multiples of the decimal width, rounded once. The states of `missing` and `other` follow
    those of the bins.
    """
    bins = table["bins"]
    if not isinstance(bins, Mapping) or bins.keys() != {"from", "to", "number"}:
        raise ModelError(f"`bins` of {where} must be {{ from = 0, to = 100, number = 20 }}, got {bins!r}.")
    if rivals := {"states", "values", "breaks"} & table.keys():
        raise ModelError(f"{where} must have `bins` or `{min(rivals)}`, not both.")
    number = bins["number"]
    if not (isinstance(number, int) and not isinstance(number, bool) and 2 <= number <= _MOST_STATES):
        raise ModelError(
            f"`number` of the `bins` of {where} must be from 2 to {_MOST_STATES:,}, got {number!r}."
        )
    start, stop = (_decimal(where, key, bins[key]) for key in ("from", "to"))
    if not start < stop:
        raise ModelError(
            f"`bins` of {where} must have `from` below `to`, got from {bins['from']!r} to {bins['to']!r}."
        )
    breaks = [float(start + (stop - start) * k / number) for k in range(1, number)]
    ends = [f"{end:.15g}" for end in breaks]
    if len(set(ends)) < len(ends):
        raise ModelError(f"the {number:,} `bins` of {where} are too narrow to be distinguished; take fewer.")
    between = [f"{left} to {right}" for left, right in itertools.pairwise(ends)]
    own = dict.fromkeys(table[key] for key in ("missing", "other") if _is_scalar(table.get(key)))
    return {**table, "states": [f"up to {ends[0]}", *between, f"above {ends[-1]}", *own], "breaks": breaks}


def _decimal(where: str, key: str, value: Any) -> Fraction:
    """Return a number exactly as the file writes it, so that 0.1 is a tenth."""
    # far below the largest float, so that differences and multiples are finite
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:
        raise ModelError(f"`{key}` of the `bins` of {where} must be a finite number, got {value!r}.")
    return Fraction(repr(value))


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
            if key in {"queries", "weights"}:
                raise ModelError(
                    f"{where} has the key {key!r}, which is an argument of mechanisms in Python and not part of a "
                    "model file; remove it, and call the mechanism in Python."
                )
            if key in _FILE_KEYS - known:
                raise ModelError(
                    f"{where} has the key {key!r}, which belongs to the whole file; put it above the first "
                    "[variables...] table."
                )
            hint = nearest(key, sorted(known))
            raise ModelError(
                f"{where} has the unknown key {key!r}; {hint and f'{hint} '}the known ones are {sorted(known)}."
            )
