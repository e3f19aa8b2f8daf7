"""Couplings of a Markov random field by private Frank-Wolfe, without a declared graph."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, final

import numpy as np

from bayesprivmrf.audit import Choices, Sums
from bayesprivmrf.checks import one_of, positive_finite, whole_number
from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.learning import LearnedIsing, LearnedMonomials, LearnedPairwise
from bayesprivmrf.learning.frank_wolfe import (
    LARGEST_STEPS,
    MonomialsByRegressions,
    PairwiseByPairs,
    PairwiseByRegressions,
    PairwiseBySoftmax,
    PaperIsing,
    PaperPairs,
    PaperRegressions,
    Target,
)
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.learning import LearningMechanism, LearningPlan
from bayesprivmrf.mechanisms.monomial_plan import learned_monomials, monomial_map
from bayesprivmrf.mechanisms.reading.coded_records import CodedRecords
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import Outlay
from bayesprivmrf.privacy import Adjacency, Exposure, squared_l2_sensitivity
from bayesprivmrf.privacy.selection import GUMBEL_DEVIATION

__all__ = ["PrivateFrankWolfe"]

_LARGEST_SIZE = 1000.0  # nats
_MOST_STATES = 12
_MOST_BYTES = 1 << 33  # of coefficients, sums and noise, which no number of records enters

_MAPS: dict[tuple[str, str], type[PairwiseByRegressions]] = {
    ("tight", "logistic"): PairwiseByPairs,
    ("tight", "softmax"): PairwiseBySoftmax,
    ("tight", "pairs"): PairwiseByPairs,
    ("paper", "logistic"): PaperIsing,
    ("paper", "pairs"): PaperPairs,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FrankWolfePlan(LearningPlan):
    """What is public about a release, with the map from records to couplings."""

    map: PairwiseByRegressions | MonomialsByRegressions


@final
@dataclass(frozen=True, kw_only=True)
class PrivateFrankWolfe(LearningMechanism[FrankWolfePlan, LearnedIsing | LearnedPairwise | LearnedMonomials]):
    r"""Learn couplings and fields by one private sparse regression a node: rho-zero-concentrated privacy.

    No graph need be declared: every pair may be coupled, unless cliques are declared, and then pairs within one. Each
    step of each regression makes one choice by the exponential mechanism; docs/frank_wolfe.md has the proofs.

    Parameters
    ----------
    rho
        Budget, nats, positive.
    width
        :math:`\lambda`, public and positive: bounds, for every node, its couplings and its field added up in size,
        :math:`\sum_j |A_{ij}| + |h_i|` for two states, :math:`\max_a \sum_j \max_b |W_{ij}(a, b)| + |\theta_i(a)|`
        for more. Larger sums are shrunk to the width, so err upwards: docs/learning.md shows what half and twice the
        width cost.
    order
        Size t of the largest interactions: 2 for couplings of pairs; 3 or more for products of up to t variables of
        two states, a `LearnedMonomials`. `width` then bounds :math:`\sum_{I \ni i} |h_I|` for every variable.
    steps
        Number of Frank-Wolfe steps, public; by default chosen from the number of records, which is public under
        replace-one and otherwise takes 2 % of the budget.
    calibration
        ``"tight"``: the smallest noise that is proved. ``"paper"``: Algorithms 2 and 3 with their own constants,
        steps and noise, for replace-one; the release's guarantee says what that costs, which is not `rho`.
    method
        Form for variables of more than two states: ``"softmax"``, one softmax regression a node, or ``"pairs"``, one
        logistic regression a pair of states, the paper's form. Two-state variables alone have one logistic
        regression a node.
    target
        Goal for an order of 3 or more: ``"l1"``, Algorithm 4, estimates all coefficients; ``"linf"``, Algorithm 5,
        those of maximal monomials, with noisy parities and half of the budget on each part. See docs/parities.md.
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
    _remedy: ClassVar[str] = "spend more, or declare fewer variables"

    width: float
    order: int = 2
    steps: int | None = None
    calibration: Literal["tight", "paper"] = "tight"
    method: Literal["softmax", "pairs"] = "softmax"
    target: Target = "l1"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "width", checked_size("width", self.width))
        object.__setattr__(self, "steps", checked_steps(self.steps))
        whole_number("order", self.order, 2, remedy="2 is for couplings of pairs")
        one_of("target", self.target, ("l1", "linf"), remedy="'l1' is for all monomials")
        one_of("calibration", self.calibration, ("tight", "paper"), remedy="'tight' has less noise")
        one_of("method", self.method, ("softmax", "pairs"))
        if self.target == "linf" and self.order == 2:
            raise ArgumentError("`target='linf'` must go with an order of 3 or more, got 2; leave it out.")
        if self.calibration == "paper" and self.order > 2:
            raise ArgumentError(
                f"`calibration='paper'` must go with an order of 2, got {self.order!r}; use 'tight'."
            )
        if self.calibration == "paper" and self.adjacency is not Adjacency.REPLACE_ONE:
            raise ArgumentError(
                "`calibration='paper'` must go with adjacency='replace-one', for which its noise was made, got "
                f"{self.adjacency.value!r}; choose that, or 'tight'."
            )

    @property
    def needs_total(self) -> bool:
        """Whether the number of records chooses the steps."""
        return self.steps is None

    def _plan(self, plan: LearningPlan) -> FrankWolfePlan:
        fitted = self._pairwise_map(plan) if self.order == 2 else self._monomial_map(plan)
        fitted.multiple(
            fitted.steps_for(1.0)
        )  # a budget that leaves no scale is refused before anything is read
        return FrankWolfePlan(
            specification=plan.specification,
            budget=plan.budget,
            is_total_public=plan.is_total_public,
            missing=plan.missing,
            other=plan.other,
            map=fitted,
        )

    def _monomial_map(self, plan: LearningPlan) -> MonomialsByRegressions:
        return monomial_map(
            plan,
            order=self.order,
            width=self.width,
            adjacency=self.adjacency,
            steps=self.steps,
            target=self.target,
        )

    def _pairwise_map(self, plan: LearningPlan) -> PairwiseByRegressions:
        specification = plan.specification
        kind = self._map_of(specification)
        return kind(
            cardinalities=specification.cardinalities,
            eligible=eligible_pairs(specification),
            width=self.width,
            rho=plan.budget.learning,
            adjacency=self.adjacency,
            steps=self.steps,
            is_ising=set(specification.cardinalities) == {2},
        )

    def _map_of(self, specification: ModelSpecification) -> type[PairwiseByRegressions]:
        states = specification.cardinalities
        if sum(k > 1 for k in states) < 2:
            raise ModelError(
                f"`network` must have two variables with several states, got {sum(k > 1 for k in states)}; "
                "there is nothing to couple."
            )
        if max(states) > _MOST_STATES:
            raise ModelError(
                f"`network` must have at most {_MOST_STATES} states a variable, got {max(states)}; merge states, or "
                "use SelectMeasure."
            )
        method = "logistic" if set(states) == {2} else self.method
        kind = _MAPS.get((self.calibration, method))
        if kind is None:
            raise ArgumentError(
                "`calibration='paper'` must go with method='pairs' where a variable has more than two states, got "
                f"{self.method!r}; choose that, or 'tight'."
            )
        _require_memory(states, method)
        return kind

    def _outlays(self, plan: FrankWolfePlan, total: float | None) -> list[Outlay]:
        fitted, outlays = plan.map, self._total_outlay(plan)
        if isinstance(fitted, MonomialsByRegressions) and fitted.parity_law is not None:
            has_total = plan.is_total_public or plan.budget.total is not None
            moved = squared_l2_sensitivity(fitted.features, self.adjacency, with_empty=not has_total)
            outlays.append(
                Outlay(
                    step=f"parities of up to {self.order - 1}",
                    rho=plan.budget.learning - fitted.rho,
                    count=len(fitted.features),
                    noise_sd=fitted.parity_law.standard_deviation,
                    draws=(Sums(law=fitted.parity_law, copies=moved),),
                )
            )
        rho = fitted.cost if isinstance(fitted, PaperRegressions) else fitted.rho
        return [*outlays, choices_outlay(fitted, rho, total)]

    def _cost(self, plan: FrankWolfePlan) -> float:
        return plan.map.cost if isinstance(plan.map, PaperRegressions) else self.rho

    def _randomise(
        self, plan: FrankWolfePlan, exact: CodedRecords, source: NoiseSource, stamp: Stamp
    ) -> LearnedIsing | LearnedPairwise | LearnedMonomials:
        total = self._total(plan, exact, source)
        steps = plan.map.steps_for(total)
        assert stamp.guarantee is not None
        common: dict[str, Any] = {
            "domain": plan.specification.domain,
            "guarantee": stamp.guarantee,
            "provenance": stamp.provenance,
            "total": total,
            "total_noise": plan.budget.total,
            "map": plan.map,
            "details": {
                "steps": steps,
                "radius": plan.map.radius,
                "noise_multiple": plan.map.multiple(steps),
            },
        }
        if isinstance(plan.map, MonomialsByRegressions):
            release = learned_monomials(plan.map, exact, total, source, common)
        else:
            couplings, fields = plan.map.learn(exact.codes, exact.counts, total, source)
            form = LearnedIsing if plan.map.is_ising else LearnedPairwise
            release = form(**common, coupling_matrix=couplings, field_vector=fields)
        # from here on, only what was let out is looked at
        self._warn(plan, total)
        return release


class _Regressions(Protocol):
    """Regressions by private Frank-Wolfe, as public settings."""

    @property
    def exposure(self) -> Exposure: ...

    @property
    def adjacency(self) -> Adjacency: ...

    @property
    def steps(self) -> int | None: ...

    @property
    def atoms(self) -> int: ...

    @property
    def reference(self) -> float: ...

    def steps_for(self, total: float | None, /) -> int: ...

    def multiple(self, steps: int, /) -> float: ...


def choices_outlay(fitted: _Regressions, rho: float, total: float | None) -> Outlay:
    r"""Return what the steps cost, and the noise of their choices.

    At 0 the score of a coupling w that stands alone is about :math:`N w B / a` records, B being the largest residual
    there and a the map's `reference`; scores of what is not coupled are near 0. An atom is picked with a weight of
    :math:`e^{u / \kappa B}`, so that of K atoms that of the coupling is picked in half of all cases where
    :math:`w = a \kappa \log K / N`. Much below it steps are near uniform draws.
    """
    if total is None and fitted.steps is None:
        return Outlay(step="choices, in as many steps as the number of records asks for", rho=rho)
    steps = fitted.steps_for(total)
    multiple = fitted.multiple(steps)
    moved = 4.0 if fitted.adjacency is Adjacency.REPLACE_ONE else 2.0  # bounds of residuals, see `Exposure`
    found = None if total is None else fitted.reference * multiple * math.log(fitted.atoms) / max(total, 1.0)
    return Outlay(
        step=f"{steps} steps of {fitted.exposure.choices} choice{'' if fitted.exposure.choices == 1 else 's'}",
        rho=rho,
        count=steps * fitted.exposure.choices,
        noise_sd=multiple * GUMBEL_DEVIATION,
        draws=()
        if isinstance(fitted, PaperRegressions)
        else (Choices(scale=multiple, score_range=moved, copies=steps * fitted.exposure.squares),),
        smallest_coupling=found,
    )


def eligible_pairs(specification: ModelSpecification) -> np.ndarray:
    """Return the pairs to learn: those inside a declared clique, or all; bool of shape (p, p)."""
    p = len(specification.domain.variables)
    eligible = np.zeros((p, p), dtype=bool)
    for scope in specification.scopes if specification.cliques_declared else [range(p)]:
        eligible[np.ix_(scope, scope)] = True
    np.fill_diagonal(eligible, False)
    return eligible


def checked_size(name: str, value: Any) -> float:
    """Return a bound of coefficients, positive and no larger than any log-odds could be."""
    size = positive_finite(name, value)
    if size > _LARGEST_SIZE:
        raise ArgumentError(
            f"`{name}` must be at most {_LARGEST_SIZE:g}, got {size!r}; log-odds of ten are nearly certain already."
        )
    return size


def checked_steps(steps: Any) -> int | None:
    """Return the number of steps, or ``None`` for the default."""
    if steps is None:
        return None
    return whole_number("steps", steps, 1, LARGEST_STEPS, remedy="leave it out for a default")


def _require_memory(states: tuple[int, ...], method: str) -> None:
    rows = sum(k * (k - 1) if method == "pairs" else k for k in states)
    needed = 8 * 10 * rows * sum(states)
    if needed > _MOST_BYTES:
        raise ModelTooLargeError(
            f"all couplings and their noise would take {needed / 2**30:.0f} GiB beside the records, more than "
            f"{_MOST_BYTES >> 30}; declare cliques on fewer variables, merge states, or use SelectMeasure."
        )
