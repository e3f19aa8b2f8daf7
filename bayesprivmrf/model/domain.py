"""Declared variables and their states, and states of variables that an answer is conditional on."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import BayesPrivMRFError, ModelError

type Variable = Hashable
type Label = Hashable

# Times whose equality with those of Python and pandas depends on their unit
_NUMPY_TIMES = (np.datetime64, np.timedelta64)

# `checks.require` for declared models
require_fit = partial(require, error=ModelError)


def label_key(label: Any) -> tuple[bool, Any]:
    """Return a key that is equal for two labels if and only if they are the same state.

    In Python ``1 == 1.0 == True``. Here ``1`` and ``1.0`` are the same label, but ``True`` and ``1`` are different.

    Examples
    --------
    >>> label_key(1) == label_key(1.0), label_key(1) == label_key(True)
    (True, False)
    """
    if isinstance(label, _NUMPY_TIMES):
        label = plain_label(label)
    return type(label).__name__ in {"bool", "bool_"}, label


def other_form(label: Any) -> Any:
    """Return midnight of a date, or the date of a midnight without a time zone; None for another label.

    Data frames store the days of an array of ``datetime64`` as dates or as times, depending on the engine.

    Examples
    --------
    >>> other_form(datetime.date(2020, 2, 29))
    datetime.datetime(2020, 2, 29, 0, 0)
    >>> other_form(datetime.datetime(2020, 2, 29, 12))
    """
    if not isinstance(label, datetime.date) or getattr(label, "tzinfo", None) is not None:
        return None
    if not datetime.MINYEAR <= label.year <= datetime.MAXYEAR:  # times of pandas go further
        return None
    midnight = datetime.datetime(label.year, label.month, label.day)
    if not isinstance(label, datetime.datetime):
        return midnight
    if label == midnight:
        return midnight.date()
    return None


def codes_by_key(states: Sequence[Any]) -> dict[tuple[bool, Any], int]:
    """Return the code of each state by `label_key`; a day is also found in its other form, unless that is a state."""
    codes = {label_key(state): code for code, state in enumerate(states)}
    for code, state in enumerate(states):
        other = other_form(state)
        if other is not None:
            codes.setdefault(label_key(other), code)
    return codes


def is_missing(label: Any) -> bool:
    """Return True if a label stands for missing values: None, NaN, or a missing value of pandas."""
    if label is None or type(label).__name__ in {"NAType", "NaTType"}:
        return True
    try:
        return bool(label != label)
    except (TypeError, ValueError, ArithmeticError):
        return False


def refuse_unwritten(what: str, label: Any) -> None:
    """Raise an error for a label that a release file could not restore.

    A file would have to name the class of a member of an enumeration. Values that only NumPy has, such as numbers of
    extended precision and spans of months, are lost in most data frames too.
    """
    for one in label if isinstance(label, tuple) else (label,):
        seen = str(one)
        remedy = "declare its `.name`, and write that in the data"
        require_fit(
            not isinstance(one, enum.Enum), what, "not be members of an enumeration", seen, remedy
        )
        seen = f"a {type(one).__name__}"
        remedy = "convert it to a float or to text, and write that in the data"
        must = "not be values that Python has no type for"
        require_fit(not isinstance(plain_label(one), np.generic), what, must, seen, remedy)
        if isinstance(one, tuple):
            refuse_unwritten(what, one)


def _refuse_collisions(labels: Sequence[Any], what: str, owner: str) -> None:
    """Raise an error if two labels are equal or have the same text, which files and diagnostics use."""
    seen: dict[tuple[bool, Any], Any] = {}
    printed: dict[str, Any] = {}
    for label in labels:
        key = label_key(label)
        text = str(label)
        pair = f"{seen.get(key, printed.get(text))!r} and {label!r}"
        same = f"{pair}, which are the same"
        require_fit(key not in seen, owner, f"not repeat a {what}", same, "declare it once")
        clash = f"{pair}, which both print as {text!r}"
        require_fit(
            text not in printed, owner, f"have distinct {what}s when printed", clash, "rename one"
        )
        seen[key] = printed[text] = label


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Variables of a model and their states, in declared order.

    The order of variables and states is never changed. The state that is declared first has code 0.

    Parameters
    ----------
    variables
        Names of the variables: any hashable values, such as text or integers (including 0).
    states
        States of each variable, in order: at least one hashable value, none repeated, and none missing (``None`` or
        NaN).

    Raises
    ------
    ModelError
        Names or states are repeated, have the same text, are missing, or are not hashable.

    Examples
    --------
    >>> domain = Domain.from_states({"smokes": ["no", "yes"], 0: [30, 10, 20]})
    >>> domain.cardinalities
    (2, 3)
    >>> domain.code(0, 10.0)
    1
    """

    variables: tuple[Variable, ...]
    states: tuple[tuple[Label, ...], ...]

    def __post_init__(self) -> None:
        for name in ("variables", "states"):
            object.__setattr__(self, name, tuple(listed(f"`{name}`", getattr(self, name))))
        count = len(self.variables)
        must = "hold one sequence for each of the"
        require_fit(
            len(self.states) == count, "states", f"{must} {count} variables", len(self.states)
        )
        for variable in self.variables:
            require_name("the names of variables", variable)
            refuse_unwritten("the names of variables", variable)
        _refuse_collisions(self.variables, "name", "the variables")
        states = [
            tuple(listed(f"the states of {v!r}", s))
            for v, s in zip(self.variables, self.states, strict=True)
        ]
        object.__setattr__(self, "states", tuple(states))
        for variable, labels in zip(self.variables, self.states, strict=True):
            require_fit(labels, f"variable {variable!r}", "have at least one state", "none")
            what = f"the states of {variable!r}"
            for label in labels:
                require_hashable(what, label)
                refuse_unwritten(what, label)
                must = "not include a missing value"
                remedy = (
                    "declare a label such as 'missing' and name it in the mechanism's `missing=`"
                )
                require_fit(not is_missing(label), what, must, label, remedy)
            _refuse_collisions(labels, "state", f"the states of {variable!r}")

    @classmethod
    def from_states(cls, states: Mapping[Variable, Iterable[Label]]) -> Domain:
        """Return the domain of a mapping from each variable to its ordered states."""
        instance_of(
            "states", states, Mapping, "be a mapping from variable to its states", error=ModelError
        )
        ordered: list[tuple[Label, ...]] = []
        for variable, labels in states.items():
            what = f"the states of {variable!r}"
            is_set = isinstance(labels, AbstractSet)
            require_fit(not is_set, what, "be ordered", "a set", "write a list or a tuple")
            ordered.append(tuple(map(plain_label, listed(what, labels))))
        return cls(variables=tuple(states), states=tuple(ordered))

    @cached_property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of states of each variable."""
        return tuple(len(labels) for labels in self.states)

    @cached_property
    def _positions(self) -> dict[tuple[bool, Variable], int]:
        return {label_key(variable): position for position, variable in enumerate(self.variables)}

    @cached_property
    def _codes(self) -> tuple[dict[tuple[bool, Label], int], ...]:
        return tuple(map(codes_by_key, self.states))

    def __contains__(self, variable: object) -> bool:
        try:
            return label_key(variable) in self._positions
        except TypeError:
            return False

    def index(self, variable: Variable) -> int:
        """Return the position of a variable; a ModelError if it is not declared."""
        if variable not in self:
            known = f"the declared variables are {', '.join(map(repr, self.variables))}"
            raise ModelError(f"variable {variable!r} is not declared; {known}.")
        return self._positions[label_key(variable)]

    def states_of(self, variable: Variable) -> tuple[Label, ...]:
        """Return the states of a variable, in declared order."""
        return self.states[self.index(variable)]

    def codes_of(self, variable: Variable) -> Mapping[tuple[bool, Label], int]:
        """Return the code of each state of a variable, keyed by `label_key`."""
        return self._codes[self.index(variable)]

    def code(self, variable: Variable, label: Label) -> int:
        """Return the code (0, 1, ...) of a variable's state; a ModelError if it is not declared."""
        codes = self.codes_of(variable)
        try:
            return codes[label_key(plain_label(label))]
        except (KeyError, TypeError):
            # only a single value is shown, because anything else may be a column of records
            is_one = isinstance(label, str | bytes | bool | int | float)
            known = f"its declared states are {', '.join(map(repr, self.states_of(variable)))}"
            if is_one:
                shown = repr(label)
            else:
                shown = type(label).__name__
            raise ModelError(f"variable {variable!r} has no state {shown}; {known}.") from None


def listed(
    what: str,
    values: Any,
    remedy: str = "write a list",
    error: type[BayesPrivMRFError] = ModelError,
) -> list[Any]:
    """Return the items of a sequence as a list; text and arrays without axes are refused."""
    try:
        if not isinstance(values, str | bytes):
            return list(values)
    except TypeError:
        pass
    raise error(f"{what} must be a sequence, got {values!r}; {remedy}.")


def asked_positions(domain: Domain, variables: Any) -> list[int]:
    """Return the positions of one variable or of several; a ModelError if there is none or one is repeated."""
    is_one = (
        isinstance(variables, str) or variables in domain or not isinstance(variables, Iterable)
    )
    if is_one:
        names = [variables]
    else:
        names = listed("`variables`", variables)
    require_fit(names, "variables", "name at least one variable", "none")
    positions = [domain.index(v) for v in names]
    require_fit(
        len(set(positions)) == len(positions), "variables", "name each variable once", names
    )
    return positions


def checked_domain(domain: Any) -> Domain:
    """Return a value if it is a `Domain`; otherwise raise a ModelError."""
    instance_of("domain", domain, Domain, "be a Domain", "see Domain.from_states", error=ModelError)
    return domain


def plain_label(label: Any) -> Any:
    """Return a label, with the Python or pandas scalar in place of a NumPy scalar."""
    is_scalar = type(label).__module__ == "numpy" and getattr(label, "ndim", None) == 0
    if not is_scalar:
        return label
    plain = label.item()
    # nanoseconds, which Python's times cannot represent
    if label.dtype.kind in "mM" and isinstance(plain, int):
        import pandas as pd

        if label.dtype.kind == "M":
            kind = pd.Timestamp
        else:
            kind = pd.Timedelta
        try:
            return kind(label)
        except ValueError:  # months and years have no length, and other times are too far away
            return label
    return plain


def require_hashable(what: str, label: Any, error: type[BayesPrivMRFError] = ModelError) -> None:
    """Raise an error unless a name or a label is hashable."""
    try:
        hash(label)
    except TypeError:
        seen = f"a {type(label).__name__}"
        raise error(f"{what} must be hashable, got {seen}; use a tuple or a string.") from None


def require_name(what: str, name: Any, error: type[BayesPrivMRFError] = ModelError) -> None:
    """Raise an error unless a variable or a column has a name that can be written again.

    It is hashable and not missing. Functions, classes and results are equal to themselves alone, so that nothing
    could be named by them again.
    """
    require_hashable(what, name, error)
    is_value = type(name).__eq__ is not object.__eq__ or isinstance(name, enum.Enum)
    seen = f"a {type(name).__name__}"
    must = "be a value that equals a copy of itself"
    require(is_value or is_missing(name), what, must, seen, "use a tuple or a string", error=error)
    require(
        not is_missing(name), what, "not be a missing value", str(name), "use text", error=error
    )


type Given = Mapping[Variable, Label | Collection[Label]]
"""A state, or a set of states, for each variable that an answer is conditional on."""

type Condition = Mapping[int, tuple[int, ...]]
"""Codes of the possible states of each variable in a condition, by the position of the variable."""


def coded_states(domain: Domain, name: str, states: Any) -> dict[int, int]:
    """Return the code of each variable's state by the position of the variable.

    Parameters
    ----------
    domain
        Variables and states.
    name
        The name of the argument.
    states
        ``{variable: state}``, as declared.

    Raises
    ------
    ArgumentError
        The argument is not a mapping.
    ModelError
        A variable or a state is not declared.

    Examples
    --------
    >>> coded_states(Domain.from_states({"a": ["x", "y"], 0: [2, 1]}), "given", {0: 1, "a": "x"})
    {1: 1, 0: 0}
    """
    instance_of(name, states, Mapping, "map variables to states", "write {variable: state}")
    return {domain.index(v): domain.code(v, label) for v, label in states.items()}


def conditions(domain: Domain, given: Given | None, asked: Sequence[int]) -> Condition:
    """Return the states that are given, as codes by the position of the variable.

    Parameters
    ----------
    domain
        Variables and states.
    given
        A state or a set of states for each variable. A set, a list or a tuple that is not itself a declared state
        means that the variable is in one of its states.
    asked
        Positions of the variables that were asked for, which cannot be given as well.

    Raises
    ------
    ArgumentError
        `given` is not a mapping.
    ModelError
        A variable or a state is not declared, a set is empty, or a variable was asked for.

    Examples
    --------
    >>> domain = Domain.from_states({"a": ["x", "y", "z"], "b": [("t", 1), ("t", 2)]})
    >>> conditions(domain, {"a": {"z", "x"}, "b": ("t", 2)}, [])
    {0: (0, 2), 1: (1,)}
    """
    if given is None:
        return {}
    instance_of("given", given, Mapping, "map variables to states", "write {variable: state}")
    coded = {domain.index(v): _codes(domain, v, states) for v, states in given.items()}
    for position in coded:
        must = "name other variables than those asked for"
        seen = f"{domain.variables[position]!r} in both"
        require_fit(position not in asked, "given", must, seen)
    return coded


def _codes(domain: Domain, variable: Variable, states: Any) -> tuple[int, ...]:
    """Return the code of a state, or the codes of a set of states in ascending order."""
    try:
        return (domain.code(variable, states),)
    except ModelError:
        if not isinstance(states, AbstractSet | list | tuple):
            raise
    require_fit(states, "given", f"name at least one state of {variable!r}", "an empty set")
    return tuple(sorted({domain.code(variable, label) for label in states}))


class ImpossibleGivenError(ModelError):
    """The given states have probability 0, so that nothing is conditional on them."""


def given_error(
    domain: Domain, given: Condition, where: str = "this model"
) -> ImpossibleGivenError:
    """Return the error for given states that cannot occur together."""
    labels = {
        domain.variables[v]: [domain.states[v][code] for code in codes]
        for v, codes in given.items()
    }
    states = {variable: own[0] if len(own) == 1 else own for variable, own in labels.items()}
    return ImpossibleGivenError(
        f"`given` must be able to occur, got {states!r}, which has probability 0 in {where}; give other states."
    )


def share_given(table: np.ndarray, asked: int, given: Condition) -> np.ndarray | None:
    """Return the shares of the asked variables' states among records in the given states; None if there are none.

    Parameters
    ----------
    table
        Shape (..., asked variables, given variables).
    asked
        Number of the asked variables.
    given
        States of the given variables, in the order of the last axes.
    """
    shares = shares_where_some(table, asked, given)
    if np.isnan(shares).any():
        return None
    return shares


def shares_where_some(table: np.ndarray, asked: int, given: Condition) -> np.ndarray:
    """Return the shares of the asked variables' states among records in the given states; NaN if there are none.

    The parameters are those of `share_given`.
    """
    if not given:
        return table
    chosen = table
    # the last axis first, so that the others keep their place
    for codes in reversed(tuple(given.values())):
        chosen = sum((chosen[..., code] for code in codes[1:]), start=chosen[..., codes[0]])
    mass = chosen.sum(axis=tuple(range(-asked, 0)), keepdims=True)
    return np.divide(chosen, mass, out=np.full(chosen.shape, np.nan), where=mass > 0)
