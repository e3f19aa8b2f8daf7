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
from functools import cached_property
from typing import Any, Self

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.transitions.rows import TransitionRows
from bayesprivmrf.marginals import MarginalEngine
from bayesprivmrf.model.tables import FloatArray

type Whitening = Callable[[FloatArray], FloatArray]
"""Maps columns U, shape (numbers, columns), to :math:`L^{-1} U` of the same shape, so that U'V⁻¹W is a product."""

# Smallest noise variance of an answer, records squared: that of a thousandth of a record
_LEAST_NOISE = 1e-6
# Smallest noise variance, as a share of the largest sampling variance: a smaller one is lost in rounding errors
_ROUNDING = 1e-12
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
            rows=TransitionRows(model=model), matrix=matrix, noise=noise, engine=evidence.engine("exact")
        )

    def jacobian(self, point: FloatArray, *, linear: bool = False) -> tuple[FloatArray, FloatArray]:
        """Return the derivative of the mean by φ, or by the linear coordinates, and by log N; and the mean."""
        total = np.exp(point[-1])
        mean = total * (self.matrix @ self.rows.tables(point[:-1]))
        by_coordinates = total * (self.matrix @ self.rows.mean_derivatives(point[:-1], linear=linear))
        return np.column_stack([by_coordinates, mean]), mean

    @cached_property
    def _windows(self) -> list[tuple[Any, np.ndarray]] | None:
        """Return A's rows and their positions, window by window; None if a number spans several windows."""
        cells = self.rows.cells
        window = np.empty(self.rows.model.size, dtype=int)
        window[cells] = np.arange(len(cells))[:, np.newaxis]
        found = self.matrix.tocoo()
        least, most = np.full(len(self.noise), len(cells)), np.zeros(len(self.noise), dtype=int)
        np.minimum.at(least, found.row, window[found.col])
        np.maximum.at(most, found.row, window[found.col])
        if (least < most).any():
            return None
        places = [np.flatnonzero(most == t) for t in range(len(cells))]
        return [(self.matrix[place][:, own], place) for own, place in zip(cells, places, strict=True)]

    def whitening(self, phi: FloatArray, log_total: float) -> Whitening:
        """Return the whitening by V at coordinates φ and log N.

        Raises
        ------
        numpy.linalg.LinAlgError
            V is not positive definite, for instance where hardly any records are left.
        ModelTooLargeError
            Too many numbers span several windows.
        """
        noise = self._noise_at(phi, log_total)
        if self._windows is not None:
            return self._by_filter(phi, log_total, noise)
        return self._formed(phi, log_total, noise)

    def _noise_at(self, phi: FloatArray, log_total: float) -> FloatArray:
        """Return the noise variances, raised where needed to keep V positive definite in floating point.

        Sums that are the same for every record have no sampling variance.
        """
        sampling = np.exp(log_total) * (self.matrix.multiply(self.matrix) @ self.rows.tables(phi))
        return np.maximum(self.noise, max(_LEAST_NOISE, _ROUNDING * float(sampling.max(initial=0.0))))

    def _formed(self, phi: FloatArray, log_total: float, noise: FloatArray) -> Whitening:
        from scipy.linalg import solve_triangular

        if len(self.noise) > _MOST_FORMED:
            raise ModelTooLargeError(
                f"{len(self.noise):,} noisy numbers of a chain with shared transitions, some over several steps, are "
                f"more than {_MOST_FORMED:,}; measure the tables of single steps, or sums over the steps alone "
                "(queries.pooled)."
            )
        _, _, product = self.engine.linearize(self.rows.potentials(phi))
        own = np.array([self.matrix @ product(row) for row in self.matrix.toarray()])
        covariance = 0.5 * np.exp(log_total) * (own + own.T) + np.diag(noise)
        lower = np.linalg.cholesky(covariance)
        return lambda columns: solve_triangular(lower, columns, lower=True)

    def _by_filter(self, phi: FloatArray, log_total: float, noise: FloatArray) -> Whitening:
        first, matrix = self.rows.probabilities(phi)
        total, states = np.exp(log_total), self.rows.states
        contexts = np.repeat(np.arange(len(first)), states)  # the state before, of each cell of a window
        share = matrix.ravel()
        factors = []
        law, spread = first, total * (np.diag(first) - np.outer(first, first))
        for rows, place in self._windows or ():
            # Cov n_t: the uncertainty of the preceding states, and the draws of the next state
            cells = spread[np.ix_(contexts, contexts)] * np.outer(share, share)
            own = total * law[contexts]
            cells -= np.where(contexts[:, np.newaxis] == contexts, np.outer(own * share, share), 0.0)
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
