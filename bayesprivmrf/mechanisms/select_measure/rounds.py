r"""Adaptive rounds: find the tables with the largest misfit, measure them, fit the model, and repeat.

This module reads the records. Every step uses them and earlier released numbers. A `PrivacyFilter` is charged before
each step. So neither the choices nor the number of rounds, which depend on the answers, can spend more than the total
(proof: `bayesprivmrf.privacy.selection`). The budget `left` is rounded down, and `charge` raises an error beyond it.
`round_spending` reserves a share of 2^-40 of the measurements, more than all rounding, so that this never happens.
Shares, sensitivities and noise distributions are those of `select_measure.plan`.

1. **Single variables**: the table of counts of each, with discrete Gaussian noise. Rare states are merged, by these
   noisy counts alone, and every later table is of merged states (`learning.select_measure.measured_tables`).
2. **How many tables stand out.** For each candidate c the *misfit* is

   .. math:: u_c = \sum_x \bigl| M n_c(x) - e_c(x) \bigr|, \qquad
       e_c(x) = \lfloor M \hat N \mu_c(x) \rceil ,

   whole numbers in steps of 1/M record. It is the L1 distance between the data and the fitted model, whose mean
   counts :math:`e_c` are public. Adding or removing a record changes one cell of :math:`n_c` by one, so
   :math:`u_c` moves by at most M. Replacing a record changes two cells, so :math:`u_c` moves by at most 2M. This is
   D M, with D of the plan. If each of several numbers moves by at most this much, so does the k-th largest of them.
   The same holds for a heaviest basis of the candidates, which leaves out pairs that a chain of others implies
   (`select_measure.misfits`). So these order statistics of :math:`u_c` minus a public allowance, at several k, are
   released with discrete Gaussian noise of that sensitivity. The allowance is for the noise of measuring k tables,
   and for the public effect of the noise on single variables on the misfit
   (`bayesprivmrf.learning.select_measure.learned_scales`). The number of tables is the largest k whose
   number is above zero. It is zero if no number exceeds a threshold, and the round then ends here. The threshold is
   three standard deviations of the noise, and one after the first table was measured.
3. **Choices**: that many, in turn, by the exponential mechanism on :math:`u_c` minus the L1 error that noise would
   leave, a share of :math:`\sigma \sqrt{2/\pi}` for each cell. All changes of scores lie in [-D M, D M]: range 2 D M.
   A pair across parts that earlier choices have joined is no longer a candidate. A chosen table that would make the
   model larger than the limit of this round is dropped, and its cost is still charged. The noisy answers of steps 2
   and 3 also bound the total variation of pairs that are not measured. These bounds are released
   (`bayesprivmrf.mechanisms.select_measure.unmeasured`): they are post-processing of answers that were paid for.
4. **Measurements**: the chosen tables, of L2 sensitivity 1 each (root 2 under replace-one), with discrete
   Gaussian noise. Single variables whose tables are still imprecise are measured again with them, as tables of
   the same sensitivity and noise. The model is fitted to all measurements so far
   (`bayesprivmrf.learning.select_measure.round_fit`), and steps 2 to 4 are repeated.
5. **Remaining budget.** If the last round measures nothing, because nothing stands out or nothing fits, the
   remaining budget is spent on earlier tables: all tables of the model, and single variables as in step 4. If there
   are no tables, all single variables are measured again, and both measurements decide which states are rare. The
   decision for this step, and its tables, are functions of noisy answers only. Its sensitivity and noise are those of
   step 4, and the filter is charged before it, as before any step.

Every noisy table is released with the last model (`select_measure.released`). For more than thirty variables
`WideRounds` (`select_measure.wide_rounds`) replaces `Rounds`: it has other public candidates, and makes some choices
at once. Filter, noise, measurements and fit are those of this file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import interrupted_by, remember
from bayesprivmrf.learning.select_measure.learned_scales import SingleNoise, with_learned_scales
from bayesprivmrf.learning.select_measure.measured_tables import MeasuredTable, Merging, parts_of
from bayesprivmrf.learning.select_measure.round_fit import RoundFit, carried, fit_tables, maximal
from bayesprivmrf.mechanisms.select_measure.misfits import (
    STEPS,
    basis_scores,
    ends_across,
    expected_counts,
    misfit,
    without_subsets,
)
from bayesprivmrf.mechanisms.select_measure.plan import (
    ROUND_SHARES,
    SINGLES_SHARE,
    SIZE_SHARES,
    RoundsPlan,
    allowance,
    choice_scale,
    counting_noise,
    numbers_of_tables,
    round_spending,
    singles_noise,
    tables_noise,
)
from bayesprivmrf.mechanisms.select_measure.size import Size
from bayesprivmrf.mechanisms.select_measure.unmeasured import ONE_SIDED, Unmeasured
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.privacy import NoiseDistribution
from bayesprivmrf.privacy.selection import PrivacyFilter


@dataclass(slots=True)
class Rounds:
    """Run of the adaptive rounds; the records influence the release only through the source of noise."""

    plan: RoundsPlan
    source: NoiseSource
    codes: np.ndarray
    counts: IntArray
    total: int | None = None
    filter: PrivacyFilter = field(init=False)
    merging: Merging = field(init=False)
    size: Size = field(init=False)
    singles: list[MeasuredTable] = field(init=False, default_factory=list)
    measured: list[MeasuredTable] = field(init=False, default_factory=list)
    again: list[MeasuredTable] = field(init=False, default_factory=list)
    fit: RoundFit = field(init=False)
    tables_by_round: list[int] = field(init=False, default_factory=list)
    has_fit: bool = field(init=False, default=False)
    unmeasured: Unmeasured = field(init=False, default_factory=Unmeasured)
    failures: int = field(init=False, default=0)
    has_fallen_back: bool = field(init=False, default=False)
    _round_number: int = field(init=False, default=0)
    _most_size: float = field(init=False, default=1.0)
    _kept: dict[Scope, IntArray] = field(init=False, default_factory=dict)
    _largest: tuple[float, float] = field(init=False, default=(0.0, 0.0))
    _last_choice: tuple[int, np.ndarray] | None = field(init=False, default=None)

    def __repr__(self) -> str:
        return "Rounds(sensitive)"

    def run(self) -> None:
        """Spend the budget; after an interruption the rounds end, and no measured table is lost."""
        self.filter = PrivacyFilter(self.plan.rho)
        try:
            self._measure_singles(SINGLES_SHARE * self.plan.rho)
            self._spend()
        except BaseException as error:
            remember(error)
            self._end()

    def _spend(self) -> None:
        """Run the rounds and the last fit; a fit that is interrupted becomes the last one."""
        whole = self.filter.left
        has_measured = False
        for self._round_number, share in enumerate(ROUND_SHARES, start=1):
            if interrupted_by() is not None:
                return
            has_measured = self._round(min(share * whole, self.filter.left))
        if not has_measured:
            self._measure_again(self.filter.left)
        if interrupted_by() is None:
            self._refit(is_last=True)

    def _end(self) -> None:
        """Keep all measured tables; the model is the last one, on the cliques of all tables.

        An interruption may come while tables are drawn. Each table is kept as soon as it is drawn. The tables of
        single variables are completed, because there is no model without them.
        """
        plan = self.plan
        missing = [(v,) for v in plan.free if (v,) not in {each.scope for each in self.singles}]
        if not self.filter.spent:
            self.filter.charge(SINGLES_SHARE * plan.rho)
        self._count_singles()
        self._draw(missing, singles_noise(plan), self.singles)
        self.merging = Merging.by(plan.declared, self.tables, plan.rules)
        cards = self.merging.cardinalities
        self.size = Size(cards, plan.declared, plan.maximum_cells, plan.memory)
        if self.has_fit and self.fit.effects.cardinalities == cards:
            last = self.fit
        else:
            last = None
        tables = [each.merged(self.merging) for each in self.tables]
        self.fit = fit_tables(cards, tables, last, total=self.total, iterations=0)

    # single variables

    def _measure_singles(self, rho: float) -> None:
        plan = self.plan
        self._count_singles()
        self._measured([(v,) for v in plan.free], rho, self.singles)
        self.merging = Merging.by(plan.declared, self.singles, plan.rules)
        self.unmeasured.groups = self.merging.groups
        self.size = Size(self.merging.cardinalities, plan.declared, plan.maximum_cells, plan.memory)
        self.codes = self.merging.codes(self.codes)
        self.fit = self._first_fit()
        self.has_fit = True

    def _count_singles(self) -> None:
        """Count each variable separately, with its declared states; no later step counts it again."""
        for v in self.plan.free:
            if (v,) not in self._kept:
                exact = np.bincount(
                    self.codes[:, v], weights=self.counts, minlength=self.plan.declared[v]
                )
                self._kept[v,] = exact.astype(np.int64)

    def _first_fit(self) -> RoundFit:
        """Fit single variables; if the fit diverges, use uniform ones, so that misfits are finite."""
        found = self._fitted()
        if found.status is not Status.DIVERGED:
            return found
        self.failures += 1
        return replace(found, coordinates=np.zeros_like(found.coordinates), off=math.inf)

    def _fitted(self, last: RoundFit | None = None, *, is_last: bool = False) -> RoundFit:
        """Return the fit of the model to all measurements so far."""
        return fit_tables(
            self.merging.cardinalities,
            [each.merged(self.merging) for each in self.tables],
            last,
            total=self.total,
            iterations=3000 if is_last else 150,
            # deviations of noise; a larger error between rounds would look like a misfit
            enough=0.1 if is_last else 0.01,
        )

    # one round

    def _round(self, rho: float) -> bool:
        """Run one round, and return True if tables were measured; otherwise their share of rho remains."""
        scopes = self._eligible() if rho > 0 else []
        if not scopes:
            return False
        misfits = self._misfits(scopes)
        cells = np.array([math.prod(self.merging.cardinalities[v] for v in c) for c in scopes])
        counting, choosing, measuring = round_spending(rho)
        number = self._how_many(scopes, misfits, cells, counting, measuring)
        allowed = allowance(cells, tables_noise(self.plan, measuring, max(number, 1)), 1.0)
        if number > 0:
            chosen = self._choose(scopes, misfits - allowed, number, choosing)
        else:
            chosen = []
        if not chosen:  # nothing stands out, or none of it fits
            if not self.plan.is_wide:
                allowed = allowance(
                    cells, tables_noise(self.plan, measuring, 1), 1.5
                ) + self._of_noise(scopes)
                largest, deviation = self._largest
                bounds = allowed + largest + ONE_SIDED * deviation
                self.unmeasured.keep(self.fit, scopes, bounds / STEPS)
            return False
        is_last = self._round_number == len(ROUND_SHARES)
        if is_last:
            rho_of_tables = self.filter.left
        else:
            rho_of_tables = measuring
        self._measured(
            [*chosen, *self._again(len(chosen), rho_of_tables)], rho_of_tables, self.measured
        )
        self.tables_by_round.append(len(chosen))
        if self._last_choice is not None and not self.plan.is_wide:
            # the bounds of the last choice, against the model before the tables of this round
            place, was_left = self._last_choice
            left = np.flatnonzero(was_left).tolist()
            self.unmeasured.by_choice(
                self.fit,
                [scopes[k] for k in left],
                allowed[left] / STEPS,
                int(np.searchsorted(left, place)),
                next(each for each in reversed(self.measured) if each.scope == scopes[place]),
                choice_scale(self.plan, choosing / number) / STEPS,
            )
        self._refit()
        return True

    def _misfits(self, scopes: list[Scope]) -> IntArray:
        """Return the misfit of each table to the model: sensitive."""
        expected = [
            expected_counts(table, self.fit.total) for table in self.fit.probabilities(scopes)
        ]
        found = [misfit(self._counts(c), e) for c, e in zip(scopes, expected, strict=True)]
        return np.array(found, dtype=np.int64)

    def _eligible(self) -> list[Scope]:
        model = self._scopes()
        found = self.plan.candidates(self.merging.cardinalities, model)
        if self.plan.workload is None and self._round_number == 1:
            found = [c for c in found if len(c) == 2]
        inside = [set(scope) for scope in self.fit.effects.scopes]
        taken = self.size.share(model)
        self._most_size = taken + SIZE_SHARES[self._round_number - 1] * max(1 - taken, 0.0)
        return [
            c for c in found if any(set(c) <= scope for scope in inside) or self._bears([*model, c])
        ]

    def _bears(self, scopes: Sequence[Scope]) -> bool:
        """Return True if a model of these scopes is within the size limit of this round."""
        return self.size.bears(scopes, self._most_size)

    def _ends(self, scopes: Sequence[Scope], chosen: Sequence[Scope] = ()) -> IntArray:
        """Return the parts of the model that pairs join; each table of a workload counts separately."""
        if self.plan.workload is not None:
            return np.full((len(scopes), 2), -1, dtype=np.int64)
        return ends_across(scopes, parts_of(len(self.plan.declared), [*self._scopes(), *chosen]))

    def _scopes(self) -> list[Scope]:
        """Return the scopes of all measured tables."""
        return [each.scope for each in (*self.measured, *self.singles)]

    @property
    def tables(self) -> list[MeasuredTable]:
        """Measured tables, in the order in which they are released."""
        return [*self.singles, *self.measured, *self.again]

    def _again(self, tables: int, rho: float) -> list[Scope]:
        """Return the variables to measure again together with some tables, because their tables are imprecise."""
        return self._single_noise().worth_repeating(tables, self.plan.moved / (2 * rho))

    def _single_noise(self) -> SingleNoise:
        return SingleNoise.left(self.plan.declared, self.merging, self.tables)

    def _counts(self, scope: Scope) -> IntArray:
        """Return the exact table of a scope, with merged states unless it has one variable: sensitive."""
        if scope not in self._kept:
            shape = [self.merging.cardinalities[v] for v in scope]
            flat = np.ravel_multi_index(tuple(self.codes[:, v] for v in scope), shape)
            table = np.bincount(flat, weights=self.counts, minlength=math.prod(shape))
            self._kept[scope] = table.astype(np.int64)
        return self._kept[scope]

    def _how_many(
        self,
        scopes: list[Scope],
        misfits: IntArray,
        cells: IntArray,
        counting: float,
        measuring: float,
    ) -> int:
        """Return how many tables stand out: the largest number whose order statistic is above zero with noise.

        The number is 0 if no order statistic, each of sensitivity D, exceeds its noise by three deviations, or by one
        deviation if the model already has tables. The first round must be certain that columns depend at all: K
        numbers of noise alone exceed three deviations in at most 0.00135 K of cases. Later, an extra table costs less
        than a missed one.
        """
        ends = self._ends(scopes)
        beyond = misfits - self._of_noise(scopes)
        numbers = numbers_of_tables(len(basis_scores(misfits, ends)))
        allowances = [allowance(cells, tables_noise(self.plan, measuring, k), 1.5) for k in numbers]
        exact = [
            int(basis_scores(beyond - a, ends)[-k])
            for k, a in zip(numbers, allowances, strict=True)
        ]
        law = counting_noise(self.plan, counting, len(numbers))
        self.filter.charge(counting)
        noisy = self.source.add(np.array(exact, dtype=np.int64), law)
        self._largest = float(noisy[0]), law.standard_deviation
        if not noisy.max() > (1.0 if self.measured else 3.0) * law.standard_deviation:
            return 0
        return max(k for k, value in zip(numbers, noisy.tolist(), strict=True) if value > 0)

    def _of_noise(self, scopes: Sequence[Scope]) -> IntArray:
        """Return the effect of the noise of single variables on misfits, steps of 1/M record: public."""
        return np.rint(STEPS * self._single_noise().misfits(scopes)).astype(np.int64)

    def _choose(
        self, scopes: list[Scope], scores: IntArray, number: int, choosing: float
    ) -> list[Scope]:
        """Return tables, chosen in turn; a table that does not fit with earlier ones is dropped."""
        chosen: list[Scope] = []
        self._last_choice = None
        model = self._scopes()
        everything = without_subsets(scopes)
        if number >= len(everything) and self._bears([*model, *everything]):
            return everything
        scale = choice_scale(self.plan, choosing / number)
        eligible = np.ones(len(scopes), dtype=bool)
        is_across = self._ends(scopes)[:, 0] >= 0
        for _ in range(number):
            if not eligible.any():
                break
            self.filter.charge(choosing / number)
            place = int(self.source.choose(scores[None, :], scale, eligible[None, :])[0])
            if self._bears([*model, *chosen, scopes[place]]):
                chosen.append(scopes[place])
                self._last_choice = place, eligible.copy()
                inside = set(scopes[place])
                eligible &= np.array([not set(c) <= inside for c in scopes])
                eligible &= ~is_across | (self._ends(scopes, chosen)[:, 0] >= 0)
            eligible[place] = False
        return chosen

    def _measured(self, scopes: Sequence[Scope], rho: float, into: list[MeasuredTable]) -> None:
        """Charge and draw tables with the same noise; single variables beside chosen tables are measured again."""
        law = tables_noise(self.plan, rho, len(scopes))
        self.filter.charge(rho)
        self._draw(scopes, law, into)
        self.merging = Merging.by(self.plan.declared, self.tables, self.plan.rules)

    def _draw(
        self, scopes: Sequence[Scope], law: NoiseDistribution, into: list[MeasuredTable]
    ) -> None:
        """Keep each table as soon as it is drawn."""
        for scope in scopes:
            noisy = self.source.add(self._counts(scope), law)
            if len(scope) == 1 and into is self.measured:
                kept = self.again
            else:
                kept = into
            kept.append(MeasuredTable(scope=scope, values=noisy, law=law))

    def _measure_again(self, rho: float) -> None:
        """Spend the rest of the budget on the measured tables, because nothing stands out anymore; see the module."""
        if not rho > 0:
            return
        known = list(maximal([each.scope for each in self.measured]))
        if known:
            self._measured([*known, *self._again(len(known), rho)], rho, self.again)
            return
        self._measured([(v,) for v in self.plan.free], rho, self.again)
        self.fit = self._first_fit()  # the merged states may differ from before

    def _refit(self, *, is_last: bool = False) -> None:
        """Fit the model to all measurements; if the fit diverges, keep the previous, on all tables' cliques."""
        found = self._fitted(self.fit, is_last=is_last)
        if is_last:
            tables = [each.merged(self.merging) for each in self.tables]
            found = with_learned_scales(found, tables, total=self.total)
        self.has_fallen_back = found.status is Status.DIVERGED
        self.failures += self.has_fallen_back
        if self.has_fallen_back:
            found = replace(
                self.fit,
                effects=found.effects,
                coordinates=carried(found.effects, self.fit),
                off=math.inf,  # the known distance is that of another objective, without the newest tables
            )
        self.fit = found
