"""`SelectMeasure`: choose the most informative tables, measure them, and fit a Markov random field.

`Mechanism.release` (`bayesprivmrf.mechanisms.base`) fixes the order of check, charge and noise, and calls the hooks
of `LearningMechanism` (`bayesprivmrf.mechanisms.record_mechanisms`), which turns data into codes. The mechanism has
two forms. Each is a plan with `outlays`, which it will spend in this order, and a `run`:

- **Adaptive rounds**, without a degree: `AdaptiveRounds` in `select_measure.rounds`, on the public facts of
  `select_measure.plan`. `select_measure.released` makes the release. In `bayesprivmrf.learning.select_measure`,
  `measured_tables` has the released tables, `round_fit` the model, and `rounds_solution` the intervals of its
  marginals.
- **One choice of pairs**, with a degree: `OneChoice` in `select_measure.one_choice`. In
  `bayesprivmrf.learning.select_measure`, `measurement` derives scores and sensitivities, `couplings` fits the noisy
  numbers, and `map` has the intervals of the couplings. `bayesprivmrf.learning.select_measure.targets` turns the
  numbers into answers to queries, for other estimators.

Records and noise are combined only in `_randomise`. A setting of the other form is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from bayesprivmrf.checks import one_of, positive_finite, require, whole_number
from bayesprivmrf.files import Json
from bayesprivmrf.interruption import warn_of_contradiction, warn_without_raising
from bayesprivmrf.learning import LearnedIsing, LearnedPairwise, LearnedPotentials
from bayesprivmrf.learning.models.solution import FALLBACK, HIDDEN_BY_NOISE
from bayesprivmrf.learning.select_measure.couplings import FittedCouplings, details_of
from bayesprivmrf.learning.select_measure.targets import (
    NumberOfRecords,
    noise_share,
    pair_statistics,
)
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.record_mechanisms import (
    CodedRecords,
    LearningMechanism,
    LearningPlan,
    public_number,
)
from bayesprivmrf.mechanisms.select_measure.one_choice import Measure, OneChoice, one_choice
from bayesprivmrf.mechanisms.select_measure.plan import (
    MAXIMUM_CELLS,
    checked_workload,
    rounds_plan,
)
from bayesprivmrf.mechanisms.select_measure.released import release_of, warning_of
from bayesprivmrf.mechanisms.select_measure.rounds import AdaptiveRounds
from bayesprivmrf.mechanisms.select_measure.size import require_memory_of_rounds, require_tables_fit
from bayesprivmrf.model.tables import Clique
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay, about

# Share of the noise in the variance of a pair above which a release without any pair is said to be hidden by noise
HIDING_SHARE = 1 / 2

type Form = AdaptiveRounds | OneChoice

type SelectMeasurePlan = LearningPlan[Form]


@final
@dataclass(frozen=True, kw_only=True)
class SelectMeasure(LearningMechanism[Form, LearnedIsing | LearnedPairwise | LearnedPotentials]):
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

    def _settings(self) -> dict[str, Json]:
        """Return the settings of the requested form, as numbers and text."""
        if self.degree is None:
            own = {"degree", "measure"}
        else:
            own = {"workload", "maximum_cells"}
        return {name: value for name, value in super()._settings().items() if name not in own}

    def _twin(self) -> SelectMeasure:
        return SelectMeasure(rho=1.0, degree=None if self.degree is None else 1.0)

    def _map(self, plan: LearningPlan[Any]) -> Form:
        if self.degree is not None:
            return one_choice(plan, self.degree, self.measure, self.rho, self.adjacency)
        rounds = rounds_plan(plan, self.adjacency, self.workload, self.maximum_cells)
        require_tables_fit(rounds, plan.specification.domain)
        require_memory_of_rounds(rounds)
        return AdaptiveRounds(plan=rounds)

    def _outlays(self, plan: SelectMeasurePlan, total: float | None) -> list[Outlay]:
        return [*self._total_outlay(plan), *plan.map.outlays(total)]

    def _randomise(
        self, plan: SelectMeasurePlan, exact: CodedRecords, source: NoiseSource, stamp: Stamp
    ) -> LearnedIsing | LearnedPairwise | LearnedPotentials:
        if isinstance(plan.map, AdaptiveRounds):
            known = public_number(plan, exact)
            run = plan.map.run(exact, source, known)
            # from here on, only released numbers are used
            message = warning_of(run, plan.specification.domain)
            release = release_of(run, plan.specification.domain, stamp)
        else:
            total = self._total(plan, exact, source)
            assert total is not None
            fitted = plan.map.run(exact, source, total)
            # from here on, only released numbers are used
            message = self._warning(plan, plan.map, fitted)
            release = couplings_release(plan, plan.map, fitted, total, stamp)
        if message is not None:
            warn_without_raising(message)
        return warn_of_contradiction(release)

    def _warning(
        self, plan: SelectMeasurePlan, form: OneChoice, fitted: FittedCouplings
    ) -> str | None:
        """Return the text of a warning if the noise hides the couplings, or if no pair stands out from it."""
        measured = form.map.plan
        total = max(fitted.total, 1.0)
        kept_none = not any(len(subset) == 2 for subset in fitted.fit.effects.subsets)
        also = ""
        if kept_none and noise_share(measured, total) > HIDING_SHARE:
            also = f", and none of {measured.count} pairs stands out from it"
        if hides := fitted.signal.details.get(HIDDEN_BY_NOISE):
            also += f"; it hides {hides}, so that no number of the model can be trusted"
        if stands_in := fitted.fit.details.get(FALLBACK):
            also += f"; the fit of all pairs failed, and a smaller model replaces it: {stands_in}"
        return self._hidden(self._outlays(plan, total), about(total), also)


def couplings_release(
    plan: SelectMeasurePlan, form: OneChoice, fitted: FittedCouplings, total: float, stamp: Stamp
) -> LearnedIsing | LearnedPairwise:
    """Return the release of one choice: the couplings, and all measured numbers."""
    domain = plan.specification.domain
    kind = LearnedPairwise
    if all(k == 2 for k in domain.cardinalities):
        kind = LearnedIsing
    return kind(
        domain=domain,
        total=fitted.total,
        total_noise=plan.total_noise,
        unsupported=fitted.signal.unsupported,
        details=details_of(fitted, form.map.plan),
        coupling_matrix=fitted.coupling_matrix,
        field_vector=fitted.field_vector,
        map=form.map,
        statistics=pair_statistics(
            domain,
            form.map.plan,
            fitted.measured,
            NumberOfRecords(total, plan.total_noise),
            **stamp.fields,
        ),
        **stamp.fields,
    )
