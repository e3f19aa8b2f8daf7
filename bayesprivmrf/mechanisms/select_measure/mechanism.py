"""`SelectMeasure`: choose the most informative tables, measure them, and fit a Markov random field.

`Mechanism.release` (`bayesprivmrf.mechanisms.base`) fixes the order of check, charge and noise, and calls the hooks
of `LearningMechanism` (`bayesprivmrf.mechanisms.record_mechanisms`), which turns data into codes. It has two forms:

- **Adaptive rounds**, without a degree. `select_measure.plan` has the public facts, sensitivities and noise;
  `select_measure.rounds` sees the records; `select_measure.released` makes the release. In
  `bayesprivmrf.learning.select_measure`, `measured_tables` has the released tables, `round_fit` the model, and
  `rounds_solution` the intervals of its marginals.
- **One choice of pairs**, with a degree. `SelectMeasure._measurements` divides the budget and sets the noise, by the
  sensitivities of `bayesprivmrf.learning.select_measure.measurement`, which sees the records. `couplings` in that
  folder continues with the noisy numbers only, by `fit`. `_release` makes the release, and `map` has the intervals of
  its couplings. `bayesprivmrf.learning.select_measure.targets` turns the noisy numbers into answers to queries, for
  other estimators.

Codes and noise are combined only in `_randomise`. A setting of the other form is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, final

import numpy as np

from bayesprivmrf.audit import Choices
from bayesprivmrf.checks import one_of, positive_finite, require, require_memory, whole_number
from bayesprivmrf.errors import ModelError
from bayesprivmrf.interruption import warn_of_contradiction, warn_without_raising
from bayesprivmrf.learning import LearnedIsing, LearnedPairwise, LearnedPotentials
from bayesprivmrf.learning.models.solution import FALLBACK, HIDDEN_BY_NOISE
from bayesprivmrf.learning.select_measure import (
    STEPS,
    CouplingsByMeasurement,
    FittedCouplings,
    MeasurementPlan,
    details_of,
    noise_share,
    pair_statistics,
    pairs_sensitivity,
    score_range,
    select_and_measure,
    singles_sensitivity,
    smallest_chosen,
    smallest_measured,
)
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.record_mechanisms import (
    CodedRecords,
    LearningMechanism,
    LearningPlan,
    eligible_pairs,
    noisy_sums,
)
from bayesprivmrf.mechanisms.select_measure.plan import (
    MAXIMUM_CELLS,
    RoundsPlan,
    checked_workload,
    no_pair,
    rounds_plan,
)
from bayesprivmrf.mechanisms.select_measure.released import release_of, warning_of
from bayesprivmrf.mechanisms.select_measure.rounds import Rounds
from bayesprivmrf.mechanisms.select_measure.size import (
    require_memory_of_rounds,
    require_tables_fit,
    round_outlays,
)
from bayesprivmrf.mechanisms.select_measure.wide_rounds import WideRounds
from bayesprivmrf.model.tables import Clique, IntArray
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay, about
from bayesprivmrf.privacy import selection_scale
from bayesprivmrf.privacy.selection import GUMBEL_DEVIATION

# Shares of the budget for single variables and for the choice; the rest is for the chosen pairs
ONE_WAY_SHARE, SELECTION_SHARE = 0.1, 0.4

type Measure = Literal["moments", "tables"]


type SelectMeasurePlan = LearningPlan[RoundsPlan | CouplingsByMeasurement]


@final
@dataclass(frozen=True, kw_only=True)
class SelectMeasure(
    LearningMechanism[
        RoundsPlan | CouplingsByMeasurement, LearnedIsing | LearnedPairwise | LearnedPotentials
    ]
):
    r"""Learn a model by choosing the most informative tables, and measuring only those.

    Without a `degree` the analyst need not guess anything. The mechanism measures single variables first. Then, in
    rounds, it measures the pairs and triples whose tables differ most from the model, as many as stand out from the
    noise of measuring them, and fits the model after each round (`select_measure.rounds`). If nothing stands out
    anymore, it measures earlier tables again. The release is a `LearnedPotentials`. Rare states are merged for the
    fit (`merged_states` of the release names them). If `declare(ordinal=...)` gives scores, only adjacent states are
    merged; the scores have no other effect here. The state of `missing` is never merged with an answer.

    With a `degree` there is one choice of pairs. The mechanism measures every single variable, chooses the
    :math:`m = \lceil p d / 2 \rceil` pairs with the largest noisy dependence scores, and measures these;
    `bayesprivmrf.learning.select_measure.measurement` derives score and sensitivities. The model is fitted by maximum
    likelihood to the pairs that stand out from the noise, exactly or by Gibbs sampling, as the chosen graph allows.
    If this fit fails, a smaller model replaces it, and the release names this model. Rare states are merged by the
    same rules as in rounds. If measuring all pairs would have no more noise than a choice, the mechanism measures
    all.

    Parameters
    ----------
    rho
        Budget, nats, positive. With a degree, a private number of records takes 2 %. Of the rest, a tenth is for
        single variables, four tenths are for the choice, and the remainder is for the pairs. `preview` shows the
        shares of the rounds.
    degree
        d, public: the average number of neighbors of a variable in the graph, about. Give one more than you expect: a
        superfluous pair costs little, but a coupling that is left out is lost. ``None`` asks for rounds.
    measure
        For one choice only. ``"moments"`` measures sums of spins and of their products, and needs variables of two
        states; ``"tables"`` measures whole tables of pairs. The default is moments if all variables have two states,
        because they are more precise. The release contains the measurements as `statistics`, for `LatentCounts` and
        other estimators.
    workload
        For rounds only: the tables that may be measured, each a tuple of variables. The default is all pairs and
        triples, or those inside declared cliques.
    maximum_cells
        For rounds only: the largest number of cells in all cliques of the model with merged states. More cells allow
        more tables and take longer, because a fit evaluates the cells some hundred times. Beyond a hundred variables
        the model may have this many cells for each hundred.
    adjacency, missing, other
        See `LearningMechanism`.

    Raises
    ------
    ArgumentError
        A setting is out of range.

    References
    ----------
    Durfee, Rogers 2019 (several choices from one draw). McKenna, Miklau, Sheldon 2021 (select, measure, generate).
    McKenna, Mullins, Sheldon, Miklau 2022 (rounds that adapt). Feldman, Zrnic 2021 (privacy filters).

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> variables = bpm.declare(states={"smokes": ["no", "yes"], "ill": ["no", "yes"], "age": ["<30", ">=30"]})
    >>> SelectMeasure(rho=0.1, degree=1).preview(variables)["step"].tolist()
    ['number of records', 'each variable by itself', 'all pairs']
    """

    releases = (LearnedIsing, LearnedPairwise, LearnedPotentials)
    _remedy: ClassVar[str] = "spend more, declare fewer variables, or take a smaller degree"
    _knows_order: ClassVar[bool] = True

    degree: float | None = None
    measure: Measure | None = None
    workload: Iterable[Clique] | None = None
    maximum_cells: int = MAXIMUM_CELLS
    removed_settings: ClassVar[Mapping[str, str]] = {
        "seconds": "learning does not depend on time; set a smaller `maximum_cells` for a shorter release, and see "
        "`preview(network, total=...)` for about how long it takes"
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("maximum_cells", self.maximum_cells, 16)
        self._keep(workload=checked_workload(self.workload))
        if self.degree is None:
            must = "be left out without `degree`, because rounds measure tables"
            remedy = "give both for one choice"
            require(self.measure is None, "measure", must, self.measure, remedy)
            return
        must = "be left out with `degree`, which chooses among all pairs"
        require(self.workload is None, "workload", must, "both", "leave out one of the two")
        positive_finite("degree", self.degree, "give the average number of neighbors of a variable")
        if self.measure is not None:
            remedy = "leave it out for the more exact one"
            one_of("measure", self.measure, ("moments", "tables"), remedy=remedy)

    @property
    def needs_total(self) -> bool:
        """True if the number of records has its own budget; rounds take it from tables of single variables."""
        return self.degree is not None

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the requested form, as numbers and text."""
        if self.degree is None:
            own = {"degree", "measure"}
        else:
            own = {"workload", "maximum_cells"}
        return {name: value for name, value in super()._settings().items() if name not in own}

    def _twin(self) -> SelectMeasure:
        return SelectMeasure(rho=1.0, degree=None if self.degree is None else 1.0)

    def _map(self, plan: LearningPlan[Any]) -> RoundsPlan | CouplingsByMeasurement:
        if self.degree is not None:
            return self._one_choice(plan, self.degree)
        rounds = rounds_plan(plan, self.adjacency, self.workload, self.maximum_cells)
        require_tables_fit(rounds, plan.specification.domain)
        require_memory_of_rounds(rounds)
        return rounds

    def _one_choice(self, plan: LearningPlan[Any], degree: float) -> CouplingsByMeasurement:
        specification = plan.specification
        cards = specification.cardinalities
        variables = len(cards)
        is_binary = all(k == 2 for k in cards)
        free = np.array(cards) > 1
        # ascending pairs of variables with several states
        candidates = np.argwhere(np.triu(eligible_pairs(specification) & free & free[:, None]))
        if not len(candidates):
            raise no_pair()
        must = f"be at most {variables - 1} with {variables} variables"
        require(float(degree) <= variables - 1, "degree", must, degree, "choose a smaller one")
        if self.measure == "moments" and not is_binary:
            raise ModelError(
                "`measure` must be 'tables' beyond two states each, got 'moments'; leave it out."
            )
        what = f"all pairs of {sum(cards):,} states"
        remedy = "merge states, or learn groups of variables separately"
        # seven arrays of all pairs of states at once
        require_memory(what, 7 * 8 * sum(k - 1 for k in cards) ** 2, remedy, DEFAULT_MEMORY_LIMIT)
        form: Measure = self.measure or ("moments" if is_binary else "tables")
        count = min(math.ceil(sum(k > 1 for k in cards) * float(degree) / 2), len(candidates))
        measured = self._measurements(cards, form, candidates, count, plan.learning)
        measured = replace(measured, rules=plan.merge_rules)
        return CouplingsByMeasurement(plan=measured, total_noise=plan.total_noise)

    def _measurements(
        self, cards: tuple[int, ...], form: Measure, candidates: IntArray, count: int, rho: float
    ) -> MeasurementPlan:
        r"""Divide the budget between single variables, the choice and the pairs, and return noise for these shares.

        `discrete_gaussian_laws` rounds each scale up until its loss by OpenDP is at most its share. The choice has
        the scale :math:`b = R \sqrt{m / (8 \rho_2)}`, where R is `score_range` and m is the number of chosen pairs.
        With ``at_once=True`` the m pairs are the best of one draw of Gumbel noise (`choose_several`), and b also pays
        for the rounding of that draw, at most :math:`m^2 2^{-39}` scales in the range of each choice.
        """
        few, all_of_them = (
            pairs_sensitivity(len(cards), m, form, self.adjacency) for m in (count, len(candidates))
        )
        # variances of the noise, up to a common factor, on chosen pairs and on all pairs
        chosen_noise = few**2 / (1 - ONE_WAY_SHARE - SELECTION_SHARE)
        chooses = count < len(candidates) and chosen_noise < all_of_them**2 / (1 - ONE_WAY_SHARE)
        count = count if chooses else len(candidates)
        single = ONE_WAY_SHARE * rho
        if chooses:
            choice = SELECTION_SHARE * rho
        else:
            choice = 0.0
        rest = math.nextafter(float(Fraction(rho) - Fraction(single) - Fraction(choice)), 0.0)
        (one_way,) = discrete_gaussian_laws(
            [1.0], single, singles_sensitivity(cards, form, self.adjacency)
        )
        sensitivity = pairs_sensitivity(len(cards), count, form, self.adjacency)
        (two_way,) = discrete_gaussian_laws([1.0], rest, sensitivity)
        must = "give noise that a float can represent"
        remedy = "choose a smaller budget"
        require(min(one_way.variance, two_way.variance) > 0, "rho", must, self.rho, remedy)
        if chooses:
            scale = selection_scale(score_range(self.adjacency), choice, count, at_once=True)
        else:
            scale = None
        return MeasurementPlan(
            cardinalities=cards,
            form=form,
            candidates=candidates,
            count=count,
            one_way=one_way,
            two_way=two_way,
            selection_scale=scale,
        )

    def _outlays(self, plan: SelectMeasurePlan, total: float | None) -> list[Outlay]:
        if isinstance(plan.map, RoundsPlan):
            return round_outlays(plan.map, total)
        measured = plan.map.plan
        rho = plan.learning
        moved = score_range(self.adjacency)
        pairs = measured.count
        choosing = measured.selection_scale
        alone = ONE_WAY_SHARE * rho
        if choosing is None:
            choice = 0.0
        else:
            choice = SELECTION_SHARE * rho
        cards = measured.cardinalities
        form = measured.form
        singles = singles_sensitivity(cards, form, self.adjacency)
        doubles = pairs_sensitivity(len(cards), pairs, form, self.adjacency)
        steps = self._total_outlay(plan)
        copies = round(singles**2)
        steps.append(
            noisy_sums("each variable by itself", alone, len(cards), measured.one_way, copies)
        )
        if choosing is not None:
            steps.append(
                Outlay(
                    step=f"choice of {pairs} pairs from {len(measured.candidates)}",
                    rho=choice,
                    count=pairs,
                    noise_sd=GUMBEL_DEVIATION * choosing / STEPS,
                    draws=(Choices(scale=choosing, score_range=moved, copies=pairs),),
                    smallest_coupling=None if total is None else smallest_chosen(measured, total),
                )
            )
        if choosing is None:
            step = "all pairs"
        else:
            step = "these pairs"
        rest = rho - alone - choice
        copies = round(doubles**2)
        if total is None:
            smallest = None
        else:
            smallest = smallest_measured(measured, total)
        return [*steps, noisy_sums(step, rest, pairs, measured.two_way, copies, smallest)]

    def _warning(
        self, plan: SelectMeasurePlan, measured: MeasurementPlan, fitted: FittedCouplings
    ) -> str | None:
        """Return the text of a warning if the noise hides the couplings, or if no pair stands out from it."""
        total = max(fitted.total, 1.0)
        kept_none = not any(len(subset) == 2 for subset in fitted.fit.effects.subsets)
        is_noise = noise_share(measured, total) > 1 / 2
        if kept_none and is_noise:
            also = f", and none of {measured.count} pairs stands out from it"
        else:
            also = ""
        if hides := fitted.signal.details.get(HIDDEN_BY_NOISE):
            also += f"; it hides {hides}, so that no number of the model can be trusted"
        if stands_in := fitted.fit.details.get(FALLBACK):
            also += f"; the fit of all pairs failed, and a smaller model replaces it: {stands_in}"
        return self._hidden(self._outlays(plan, total), about(total), also)

    def _randomise(
        self, plan: SelectMeasurePlan, exact: CodedRecords, source: NoiseSource, stamp: Stamp
    ) -> LearnedIsing | LearnedPairwise | LearnedPotentials:
        domain = plan.specification.domain
        if isinstance(plan.map, RoundsPlan):
            if plan.is_total_public:
                known = exact.records
            else:
                known = None
            if plan.map.is_wide:
                kind = WideRounds
            else:
                kind = Rounds
            run = kind(
                plan=plan.map, source=source, codes=exact.codes, counts=exact.counts, total=known
            )
            run.run()
            message = warning_of(run, domain)
            release: LearnedIsing | LearnedPairwise | LearnedPotentials = release_of(
                run, domain, stamp
            )
        else:
            total = self._total(plan, exact, source)
            fitter = plan.map
            assert total is not None
            measured = select_and_measure(exact.codes, exact.counts, total, fitter.plan, source)
            # from here on, only released numbers are read
            fitted = fitter.fit(measured, total)
            message = self._warning(plan, fitter.plan, fitted)
            noise = plan.total_noise
            if all(k == 2 for k in domain.cardinalities):
                kind = LearnedIsing
            else:
                kind = LearnedPairwise
            release = kind(
                domain=domain,
                total=fitted.total,
                total_noise=noise,
                unsupported=fitted.signal.unsupported,
                details=details_of(fitted, fitter.plan),
                coupling_matrix=fitted.coupling_matrix,
                field_vector=fitted.field_vector,
                map=fitter,
                statistics=pair_statistics(
                    domain, fitter.plan, fitted.measured, total, noise, **stamp.fields
                ),
                **stamp.fields,
            )
        if message is not None:
            warn_without_raising(message)
        return warn_of_contradiction(release)
