r"""Adaptive rounds: find the tables with the largest misfit, measure them, fit the model, and repeat.

`AdaptiveRounds` is the plan, and `steps_of` its run, from top to bottom; `select_measure.run` has the state of a
run. Every step uses the records, which are in
`select_measure.exact_tables`, and earlier released numbers. A `PrivacyFilter` is charged before each step. So neither
the choices nor the number of rounds, which depend on the answers, can spend more than the total (proof:
`bayesprivmrf.privacy.selection`). The budget `left` is rounded down, and `charge` raises an error beyond it.
`round_spending` reserves a share of 2^-40 of the measurements, more than all rounding, so that this never happens.
Shares, sensitivities and noise distributions are those of `select_measure.plan`.

1. **Single variables**: the table of counts of each, with discrete Gaussian noise. Rare states are merged, by these
   noisy counts alone, and every later table is of merged states
   (`bayesprivmrf.learning.select_measure.measured_tables`).
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
   If the number covers all candidates (those inside others aside), and the model can hold them, all are taken
   without a draw or a charge. The number was released in step 2, and the candidates and the size limit are functions
   of public settings and of released numbers. So this is post-processing.
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

Every noisy table is released with the last model (`select_measure.released`). Candidates and choices are those of
`select_measure.candidates`. For more than thirty variables `select_measure.wide_rounds` has other public candidates,
and makes some choices at once. Budget, noise, measurements and fit are those of this file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import interrupted_by, remember
from bayesprivmrf.learning.select_measure.learned_scales import with_learned_scales
from bayesprivmrf.learning.select_measure.measured_tables import Merging
from bayesprivmrf.learning.select_measure.round_fit import RoundFit, carried, fit_tables, maximal
from bayesprivmrf.mechanisms.reading.coded import CodedRecords
from bayesprivmrf.mechanisms.select_measure.candidates import (
    Candidates,
    ChosenTables,
    few_candidates,
)
from bayesprivmrf.mechanisms.select_measure.exact_tables import ExactTables
from bayesprivmrf.mechanisms.select_measure.misfits import MISFIT_STEPS, basis_scores
from bayesprivmrf.mechanisms.select_measure.plan import (
    ROUND_SHARES,
    SINGLES_SHARE,
    RoundsPlan,
    allowance,
    choice_scale,
    counting_noise,
    numbers_of_tables,
    round_spending,
    singles_noise,
    tables_noise,
)
from bayesprivmrf.mechanisms.select_measure.run import Drawn, FinishedRounds, Known, Run
from bayesprivmrf.mechanisms.select_measure.size import round_outlays
from bayesprivmrf.mechanisms.select_measure.unmeasured import ONE_SIDED, Unmeasured
from bayesprivmrf.mechanisms.select_measure.wide_rounds import independence, many_candidates
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay
from bayesprivmrf.privacy.selection import PrivacyFilter

# Standard deviations of its noise that an order statistic must exceed. Before the first table a round must be
# certain that columns depend at all: K numbers of noise alone exceed three deviations in at most 0.00135 K of cases.
# Later, an extra table costs less than a missed one.
FIRST_THRESHOLD = 3.0
LATER_THRESHOLD = 1.0

# Weight of the error that noise would leave in a table: a table counts only if its misfit is half again as large, and
# candidates are ranked by what is beyond it. Heuristics; they change which tables are measured, and no guarantee.
COUNTING_WEIGHT = 1.5
CHOOSING_WEIGHT = 1.0

# Steps of a fit after a round and of the last fit, and the distance from the optimum that ends them, in deviations of
# noise. Between rounds a larger error would look like a misfit.
ROUND_STEPS = 150
ROUND_DISTANCE = 0.01
LAST_STEPS = 3000
LAST_DISTANCE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRounds:
    """Plan of `SelectMeasure` without a degree: what it will spend, and how it runs.

    Parameters
    ----------
    plan
        Public facts.
    """

    plan: RoundsPlan

    def outlays(self, total: float | None) -> list[Outlay]:
        """Return the steps in their order, with their costs and noise; with forecasts for a number of records."""
        return round_outlays(self.plan, total)

    def run(
        self, records: CodedRecords, source: NoiseSource, total: int | None = None
    ) -> FinishedRounds:
        """Spend the budget on records; after an interruption the rounds end, and no drawn table is lost.

        Parameters
        ----------
        records
            The records: sensitive.
        source
            Source of all noise.
        total
            Number of records where it is public, else ``None``.
        """
        budget = PrivacyFilter(self.plan.rho)
        run = Run(plan=self.plan, source=source, budget=budget, drawn=Drawn(), total=total)
        known = None
        try:
            for step in steps_of(run, records):
                known = step
        except BaseException as error:
            remember(error)
            known = salvaged(run, records, known)
        assert known is not None
        return FinishedRounds(
            plan=run.plan, total=total, drawn=run.drawn, known=known, spent=budget.spent
        )


def steps_of(run: Run, records: CodedRecords) -> Iterator[Known]:
    """Run the rounds, and yield the state after each step; a fit that is interrupted is the last one."""
    plan = run.plan
    drawn = run.drawn

    # single variables: count them, charge, measure, and decide by the noisy counts which states are merged
    exact = ExactTables.of(records, plan.declared, plan.free)
    law = singles_noise(plan)
    run.budget.charge(SINGLES_SHARE * plan.rho)
    run.draw(exact, [(v,) for v in plan.free], law, drawn.singles)
    merging = run.merging()
    exact = exact.merged(merging)
    fit = first_fit(run, merging)
    known = Known(
        merging=merging,
        size=run.size_of(merging),
        fit=fit,
        unmeasured=Unmeasured(groups=merging.groups),
        failures=int(fit.status is Status.DIVERGED),
    )
    yield known

    if plan.is_wide:
        across = independence(run, known, exact)
    else:
        across = None
    whole = run.budget.left
    has_measured = False
    for number, share in enumerate(ROUND_SHARES, start=1):
        if interrupted_by() is not None:
            return
        has_measured = False
        rho = min(share * whole, run.budget.left)
        if not rho > 0:
            continue
        counting, choosing, measuring = round_spending(rho)

        # the candidates, and how far each is from the model
        if across is None:
            found = few_candidates(run, known, exact, number)
        else:
            found = many_candidates(run, known, exact, across)
        if not found.scopes:
            continue

        # how many tables stand out, and which: both charge before they draw; if the number covers all candidates,
        # there is no draw
        standing = how_many(run, found, counting, measuring)
        allowed = allowance(
            found.cells, tables_noise(plan, measuring, max(standing.number, 1)), CHOOSING_WEIGHT
        )
        choice = ChosenTables(scopes=[])
        if standing.number > 0:
            choice = found.choose(run, found.misfits - allowed, standing.number, choosing)
        if not choice.scopes:
            known = bounded_by_counting(run, known, found, standing, measuring)
            yield known
            continue

        # charge and measure the chosen tables, beside single variables whose tables are imprecise
        if number == len(ROUND_SHARES):
            measuring = run.budget.left
        repeated = run.imprecise(known.merging, len(choice.scopes), measuring)
        scopes = [*choice.scopes, *repeated]
        law = tables_noise(plan, measuring, len(scopes))
        run.budget.charge(measuring)
        run.draw(exact, scopes, law, drawn.measured)
        known = replace(known, merging=run.merging())
        drawn.by_round.append(len(choice.scopes))
        has_measured = True
        known = bounded_by_choice(run, known, found, choice, allowed, choosing / standing.number)
        yield known

        # fit the model to all measurements
        known = refitted(run, known)
        yield known

    if not has_measured:
        known = measured_again(run, known, exact)
        yield known
    if interrupted_by() is None:
        yield last_fit(run, known)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingOut:
    """The number of tables that stand out, and the noisy largest misfit with its deviation, steps."""

    number: int
    largest: float
    deviation: float


def how_many(run: Run, found: Candidates, counting: float, measuring: float) -> StandingOut:
    """Return how many tables stand out: the largest number whose order statistic is above zero with noise.

    The number is 0 if no order statistic, each of sensitivity D, exceeds its noise by the threshold.
    """
    plan = run.plan
    ends = found.ends(run)
    beyond = found.misfits - found.of_noise
    numbers = numbers_of_tables(len(basis_scores(found.misfits, ends)))
    allowances = [
        allowance(found.cells, tables_noise(plan, measuring, k), COUNTING_WEIGHT) for k in numbers
    ]
    exact = [
        int(basis_scores(beyond - a, ends)[-k]) for k, a in zip(numbers, allowances, strict=True)
    ]
    law = counting_noise(plan, counting, len(numbers))
    run.budget.charge(counting)
    noisy = run.source.add(np.array(exact, dtype=np.int64), law)
    threshold = LATER_THRESHOLD if run.drawn.measured else FIRST_THRESHOLD
    number = 0
    if noisy.max() > threshold * law.standard_deviation:
        number = max(k for k, value in zip(numbers, noisy.tolist(), strict=True) if value > 0)
    return StandingOut(number=number, largest=float(noisy[0]), deviation=law.standard_deviation)


def bounded_by_counting(
    run: Run, known: Known, found: Candidates, standing: StandingOut, measuring: float
) -> Known:
    """Return bounds on all pairs by the largest noisy misfit, for a round that chose nothing."""
    if run.plan.is_wide:
        return known
    allowed = allowance(found.cells, tables_noise(run.plan, measuring, 1), COUNTING_WEIGHT)
    bounds = allowed + found.of_noise + standing.largest + ONE_SIDED * standing.deviation
    unmeasured = known.unmeasured.bounded(known.fit, found.scopes, bounds / MISFIT_STEPS)
    return replace(known, unmeasured=unmeasured)


def bounded_by_choice(
    run: Run, known: Known, found: Candidates, choice: ChosenTables, allowed: IntArray, rho: float
) -> Known:
    """Return bounds by the last choice of a round, which cost rho, on misfits to the model before its tables."""
    if choice.last is None or choice.eligible is None or run.plan.is_wide:
        return known
    left = np.flatnonzero(choice.eligible).tolist()
    scope = found.scopes[choice.last]
    unmeasured = known.unmeasured.by_choice(
        known.fit,
        [found.scopes[k] for k in left],
        allowed[left] / MISFIT_STEPS,
        int(np.searchsorted(left, choice.last)),
        next(each for each in reversed(run.drawn.measured) if each.scope == scope),
        choice_scale(run.plan, rho) / MISFIT_STEPS,
    )
    return replace(known, unmeasured=unmeasured)


def measured_again(run: Run, known: Known, exact: ExactTables) -> Known:
    """Spend the rest of the budget on the measured tables, because nothing stands out anymore; see the module."""
    rho = run.budget.left
    if not rho > 0:
        return known
    tables = list(maximal([each.scope for each in run.drawn.measured]))
    if tables:
        scopes = [*tables, *run.imprecise(known.merging, len(tables), rho)]
    else:
        scopes = [(v,) for v in run.plan.free]
    law = tables_noise(run.plan, rho, len(scopes))
    run.budget.charge(rho)
    run.draw(exact, scopes, law, run.drawn.again)
    merging = run.merging()
    if tables:
        return replace(known, merging=merging)
    # the merged states may differ from before
    fit = first_fit(run, merging)
    failures = known.failures + (fit.status is Status.DIVERGED)
    return replace(known, merging=merging, fit=fit, failures=failures)


def fitted(run: Run, merging: Merging, last: RoundFit | None = None) -> RoundFit:
    """Return the fit of the model to all measurements so far."""
    return fit_tables(
        merging.cardinalities,
        [each.merged(merging) for each in run.drawn.tables],
        last,
        total=run.total,
        iterations=ROUND_STEPS,
        enough=ROUND_DISTANCE,
    )


def first_fit(run: Run, merging: Merging) -> RoundFit:
    """Fit single variables; if the fit diverges, use uniform ones, so that misfits are finite."""
    found = fitted(run, merging)
    if found.status is Status.DIVERGED:
        return replace(found, coordinates=np.zeros_like(found.coordinates), off=math.inf)
    return found


def refitted(run: Run, known: Known) -> Known:
    """Fit the model to all measurements."""
    return kept_or_carried(known, fitted(run, known.merging, known.fit))


def last_fit(run: Run, known: Known) -> Known:
    """Fit the model once more, closer to the optimum and with a learned scale for each effect."""
    merging = known.merging
    tables = [each.merged(merging) for each in run.drawn.tables]
    found = fit_tables(
        merging.cardinalities,
        tables,
        known.fit,
        total=run.total,
        iterations=LAST_STEPS,
        enough=LAST_DISTANCE,
    )
    return kept_or_carried(known, with_learned_scales(found, tables, total=run.total))


def kept_or_carried(known: Known, found: RoundFit) -> Known:
    """Return the state with a new model; if the fit diverged, with the previous one on all tables' cliques."""
    if found.status is not Status.DIVERGED:
        return replace(known, fit=found, has_fallen_back=False)
    carried_over = replace(
        known.fit,
        effects=found.effects,
        coordinates=carried(found.effects, known.fit),
        off=math.inf,  # the known distance is that of another objective, without the newest tables
    )
    return replace(known, fit=carried_over, has_fallen_back=True, failures=known.failures + 1)


def salvaged(run: Run, records: CodedRecords, known: Known | None) -> Known:
    """Return the state after an interruption: all drawn tables, and the last model on their cliques.

    The interruption may have come while tables were drawn. The tables of single variables are completed, because
    there is no model without them.
    """
    plan = run.plan
    drawn = run.drawn
    missing = [(v,) for v in plan.free if (v,) not in {each.scope for each in drawn.singles}]
    if not run.budget.spent:
        run.budget.charge(SINGLES_SHARE * plan.rho)
    exact = ExactTables.of(records, plan.declared, plan.free)
    run.draw(exact, missing, singles_noise(plan), drawn.singles)
    merging = run.merging()
    cards = merging.cardinalities
    last = None
    if known is not None and known.fit.effects.cardinalities == cards:
        last = known.fit
    tables = [each.merged(merging) for each in drawn.tables]
    found = fit_tables(cards, tables, last, total=run.total, iterations=0)
    size = run.size_of(merging)
    if known is None:
        unmeasured = Unmeasured(groups=merging.groups)
        return Known(merging=merging, size=size, fit=found, unmeasured=unmeasured)
    return replace(known, merging=merging, size=size, fit=found)
