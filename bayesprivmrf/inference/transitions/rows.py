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
        return self._first.shape[1] + self._inner.shape[1]

    @cached_property
    def is_possible(self) -> tuple[np.ndarray, np.ndarray]:
        """Which cells of π, shape (K^m,), and of P, shape (K^m, K), structural zeros leave."""
        possible = np.ones(self.model.size, bool) if self.model.possible is None else self.model.possible
        windows = possible[self.cells].reshape(-1, self.rows, self.states)
        return windows[0].any(axis=-1), windows.any(axis=0)

    @cached_property
    def bases(self) -> tuple[FloatArray, ...]:
        """Contrasts Q of π and of each row of P, zero where nothing can be."""
        first, matrix = self.is_possible
        return tuple(_contrasts_within(mask) for mask in (first, *matrix))

    @property
    def _first(self) -> FloatArray:
        return self.bases[0]

    @cached_property
    def _inner(self) -> Any:
        """All rows' contrasts, sparse, shape (K^(m + 1), coordinates of P)."""
        from scipy.sparse import block_diag, csr_array

        return csr_array(block_diag([csr_array(basis) for basis in self.bases[1:]]))

    def _logits(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Q φ of π and of the rows of P, both linear."""
        lead, start = phi.shape[:-1], self._first.shape[1]
        inner = (self._inner @ phi[..., start:].reshape(-1, self._inner.shape[1]).T).T
        return phi[..., :start] @ self._first.T, inner.reshape(*lead, self.rows, self.states)

    def probabilities(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """π, shape (..., K^m), and P, shape (..., K^m, K), of coordinates of shape (..., size)."""
        first, inner = self._logits(phi)
        return _softmax(first, self.is_possible[0]), _softmax(inner, self.is_possible[1])

    def sums(self, tables: FloatArray) -> FloatArray:
        """The first states' table and the transitions added up over all steps, shape (..., K^m + K^(m+1))."""
        lead = tables.shape[:-1]
        windows = tables[..., self.cells].reshape(*lead, len(self.cells), self.rows, self.states)
        added = windows.sum(axis=-3).reshape(*lead, -1)
        return np.concatenate([windows[..., 0, :, :].sum(axis=-1), added], axis=-1)

    def coordinates(self, first: FloatArray, matrix: FloatArray) -> FloatArray:
        """φ of probabilities that are positive wherever something can be."""
        own, inner = (
            np.log(np.where(mask, p, 1.0)) for mask, p in zip(self.is_possible, (first, matrix), strict=True)
        )
        return np.concatenate([own @ self._first, inner.ravel() @ self._inner])

    def potentials(self, phi: FloatArray) -> FloatArray:
        """Potentials of the cliques, shape (size of the model,), nats; they are normalised."""
        return self.log_tables(*self.probabilities(phi))

    def log_tables(self, first: FloatArray, matrix: FloatArray) -> FloatArray:
        """The same from π and P themselves; minus infinity where a probability is 0."""
        flat = np.zeros(self.model.size)
        with np.errstate(divide="ignore"):
            flat[self.cells] = np.log(matrix).ravel()
            flat[self.cells[0]] += np.repeat(np.log(first), self.states)
        return flat

    def derivatives(self, phi: FloatArray) -> FloatArray:
        """Derivatives of the potentials by φ, shape (size of the model, size); 0 in cells that cannot occur."""
        first, matrix = self.probabilities(phi)
        inner = self._inner.toarray()
        means = (matrix.reshape(-1, 1) * inner).reshape(self.rows, self.states, -1).sum(axis=1)
        return self._slopes(self._first - first @ self._first, inner - np.repeat(means, self.states, axis=0))

    def linear_derivatives(self, phi: FloatArray) -> FloatArray:
        """Derivatives of the potentials by c, where π and the rows of P move by Q c: shape (model's size, size)."""
        first, matrix = self.probabilities(phi)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._slopes(
                self._first / first[:, np.newaxis], self._inner.toarray() / matrix.reshape(-1, 1)
            )

    def _slopes(self, by_first: FloatArray, by_step: FloatArray) -> FloatArray:
        """Derivatives of the potentials by coordinates, from those of log π and log P."""
        first, matrix = self.is_possible
        start, flat = self._first.shape[1], np.zeros((self.model.size, self.size))
        flat[self.cells, start:] = np.where(matrix.reshape(-1, 1), by_step, 0.0)
        flat[self.cells[0], :start] += np.repeat(
            np.where(first[:, np.newaxis], by_first, 0.0), self.states, axis=0
        )
        return flat

    def shifted(self, phi: FloatArray, moves: FloatArray) -> tuple[FloatArray, FloatArray]:
        """π and P at φ, moved by Q c, c of shape (..., size); their numbers may leave 0 to 1."""
        first, matrix = self.probabilities(phi)
        by_first, by_step = self._logits(moves)
        return first + by_first, matrix + by_step

    def tables(self, phi: FloatArray) -> FloatArray:
        """Marginals of the cliques by the forward recursion, shape (size of the model,)."""
        return self.forward(*self.probabilities(phi))

    def forward(self, law: FloatArray, matrix: FloatArray) -> FloatArray:
        """The same of π and P themselves, shape (..., size of the model)."""
        lead = law.shape[:-1]
        flat = np.empty((*lead, self.model.size))
        for cells in self.cells:
            window = law[..., np.newaxis] * matrix
            flat[..., cells] = window.reshape(*lead, -1)
            law = window.reshape(*lead, self.states, -1).sum(axis=-2)
        return flat

    def mean_derivatives(self, phi: FloatArray, *, linear: bool) -> FloatArray:
        r"""Derivatives of the windows' tables, shape (size of the model, size).

        By the recursion of `forward`, which is bilinear:
        :math:`∂W_t = ∂f_t P + f_t ∂P`, and :math:`∂f_{t+1}` is the sum of :math:`∂W_t` over its first variable.

        Parameters
        ----------
        phi
            Coordinates φ, shape (size,).
        linear
            Whether the derivatives are by c, where π and P move by Q c, and not by φ.
        """
        law, matrix = self.probabilities(phi)
        by_first, by_step = self._first, self._inner.toarray()
        if not linear:
            means = (matrix.reshape(-1, 1) * by_step).reshape(self.rows, self.states, -1).sum(axis=1)
            by_first = law[:, np.newaxis] * (by_first - law @ by_first)
            by_step = matrix.reshape(-1, 1) * (by_step - np.repeat(means, self.states, axis=0))
        start, contexts = self._first.shape[1], np.repeat(np.arange(self.rows), self.states)
        by_law = np.zeros((self.rows, self.size))
        by_law[:, :start] = by_first
        share, flat = matrix.reshape(-1, 1), np.zeros((self.model.size, self.size))
        for cells in self.cells:
            window = by_law[contexts] * share
            window[:, start:] += law[contexts, np.newaxis] * by_step
            flat[cells] = window
            by_law = window.reshape(self.states, self.rows, -1).sum(axis=0)
            law = (law[contexts] * share[:, 0]).reshape(self.states, self.rows).sum(axis=0)
        return flat

    @cached_property
    def cells(self) -> IntArray:
        """The model's cell for each past and next state in order, window by window, shape (windows, K^(m + 1))."""
        model, times = self.model, self.chain.positions
        found = []
        for start, clique in enumerate(self.chain.cliques):
            window, scope = times[start : start + self.chain.order + 1], model.scopes[clique]
            own = np.arange(*model.offsets[clique : clique + 2]).reshape(model.shapes[clique])
            found.append(own.transpose([scope.index(v) for v in window]).ravel())
        return np.array(found)


def _contrasts_within(mask: np.ndarray) -> FloatArray:
    """Helmert's contrasts of the cells that can be, 0 at the others; shape (cells, possible cells - 1)."""
    basis = np.zeros((mask.size, max(int(mask.sum()) - 1, 0)))
    if basis.shape[1]:
        basis[mask] = contrasts(int(mask.sum()))
    return basis


def _softmax(logits: FloatArray, mask: np.ndarray) -> FloatArray:
    """Probabilities of logits, 0 outside a mask; all of them where it leaves nothing."""
    values = np.where(mask, np.exp(logits - logits.max(axis=-1, keepdims=True)), 0.0)
    return values / np.where(mask.any(axis=-1), values.sum(axis=-1), 1.0)[..., np.newaxis]
