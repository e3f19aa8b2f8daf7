"""Candidate tables of a round, and choices among few of them in turn.

A round considers public candidates, and computes their misfits to the last model. The misfits are sensitive:
`select_measure.rounds` derives what one record moves in them, and what each choice costs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.learning.select_measure.measured_tables import parts_of
from bayesprivmrf.mechanisms.select_measure.exact_tables import ExactTables
from bayesprivmrf.mechanisms.select_measure.misfits import (
    ends_across,
    expected_counts,
    without_subsets,
)
from bayesprivmrf.mechanisms.select_measure.plan import SIZE_SHARES, choice_scale
from bayesprivmrf.mechanisms.select_measure.run import Known, Run
from bayesprivmrf.mechanisms.select_measure.size import Size
from bayesprivmrf.model.tables import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTables:
    """Chosen tables, and the last choice among the candidates that were left.

    Parameters
    ----------
    scopes
        The chosen tables, in order.
    last
        Position of the last table among the candidates; ``None`` if nothing was drawn.
    eligible
        Which candidates were left at the last choice, a mask of shape (candidates,); ``None`` likewise.
    """

    scopes: list[Scope]
    last: int | None = None
    eligible: np.ndarray | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Candidates(ABC):
    """Candidates of a round with their misfits: sensitive, and printed as such.

    Parameters
    ----------
    scopes
        The tables, public.
    misfits
        Misfit of each table, steps of 1/M record, shape (candidates,): sensitive.
    of_noise
        Public effect of the noise on single variables on each misfit, steps, shape (candidates,).
    cells
        Number of cells of each table, shape (candidates,).
    """

    scopes: list[Scope]
    misfits: IntArray
    of_noise: IntArray
    cells: IntArray

    def ends(self, run: Run, chosen: Sequence[Scope] = ()) -> IntArray:
        """Return the parts of the model that pairs join; each table of a workload counts separately."""
        if run.plan.workload is not None:
            return np.full((len(self.scopes), 2), -1, dtype=np.int64)
        model = [*run.drawn.scopes, *chosen]
        return ends_across(self.scopes, parts_of(len(run.plan.declared), model))

    @abstractmethod
    def choose(self, run: Run, scores: IntArray, number: int, rho: float) -> ChosenTables:
        """Charge and make private choices of so many tables, which cost rho together."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(sensitive)"


def scope_sizes(scopes: Sequence[Scope], cardinalities: Sequence[int]) -> IntArray:
    """Return the number of cells of each table, shape (scopes,)."""
    return np.array([math.prod(cardinalities[v] for v in scope) for scope in scopes])


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class FewCandidates(Candidates):
    """Pairs and triples of a model of few variables, chosen in turn.

    Parameters
    ----------
    size
        Size limits of the model.
    most_size
        Share of the size that the model may have after this round.
    """

    size: Size
    most_size: float

    def choose(self, run: Run, scores: IntArray, number: int, rho: float) -> ChosenTables:
        """Charge and choose tables in turn; a table that does not fit with earlier ones is dropped.

        If the number covers all candidates and they fit, all are taken without a draw or a charge.
        """
        scopes = self.scopes
        model = run.drawn.scopes
        everything = without_subsets(scopes)
        # post-processing: the number was released, and neither the candidates nor the sizes depend on the records
        # other than through released numbers
        if number >= len(everything) and self.size.bears([*model, *everything], self.most_size):
            return ChosenTables(scopes=everything)
        chosen: list[Scope] = []
        last = None
        left_at_last = None
        scale = choice_scale(run.plan, rho / number)
        eligible = np.ones(len(scopes), dtype=bool)
        is_across = self.ends(run)[:, 0] >= 0
        for _ in range(number):
            if not eligible.any():
                break
            run.budget.charge(rho / number)
            place = int(run.source.choose(scores[None, :], scale, eligible[None, :])[0])
            if self.size.bears([*model, *chosen, scopes[place]], self.most_size):
                chosen.append(scopes[place])
                last = place
                left_at_last = eligible.copy()
                inside = set(scopes[place])
                eligible &= np.array([not set(c) <= inside for c in scopes])
                eligible &= ~is_across | (self.ends(run, chosen)[:, 0] >= 0)
            eligible[place] = False
        return ChosenTables(scopes=chosen, last=last, eligible=left_at_last)


def few_candidates(run: Run, known: Known, exact: ExactTables, number: int) -> FewCandidates:
    """Return the candidates of a round with their misfits to the last model.

    Parameters
    ----------
    run, known, exact
        The run, what is known from it, and the exact tables.
    number
        Number of the round, from 1.
    """
    plan = run.plan
    cards = known.merging.cardinalities
    model = run.drawn.scopes
    found = plan.candidates(cards, model)
    if plan.workload is None and number == 1:
        found = [c for c in found if len(c) == 2]
    inside = [set(scope) for scope in known.fit.effects.scopes]
    taken = known.size.share(model)
    most_size = taken + SIZE_SHARES[number - 1] * max(1 - taken, 0.0)
    scopes = [
        c
        for c in found
        if any(set(c) <= scope for scope in inside) or known.size.bears([*model, c], most_size)
    ]
    tables = known.fit.probabilities(scopes)
    expected = [expected_counts(table, known.fit.total) for table in tables]
    return FewCandidates(
        scopes=scopes,
        misfits=exact.misfits(scopes, expected),
        of_noise=run.misfits_of_noise(known.merging, scopes),
        cells=scope_sizes(scopes, cards),
        size=known.size,
        most_size=most_size,
    )
