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
from bayesprivmrf.model.domain import Domain, Label, label_key, require_fit
from bayesprivmrf.model.specification import ModelSpecification, warn_of_dropped

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# Keys of the whole file
_FILE_KEYS = {"title", "variables", "cliques", "impossible"}
# Keys of a variable's table
_VARIABLE_KEYS = {"states", "values", "breaks", "bins", "missing", "other"}
# Limits of a file, so that a malicious file is refused within seconds; a declaration in Python has no limits
_MOST_STATES = 100_000
_MOST_VARIABLES = 20_000
# Size of numbers far below the largest float, so that differences and multiples are finite
_LARGEST_NUMBER = 1e300


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
        """Declared model as a pgmpy network with unit factors."""
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
        what = f"the model file {name!r} must consist of tables of lists"
        raise ModelError(f"{what}, but is nested more deeply.") from None
    try:
        return declaration_of(content)
    except ModelError as error:
        raise ModelError(f"in the model file {name!r}: {error}") from error


def declaration_of(content: Mapping[str, Any]) -> Declaration:
    """Return the declaration in the tables of a model file."""
    _refuse_unknown(content, _FILE_KEYS, "the file")
    variables: Any = content.get("variables")
    cliques = content.get("cliques")
    is_there = isinstance(variables, Mapping) and variables
    require_fit(is_there, "a model file", "have at least one table [variables.NAME]", "none")
    must = f"have at most {_MOST_VARIABLES:,} variables"
    remedy = "declare a larger model in Python"
    require_fit(len(variables) <= _MOST_VARIABLES, "a model file", must, len(variables), remedy)
    rules = {variable: _rule(variable, table) for variable, table in variables.items()}
    domain = Domain.from_states({variable: rule.states for variable, rule in rules.items()})
    is_list = cliques is None or isinstance(cliques, list)
    require_fit(is_list, "cliques", "be a list of lists of variable names", cliques)
    zeros = content.get("impossible", [])
    are_tables = isinstance(zeros, list) and all(isinstance(zero, Mapping) for zero in zeros)
    require_fit(
        are_tables, "impossible", "be tables [[impossible]] of the form variable = state", zeros
    )
    specification = ModelSpecification(
        domain=domain,
        cliques=tuple((v,) for v in domain.variables) if cliques is None else tuple(cliques),
        impossible=tuple(tuple(zero.items()) for zero in zeros),
        cliques_declared=cliques is not None,
    )
    warn_of_dropped(specification, cliques or ())
    return Declaration(
        title=str(content.get("title", "")), specification=specification, rules=rules
    )


def _rule(variable: str, table: Any) -> RecodingRule:
    """Return the recoding rule in the table of a variable."""
    where = f"the table [variables.{variable}]"
    require_fit(isinstance(table, Mapping), where, "be a table with the key `states`", table)
    _refuse_unknown(table, _VARIABLE_KEYS, where)
    if "bins" in table:
        table = _written_out(where, table)
    states = table.get("states")
    is_list = isinstance(states, list) and states
    require_fit(is_list, where, "list its `states`", states, "write states = ['no', 'yes']")
    must = f"have at most {_MOST_STATES:,} `states`"
    remedy = "merge some, or declare the model in Python"
    require_fit(len(states) <= _MOST_STATES, where, must, f"{len(states):,}", remedy)
    are_plain = all(isinstance(label, str | int | float | bool) for label in states)
    require_fit(
        are_plain, f"the `states` of {where}", "be text, numbers or true and false", "others"
    )
    declared = {label_key(label) for label in states}
    catch_all = set()
    for key in sorted({"missing", "other"} & table.keys()):
        is_state = _is_scalar(table[key]) and label_key(table[key]) in declared
        require_fit(
            is_state,
            f"`{key}` of {where}",
            "be one of its states",
            table[key],
            "add it to `states`",
        )
        catch_all.add(label_key(table[key]))
    is_mapped = "values" in table or "breaks" in table
    is_one = not ("values" in table and "breaks" in table)
    require_fit(is_one, where, "have `values` or `breaks`", "both")
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
    what = f"`bins` of {where}"
    is_whole = isinstance(bins, Mapping) and bins.keys() == {"from", "to", "number"}
    require_fit(is_whole, what, "be { from = 0, to = 100, number = 20 }", bins)
    rivals = sorted({"states", "values", "breaks"} & table.keys())
    require_fit(not rivals, where, f"have `bins` or `{', '.join(rivals)}`", "both")
    number = bins["number"]
    is_count = (
        isinstance(number, int) and not isinstance(number, bool) and 2 <= number <= _MOST_STATES
    )
    require_fit(is_count, f"`number` of the {what}", f"be from 2 to {_MOST_STATES:,}", number)
    limits = []
    for key in ("from", "to"):
        is_number = _is_number(bins[key]) and abs(bins[key]) < _LARGEST_NUMBER
        require_fit(is_number, f"`{key}` of the {what}", "be a finite number", bins[key])
        # exactly as the file writes it, so that 0.1 is a tenth
        limits.append(Fraction(repr(bins[key])))
    start, stop = limits
    require_fit(
        start < stop, what, "have `from` below `to`", f"from {bins['from']!r} to {bins['to']!r}"
    )
    breaks = [float(start + (stop - start) * k / number) for k in range(1, number)]
    ends = [f"{end:.15g}" for end in breaks]
    is_wide = len(set(ends)) == len(ends)
    require_fit(
        is_wide, what, "be wide enough to be distinguished", f"{number:,} bins", "take fewer"
    )
    between = [f"{left} to {right}" for left, right in itertools.pairwise(ends)]
    own = dict.fromkeys(table[key] for key in ("missing", "other") if _is_scalar(table.get(key)))
    return {
        **table,
        "states": [f"up to {ends[0]}", *between, f"above {ends[-1]}", *own],
        "breaks": breaks,
    }


def _values(where: str, values: Any, number: int) -> tuple[tuple[Label, ...], ...]:
    what = f"`values` of {where}"
    if isinstance(values, list):
        got = len(values)
    else:
        got = values
    must = f"hold one entry for each of its {number} states (those of `missing` and `other` not counted)"
    require_fit(isinstance(values, list) and len(values) == number, what, must, got)
    groups = tuple(tuple(value) if isinstance(value, list) else (value,) for value in values)
    seen: set[tuple[bool, Any]] = set()
    for value in itertools.chain.from_iterable(groups):
        require_fit(_is_scalar(value), what, "be text, numbers or true and false", value)
        require_fit(label_key(value) not in seen, what, "name each value once", f"{value!r} twice")
        seen.add(label_key(value))
    return groups


def _breaks(where: str, breaks: Any, number: int) -> tuple[float, ...]:
    what = f"`breaks` of {where}"
    are_numbers = isinstance(breaks, list) and all(
        _is_number(b) and math.isfinite(b) for b in breaks
    )
    require_fit(are_numbers, what, "be a list of finite numbers", breaks)
    must = f"hold one number fewer than its {number} states (those of `missing` and `other` not counted)"
    require_fit(len(breaks) + 1 == number, what, must, len(breaks))
    increases = all(left < right for left, right in itertools.pairwise(breaks))
    require_fit(increases, what, "increase", breaks)
    return tuple(float(b) for b in breaks)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool) and value == value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse_unknown(table: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in sorted(table.keys() - known):
        what = f"{where} has the key {key!r}, which"
        if key in {"queries", "weights"}:
            remedy = "remove it, and call the mechanism in Python"
            raise ModelError(
                f"{what} is an argument of mechanisms and not part of a model file; {remedy}."
            )
        if key in _FILE_KEYS:
            raise ModelError(
                f"{what} belongs to the file; put it above the first [variables...] table."
            )
        hint = nearest(key, sorted(known))
        raise ModelError(
            f"{what} is unknown; {hint and f'{hint} '}the known ones are {sorted(known)}."
        )
