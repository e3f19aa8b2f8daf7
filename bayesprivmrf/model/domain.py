"""Variables and their states, which are declared before any data is read."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import BayesPrivMRFError, ModelError

type Variable = Hashable
type Label = Hashable


def label_key(label: Any) -> tuple[bool, Any]:
    """Return a key that is equal for two labels if and only if they are the same state.

    In Python ``1 == 1.0 == True``. Here ``1`` and ``1.0`` are the same label, but ``True`` and ``1`` are different.

    Examples
    --------
    >>> label_key(1) == label_key(1.0), label_key(1) == label_key(True)
    (True, False)
    """
    return type(label).__name__ in {"bool", "bool_"}, label


def _is_missing(label: Any) -> bool:
    if label is None or type(label).__name__ in {"NAType", "NaTType"}:
        return True
    try:
        return bool(label != label)
    except (TypeError, ValueError, ArithmeticError):
        return False


def refuse_enums(what: str, label: Any) -> None:
    """Raise an error for a member of an enumeration, because a release file would have to name its class."""
    for one in label if isinstance(label, tuple) else (label,):
        if isinstance(one, enum.Enum):
            raise ModelError(
                f"{what} must not be members of an enumeration, got {type(one).__name__}.{one.name}; declare its "
                "`.name`, and write that in the data."
            )
        if isinstance(one, tuple):
            refuse_enums(what, one)


def _refuse_collisions(labels: Sequence[Any], what: str, owner: str) -> None:
    """Raise an error if two labels are equal or have the same text, which files and diagnostics use."""
    seen: dict[tuple[bool, Any], Any] = {}
    printed: dict[str, Any] = {}
    for label in labels:
        key, text = label_key(label), str(label)
        if key in seen:
            raise ModelError(
                f"{owner} must not repeat a {what}, got {seen[key]!r} and {label!r}, which are the same; declare it "
                "once."
            )
        if text in printed:
            raise ModelError(
                f"{owner} must have distinct {what}s when printed, got {printed[text]!r} and {label!r}, "
                f"which both print as {text!r}; rename one."
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
        if len(self.variables) != len(self.states):
            raise ModelError(
                f"`states` must hold one sequence for each of the {len(self.variables)} variables, "
                f"got {len(self.states)}."
            )
        for variable in self.variables:
            _hashable("the names of variables", variable)
        _refuse_collisions(self.variables, "name", "the variables")
        states = [
            tuple(listed(f"the states of {v!r}", s)) for v, s in zip(self.variables, self.states, strict=True)
        ]
        object.__setattr__(self, "states", tuple(states))
        for variable, labels in zip(self.variables, self.states, strict=True):
            if len(labels) == 0:
                raise ModelError(f"variable {variable!r} must have at least one state, got none.")
            for label in labels:
                _hashable(f"the states of {variable!r}", label)
                if _is_missing(label):
                    raise ModelError(
                        f"the states of {variable!r} must not include a missing value, got {label!r}; declare "
                        "a label such as 'missing' and name it in the mechanism's `missing=`."
                    )
            _refuse_collisions(labels, "state", f"the states of {variable!r}")

    @classmethod
    def from_states(cls, states: Mapping[Variable, Iterable[Label]]) -> Domain:
        """Return the domain of a mapping from each variable to its ordered states."""
        instance_of("states", states, Mapping, "be a mapping from variable to its states", error=ModelError)
        ordered: list[tuple[Label, ...]] = []
        for variable, labels in states.items():
            if isinstance(labels, AbstractSet):
                raise ModelError(
                    f"the states of {variable!r} must be ordered, got a set; write a list or a tuple."
                )
            ordered.append(tuple(_plain(label) for label in listed(f"the states of {variable!r}", labels)))
        return cls(variables=tuple(states), states=tuple(ordered))

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of states of each variable."""
        return tuple(len(labels) for labels in self.states)

    @cached_property
    def _positions(self) -> dict[tuple[bool, Variable], int]:
        return {label_key(variable): position for position, variable in enumerate(self.variables)}

    @cached_property
    def _codes(self) -> tuple[dict[tuple[bool, Label], int], ...]:
        return tuple({label_key(label): code for code, label in enumerate(labels)} for labels in self.states)

    def __contains__(self, variable: object) -> bool:
        try:
            return label_key(variable) in self._positions
        except TypeError:
            return False

    def index(self, variable: Variable) -> int:
        """Return the position of a variable; a ModelError if it is not declared."""
        if variable not in self:
            raise ModelError(
                f"variable {variable!r} is not declared; the declared variables are "
                f"{', '.join(map(repr, self.variables))}."
            )
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
            return codes[label_key(_plain(label))]
        except (KeyError, TypeError):
            # only a single value is shown, because anything else may be a column of records
            shown = (
                repr(label) if isinstance(label, str | bytes | bool | int | float) else type(label).__name__
            )
            raise ModelError(
                f"variable {variable!r} has no state {shown}; its declared states are "
                f"{', '.join(map(repr, self.states_of(variable)))}."
            ) from None


def listed(
    what: str, values: Any, remedy: str = "write a list", error: type[BayesPrivMRFError] = ModelError
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
    is_one = isinstance(variables, str) or variables in domain or not isinstance(variables, Iterable)
    names = [variables] if is_one else listed("`variables`", variables)
    require(names, "variables", "name at least one variable", "none", error=ModelError)
    positions = [domain.index(v) for v in names]
    is_once = len(set(positions)) == len(positions)
    require(is_once, "variables", "name each variable once", names, error=ModelError)
    return positions


def checked_domain(domain: Any) -> Domain:
    """Return a value if it is a `Domain`; otherwise raise a ModelError."""
    instance_of("domain", domain, Domain, "be a Domain", "see Domain.from_states", error=ModelError)
    return domain


def _plain(label: Any) -> Any:
    """Return a label, with the Python or pandas scalar in place of a NumPy scalar."""
    is_scalar = type(label).__module__ == "numpy" and getattr(label, "ndim", None) == 0
    if not is_scalar:
        return label
    plain = label.item()
    if label.dtype.kind in "mM" and isinstance(
        plain, int
    ):  # nanoseconds, which Python's times cannot represent
        import pandas as pd

        return pd.Timestamp(label) if label.dtype.kind == "M" else pd.Timedelta(label)
    return plain


def _hashable(what: str, label: Any) -> None:
    try:
        hash(label)
    except TypeError:
        raise ModelError(
            f"{what} must be hashable, got a {type(label).__name__}; use a tuple or a string."
        ) from None
    refuse_enums(what, label)
