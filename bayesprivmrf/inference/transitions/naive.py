r"""Naive maximum likelihood of a chain of one transition matrix, from consistent tables that fit the release.

With n_1 the first states' table and S the transitions' added up over all steps, both over N, it maximises

.. math:: \sum_i n_{1i} \log π_i + \sum_{ij} S_{ij} \log P_{ij} - λ \lVert \text{logits} \rVert^2 ,

λ as `NaiveMLE` has it for a tied table, on the zero-sum logits of π and of each row of P. Without it the rows are
S over its row sums.
"""

from __future__ import annotations

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.optimize import minimize
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.inference.transitions.rows import TransitionRows
from bayesprivmrf.model.tables import FloatArray


def naive_transitions(
    rows: TransitionRows, target: FloatArray, ridge: float, *, iterations: int, tolerance: float
) -> tuple[FloatArray, Status, dict[str, float]]:
    """Coordinates φ, how it ended, iterations and evaluations.

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
    (is_first, is_step), by_first = rows.is_possible, rows.bases[0]

    def objective(phi: FloatArray) -> tuple[float, FloatArray]:
        law, matrix = rows.probabilities(phi)
        fit = first[is_first] @ np.log(law[is_first]) + steps[is_step] @ np.log(matrix[is_step])
        value = ridge * float(phi @ phi) - float(fit)
        own = (first.sum() * law - first) @ by_first
        rest = steps.sum(axis=1, keepdims=True) * matrix - steps
        inner = [row @ basis for row, basis in zip(rest, rows.bases[1:], strict=True)]
        return value, np.concatenate([own, *inner]) + 2 * ridge * phi

    optimum = minimize(objective, np.zeros(rows.size), gradient_tolerance=tolerance, iterations=iterations)
    has_no_maximum = ridge == 0 and bool((first[is_first] <= 0).any() or (steps[is_step] <= 0).any())
    status = Status.DIVERGED if has_no_maximum else optimum.status
    return optimum.point, status, {"iterations": optimum.iterations, "evaluations": optimum.evaluations}


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
    """Raise unless marginals are exact: a chain has no loops, and its one matrix no potentials of their own."""
    if inference != "exact":
        raise ModelError("a chain with shared transitions has exact marginals; fit with inference='exact'.")
