"""States that some variables are given, as variable positions and codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bayesprivmrf.checks import instance_of
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.domain import Domain
from bayesprivmrf.model.tables import FloatArray


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
        It is no mapping.
    ModelError
        A variable or a state is not declared.

    Examples
    --------
    >>> coded_states(Domain.from_states({"a": ["x", "y"], 0: [2, 1]}), "given", {0: 1, "a": "x"})
    {1: 1, 0: 0}
    """
    instance_of(name, states, Mapping, "map variables to states", "write {variable: state}")
    return {domain.index(v): domain.code(v, label) for v, label in states.items()}


def conditions(domain: Domain, given: Any, asked: Sequence[int]) -> dict[int, int]:
    """Return the codes of the states that are given, by position; variables that are asked for are refused."""
    coded = {} if given is None else coded_states(domain, "given", given)
    for position in coded:
        if position in asked:
            raise ModelError(
                f"`given` must name other variables than those asked for, got {domain.variables[position]!r} in both."
            )
    return coded


def given_error(domain: Domain, given: Mapping[int, int], where: str = "this model") -> ModelError:
    """Return the error for given states that cannot occur together."""
    states = {domain.variables[v]: domain.states[v][code] for v, code in given.items()}
    return ModelError(
        f"`given` must be able to occur, got {states!r}, which has probability 0 in {where}; give other states."
    )


def share_given(table: FloatArray, asked: int, given: Mapping[int, int]) -> FloatArray | None:
    """Return the shares of the asked variables' states among records in the given states; None if there are none.

    Parameters
    ----------
    table
        Shape (..., asked variables, given variables).
    asked
        Number of the asked variables.
    given
        Codes of the given variables, in the order of the last axes.
    """
    if not given:
        return table
    chosen = table[(..., *given.values())]
    mass = chosen.sum(axis=tuple(range(-asked, 0)), keepdims=True)
    return chosen / mass if (mass > 0).all() else None
