r"""A chain of one transition matrix, in unconstrained coordinates.

The first law π has K^m cells (m the order), the matrix P as many rows of K. Each is a softmax of zero-sum logits,
:math:`Q φ` with Helmert's contrasts Q, so that

.. math:: \frac{∂ \log p_i}{∂ φ} = Q_i - \sum_j p_j Q_j .

The table of the window that begins at time t is :math:`W_t = f_t P`, and :math:`f_{t+1}` its sum over the first
variable, :math:`f_1 = π`. The potentials :math:`\log π + \log P` on the first window and :math:`\log P` on the others
are the chain as a Markov random field of log-partition 0, whose covariances the marginal engines know.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.chain import Chain, chain_of
from bayesprivmrf.model.effects import contrasts
from bayesprivmrf.model.tables import FloatArray, IntArray

__all__ = ["TransitionRows"]


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
        return self.rows - 1 + self.rows * (self.states - 1)

    def probabilities(self, phi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """π, shape (..., K^m), and P, shape (..., K^m, K), of coordinates of shape (..., size)."""
        lead = phi.shape[:-1]
        first = phi[..., : self.rows - 1] @ contrasts(self.rows).T
        inner = (
            phi[..., self.rows - 1 :].reshape(*lead, self.rows, self.states - 1) @ contrasts(self.states).T
        )
        return _softmax(first), _softmax(inner)

    def sums(self, tables: FloatArray) -> FloatArray:
        """The first states' table and the transitions added up over all steps, shape (..., K^m + K^(m+1))."""
        lead = tables.shape[:-1]
        windows = tables[..., self.cells].reshape(*lead, len(self.cells), self.rows, self.states)
        added = windows.sum(axis=-3).reshape(*lead, -1)
        return np.concatenate([windows[..., 0, :, :].sum(axis=-1), added], axis=-1)

    def coordinates(self, first: FloatArray, matrix: FloatArray) -> FloatArray:
        """φ of positive probabilities."""
        own = np.log(first) @ contrasts(self.rows)
        return np.concatenate([own, (np.log(matrix) @ contrasts(self.states)).ravel()])

    def potentials(self, phi: FloatArray) -> FloatArray:
        """Potentials of the cliques, shape (size of the model,), nats; they are normalised."""
        first, matrix = self.probabilities(phi)
        flat = np.zeros(self.model.size)
        with np.errstate(divide="ignore"):  # far out a probability may be zero
            flat[self.cells] = np.log(matrix).ravel()
            flat[self.cells[0]] += np.repeat(np.log(first), self.states)
        return flat

    def derivatives(self, phi: FloatArray) -> FloatArray:
        """Of the potentials by φ, shape (size of the model, size)."""
        first, matrix = self.probabilities(phi)
        rows, states = self.rows, self.states
        by_first = contrasts(rows) - first @ contrasts(rows)
        by_row = contrasts(states) - np.einsum("rk,kc->rc", matrix, contrasts(states))[:, np.newaxis]
        step = np.zeros((rows * states, self.size))
        for row in range(rows):
            start = rows - 1 + row * (states - 1)
            step[row * states : (row + 1) * states, start : start + states - 1] = by_row[row]
        flat = np.zeros((self.model.size, self.size))
        flat[self.cells] = step
        flat[self.cells[0], : rows - 1] += np.repeat(by_first, states, axis=0)
        return flat

    def linear_derivatives(self, phi: FloatArray) -> FloatArray:
        """Of the potentials by c, where π and the rows of P move by Q c: shape (size of the model, size)."""
        first, matrix = self.probabilities(phi)
        rows, states = self.rows, self.states
        step = np.zeros((rows * states, self.size))
        for row in range(rows):
            start = rows - 1 + row * (states - 1)
            own = contrasts(states) / matrix[row][:, np.newaxis]
            step[row * states : (row + 1) * states, start : start + states - 1] = own
        flat = np.zeros((self.model.size, self.size))
        flat[self.cells] = step
        by_first = contrasts(rows) / first[:, np.newaxis]
        flat[self.cells[0], : rows - 1] += np.repeat(by_first, states, axis=0)
        return flat

    def shifted(self, phi: FloatArray, moves: FloatArray) -> FloatArray:
        """P at φ with its rows moved by Q c, c of shape (..., size); its numbers may leave 0 to 1."""
        matrix, start = self.probabilities(phi)[1], self.rows - 1
        inner = moves[..., start:].reshape(*moves.shape[:-1], self.rows, self.states - 1)
        return matrix + inner @ contrasts(self.states).T

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

    @cached_property
    def cells(self) -> IntArray:
        """Of each window, the model's cell for each past and next state in order, shape (windows, K^(m + 1))."""
        model, times = self.model, self.chain.positions
        found = []
        for start, clique in enumerate(self.chain.cliques):
            window, scope = times[start : start + self.chain.order + 1], model.scopes[clique]
            own = np.arange(*model.offsets[clique : clique + 2]).reshape(model.shapes[clique])
            found.append(own.transpose([scope.index(v) for v in window]).ravel())
        return np.array(found)


def _softmax(logits: FloatArray) -> FloatArray:
    values = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return values / values.sum(axis=-1, keepdims=True)
