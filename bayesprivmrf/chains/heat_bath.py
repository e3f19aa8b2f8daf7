"""Draws from an Ising network by heat bath (Gibbs sampling), many chains at once, with cluster moves if asked.

A sweep visits the nodes in their order (a sequential scan: it reads memory in order, needs no random index, and
leaves the law unchanged as each visit does) and draws each outcome given the others. As H(s) = s'Js stays the
same when all spins of a connected component change sign, each draw's components get a fair sign of their own:
that mixes at once the one mode that a heat bath cannot leave at low temperature. Parts of a component that hold
their signs against each other need more: a cluster move (`swendsen_wang`) before each sweep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from bayesprivmrf.chains.mixing import Mixing
from bayesprivmrf.errors import ArgumentError

if TYPE_CHECKING:
    from bayesprivmrf.chains.swendsen_wang import ClusterMoves
    from bayesprivmrf.network.ising import IsingNetwork

__all__ = ["Moves", "Simulation", "simulate"]

type Moves = Literal["heat-bath", "swendsen-wang"]

_WIDEST = 64  # chains side by side: more fill the cache without sharing more of the work
_MEMORY = 1 << 28  # bytes of local fields held at once
_REFRESH = 1000  # sweeps after which fields in double precision are computed anew, 1e-13 or less off by then
_USUAL_CHAINS = (4, 32)


@dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """Draws of a simulation and whether its chains mixed.

    Parameters
    ----------
    spins
        int8 of -1 and +1, shape (size, n): the first draw of every chain, then the second of every chain, ...
    mixing
        The diagnostic.
    """

    spins: np.ndarray
    mixing: Mixing


def simulate(
    network: IsingNetwork,
    beta: float,
    size: int,
    rng: int | np.random.Generator | None,
    *,
    chains: int | None,
    sweeps: int,
    burn_in: int,
    moves: Moves,
) -> Simulation:
    """Return draws and diagnostic; `IsingNetwork.simulate` describes the arguments.

    Raises
    ------
    ArgumentError
        `beta` is not a finite number, a count is not a whole number in its range, or `moves` is not known.
    """
    if not math.isfinite(beta):
        raise ArgumentError(f"`beta` must be a finite number, got {beta!r}.")
    size = _count("size", size, 1)
    sweeps, burn_in = _count("sweeps", sweeps, 1), _count("burn_in", burn_in, 0)
    low, high = _USUAL_CHAINS
    chains = min(max(size, low), high) if chains is None else _count("chains", chains, 1)
    clusters = _clusters(network, float(beta), moves)
    generator = np.random.default_rng(rng)
    draws = -(-size // chains)
    n = len(network)
    state = generator.integers(0, 2**64, size=(4, chains), dtype=np.uint64)
    start = generator.integers(0, 2, size=(chains, n), dtype=np.int8)
    start += start - np.int8(1)
    start[1::2] = 1
    spins = np.empty((draws, chains, n), dtype=np.int8)
    traces = np.empty((burn_in - burn_in // 2 + draws * sweeps, 2, chains))
    width = max(min(_WIDEST, _MEMORY // (8 * n)), 1)
    for first in range(0, chains, width):
        block = slice(first, first + width)
        run = _Block(network, float(beta), start[block], np.ascontiguousarray(state[:, block]), clusters)
        traces[..., block] = run.sample(burn_in, sweeps, spins[:, block])
    result = spins.reshape(-1, n)[:size]
    _flip_components(result, network.components, generator)
    return Simulation(spins=result, mixing=Mixing.of(traces[:, 0], traces[:, 1] / n))


def _count(name: str, value: Any, least: int) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ArgumentError(f"`{name}` must be a whole number of at least {least}, got {value!r}.")
    return int(value)


def _clusters(network: IsingNetwork, beta: float, moves: str) -> ClusterMoves | None:
    if moves not in get_args(Moves.__value__):
        known = ", ".join(f'"{name}"' for name in get_args(Moves.__value__))
        raise ArgumentError(f"`moves` must be one of {known}, got {moves!r}.")
    if moves == "heat-bath":
        return None
    from bayesprivmrf.chains.swendsen_wang import ClusterMoves

    return ClusterMoves.of(network, beta)


def _flip_components(spins: np.ndarray, components: np.ndarray, rng: np.random.Generator) -> None:
    signs = rng.integers(0, 2, size=(len(spins), components.max() + 1), dtype=np.int8)
    signs += signs - np.int8(1)
    for draw, sign in zip(spins, signs, strict=True):
        draw *= sign[components]


class _Block:
    """Chains that run side by side."""

    def __init__(
        self,
        network: IsingNetwork,
        beta: float,
        start: np.ndarray,
        state: np.ndarray,
        clusters: ClusterMoves | None = None,
    ) -> None:
        self.network, self.beta, self.state, self.clusters = network, beta, state, clusters
        self.spins = np.ascontiguousarray(start.T)
        self.data, self.kernel, self.response = self._counts() or self._fields()
        self.fields = np.empty(self.spins.shape, self.data.dtype)

    def _counts(self) -> tuple[np.ndarray, Callable[..., None], np.ndarray] | None:
        """Couplings of one size c: integer fields k, and a table of expit(2 beta c k)."""
        from bayesprivmrf.chains.heat_bath_kernels import sweep_counts

        if self.network.unit_coupling is None:
            return None
        size, signs = self.network.unit_coupling
        largest = int(np.diff(signs.indptr).max())
        kind = np.int16 if largest < 2**15 - 2 else np.int32
        with np.errstate(over="ignore"):
            table = 1 / (1 + np.exp(-2 * self.beta * size * np.arange(-largest, largest + 1)))
        return signs.data.astype(kind), sweep_counts, table

    def _fields(self) -> tuple[np.ndarray, Callable[..., None], float]:
        from bayesprivmrf.chains.heat_bath_kernels import sweep_fields

        return self.network.coupling.data, sweep_fields, 2 * self.beta

    def run(self, trace: np.ndarray) -> None:
        """Sweep once for each entry of `trace`, shape (sweeps, 2, chains), and fill it."""
        from bayesprivmrf.chains.heat_bath_kernels import local_fields

        matrix = self.network.coupling.indptr, self.network.coupling.indices, self.data
        for part in _parts(trace, _REFRESH if self.clusters is None else 1):
            if self.clusters is not None:
                self.clusters.move(self.spins, self.state)
            local_fields(*matrix, self.spins, self.fields)
            self.kernel(
                *matrix, self.response, self.network.components, self.spins, self.fields, self.state, part
            )

    def sample(self, burn_in: int, sweeps: int, out: np.ndarray) -> np.ndarray:
        """Fill `out`, shape (draws, chains, n); return the traces after half of the burn-in."""
        trace = np.empty((burn_in + len(out) * sweeps, 2, self.spins.shape[1]))
        self.run(trace[:burn_in])
        for k in range(len(out)):
            self.run(trace[burn_in + k * sweeps : burn_in + (k + 1) * sweeps])
            out[k] = self.spins.T
        return trace[burn_in // 2 :]


def _parts(trace: np.ndarray, length: int) -> Iterator[np.ndarray]:
    for first in range(0, len(trace), length):
        yield trace[first : first + length]
