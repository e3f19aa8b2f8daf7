"""One or several releases of one population, as the estimators see them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from bayesprivmrf.checks import one_of
from bayesprivmrf.errors import (
    ArgumentError,
    ConsistencyWarning,
    GuaranteeWarning,
    ModelError,
    ModelTooLargeError,
)
from bayesprivmrf.inference.agreement import agreed_total
from bayesprivmrf.inference.joint_model import joint_specification
from bayesprivmrf.inference.waves import public_totals, wave_queries, wave_specification, wave_total
from bayesprivmrf.marginals import MarginalEngine, marginal_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray, cells_within
from bayesprivmrf.privacy import NoiseLaw, NoNoise
from bayesprivmrf.queries import BoundQuery
from bayesprivmrf.release import NoisyMeasurements, NoisyStatistics
from bayesprivmrf.release.measured import stacked

__all__ = ["Evidence", "Inference", "Population", "gather", "require_inference", "supported_cells"]

_CONTRADICTION = 8.0
"""Standard errors between two totals beyond which they are not of one population."""

BOUNDS = "use LatentCounts"
"""What to do with counts within bounds that an estimator does not take."""

type Inference = Literal["exact", "loopy"]
type Population = Literal["one", "waves"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """Noisy tables of one population.

    Parameters
    ----------
    specification
        The model over the union of all releases' cliques.
    scopes
        Scope of each noisy table, variable positions in axis order; a scope that several releases measured
        appears once for each. Empty where the evidence is of queries.
    noisy_counts
        y, all tables or answers, flat, shape (size,), records.
    noise
        The law of each table's noise, or of each query's.
    possible
        Cells that may occur, and answers that count one such cell at least, shape (size,).
    supported
        Cells of the model's cliques that may occur, shape (model size,); None where all may.
    is_simulated
        Whether any release's noise was seeded.
    total
        The number of records N that estimators divide by: public, or `estimated_total`, at least 1.
    estimated_total, total_standard_error
        Pooled by precision over the releases, and its standard error, records; 0 for a public total.
    guarantees
        Why the releases' guarantees do not add up to one; empty where they do.
    rows_of_one
        How many rows of one person were counted at most, where one may have several.
    is_weighed
        Whether the rows of a person with K rows count 1/K each.
    queries
        What was measured, where that is not one or more tables of each clique, and perhaps tables inside them.
    wave_totals
        Each wave's own estimate of its number of records; empty where the releases are of one population.
    """

    specification: ModelSpecification
    scopes: tuple[tuple[int, ...], ...]
    noisy_counts: FloatArray
    noise: tuple[NoiseLaw, ...]
    possible: np.ndarray
    supported: np.ndarray | None
    total: float
    estimated_total: float
    total_standard_error: float
    is_simulated: bool = False
    guarantees: str = ""
    rows_of_one: int = 1
    is_weighed: bool = False
    queries: tuple[BoundQuery, ...] | None = None
    wave_totals: tuple[float, ...] = ()

    @cached_property
    def measured_scopes(self) -> tuple[tuple[int, ...] | None, ...]:
        """Scope of each measurement; None where it is no whole table of one scope."""
        if self.queries is None:
            return self.scopes
        return tuple(query.positions[0] if query.is_table else None for query in self.queries)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each measurement: of a table, a number of states an axis; otherwise the number of rows."""
        cards = self.specification.cardinalities
        if self.queries is None:
            return tuple(tuple(cards[v] for v in scope) for scope in self.scopes)
        return tuple(
            (len(query),) if scope is None else tuple(cards[v] for v in scope)
            for query, scope in zip(self.queries, self.measured_scopes, strict=True)
        )

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Position of each measurement's first number, and the total size last."""
        return tuple(accumulate(map(math.prod, self.shapes), initial=0))

    @cached_property
    def matrix(self) -> Any | None:
        """A, sparse, a row for each noisy number and a column for each cell of the cliques; None for the identity.

        What lies in several cliques is read off the first one that holds it.
        """
        from scipy.sparse import csr_array

        model = self.specification
        if self.queries is not None:
            return stacked(self.queries, model.size)
        if self.scopes == model.scopes:
            return None
        columns, rows = [np.zeros(0, int)], [np.zeros(0, int)]
        for position, scope in enumerate(self.scopes):
            home = model.parent(scope)
            columns.append(np.arange(*model.offsets[home : home + 2]))
            own = cells_within(model.cardinalities, scope, model.scopes[home])
            rows.append(self.offsets[position] + own)
        row, column = np.concatenate(rows), np.concatenate(columns)
        return csr_array((np.ones(len(row)), (row, column)), shape=(self.offsets[-1], model.size))

    def possible_rows(self) -> Any | None:
        """Return the matrix of the possible numbers alone; None for the identity, all cells of which are possible."""
        from scipy.sparse import eye_array

        if self.matrix is not None:
            return self.matrix[self.possible]
        identity: Any = eye_array(self.possible.size, format="csr")
        return None if self.possible.all() else identity[self.possible]

    @property
    def supported_cells(self) -> np.ndarray:
        """Mask of the cells of the model's cliques that may occur, shape (model size,)."""
        return np.ones(self.specification.size, bool) if self.supported is None else self.supported

    @cached_property
    def is_count(self) -> np.ndarray:
        """Whether each noisy number counts records, each at most once in a table; shape (size,)."""
        is_count = np.ones(self.offsets[-1], bool)
        if self.queries is not None:
            entries = stacked(self.queries, self.specification.size).tocoo()
            is_count[entries.coords[0][entries.data != 1]] = False
        return is_count

    def answers(self, counts: FloatArray) -> list[FloatArray]:
        """What each measurement says of counts of the model's cells, shape (..., cells): shape (..., *its shape)."""
        if self.queries is None:
            return [self.specification.project(counts, scope) for scope in self.scopes]
        lead = counts.shape[:-1]
        return [
            query.answers(counts).reshape(*lead, *shape)
            for query, shape in zip(self.queries, self.shapes, strict=True)
        ]

    def spread(self, per_table: Sequence[float]) -> FloatArray:
        """Repeat one number a table over the table's cells, shape (size,)."""
        return np.repeat(np.asarray(per_table, dtype=float), np.diff(self.offsets))

    @property
    def has_bounds(self) -> bool:
        """Whether some number is known only within bounds."""
        return any(law.kernel == "within" for law in self.noise)

    @cached_property
    def is_absolute(self) -> np.ndarray:
        """Whether the kernel of each cell's noise is absolute, rather than square, shape (size,)."""
        return self.spread([law.kernel == "absolute" for law in self.noise]) > 0

    @cached_property
    def noise_width(self) -> FloatArray:
        """B of each cell's absolute kernel, the standard deviation under a square one, records, shape (size,)."""
        laws = self.noise
        return self.spread(
            [law.scale if law.kernel == "absolute" else law.standard_deviation for law in laws]
        )

    @property
    def has_total(self) -> bool:
        """Whether the total is known to be more than its own standard error; estimates are worthless otherwise."""
        if not self.noise:
            return True
        return self.estimated_total >= max(1.0, self.total_standard_error)

    def engine(self, inference: Inference) -> MarginalEngine:
        """Marginals of the model's cliques."""
        return marginal_engine(self.specification.cardinalities, self.specification.scopes, kind=inference)

    def gathered(self, cells: FloatArray) -> FloatArray:
        """A x: the measured numbers of tables of the model's cliques, shape (size,)."""
        return cells if self.matrix is None else self.matrix @ cells

    def scattered(self, numbers: FloatArray) -> FloatArray:
        """A'g: what a potential for each measured number adds to those of the model's cells, shape (model size,)."""
        return numbers if self.matrix is None else self._transposed @ numbers

    @cached_property
    def _transposed(self) -> Any:
        assert self.matrix is not None
        return self.matrix.T.tocsr()

    @cached_property
    def is_exact(self) -> np.ndarray:
        """Whether each possible number was released without noise, shape (size,)."""
        return self.possible & (self.spread([law.variance == 0 for law in self.noise]) > 0)

    @cached_property
    def exact(self) -> tuple[Any, FloatArray] | None:
        """E and e: rows of A that have no noise, sparse, and their answers; None where all have some."""
        from scipy.sparse import eye_array

        if not self.is_exact.any():
            return None
        rows: Any = eye_array(self.possible.size, format="csr") if self.matrix is None else self.matrix
        return rows[self.is_exact], self.noisy_counts[self.is_exact]


def gather(
    releases: NoisyStatistics | Sequence[NoisyStatistics],
    *,
    needs_kernel: bool = True,
    takes_bounds: bool = False,
    population: Population = "one",
) -> Evidence:
    """Evidence of one release, or of several of one population, or of one model.

    Parameters
    ----------
    releases
        Noisy statistics.
    needs_kernel
        Whether the estimator's formulas rest on the noise's kernel. Only one that asks a law for no more than its
        variance, density or score may say no.
    takes_bounds
        Whether it takes counts that are known only within bounds.
    population
        ``"one"``: the releases are of the same people. ``"waves"``: each is of people of its own (`inference.waves`).

    Raises
    ------
    ArgumentError
        Something else than noisy statistics was given, or nothing, or noise without the kernel that is needed.
    ModelError
        The releases differ in the states of a shared variable, or in a public total.

    Warns
    -----
    DeclarationWarning
        No shared variable links some of the releases.
    GuaranteeWarning
        Their guarantees are of different units or neighbouring relations.
    """
    given = [releases] if isinstance(releases, NoisyStatistics) else list(_iterable(releases))
    if not given:
        raise ArgumentError("`fit` needs at least one release, got none.")
    for release in given:
        if not isinstance(release, NoisyStatistics):
            raise ArgumentError(
                f"`fit` takes releases of noisy statistics, got {type(release).__name__}; "
                "make one with a mechanism's release(network, data)."
            )
    _refuse_repeats(given)
    if needs_kernel:
        _refuse_unknown_kernels(given)
    if not takes_bounds and any(law.kernel == "within" for release in given for law in release.noise):
        raise ArgumentError(
            f"this estimator takes no counts within bounds, whose midpoint estimates nothing; {BOUNDS}."
        )
    is_waves = one_of("population", population, ("one", "waves")) == "waves"
    model = wave_specification(given) if is_waves else joint_specification(given)
    scopes, queries = ((), wave_queries(given, model)) if is_waves else _measured(given, model)
    total, error = wave_total(given) if is_waves else _pooled_total(given)
    public = public_totals(given) if is_waves else []
    supported = supported_cells(model)
    if queries is None:
        possible = [_possible(model, supported, scope) for scope in scopes]
    else:
        cells = np.ones(model.size) if supported is None else supported
        possible = [abs(stacked(queries, model.size)) @ cells > 0]
    evidence = Evidence(
        specification=model,
        scopes=scopes,
        queries=queries,
        noisy_counts=np.concatenate([np.zeros(0)] + [r.flat.astype(float) for r in given] + [public]),
        noise=(*(law for release in given for law in release.noise), *([NoNoise()] if public else [])),
        possible=np.concatenate([np.zeros(0, bool), *possible]),
        supported=supported,
        total=max(total, 1.0) if total == total else 1.0,
        estimated_total=total,
        total_standard_error=error,
        is_simulated=any(release.provenance.simulated for release in given),
        guarantees=_unlike_guarantees(given),
        rows_of_one=_rows_of_one(given),
        is_weighed=any("grid" in release.provenance.settings for release in given),
        wave_totals=tuple(release.estimated_total for release in given) if is_waves else (),
    )
    evidence = _agreeing(evidence)
    needs_total = queries is not None or evidence.has_bounds
    if needs_total and math.isinf(evidence.total_standard_error):
        raise ModelError(
            "the number of records must be told by a release of queries, but none of these tells it; measure a "
            "table, the empty parity or a coarsening into one group (counts within bounds do not tell it), or pass "
            "`total=` where the number is public."
        )
    return evidence


def _agreeing(evidence: Evidence) -> Evidence:
    """The same evidence, with the number of records that its answers without noise tell; they must agree."""
    if evidence.exact is None:
        return evidence
    model, error, estimate = evidence.specification, evidence.total_standard_error, evidence.estimated_total
    known = estimate if error == 0 else None
    total = agreed_total(model, *evidence.exact, ~evidence.supported_cells, known)
    if total is None or total == known:
        return evidence
    if abs(total - estimate) > _CONTRADICTION * error:
        raise ModelError(
            "the answers without noise tell another number of records than the noisy ones; correct them, or fit "
            "them apart."
        )
    total = round(total, 6)
    return replace(evidence, total=max(total, 1.0), estimated_total=total, total_standard_error=0.0)


def _measured(
    releases: Sequence[NoisyStatistics], model: ModelSpecification
) -> tuple[tuple[tuple[int, ...], ...], tuple[BoundQuery, ...] | None]:
    """Return scopes of tables, of which each of the model's cliques has one at least; or queries."""
    if not any(isinstance(release, NoisyMeasurements) for release in releases):
        cliques = [clique for release in releases for clique in release.specification.cliques]
        return tuple(tuple(model.domain.index(v) for v in clique) for clique in cliques), None
    queries = tuple(
        replace(each.query.bind(release.specification), model=model, asked_of=release.specification)
        for release in releases
        for each in release.measurements
    )
    scopes = tuple(query.positions[0] for query in queries if query.is_table)
    covered = {frozenset(scope) for scope in scopes}.issuperset(map(frozenset, model.scopes))
    return (scopes, None) if covered and len(scopes) == len(queries) else ((), queries)


def require_inference(inference: str) -> None:
    """Raise unless `inference` is one of the kinds of marginals."""
    one_of("inference", inference, ("exact", "loopy"))


def _iterable(releases: object) -> Sequence[NoisyStatistics]:
    if isinstance(releases, list | tuple):
        return releases
    remedy = "load_release(path) reads one from a file"
    if hasattr(
        releases, "statistics"
    ):  # what was learned is a model, and may hold the numbers it was fitted to
        has_tables = getattr(releases, "statistics", None) is not None
        remedy = (
            "give it what was measured, `.statistics`"
            if has_tables
            else "it is a model already; SelectMeasure also releases what it measured, to fit"
        )
    raise ArgumentError(
        f"`fit` takes a release of noisy tables or a list of them, got {type(releases).__name__}; {remedy}."
    )


def _refuse_repeats(releases: Sequence[NoisyStatistics]) -> None:
    """Raise if one release is given twice: its noise would be counted as two independent draws."""
    for position, release in enumerate(releases):
        for other in releases[:position]:
            has_noise = any(law.variance > 0 for law in release.noise)
            if release is other or (has_noise and release == other):
                raise ArgumentError(
                    "`fit` was given one release twice, which tells nothing more than once; pass each release once."
                )


def _refuse_unknown_kernels(releases: Sequence[NoisyStatistics]) -> None:
    """Raise where nothing says how the density of the noise falls: it must not be taken for another's."""
    for law in {law.name: law for release in releases for law in release.noise}.values():
        if law.kernel not in ("absolute", "square", "within") or not hasattr(law, "scale"):
            raise ArgumentError(
                "this estimator needs noise whose log density falls with the residual's absolute value or its "
                f"square, got the law {law.name!r}, whose `kernel` and `scale` say neither; use "
                "NaiveMLE, which takes any noise."
            )


def _rows_of_one(releases: Sequence[NoisyStatistics]) -> int:
    """How many rows of one person the releases count, with a warning where they are more than one."""
    settings = [release.provenance.settings for release in releases]
    # with weights 1/K a person counts as one record
    bounds = [one.get("at_most") for one in settings if "grid" not in one]
    most = max((bound for bound in bounds if isinstance(bound, int)), default=1)
    if most > 1:
        warnings.warn(
            f"the release counts up to {most} rows of one person, and a fit takes rows for independent: where those "
            f"of one person are alike, the sampling variance is up to {most} times as large, and intervals are too "
            "narrow unless the noise is the larger part of them.",
            ConsistencyWarning,
            stacklevel=5,
        )
    return most


def _unlike_guarantees(releases: Sequence[NoisyStatistics]) -> str:
    """Say, in a warning too, that guarantees of different units or neighbouring relations do not add up."""
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


def supported_cells(model: ModelSpecification) -> np.ndarray | None:
    """Mask of the cells of the cliques that some possible joint state reaches; None where all may occur.

    A structural zero can exclude cells of other cliques. They are found as the zero marginals of the uniform
    distribution; where that is too large, the declared zeros alone are used.
    """
    if model.possible is None:
        return None
    try:
        engine = marginal_engine(model.cardinalities, model.scopes)
        return engine.marginals(np.where(model.possible, 0.0, -np.inf))[1] > 0
    except ModelTooLargeError:
        return model.possible


def _possible(model: ModelSpecification, supported: np.ndarray | None, scope: tuple[int, ...]) -> np.ndarray:
    """Mask of a measured table's cells that some possible cell of its clique agrees with."""
    if supported is None:
        return np.ones(math.prod(model.cardinalities[v] for v in scope), bool)
    return model.project(supported, scope).ravel() > 0


def _pooled_total(releases: Sequence[NoisyStatistics]) -> tuple[float, float]:
    """Public total, or the precision-weighted mean of the releases' own estimates."""
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
            if release.total is None and gap > _CONTRADICTION * release.total_standard_error:
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
    if estimates[high] - estimates[low] > _CONTRADICTION * math.hypot(errors[low], errors[high]):
        raise ModelError(
            f"releases of one population must agree on its size, got {estimates[low]:,.0f} ± {errors[low]:,.0f} and "
            f"{estimates[high]:,.0f} ± {errors[high]:,.0f}; fit them apart."
        )
    precisions = 1 / errors**2
    return float(estimates @ precisions / precisions.sum()), float(precisions.sum() ** -0.5)
