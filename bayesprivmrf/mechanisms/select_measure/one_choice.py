r"""One choice of pairs: measure single variables, choose the most dependent pairs, measure these, and fit.

`OneChoice` is the plan, and `OneChoice.run` its run. `bayesprivmrf.learning.select_measure.measurement` derives
scores and sensitivities. The records are opened in `select_and_measure` alone, and only its result is released; what
follows uses the noisy numbers alone (`bayesprivmrf.learning.select_measure.couplings`).

**The budget.** A private number of records takes `TOTAL_SHARE` of rho. Of the rest, `ONE_WAY_SHARE` is for single
variables, `SELECTION_SHARE` for the choice, and the remainder for the pairs. `discrete_gaussian_laws` rounds each
scale up until its loss by OpenDP is at most its share. The choice has the scale :math:`b = R \sqrt{m / (8 \rho_2)}`,
where R is `score_range` and m is the number of chosen pairs. With ``at_once=True`` the m pairs are the best of one
draw of Gumbel noise (`choose_several`), and b also pays for the rounding of that draw, at most :math:`m^2 2^{-39}`
scales in the range of each choice. If measuring all pairs would have no more noise than a choice, all are measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from bayesprivmrf.audit import Choices
from bayesprivmrf.checks import require, require_memory
from bayesprivmrf.errors import ModelError
from bayesprivmrf.learning.select_measure.couplings import FittedCouplings
from bayesprivmrf.learning.select_measure.map import CouplingsByMeasurement
from bayesprivmrf.learning.select_measure.measurement import (
    STEPS,
    Measured,
    MeasurementPlan,
    pairs_sensitivity,
    public_shares,
    score_range,
    singles_sensitivity,
)
from bayesprivmrf.learning.select_measure.pair_counts import (
    dependence_scores,
    pair_sums,
    pair_tables,
    product_sums,
)
from bayesprivmrf.learning.select_measure.targets import smallest_chosen, smallest_measured
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.reading.coded import CodedRecords
from bayesprivmrf.mechanisms.record_mechanisms import LearningPlan, eligible_pairs, noisy_sums
from bayesprivmrf.mechanisms.select_measure.plan import no_pair
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay
from bayesprivmrf.privacy import Adjacency, selection_scale
from bayesprivmrf.privacy.selection import GUMBEL_DEVIATION

# Shares of the budget for single variables and for the choice; the rest is for the chosen pairs
ONE_WAY_SHARE = 0.1
SELECTION_SHARE = 0.4

# Arrays of all pairs of states, of 8 bytes a number, that a choice has at once
ARRAYS_OF_PAIRS = 7

type Measure = Literal["moments", "tables"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneChoice:
    """Plan of `SelectMeasure` with a degree: what it will spend, and how it runs.

    Parameters
    ----------
    map
        Noise and candidates of the steps, and the fit; the release contains it.
    rho
        Budget of all steps together, nats.
    adjacency
        The neighboring relation.
    """

    map: CouplingsByMeasurement
    rho: float
    adjacency: Adjacency

    def outlays(self, total: float | None) -> list[Outlay]:
        """Return the steps in their order, with costs and noise, and the smallest couplings that they can find."""
        measured = self.map.plan
        cards = measured.cardinalities
        pairs = measured.count
        choosing = measured.selection_scale
        singles = singles_sensitivity(cards, measured.form, self.adjacency)
        doubles = pairs_sensitivity(len(cards), pairs, measured.form, self.adjacency)
        budget = split(self.rho, chooses=choosing is not None)
        steps = [
            noisy_sums(
                "each variable by itself",
                budget.singles,
                len(cards),
                measured.one_way,
                round(singles**2),
            )
        ]
        step = "all pairs"
        if choosing is not None:
            step = "these pairs"
            moved = score_range(self.adjacency)
            steps.append(
                Outlay(
                    step=f"choice of {pairs} pairs from {len(measured.candidates)}",
                    rho=budget.choice,
                    count=pairs,
                    noise_sd=GUMBEL_DEVIATION * choosing / STEPS,
                    draws=(Choices(scale=choosing, score_range=moved, copies=pairs),),
                    smallest_coupling=None if total is None else smallest_chosen(measured, total),
                )
            )
        smallest = None if total is None else smallest_measured(measured, total)
        rest = self.rho - budget.singles - budget.choice
        copies = round(doubles**2)
        return [*steps, noisy_sums(step, rest, pairs, measured.two_way, copies, smallest)]

    def run(self, records: CodedRecords, source: NoiseSource, total: float) -> FittedCouplings:
        """Choose and measure pairs of records, and fit the couplings to the noisy numbers.

        Parameters
        ----------
        records
            The records: sensitive.
        source
            Source of all noise.
        total
            Public or noisy number of records, positive.
        """
        measured = select_and_measure(records, total, self.map.plan, source)
        return self.map.fit(measured, total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Parts of the budget, nats: for single variables, for the choice, and for the pairs, rounded down."""

    singles: float
    choice: float
    pairs: float


def split(rho: float, *, chooses: bool) -> Budget:
    """Return the parts of a budget; together they are at most rho."""
    singles = ONE_WAY_SHARE * rho
    choice = SELECTION_SHARE * rho if chooses else 0.0
    rest = float(Fraction(rho) - Fraction(singles) - Fraction(choice))
    return Budget(singles=singles, choice=choice, pairs=math.nextafter(rest, 0.0))


def one_choice(
    plan: LearningPlan[Any],
    degree: float,
    measure: Measure | None,
    rho: float,
    adjacency: Adjacency,
) -> OneChoice:
    """Return the plan of one choice, after a check of the public inputs.

    Parameters
    ----------
    plan
        The declaration, and the budget without that of a private number of records.
    degree, measure, rho, adjacency
        Settings of `SelectMeasure`.
    """
    model = plan.specification
    cards = model.cardinalities
    variables = len(cards)
    is_binary = all(k == 2 for k in cards)
    free = np.array(cards) > 1
    # ascending pairs of variables with several states
    candidates = np.argwhere(np.triu(eligible_pairs(model) & free & free[:, None]))
    if not len(candidates):
        raise no_pair()
    must = f"be at most {variables - 1} with {variables} variables"
    require(float(degree) <= variables - 1, "degree", must, degree, "choose a smaller one")
    if measure == "moments" and not is_binary:
        raise ModelError(
            "`measure` must be 'tables' beyond two states each, got 'moments'; leave it out."
        )
    what = f"all pairs of {sum(cards):,} states"
    remedy = "merge states, or learn groups of variables separately"
    needed = ARRAYS_OF_PAIRS * 8 * sum(k - 1 for k in cards) ** 2
    require_memory(what, needed, remedy, DEFAULT_MEMORY_LIMIT)
    form: Measure = measure or ("moments" if is_binary else "tables")
    count = min(math.ceil(sum(k > 1 for k in cards) * float(degree) / 2), len(candidates))
    measured = measurements(plan, form, candidates, count, adjacency)
    must = "give noise that a float can represent"
    is_drawn = min(measured.one_way.variance, measured.two_way.variance) > 0
    require(is_drawn, "rho", must, rho, "choose a smaller budget")
    fitting = CouplingsByMeasurement(plan=measured, total_noise=plan.total_noise)
    return OneChoice(map=fitting, rho=plan.learning, adjacency=adjacency)


def measurements(
    plan: LearningPlan[Any],
    form: Measure,
    candidates: IntArray,
    count: int,
    adjacency: Adjacency,
) -> MeasurementPlan:
    """Divide the budget between single variables, the choice and the pairs, and return noise for these shares."""
    cards = plan.specification.cardinalities
    few = pairs_sensitivity(len(cards), count, form, adjacency)
    every = pairs_sensitivity(len(cards), len(candidates), form, adjacency)
    # variances of the noise, up to a common factor, on chosen pairs and on all pairs
    chosen_noise = few**2 / (1 - ONE_WAY_SHARE - SELECTION_SHARE)
    chooses = count < len(candidates) and chosen_noise < every**2 / (1 - ONE_WAY_SHARE)
    if not chooses:
        count = len(candidates)
    budget = split(plan.learning, chooses=chooses)
    singles = singles_sensitivity(cards, form, adjacency)
    (one_way,) = discrete_gaussian_laws([1.0], budget.singles, singles)
    sensitivity = pairs_sensitivity(len(cards), count, form, adjacency)
    (two_way,) = discrete_gaussian_laws([1.0], budget.pairs, sensitivity)
    scale = None
    if chooses:
        scale = selection_scale(score_range(adjacency), budget.choice, count, at_once=True)
    return MeasurementPlan(
        cardinalities=cards,
        form=form,
        candidates=candidates,
        count=count,
        one_way=one_way,
        two_way=two_way,
        selection_scale=scale,
        rules=plan.merge_rules,
    )


def select_and_measure(
    records: CodedRecords, total: float, plan: MeasurementPlan, source: NoiseSource
) -> Measured:
    """Run the three steps on records, and return the released numbers.

    Parameters
    ----------
    records
        The records: sensitive.
    total
        Public or noisy number of records, positive.
    plan
        Public plan of selection and measurement.
    source
        Source of all noise.
    """
    cards = plan.cardinalities
    sums = pair_sums(records.sensitive_codes, records.sensitive_counts, cards)
    is_sum = plan.form == "moments"

    # every variable by itself
    exact = sums.single
    if is_sum:
        second = np.cumsum([0, *cards])[:-1] + 1
        exact = 2 * sums.single[second] - sums.total
    one_way = source.add(exact, plan.one_way)

    # the pairs: all, or the best by their noisy scores
    chosen = np.arange(len(plan.candidates))
    if plan.selection_scale is not None:
        shares = public_shares(one_way, total, plan)
        scores = dependence_scores(sums, cards, shares)[tuple(plan.candidates.T)]
        best = source.choose_several(scores[None, :], plan.selection_scale, plan.count)[0]
        chosen = np.sort(best)

    # these pairs
    pairs = plan.candidates[chosen]
    if is_sum:
        exact = product_sums(sums, pairs)
    else:
        exact = pair_tables(sums, pairs, cards)
    return Measured(one_way=one_way, pairs=pairs, two_way=source.add(exact, plan.two_way))


def measured_on_rows(
    codes: np.ndarray, counts: IntArray, total: float, plan: MeasurementPlan, source: NoiseSource
) -> Measured:
    """Run the three steps on rows that were drawn from a model, for a replicate of a release.

    Parameters
    ----------
    codes, counts
        Rows of states' codes, shape (rows, p), and the number of records that each represents, shape (rows,).
    total, plan, source
        See `select_and_measure`.
    """
    return select_and_measure(CodedRecords.of(codes, counts), total, plan, source)
