r"""A chain of one transition matrix, in unconstrained coordinates.

The first law π has K^m cells (m the order), the matrix P as many rows of K. Each is a softmax of zero-sum logits,
:math:`Q φ` with Helmert's contrasts Q, so that

.. math:: \frac{∂ \log p_i}{∂ φ} = Q_i - \sum_j p_j Q_j .

The table of the window that begins at time t is :math:`W_t = f_t P`, and :math:`f_{t+1}` its sum over the first
variable, :math:`f_1 = π`. The potentials :math:`\log π + \log P` on the first window and :math:`\log P` on the others
are the chain as a Markov random field of log-partition 0, whose covariances the marginal engines know. Structural
zeros, as an end state has them, are left out of π and of the rows of P: Q is then of the cells that remain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.chain import Chain, chain_of
from bayesprivmrf.model.effects import contrasts
from bayesprivmrf.model.tables import FloatArray, IntArray

# α, prior counts in each cell of π and P; `bayesprivmrf.inference.transitions.mode` says why there are no more
_PRIOR_COUNT = 0.25


@dataclass(frozen=True, eq=False, kw_only=True)
class TransitionRows:
    """The map from coordinates φ to the chain's probabilities and potentials.

    Parameters
    ----------
    model
        A model with shared transitions.
    """

    model: ModelSpecification

    @cached_property
    def chain(self) -> Chain:
        """The order of time."""
        return chain_of(self.model)

    @property
    def states(self) -> int:
        """K."""
        return self.model.cardinalities[self.chain.positions[0]]

    @property
    def rows(self) -> int:
        """K^m: rows of P, and cells of π."""
        return self.states**self.chain.order

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.bases[0].shape[1] + self._inner.shape[1]

    @cached_property
    def is_possible(self) -> tuple[np.ndarray, np.ndarray]:
        """Masks of the possible cells of π, shape (K^m,), and of P, shape (K^m, K)."""
        if self.model.possible is None:
            possible = np.ones(self.model.size, bool)
        else:
            possible = self.model.possible
        windows = possible[self.cells].reshape(-1, self.rows, self.states)
        return windows[0].any(axis=-1), windows.any(axis=0)

    @cached_property
    def bases(self) -> tuple[FloatArray, ...]:
        """Contrasts Q of π and of each row of P, zero where nothing can be."""
        found = []
        for mask in (self.is_possible[0], *self.is_possible[1]):
            # Helmert contrasts of the possible cells
            basis = np.zeros((mask.size, max(int(mask.sum()) - 1, 0)))
            if basis.shape[1]:
                basis[mask] = contrasts(int(mask.sum()))
            found.append(basis)
        return tuple(found)

    @cached_property
    def _inner(self) -> Any:
        """All rows' contrasts, sparse, shape (K^(m + 1), coordinates of P)."""
        from scipy.sparse import block_diag, csr_array

        return csr_array(block_diag([csr_array(basis) for basis in self.bases[1:]]))

    def _logits(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return Q φ of π and of the rows of P."""
        lead = phi.shape[:-1]
        start = self.bases[0].shape[1]
        inner = (self._inner @ phi[..., start:].reshape(-1, self._inner.shape[1]).T).T
        return phi[..., :start] @ self.bases[0].T, inner.reshape(*lead, self.rows, self.states)

    def probabilities(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return π, shape (..., K^m), and P, shape (..., K^m, K), at coordinates of shape (..., size)."""
        first, inner = self._logits(phi)
        return _softmax(first, self.is_possible[0]), _softmax(inner, self.is_possible[1])

    def sums(self, tables: FloatArray) -> FloatArray:
        """Return the table of first states and the transitions added over all steps, shape (..., K^m + K^(m+1))."""
        lead = tables.shape[:-1]
        windows = tables[..., self.cells].reshape(*lead, len(self.cells), self.rows, self.states)
        # an explicit size, because there may be no tables
        added = windows.sum(axis=-3).reshape(*lead, self.rows * self.states)
        return np.concatenate([windows[..., 0, :, :].sum(axis=-1), added], axis=-1)

    def coordinates(self, first: FloatArray, matrix: FloatArray) -> FloatArray:
        """Return φ of probabilities that are positive in every possible cell."""
        own, inner = (
            np.log(np.where(mask, p, 1.0))
            for mask, p in zip(self.is_possible, (first, matrix), strict=True)
        )
        return np.concatenate([own @ self.bases[0], inner.ravel() @ self._inner])

    def coordinates_of(self, tables: FloatArray) -> FloatArray:
        """Return φ of the chain nearest to marginals of the cliques, shape (model size,), which may hold zeros."""
        first, steps = np.split(self.sums(tables), [self.rows])
        # the least positive number keeps logarithms of empty cells finite
        tiny = np.finfo(float).tiny
        steps = steps.reshape(self.rows, self.states) + tiny
        return self.coordinates(first + tiny, steps / steps.sum(axis=1, keepdims=True))

    def potentials(self, phi: FloatArray) -> FloatArray:
        """Return normalized potentials of the cliques, shape (model size,), nats."""
        return self.log_tables(*self.probabilities(phi))

    def log_tables(self, first: FloatArray, matrix: FloatArray) -> FloatArray:
        """Return the potentials from π and P; minus infinity where a probability is 0."""
        flat = np.zeros(self.model.size)
        with np.errstate(divide="ignore"):
            flat[self.cells] = np.log(matrix).ravel()
            flat[self.cells[0]] += np.repeat(np.log(first), self.states)
        return flat

    def prior(self, phi: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """Return minus the log-density of the prior counts of π and P, with gradient and curvature."""
        first, matrix = self.probabilities(phi)
        value = 0.0
        gradient = np.zeros(len(phi))
        curvature = np.zeros((len(phi), len(phi)))
        start = 0
        masks = (self.is_possible[0], *self.is_possible[1])
        for law, mask, basis in zip((first, *matrix), masks, self.bases, strict=True):
            count = _PRIOR_COUNT * mask.sum()
            own = slice(start, start + basis.shape[1])
            # a probability that has become zero has no density: such steps are refused
            with np.errstate(divide="ignore"):
                value -= _PRIOR_COUNT * float(np.log(law[mask]).sum())
            gradient[own] = count * (law @ basis)
            # curvature of -α log p along log p: where the noise drives p towards 0, the curvature of the residuals
            # cancels the rest, so that the steps are nearly those of Newton
            logs = basis[mask] - law @ basis  # derivative of the log probabilities
            curvature[own, own] = _PRIOR_COUNT * logs.T @ logs
            start = own.stop
        return value, gradient, curvature

    def derivatives(self, phi: FloatArray, *, linear: bool) -> FloatArray:
        """Return derivatives of the potentials, shape (model size, size).

        Parameters
        ----------
        phi
            Coordinates φ, shape (size,).
        linear
            Whether the derivatives are by c, where π and P move by Q c, and not by φ.
        """
        (first, matrix) = self.probabilities(phi)
        start = self.bases[0].shape[1]
        # derivatives of log π and log P
        by_first = self.bases[0]
        by_step = self._inner.toarray()
        if linear:  # 0 in impossible cells
            with np.errstate(divide="ignore", invalid="ignore"):
                possible = self.is_possible[0][:, np.newaxis], self.is_possible[1].reshape(-1, 1)
                by_first = np.where(possible[0], by_first / first[:, np.newaxis], 0.0)
                by_step = np.where(possible[1], by_step / matrix.reshape(-1, 1), 0.0)
        else:
            means = (
                (matrix.reshape(-1, 1) * by_step).reshape(self.rows, self.states, -1).sum(axis=1)
            )
            by_first = by_first - first @ by_first
            by_step = by_step - np.repeat(means, self.states, axis=0)
        flat = np.zeros((self.model.size, self.size))
        flat[self.cells, start:] = by_step
        flat[self.cells[0], :start] += np.repeat(by_first, self.states, axis=0)
        return flat

    def shifted(self, phi: FloatArray, moves: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return π and P at φ moved by Q c, c of shape (..., size); entries may be outside 0 to 1."""
        first, matrix = self.probabilities(phi)
        by_first, by_step = self._logits(moves)
        return first + by_first, matrix + by_step

    def tables(self, phi: FloatArray) -> FloatArray:
        """Return the marginals of the cliques by the forward recursion, shape (model size,)."""
        return self.forward(*self.probabilities(phi))

    def forward(self, law: FloatArray, matrix: FloatArray) -> FloatArray:
        """Return the marginals of the cliques from π and P, shape (..., model size)."""
        lead = law.shape[:-1]
        flat = np.empty((*lead, self.model.size))
        for cells in self.cells:
            window = law[..., np.newaxis] * matrix
            flat[..., cells] = window.reshape(*lead, -1)
            law = window.reshape(*lead, self.states, -1).sum(axis=-2)
        return flat

    @cached_property
    def cells(self) -> IntArray:
        """The model's cell for each past and next state in order, window by window, shape (windows, K^(m + 1))."""
        model = self.model
        times = self.chain.positions
        found = []
        for start, clique in enumerate(self.chain.cliques):
            window = times[start : start + self.chain.order + 1]
            scope = model.scopes[clique]
            own = np.arange(*model.offsets[clique : clique + 2]).reshape(model.shapes[clique])
            found.append(own.transpose([scope.index(v) for v in window]).ravel())
        return np.array(found)


def _softmax(logits: FloatArray, mask: np.ndarray) -> FloatArray:
    """Return the probabilities of logits, 0 outside a mask; an empty mask leaves all of them."""
    values = np.where(mask, np.exp(logits - logits.max(axis=-1, keepdims=True)), 0.0)
    return values / np.where(mask.any(axis=-1), values.sum(axis=-1), 1.0)[..., np.newaxis]
