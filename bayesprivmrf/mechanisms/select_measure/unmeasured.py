"""Bounds on pairs that a round did not measure, from its noisy answers; no function here uses the records.

`bayesprivmrf.learning.rounds.cell_errors` derives the bounds. The functions here pass it the allowances and the scale
of the choice from the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.inference.effects_fit.moments import Scope
from bayesprivmrf.learning.rounds.cell_errors import Unmeasured
from bayesprivmrf.learning.rounds.fit import RoundFit
from bayesprivmrf.learning.rounds.tables import MeasuredTable
from bayesprivmrf.mechanisms.select_measure.misfits import STEPS
from bayesprivmrf.mechanisms.select_measure.plan import (
    RoundsPlan,
    Spending,
    allowance,
    choice_scale,
    tables_noise,
)
from bayesprivmrf.model.tables import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Public facts of a round: the plan, the model, the candidates with their cells, and the budget."""

    plan: RoundsPlan
    fit: RoundFit
    scopes: Sequence[Scope]
    cells: IntArray
    spent: Spending

    def allowed(self, tables: int, weight: float) -> FloatArray:
        """Return the allowance of each candidate, records, if a given number of tables is measured."""
        return allowance(self.cells, tables_noise(self.plan, self.spent.measuring, tables), weight) / STEPS


def bound_by_count(
    bounds: Unmeasured, asked: Asked, of_noise: IntArray, largest: float, deviation: float
) -> None:
    """Store the bounds of a round that chose nothing, from the noisy largest misfit above its allowance, steps."""
    if not asked.plan.is_wide:
        allowed = asked.allowed(1, 1.5) + of_noise / STEPS
        bounds.by_count(asked.fit, asked.scopes, allowed, largest / STEPS, deviation / STEPS)


def bound_by_choice(
    bounds: Unmeasured,
    asked: Asked,
    number: int,
    last: tuple[int, np.ndarray] | None,
    measured: Sequence[MeasuredTable],
) -> None:
    """Store the bounds of a round that measured tables.

    Parameters
    ----------
    bounds
        Collection of bounds, which is updated.
    asked
        The round, with the model before its tables.
    number
        Number of choices in the round.
    last
        Position of the last chosen table, and the candidates at that time; ``None`` if no table was chosen.
    measured
        All tables of several variables so far.
    """
    if last is None or asked.plan.is_wide:
        return
    (place, was_left), allowed = last, asked.allowed(number, 1.0)
    left = np.flatnonzero(was_left).tolist()
    bounds.by_choice(
        asked.fit,
        [asked.scopes[k] for k in left],
        allowed[left],
        int(np.searchsorted(left, place)),
        next(each for each in reversed(measured) if each.scope == asked.scopes[place]),
        choice_scale(asked.plan, asked.spent.choosing / number) / STEPS,
    )
