"""Checks of releases before they are fitted together, and the model that they share.

The model of several releases that are fitted together: the union of their variables, cliques and zeros.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bayesprivmrf.errors import (
    ArgumentError,
    ConsistencyWarning,
    DeclarationWarning,
    GuaranteeWarning,
    ModelError,
)
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.domain import Variable, label_key
from bayesprivmrf.noise.base import CONTRADICTION, check_kernel
from bayesprivmrf.queries import BoundQuery
from bayesprivmrf.release import NoisyStatistics, PersonRows


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
    # all variables in the order in which they come up; those of several releases agree on their states
    domain = Domain.from_states({})
    for other in (model.domain for model in models):
        for variable in other.variables:
            known, given = domain.states_of(variable) if variable in domain else (), other.states_of(variable)
            if variable in domain and list(map(label_key, known)) != list(map(label_key, given)):
                raise ModelError(
                    f"releases that are fitted jointly must have the same states of {variable!r}, got "
                    f"{list(known)!r} and {list(given)!r}; declare the same states, in the same order, for every "
                    "release, or give variables that mean different things different names."
                )
        new = [variable for variable in other.variables if variable not in domain]
        states = (*domain.states, *map(other.states_of, new))
        domain = Domain(variables=(*domain.variables, *new), states=states)
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


def _warn_of_unlinked(domains: Sequence[Domain]) -> None:
    """Warn about releases that no shared variable links: they contain no information about each other."""
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


def of_one_population(releases: Sequence[NoisyStatistics]) -> dict[str, Any]:
    """Return what `Evidence` holds of releases of the same people: the model, what was measured, and N.

    Measurements are tables where each of the model's cliques has one at least and nothing else was measured;
    otherwise they are queries.
    """
    model = joint_specification(releases)
    total, error = pooled_total(releases)
    found = {"specification": model, "estimated_total": total, "total_standard_error": error, "scopes": ()}
    if all(release.has_tables for release in releases):
        cliques = [clique for release in releases for clique in release.specification.cliques]
        return found | {"scopes": tuple(tuple(map(model.domain.index, clique)) for clique in cliques)}
    queries: list[BoundQuery] = []
    for release in releases:
        own, bound = release.specification, release.bound
        queries += bound if model is own else [replace(one, model=model, asked_of=own) for one in bound]
    scopes = tuple(query.positions[0] for query in queries if query.is_table)
    is_covered = set(map(frozenset, scopes)).issuperset(map(frozenset, model.scopes))
    if is_covered and len(scopes) == len(queries):
        return found | {"scopes": scopes}
    return found | {"queries": tuple(queries)}


def checked_releases(
    releases: NoisyStatistics | Sequence[NoisyStatistics], *, needs_kernel: bool, takes_bounds: bool
) -> list[NoisyStatistics]:
    """Return the releases as a list; the errors are those of `gather`."""
    given: list[Any] = list(releases) if isinstance(releases, list | tuple) else [releases]
    if not given:
        raise ArgumentError("`fit` needs at least one release, got none.")
    for position, release in enumerate(given):
        if not isinstance(release, NoisyStatistics):
            remedy = "load_release(path) reads one from a file"
            # other kinds may hold the numbers that they were made of
            if (without := getattr(release, "_without_tables", None)) is not None:
                empty = f"it holds no noisy tables (its `statistics` is None): {without}"
                remedy = empty if release.statistics is None else "give it what was measured, `.statistics`"
            raise ArgumentError(
                f"`fit` takes a release of noisy tables or a list of them, got {type(release).__name__}; {remedy}."
            )
        has_noise = any(law.variance > 0 for law in release.noise)
        # the noise of a repeated release would be counted as two independent draws
        if any(release is other or (has_noise and release == other) for other in given[:position]):
            raise ArgumentError(
                "`fit` was given one release twice, which tells nothing more than once; pass each release once."
            )
    laws = {(law.name, getattr(law, "scale", None)): law for one in given for law in one.noise}.values()
    for law in laws:
        check_kernel(law)
    if not takes_bounds and any(law.kernel == "within" for law in laws):
        raise ArgumentError(
            "this estimator does not accept counts within bounds, because their midpoint estimates nothing",
            remedy="use LatentCounts, beside a table that tells the number of records, or with a public `total`",
            option="use `--method posterior`",
        )
    for law in laws:
        # a density that falls in an unknown way must not be taken for another's
        if needs_kernel and law.kernel is None:
            raise ArgumentError(
                "this estimator needs noise whose log density falls with the residual's absolute value or its "
                f"square, got the law {law.name!r}, whose `kernel` says neither",
                remedy="use NaiveMLE, which takes any added noise",
                option="use `--method naive-mle`, which takes any added noise",
            )
    return given


def most_rows_of_one(people: Sequence[PersonRows]) -> int:
    """Return how many rows of one person are counted, with a warning where they are more than one."""
    most = max((rows.dependent for rows in people), default=1)
    if most > 1:
        warnings.warn(
            f"the release counts up to {most} rows of one person, and a fit takes rows for independent: where those "
            f"of one person are alike, the sampling variance is up to {most} times as large, and intervals are too "
            "narrow unless the noise is the larger part of them.",
            ConsistencyWarning,
            stacklevel=5,
        )
    return most


def unlike_guarantees(releases: Sequence[NoisyStatistics]) -> str:
    """Return a note, and warn, if guarantees of different units or neighboring relations do not add up."""
    kinds = {
        f"{release.guarantee.adjacency.value} of a {release.guarantee.unit}": None
        for release in releases
        if release.guarantee is not None
    }
    if len(kinds) < 2:
        return ""
    note = f"do not add up: {', '.join(kinds)}"
    warnings.warn(
        f"the guarantees of releases that are fitted jointly {note}; no single guarantee covers the result, each "
        "release keeps its own.",
        GuaranteeWarning,
        stacklevel=5,
    )
    return note


def pooled_total(releases: Sequence[NoisyStatistics]) -> tuple[float, float]:
    """Return the public total, or the precision-weighted mean of the releases' own estimates."""
    public = {release.total for release in releases if release.total is not None}
    if len(public) > 1:
        raise ModelError(f"releases of one population must have one public total, got {sorted(public)}.")
    if not public:  # tables without noise tell it too
        public = {release.estimated_total for release in releases if release.total_standard_error == 0}
        if len(public) > 1:
            raise ModelError(
                f"releases of one population must have one total, got {sorted(public)} without noise."
            )
    if public:
        total = float(public.pop())
        for release in releases:
            gap = abs(release.estimated_total - total)
            if release.total is None and gap > CONTRADICTION * release.total_standard_error:
                raise ModelError(
                    f"releases of one population must agree on its size, got the total {total:,.0f} and "
                    f"{release.estimated_total:,.0f} ± {release.total_standard_error:,.0f}; fit them apart."
                )
        return total, 0.0
    estimates = np.array([release.estimated_total for release in releases])
    errors = np.array([release.total_standard_error for release in releases])
    is_told = np.isfinite(errors)  # not by a model without variables
    if not is_told.any():
        return math.nan, math.inf
    estimates, errors = estimates[is_told], errors[is_told]
    low, high = int(np.argmin(estimates)), int(np.argmax(estimates))
    if estimates[high] - estimates[low] > CONTRADICTION * math.hypot(errors[low], errors[high]):
        raise ModelError(
            f"releases of one population must agree on its size, got {estimates[low]:,.0f} ± {errors[low]:,.0f} and "
            f"{estimates[high]:,.0f} ± {errors[high]:,.0f}; fit them apart."
        )
    precisions = 1 / errors**2
    return float(estimates @ precisions / precisions.sum()), float(precisions.sum() ** -0.5)
