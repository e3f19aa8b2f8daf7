"""`PrivateFrankWolfe`: couplings of a Markov random field by private Frank-Wolfe, without a declared graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

from bayesprivmrf.audit import Choices
from bayesprivmrf.checks import (
    one_of,
    positive_finite,
    probability,
    require,
    require_memory,
    whole_number,
)
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.interruption import stopped_details
from bayesprivmrf.learning import LearnedIsing, LearnedMonomials, LearnedPairwise
from bayesprivmrf.learning.frank_wolfe import (
    LARGEST_STEPS,
    ByRegressions,
    FrankWolfeFit,
    MonomialsByRegressions,
    PairwiseByPairs,
    PairwiseByRegressions,
    PairwiseBySoftmax,
    Target,
    singles_plan,
)
from bayesprivmrf.learning.models.solution import Signal
from bayesprivmrf.learning.select_measure import (
    NumberOfRecords,
    PairTargets,
    pair_statistics,
    singles_sensitivity,
)
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.frank_wolfe.search import run
from bayesprivmrf.mechanisms.record_mechanisms import (
    CodedRecords,
    LearningMechanism,
    LearningPlan,
    eligible_pairs,
    noisy_sums,
)
from bayesprivmrf.model import ModelSpecification, Monomials
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay
from bayesprivmrf.privacy import (
    Adjacency,
    DiscreteGaussian,
    parity_l2_sensitivity,
    squared_l2_sensitivity,
)
from bayesprivmrf.privacy.selection import GUMBEL_DEVIATION


def choices_outlay(fitted: ByRegressions, rho: float, total: float | None) -> Outlay:
    r"""Return the cost of the steps and the noise of their choices.

    At 0 the score of a single coupling w is about :math:`N w B / a` records, where B is the largest residual and a is
    the map's `reference`. Scores of pairs without a coupling are near 0. An atom is chosen with a weight of
    :math:`e^{u / \kappa B}`, so the atom of the coupling is chosen among K atoms in half of all cases if
    :math:`w = a \kappa \log K / N`. For much smaller couplings the steps are nearly uniform draws.
    """
    if total is None and fitted.steps is None:
        return Outlay(
            step="choices, in a number of steps that depends on the number of records", rho=rho
        )
    steps = fitted.steps_for(total)
    multiple = fitted.multiple(steps)
    # bounds of residuals, see `Exposure`
    if fitted.adjacency is Adjacency.REPLACE_ONE:
        moved = 4.0
    else:
        moved = 2.0
    if total is None:
        found = None
    else:
        found = fitted.reference * multiple * math.log(fitted.atoms) / max(total, 1.0)
    return Outlay(
        step=f"{steps} steps of {fitted.exposure.choices} choice{'' if fitted.exposure.choices == 1 else 's'}",
        rho=rho,
        count=steps * fitted.exposure.choices,
        noise_sd=multiple * GUMBEL_DEVIATION,
        draws=(Choices(scale=multiple, score_range=moved, copies=steps * fitted.exposure.squares),),
        smallest_coupling=found,
    )


def checked_size(name: str, value: Any) -> float:
    """Return a checked bound of coefficients: positive, and at most 1000 nats."""
    size = positive_finite(name, value)
    require(
        size <= 1000, name, "be at most 1000", size, "log-odds of ten are nearly certain already"
    )
    return size


def checked_steps(steps: Any) -> int | None:
    """Return a checked number of steps, or ``None`` for the default."""
    if steps is None:
        return None
    return whole_number("steps", steps, 1, LARGEST_STEPS, remedy="leave it out for a default")


# Largest number of states of a variable: logistic regressions of pairs of states grow as its square
_MOST_STATES = 12


type FrankWolfePlan = LearningPlan[PairwiseByRegressions | MonomialsByRegressions]


@dataclass(frozen=True, kw_only=True)
class PrivateFrankWolfe(
    LearningMechanism[
        PairwiseByRegressions | MonomialsByRegressions,
        LearnedIsing | LearnedPairwise | LearnedMonomials,
    ]
):
    r"""Learn couplings and fields by one private sparse regression for each node: rho-zero-concentrated privacy.

    No graph needs to be declared: every pair may be coupled, or every pair within a clique if cliques are declared.
    Each step of each regression makes one choice by the exponential mechanism; docs/explanation/frank-wolfe.md has
    the proofs.

    Parameters
    ----------
    rho
        Budget, nats, positive.
    width
        :math:`\lambda`, public and positive: for every node, a bound on the sum of the sizes of its couplings and its
        field, :math:`\sum_j |A_{ij}| + |h_i|` for two states, and
        :math:`\max_a \sum_j \max_b |W_{ij}(a, b)| + |\theta_i(a)|` for more. Larger sums are shrunk to the width, so
        choose a larger width if in doubt.
    order
        Size t of the largest interactions: 2 for couplings of pairs; 3 or more for products of up to t variables of
        two states, a `LearnedMonomials`. `width` then bounds :math:`\sum_{I \ni i} |h_I|` for every variable.
    steps
        Number of Frank-Wolfe steps, public; by default chosen from the number of records, which is public under
        replace-one and otherwise takes 2 % of the budget.
    single_share
        Share of `rho` that measures each single variable, in [0, 1): 0.05 by default. The fields are then refitted to
        these measurements, given the couplings, so that the model has the measured margins; `statistics` contains the
        measurements. With 0 nothing is measured, and the fields are those of the regressions, which are accurate only
        if no state is rare. A share above 0 needs the number of records as well.
    method
        Form for variables of more than two states: ``"softmax"``, one softmax regression for each node, or
        ``"pairs"``, one logistic regression for each pair of states, as in the paper. If all variables have two
        states, there is one logistic regression for each node.
    target
        Goal for an order of 3 or more: ``"l1"`` (Algorithm 4) estimates all coefficients; ``"linf"`` (Algorithm 5)
        estimates those of maximal monomials, with half of the budget for noisy parities. See
        docs/explanation/parities.md.
    adjacency, missing, other
        See `LearningMechanism`.

    Raises
    ------
    ArgumentError
        A setting is out of range, or does not fit the others.
    ModelError, ModelTooLargeError
        Fewer than two variables have several states, one has more than 12, or memory is too small; raised at release.

    References
    ----------
    Zhang, Kamath, Kulkarni, Wu 2020, Algorithms 1 to 5.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import bayesprivmrf as bpm
    >>> coin = np.tile([0, 1], 2000)
    >>> data = pd.DataFrame({"a": coin, "b": np.where(np.arange(4000) % 10 < 8, coin, 1 - coin)})
    >>> variables = bpm.declare(states={"a": [0, 1], "b": [0, 1]})
    >>> learned = PrivateFrankWolfe(rho=1.0, width=1.0).release(variables, data, rng=1)
    >>> bool(learned.couplings.sel(variable="a", other="b") > 0.5)  # log(4) / 2 = 0.69
    True
    """

    releases = (LearnedIsing, LearnedPairwise, LearnedMonomials)
    removed_settings: ClassVar[Mapping[str, str]] = {
        "calibration": "noise is the smallest that is proved; the paper's constants, for comparison, are those of "
        "PaperFrankWolfe in benchmarks/papers/frank_wolfe.py of the repository"
    }
    _remedy: ClassVar[str] = "spend more, or declare fewer variables"

    width: float
    order: int = 2
    steps: int | None = None
    single_share: float = 0.05
    method: Literal["softmax", "pairs"] = "softmax"
    target: Target = "l1"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(width=checked_size("width", self.width), steps=checked_steps(self.steps))
        whole_number("order", self.order, 2, remedy="2 is for couplings of pairs")
        one_of("target", self.target, ("l1", "linf"), remedy="'l1' is for all monomials")
        one_of("method", self.method, ("softmax", "pairs"))
        if self.single_share is None:
            share = 0.05
        else:
            share = self.single_share
        remedy = "0.05 is a twentieth of the budget"
        self._keep(single_share=probability("single_share", share, zero=True, remedy=remedy))
        if self.target == "linf" and self.order == 2:
            raise ArgumentError(
                "`target='linf'` must go with an order of 3 or more, got 2; leave it out."
            )

    @property
    def needs_total(self) -> bool:
        """True if the number of records chooses the steps, or turns measured counts into shares."""
        return self.steps is None or self.single_share > 0

    def _twin(self) -> PrivateFrankWolfe:
        return PrivateFrankWolfe(
            rho=1.0,
            width=1.0,
            steps=2,
            order=min(self.order, 3),
            method=self.method,
            target=self.target,
        )

    def _map(self, plan: LearningPlan[Any]) -> PairwiseByRegressions | MonomialsByRegressions:
        singles, rho = self._split(plan)
        model = plan.specification
        settings = {"width": self.width, "adjacency": self.adjacency, "steps": self.steps}
        fitted: PairwiseByRegressions | MonomialsByRegressions
        if self.order == 2:
            fitted = self._map_of(model)(
                cardinalities=model.cardinalities,
                eligible=eligible_pairs(model),
                rho=rho,
                singles=singles,
                is_ising=set(model.cardinalities) == {2},
                **settings,
            )
        else:
            sets = Monomials.of(model, self.order)
            law = None
            features = Monomials(variables=sets.variables, levels=sets.levels[:-1])
            what = f"{sets.variables} regressions on {len(features):,} monomials"
            remedy = "take a smaller order, or declare the cliques that matter"
            # 80 bytes of sums, noise and iterates for each coefficient of each regression
            require_memory(what, 80 * len(features) * sets.variables, remedy, DEFAULT_MEMORY_LIMIT)
            if self.target == "linf":
                sensitivity = parity_l2_sensitivity(
                    features, self.adjacency, with_empty=not plan.knows_total
                )
                # half of the budget for the parities of Algorithm 5
                (law,) = discrete_gaussian_laws([1.0], 0.5 * rho, sensitivity)
                rho -= 0.5 * rho
            fitted = MonomialsByRegressions(
                sets=sets, rho=rho, parity_law=law, singles=singles, **settings
            )
        # a budget that leaves no scale is refused before anything is read
        fitted.multiple(fitted.steps_for(1.0))
        return fitted

    def _split(self, plan: LearningPlan[Any]) -> tuple[DiscreteGaussian | None, float]:
        """Return the noise on single variables, and the remaining budget for the regressions."""
        share = self.single_share
        if share == 0:
            return None, plan.learning
        cards = plan.specification.cardinalities
        moved = singles_sensitivity(cards, _form(cards), self.adjacency)
        (law,) = discrete_gaussian_laws([1.0], share * self.rho, moved)
        remedy = "choose a smaller budget, or `single_share=0`"
        require(law.variance > 0, "rho", "give noise that a float can represent", self.rho, remedy)
        rest = Fraction(plan.learning) - Fraction(share * self.rho)
        must = "leave a part of the budget for the regressions"
        require(rest > 0, "single_share", must, share, "choose a smaller share")
        return law, math.nextafter(float(rest), 0.0)  # all parts add up to no more than rho

    def _map_of(self, specification: ModelSpecification) -> type[PairwiseByRegressions]:
        states = specification.cardinalities
        free = sum(k > 1 for k in states)
        must = "have two variables with several states"
        require(free > 1, "network", must, free, "declare more", error=ModelError)
        must = f"have at most {_MOST_STATES} states a variable"
        remedy = "merge states, or use SelectMeasure"
        require(max(states) <= _MOST_STATES, "network", must, max(states), remedy, error=ModelError)
        # if all variables have two states, each has one pair of states and one logistic regression
        if set(states) == {2}:
            method = "logistic"
        else:
            method = self.method
        rows = sum(k * (k - 1) if method == "pairs" else k for k in states)
        remedy = "declare cliques on fewer variables, merge states, or use SelectMeasure"
        what = "all couplings and their noise, beside the records,"
        # 8 GiB of coefficients, sums and noise; the records need memory as well
        require_memory(what, 8 * 10 * rows * sum(states), remedy, 1 << 33)
        if method == "softmax":
            return PairwiseBySoftmax
        return PairwiseByPairs

    def _outlays(self, plan: FrankWolfePlan, total: float | None) -> list[Outlay]:
        fitted = plan.map
        outlays = self._total_outlay(plan)
        law = fitted.singles
        cards = plan.specification.cardinalities
        alone = self.single_share * self.rho
        if law is not None:
            form = _form(cards)
            moved = singles_sensitivity(cards, _form(cards), self.adjacency)
            if form == "moments":
                count = len(cards)
            else:
                count = sum(cards)
            outlays.append(
                noisy_sums("each variable by itself", alone, count, law, round(moved**2))
            )
        if isinstance(fitted, MonomialsByRegressions) and fitted.parity_law is not None:
            moved = squared_l2_sensitivity(
                fitted.features, self.adjacency, with_empty=not plan.knows_total
            )
            step = f"parities of up to {self.order - 1}"
            rho = plan.learning - alone - fitted.rho
            outlays.append(noisy_sums(step, rho, len(fitted.features), fitted.parity_law, moved))
        return [*outlays, choices_outlay(fitted, fitted.rho, total)]

    def _run(
        self,
        fitting: PairwiseByRegressions | MonomialsByRegressions,
        records: CodedRecords,
        total: float | None,
        source: NoiseSource,
    ) -> FrankWolfeFit:
        """Run the search on records; another algorithm may replace it."""
        return run(fitting, records, total, source)

    def _randomise(
        self, plan: FrankWolfePlan, exact: CodedRecords, source: NoiseSource, stamp: Stamp
    ) -> LearnedIsing | LearnedPairwise | LearnedMonomials:
        total = self._total(plan, exact, source)
        fitted = self._run(plan.map, exact, total, source)
        # from here on, only released numbers are used
        release = release_of(plan, fitted, total, stamp)
        self._warn(plan, total)
        return release


def release_of(
    plan: FrankWolfePlan, fitted: FrankWolfeFit, total: float | None, stamp: Stamp
) -> LearnedIsing | LearnedPairwise | LearnedMonomials:
    """Return the release of a search: its parameters, the measured single variables, and details."""
    law = plan.map.singles
    domain = plan.specification.domain
    variance = 0.0 if plan.total_noise is None else plan.total_noise.variance
    signal = None
    if total is not None:
        signal = Signal.of(total, math.sqrt(variance), (), ())
    statistics = None
    if fitted.measured is not None and law is not None and total is not None:
        asked = singles_plan(domain.cardinalities, law)
        signal = PairTargets.of(fitted.measured, asked, total, variance).signal()
        statistics = pair_statistics(
            domain,
            asked,
            fitted.measured,
            NumberOfRecords(total, plan.total_noise),
            **stamp.fields,
        )
    steps = plan.map.steps_for(total)
    details = {
        "steps": steps,
        "radius": plan.map.radius,
        "noise_multiple": plan.map.multiple(steps),
    }
    if fitted.fields is not None and law is not None:
        # a model whose margins differ from the measured ones is not trusted
        status = Status.APPROXIMATE if fitted.fields.agrees else Status.NOT_TRUSTED
        details |= {"status": str(status), "one_way_noise": law.scale, **fitted.fields.details}
    details |= stopped_details() | ({} if signal is None else signal.details)
    common: dict[str, Any] = {
        "domain": domain,
        **stamp.fields,
        "total": total,
        "total_noise": plan.total_noise,
        "map": plan.map,
        "unsupported": None if signal is None else signal.unsupported,
        "statistics": statistics,
        "details": details,
    }
    if isinstance(plan.map, MonomialsByRegressions):
        form: Any = LearnedMonomials
        common["sets"] = plan.map.sets
    elif plan.map.is_ising:
        form = LearnedIsing
    else:
        form = LearnedPairwise
    return form(**common, **dict(zip(form.parameters, fitted.parts, strict=True)))


def _form(cardinalities: tuple[int, ...]) -> Literal["moments", "tables"]:
    """Return the form in which single variables are measured, as in `singles_plan`."""
    if set(cardinalities) == {2}:
        return "moments"
    return "tables"
