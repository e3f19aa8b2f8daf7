"""States of variables that an answer is conditional on, as variable positions and codes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.domain import Domain, Label, Variable
from bayesprivmrf.model.tables import FloatArray

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
        if position in asked:
            raise ModelError(
                f"`given` must name other variables than those asked for, got {domain.variables[position]!r} in both."
            )
    return coded


def _codes(domain: Domain, variable: Variable, states: Any) -> tuple[int, ...]:
    """Return the code of a state, or the codes of a set of states in ascending order."""
    try:
        return (domain.code(variable, states),)
    except ModelError:
        if not isinstance(states, AbstractSet | list | tuple):
            raise
    require(states, "given", f"name at least one state of {variable!r}", "an empty set", error=ModelError)
    return tuple(sorted({domain.code(variable, label) for label in states}))


def given_error(domain: Domain, given: Condition, where: str = "this model") -> ModelError:
    """Return the error for given states that cannot occur together."""
    labels = {domain.variables[v]: [domain.states[v][code] for code in codes] for v, codes in given.items()}
    states = {variable: own[0] if len(own) == 1 else own for variable, own in labels.items()}
    return ModelError(
        f"`given` must be able to occur, got {states!r}, which has probability 0 in {where}; give other states."
    )


def share_given(table: FloatArray, asked: int, given: Condition) -> FloatArray | None:
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
    if not given:
        return table
    chosen = table
    for codes in reversed(tuple(given.values())):  # the last axis first, so that the others keep their place
        chosen = sum((chosen[..., code] for code in codes[1:]), start=chosen[..., codes[0]])
    mass = chosen.sum(axis=tuple(range(-asked, 0)), keepdims=True)
    return chosen / mass if (mass > 0).all() else None
