r"""Intervals for the tables of a model learned in rounds, from the noisy means of its effects.

`release.solution.interval(variables)` computes them. The `solution` is made from the model's potentials, the noisy
tables (the release's `statistics`) and the number of records that these determine. Nothing else is used, so intervals
cost no budget, and a release read from a file has the same ones. Marginals are exact, by elimination in the model of
merged states (`bayesprivmrf.learning.select_measure.measured_tables`).

The error of a cell of merged states, as an estimate of the share in the records, is that of the means of its effects
and of the number of records (`bayesprivmrf.learning.select_measure.cell_errors`, points 1 to 3 there). Two parts are
added:

1. **Sampling.** A population's probability differs from the records' share by the variance :math:`p (1 - p) / N`.
2. **Rare states that were merged.** The share :math:`s` of a state in its group is that of noisy counts which were
   made positive: where most states of a group are empty, their noise takes from the others. The interval of a share
   is therefore that of the state's own noisy count y, :math:`[(y - z\sigma_1)_+, (y + z\sigma_1)_+] / n_g`, widened
   to hold :math:`s`. So a table of one variable has at a merged state the interval of its own count, which holds at
   its level whatever the other states are. In a table of several variables such a state is taken to depend on the
   others as its group does: nothing was measured that could say otherwise, and these rows are doubtful.

The deviations below and above the estimate :math:`q_g \prod_v s_v` combine those of the group's probability and of
the shares as independent ones; the interval is cut off at 0 and 1, and contains these ends unless the measured
numbers exclude them without a prior (`cut_limits`). `benchmarks/learning_rounds_intervals.py` measures the coverage.
Pairs that were not measured have a bound on their total variation
(`bayesprivmrf.mechanisms.select_measure.unmeasured`), which their notes state.

**Conditional probabilities** are ratios of sums over cells, whose errors are those of the cells to first order
(`bayesprivmrf.learning.select_measure.cells`). With m the probability of the given states, sampling adds p (1 - p) /
(N m). A given state that is merged with states not given adds the error of its share in the group. The approximation
is poor if the noise may hide that no record has the given states, and such rows are doubtful.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.asked import Asked
from bayesprivmrf.inference.interval_frame import Mark, RowStatus
from bayesprivmrf.inference.limits import Limits, cut_limits, excluded, whole_limits
from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.inference.loglinear_fit.scale_prior import DENSE_LIMIT
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.interruption import INTERRUPTED_BY
from bayesprivmrf.learning.models.solution import CLEAR, LearnedSolution
from bayesprivmrf.learning.select_measure.cell_errors import (
    NOT_MEASURED,
    CellErrors,
    given_back,
    marks_of_unmeasured,
)
from bayesprivmrf.learning.select_measure.cells import Cells
from bayesprivmrf.learning.select_measure.measured_tables import (
    MeasuredTable,
    Merging,
    NoisyTable,
    single_counts,
)
from bayesprivmrf.learning.select_measure.round_fit import agreeing, number_of_records
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.model.domain import Condition, Label, Variable
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.release import NoisyStatistics

# Key in the details of a release learned in rounds: the number of tables that each round measured
TABLES_BY_ROUND = "tables_by_round"

# Most merged states that a row's note names
_NAMED = 4


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RoundsSolution(LearnedSolution):
    """Distribution that `SelectMeasure` learned in rounds, with intervals.

    Parameters
    ----------
    statistics
        The tables that were measured.
    total
        Number of records, by what was measured.
    groups
        Group of each declared state, by variable; ``None`` of releases that do not hold them.
    """

    statistics: NoisyStatistics
    total: float
    groups: tuple[tuple[int, ...], ...] | None = None

    @property
    def merged_states(self) -> Mapping[Variable, tuple[tuple[Label, ...], ...]]:
        """Declared states that the fit merges, by variable."""
        domain = self.specification.domain
        merging = self._merging
        return {
            variable: tuple(tuple(states[s] for s in part) for part in merging.parts(v))
            for v, (variable, states) in enumerate(
                zip(domain.variables, domain.states, strict=True)
            )
            if merging.is_merged(v)
        }

    @property
    def _assumed(self) -> tuple[str, ...]:
        """Assumptions about the records, merged states and fixed scales."""
        variables = range(len(self.specification.cardinalities))
        merged = [
            f"{note}, and depend on other variables alike."
            for _, _, note in self._merged_notes(variables)
        ]
        model = self._merged.specification
        fixed = []
        if (size := Effects.of(model.cardinalities, model.scopes).size) > DENSE_LIMIT:
            fixed.append(
                f"Effects of one order have the same prior scale, because the model has {size:,} coordinates and "
                f"scales are learned up to {DENSE_LIMIT:,}; strong dependence may be understated."
            )
        return (*self.of_records, *merged, *fixed)

    def _limits(self, asked: Asked) -> Limits:
        """Return limits of the probabilities of some cells; the module has the derivation.

        Where no measured table contains a pair, its dependence follows from the model. The note then states a bound
        on the total variation of its table, valid with a probability of 90 %, if a round gives one. The status is
        ``"model"`` where the interval reaches as far as the bound, ``"doubtful"`` where the bound is at most 0.05,
        and otherwise ``"not trusted"``. Rows are also ``"not trusted"`` for three and more variables that were not
        measured together, and where the model is not trusted or its last fit failed, so that the last tables are not
        in it. Rows are ``"doubtful"`` where that fit was cut short, and, in a table of several variables, for a state
        that was merged with other rare states, because the dependence of its group is used. Given states count as
        part of the table. Rows are also ``"doubtful"`` where the noise may hide that no record has the given states.
        """
        from scipy.special import ndtri

        if asked.bound is not None:
            # raises: a model of rounds takes no query
            self.specification.positions_of(asked.bound.query)
        domain = self.specification.domain
        prob = asked.prob
        query = asked.variables
        condition = asked.given
        is_of_records = asked.of == "records"
        if is_of_records and condition:
            raise ArgumentError(
                "`given` must be left out with of='records', because these intervals are of joint numbers; "
                "take of='population'."
            )
        scope = tuple(sorted(query))
        estimate = self._marginal_table(scope, condition)
        z = float(ndtri(0.5 + prob / 2))
        cells = self._cells(scope, condition)
        below, above, plain, missing = self._variances(cells, condition, z)
        reach = z * np.sqrt(np.minimum(below, above))
        if not is_of_records:
            sampling = estimate * (1 - estimate) / (self.total * cells.mass)
            below = below + sampling
            above = above + sampling
        else:  # a count is not divided by N, so an error of N moves it by 1/k instead of p - 1/k
            moved = np.maximum(estimate * (2 / estimate.size - estimate), 0.0)
            moved = moved * (self._number[1] / self.total) ** 2
            below = below + moved
            above = above + moved
        axes = [scope.index(v) for v in query]
        held = estimate * (1 - excluded(estimate, z * np.sqrt(plain)))
        if condition:
            outside = self._held_outside(cells, condition, z)
            # rows gain from one another, or from what their own states may hold in states that are not given
            gained = (
                given_back(np.stack([cells.mass * held, outside], axis=-1))[..., 0] / cells.mass**2
            )
        else:
            gained = given_back(held)
        above = above + gained
        limits = cut_limits(estimate, np.sqrt(below), np.sqrt(above), prob, plain=np.sqrt(plain))
        shape = [domain.cardinalities[v] for v in query]
        marks = self._marks_of_given(cells, condition, z)
        marks += [
            Mark(RowStatus.DOUBTFUL, note, np.isin(np.indices(shape)[axis], part))
            for axis, part, note in (self._merged_notes(query) if len(cells.scope) > 1 else ())
        ]
        for each in missing:
            apart = [str(domain.variables[v]) for v in each]
            bound = self._bound(each, cells, bool(condition))
            marks += marks_of_unmeasured(apart, bound, np.transpose(reach, axes))
        if self.status is Status.STOPPED_EARLY:
            # the widths would be those of tables that the estimate does not use
            name = self.stats.get(INTERRUPTED_BY)
            if name is None:
                what = "the last fit failed"
            else:
                what = f"a {name} interrupted the release"
            marks.append(Mark(RowStatus.NOT_TRUSTED, what))
        middle, least, most = (np.transpose(each, axes) for each in (estimate, *limits))
        if is_of_records:
            middle, least, most = (self.total * each for each in (middle, least, most))
            least, most = whole_limits(middle, least, most)
        return Limits(middle, least, most, tuple(marks))

    @cached_property
    def _bounds(self) -> dict[Scope, float]:
        """Bounds on the total variation of pairs that were not measured."""
        return {(int(i), int(j)): float(bound) for i, j, bound in self.stats.get(NOT_MEASURED, ())}

    def _bound(self, missing: Scope, cells: Cells, is_conditional: bool) -> float | None:
        r"""Return a bound on the error of all probabilities, if the variables that were not measured have one.

        Let the total variation of a pair be at most δ, and m the probability of the given states of one variable in
        the model. A conditional probability c of the population is that of the model but for
        :math:`((1 - c) \Delta_1 - c \Delta_0) / m`, where :math:`\Delta_1` is the error of the states that it is
        of, together with those given, and :math:`\Delta_0` that of all others given. The positive and the negative
        errors of a table are at most δ each, so that the fraction is at most δ / m.
        """
        bound = self._bounds.get(missing)
        if bound is None or not is_conditional:
            return bound
        bound = bound / cells.mass
        if missing == cells.scope and bound < 1:
            return bound
        return None

    @cached_property
    def _evaluated(self) -> tuple[float, FloatArray]:
        whole = self._merged
        tables = [
            self._expanded(scope, whole.marginals.table(position))
            for position, scope in enumerate(self.specification.scopes)
        ]
        return whole.log_partition, np.concatenate(
            [np.zeros(0), *(table.ravel() for table in tables)]
        )

    def stands_out(self, first: int, second: int) -> bool:
        """Return True if two variables depend, in their measured tables, by more than noise and sampling explain."""
        return self._errors.stands_out((min(first, second), max(first, second)))

    def effect_error(self, scope: Scope, states: Sequence[int]) -> float:
        r"""Return the standard deviation of an entry of an effect's table, to first order.

        In a measured table C that holds the effect the entry is :math:`\sum_x w_x \log p_C(x)`, with weights of
        centring along the effect's own axes and of the mean along the others: a state of another variable that is
        rare counts as much as any. Its variance is :math:`\sum_x w_x^2 \, (v_C / (N p_x)^2 + 1 / (N p_x))`, noise
        and sampling, over the merged states x; of several such tables the largest. The shrinkage of the fit is not
        counted, nor what other tables tell of the effect.

        Parameters
        ----------
        scope
            Positions of variables, ascending.
        states
            Position of a declared state of each.

        Returns
        -------
        float
            Nats; infinite where no measured table holds the variables.
        """
        own = dict(zip(scope, states, strict=True))
        cliques = {table.scope for table in self._tables if own.keys() <= set(table.scope)}
        return max(
            (self._errors.of_entry(clique, own, self._merging.groups) for clique in cliques),
            default=math.inf,
        )

    def _marginal_table(self, query: Sequence[int], given: Condition) -> FloatArray:
        groups = self._merging.groups
        shares = self._merging.shares
        own = {v: groups[v][list(codes)] for v, codes in given.items()}
        # within one group all states depend on other variables alike; several groups weigh by the shares given
        several = [v for v in given if len(set(own[v])) > 1]
        one = {v: (int(own[v][0]),) for v in given if v not in several}
        table = self._merged._marginal_table([*query, *several], one)
        for v in reversed(several):
            codes = list(given[v])
            table = table @ np.bincount(own[v], weights=shares[v][codes], minlength=table.shape[-1])
        return self._expanded(query, table / table.sum() if several else table)

    def _expanded(self, scope: Sequence[int], table: FloatArray) -> FloatArray:
        """Return a table of declared states, expanded from the table of their groups."""
        found = table[np.ix_(*(self._merging.groups[v] for v in scope))]
        for axis, v in enumerate(scope):
            found = found * self._along(self._merging.shares[v], axis, len(scope))
        return found

    @staticmethod
    def _along(values: FloatArray, axis: int, axes: int) -> FloatArray:
        return values.reshape([-1 if a == axis else 1 for a in range(axes)])

    def _cells(self, scope: Scope, condition: Condition) -> Cells:
        """Return the table of merged states of some variables, or their probabilities given states of others."""
        merging = self._merging
        whole = tuple(sorted([*scope, *condition]))
        weights = {}
        for v, codes in condition.items():
            own = list(codes)
            size = merging.cardinalities[v]
            weights[v] = np.bincount(
                merging.groups[v][own], weights=merging.shares[v][own], minlength=size
            )
        table = self._merged._marginal_table(whole, {})
        return Cells(cardinalities=merging.cardinalities, scope=whole, table=table, weights=weights)

    def _variances(
        self, cells: Cells, condition: Condition, z: float
    ) -> tuple[FloatArray, FloatArray, FloatArray, list[Scope]]:
        """Return the error variance of each cell of declared states for this sample, and the unmeasured effects.

        The first array holds the distances by which the truth may lie below the estimate, the second those above it,
        and the third the distances by which noise alone moves a cell without a prior.
        """
        merging = self._merging
        scope = tuple(v for v in cells.scope if v not in condition)
        axes = np.ix_(*(merging.groups[v] for v in scope))
        shape = [merging.cardinalities[v] for v in scope]
        variance, plain, missing = self._errors.of(cells)
        by_shares = self._variance_by_given_shares(cells, condition, z)
        below = above = (variance + by_shares).reshape(shape)[axes]
        plain = (plain + by_shares).reshape(shape)[axes]
        table = cells.rows.reshape(shape)[axes]
        for axis, v in enumerate(scope):
            share, lower, upper = (
                self._along(each, axis, len(scope)) for each in self._share_limits(v, z)
            )
            plain = plain * share**2 + (table * (share - lower) / z) ** 2
            below = below * share**2 + (table * (share - lower) / z) ** 2
            above = above * share**2 + (table * (upper - share) / z) ** 2
            table = table * share
        return below, above, plain, missing

    def _split_groups(self, variable: int, codes: Sequence[int]) -> list[int]:
        """Return the given states that are merged with others which are not given."""
        groups = self._merging.groups[variable]
        others = np.setdiff1d(np.arange(groups.size), codes)
        return [code for code in codes if groups[code] in groups[others]]

    def _variance_by_given_shares(
        self, cells: Cells, condition: Condition, z: float
    ) -> FloatArray | float:
        """Return the variance of conditional probabilities from the shares of given states in their groups."""
        found: FloatArray | float = 0.0
        for v, codes in condition.items():
            shares, lower, upper = self._share_limits(v, z)
            axis = cells.scope.index(v)
            for code in self._split_groups(v, codes):
                slices = cells.weighted(but=v).take([self._merging.groups[v][code]], axis=axis)
                own = cells.by_rows(slices)
                moved = (own - cells.rows * own.sum()) / cells.mass
                reach = max(shares[code] - lower[code], upper[code] - shares[code])
                found = found + (moved * reach / z) ** 2
        return found

    def _held_outside(self, cells: Cells, condition: Condition, z: float) -> FloatArray:
        """Return the probability that possibly empty cells hold in states that are not given, by row."""
        whole = cells.scope
        estimate = self._marginal_table(whole, {})
        *_, plain, _ = self._variances(self._cells(whole, {}), {}, z)
        held = estimate * (1 - excluded(estimate, z * np.sqrt(plain)))
        cards = self.specification.cardinalities
        held[np.ix_(*(condition.get(v, range(cards[v])) for v in whole))] = 0.0
        return held.sum(axis=tuple(whole.index(v) for v in condition))

    def _marks_of_given(self, cells: Cells, condition: Condition, z: float) -> list[Mark]:
        """Return marks for given states that may have no record, or that are merged with states not given."""
        if not condition:
            return []
        marks = []
        if cells.mass < CLEAR * math.sqrt(self._variance_of(condition, z)):
            marks.append(
                Mark(RowStatus.DOUBTFUL, "the noise may hide that no record has the given states")
            )
        for v, codes in condition.items():
            split = self._split_groups(v, codes)
            notes = [
                note for _, part, note in self._merged_notes([v]) if not set(split).isdisjoint(part)
            ]
            marks += [Mark(RowStatus.DOUBTFUL, note) for note in notes]
        return marks

    def _variance_of(self, condition: Condition, z: float) -> float:
        """Return the noise variance of the probability of given states, with cells taken as independent."""
        scope = tuple(sorted(condition))
        *_, plain, _ = self._variances(self._cells(scope, {}), {}, z)
        return float(plain[np.ix_(*(condition[v] for v in scope))].sum())

    def _merged_notes(self, variables: Sequence[int]) -> Iterator[tuple[int, list[int], str]]:
        """Yield each group of merged states of some variables: position of the variable, states, and a note."""
        domain = self.specification.domain
        for place, v in enumerate(variables):
            for part in self._merging.parts(v):
                named = ", ".join(str(domain.states[v][s]) for s in part[:_NAMED])
                more = ", ..." if len(part) > _NAMED else ""
                yield place, part, f"{domain.variables[v]}: {named}{more} are merged in the fit"

    @cached_property
    def _merged(self) -> Solution:
        """Model of merged states, whose marginals are cheap; a state has a share of its group's probability.

        Its potentials are those of each group's first state, less the log shares, which stand in the first clique of
        each variable.
        """
        model = self.specification
        merging = self._merging
        waiting = dict(enumerate(self._merging.shares))
        domain = Domain.from_states({v: range(k) for v, k in enumerate(merging.cardinalities)})
        first = [np.unique(group, return_index=True)[1] for group in merging.groups]
        tables = []
        for position, scope in enumerate(model.scopes):
            table = self.potentials.table(position)[np.ix_(*(first[v] for v in scope))]
            for axis, v in enumerate(scope):
                if (share := waiting.pop(v, None)) is not None:
                    table = table - self._along(np.log(share[first[v]]), axis, len(scope))
            tables.append(table)
        return Solution(
            specification=ModelSpecification(domain=domain, cliques=model.scopes),
            potentials=CliqueTables.from_arrays(domain, model.scopes, tables),
            method=self.method,
            status=self.status,
        )

    def _share_limits(self, variable: int, z: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return each state's share of its group and its limits; an unmerged state has share 1."""
        group = self._merging.groups[variable]
        shares = self._merging.shares[variable]
        if not self._merging.is_merged(variable):
            return shares, shares, shares
        # the share of a state is divided by the count of its group, at least half a record
        whole = np.maximum(self.total * self._merged._marginal_table((variable,), {})[group], 0.5)
        counts, deviations = self._alone
        reach = z * deviations[variable]
        lower = np.minimum(shares, np.maximum(counts[variable] - reach, 0.0) / whole)
        upper = np.maximum(shares, np.maximum(counts[variable] + reach, 0.0) / whole)
        is_merged = shares < 1
        return shares, np.where(is_merged, lower, shares), np.where(is_merged, upper, shares)

    @cached_property
    def _measured(self) -> tuple[MeasuredTable, ...]:
        domain = self.specification.domain
        return tuple(MeasuredTable.of(each, domain) for each in self.statistics.measurements)

    @cached_property
    def _merging(self) -> Merging:
        """Merging of states in the rounds."""
        return Merging.released(
            self.specification.domain, self.statistics.measurements, self.groups
        )

    @cached_property
    def _alone(self) -> tuple[list[FloatArray], list[float]]:
        """Counts of each variable's states in tables of that variable, and the standard deviation of their noise."""
        return single_counts(self.specification.cardinalities, self._measured)

    @cached_property
    def _number(self) -> tuple[float, float]:
        """Number of records and its standard error."""
        if self.statistics.total is not None:
            return float(self.statistics.total), 0.0
        return number_of_records([each.merged(self._merging) for each in self._measured])

    @cached_property
    def _tables(self) -> list[NoisyTable]:
        return agreeing([each.merged(self._merging) for each in self._measured], *self._number)

    @cached_property
    def _errors(self) -> CellErrors:
        last = next((each for each in reversed(self._measured) if len(each.scope) > 1), None)
        return CellErrors(
            model=self._merged,
            tables=self._tables,
            total=self.total,
            total_error=self._number[1],
            last_variance=math.inf if last is None else last.law.variance,
        )
