r"""Draws from an Ising network by heat bath (Gibbs sampling) with many chains at once, and optional cluster moves.

**Heat bath.** A sweep visits the nodes in order and draws each outcome given the others. Every visit leaves the
distribution unchanged, so the whole sweep does. A sequential scan reads memory in order and needs no random index.

The energy H(s) = s'Js does not change if all spins of a connected component change sign. A heat bath rarely makes
such a change at low temperature, so each component of each draw gets a random sign at the end. Dense parts of one
component can also keep opposite signs for many sweeps. For these there are cluster moves, one before each sweep.

**Cluster moves** (Swendsen and Wang 1987) change the signs of whole groups of nodes at once. Each edge of
:math:`P(s) \propto \exp(\tfrac\beta2 s^\top J s)` occurs twice in the sum, so P(s) is proportional to the product
over edges of :math:`\exp(\beta J_{ij} s_i s_j)`. Let :math:`K = |\beta J_{ij}|`, and call an edge satisfied if
:math:`\beta J_{ij} s_i s_j > 0`. The factor of an edge is

.. math:: e^K \bigl[e^{-2K} + (1 - e^{-2K})\, 1\{\text{satisfied}\}\bigr],

the sum over b = 0 and b = 1 of a joint weight of spins and bonds b (Edwards and Sokal 1988) whose marginal is P.

- Given the spins, the bonds are independent. A satisfied edge is bonded with probability
  :math:`1 - e^{-2K} = 1 - e^{-2|\beta J_{ij}|}`, an edge that is not satisfied never.
- Given the bonds, all spins that satisfy every bonded edge are equally likely. Bonds fix the relative signs within a
  cluster (a component of the bonded edges) and do not constrain different clusters. Each cluster changes sign with
  probability 1/2.

Drawing first the bonds and then the signs leaves P unchanged, whatever the signs of beta and J. If couplings are
frustrated, clusters have little to do with the likely configurations: the move is still exact, but helps little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from bayesprivmrf.chains.mixing import Mixing
from bayesprivmrf.checks import finite, generator, one_of, whole_number

type Moves = Literal["heat-bath", "swendsen-wang"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """Draws of a simulation, with a diagnostic of its chains' mixing.

    Parameters
    ----------
    spins
        Outcomes -1 and +1 as int8, shape (size, n): the first draw of every chain, then the second of every chain,
        and so on.
    mixing
        Diagnostic of the chains.
    """

    spins: np.ndarray
    mixing: Mixing


def simulate(
    coupling: sparse.csr_array,
    beta: float,
    size: int,
    rng: int | np.random.Generator | None,
    *,
    chains: int | None,
    sweeps: int,
    burn_in: int,
    moves: Moves,
) -> Simulation:
    """Draw configurations of the Ising model with a given coupling matrix.

    `IsingNetwork.simulate` describes the arguments. Without `chains`, there is one chain per draw, but at least 4
    (two of each start) and at most 32.

    Raises
    ------
    ArgumentError
        `beta` is not a finite number, a number of draws, chains or sweeps is out of range, or `moves` is not known.
    """
    size, sweeps = whole_number("size", size, least=1), whole_number("sweeps", sweeps, least=1)
    burn_in, beta = whole_number("burn_in", burn_in), finite("beta", beta)
    chains = min(max(size, 4), 32) if chains is None else whole_number("chains", chains, least=1)
    one_of("moves", moves, get_args(Moves.__value__))
    random = generator(rng)
    heat_bath = HeatBath.of(coupling, beta, moves)
    draws, n = -(-size // chains), coupling.indptr.size - 1
    state = random.integers(0, 2**64, size=(4, chains), dtype=np.uint64)
    start = random.integers(0, 2, size=(chains, n), dtype=np.int8)
    start += start - np.int8(1)
    start[1::2] = 1
    spins = np.empty((draws, chains, n), dtype=np.int8)
    traces = np.empty((burn_in - burn_in // 2 + draws * sweeps, 2, chains))
    # at most 64 chains side by side, by benchmarks/chains.py as in `gibbs`, and a quarter of a GiB of local fields
    width = max(min(64, 2**28 // (8 * n)), 1)
    for first in range(0, chains, width):
        block = slice(first, first + width)
        own = np.ascontiguousarray(start[block].T), np.ascontiguousarray(state[:, block])
        traces[..., block] = heat_bath.sample(*own, burn_in, sweeps, spins[:, block])
    result = spins.reshape(-1, n)[:size]
    _flip_components(result, heat_bath.components, random)
    return Simulation(spins=result, mixing=Mixing(energy=traces[:, 0], order=traces[:, 1] / n))


def unit_coupling(J: sparse.csr_array) -> tuple[float, sparse.csr_array] | None:
    """Return J as a number times a matrix of integers -1, 0 and 1, or None if couplings differ in size."""
    size = np.abs(J.data)
    if size.min() != size.max():
        return None
    signs = np.sign(J.data).astype(np.int32)
    return float(size[0]), sparse.csr_array((signs, J.indices, J.indptr), shape=J.shape)


def _flip_components(spins: np.ndarray, components: np.ndarray, rng: np.random.Generator) -> None:
    """Multiply each connected component of each draw by a random sign, in place."""
    signs = rng.integers(0, 2, size=(len(spins), components.max() + 1), dtype=np.int8)
    signs += signs - np.int8(1)
    for draw, sign in zip(spins, signs, strict=True):
        draw *= sign[components]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterMoves:
    """Cluster moves on one network: its edges, each listed once, and their probabilities of a bond.

    Parameters
    ----------
    low, high
        Nodes of each edge, int32 of shape (m,).
    signs
        1 for an edge that equal spins satisfy, -1 for one that unequal spins satisfy, int8 of shape (m,).
    thresholds
        Probability of a bond if the edge is satisfied, in units of 2^-64, uint64 of shape (m,); at most 1 - 2^-53.
    """

    low: np.ndarray
    high: np.ndarray
    signs: np.ndarray
    thresholds: np.ndarray

    @classmethod
    def of(cls, coupling: sparse.csr_array, beta: float) -> Self:
        """Return the cluster moves for a coupling matrix J, with edges in the order of the rows of J."""
        upper = sparse.csr_array(sparse.triu(coupling, 1, format="csr"))
        pull = 2 * beta * upper.data
        bonded = np.minimum(-np.expm1(-np.abs(pull)), 1 - 2.0**-53)
        return cls(
            low=np.repeat(np.arange(upper.indptr.size - 1, dtype=np.int32), np.diff(upper.indptr)),
            high=upper.indices.astype(np.int32),
            signs=np.where(pull < 0, -1, 1).astype(np.int8),
            thresholds=(bonded * 2.0**64).astype(np.uint64),
        )

    def move(self, spins: np.ndarray, state: np.ndarray) -> None:
        """Make one move in each chain, in place; `spins` is int8 of shape (n, chains), `state` has (4, chains)."""
        from bayesprivmrf.chains.kernels import flip_clusters

        flip_clusters(self.low, self.high, self.signs, self.thresholds, spins, state)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeatBath:
    """Heat-bath sweeps over one network at one beta, for chains that run side by side.

    Parameters
    ----------
    matrix
        ``indptr``, ``indices`` and ``data`` of the coupling matrix, or of its signs if all couplings have one size c.
    doubled
        2 beta.
    table
        expit(2 beta c k) for each whole number k that a sum of signs can be; empty if couplings differ in size.
    components
        Number of each node's connected component, from 0, shape (n,).
    clusters
        Cluster move before each sweep, or None.
    """

    matrix: tuple[np.ndarray, np.ndarray, np.ndarray]
    doubled: float
    table: np.ndarray
    components: np.ndarray
    clusters: ClusterMoves | None

    @classmethod
    def of(cls, coupling: sparse.csr_array, beta: float, moves: Moves = "heat-bath") -> Self:
        """Return the sweeps for a coupling matrix and an inverse temperature, with or without cluster moves."""
        data, table, unit = coupling.data, np.empty(0), unit_coupling(coupling)
        if unit is not None:
            size, signs = unit
            largest = int(np.diff(signs.indptr).max())
            data = signs.data.astype(np.int16 if largest < 2**15 - 2 else np.int32)
            with np.errstate(over="ignore"):
                table = 1 / (1 + np.exp(-2 * beta * size * np.arange(-largest, largest + 1)))
        return cls(
            matrix=(coupling.indptr, coupling.indices, data),
            doubled=2 * beta,
            table=table,
            components=csgraph.connected_components(coupling, directed=False)[1],
            clusters=None if moves == "heat-bath" else ClusterMoves.of(coupling, beta),
        )

    def run(self, spins: np.ndarray, state: np.ndarray, trace: np.ndarray) -> None:
        """Sweep len(trace) times and write energy and order to `trace`, shape (sweeps, 2, chains).

        `spins` has shape (n, chains).
        """
        from bayesprivmrf.chains.kernels import local_fields, sweep_network

        fields = np.empty(spins.shape, self.matrix[2].dtype)
        # computing the fields again every 1,000 sweeps keeps the rounding errors of their updates below 1e-13
        step = 1000 if self.clusters is None else 1
        for first in range(0, len(trace), step):
            if self.clusters is not None:
                self.clusters.move(spins, state)
            local_fields(self.matrix, spins, fields)
            part = trace[first : first + step]
            sweep_network(self.matrix, self.doubled, self.table, self.components, spins, fields, state, part)

    def sample(
        self, spins: np.ndarray, state: np.ndarray, burn_in: int, sweeps: int, out: np.ndarray
    ) -> np.ndarray:
        """Write draws to `out`, shape (draws, chains, n); return the traces without the first half of the burn-in."""
        trace = np.empty((burn_in + len(out) * sweeps, 2, spins.shape[1]))
        self.run(spins, state, trace[:burn_in])
        for k in range(len(out)):
            self.run(spins, state, trace[burn_in + k * sweeps : burn_in + (k + 1) * sweeps])
            out[k] = spins.T
        return trace[burn_in // 2 :]
