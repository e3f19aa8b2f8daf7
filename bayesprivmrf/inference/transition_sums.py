r"""Covariance of noisy sums over N records of a chain, by a Kalman filter over time.

The noisy numbers y have the covariance :math:`V = N A Σ A' + D`. Least squares needs inner products
:math:`u' V^{-1} w` alone, never V itself. If each number belongs to the table of one window, the mean and covariance
of y are those of a linear state-space model: given the counts :math:`m_t` of the states before window t, the window's
counts :math:`n_t` have the mean :math:`m_{ti} P_{ij}` and, on average, the covariance
:math:`N f_{ti} (\operatorname{diag} P_i - P_i P_i')` in row i, and :math:`m_{t+1}` is a sum of :math:`n_t`. A Kalman
filter therefore gives the factor L of :math:`V = L L'` window by window: its innovations, divided by their Cholesky
factors, are :math:`L^{-1} y`. That takes :math:`O(T K^{3(m+1)})` steps where forming and inverting V takes
:math:`O(T^3 K^{3(m+1)})`. The identity is exact, because V depends on first and second moments only.

Numbers that span several windows, such as sums over time, have no such order. There are few of them, and V is formed.

References
----------
Durbin and Koopman (2012). Time Series Analysis by State Space Methods, 2nd ed., section 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.optimize import Expanded, damped_steps
from bayesprivmrf.inference.transition_rows import TransitionRows
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model.tables import FloatArray

type _Whitening = Callable[[FloatArray], FloatArray]
"""Maps columns U, shape (numbers, columns), to :math:`L^{-1} U` of the same shape, so that U'V⁻¹W is a product."""

# Largest number of answers across windows whose covariance is formed: 72 MB, and seconds to factor
_MOST_FORMED = 3000


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisySums:
    """Noisy numbers of a chain, and their covariance at any point.

    Parameters
    ----------
    rows
        The map from coordinates to the chain's probabilities.
    matrix
        A, sparse, shape (numbers, cells of the model).
    noise
        Variance of each number's noise, squared records, shape (numbers,).
    engine
        Marginals of the chain as a Markov random field.
    """

    rows: TransitionRows
    matrix: Any
    noise: FloatArray
    engine: MarginalEngine

    @classmethod
    def of(cls, evidence: Evidence) -> Self:
        """Return the possible numbers of a chain's evidence."""
        model = evidence.specification
        matrix, _, noise = evidence.possible_numbers
        return cls(
            rows=TransitionRows(model=model),
            matrix=matrix,
            noise=noise,
            engine=evidence.engine("exact"),
        )

    def jacobian(self, point: FloatArray, *, linear: bool = False) -> tuple[FloatArray, FloatArray]:
        """Return the derivative of the mean by φ, or by the linear coordinates, and by log N; and the mean."""
        total = np.exp(point[-1])
        phi = point[:-1]
        mean = total * (self.matrix @ self.rows.tables(phi))
        _, _, product = self.engine.linearize(self.rows.potentials(phi))
        changes = [product(column) for column in self.rows.derivatives(phi, linear=linear).T]
        by_coordinates = total * (self.matrix @ np.array(changes).reshape(self.rows.size, -1).T)
        return np.column_stack([by_coordinates, mean]), mean

    def closest(
        self, numbers: FloatArray, start: FloatArray, is_free: np.ndarray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the point of generalized least squares with V of the start, and the curvature there.

        Parameters
        ----------
        numbers
            Measured numbers y, shape (numbers,).
        start
            (φ, log N), shape (size + 1,).
        is_free
            Mask of the coordinates that move.
        """
        return damped_steps(partial(self._expanded, self.whitening(start), numbers), start, is_free)

    def _expanded(self, whiten: _Whitening, numbers: FloatArray, point: FloatArray) -> Expanded:
        """Return the objective, its gradient and its Gauss-Newton curvature at a point."""
        jacobian, mean = self.jacobian(point)
        whitened = whiten(np.column_stack([jacobian, numbers - mean]))
        slopes = whitened[:, :-1]
        residual = whitened[:, -1]
        prior, pull, curvature = self.rows.prior(point[:-1])
        gradient = -slopes.T @ residual
        gradient[:-1] += pull
        information = slopes.T @ slopes
        information[:-1, :-1] += curvature
        return 0.5 * float(residual @ residual) + prior, gradient, information

    def covariance(self, point: FloatArray, is_free: np.ndarray) -> FloatArray:
        """Return the covariance of the contrasts c and log N at an estimate, shape (size + 1, size + 1)."""
        free = np.ix_(is_free, is_free)
        covariance = np.zeros((self.rows.size + 1, self.rows.size + 1))
        with np.errstate(all="ignore"):
            whitened = self.whitening(point)(self.jacobian(point, linear=True)[0])
            information = whitened.T @ whitened
            # coordinates that no measurement determines are within 1 of the estimate
            information[:-1, :-1] += np.eye(self.rows.size)
            covariance[free] = np.linalg.inv(information[free])
        return covariance

    @cached_property
    def _windows(self) -> list[tuple[Any, np.ndarray]] | None:
        """Return A's rows and their positions, window by window; None if a number spans several windows."""
        cells = self.rows.cells
        window = np.empty(self.rows.model.size, dtype=int)
        window[cells] = np.arange(len(cells))[:, np.newaxis]
        found = self.matrix.tocoo()
        least = np.full(len(self.noise), len(cells))
        most = np.zeros(len(self.noise), dtype=int)
        np.minimum.at(least, found.row, window[found.col])
        np.maximum.at(most, found.row, window[found.col])
        if (least < most).any():
            return None
        places = [np.flatnonzero(most == t) for t in range(len(cells))]
        return [
            (self.matrix[place][:, own], place) for own, place in zip(cells, places, strict=True)
        ]

    def whitening(self, point: FloatArray) -> _Whitening:
        """Return the whitening by V at coordinates (φ, log N).

        Raises
        ------
        numpy.linalg.LinAlgError
            V is not positive definite, for instance where hardly any records are left.
        ModelTooLargeError
            Too many numbers span several windows.
        """
        # sums that are the same for every record have no sampling variance: where needed, the noise variances are
        # raised to that of a thousandth of a record, or to the least that rounding errors leave, so that V stays
        # positive definite in floating point
        phi = point[:-1]
        total = np.exp(point[-1])
        sampling = total * (self.matrix.multiply(self.matrix) @ self.rows.tables(phi))
        noise = np.maximum(self.noise, max(1e-6, 1e-12 * float(sampling.max(initial=0.0))))
        return (self._formed if self._windows is None else self._by_filter)(phi, total, noise)

    def _formed(self, phi: FloatArray, total: float, noise: FloatArray) -> _Whitening:
        from scipy.linalg import solve_triangular

        if len(self.noise) > _MOST_FORMED:
            raise ModelTooLargeError(
                f"a chain must have at most {_MOST_FORMED:,} noisy numbers where some span several steps, got "
                f"{len(self.noise):,}; measure the tables of single steps, or sums over the steps (queries.pooled)."
            )
        _, _, product = self.engine.linearize(self.rows.potentials(phi))
        own = np.array([self.matrix @ product(row) for row in self.matrix.toarray()])
        covariance = 0.5 * total * (own + own.T) + np.diag(noise)
        lower = np.linalg.cholesky(covariance)
        return lambda columns: solve_triangular(lower, columns, lower=True)

    def _by_filter(self, phi: FloatArray, total: float, noise: FloatArray) -> _Whitening:
        first, matrix = self.rows.probabilities(phi)
        # the state before, of each cell of a window
        contexts = np.repeat(np.arange(len(first)), self.rows.states)
        share = matrix.ravel()
        factors = []
        law = first
        spread = total * (np.diag(first) - np.outer(first, first))
        for rows, place in self._windows or ():
            # Cov n_t: the uncertainty of the preceding states, and the draws of the next state
            cells = spread[np.ix_(contexts, contexts)] * np.outer(share, share)
            own = total * law[contexts]
            cells -= np.where(
                contexts[:, np.newaxis] == contexts, np.outer(own * share, share), 0.0
            )
            cells[np.diag_indices_from(cells)] += own * share
            measured = rows @ cells
            innovation = measured @ rows.T + np.diag(noise[place])
            inverse = np.linalg.inv(np.linalg.cholesky(0.5 * (innovation + innovation.T)))
            gain = inverse @ measured  # L⁻¹ A Cov n_t
            factors.append((rows, place, inverse, _next(gain.T, len(first))))
            left = cells - gain.T @ gain
            spread = _next(_next(left, len(first)).T, len(first))
            law = _next(law[contexts] * share, len(first))

        def whiten(columns: FloatArray) -> FloatArray:
            out = np.empty_like(columns)
            state = np.zeros((len(first), columns.shape[1]))
            for rows, place, inverse, update in factors:
                expected = state[contexts] * share[:, np.newaxis]
                out[place] = inverse @ (columns[place] - rows @ expected)
                state = _next(expected, len(first)) + update @ out[place]
            return out

        return whiten


def _next(window: FloatArray, states: int) -> FloatArray:
    """Return a window's sums over its first variable: those of the states before the next window."""
    # no -1 among the sizes: a window of which nothing was measured has none to tell it by
    return window.reshape(len(window) // states, states, *window.shape[1:]).sum(axis=0)
