"""Evidence: the measurements of one or several releases, as the estimators see them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from bayesprivmrf.checks import one_of
from bayesprivmrf.errors import (
    ModelError,
)
from bayesprivmrf.inference.criticism.agreement import agreed_total
from bayesprivmrf.inference.family import Inference, LogLinearFamily, family_of
from bayesprivmrf.inference.given_releases import (
    checked_releases,
    most_rows_of_one,
    of_one_population,
    of_waves,
    unlike_guarantees,
)
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within
from bayesprivmrf.noise.base import CONTRADICTION
from bayesprivmrf.noise.kernels import codes_of
from bayesprivmrf.privacy import NoiseDistribution, NoNoise
from bayesprivmrf.queries import BoundQuery
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.release.measurement import stacked

# Largest number of records that estimators fit: up to it, doubles hold a count to a thousandth of a record
LARGEST_TOTAL = 1e12
# Limits of the default prior of a private number of records: so wide that no fitted number is near one of them
WIDEST_RANGE = (1.0, 100 * LARGEST_TOTAL)


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
        Noise distribution of each table, or of each query.
    possible
        Cells that may occur, and answers that count one such cell at least, shape (size,).
    is_simulated
        Whether any release's noise was seeded.
    total
        The number of records N that estimators divide by: public, or `estimated_total`, at least 1.
    estimated_total, total_standard_error
        Pooled by precision over the releases, and its standard error, records; 0 for a public total.
    guarantees
        Why the releases' guarantees do not add up to one; empty where they do.
    rows_of_one
        The most rows of one person that were counted, where one may have several.
    is_weighed
        Whether the rows of a person with K rows count 1/K each.
    queries
        The queries that were measured, unless they are tables of each clique, and perhaps tables inside them.
    wave_totals
        Each wave's own estimate of its number of records; empty where the releases are of one population.
    wave_tables
        Of each measurement that is a whole table of one wave, the wave and the variable positions; otherwise None.
        Empty where the releases are of one population.
    """

    specification: ModelSpecification
    scopes: tuple[tuple[int, ...], ...]
    noisy_counts: FloatArray
    noise: tuple[NoiseDistribution, ...]
    possible: np.ndarray
    total: float
    estimated_total: float
    total_standard_error: float
    is_simulated: bool = False
    guarantees: str = ""
    rows_of_one: int = 1
    is_weighed: bool = False
    queries: tuple[BoundQuery, ...] | None = None
    wave_totals: tuple[float, ...] = ()
    wave_tables: tuple[tuple[int, tuple[int, ...]] | None, ...] = ()

    @cached_property
    def measured_scopes(self) -> tuple[tuple[int, ...] | None, ...]:
        """Scope of each measurement; None where it is no whole table of one scope."""
        if self.queries is None:
            return self.scopes
        return tuple(query.positions[0] if query.is_table else None for query in self.queries)

    def table_at(self, position: int) -> tuple[int | None, tuple[int, ...] | None]:
        """Return the wave and the scope of a measurement that is a whole table; None for each that it has not."""
        of_wave = self.wave_tables[position] if self.wave_tables else None
        return (None, self.measured_scopes[position]) if of_wave is None else of_wave

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

        A scope that lies in several cliques is read off the first one that holds it.
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

    @cached_property
    def rows(self) -> Any:
        """The matrix A, sparse, also where it is the identity."""
        from scipy.sparse import eye_array

        return eye_array(self.specification.size, format="csr") if self.matrix is None else self.matrix

    def name_of(self, position: int) -> str:
        """Name a measurement by its position among all given ones, and by its query."""
        scope = self.measured_scopes[position]
        if scope is None:
            assert self.queries is not None
            return f"measurement {position + 1}, {self.queries[position].query!r}"
        names = self.specification.domain.variables
        return f"measurement {position + 1}, of ({', '.join(str(names[v]) for v in scope)})"

    def possible_rows(self) -> Any | None:
        """Return the matrix of the possible numbers alone; None for the identity, all cells of which are possible."""
        return None if self.matrix is None and self.possible.all() else self.rows[self.possible]

    @cached_property
    def possible_numbers(self) -> tuple[Any, FloatArray, FloatArray]:
        """Rows of A of the possible numbers, sparse; the numbers y; and the variances of their noise."""
        noise = self.spread([law.variance for law in self.noise])
        return self.rows[self.possible].astype(float), self.noisy_counts[self.possible], noise[self.possible]

    @property
    def family(self) -> LogLinearFamily:
        """The distributions that the model allows: what estimators know of the declaration."""
        return family_of(self.specification)

    @property
    def supported(self) -> np.ndarray | None:
        """Mask of the cells of the model's cliques that may occur, shape (model size,); None where all may."""
        return self.family.supported

    @property
    def supported_cells(self) -> np.ndarray:
        """Mask of the cells of the model's cliques that may occur, shape (model size,)."""
        return np.isfinite(self.family.base)

    @cached_property
    def is_count(self) -> np.ndarray:
        """Mask of the noisy numbers that count records, each at most once in a table; shape (size,)."""
        is_count = np.ones(self.offsets[-1], bool)
        if self.queries is not None:
            entries = stacked(self.queries, self.specification.size).tocoo()
            is_count[entries.coords[0][entries.data != 1]] = False
        return is_count

    def answers(self, counts: FloatArray) -> list[FloatArray]:
        """Return each measurement's exact answer, shape ``(..., *its shape)``, for counts of shape (..., cells)."""
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
        """True if some number is known only within bounds."""
        return any(law.kernel == "within" for law in self.noise)

    @cached_property
    def kernels(self) -> IntArray:
        """Code of each number's kernel, -1 without one, shape (size,); see `noise.kernels`."""
        return np.repeat(codes_of([law.kernel for law in self.noise]), np.diff(self.offsets))

    @cached_property
    def noise_width(self) -> FloatArray:
        """Scale of each number's kernel, the standard deviation under a square one, records, shape (size,)."""
        normal = (None, "square", "within")
        laws = self.noise
        return self.spread([law.standard_deviation if law.kernel in normal else law.scale for law in laws])

    @property
    def has_total(self) -> bool:
        """True if the total exceeds its own standard error; otherwise estimates are worthless."""
        if not self.noise:
            return True
        return self.estimated_total >= max(1.0, self.total_standard_error)

    def engine(self, inference: Inference) -> MarginalEngine:
        """Return the engine for marginals of the model's cliques."""
        return self.family.engine(inference)

    def gathered(self, cells: FloatArray) -> FloatArray:
        """Return A x, the exact measured numbers of tables x of the model's cliques, shape (size,)."""
        return cells if self.matrix is None else self.matrix @ cells

    def scattered(self, numbers: FloatArray) -> FloatArray:
        """Return A'g, the cells' potentials from potentials g of the measured numbers, shape (model size,)."""
        return numbers if self.matrix is None else self._transposed @ numbers

    @cached_property
    def _transposed(self) -> Any:
        assert self.matrix is not None
        return self.matrix.T.tocsr()

    @property
    def of_records(self) -> tuple[str, ...]:
        """Assumptions of a fit on the records, besides that of a simple random sample: one sentence each."""
        weighed = "The records are one row drawn from each person, whose K rows weigh 1/K each."
        several = f"Up to {self.rows_of_one} rows of one person count as independent records."
        return (weighed,) if self.is_weighed else (several,) if self.rows_of_one > 1 else ()

    @cached_property
    def is_exact(self) -> np.ndarray:
        """Mask of the possible numbers that were released without noise, shape (size,)."""
        return self.possible & (self.spread([law.variance == 0 for law in self.noise]) > 0)

    @cached_property
    def exact(self) -> tuple[Any, FloatArray] | None:
        """E and e: rows of A that have no noise, sparse, and their answers; None where all have some."""
        return (self.rows[self.is_exact], self.noisy_counts[self.is_exact]) if self.is_exact.any() else None


def gather(
    releases: NoisyStatistics | Sequence[NoisyStatistics],
    *,
    needs_kernel: bool = True,
    takes_bounds: bool = False,
    population: Population = "one",
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
        Whether it takes counts that are known only within bounds.
    population
        ``"one"``: the releases are of the same people. ``"waves"``: each is of people of its own
        (`bayesprivmrf.inference.given_releases`).

    Raises
    ------
    ArgumentError
        Something other than noisy statistics was given, or nothing, or noise without the kernel that is needed.
    ModelError
        The releases differ in the states of a shared variable, or in a public total, or hold more than
        `LARGEST_TOTAL` records.

    Warns
    -----
    DeclarationWarning
        No shared variable links some of the releases.
    GuaranteeWarning
        Their guarantees are of different units or neighbouring relations.
    """
    given = checked_releases(releases, needs_kernel=needs_kernel, takes_bounds=takes_bounds)
    is_waves = one_of("population", population, ("one", "waves")) == "waves"
    joint = of_waves(given) if is_waves else of_one_population(given)
    model, total, error = joint["specification"], joint["estimated_total"], joint["total_standard_error"]
    public = [float(one.total) for one in given if is_waves and one.total is not None]
    if total > LARGEST_TOTAL + CONTRADICTION * error:
        raise ModelError(
            f"the releases must hold at most {LARGEST_TOTAL:,.0f} records, got about {total:.3g}; check that their "
            "tables are counts of records, or fit parts of the population."
        )
    people = [release.person_rows for release in given if release.person_rows is not None]
    cells = np.isfinite(family_of(model).base).astype(float)
    if "queries" in joint:
        possible = abs(stacked(joint["queries"], model.size)) @ cells > 0
    else:
        parts = [model.project(cells, scope).ravel() for scope in joint["scopes"]]
        possible = np.concatenate([np.zeros(0), *parts]) > 0
    evidence = Evidence(
        **joint,
        noisy_counts=np.concatenate([np.zeros(0), *(one.flat.astype(float) for one in given), public]),
        noise=(*(law for release in given for law in release.noise), *([NoNoise()] if public else [])),
        possible=possible,
        total=max(total, 1.0) if total == total else 1.0,
        is_simulated=any(release.provenance.simulated for release in given),
        guarantees=unlike_guarantees(given),
        rows_of_one=most_rows_of_one(people),
        is_weighed=any(rows.is_weighed for rows in people),
    )
    evidence = _agreeing(evidence)
    needs_total = evidence.queries is not None or evidence.has_bounds
    if needs_total and math.isinf(evidence.total_standard_error):
        raise ModelError(
            "the number of records must be told by a release of queries, but none of these tells it; measure a "
            "table, the empty parity or a coarsening into one group (counts within bounds do not tell it), or pass "
            "`total=` where the number is public."
        )
    return evidence


def _agreeing(evidence: Evidence) -> Evidence:
    """Return the evidence with the number of records that its answers without noise determine; they must agree."""
    if evidence.exact is None:
        return evidence
    model, error, estimate = evidence.specification, evidence.total_standard_error, evidence.estimated_total
    known = estimate if error == 0 else None
    total = agreed_total(model, *evidence.exact, ~evidence.supported_cells, known)
    if total is None or total == known:
        return evidence
    if abs(total - estimate) > CONTRADICTION * error:
        raise ModelError(
            "the answers without noise tell another number of records than the noisy ones; correct them, or fit "
            "them apart."
        )
    total = round(total, 6)
    return replace(evidence, total=max(total, 1.0), estimated_total=total, total_standard_error=0.0)


def require_inference(inference: str) -> None:
    """Raise unless `inference` is one of the kinds of marginals."""
    one_of("inference", inference, ("exact", "loopy"))
