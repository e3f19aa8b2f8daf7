"""Mechanisms that learn from whole records: what is read of these, what is promised, and how the budget is shared.

`Mechanism.release` (`bayesprivmrf.mechanisms.base`) calls the four hooks, in the order below. The settings that all
mechanisms have which read records are those of `RecordMechanism` (`bayesprivmrf.mechanisms.settings`).

1. ``_prepare``: what was declared is checked, the budget is split, and a subclass makes its own public plan. No data.
2. ``_guarantee``: zero-concentrated privacy of `rho` for the neighboring relation, whatever the answers will be, or
   what a subclass spends in its place (`_cost`). No data.
3. ``_read``: **data to codes**, by `read_records`, before the ledger is charged; no other hook sees the data frame. A
   value becomes the position of its label among the declared states: `bayesprivmrf.mechanisms.reading` matches
   columns and labels, and takes a missing or an undeclared value for the state declared for it, or refuses the data
   with an error that names the column, never the value. A code depends on its own value and on what was declared, on
   no other record: one that is added or removed changes no other's. Equal records may share a row that counts them.
4. ``_randomise``, of the subclass: from codes to a release, with noise of the given source alone. Where the number of
   records is private and something depends on it, `_total` gives a noisy one, bought with `TOTAL_SHARE` of rho.

A preview takes the first step alone, and tells what each step of a release will cost and how noisy it will be.
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
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws
from bayesprivmrf.mechanisms.noise_warning import warn_without_raising
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

# Share of the budget for a noisy number of records, where the number is private and something depends on it
TOTAL_SHARE = 0.02

_ENORMOUS = 5.0  # nats: no coupling of two variables that is worth a number


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How rho is shared.

    Parameters
    ----------
    learning
        rho of the mechanism itself, nats.
    total
        Distribution of the noise on the number of records; ``None`` where the number is public, or not needed.
    """

    learning: float
    total: DiscreteGaussian | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningPlan(RecordPlan):
    """The public part of a release of couplings: the variables, the budget's split, codes of redirected values.

    Where the specification declares cliques, only couplings inside one are learned. Variables whose states have
    scores are `ordered`.
    """

    budget: Budget
    is_total_public: bool
    ordered: frozenset[Variable] = frozenset()

    @property
    def knows_total(self) -> bool:
        """True if there is a number of records, public or noisy."""
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
        """Return a mechanism's own plan: this one, and what it adds."""
        return kind(**{field.name: getattr(self, field.name) for field in fields(self)}, **more)


@dataclass(frozen=True, kw_only=True)
class LearningMechanism[PlanT: LearningPlan, ReleaseT](RecordMechanism[PlanT, CodedRecords, ReleaseT]):
    """Abstract mechanism that learns from whole records under zero-concentrated privacy.

    A subclass supplies `_plan` and `_randomise`, and says by `needs_total` whether anything in it depends on the
    number of records n. Under replace-one neighbors n is public. Under add-or-remove-one it is not: a share of the
    budget then buys a noisy n, and nothing else may use the exact one.

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
        """Tell what a release will do with its budget, before any data is read or budget spent.

        Parameters
        ----------
        network
            The declared model.
        total
            A public guess of the number of records, to compare the noise with; a `NoiseWarning` says if the noise
            would hide nearly all couplings.

        Returns
        -------
        DataFrame
            One row a step, whose ``rho`` add up to the guarantee's; see `bayesprivmrf.planning.outlay_preview`.

        Raises
        ------
        ArgumentError, ModelError
            `release` would raise the same before it reads anything; or ``total`` is no number of records.
        """
        known = None if total is None else checked_total(total)
        outlays = self._outlays(self._prepare(network), known)
        message = None if known is None else self._hidden(outlays, about(known))
        if message is not None:
            warnings.warn(message, NoiseWarning, stacklevel=2)
        return outlay_preview(outlays, known)

    def _outlays(self, plan: PlanT, total: float | None) -> list[Outlay]:
        """Return the steps of a release, the number of records first where it is bought."""
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
        """Warn, from `_randomise`, where the noise hid nearly all at a number of records that was let out."""
        if total is None:
            return
        message = self._hidden(self._outlays(plan, total), about(total))
        if message is not None:
            warn_without_raising(message)

    def _hidden(self, outlays: Sequence[Outlay], what: str, also: str = "") -> str | None:
        """Return what a warning says, if the noise hides nearly all couplings, or if there is more to say."""
        size = hidden_couplings(outlays)
        if not size > LARGEST_HIDDEN and not also:
            return None
        below = f"below about {size:.2g} nats" if size < _ENORMOUS else "of any size"
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
                f"{type(self).__name__} must have at least two variables to couple, got "
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
        if ordered:  # scores say which states are neighbors, and restrict nothing
            specification = replace(specification, ordinal=())
        if any(specification.sharing):
            raise ModelError(
                f"{type(self).__name__} must be given no ties, scores or levels, for it learns each coupling by "
                "itself; declare the variables without them, or release sums over the tied cliques and fit those."
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
        """Check what else is public, and return the subclass's own plan."""
        raise NotImplementedError

    def _budget(self) -> Budget:
        if self.adjacency is Adjacency.REPLACE_ONE or not self.needs_total:
            return Budget(learning=self.rho)
        (law,) = discrete_gaussian_laws([1.0], TOTAL_SHARE * self.rho, 1.0)
        spent = Fraction(TOTAL_SHARE * self.rho)
        # the two add up to no more than rho
        learning = math.nextafter(float(Fraction(self.rho) - spent), 0.0)
        return Budget(learning=learning, total=law)

    @staticmethod
    def _total(plan: LearningPlan, records: CodedRecords, source: NoiseSource) -> float | None:
        """Return n where it is public, else a noisy n of at least 1, or ``None`` where it was not paid for."""
        law = plan.budget.total
        if law is not None:
            return float(max(source.add(np.array([records.records]), law)[0], 1))
        return float(records.records) if plan.is_total_public else None

    @final
    def _guarantee(self, plan: PlanT) -> PrivacyGuarantee | None:
        return PrivacyGuarantee(rho=self._cost(plan), adjacency=self.adjacency)

    def _cost(self, plan: PlanT) -> float:
        """Return what a release costs, nats: the budget, unless a subclass spends another sum."""
        return self.rho

    @final
    def _read(self, plan: PlanT, data: Any, count: Hashable | None = None) -> CodedRecords:
        records = self._records(plan, data, count)
        if self.adjacency is Adjacency.REPLACE_ONE:
            require_records(records.records)
        return records
