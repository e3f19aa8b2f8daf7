"""Cliques as they are declared: checked, and the largest of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.domain import Domain, Variable, listed
from bayesprivmrf.model.tables import Clique


def checked_clique(domain: Domain, clique: Any) -> Clique:
    """Return a clique with declared names, each once."""
    variables = tuple(listed("a clique", clique, f"write ({clique!r},)"))
    require(variables, "a clique", "name at least one variable", "an empty one", error=ModelError)
    for variable in variables:
        if variable not in domain:
            raise ModelError(
                f"clique {variables!r} names {variable!r}, which is not declared; "
                f"the declared variables are {', '.join(map(repr, domain.variables))}."
            )
    if len(set(variables)) != len(variables):
        raise ModelError(f"clique {variables!r} must name each variable once.")
    return tuple(domain.variables[domain.index(v)] for v in variables)


def maximal(cliques: Sequence[Clique]) -> tuple[Clique, ...]:
    """Cliques that lie in no other, the first of each repeated scope kept, in the given order."""
    scopes = [frozenset(clique) for clique in cliques]
    holders: dict[Variable, list[int]] = {}
    for position, scope in enumerate(scopes):
        for variable in scope:
            holders.setdefault(variable, []).append(position)
    kept: list[Clique] = []
    for position, clique in enumerate(cliques):
        rivals = min((holders[v] for v in clique), key=len)
        inside = any(
            scopes[position] < scopes[other] or (scopes[position] == scopes[other] and other < position)
            for other in rivals
        )
        if not inside:
            kept.append(clique)
    return tuple(kept)
