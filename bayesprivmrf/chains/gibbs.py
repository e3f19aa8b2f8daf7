"""Gibbs sampling from a Markov random field with given potentials, for models too large for exact draws.

A sweep visits the variables in order and draws each given the others. Half of the chains start at random states, the
other half with every variable in its last state. If both halves agree on the log potential and on the mean state, the
chains have forgotten their starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.chains.heat_bath import STATE_WORDS, WORDS, Mixing
from bayesprivmrf.model.tables import FloatArray, IntArray

# chains that run side by side, by benchmarks/chains.py: with more, the processor's cache fills up and speed falls
_CHAINS = 64
# least number of chains: two of each start, so that R-hat can compare them
_FEWEST = 4
# states up to which a code fits in a byte
_BYTE_STATES = 256
# codes in memory at a time, 4 MiB; the draws do not depend on it
_CODES = 2**22
# sweeps before the first draw and between draws of a chain: enough for weak couplings; `mixing` says if they were
_BURN_IN = 200
_THIN = 10
# cells of the table of two two-state variables, and the positions of their states in C order
_PAIR_CELLS = 4
_00, _01, _10, _11 = range(_PAIR_CELLS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GibbsDraws:
    """Records drawn by Gibbs sampling, with a diagnostic of the chains' mixing.

    Parameters
    ----------
    codes
        Codes of the states, shape (size, p): the first draw of every chain, then the second of every chain, and so
        on.
    mixing
        Diagnostic from the log potential (as the energy) and the mean state (as the order).
    """

    codes: np.ndarray
    mixing: Mixing


class Chains:
    """Markov chains that run side by side, and that keep their states when the potentials change.

    Parameters
    ----------
    cardinalities
        Number of states of each variable.
    scopes
        Variables of each factor, in the axis order of its table.
    generator
        Generator that draws the starting states and seeds the chains.
    chains
        Number of chains.

    Examples
    --------
    >>> chains = Chains([2, 2], [(0, 1)], np.random.default_rng(1), chains=4)
    >>> chains.advance(np.log([0.4, 0.1, 0.1, 0.4]), draws=3).shape
    (3, 2, 4)
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
        self._state = generator.integers(0, WORDS, size=(STATE_WORDS, chains), dtype=np.uint64)
        if self.cards.max(initial=1) <= _BYTE_STATES:
            kind = np.uint8
        else:
            kind = np.int64
        self.codes = (generator.random((self.cards.size, chains)) * self.cards[:, None]).astype(
            kind
        )
        self.codes[:, 1::2] = (self.cards - 1)[:, None]
        self._is_ising = bool((self.cards == 2).all()) and all(
            len(scope) <= 2 for scope in self.scopes
        )
        self._offsets = np.cumsum(
            [0, *(math.prod(self.cards[v] for v in scope) for scope in self.scopes)]
        )
        if self._is_ising:
            self._layout = ()
        else:
            self._layout = self._lay_out()

    def advance(self, potentials: FloatArray, draws: int, thin: int = 1) -> np.ndarray:
        """Run the chains and return their states after every `thin` sweeps, shape (draws, p, chains).

        Parameters
        ----------
        potentials
            Flat, in nats: factor after factor, each in C order.
        draws
            Number of draws, at least 0.
        thin
            Number of sweeps before each draw, at least 1.
        """
        out = np.empty((draws, *self.codes.shape), dtype=self.codes.dtype)
        self._sweep(potentials, draws, thin, out)
        return out

    def marginals(self, potentials: FloatArray, sweeps: int) -> FloatArray:
        """Run the chains, and return the relative frequency of each factor's cells, flat like the potentials."""
        nothing = np.empty((0, *self.codes.shape), dtype=self.codes.dtype)
        return self._sweep(potentials, sweeps, 1, nothing) / (sweeps * self.codes.shape[1])

    def _sweep(self, potentials: FloatArray, draws: int, thin: int, out: np.ndarray) -> FloatArray:
        """Run the chains, write their states to `out` unless it is empty, and return the visits of each cell."""
        if self._is_ising:
            return self._sweep_spins(potentials, draws, thin, out)
        from bayesprivmrf.chains.kernels import sweep_states

        counts = np.zeros(self._offsets[-1])
        sweep_states(
            self.cards, potentials, self._layout, self.codes, self._state, draws, thin, out, counts
        )
        empty = [not scope for scope in self.scopes]
        counts[self._offsets[:-1][empty]] = draws * self.codes.shape[1]
        return counts

    def _sweep_spins(
        self, potentials: FloatArray, draws: int, thin: int, out: np.ndarray
    ) -> FloatArray:
        """Run the chains of an Ising model: `_sweep` for two-state variables and factors of at most two of them."""
        from bayesprivmrf.chains.kernels import sweep_spins

        A, h = ising_of(self.cards.size, self.scopes, potentials)
        spins = (2 * self.codes.astype(np.int8) - 1).astype(np.int8)
        local = np.ascontiguousarray(A @ spins + h[:, None])
        pairs = np.array(
            [scope for scope in self.scopes if len(scope) == 2], dtype=np.int64
        ).reshape(-1, 2)
        sums = np.zeros(len(h) + len(pairs))
        sweep_spins(
            (A.indptr, A.indices, A.data), spins, local, self._state, draws, thin, out, pairs, sums
        )
        self.codes = (spins > 0).astype(self.codes.dtype)
        # The visits of each cell, from sums of spins and of products of spins over the recorded states
        recorded = draws * spins.shape[1]
        # formula: visits of (a, b) = (recorded + s m_i + t m_j + s t m_ij) / 4, with s = 2a - 1 and t = 2b - 1
        m = sums[: self.cards.size]
        p = self.cards.size
        counts = np.empty(self._offsets[-1])
        lengths = np.array([len(scope) for scope in self.scopes], dtype=np.int64)
        starts = self._offsets[:-1]
        i, j = pairs.T
        for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)):
            s = 2 * a - 1
            t = 2 * b - 1
            cell = (recorded + s * m[i] + t * m[j] + s * t * sums[p:]) / _PAIR_CELLS
            counts[starts[lengths == 2] + 2 * a + b] = cell
        single = np.array([scope[0] for scope in self.scopes if len(scope) == 1], dtype=np.int64)
        counts[starts[lengths == 1]] = (recorded - m[single]) / 2
        counts[starts[lengths == 1] + 1] = (recorded + m[single]) / 2
        counts[starts[lengths == 0]] = recorded
        return counts

    def _lay_out(self) -> tuple[Any, ...]:
        """Return the layout of `sweep_states`, which describes it."""
        of_variable: list[list[tuple[int, int, list[tuple[int, int]]]]] = [[] for _ in self.cards]
        for start, scope in zip(self._offsets.tolist(), self.scopes, strict=False):
            strides = [
                math.prod(self.cards[v] for v in scope[axis + 1 :]) for axis in range(len(scope))
            ]
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
    """Return the couplings (sparse and symmetric) and fields of factors of at most two two-state variables."""
    # formulas: a factor of one variable adds (θ1 - θ0) / 2 to its field; a pair adds (θ10 + θ11 - θ00 - θ01) / 4 to
    # the field of its first variable, likewise for the second, and has the coupling (θ00 + θ11 - θ01 - θ10) / 4
    from scipy import sparse

    sizes = np.array([1 << len(scope) for scope in scopes], dtype=np.int64)
    starts = np.cumsum([0, *sizes])[:-1]
    fields = np.zeros(variables)
    single = np.array([scope[0] for scope in scopes if len(scope) == 1], dtype=np.int64)
    at = starts[sizes == 2]
    np.add.at(fields, single, (potentials[at + 1] - potentials[at]) / 2)
    pairs = np.array([scope for scope in scopes if len(scope) == 2], dtype=np.int64).reshape(-1, 2)
    t = potentials[starts[sizes == _PAIR_CELLS] + np.arange(_PAIR_CELLS)[:, None]]
    i, j = pairs.T
    np.add.at(fields, i, (t[_10] + t[_11] - t[_00] - t[_01]) / _PAIR_CELLS)
    np.add.at(fields, j, (t[_01] + t[_11] - t[_00] - t[_10]) / _PAIR_CELLS)
    coupling = (t[_00] + t[_11] - t[_01] - t[_10]) / _PAIR_CELLS
    upper = sparse.coo_array((coupling, (i, j)), shape=(variables, variables))
    return sparse.csr_array(upper + upper.T), fields


def mixing_of(
    codes: np.ndarray, cards: IntArray, scopes: Sequence[tuple[int, ...]], potentials: FloatArray
) -> Mixing:
    """Return the mixing diagnostic of draws of Gibbs chains.

    Parameters
    ----------
    codes
        Codes of the states, shape (draws, p, chains), as `Chains.advance` returns them.
    cards, scopes, potentials
        The model: numbers of states, scopes of the factors, and flat potentials in nats.
    """
    # The sum of the potentials at given states, shape (draws, chains), for codes of (draws, p, chains)
    energy = np.zeros((codes.shape[0], codes.shape[2]))
    start = 0
    for scope in scopes:
        cell = np.zeros(energy.shape, dtype=np.int64)
        for v in scope:
            cell *= cards[v]
            cell += codes[:, v]
        energy += potentials[start + cell]
        start += math.prod(cards[v] for v in scope)
    order = (codes / np.maximum(cards - 1, 1)[:, None]).mean(axis=1)
    return Mixing(energy=energy, order=order)


def gibbs_draws(
    cardinalities: Sequence[int],
    scopes: Sequence[Sequence[int]],
    potentials: FloatArray,
    size: int,
    generator: np.random.Generator,
) -> GibbsDraws:
    """Draw nearly independent records from a Markov random field by Gibbs sampling.

    The records come from at most 64 chains. Look at ``mixing.trusted`` before you use them: if it is False, the
    chains have not forgotten where they started.

    Parameters
    ----------
    cardinalities
        Number of states of each variable.
    scopes
        Variables of each factor, in the axis order of its table.
    potentials
        Flat, in nats: factor after factor, each in C order.
    size
        Number of records.
    generator
        Generator that draws the records.

    Examples
    --------
    >>> draws = gibbs_draws([2, 2], [(0, 1)], np.log([0.4, 0.1, 0.1, 0.4]), 200, np.random.default_rng(1))
    >>> draws.codes.shape, draws.mixing.trusted
    ((200, 2), True)
    """
    chains = Chains(cardinalities, scopes, generator, chains=min(max(size, _FEWEST), _CHAINS))
    chains.advance(potentials, 1, _BURN_IN)
    draws = max(-(-size // chains.codes.shape[1]), _FEWEST)
    step = max(_CODES // chains.codes.size, 1)
    parts = [
        chains.advance(potentials, min(step, draws - start), _THIN)
        for start in range(0, draws, step)
    ]
    codes = np.concatenate(parts)
    mixing = mixing_of(codes, chains.cards, chains.scopes, potentials)
    return GibbsDraws(
        codes=codes.transpose(0, 2, 1).reshape(-1, chains.cards.size)[:size], mixing=mixing
    )
