"""Releases that are fitted together: their checks, the model that they share, and the evidence that they give.

The model of releases of the same people is the union of their variables, cliques and zeros. Releases of different
people that share one model are waves (`bayesprivmrf.inference.waves`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bayesprivmrf.checks import kind_of, one_of, truth
from bayesprivmrf.errors import (
    ArgumentError,
    ConsistencyWarning,
    DeclarationWarning,
    GuaranteeWarning,
    ModelError,
    warn_caller,
)
from bayesprivmrf.inference.agreement import agreed_total
from bayesprivmrf.inference.evidence import (
    LARGEST_TOTAL,
    Evidence,
    EvidenceParts,
    Population,
    family_of,
)
from bayesprivmrf.inference.given_model import (
    GivenModel,
    MeasuredNumbers,
    believed_model,
    measurements_of,
    numbers_about,
    split_by_steps,
)
from bayesprivmrf.inference.waves import of_waves
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.domain import label_key
from bayesprivmrf.model.specification import over_scopes
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.base import CONTRADICTION, check_kernel, contradiction, pooled_total
from bayesprivmrf.privacy import NoNoise
from bayesprivmrf.queries import BoundQuery
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.release.copies import refuse_copies, told_by
from bayesprivmrf.release.measurement import stacked


def joint_domain(models: Sequence[ModelSpecification]) -> Domain:
    """Return all variables of some models in the order in which they come up.

    Raises
    ------
    ModelError
        A shared variable has other states or another order of them.
    """
    domain = Domain.from_states({})
    for other in (model.domain for model in models):
        for variable in other.variables:
            if variable in domain:
                known = domain.states_of(variable)
            else:
                known = ()
            given = other.states_of(variable)
            if variable in domain and list(map(label_key, known)) != list(map(label_key, given)):
                raise ModelError(
                    f"releases that are fitted jointly must have the same states of {variable!r}, got "
                    f"{list(known)!r} and {list(given)!r}; declare the same states, in the same order, for every "
                    "release, or give variables that mean different things different names."
                )
        new = [variable for variable in other.variables if variable not in domain]
        states = (*domain.states, *map(other.states_of, new))
        domain = Domain(variables=(*domain.variables, *new), states=states)
    return domain


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
    return _joint([release.specification for release in releases])


def _joint(models: Sequence[ModelSpecification]) -> ModelSpecification:
    """Return what `joint_specification` does, of the models of some releases."""
    first = models[0]
    if all(model == first for model in models):
        return first
    domain = joint_domain(models)
    for model in models:
        is_larger = first.shares_transitions and len(model.domain.variables) < len(domain.variables)
        if model.sharing != first.sharing or is_larger:
            raise ModelError(
                "releases that are fitted jointly must share the same potentials or transitions; declare the same "
                "ties, scores and levels for every release."
            )
    import networkx as nx

    # releases that no shared variable links contain no information about each other
    graph = nx.Graph()
    for model in models:
        nx.add_path(graph, model.domain.variables)
    groups = list(nx.connected_components(graph))
    if len(groups) > 1:
        apart = next(variable for variable in domain.variables if variable in groups[1])
        warn_caller(
            f"the releases that are fitted jointly share no variable that links {apart!r} to "
            f"{domain.variables[0]!r}: they say nothing about each other but the number of records, and their "
            "variables are taken to be independent. Measure a table across them, or fit them apart.",
            DeclarationWarning,
        )
    return ModelSpecification(
        domain=domain,
        cliques=tuple(clique for model in models for clique in model.cliques),
        impossible=tuple(zero for model in models for zero in model.impossible),
        ties=first.ties,
        shares_transitions=first.shares_transitions,
        ordinal=first.ordinal,
        levels=first.levels,
    )


def _declared_apart(releases: Sequence[NoisyStatistics]) -> ModelSpecification | None:
    """Return the joint declared model, if some release measured scopes that lie in no declared clique; else None.

    The releases are then fitted as under a given model.
    """
    models = [release.specification for release in releases]
    if all(model.interactions is None for model in models):
        return None
    return _joint([model.believed for model in models])


def of_one_population(
    model: ModelSpecification, releases: Sequence[NoisyStatistics]
) -> EvidenceParts:
    """Return what `Evidence` holds of releases of the same people: their model, what was measured, and N.

    Measurements are tables where each of the model's cliques has one at least and nothing else was measured;
    otherwise they are queries.
    """
    total, error = joint_total(releases)
    found: EvidenceParts = {
        "specification": model,
        "estimated_total": total,
        "total_standard_error": error,
        "scopes": (),
    }
    if all(release.has_tables for release in releases):
        cliques = [clique for release in releases for clique in release.specification.cliques]
        found["scopes"] = tuple(tuple(map(model.domain.index, clique)) for clique in cliques)
        return found
    queries: list[BoundQuery] = []
    for release in releases:
        own = release.specification
        bound = release.bound
        queries += (
            bound if model is own else [replace(one, model=model, asked_of=own) for one in bound]
        )
    scopes = tuple(query.positions[0] for query in queries if query.is_table)
    is_covered = set(map(frozenset, scopes)).issuperset(map(frozenset, model.scopes))
    if is_covered and len(scopes) == len(queries):
        found["scopes"] = scopes
    else:
        found["queries"] = tuple(queries)
    return found


def of_one_population_under(
    believed: ModelSpecification, releases: Sequence[NoisyStatistics]
) -> EvidenceParts:
    """Return evidence as `of_one_population` does, under a model apart from the tables that were measured.

    Each measurement is first summed over the variables that the model leaves out (`numbers_about`).
    """
    told = [
        numbers_about(believed.domain, measured)
        for release in releases
        for measured in measurements_of(release)
    ]
    kept = [each for each in told if each is not None]
    distant: list[MeasuredNumbers] = []
    if believed.shares_transitions:
        kept, distant = split_by_steps(believed, kept)
    model = over_scopes(believed, (scope for each in kept for scope in each.query.scopes))
    total, error = joint_total(releases)
    found: EvidenceParts = {
        "specification": model,
        "estimated_total": total,
        "total_standard_error": error,
        "scopes": (),
        "noisy_counts": np.concatenate(
            [np.zeros(0), *(each.noise.estimate(each.values) for each in kept)]
        ),
        "published": np.concatenate([np.zeros(0), *(each.values for each in kept)]),
        "noise": tuple(each.noise for each in kept),
        "is_given": True,
        "distant": tuple(distant),
    }
    queries = tuple(each.on(model) for each in kept)
    scopes = tuple(query.positions[0] for query in queries if query.is_table)
    is_covered = set(map(frozenset, scopes)).issuperset(map(frozenset, model.scopes))
    if is_covered and len(scopes) == len(queries):
        found["scopes"] = scopes
    else:
        found["queries"] = queries
    return found


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
            without = getattr(release, "_without_tables", None)
            if without is not None and not isinstance(release, type):
                empty = f"it holds no noisy tables (its `statistics` is None): {without}"
                if release.statistics is None:
                    remedy = empty
                else:
                    remedy = "give it what was measured, `.statistics`"
            if isinstance(release, type):
                seen = kind_of(release)
            else:
                seen = type(release).__name__
            raise ArgumentError(
                f"`fit` takes a release of noisy tables or a list of them, got {seen}; {remedy}."
            )
        has_noise = not all(law.is_exact for law in release.noise)
        # the noise of a repeated release would be counted as two independent draws
        if any(release is other or (has_noise and release == other) for other in given[:position]):
            raise ArgumentError(
                "`fit` was given one release twice, which tells nothing more than once; pass each release once."
            )
    laws = {
        (law.name, getattr(law, "scale", None)): law for one in given for law in one.noise
    }.values()
    for law in laws:
        if law.is_additive:
            check_kernel(law)  # type: ignore[arg-type]
    if not takes_bounds and any(law.is_bounded for law in laws):
        raise ArgumentError(
            "this estimator does not accept counts within bounds, because their midpoint estimates nothing",
            remedy="use LatentCounts, beside a table that tells the number of records, or with a public `total`",
            option="use `--method posterior`",
        )
    for law in laws:
        # a density that falls in an unknown way must not be taken for another's
        is_read = law.is_bounded or (takes_bounds and law.is_tabled)
        if needs_kernel and law.smooth is None and not is_read:
            raise ArgumentError(
                "this estimator needs noise whose log density falls with the residual's absolute value or its "
                f"square, got the law {law.name!r}, whose `kernel` says neither",
                remedy="use NaiveMLE, which takes any added noise",
                option="use `--method naive-mle`, which takes any added noise",
            )
    return given


def _estimates(release: NoisyStatistics) -> FloatArray:
    """Return the counts that the numbers of a release estimate, flat: the numbers themselves under added noise."""
    found = [one.noise.estimate(one.values) for one in release.measurements]
    return np.concatenate([np.zeros(0), *found])


def joint_total(releases: Sequence[NoisyStatistics]) -> tuple[float, float]:
    """Return the pooled number of records, and its standard error: 0 where a release tells it without noise."""
    estimates = np.array([release.estimated_total for release in releases])
    errors = np.array([release.total_standard_error for release in releases])
    is_told = np.isfinite(errors)  # not by a model without variables
    estimates = estimates[is_told]
    errors = errors[is_told]
    if (pair := contradiction(estimates, errors)) is not None:
        seen = " and ".join(f"{estimates[place]:,.0f} ± {errors[place]:,.0f}" for place in pair)
        raise ModelError(
            f"releases of one population must agree on its size, got {seen}; fit them apart."
        )
    with np.errstate(divide="ignore"):
        precisions = 1 / errors**2
        return pooled_total(estimates, precisions), float(precisions.sum() ** -0.5)


def gather(
    releases: NoisyStatistics | Sequence[NoisyStatistics],
    *,
    needs_kernel: bool = True,
    takes_bounds: bool = False,
    population: Population = "one",
    model: GivenModel | None = None,
) -> Evidence:
    """Return the evidence of one release, or of several of one population or of one model.

    Parameters
    ----------
    releases
        Noisy statistics.
    needs_kernel
        Whether the estimator's formulas rest on the noise's kernel. Only one that asks a law for no more than its
        variance, density or score may say no.
    takes_bounds
        Whether it takes counts that are known only within bounds, and those whose probability is a table.
    population
        ``"one"``: the releases are of the same people. ``"waves"``: each is of people of its own
        (`bayesprivmrf.inference.waves`).
    model
        The model to fit (`bayesprivmrf.inference.given_model`); None takes the one that the releases declare.

    Raises
    ------
    ArgumentError
        Something other than noisy statistics was given, or nothing, or noise without the kernel that is needed.
    ModelError
        The releases differ in the states of a shared variable, or in a public total, or hold more than
        `LARGEST_TOTAL` records; or noisy numbers are given twice (`bayesprivmrf.release.copies`).

    Warns
    -----
    DeclarationWarning
        No shared variable links some of the releases.
    GuaranteeWarning
        Their guarantees are of different units or neighbouring relations.
    """
    truth("needs_kernel", needs_kernel)
    truth("takes_bounds", takes_bounds)
    given = checked_releases(releases, needs_kernel=needs_kernel, takes_bounds=takes_bounds)
    told = [told_by(release.bound, release.measurements) for release in given]
    refuse_copies([one for own in told for one in own])
    is_waves = one_of("population", population, ("one", "waves")) == "waves"
    if model is None:
        model = _declared_apart(given)
    if model is None:
        joint = (of_waves if is_waves else of_one_population)(joint_specification(given), given)
    else:
        joint = _under_given(model, given, is_waves=is_waves)
    specification = joint["specification"]
    total = joint["estimated_total"]
    error = joint["total_standard_error"]
    public = [float(one.total) for one in given if is_waves and one.total is not None]
    if total > LARGEST_TOTAL + CONTRADICTION * error:
        raise ModelError(
            f"the releases must hold at most {LARGEST_TOTAL:,.0f} records, got about {total:.3g}; check that their "
            "tables are counts of records, or fit parts of the population."
        )
    people = [release.person_rows for release in given if release.person_rows is not None]
    most = max((rows.dependent for rows in people), default=1)
    if most > 1:
        warn_caller(
            f"the release counts up to {most} rows of one person, and a fit takes rows for independent: where those "
            f"of one person are alike, the sampling variance is up to {most} times as large, and intervals are too "
            "narrow unless the noise is the larger part of them.",
            ConsistencyWarning,
        )
    promises = [release.guarantee for release in given if release.guarantee is not None]
    kinds = dict.fromkeys(f"{promise.adjacency.value} of a {promise.unit}" for promise in promises)
    if len(kinds) > 1:
        note = f"do not add up: {', '.join(kinds)}"
    else:
        note = ""
    if note:
        warn_caller(
            f"the guarantees of releases that are fitted jointly {note}; no single guarantee covers the result, each "
            "release keeps its own.",
            GuaranteeWarning,
        )
    cells = np.isfinite(family_of(specification).base).astype(float)
    if "queries" in joint:
        possible = abs(stacked(joint["queries"], specification.size)) @ cells > 0
    else:
        parts = [specification.project(cells, scope).ravel() for scope in joint["scopes"]]
        possible = np.concatenate([np.zeros(0), *parts]) > 0
    if "noise" not in joint:
        joint["noisy_counts"] = np.concatenate([np.zeros(0), *map(_estimates, given), public])
        flat = [release.flat.astype(float) for release in given]
        joint["published"] = np.concatenate([np.zeros(0), *flat, public])
        joint["noise"] = tuple(law for release in given for law in release.noise)
    if public:
        joint["noise"] = (*joint["noise"], NoNoise())
    evidence = Evidence(
        **joint,
        possible=possible,
        total=max(total, 1.0) if total == total else 1.0,
        is_simulated=any(release.provenance.simulated for release in given),
        guarantees=note,
        rows_of_one=most,
        is_weighed=any(rows.is_weighed for rows in people),
    )
    # the answers without noise must agree, and may determine the number of records
    known = total if error == 0 else None
    exact = evidence.exact
    if exact is None:
        told = known
    else:
        told = agreed_total(specification, *exact, ~evidence.supported_cells, known)
    if told is not None and told != known:
        if abs(told - total) > CONTRADICTION * error:
            raise ModelError(
                "the answers without noise tell another number of records than the noisy ones; correct them, or fit "
                "them apart."
            )
        told = round(told, 6)
        evidence = replace(
            evidence, total=max(told, 1.0), estimated_total=told, total_standard_error=0.0
        )
    needs_total = evidence.queries is not None or evidence.is_bounded.any()
    if needs_total and math.isinf(evidence.total_standard_error):
        raise ModelError(
            "the number of records must be told by a release of queries, but none of these tells it; measure a "
            "table, the empty parity or a coarsening into one group (counts within bounds do not tell it), or pass "
            "`total=` where the number is public."
        )
    return evidence


def given_specification(
    releases: NoisyStatistics | Sequence[NoisyStatistics], model: GivenModel | None
) -> ModelSpecification | None:
    """Return the model that was given to `fit`, with the releases' names and labels; None if there is none."""
    if model is None:
        return None
    given: Sequence[Any] = releases if isinstance(releases, list | tuple) else [releases]
    models = [one.specification for one in given]
    zeros = dict.fromkeys(zero for own in models for zero in own.impossible)
    return believed_model(joint_domain(models), zeros, model)


def _under_given(
    given: GivenModel, releases: Sequence[NoisyStatistics], *, is_waves: bool
) -> EvidenceParts:
    """Return the fields of `Evidence` for releases under a model that was given to `fit`."""
    believed = given_specification(releases, given)
    assert believed is not None
    if not is_waves:
        return of_one_population_under(believed, releases)
    scopes = [scope for release in releases for bound in release.bound for scope in bound.scopes]
    left = sorted({str(v) for scope in scopes for v in scope if v not in believed.domain})
    if left:
        raise ModelError(
            f"a model of several waves must have every variable that they measured, got none of {left}; add it to "
            "`model`, or fit each wave apart."
        )
    found = of_waves(over_scopes(believed, scopes), releases)
    found["is_given"] = True
    return found
