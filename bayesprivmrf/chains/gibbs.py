"""Gibbs sampling from a Markov random field with given potentials, for models too wide for exact draws.

A sweep visits the variables in their order and draws each given the others. Half of the chains start at random, half
with every variable in its last state; if they agree on the log potential and on the mean state, neither start matters
any more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.chains.mixing import Mixing
from bayesprivmrf.model.tables import FloatArray, IntArray

_CHAINS = (
    64  # chains side by side, by benchmarks/chains.py: more fill the cache without sharing more of the work
)
_CHUNK = 1 << 22  # states drawn at a time, 4 MiB of codes; the draws do not depend on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Records drawn by Gibbs sampling, and whether the chains mixed.

    Parameters
    ----------
    codes
        States' codes, shape (size, p): the first draw of every chain, then the second of every chain, ...
    mixing
        The diagnostic: of the log potential ("energy") and of the mean state ("order").
    """

    codes: np.ndarray
    mixing: Mixing


class Chains:
    """Chains that run side by side and stay where they are when the potentials change.

    Parameters
    ----------
    cardinalities, scopes
        The model: number of states of each variable; variable positions of each factor, in its axis order.
    generator
        Generator that draws the starting states and seeds the chains.
    chains
        Number of chains.
    """

    def __init__(
        self,
        cardinalities: Sequence[int],
        scopes: Sequence[Sequence[int]],
        generator: np.random.Generator,
        chains: int = _CHAINS,
    ) -> None:
        self.cards = np.array(cardinalities, dtype=np.int64)
        self.scopes = [tuple(scope) for scope in scopes]
        self._state = generator.integers(0, 2**64, size=(4, chains), dtype=np.uint64)
        kind = np.uint8 if self.cards.max(initial=1) <= 256 else np.int64
        self.codes = (generator.random((self.cards.size, chains)) * self.cards[:, None]).astype(kind)
        self.codes[:, 1::2] = (self.cards - 1)[:, None]
        self._is_ising = bool((self.cards == 2).all()) and all(len(scope) <= 2 for scope in self.scopes)
        self._offsets = np.cumsum([0, *(math.prod(self.cards[v] for v in scope) for scope in self.scopes)])
        self._layout = () if self._is_ising else self._lay_out()

    def advance(self, potentials: FloatArray, draws: int, thin: int = 1) -> np.ndarray:
        """Return the codes of all chains after each `thin` sweeps, shape (draws, p, chains).

        Parameters
        ----------
        potentials
            Flat, nats: factor after factor, each in C order.
        draws, thin
            Numbers of draws, at least 0, and of sweeps before each draw, at least 1.
        """
        out = np.empty((draws, *self.codes.shape), dtype=self.codes.dtype)
        self._sweep(potentials, draws, thin, out)
        return out

    def marginals(self, potentials: FloatArray, sweeps: int) -> FloatArray:
        """Return the share of each cell of each factor in the states after each sweep, flat like the potentials."""
        nothing = np.empty((0, *self.codes.shape), dtype=self.codes.dtype)
        return self._sweep(potentials, sweeps, 1, nothing) / (sweeps * self.codes.shape[1])

    def _sweep(self, potentials: FloatArray, draws: int, thin: int, out: np.ndarray) -> FloatArray:
        """Move the chains and return the visits of each cell."""
        if self._is_ising:
            return self._sweep_spins(potentials, draws, thin, out)
        from bayesprivmrf.chains.kernels import sweep_states

        counts = np.zeros(self._offsets[-1])
        sweep_states(self.cards, potentials, self._layout, self.codes, self._state, draws, thin, out, counts)
        empty = [not scope for scope in self.scopes]
        counts[self._offsets[:-1][empty]] = draws * self.codes.shape[1]
        return counts

    def _sweep_spins(self, potentials: FloatArray, draws: int, thin: int, out: np.ndarray) -> FloatArray:
        from bayesprivmrf.chains.kernels import sweep_spins

        A, h = ising_of(self.cards.size, self.scopes, potentials)
        spins = 2.0 * self.codes - 1.0
        local = np.ascontiguousarray(A @ spins + h[:, None])
        pairs = np.array([scope for scope in self.scopes if len(scope) == 2], dtype=np.int64).reshape(-1, 2)
        sums = np.zeros(len(h) + len(pairs))
        sweep_spins((A.indptr, A.indices, A.data), spins, local, self._state, draws, thin, out, pairs, sums)
        self.codes = (spins > 0).astype(self.codes.dtype)
        return self._cells_of(sums, pairs, draws * spins.shape[1])

    def _cells_of(self, sums: FloatArray, pairs: IntArray, looks: int) -> FloatArray:
        """Return the visits of cells from sums of spins and of their products."""
        m, p = sums[: self.cards.size], self.cards.size
        counts = np.empty(self._offsets[-1])
        lengths = np.array([len(scope) for scope in self.scopes], dtype=np.int64)
        starts = self._offsets[:-1]
        i, j = pairs.T
        for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)):
            s, t = 2 * a - 1, 2 * b - 1
            cell = (looks + s * m[i] + t * m[j] + s * t * sums[p:]) / 4
            counts[starts[lengths == 2] + 2 * a + b] = cell
        single = np.array([scope[0] for scope in self.scopes if len(scope) == 1], dtype=np.int64)
        counts[starts[lengths == 1]] = (looks - m[single]) / 2
        counts[starts[lengths == 1] + 1] = (looks + m[single]) / 2
        counts[starts[lengths == 0]] = looks
        return counts

    def _lay_out(self) -> tuple[Any, ...]:
        """Return the arrays that `sweep_states` reads."""
        of_variable: list[list[tuple[int, int, list[tuple[int, int]]]]] = [[] for _ in self.cards]
        for start, scope in zip(self._offsets.tolist(), self.scopes, strict=False):
            strides = [math.prod(self.cards[v] for v in scope[axis + 1 :]) for axis in range(len(scope))]
            for axis, v in enumerate(scope):
                rest = [(w, s) for w, s in zip(scope, strides, strict=True) if w != v]
                of_variable[v].append((start, int(strides[axis]), rest))
        entries = [entry for own in of_variable for entry in own]
        rests = [pair for _, _, rest in entries for pair in rest]
        seen: set[int] = set()
        leads = [not (start in seen or seen.add(start)) for start, _, _ in entries]
        columns = [
            np.cumsum([0, *map(len, of_variable)]),
            np.array([start for start, _, _ in entries]),
            np.array([own for _, own, _ in entries]),
            np.cumsum([0, *(len(rest) for _, _, rest in entries)]),
            np.array([w for w, _ in rests]),
            np.array([s for _, s in rests]),
            np.array(leads),
        ]
        return tuple(column.astype(np.int64) for column in columns)


def ising_of(
    variables: int, scopes: Sequence[tuple[int, ...]], potentials: FloatArray
) -> tuple[Any, FloatArray]:
    """Return couplings as a sparse symmetric matrix and fields of factors of at most two two-state variables."""
    from scipy import sparse

    sizes = np.array([1 << len(scope) for scope in scopes], dtype=np.int64)
    starts = np.cumsum([0, *sizes])[:-1]
    fields = np.zeros(variables)
    single = np.array([scope[0] for scope in scopes if len(scope) == 1], dtype=np.int64)
    at = starts[sizes == 2]
    np.add.at(fields, single, (potentials[at + 1] - potentials[at]) / 2)
    pairs = np.array([scope for scope in scopes if len(scope) == 2], dtype=np.int64).reshape(-1, 2)
    cells = potentials[starts[sizes == 4][:, None] + np.arange(4)]
    i, j = pairs.T
    np.add.at(fields, i, (cells[:, 2] + cells[:, 3] - cells[:, 0] - cells[:, 1]) / 4)
    np.add.at(fields, j, (cells[:, 1] + cells[:, 3] - cells[:, 0] - cells[:, 2]) / 4)
    coupling = (cells[:, 0] + cells[:, 3] - cells[:, 1] - cells[:, 2]) / 4
    upper = sparse.coo_array((coupling, (i, j)), shape=(variables, variables))
    return sparse.csr_array(upper + upper.T), fields


def log_potentials(
    codes: np.ndarray, cards: IntArray, scopes: Sequence[tuple[int, ...]], potentials: FloatArray
) -> FloatArray:
    """Return the sum of potentials at codes of shape (draws, p, chains), shape (draws, chains)."""
    total = np.zeros((codes.shape[0], codes.shape[2]))
    start = 0
    for scope in scopes:
        cell = np.zeros(total.shape, dtype=np.int64)
        for v in scope:
            cell *= cards[v]
            cell += codes[:, v]
        total += potentials[start + cell]
        start += math.prod(cards[v] for v in scope)
    return total


def mixing_of(
    codes: np.ndarray, cards: IntArray, scopes: Sequence[tuple[int, ...]], potentials: FloatArray
) -> Mixing:
    """Return the diagnostic of draws of shape (draws, p, chains)."""
    energy = log_potentials(codes, cards, scopes, potentials)
    order = (codes / np.maximum(cards - 1, 1)[:, None]).mean(axis=1)
    return Mixing(energy=energy, order=order)


def gibbs_draws(
    cardinalities: Sequence[int],
    scopes: Sequence[Sequence[int]],
    potentials: FloatArray,
    size: int,
    generator: np.random.Generator,
    *,
    burn_in: int = 200,
    thin: int = 10,
) -> Draws:
    """Return about independent records of the model with given potentials.

    Parameters
    ----------
    cardinalities, scopes, potentials
        The model.
    size
        Number of records.
    generator
        Generator that draws the records.
    burn_in, thin
        Sweeps before the first draw of a chain, and from each draw to the next.
    """
    chains = Chains(cardinalities, scopes, generator, chains=min(max(size, 4), _CHAINS))
    chains.advance(potentials, 1, max(burn_in, 1))
    lanes = chains.codes.shape[1]
    draws = max(-(-size // lanes), 4)
    step = max(_CHUNK // chains.codes.size, 1)
    parts = [chains.advance(potentials, min(step, draws - start), thin) for start in range(0, draws, step)]
    codes = np.concatenate(parts)
    mixing = mixing_of(codes, chains.cards, chains.scopes, potentials)
    return Draws(codes=codes.transpose(0, 2, 1).reshape(-1, chains.cards.size)[:size], mixing=mixing)
