r"""Evidence: the measurements of one or several releases, and the model's family, as the estimators see them.

A declared model is the family of distributions with the potentials

.. math:: θ = θ_0 + D β ,

D being the map from zero-sum coordinates (`bayesprivmrf.model.ties.coordinates_of`) and the base :math:`θ_0` being 0,
or minus infinity at cells that cannot occur. Estimators, posteriors and tests of fit read the family from
`Evidence.family`, so that a feature that restricts the map or shifts the base reaches all of them. From
`Evidence.specification` they read the variables and tables, and which kind of model it is: whether it is smaller than
its tables, restricts its potentials, or shares transitions. `bayesprivmrf.inference.given_releases.gather` makes the
evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

from bayesprivmrf.checks import one_of
from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.given_model import MeasuredNumbers
from bayesprivmrf.inference.optimize import PotentialFamily, match_marginals
from bayesprivmrf.marginals import MarginalEngine, marginal_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.cliques import minimum_norm_potentials
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within
from bayesprivmrf.model.ties import coordinates_of, shared_basis
from bayesprivmrf.noise.kernels import SQUARE, TABLED, code_of
from bayesprivmrf.noise.likelihood import Likelihood
from bayesprivmrf.queries import BoundQuery
from bayesprivmrf.release.measurement import stacked

# Largest number of records that estimators fit: up to it, doubles hold a count to a thousandth of a record
LARGEST_TOTAL = 1e12
# Limits of the default prior of a private number of records: so wide that no fitted number is near one of them
WIDEST_RANGE = (1.0, 100 * LARGEST_TOTAL)
# Number of fits before the last one that give the mean counts for the variances of rules. Arbitrary: the second fit
# moves means by much less than their errors.
_FITS = 2
# Error of the marginals by which the potentials of interactions are found; below all that is shown
_MATCHED = 1e-10

type Population = Literal["one", "waves"]
type Inference = Literal["exact", "loopy"]


@dataclass(frozen=True, eq=False)
class LogLinearFamily:
    """All distributions of a declared model, in zero-sum coordinates β; `family_of` makes it.

    Parameters
    ----------
    model
        The declared model.
    """

    model: ModelSpecification

    @cached_property
    def supported(self) -> np.ndarray | None:
        """Mask of the clique cells that some possible joint state reaches; None if all may occur.

        A structural zero can exclude cells of other cliques. They are found as the zero marginals of the uniform
        distribution; where that is too large, the declared zeros alone are used.
        """
        if self.model.possible is None:
            return None
        try:
            return (
                self.engine("exact").marginals(np.where(self.model.possible, 0.0, -np.inf))[1] > 0
            )
        except ModelTooLargeError:
            return self.model.possible

    @cached_property
    def base(self) -> FloatArray:
        """Potentials at β = 0, shape (model size,): 0, or minus infinity at cells that cannot occur."""
        base = np.zeros(self.model.size)
        if self.supported is not None:
            base[~self.supported] = -np.inf
        return base

    @cached_property
    def effects(self) -> Effects:
        """Zero-sum coordinates of the potentials, restricted as the model declares."""
        return coordinates_of(self.model)

    @property
    def is_free(self) -> bool:
        """True if the coordinates reach every distribution of the cliques."""
        return self.effects.size == self.effects.full.size

    @cached_property
    def basis(self) -> Any | None:
        """Sparse B of the potentials θ_0 + B β over shared tables or scores; None without restrictions."""
        return shared_basis(self.model)

    def potentials(self, beta: FloatArray) -> FloatArray:
        """Return potentials of the model's cliques, nats, shape (..., d) to (..., model size)."""
        return self.effects.potentials(beta) + self.base

    def coordinates(self, potentials: FloatArray) -> FloatArray:
        """Return the coordinates nearest to potentials, minus infinity at impossible cells; shape (d,)."""
        inside = np.isfinite(potentials) & np.isfinite(self.base)
        return self.effects.coordinates(
            np.where(inside, potentials, 0.0) - np.where(inside, self.base, 0.0)
        )

    def engine(self, inference: Inference) -> MarginalEngine:
        """Return the engine for marginals of the model's cliques."""
        return marginal_engine(self.model.cardinalities, self.model.scopes, kind=inference)

    def of_interactions(self, potentials: FloatArray) -> FloatArray:
        """Return the potentials of the interactions that give the distribution of potentials of the cliques, nats.

        They are of smallest norm, shape (size of `ModelSpecification.believed`); the given ones, if the cliques are
        the interactions. With structural zeros, effects are not read off the possible cells of a table. The
        distribution is then found by the marginals of its interactions, which determine it.
        """
        own = self.model.believed
        if own is self.model:
            return potentials
        family = family_of(own)
        found = family.potentials(self.coordinates(potentials))
        if self.supported is not None:
            marginals = self.engine("exact").marginals(potentials)[1]
            found, _, _ = match_marginals(
                PotentialFamily(family.engine("exact"), family.base, family.basis),
                self.model.on_interactions(marginals),
                tolerance=_MATCHED,
                start=found if family.basis is None else None,
            )
        return minimum_norm_potentials(own.cardinalities, own.scopes, found)

    def on_cliques(self, potentials: FloatArray) -> FloatArray:
        """Return potentials of the cliques that add up potentials of the interactions; see `of_interactions`."""
        model = self.model
        own = model.believed
        if own is model:
            return potentials
        flat = self.base.copy()
        for scope, (start, stop) in zip(own.scopes, pairwise(own.offsets), strict=True):
            home = model.parent(scope)
            cells = cells_within(model.cardinalities, scope, model.scopes[home])
            flat[slice(*model.offsets[home : home + 2])] += potentials[start:stop][cells]
        return flat


@lru_cache(maxsize=32)
def family_of(model: ModelSpecification) -> LogLinearFamily:
    """Return the log-linear family of a model; recent families are cached."""
    return LogLinearFamily(model)


class EvidenceParts(TypedDict):
    """Fields of `Evidence` that releases and a model determine, by name; `Evidence` describes them."""

    specification: ModelSpecification
    scopes: tuple[tuple[int, ...], ...]
    estimated_total: float
    total_standard_error: float
    noisy_counts: NotRequired[FloatArray]
    published: NotRequired[FloatArray]
    noise: NotRequired[tuple[Likelihood, ...]]
    queries: NotRequired[tuple[BoundQuery, ...]]
    wave_totals: NotRequired[tuple[float, ...]]
    wave_tables: NotRequired[tuple[tuple[int, tuple[int, ...]] | None, ...]]
    is_given: NotRequired[bool]
    distant: NotRequired[tuple[MeasuredNumbers, ...]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """Noisy tables of one population.

    Parameters
    ----------
    specification
        The model over the tables that hold all measured scopes and all cliques of the model. A solution has its
        `believed` (see `ModelSpecification`).
    scopes
        Scope of each noisy table, variable positions in axis order; a scope that several releases measured
        appears once for each. Empty where the evidence is of queries.
    noisy_counts
        y, all tables or answers, flat, shape (size,), records. Under a rule that depends on the count, the count
        whose mean is the published number.
    noise
        Noise distribution, or other likelihood, of each table, or of each query.
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
    is_given
        Whether the model was stated apart from the tables that the releases measured: it was given to `fit`, or a
        release measured scopes that lie in no clique that it declares.
    published
        The numbers as published, shape (size,). They differ from `noisy_counts` only under rules that depend on the
        count.
    distant
        Measurements of distant times of a chain with shared transitions. The chain is fitted to the tables of its
        steps, and criticism compares these measurements with the fit (`bayesprivmrf.inference.criticism.order`).
    fitted
        Counts at which the variances of rules that depend on the count are evaluated, shape (size,). None evaluates
        them one record above `noisy_counts`, so that a published zero is not certain.
    rule_variances
        Variances of the normal densities that stand for rules, records squared, shape (size,); `noisy_counts` are
        then their means. None where the variances are those at `fitted`.
    """

    specification: ModelSpecification
    scopes: tuple[tuple[int, ...], ...]
    noisy_counts: FloatArray
    published: FloatArray
    noise: tuple[Likelihood, ...]
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
    is_given: bool = False
    distant: tuple[MeasuredNumbers, ...] = ()
    fitted: FloatArray | None = None
    rule_variances: FloatArray | None = None

    @cached_property
    def measured_scopes(self) -> tuple[tuple[int, ...] | None, ...]:
        """Scope of each measurement; None where it is no whole table of one scope."""
        if self.queries is None:
            return self.scopes
        return tuple(query.positions[0] if query.is_table else None for query in self.queries)

    def table_at(self, position: int) -> tuple[int | None, tuple[int, ...] | None]:
        """Return the wave and the scope of a measurement that is a whole table; None for each that it has not."""
        if self.wave_tables:
            of_wave = self.wave_tables[position]
        else:
            of_wave = None
        if of_wave is None:
            return (None, self.measured_scopes[position])
        return of_wave

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each measurement: of a table, a number of states an axis; otherwise the number of rows."""
        cards = self.specification.cardinalities
        queries = self.queries or ()
        return tuple(
            (len(queries[position]),) if scope is None else tuple(cards[v] for v in scope)
            for position, scope in enumerate(self.measured_scopes)
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
        columns = [np.zeros(0, int)]
        rows = [np.zeros(0, int)]
        for position, scope in enumerate(self.scopes):
            home = model.parent(scope)
            columns.append(np.arange(*model.offsets[home : home + 2]))
            own = cells_within(model.cardinalities, scope, model.scopes[home])
            rows.append(self.offsets[position] + own)
        row = np.concatenate(rows)
        column = np.concatenate(columns)
        return csr_array((np.ones(len(row)), (row, column)), shape=(self.offsets[-1], model.size))

    @cached_property
    def rows(self) -> Any:
        """The matrix A, sparse, also where it is the identity."""
        from scipy.sparse import eye_array

        if self.matrix is None:
            return eye_array(self.specification.size, format="csr")
        return self.matrix

    def name_of(self, position: int) -> str:
        """Name a measurement by its position among all given ones, and by its query."""
        scope = self.measured_scopes[position]
        if scope is None:
            return f"measurement {position + 1}, {(self.queries or ())[position].query!r}"
        names = self.specification.domain.variables
        return f"measurement {position + 1}, of ({', '.join(str(names[v]) for v in scope)})"

    def possible_rows(self) -> Any | None:
        """Return the matrix of the possible numbers alone; None for the identity, all cells of which are possible."""
        if self.matrix is None and self.possible.all():
            return None
        return self.rows[self.possible]

    @cached_property
    def possible_numbers(self) -> tuple[Any, FloatArray, FloatArray]:
        """Rows of A of the possible numbers, sparse; the numbers y; and the variances of their noise."""
        return (
            self.rows[self.possible].astype(float),
            self.noisy_counts[self.possible],
            self.noise_variance[self.possible],
        )

    @property
    def family(self) -> LogLinearFamily:
        """The distributions that the model allows."""
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
        entries = self.rows.tocoo()
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

    # what the likelihoods can do

    @cached_property
    def is_bounded(self) -> np.ndarray:
        """Mask of the numbers that are known only within bounds, shape (size,)."""
        return self.spread([law.is_bounded for law in self.noise]) > 0

    @cached_property
    def is_tabled(self) -> np.ndarray:
        """Mask of the numbers whose probability is a table over whole counts, shape (size,)."""
        return self.spread([law.is_tabled for law in self.noise]) > 0

    @property
    def is_coarse(self) -> bool:
        """True if a normal density is a poor stand-in for the rule of some number."""
        blocks = pairwise(self.offsets)
        return any(
            law.is_coarse(self.published[a:b]).any()
            for law, (a, b) in zip(self.noise, blocks, strict=True)
            if law.is_tabled
        )

    @cached_property
    def range_ends(self) -> tuple[FloatArray, FloatArray]:
        """Ends of the numbers that are ranges, and the noisy counts elsewhere, records, shape (size,) each."""
        low = self.noisy_counts.copy()
        high = self.noisy_counts.copy()
        for law, (a, b) in zip(self.noise, pairwise(self.offsets), strict=True):
            own = self.is_range[a:b]
            if own.any():
                low[a:b][own], high[a:b][own] = law.allowed(self.published[a:b][own])
        return low, high

    @cached_property
    def is_range(self) -> np.ndarray:
        """Mask of the numbers that tests of fit take for ranges of counts, shape (size,)."""
        found = np.zeros(self.offsets[-1], dtype=bool)
        for law, (a, b) in zip(self.noise, pairwise(self.offsets), strict=True):
            if law.is_tabled:
                found[a:b] = law.gives_range | law.is_coarse(self.published[a:b])
        return found

    def nearest(self, means: FloatArray) -> FloatArray:
        """Return the number that each expected one is compared with by tests of fit, records, shape (size,).

        It is the noisy count, or, of a range, the nearest count that the range allows. A range is no noisy count: its
        middle is far from most counts that a wide range allows, however well they fit.
        """
        return np.clip(means, *self.range_ends)

    @property
    def needs_whole_records(self) -> bool:
        """True if some number is exact, bounded or tabled, which relaxed counts do not represent."""
        return bool(self.is_bounded.any() or self.is_exact.any() or self.is_tabled.any())

    @property
    def is_additive(self) -> bool:
        """True if no number's distribution around the count depends on the count."""
        return all(law.is_additive for law in self.noise)

    @cached_property
    def kernels(self) -> IntArray:
        """Code of each number's kernel, -1 without one, shape (size,); see `noise.kernels`."""
        codes = [code_of(law.smooth) for law in self.noise]
        return np.repeat(np.array(codes, dtype=np.int64), np.diff(self.offsets))

    @cached_property
    def sampled_kernels(self) -> IntArray:
        """Code of each number's kernel in samplers of whole counts, before bounds, shape (size,); or `TABLED`."""
        codes = [TABLED if law.is_tabled else code_of(law.base_law.smooth) for law in self.noise]
        return np.repeat(np.array(codes, dtype=np.int64), np.diff(self.offsets))

    # each number's noise, at the counts of a fit under rules that depend on the count

    def _of_numbers(self, of: Callable[[Likelihood, FloatArray], FloatArray]) -> FloatArray:
        """Return a property of each likelihood at the counts of its numbers, shape (size,)."""
        counts = self.fitted
        if counts is None:
            counts = np.maximum(self.noisy_counts, 0.0) + 1
        blocks = pairwise(self.offsets)
        parts = [of(law, counts[a:b]) for law, (a, b) in zip(self.noise, blocks, strict=True)]
        return np.concatenate([np.zeros(0), *parts])

    @cached_property
    def noise_variance(self) -> FloatArray:
        """Variance of each number around the count, records squared, shape (size,)."""
        if self.rule_variances is not None:
            return self.rule_variances
        return self._of_numbers(lambda law, counts: law.error_variance(counts))

    @cached_property
    def noise_deviation(self) -> FloatArray:
        """Standard deviation of each number around the count, records, shape (size,)."""
        return np.sqrt(self.noise_variance)

    @property
    def least_deviation(self) -> float:
        """Smallest standard deviation of the numbers with noise, records; 0 without any."""
        noisy = self.noise_deviation[self.noise_deviation > 0]
        if noisy.size:
            return float(noisy.min())
        return 0.0

    @cached_property
    def noise_scale(self) -> FloatArray:
        """Scale of each number's kernel, records, shape (size,)."""
        scales = self._of_numbers(lambda law, counts: law.widths(counts))
        if self.rule_variances is not None:
            return np.where(self.is_tabled, np.sqrt(self.rule_variances), scales)
        return scales

    @cached_property
    def noise_width(self) -> FloatArray:
        """Scale of each number's kernel, the standard deviation under a square one, records, shape (size,)."""
        return np.where(self.kernels <= SQUARE, self.noise_deviation, self.noise_scale)

    def at_means(self, marginals: FloatArray) -> Evidence:
        """Return the evidence with rules evaluated at the mean counts of marginals of shape (model size,).

        Numbers are the counts that they estimate, also where normal densities stood for their rules: the centers of
        these depend on the fit, so that they do not tell whether numbers contradict each other or the fit.
        """
        if self.is_additive:
            return self
        numbers = self.noisy_counts.copy()
        for law, (a, b) in zip(self.noise, pairwise(self.offsets), strict=True):
            if law.is_tabled:
                numbers[a:b] = law.estimate(self.published[a:b])
        fitted = self.total * self.gathered(marginals)
        return replace(self, noisy_counts=numbers, fitted=fitted, rule_variances=None)

    def _replaced_at_means(self, marginals: FloatArray) -> Evidence:
        """Return the evidence with a normal density in place of each rule, at the mean counts of marginals."""
        found = self.at_means(marginals)
        assert found.fitted is not None
        centers = found.noisy_counts.copy()
        variances = found.noise_variance.copy()
        for law, (a, b) in zip(self.noise, pairwise(self.offsets), strict=True):
            if law.is_tabled:
                own = law.normal_given(self.published[a:b], found.fitted[a:b])
                centers[a:b], variances[a:b] = own
        return replace(found, noisy_counts=centers, rule_variances=variances)

    def at_fit(self, marginals_of: Callable[[Evidence], FloatArray]) -> Evidence:
        """Return the evidence with normal densities in place of rules, at the mean counts of a repeated fit.

        A variance that is evaluated at a number itself is small where the number is small, so that small numbers
        would weigh too much. At the means of a fit the variance does not depend on the number's error. Where some
        range is wide, the first fit has the densities at the means of the uniform distribution.

        Parameters
        ----------
        marginals_of
            The fit: it takes evidence and returns marginals, shape (model size,).
        """
        found = self
        if self.is_additive:
            return found
        if self.is_coarse:
            # the middle of a wide range may be far above all counts that the total leaves room for
            found = self._replaced_at_means(self._uniform)
        for _ in range(_FITS):
            found = self._replaced_at_means(marginals_of(found))
        return found

    @property
    def _uniform(self) -> FloatArray:
        """Marginals of the uniform distribution over all joint states, shape (model size,)."""
        sizes = np.diff(self.specification.offsets)
        return np.repeat(1 / sizes, sizes)

    @property
    def has_total(self) -> bool:
        """True if the total exceeds its own standard error; otherwise estimates are worthless."""
        if not self.noise:
            return True
        return self.estimated_total >= max(1.0, self.total_standard_error)

    def engine(self, inference: Inference) -> MarginalEngine:
        """Return the engine for marginals of the model's cliques."""
        return self.family.engine(inference)

    def table_noise(self, variables: Sequence[int], cells: int) -> float:
        """Return the mean noise variance of one cell of some variables' table, records squared.

        The table is added up from the most accurate measured table that holds the variables. The result is infinite
        where none does.

        Parameters
        ----------
        variables
            Positions of the variables.
        cells
            Number of cells of their table.
        """
        measured = zip(self.measured_scopes, self.shapes, self.offsets, strict=False)
        # a margin of a table adds up the noise of its cells
        noise = [
            self.noise_variance[start : start + math.prod(shape)].sum() / cells
            for scope, shape, start in measured
            if scope is not None and set(variables) <= set(scope)
        ]
        return float(min(noise, default=math.inf))

    def gathered(self, cells: FloatArray) -> FloatArray:
        """Return A x, the exact measured numbers of tables x of the model's cliques, shape (size,)."""
        if self.matrix is None:
            return cells
        return self.matrix @ cells

    def scattered(self, numbers: FloatArray) -> FloatArray:
        """Return A'g, the cells' potentials from potentials g of the measured numbers, shape (model size,)."""
        if self.matrix is None:
            return numbers
        return self._transposed @ numbers

    @cached_property
    def _transposed(self) -> Any:
        return self.rows.T.tocsr()

    @property
    def of_records(self) -> tuple[str, ...]:
        """Assumptions of a fit on the records, besides that of a simple random sample: one sentence each."""
        weighed = "The records are one row drawn from each person, whose K rows weigh 1/K each."
        several = f"Up to {self.rows_of_one} rows of one person count as independent records."
        if self.is_weighed:
            return (weighed,)
        if self.rows_of_one > 1:
            return (several,)
        return ()

    @cached_property
    def is_exact(self) -> np.ndarray:
        """Mask of the possible numbers that were released without noise, shape (size,)."""
        return self.possible & (self.spread([law.is_exact for law in self.noise]) > 0)

    @cached_property
    def exact(self) -> tuple[Any, FloatArray] | None:
        """E and e: rows of A that have no noise, sparse, and their answers; None where all have some."""
        if self.is_exact.any():
            return (self.rows[self.is_exact], self.noisy_counts[self.is_exact])
        return None

    @property
    def constraints(self) -> tuple[Any, FloatArray] | None:
        """Constraints E n = e that an estimate must satisfy: the answers without noise, as in `exact`.

        None under a model smaller than its measured tables. There they are facts about the records, which sampling
        separates from the distribution.
        """
        if self.specification.interactions is not None:
            return None
        return self.exact


def require_inference(inference: str) -> None:
    """Raise unless `inference` is one of the kinds of marginals."""
    one_of("inference", inference, ("exact", "loopy"))
