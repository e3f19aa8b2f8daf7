"""Which scopes share one table of potentials, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.domain import Domain, Variable, label_key, listed


def checked_ties(
    domain: Domain, cliques: Sequence[tuple[Variable, ...]], given: Sequence[Any], ties: Any
) -> tuple[tuple[tuple[Variable, ...], ...], ...]:
    """Groups of tied scopes as declared, and each scope that was given inside a tied one as a group of its own.

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
        [_checked_scope(domain, scope) for scope in listed("a group of `tied`", group)]
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
            _refuse_other_states(domain, group[0], scope)
        if len(set(group)) < len(group):
            raise ModelError(f"a group of `tied` must hold each scope once as it is written, got {group!r}.")
        if seen & (own := set(map(frozenset, group))):
            twice = next(scope for scope in group if frozenset(scope) in seen)
            raise ModelError(
                f"the scope {twice!r} is in two groups of `tied`; merge them or leave it out of one."
            )
        seen |= own
    several = {frozenset(scope) for group in groups if len(group) > 1 for scope in group}
    kept = [tuple(group) for group in groups if len(group) > 1]
    inner = [scope for scope in given if frozenset(scope) not in several]
    inner += [group[0] for group in groups if len(group) == 1]
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


def _checked_scope(domain: Domain, scope: Any) -> tuple[Variable, ...]:
    variables = tuple(listed("a tied scope", scope, f"write ({scope!r},)"))
    if not variables or len(set(variables)) != len(variables):
        raise ModelError(f"a tied scope must name one variable or more, each once, got {variables!r}.")
    return tuple(domain.variables[domain.index(v)] for v in variables)


def _refuse_other_states(domain: Domain, first: Sequence[Variable], other: Sequence[Variable]) -> None:
    """Raise unless two scopes have the same states in the same order, axis by axis."""
    if len(first) != len(other):
        raise ModelError(
            f"tied scopes must have as many variables as each other, got {tuple(first)!r} and {tuple(other)!r}."
        )
    for one, two in zip(first, other, strict=True):
        if list(map(label_key, domain.states_of(one))) != list(map(label_key, domain.states_of(two))):
            raise ModelError(
                f"tied scopes must have the same states in the same order, axis by axis as written, got "
                f"{list(domain.states_of(one))!r} of {one!r} and {list(domain.states_of(two))!r} of {two!r}; declare "
                "them alike."
            )
