r"""Noise-aware and naive estimates of a chain with one transition matrix.

The measured numbers are sums over N records plus noise,

.. math:: y = A n + η, \qquad E\,y = N A μ(φ), \qquad V = \operatorname{Cov} y = N A Σ(φ) A' + D,

Σ being the covariance of one record's cells and D the variances of the noise. φ and log N minimise

.. math:: \tfrac12 (y - N A μ)' V^{-1} (y - N A μ) - α \Bigl(\sum_i \log π_i + \sum_{ij} \log P_{ij}\Bigr)

with V held and renewed at the estimate until nothing moves: generalised least squares, with a quarter of a count (α
= 1/4) in each cell of π and of P, so that all are positive. More would bias small probabilities upwards, as noise
gives a prior more weight than counts do. **Errors** are those of π and P themselves, which move along their
zero-sum contrasts c: :math:`C = (J' V^{-1} J)^{-1}`, J the derivative of the mean by c and log N. On this scale the
mean is nearly linear, and noise adds to a small probability what it adds to a large one; along logits a small one
would seem certain as soon as the noise has pushed it down. V holds what sampling the people and the noise leave
open, with all correlations, so that C needs no law but the variances. (For Laplace noise an estimate that used its
law would have less variance where noise outweighs sampling.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.exact_answers import refuse_shared
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.loglinear_fit.search import Descent, Last, Phase, Turn, iterate
from bayesprivmrf.inference.optimize import minimize
from bayesprivmrf.inference.transition_rows import TransitionRows
from bayesprivmrf.inference.transition_sums import NoisySums
from bayesprivmrf.model.tables import FloatArray

# Largest number of renewals of V; fits that settle take about six, so that 50 is arbitrary
_RENEWALS = 50

# Move of all coordinates together at which a search has settled, standard deviations
_SETTLED = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TransitionMode:
    """Estimate of a chain at the end of its search.

    Parameters
    ----------
    rows
        The map from coordinates.
    point
        (φ, log N), shape (size + 1,).
    covariance
        C of the contrasts c of π and P, shape (size, size), squared probabilities.
    of_sampling
        C without the noise.
    status, renewals
        How it ended.
    """

    rows: TransitionRows
    point: FloatArray
    covariance: FloatArray
    of_sampling: FloatArray
    status: Status
    renewals: int

    @property
    def coordinates(self) -> FloatArray:
        """φ, shape (size,)."""
        return self.point[:-1]

    def hidden_by_noise(self) -> tuple[np.ndarray, np.ndarray]:
        """Return which transitions the noise hides, shape (rows, states), and which transitions are free.

        A transition is hidden if its normal 90 % interval reaches 0 or 1. It is hidden by the noise if the interval
        of sampling alone would not reach them.
        """
        center = self.rows.probabilities(self.coordinates)[1]
        slopes = self.rows.shifted(self.coordinates, np.eye(self.rows.size))[1] - center

        def is_hidden(covariance: FloatArray) -> np.ndarray:
            # noise hides a transition whose normal 90 % interval, of 1.645 standard errors, reaches 0 or 1
            reach = 1.645 * np.sqrt(np.einsum("kij,kl,lij->ij", slopes, covariance, slopes))
            return (center <= reach) | (center + reach >= 1)

        possible = self.rows.is_possible[1]
        is_free = possible & (possible.sum(axis=1, keepdims=True) > 1)
        return is_hidden(self.covariance) & ~is_hidden(self.of_sampling) & is_free, is_free


def transition_mode(evidence: Evidence, start: FloatArray) -> TransitionMode:
    """Estimate from evidence, beginning at coordinates φ."""
    refuse_shared(evidence)
    data = _Answers.of(evidence)
    begin = np.append(start, np.log(evidence.total))
    found = iterate(data.renewed, begin, (Phase(rounds=_RENEWALS),))
    point = found.point
    status = found.last.descent.status
    if not np.isfinite(point).all():
        status = Status.DIVERGED
    elif status is Status.CONVERGED and not found.has_settled:
        status = Status.ITERATION_LIMIT
    sums = data.sums
    without_noise = replace(sums, noise=np.zeros_like(sums.noise))
    return TransitionMode(
        rows=sums.rows,
        point=point,
        covariance=_covariance(sums, point, data.is_free),
        of_sampling=_covariance(without_noise, point, data.is_free),
        status=status,
        renewals=found.rounds,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Answers:
    """Measured numbers of a chain, and the map to their means.

    Parameters
    ----------
    sums
        The map to the means and covariances of the measured numbers.
    numbers
        The numbers y, shape (numbers,).
    is_free
        Which coordinates move, shape (size + 1,): all but the log of a public number of records.
    """

    sums: NoisySums
    numbers: FloatArray
    is_free: np.ndarray

    @classmethod
    def of(cls, evidence: Evidence) -> _Answers:
        """Return the answers of some evidence."""
        sums = NoisySums.of(evidence)
        is_private = evidence.total_standard_error > 0
        is_free = np.append(np.ones(sums.rows.size, bool), is_private)
        return cls(sums, evidence.possible_numbers[1], is_free)

    def renewed(
        self, point: FloatArray, _last: Last[_WeightedAnswers] | None, _turn: Turn
    ) -> _WeightedAnswers:
        """Return generalized least squares with V at a point."""
        return _WeightedAnswers(self, point)


@dataclass(frozen=True, slots=True, eq=False)
class _WeightedAnswers:
    """Generalized least squares with V of one point."""

    answers: _Answers
    point: FloatArray

    @property
    def has_settled(self) -> bool:
        """Return False: a search is judged by its descents."""
        return False

    def descended(self, _turn: Turn) -> Descent:
        """Return the minimum while V is fixed."""
        is_free = self.answers.is_free
        try:
            point, information = self.answers.sums.closest(
                self.answers.numbers, self.point, is_free
            )
        # noise that leaves next to no records drives probabilities to 0
        except np.linalg.LinAlgError:
            return Descent(point=self.point, status=Status.DIVERGED)
        step = (point - self.point)[is_free]
        moved = float(step @ information[np.ix_(is_free, is_free)] @ step)
        return Descent(point=point, has_settled=moved < _SETTLED**2)


def _covariance(sums: NoisySums, point: FloatArray, is_free: np.ndarray) -> FloatArray:
    """Return C of the contrasts at the estimate, or the identity if C is not finite."""
    size = sums.rows.size
    try:
        covariance = sums.covariance(point, is_free)
    except np.linalg.LinAlgError:
        return np.eye(size)
    if np.isfinite(covariance).all():
        return covariance[:-1, :-1]
    return np.eye(size)


def naive_transitions(
    rows: TransitionRows, target: FloatArray, ridge: float, *, iterations: int, tolerance: float
) -> tuple[FloatArray, Status, dict[str, float]]:
    r"""Return the naive maximum likelihood estimate: coordinates φ, its status, iterations and evaluations.

    With n_1 the first states' table and S the transitions' added up over all steps, both over N, it maximizes

    .. math:: \sum_i n_{1i} \log π_i + \sum_{ij} S_{ij} \log P_{ij} - λ \lVert \text{logits} \rVert^2 ,

    λ as `NaiveMLE` has it for a tied table, on the zero-sum logits of π and of each row of P. Without it the rows are
    S over its row sums.

    Parameters
    ----------
    rows
        The map to probabilities.
    target
        Consistent tables of the cliques, shape (size of the model,), probabilities.
    ridge
        λ, nats a record.
    iterations, tolerance
        As `NaiveMLE` has them.
    """
    first, steps = np.split(rows.sums(target), [rows.rows])
    steps = steps.reshape(rows.rows, rows.states)
    (is_first, is_step) = rows.is_possible
    by_first = rows.bases[0]

    def objective(phi: FloatArray) -> tuple[float, FloatArray]:
        law, matrix = rows.probabilities(phi)
        fit = first[is_first] @ np.log(law[is_first]) + steps[is_step] @ np.log(matrix[is_step])
        value = ridge * float(phi @ phi) - float(fit)
        own = (first.sum() * law - first) @ by_first
        rest = steps.sum(axis=1, keepdims=True) * matrix - steps
        inner = [row @ basis for row, basis in zip(rest, rows.bases[1:], strict=True)]
        return value, np.concatenate([own, *inner]) + 2 * ridge * phi

    optimum = minimize(
        objective, np.zeros(rows.size), gradient_tolerance=tolerance, iterations=iterations
    )
    has_no_maximum = ridge == 0 and bool(
        (first[is_first] <= 0).any() or (steps[is_step] <= 0).any()
    )
    if has_no_maximum:
        status = Status.DIVERGED
    else:
        status = optimum.status
    return (
        optimum.point,
        status,
        {"iterations": optimum.iterations, "evaluations": optimum.evaluations},
    )


def exact_transitions(rows: TransitionRows, target: FloatArray) -> FloatArray:
    """Return potentials of the estimate without a ridge: shares of first states and of transitions, zeros included.

    Parameters
    ----------
    rows, target
        As `naive_transitions` has them.
    """
    first, steps = np.split(rows.sums(target), [rows.rows])
    steps = steps.reshape(rows.rows, rows.states)
    left = steps.sum(axis=1, keepdims=True)
    # a state that nobody left has no transition shares; its row is never used, because the state has probability 0
    even = rows.is_possible[1] / np.maximum(rows.is_possible[1].sum(axis=1, keepdims=True), 1)
    return rows.log_tables(first / first.sum(), np.divide(steps, left, out=even, where=left > 0))


def refuse_loopy_transitions(inference: str) -> None:
    """Raise an error unless marginals are exact: a chain has no loops."""
    if inference != "exact":
        raise ModelError(
            "a chain with shared transitions has exact marginals; fit with inference='exact'."
        )
