"""Cliques and groups of tied scopes as they are declared, checked; and the maximal cliques."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.domain import Domain, Variable, label_key, listed
from bayesprivmrf.model.tables import Clique


def checked_clique(domain: Domain, clique: Any, what: str = "a clique") -> Clique:
    """Return a clique with declared names, each once; `what` names it in errors."""
    variables = tuple(listed(what, clique, f"write ({clique!r},)"))
    require(variables, what, "name at least one variable", "an empty one", error=ModelError)
    positions = [domain.index(v) for v in variables]
    require(len({*positions}) == len(positions), what, "name each variable once", variables, error=ModelError)
    return tuple(domain.variables[position] for position in positions)


def maximal(cliques: Sequence[Clique]) -> tuple[Clique, ...]:
    """Return the cliques that lie in no other, in the given order; of equal scopes the first."""
    scopes = [frozenset(clique) for clique in cliques]
    holders: dict[Variable, list[int]] = {}
    for position, scope in enumerate(scopes):
        for variable in scope:
            holders.setdefault(variable, []).append(position)
    kept: list[Clique] = []
    for position, clique in enumerate(cliques):
        # whatever holds the clique holds its rarest variable
        rivals = min((holders[v] for v in clique), key=len)
        inside = any(
            scopes[position] < scopes[other] or (scopes[position] == scopes[other] and other < position)
            for other in rivals
        )
        if not inside:
            kept.append(clique)
    return tuple(kept)


def checked_ties(
    domain: Domain, cliques: Sequence[Clique], given: Sequence[Any], ties: Any
) -> tuple[tuple[Clique, ...], ...]:
    """Return the groups of tied scopes as declared, and each scope given inside a tied one as a group of its own.

    Parameters
    ----------
    domain
        The variables.
    cliques
        The model's cliques, of which none lies in another.
    given
        All scopes that were given.
    ties
        Groups of scopes.
    """
    groups = [
        [checked_clique(domain, scope, "a tied scope") for scope in listed("a group of `tied`", group)]
        for group in listed("`tied`", ties)
    ]
    if not groups:
        return ()
    known = {frozenset(scope) for scope in given}
    # as a model keeps what it was given
    known |= {frozenset(group[0]) for group in groups if len(group) == 1}
    seen: set[frozenset[Variable]] = set()
    for group in groups:
        require(group, "a group of `tied`", "hold at least one scope", "an empty one", error=ModelError)
        for scope in group:
            if frozenset(scope) not in known:
                raise ModelError(f"the tied scope {scope!r} is no declared clique; add it to `cliques`.")
            refuse_other_states(domain, group[0], scope, "tied scopes")
        if len(set(group)) < len(group):
            raise ModelError(f"a group of `tied` must hold each scope once as it is written, got {group!r}.")
        if seen & (own := set(map(frozenset, group))):
            twice = next(scope for scope in group if frozenset(scope) in seen)
            raise ModelError(
                f"the scope {twice!r} is in two groups of `tied`; merge them or leave it out of one."
            )
        seen |= own
    # scopes that share a table; a group of one is a potential inside a tied clique
    several = {frozenset(scope) for group in groups if len(group) > 1 for scope in group}
    kept = [tuple(group) for group in groups if len(group) > 1]
    inner = [scope for scope in given if frozenset(scope) not in several]
    inner += [group[0] for group in groups if len(group) == 1]
    # what was declared inside tied cliques alone keeps a potential of its own
    for scope in dict.fromkeys(map(frozenset, inner)):
        holders = [clique for clique in cliques if scope < frozenset(clique)]
        if holders and all(frozenset(clique) in several for clique in holders):
            kept.append((next(tuple(own) for own in inner if frozenset(own) == scope),))
    for group in kept:
        for scope in group:
            free = [c for c in cliques if set(scope) < set(c) and frozenset(c) not in several]
            if free:
                raise ModelError(
                    f"the tied scope {scope!r} lies inside the clique {free[0]!r}, which is free, so that the tie "
                    "would restrict nothing; tie that clique too, or leave the scope out."
                )
    return tuple(kept)


def refuse_other_states(domain: Domain, first: Clique, other: Clique, what: str) -> None:
    """Raise a ModelError unless two scopes have the same states in the same order, axis by axis."""
    states = [[[*map(label_key, domain.states_of(v))] for v in scope] for scope in (first, other)]
    if states[0] != states[1]:
        raise ModelError(
            f"{what} must have the same states in the same order, axis by axis as written, but {first!r} and "
            f"{other!r} do not; declare the states alike, or leave one scope out."
        )
