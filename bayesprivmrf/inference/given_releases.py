r"""Checks of releases before they are fitted together, and the model that they share.

The model of releases of the same people is the union of their variables, cliques and zeros.

**Waves of a survey** are releases of different people that share one model. Wave w holds :math:`N_w` people, drawn
from :math:`p_θ`, and says :math:`y_w = A_w n_w + η_w` of their tables alone.
The likelihood is the product over waves,

.. math:: \prod_w \sum_{n_w} p(n_w \mid θ, N_w)\, p(y_w \mid n_w).

**One population with a variable more.** Let w be a variable that every clique holds and that interacts with none:
:math:`p(w, x) = π_w\, p_θ(x)`. Of :math:`N = \sum_w N_w` records of that model, given how many are of each wave,
those of a wave are :math:`N_w` draws from :math:`p_θ`, apart from the others': the product above. The tables of the
cliques :math:`\{w\} ∪ C` are the waves' tables :math:`n_w` side by side, each release a query of them, and θ is
:math:`B β` without the effects of w beside its own. So every estimator that takes restricted potentials takes waves:

- the naive one matches :math:`\sum_w N_w \tilde μ_w / N` and the waves' shares :math:`N_w / N`, each wave's tables
  fitted by least squares;
- CGM has a dual :math:`g_w` of each wave and one M-step, in which the sums of the waves' expected tables are matched;
- the noise-aware mode has means :math:`N π_w μ(θ)`;
- the posterior moves records, each of them in one wave.

The shares π are parameters, of a normal prior whose scale is learned, so that given N no :math:`N_w` is preferred. A
public :math:`N_w` is an answer without noise.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from bayesprivmrf.model.domain import label_key
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.base import check_kernel
from bayesprivmrf.queries import BoundQuery
from bayesprivmrf.queries.query import Query, one_per_column
from bayesprivmrf.release import NoisyStatistics, PersonRows
from bayesprivmrf.release.measurement import contradiction, pooled_total


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
    import networkx as nx

    graph = nx.Graph()
    for domain in domains:
        nx.add_path(graph, domain.variables)
    groups = list(nx.connected_components(graph))
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
    total, error = joint_total(releases)
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


def joint_total(releases: Sequence[NoisyStatistics]) -> tuple[float, float]:
    """Return the pooled number of records, and its standard error: 0 where a release tells it without noise."""
    estimates = np.array([release.estimated_total for release in releases])
    errors = np.array([release.total_standard_error for release in releases])
    is_told = np.isfinite(errors)  # not by a model without variables
    estimates, errors = estimates[is_told], errors[is_told]
    if (pair := contradiction(estimates, errors)) is not None:
        seen = " and ".join(f"{estimates[place]:,.0f} ± {errors[place]:,.0f}" for place in pair)
        raise ModelError(f"releases of one population must agree on its size, got {seen}; fit them apart.")
    with np.errstate(divide="ignore"):
        precisions = 1 / errors**2
        return pooled_total(estimates, precisions), float(precisions.sum() ** -0.5)


# Name of the variable; its states are 1, 2, ... in the order of the releases
WAVE = "wave"


@dataclass(frozen=True, slots=True)
class _OfWave(Query):
    """Query of one wave; without a query, the numbers of records of some waves."""

    query: Query | None
    waves: tuple[int, ...]

    def __repr__(self) -> str:
        return f"{self.query or 'number of records'} of wave {', '.join(map(str, self.waves))}"

    def _bind(self, model: ModelSpecification) -> BoundQuery:
        raise NotImplementedError("a wave's query is made on the model of all waves alone")

    def _labels(self, model: ModelSpecification) -> tuple[str, ...]:
        names = tuple(f"{WAVE}={wave}" for wave in self.waves)
        return names if self.query is None else tuple(f"{names[0]}, {s}" for s in self.query._labels(model))

    def _total_weights(self, bound: BoundQuery) -> FloatArray | None:
        return None


def of_waves(releases: Sequence[NoisyStatistics]) -> dict[str, Any]:
    """Return what `Evidence` holds of waves: queries of each wave's tables, and then the public numbers of records.

    Raises
    ------
    ArgumentError
        There is one release alone.
    ModelError
        A variable is called "wave", or the releases share potentials or transitions, or are not of one model.
    """
    model = _with_waves(joint_specification(releases), len(releases))
    queries: list[BoundQuery] = []
    tables: list[tuple[int, tuple[int, ...]] | None] = []
    for position, release in enumerate(releases):
        for bound in release.bound:
            queries.append(_of_wave(bound, model, position, len(releases)))
            scope = queries[-1].positions[0][1:] if bound.is_table else ()
            tables.append((position + 1, scope) if scope else None)
    public = [position for position, release in enumerate(releases) if release.total is not None]
    if public:
        rows: Any = one_per_column(np.arange(len(releases)), len(releases))[public]
        query = _OfWave(None, tuple(position + 1 for position in public))
        queries.append(BoundQuery(query=query, model=model, scopes=((WAVE,),), matrix=rows))
        tables.append(None)
    estimates = tuple(release.estimated_total for release in releases)
    return {
        "specification": model,
        "scopes": (),
        "queries": tuple(queries),
        "estimated_total": sum(estimates),
        "total_standard_error": math.hypot(*(release.total_standard_error for release in releases)),
        "wave_totals": estimates,
        "wave_tables": tuple(tables),
    }


def _with_waves(model: ModelSpecification, count: int) -> ModelSpecification:
    """Return a model with the wave, a variable of so many states, in every clique."""
    if count < 2:
        raise ArgumentError(
            "`population='waves'` needs two releases or more, one a wave, got one; leave `population` out."
        )
    if WAVE in model.domain:
        raise ModelError(f"no variable may be called {WAVE!r} in a fit of waves, whose own it is; rename it.")
    if model.ties:
        raise ModelError(
            "waves share all potentials, and those of this model are tied besides, or its transitions shared; fit "
            "each wave apart, or declare the network without `tied`."
        )
    own = Domain.from_states({WAVE: list(range(1, count + 1))})
    return replace(
        model,
        domain=Domain(
            variables=(*own.variables, *model.domain.variables), states=(*own.states, *model.domain.states)
        ),
        cliques=tuple((WAVE, *clique) for clique in model.cliques) or ((WAVE,),),
        waves=WAVE,
    )


def _of_wave(bound: BoundQuery, model: ModelSpecification, position: int, count: int) -> BoundQuery:
    """Return a query of one wave's tables as one of the tables of all waves."""
    from scipy.sparse import csr_array, hstack

    blocks: list[Any] = []
    for block in bound.blocks:
        nothing = csr_array(block.shape, dtype=np.int64)
        blocks += [block if wave == position else nothing for wave in range(count)]
    return BoundQuery(
        query=_OfWave(bound.query, (position + 1,)),
        model=model,
        scopes=tuple((WAVE, *scope) for scope in bound.scopes),
        matrix=hstack(blocks, format="csr"),
        asked_of=bound.model,
    )
