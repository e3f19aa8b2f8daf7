"""The model of several releases that are fitted together: the union of their variables, cliques and zeros."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from bayesprivmrf.errors import DeclarationWarning, ModelError
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.domain import Variable, label_key
from bayesprivmrf.release import NoisyStatistics


def joint_specification(releases: Sequence[NoisyStatistics]) -> ModelSpecification:
    """Return the model over the variables and cliques of all releases, the first release's variables first.

    Raises
    ------
    ModelError
        A shared variable has other states or another order of them; or the releases share potentials or
        transitions otherwise.

    Warns
    -----
    DeclarationWarning
        Releases are linked by no variable.
    """
    models = [release.specification for release in releases]
    first = models[0]
    if all(model == first for model in models):
        return first
    domain = _joint_domain([model.domain for model in models])
    for model in models:
        is_larger = first.shares_transitions and len(model.domain.variables) < len(domain.variables)
        if model.sharing != first.sharing or is_larger:
            raise ModelError(
                "releases that are fitted jointly must share the same potentials or transitions; declare the same "
                "ties, scores and levels for every release."
            )
    _warn_of_unlinked([model.domain for model in models])
    return ModelSpecification(
        domain=domain,
        cliques=tuple(clique for model in models for clique in model.cliques),
        impossible=tuple(zero for model in models for zero in model.impossible),
        ties=first.ties,
        shares_transitions=first.shares_transitions,
        ordinal=first.ordinal,
        levels=first.levels,
    )


def _joint_domain(domains: Sequence[Domain]) -> Domain:
    """Return all variables in the order in which they come up; those of several releases agree on their states."""
    joint = Domain.from_states({})
    for domain in domains:
        for variable in domain.variables:
            if variable in joint:
                _refuse_other_states(variable, joint, domain)
        new = [variable for variable in domain.variables if variable not in joint]
        joint = Domain(
            variables=(*joint.variables, *new),
            states=(*joint.states, *(domain.states_of(variable) for variable in new)),
        )
    return joint


def _refuse_other_states(variable: Variable, first: Domain, other: Domain) -> None:
    """Raise unless two domains hold the same states of a variable, label by label."""
    known, given = first.states_of(variable), other.states_of(variable)
    if list(map(label_key, known)) != list(map(label_key, given)):
        raise ModelError(
            f"releases that are fitted jointly must have the same states of {variable!r}, got {list(known)!r} and "
            f"{list(given)!r}; declare the same states, in the same order, for every release, or give variables "
            "that mean different things different names."
        )


def _warn_of_unlinked(domains: Sequence[Domain]) -> None:
    """Say that releases which no shared variable links tell nothing of each other."""
    groups: list[set[Variable]] = []
    for domain in domains:
        own = set(domain.variables)
        linked = [group for group in groups if group & own]
        groups = [group for group in groups if not group & own]
        groups.append(own.union(*linked))
    groups = [group for group in groups if group]
    if len(groups) > 1:
        apart = [variable for domain in domains for variable in domain.variables if variable in groups[1]]
        warnings.warn(
            f"the releases that are fitted jointly share no variable that links {apart[0]!r} to "
            f"{domains[0].variables[0]!r}: they say nothing about each other but the number of records, and their "
            "variables are taken to be independent. Measure a table across them, or fit them apart.",
            DeclarationWarning,
            stacklevel=7,
        )
