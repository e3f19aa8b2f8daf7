"""State of a run of adaptive rounds: its plan, budget and noise, its noisy tables, and the model that they give.

`Run` is the same during all rounds, and `Known` is replaced after each step. Everything in both is public, except the
source of noise; the records are in `select_measure.exact_tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.learning.select_measure.learned_scales import SingleNoise
from bayesprivmrf.learning.select_measure.measured_tables import MeasuredTable, Merging
from bayesprivmrf.learning.select_measure.round_fit import RoundFit
from bayesprivmrf.mechanisms.select_measure.exact_tables import ExactTables
from bayesprivmrf.mechanisms.select_measure.misfits import MISFIT_STEPS
from bayesprivmrf.mechanisms.select_measure.plan import RoundsPlan
from bayesprivmrf.mechanisms.select_measure.size import Size
from bayesprivmrf.mechanisms.select_measure.unmeasured import Unmeasured
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.privacy import NoiseDistribution
from bayesprivmrf.privacy.selection import PrivacyFilter


@dataclass(slots=True, kw_only=True)
class Drawn:
    """Noisy tables, each listed as soon as it is drawn, so that an interruption loses none.

    Parameters
    ----------
    singles
        Tables of single variables, which are measured first.
    measured
        Tables of several variables, in the order of their measurement.
    again
        Tables that were measured once more.
    by_round
        Number of chosen tables of each round that measured some.
    """

    singles: list[MeasuredTable] = field(default_factory=list)
    measured: list[MeasuredTable] = field(default_factory=list)
    again: list[MeasuredTable] = field(default_factory=list)
    by_round: list[int] = field(default_factory=list)

    @property
    def tables(self) -> list[MeasuredTable]:
        """All tables, in the order in which they are released."""
        return [*self.singles, *self.measured, *self.again]

    @property
    def scopes(self) -> list[Scope]:
        """The scopes of the model: those of all tables that were measured for the first time."""
        return [each.scope for each in (*self.measured, *self.singles)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Public state after a step, from noisy answers alone.

    Parameters
    ----------
    merging
        Which states are merged.
    size
        Size limits of the model.
    fit
        The last model.
    unmeasured
        Bounds on pairs that were not measured.
    failures
        Number of fits that diverged.
    has_fallen_back
        True if the last fit diverged, so that the model is an earlier one.
    """

    merging: Merging
    size: Size
    fit: RoundFit
    unmeasured: Unmeasured
    failures: int = 0
    has_fallen_back: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Run:
    """Plan, source of noise, budget and released tables of a run.

    Parameters
    ----------
    plan
        Public facts.
    source
        Source of all noise.
    budget
        Budget that is left; charged before each step.
    drawn
        Tables released so far.
    total
        Number of records where it is public, else ``None``.
    """

    plan: RoundsPlan
    source: NoiseSource
    budget: PrivacyFilter
    drawn: Drawn
    total: int | None

    def draw(
        self,
        exact: ExactTables,
        scopes: Sequence[Scope],
        law: NoiseDistribution,
        into: list[MeasuredTable],
    ) -> None:
        """Draw noisy tables, whose cost was charged; single variables beside chosen tables are measured again."""
        for scope in scopes:
            noisy = self.source.add(exact.table(scope), law)
            if len(scope) == 1 and into is self.drawn.measured:
                kept = self.drawn.again
            else:
                kept = into
            kept.append(MeasuredTable(scope=scope, values=noisy, law=law))

    def merging(self) -> Merging:
        """Return the merging given all tables so far."""
        return Merging.by(self.plan.declared, self.drawn.tables, self.plan.rules)

    def size_of(self, merging: Merging) -> Size:
        """Return the size limits of a model of merged states."""
        plan = self.plan
        return Size(merging.cardinalities, plan.declared, plan.maximum_cells, plan.memory)

    def single_noise(self, merging: Merging) -> SingleNoise:
        """Return the noise on single variables that is left after all tables so far."""
        return SingleNoise.left(self.plan.declared, merging, self.drawn.tables)

    def misfits_of_noise(self, merging: Merging, scopes: Sequence[Scope]) -> IntArray:
        """Return the effect of the noise on single variables on misfits, steps of 1/M record: public."""
        return np.rint(MISFIT_STEPS * self.single_noise(merging).misfits(scopes)).astype(np.int64)

    def imprecise(self, merging: Merging, tables: int, rho: float) -> list[Scope]:
        """Return the variables to measure again beside some tables, because their own are imprecise."""
        return self.single_noise(merging).worth_repeating(tables, self.plan.moved / (2 * rho))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FinishedRounds:
    """Released numbers of a finished run, and the model that they give: public.

    Parameters
    ----------
    plan, total
        As in `Run`.
    drawn, known
        Released tables, and what is known after the last step.
    spent
        Exact sum of all charges, nats.
    """

    plan: RoundsPlan
    total: int | None
    drawn: Drawn
    known: Known
    spent: Fraction

    @property
    def merging(self) -> Merging:
        """Groups of merged states."""
        return self.known.merging

    @property
    def fit(self) -> RoundFit:
        """The last model."""
        return self.known.fit
