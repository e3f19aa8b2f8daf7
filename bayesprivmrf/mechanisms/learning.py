"""Mechanisms that learn from whole records: reading of the records, guarantee, and division of the budget.

`Mechanism.release` (`bayesprivmrf.mechanisms.base`) calls four hooks, in the order below. The settings of all
mechanisms that read records are those of `RecordMechanism` (`bayesprivmrf.mechanisms.settings`).

1. ``_prepare`` checks the declaration and splits the budget, and the subclass makes its own public plan. No data.
2. ``_guarantee`` gives zero-concentrated privacy of `rho`, or of the sum that a subclass spends instead (`_cost`),
   for the neighboring relation and whatever the answers will be. No data.
3. ``_read`` turns **data into codes**, by `read_records`, before the ledger is charged. No other hook sees the data
   frame. A value becomes the position of its label among the declared states: `bayesprivmrf.mechanisms.reading`
   matches columns and labels. A missing or undeclared value becomes the state declared for it, or the data are
   refused with an error that names the column and never the value. A code depends on its own value and the
   declaration, and on no other record, so that adding or removing a record changes no other code. Equal records may
   share a row with their number.
4. ``_randomise``, of the subclass, makes a release from the codes, with noise from the given source alone. If the
   number of records is private and some step depends on it, `_total` gives a noisy number, for `TOTAL_SHARE` of rho.

A preview takes the first step only, and shows the cost and the noise of each step of a release.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from bayesprivmrf.audit import Sums
from bayesprivmrf.checks import positive_finite
from bayesprivmrf.errors import ModelError, NoiseWarning
from bayesprivmrf.learning.rounds import MergeRule
from bayesprivmrf.mechanisms.after_charge import warn_without_raising
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.reading.coded import CodedRecords
from bayesprivmrf.mechanisms.settings import RecordMechanism, RecordPlan, require_records
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.planning import (
    LARGEST_HIDDEN,
    Outlay,
    about,
    checked_total,
    hidden_couplings,
    outlay_preview,
)
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian, PrivacyGuarantee

if TYPE_CHECKING:
    import pandas as pd
    from pgmpy.models import DiscreteMarkovNetwork

# Share of the budget for a noisy number of records, where this number is private and some step depends on it
TOTAL_SHARE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Division of rho between learning and the number of records.

    Parameters
    ----------
    learning
        rho of the mechanism itself, nats.
    total
        Noise distribution of the number of records; ``None`` if the number is public or not needed.
    """

    learning: float
    total: DiscreteGaussian | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningPlan(RecordPlan):
    """The public part of a release of couplings: variables, division of the budget, codes of redirected values.

    If the specification declares cliques, only couplings inside a clique are learned. Variables whose states have
    scores are `ordered`.
    """

    budget: Budget
    is_total_public: bool
    ordered: frozenset[Variable] = frozenset()

    @property
    def knows_total(self) -> bool:
        """True if the number of records is known, as a public or a noisy number."""
        return self.is_total_public or self.budget.total is not None

    @property
    def merge_rules(self) -> tuple[MergeRule, ...]:
        """Declared rules for merging states: their order, and the states for missing and undeclared values."""
        redirected = (self.missing, self.other)
        return tuple(
            MergeRule(
                is_ordered=v in self.ordered,
                apart=tuple(sorted({codes[v] for codes in redirected if v in codes})),
            )
            for v in self.specification.domain.variables
        )

    def extended[PlanT: LearningPlan](self, kind: type[PlanT], **more: Any) -> PlanT:
        """Return the plan of a mechanism: the fields of this plan and further ones."""
        return kind(**{field.name: getattr(self, field.name) for field in fields(self)}, **more)


@dataclass(frozen=True, kw_only=True)
class LearningMechanism[PlanT: LearningPlan, ReleaseT](RecordMechanism[PlanT, CodedRecords, ReleaseT]):
    """Abstract mechanism that learns from whole records under zero-concentrated privacy.

    A subclass supplies `_plan` and `_randomise`. Its `needs_total` is True if some step depends on the number of
    records n. Under replace-one neighbors n is public. Under add-or-remove-one it is private: a share of the budget
    then measures n with noise, and no other step may use the exact number.

    Parameters
    ----------
    rho
        Budget, nats, positive.
    adjacency, missing, other
        See `StatisticsMechanism`.
    """

    _sought: ClassVar[str] = "couplings"
    _remedy: ClassVar[str] = "spend more, or declare fewer variables"

    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(rho=positive_finite("rho", self.rho))

    def preview(
        self, network: DiscreteMarkovNetwork | ModelSpecification, total: float | None = None
    ) -> pd.DataFrame:
        """Return the steps of a release, with their costs and noise, before any data is read or budget spent.

        Parameters
        ----------
        network
            The declared model.
        total
            A public guess of the number of records, with which the noise is compared. A `NoiseWarning` appears if the
            noise would hide nearly all couplings.

        Returns
        -------
        DataFrame
            One row for each step, whose ``rho`` add up to that of the guarantee; see
            `bayesprivmrf.planning.outlay_preview`.

        Raises
        ------
        ArgumentError, ModelError
            `release` would raise the same error before it reads anything, or ``total`` is not a number of records.
        """
        from bayesprivmrf.mechanisms.preview import Preview

        known = None if total is None else checked_total(total)
        plan = self._prepare(network)
        outlays = self._outlays(plan, known)
        message = None if known is None else self._hidden(outlays, about(known))
        if message is not None:
            warnings.warn(message, NoiseWarning, stacklevel=2)
        return Preview.of(outlay_preview(outlays, known), self, self._promised(plan))

    def _outlays(self, plan: PlanT, total: float | None) -> list[Outlay]:
        """Return the steps of a release, first the number of records if it is measured with noise."""
        return [*self._total_outlay(plan), Outlay(step="learning", rho=plan.budget.learning)]

    def _total_outlay(self, plan: LearningPlan) -> list[Outlay]:
        law = plan.budget.total
        if law is None:
            return []
        return [
            Outlay(
                step="number of records",
                rho=TOTAL_SHARE * self.rho,
                count=1,
                noise_sd=law.standard_deviation,
                draws=(Sums(law=law, copies=1),),
            )
        ]

    @final
    def _warn(self, plan: PlanT, total: float | None) -> None:
        """Warn, from `_randomise`, if the noise hides nearly all couplings at a released number of records."""
        if total is None:
            return
        message = self._hidden(self._outlays(plan, total), about(total))
        if message is not None:
            warn_without_raising(message)

    def _hidden(self, outlays: Sequence[Outlay], what: str, also: str = "") -> str | None:
        """Return the text of a warning if the noise hides nearly all couplings, or if there is more to say."""
        size = hidden_couplings(outlays)
        if not size > LARGEST_HIDDEN and not also:
            return None
        # a coupling of 5 nats is nearly a deterministic relation of two variables
        below = f"below about {size:.2g} nats" if size < 5 else "of any size"
        return f"at {what} the noise hides {self._sought} {below}{also}; take more records, {self._remedy}."

    @property
    def _knows_order(self) -> bool:
        """True if the learner uses declared scores, as learners that merge states do."""
        return False

    @property
    def needs_total(self) -> bool:
        """True if the algorithm uses the number of records."""
        return True

    @final
    def _prepare(self, network: DiscreteMarkovNetwork | ModelSpecification) -> PlanT:
        specification = ModelSpecification.from_pgmpy(network)
        if len(specification.domain.variables) < 2:
            raise ModelError(
                f"{type(self).__name__} must be given at least two variables, got "
                f"{len(specification.domain.variables)}; declare more."
            )
        if specification.impossible:
            raise ModelError(
                f"{type(self).__name__} must be given no impossible cells, got {len(specification.impossible)}; "
                "declare the variables without them."
            )
        ordered = (
            frozenset(one.variable for one in specification.ordinal) if self._knows_order else frozenset()
        )
        if ordered:  # the scores give the order of the states, and restrict nothing
            specification = replace(specification, ordinal=())
        if any(specification.sharing):
            raise ModelError(
                f"{type(self).__name__} must be given no ties, scores or levels, because it learns each coupling "
                "separately; declare the variables without them, or release sums over the tied cliques and fit those."
            )
        return self._plan(
            LearningPlan(
                **self._declared(specification),
                budget=self._budget(),
                is_total_public=self.adjacency is Adjacency.REPLACE_ONE,
                ordered=ordered,
            )
        )

    def _plan(self, plan: LearningPlan) -> PlanT:
        """Return the plan of the subclass, after a check of its own public inputs."""
        raise NotImplementedError

    def _budget(self) -> Budget:
        if self.adjacency is Adjacency.REPLACE_ONE or not self.needs_total:
            return Budget(learning=self.rho)
        (law,) = discrete_gaussian_laws([1.0], TOTAL_SHARE * self.rho, 1.0)
        spent = Fraction(TOTAL_SHARE * self.rho)
        # both parts add up to no more than rho
        learning = math.nextafter(float(Fraction(self.rho) - spent), 0.0)
        return Budget(learning=learning, total=law)

    @staticmethod
    def _total(plan: LearningPlan, records: CodedRecords, source: NoiseSource) -> float | None:
        """Return n if it is public, else a noisy n of at least 1, or ``None`` if it was not measured."""
        law = plan.budget.total
        if law is not None:
            return float(max(source.add(np.array([records.records]), law)[0], 1))
        return float(records.records) if plan.is_total_public else None

    @final
    def _guarantee(self, plan: PlanT) -> PrivacyGuarantee | None:
        return PrivacyGuarantee(rho=self._cost(plan), adjacency=self.adjacency)

    def _cost(self, plan: PlanT) -> float:
        """Return the cost of a release, nats: the budget, unless a subclass spends another sum."""
        return self.rho

    @final
    def _read(self, plan: PlanT, data: Any, count: Hashable | None = None) -> CodedRecords:
        records = self._records(plan, data, count)
        if self.adjacency is Adjacency.REPLACE_ONE:
            require_records(records.records)
        return records
