"""`PrivateFrankWolfe`: couplings of a Markov random field by private Frank-Wolfe, without a declared graph."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np

from bayesprivmrf.audit import Sums
from bayesprivmrf.checks import one_of, probability, require, require_memory, whole_number
from bayesprivmrf.errors import ArgumentError, ModelError, stopped_details
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.learning import LearnedIsing, LearnedMonomials, LearnedPairwise
from bayesprivmrf.learning.frank_wolfe import (
    FrankWolfeFit,
    MonomialsByRegressions,
    PairwiseByPairs,
    PairwiseByRegressions,
    PairwiseBySoftmax,
    Target,
    singles_plan,
)
from bayesprivmrf.learning.models.advice import Signal
from bayesprivmrf.learning.select_measure import PairTargets, pair_statistics, singles_sensitivity
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.frank_wolfe_plan import checked_size, checked_steps, choices_outlay, monomial_map
from bayesprivmrf.mechanisms.learning import CodedRecords, LearningMechanism, LearningPlan
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay
from bayesprivmrf.privacy import DiscreteGaussian, squared_l2_sensitivity

# Largest number of states of a variable: logistic regressions of pairs of states grow as its square
_MOST_STATES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FrankWolfePlan(LearningPlan):
    """The public part of a release, with the map from records to couplings."""

    map: PairwiseByRegressions | MonomialsByRegressions


@dataclass(frozen=True, kw_only=True)
class PrivateFrankWolfe(LearningMechanism[FrankWolfePlan, LearnedIsing | LearnedPairwise | LearnedMonomials]):
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
    single_share: float | None = None
    method: Literal["softmax", "pairs"] = "softmax"
    target: Target = "l1"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(width=checked_size("width", self.width), steps=checked_steps(self.steps))
        whole_number("order", self.order, 2, remedy="2 is for couplings of pairs")
        one_of("target", self.target, ("l1", "linf"), remedy="'l1' is for all monomials")
        one_of("method", self.method, ("softmax", "pairs"))
        share = 0.05 if self.single_share is None else self.single_share
        remedy = "0.05 is a twentieth of the budget"
        self._keep(single_share=probability("single_share", share, zero=True, remedy=remedy))
        if self.target == "linf" and self.order == 2:
            raise ArgumentError("`target='linf'` must go with an order of 3 or more, got 2; leave it out.")

    @property
    def needs_total(self) -> bool:
        """True if the number of records chooses the steps, or turns measured counts into shares."""
        return self.steps is None or self._share > 0

    @property
    def _share(self) -> float:
        assert self.single_share is not None
        return self.single_share

    def _plan(self, plan: LearningPlan) -> FrankWolfePlan:
        singles, rho = self._split(plan)
        fitted = (
            self._pairwise_map(plan, rho, singles)
            if self.order == 2
            else monomial_map(
                plan,
                order=self.order,
                width=self.width,
                rho=rho,
                adjacency=self.adjacency,
                steps=self.steps,
                target=self.target,
                singles=singles,
            )
        )
        # a budget that leaves no scale is refused before anything is read
        fitted.multiple(fitted.steps_for(1.0))
        return plan.extended(FrankWolfePlan, map=fitted)

    def _split(self, plan: LearningPlan) -> tuple[DiscreteGaussian | None, float]:
        """Return the noise on single variables, and the remaining budget for the regressions."""
        if self._share == 0:
            return None, plan.budget.learning
        cards = plan.specification.cardinalities
        moved = singles_sensitivity(cards, _form(cards), self.adjacency)
        (law,) = discrete_gaussian_laws([1.0], self._share * self.rho, moved)
        remedy = "choose a smaller budget, or `single_share=0`"
        require(law.variance > 0, "rho", "give noise that a float can represent", self.rho, remedy)
        rest = Fraction(plan.budget.learning) - Fraction(self._share * self.rho)
        if not rest > 0:
            raise ArgumentError(
                f"`single_share` must leave a part of the budget for the regressions, got {self._share!r}; "
                "choose a smaller share."
            )
        return law, math.nextafter(float(rest), 0.0)  # all parts add up to no more than rho

    def _pairwise_map(
        self, plan: LearningPlan, rho: float, singles: DiscreteGaussian | None
    ) -> PairwiseByRegressions:
        specification = plan.specification
        kind = self._map_of(specification)
        return kind(
            cardinalities=specification.cardinalities,
            eligible=eligible_pairs(specification),
            width=self.width,
            rho=rho,
            adjacency=self.adjacency,
            steps=self.steps,
            singles=singles,
            is_ising=set(specification.cardinalities) == {2},
        )

    def _map_of(self, specification: ModelSpecification) -> type[PairwiseByRegressions]:
        states = specification.cardinalities
        if sum(k > 1 for k in states) < 2:
            raise ModelError(
                f"`network` must have two variables with several states, got {sum(k > 1 for k in states)}; declare "
                "more."
            )
        if max(states) > _MOST_STATES:
            raise ModelError(
                f"`network` must have at most {_MOST_STATES} states a variable, got {max(states)}; merge states, or "
                "use SelectMeasure."
            )
        # if all variables have two states, each has one pair of states and one logistic regression
        method = "logistic" if set(states) == {2} else self.method
        _require_memory(states, method)
        return PairwiseBySoftmax if method == "softmax" else PairwiseByPairs

    def _outlays(self, plan: FrankWolfePlan, total: float | None) -> list[Outlay]:
        fitted, outlays = plan.map, [*self._total_outlay(plan), *self._single_outlay(plan)]
        if isinstance(fitted, MonomialsByRegressions) and fitted.parity_law is not None:
            moved = squared_l2_sensitivity(fitted.features, self.adjacency, with_empty=not plan.knows_total)
            outlays.append(
                Outlay(
                    step=f"parities of up to {self.order - 1}",
                    rho=plan.budget.learning - self._share * self.rho - fitted.rho,
                    count=len(fitted.features),
                    noise_sd=fitted.parity_law.standard_deviation,
                    draws=(Sums(law=fitted.parity_law, copies=moved),),
                )
            )
        return [*outlays, choices_outlay(fitted, fitted.rho, total)]

    def _single_outlay(self, plan: FrankWolfePlan) -> list[Outlay]:
        law, cards = plan.map.singles, plan.specification.cardinalities
        if law is None:
            return []
        moved = singles_sensitivity(cards, _form(cards), self.adjacency)
        return [
            Outlay(
                step="each variable by itself",
                rho=self._share * self.rho,
                count=len(cards) if _form(cards) == "moments" else sum(cards),
                noise_sd=law.standard_deviation,
                draws=(Sums(law=law, copies=round(moved**2)),),
            )
        ]

    def _randomise(
        self, plan: FrankWolfePlan, exact: CodedRecords, source: NoiseSource, stamp: Stamp
    ) -> LearnedIsing | LearnedPairwise | LearnedMonomials:
        total = self._total(plan, exact, source)
        steps, domain = plan.map.steps_for(total), plan.specification.domain
        fitted = plan.map.fit(exact.codes, exact.counts, total, source)
        # from here on, only released numbers are used
        signal = _signal(fitted, plan, total)
        common: dict[str, Any] = {
            "domain": domain,
            **stamp.fields,
            "total": total,
            "total_noise": plan.budget.total,
            "map": plan.map,
            "unsupported": None if signal is None else signal.unsupported,
            "details": {
                "steps": steps,
                "radius": plan.map.radius,
                "noise_multiple": plan.map.multiple(steps),
                **_details(fitted, plan.map.singles),
                **stopped_details(),
                **({} if signal is None else signal.details),
            },
        }
        if fitted.measured is not None and plan.map.singles is not None:
            assert total is not None
            asked = singles_plan(domain.cardinalities, plan.map.singles)
            common["statistics"] = pair_statistics(
                domain, asked, fitted.measured, total, plan.budget.total, **stamp.fields
            )
        if isinstance(plan.map, MonomialsByRegressions):
            form: Any = LearnedMonomials
            common["sets"] = plan.map.sets
        else:
            form = LearnedIsing if plan.map.is_ising else LearnedPairwise
        release = form(**common, **dict(zip(form.parameters, fitted.parts, strict=True)))
        self._warn(plan, total)
        return release


def _form(cardinalities: tuple[int, ...]) -> Literal["moments", "tables"]:
    """Return the form in which single variables are measured, as in `singles_plan`."""
    return "moments" if set(cardinalities) == {2} else "tables"


def _details(fitted: FrankWolfeFit, law: DiscreteGaussian | None) -> dict[str, Any]:
    """Return public details of the fields; a model whose margins differ from the measured ones is not trusted."""
    if fitted.fields is None or law is None:
        return {}
    status = Status.APPROXIMATE if fitted.fields.agrees else Status.NOT_TRUSTED
    return {"status": str(status), "one_way_noise": law.scale, **fitted.fields.details}


def _signal(fitted: FrankWolfeFit, plan: FrankWolfePlan, total: float | None) -> Signal | None:
    """Return evidence of which states have records, from single variables or the total; None without either."""
    if total is None:
        return None
    law, cards = plan.map.singles, plan.specification.cardinalities
    variance = 0.0 if plan.budget.total is None else plan.budget.total.variance
    if fitted.measured is None or law is None:
        return Signal.of(total, math.sqrt(variance), (), ())
    return PairTargets.of(fitted.measured, singles_plan(cards, law), total, variance).signal()


def eligible_pairs(specification: ModelSpecification) -> np.ndarray:
    """Return the pairs to learn, those inside a declared clique or all: a boolean mask of shape (p, p)."""
    p = len(specification.domain.variables)
    eligible = np.zeros((p, p), dtype=bool)
    for scope in specification.scopes if specification.cliques_declared else [range(p)]:
        eligible[np.ix_(scope, scope)] = True
    np.fill_diagonal(eligible, False)
    return eligible


def _require_memory(states: tuple[int, ...], method: str) -> None:
    rows = sum(k * (k - 1) if method == "pairs" else k for k in states)
    needed = 8 * 10 * rows * sum(states)
    remedy = "declare cliques on fewer variables, merge states, or use SelectMeasure"
    # 8 GiB of coefficients, sums and noise; the records need memory as well
    require_memory("all couplings and their noise, beside the records,", needed, remedy, 1 << 33)
