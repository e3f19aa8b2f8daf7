r"""The search loop of all fits whose weights depend on the estimate.

Such a fit minimizes an objective whose weights are functions of the estimate itself: the covariance of the data, the
scales of the prior, or the quadratic approximation of a likelihood. The search computes the weights at an estimate,
and descends on the objective that they define while they stay fixed. It repeats this at the new estimate until the
estimate no longer moves: iteratively reweighted least squares, in its general form.

Three parts are independent of each other. The *problem* computes the weights, from the moments of a model
(`bayesprivmrf.inference.loglinear_fit.moments`) and from a prior (`bayesprivmrf.inference.loglinear_fit.priors`). The
*descent* is one damped Gauss-Newton step, Gauss-Newton steps to the minimum
(`bayesprivmrf.inference.optimize.damped_steps`), or quasi-Newton steps in posterior standard deviations
(`bayesprivmrf.inference.loglinear_fit.curvature.whitened_minimum`). The *schedule* says what is computed anew in
which round, and is data.

=============================================== ============================= =======================
search                                          weights                       descent
=============================================== ============================= =======================
`loglinear_fit.reweighted`, parities            :math:`\Sigma/N + V`, prior   one Gauss-Newton step
`loglinear_fit.fit`, by Gibbs sampling          :math:`\Sigma` of draws       one Newton step
`noise_aware.mode`                              expansion, widths, prior      quasi-Newton
`learning.select_measure.learned_scales`        expansion, prior              quasi-Newton
`transitions.mode`                              :math:`N A \Sigma A' + D`     Gauss-Newton to the minimum
=============================================== ============================= =======================

A fit whose weights do not depend on the estimate is convex. It needs no such search, only L-BFGS
(`bayesprivmrf.inference.optimize.ridge_mode`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.model.tables import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Consecutive rounds of a search that do the same. A schedule is a tuple of phases.

    Parameters
    ----------
    rounds
        Number of rounds, at least 0.
    weighs
        Whether each round computes the weights anew. Where it does not, the objective stays one function, which has
        a minimum that the search can reach.
    expands
        Whether each round computes the curvature anew; otherwise that of the last round stays.
    learns
        Whether each round learns the scales of the prior.
    may_end
        Whether the search may end here.
    averages
        Whether the estimates of these rounds are averaged, as drawn means never settle.
    halves
        Whether a step is halved until the objective falls.
    share
        Share of a step that is taken.
    share_back
        Share of a step that turns back, against the direction of the last one.
    damped_after
        Number of the round after which renewals count as 1, 1/2, 1/3, ..., which ends a cycle between the estimate
        and its weights. None if all count in full.
    """

    rounds: int
    weighs: bool = True
    expands: bool = True
    learns: bool = False
    may_end: bool = True
    averages: bool = False
    halves: bool = False
    share: float = 1.0
    share_back: float = 1.0
    damped_after: int | None = None


type Phases = tuple[Phase, ...]
"""Phases of a search, in their order."""


class Turn(NamedTuple):
    """A round of a search: its number, from 1, and its phase."""

    number: int
    phase: Phase

    @property
    def renewal_share(self) -> float:
        """Share by which this round's renewal replaces the weights of the last round."""
        if self.phase.damped_after is None:
            return 1.0
        return 1 / max(self.number - self.phase.damped_after, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """End of a descent with fixed weights.

    Parameters
    ----------
    point
        The new estimate, shape (d,).
    has_settled
        Whether the estimate hardly moved, which ends a search.
    moved
        Length of the move, in the units of the problem.
    step, gradient
        The full step and the gradient at its start, shape (d,), if the descent was one step.
    status
        How the descent ended; one that diverged ends the search.
    """

    point: FloatArray
    has_settled: bool = False
    moved: float = 0.0
    step: FloatArray | None = None
    gradient: FloatArray | None = None
    status: Status = Status.CONVERGED


class Weighted(Protocol):
    """An objective with the weights of one estimate."""

    @property
    def has_settled(self) -> bool:
        """True if the estimate and its weights hardly changed in the last round, which ends a search."""
        ...

    def descended(self, turn: Turn, /) -> Descent:
        """Return where a descent with these weights ends."""
        ...


class Last[W: Weighted](NamedTuple):
    """The last round: its weights, and its descent."""

    weighted: W
    descent: Descent


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched[W: Weighted]:
    """End of a search.

    Parameters
    ----------
    point, weighted
        The last estimate, and the last weights.
    average, average_gradient
        Means of the estimates, and of the gradients of the descents, in the phases that average, shape (d,).
    rounds
        Number of rounds.
    last
        The last descent.
    has_settled
        Whether the search ended because nothing moved any more.
    """

    point: FloatArray
    weighted: W
    average: FloatArray
    average_gradient: FloatArray
    rounds: int
    last: Last[W]
    has_settled: bool

    @property
    def is_open(self) -> bool:
        """True if the search may go on: it neither settled nor diverged."""
        return not self.has_settled and self.last.descent.status is not Status.DIVERGED


type Renewal[W: Weighted] = Callable[[FloatArray, Last[W] | None, Turn], W]
"""The weights at an estimate, given the last round (None at first) and the present one."""


def iterate[W: Weighted](
    renewed: Renewal[W],
    start: FloatArray,
    schedule: Sequence[Phase],
    before: Searched[W] | None = None,
) -> Searched[W]:
    """Compute the weights and descend with them fixed, again and again, until the search settles or its rounds end.

    Parameters
    ----------
    renewed
        Weights at an estimate.
    start
        The first estimate, shape (d,).
    schedule
        Phases of at least one round in all.
    before
        An open search that goes on; its estimate replaces the start.

    Returns
    -------
    Searched
        The last estimate, with the weights of its last renewal: those of the estimate before, unless the search
        settled at a renewal.
    """
    point = start if before is None else before.point
    last = None if before is None else before.last
    first = 0 if before is None else before.rounds
    average = np.zeros_like(start)
    average_gradient = np.zeros_like(start)
    has_settled = False
    weighted = None
    turn = None
    for turn in _turns(schedule, first):
        phase = turn.phase
        weighted = renewed(point, last, turn)
        if phase.may_end and weighted.has_settled:
            has_settled = True
            break
        descent = weighted.descended(turn)
        last = Last(weighted, descent)
        point = descent.point
        if phase.averages:
            average += point / phase.rounds
            if descent.gradient is not None:
                average_gradient += descent.gradient / phase.rounds
        has_settled = phase.may_end and descent.has_settled
        if has_settled or descent.status is Status.DIVERGED:
            break
    assert weighted is not None
    assert last is not None
    assert turn is not None
    return Searched(
        point=point,
        weighted=weighted,
        average=average,
        average_gradient=average_gradient,
        rounds=turn.number,
        last=last,
        has_settled=has_settled,
    )


def _turns(schedule: Sequence[Phase], number: int) -> Iterator[Turn]:
    """Yield the rounds of a schedule, counted on from a number."""
    for phase in schedule:
        for _ in range(phase.rounds):
            number += 1
            yield Turn(number, phase)
