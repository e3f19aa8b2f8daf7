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

`Mixing` judges whether the chains of a simulation have forgotten where they started.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from bayesprivmrf.checks import finite, generator, one_of, whole_number
from bayesprivmrf.errors import SamplingWarning, warn_caller

#: Largest split R-hat of a simulation that is trusted: the bound of Brooks and Gelman (1998).
LARGEST_RHAT = 1.2
#: Sweeps between two draws of a chain, and before the first, unless the caller says otherwise.
SWEEPS = 30
BURN_IN = 300
# words of 64 bits of xoshiro256+, and the number of values of a word
STATE_WORDS = 4
WORDS = 2**64
# chains of a simulation unless the caller says otherwise: two of each start at least
_FEWEST_CHAINS = 4
_MOST_CHAINS = 32
# chains that run side by side, by benchmarks/chains.py as in `gibbs`; and local fields in memory at a time, 256 MiB
_SIDE_BY_SIDE = 64
_FIELDS = 2**25
# sweeps after which fields are computed again, so that rounding errors of their updates stay below 1e-13
_FRESH_FIELDS = 1000
# sweeps below which split R-hat and the effective size do not exist
_FEWEST_SWEEPS = 4
# difference of means, relative to the largest value, that counts as rounding
_ROUNDING = 1e-10
# largest probability of a bond that a uniform number of 53 bits can distinguish from 1
_LARGEST_UNIT = 1 - 2.0**-53


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Mixing:
    """Diagnostic of a simulation, from two numbers that are recorded after each sweep.

    Half of the chains start disordered, with each node's outcome drawn by a fair coin. The other half start
    ordered, with all outcomes +1. If both halves agree, the chains have forgotten their starts.

    Parameters
    ----------
    energy
        Energy s'Js after each sweep, shape (sweeps, chains), without the first half of the burn-in.
    order
        Order after each sweep, of the same shape: the sum over the connected components of abs(sum of s), divided
        by n. The magnetization itself would not do. It is symmetric about 0, because each draw gets a random sign.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> mixing = Mixing(energy=rng.normal(size=(200, 4)), order=rng.normal(size=(200, 4)))
    >>> mixing.trusted
    True
    """

    energy: np.ndarray
    order: np.ndarray

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.energy.shape[1]

    @property
    def sweeps(self) -> int:
        """Number of recorded sweeps of each chain."""
        return self.energy.shape[0]

    @cached_property
    def energy_rhat(self) -> float:
        """Split R-hat of the energy."""
        return split_rhat(self.energy)

    @cached_property
    def order_rhat(self) -> float:
        """Split R-hat of the order."""
        return split_rhat(self.order)

    @cached_property
    def energy_ess(self) -> float:
        """Effective sample size for the mean energy, over all chains: ArviZ's ``ess(method="mean")``.

        The first use imports ArviZ, which takes seconds.
        """
        return _effective_size(self.energy)

    @cached_property
    def order_ess(self) -> float:
        """Effective sample size for the mean order, computed as `energy_ess`."""
        return _effective_size(self.order)

    def __repr__(self) -> str:
        return (
            f"Mixing(energy_rhat={self.energy_rhat:.3f}, order_rhat={self.order_rhat:.3f}, chains={self.chains}, "
            f"sweeps={self.sweeps})"
        )

    @property
    def trusted(self) -> bool:
        """True if both R-hats are at most 1.2."""
        return self.energy_rhat <= LARGEST_RHAT and self.order_rhat <= LARGEST_RHAT

    def warn(self, moves: str) -> None:
        """Give a SamplingWarning unless the simulation can be trusted; `moves` decides which remedy it names."""
        if not self.trusted:
            warn_caller(
                "the simulation has not mixed: chains with ordered and disordered starts still differ (R-hat "
                f"{self.energy_rhat:.2f} for the energy, {self.order_rhat:.2f} for the order, at most {LARGEST_RHAT} "
                f"wanted); {remedy(moves)}, and do not trust draws at this beta if that does not help.",
                SamplingWarning,
            )


def remedy(moves: str) -> str:
    """Return advice for chains that have not mixed with such moves, as a part of a sentence."""
    longer = "raise `burn_in` and `sweeps`"
    if moves == "heat-bath":
        return f'{longer}, or pass `moves="swendsen-wang"`'
    return longer


def split_rhat(trace: np.ndarray) -> float:
    """Return split R-hat, as ArviZ's ``rhat(method="split")`` does.

    Each chain is split into two halves of N sweeps. R-hat is sqrt(1 - 1/N + B/(N W)), with W the mean variance
    within a half and B/N the variance of the halves' means (Gelman et al., Bayesian Data Analysis, 3rd edition,
    section 11.4). A trace that is constant up to rounding gives 1. Every simulation computes R-hat, so ArviZ, whose
    import takes seconds, is not used here.

    Parameters
    ----------
    trace
        Shape (sweeps, chains).

    Returns
    -------
    float
        Split R-hat, at least sqrt(1 - 1/N). NaN for fewer than four sweeps, and infinite if the halves are constant
        but differ.
    """
    half = trace.shape[0] // 2
    if half < 2:
        return np.nan
    halves = np.concatenate([trace[:half], trace[-half:]], axis=1)
    within = float(halves.var(axis=0, ddof=1).mean())
    between = float(halves.mean(axis=0).var(ddof=1))
    rounding = (_ROUNDING * float(np.abs(halves).max())) ** 2
    if between <= rounding:
        return 1.0
    if within > 0:
        return float(np.sqrt(1 - 1 / half + between / within))
    return np.inf


def _effective_size(trace: np.ndarray) -> float:
    """Return ArviZ's effective sample size for the mean, or NaN for fewer than four sweeps."""
    import arviz as az

    if len(trace) < _FEWEST_SWEEPS:
        return math.nan
    return float(az.ess(trace, chain_axis=1, draw_axis=0, method="mean"))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSchedule:
    """Chains of a simulation: how many (None for one a draw, within limits), how long, and by which moves."""

    chains: int | None = None
    sweeps: int = SWEEPS
    burn_in: int = BURN_IN
    moves: Moves = "heat-bath"


def simulate(
    coupling: sparse.csr_array,
    beta: float,
    size: int,
    rng: int | np.random.Generator | None,
    schedule: ChainSchedule,
) -> Simulation:
    """Draw configurations of the Ising model with a given coupling matrix.

    `IsingNetwork.simulate` describes the arguments. Without `schedule.chains`, there is one chain per draw, but at
    least 4 (two of each start) and at most 32.

    Raises
    ------
    ArgumentError
        `beta` is not a finite number, a number of draws, chains or sweeps is out of range, or `moves` is not known.
    """
    size = whole_number("size", size, least=1)
    sweeps = whole_number("sweeps", schedule.sweeps, least=1)
    burn_in = whole_number("burn_in", schedule.burn_in)
    beta = finite("beta", beta)
    if schedule.chains is None:
        chains = min(max(size, _FEWEST_CHAINS), _MOST_CHAINS)
    else:
        chains = whole_number("chains", schedule.chains, least=1)
    one_of("moves", schedule.moves, get_args(Moves.__value__))
    random = generator(rng)
    heat_bath = HeatBath(coupling, beta, schedule.moves)
    draws = -(-size // chains)
    n = coupling.indptr.size - 1
    state = random.integers(0, WORDS, size=(STATE_WORDS, chains), dtype=np.uint64)
    start = random.integers(0, 2, size=(chains, n), dtype=np.int8)
    start += start - np.int8(1)
    start[1::2] = 1
    spins = np.empty((draws, chains, n), dtype=np.int8)
    trace = np.empty((burn_in + draws * sweeps, 2, chains))
    width = max(min(_SIDE_BY_SIDE, _FIELDS // n), 1)
    for first in range(0, chains, width):
        block = slice(first, first + width)
        own = np.ascontiguousarray(start[block].T)
        bits = np.ascontiguousarray(state[:, block])
        part = np.empty((len(trace), 2, own.shape[1]))
        heat_bath.run(own, bits, part[:burn_in])
        for k in range(draws):
            heat_bath.run(own, bits, part[burn_in + k * sweeps : burn_in + (k + 1) * sweeps])
            spins[k, block] = own.T
        trace[..., block] = part
    result = spins.reshape(-1, n)[:size]
    # a random sign for each connected component of each draw
    signs = random.integers(0, 2, size=(size, heat_bath.components.max() + 1), dtype=np.int8)
    signs += signs - np.int8(1)
    for draw, sign in zip(result, signs, strict=True):
        draw *= sign[heat_bath.components]
    kept = trace[burn_in // 2 :]
    return Simulation(spins=result, mixing=Mixing(energy=kept[:, 0], order=kept[:, 1] / n))


def unit_coupling(J: sparse.csr_array) -> tuple[float, sparse.csr_array] | None:
    """Return J as a number times a matrix of integers -1, 0 and 1, or None if couplings differ in size."""
    size = np.abs(J.data)
    if size.min() != size.max():
        return None
    signs = np.sign(J.data).astype(np.int32)
    return float(size[0]), sparse.csr_array((signs, J.indices, J.indptr), shape=J.shape)


def bonds(coupling: sparse.csr_array, beta: float) -> tuple[np.ndarray, ...]:
    """Return the arguments of `flip_clusters` for a network: each edge once, in the order of the rows of J.

    Returns
    -------
    low, high
        Nodes of each edge, int32 of shape (m,).
    signs
        1 for an edge that equal spins satisfy, -1 for one that unequal spins satisfy, int8 of shape (m,).
    thresholds
        Probability of a bond if the edge is satisfied, in units of 2^-64, uint64 of shape (m,); at most 1 - 2^-53.
    """
    upper = sparse.csr_array(sparse.triu(coupling, 1, format="csr"))
    pull = 2 * beta * upper.data
    bonded = np.minimum(-np.expm1(-np.abs(pull)), _LARGEST_UNIT)
    low = np.repeat(np.arange(upper.indptr.size - 1, dtype=np.int32), np.diff(upper.indptr))
    signs = np.where(pull < 0, -1, 1).astype(np.int8)
    return low, upper.indices.astype(np.int32), signs, (bonded * WORDS).astype(np.uint64)


class HeatBath:
    """Heat-bath sweeps over one network at one beta, for chains that run side by side.

    Parameters
    ----------
    coupling
        Coupling matrix J.
    beta
        Inverse temperature.
    moves
        ``"swendsen-wang"`` for a cluster move before each sweep.
    """

    def __init__(self, coupling: sparse.csr_array, beta: float, moves: Moves = "heat-bath") -> None:
        data = coupling.data
        self.table = np.empty(0)
        unit = unit_coupling(coupling)
        if unit is not None:
            # fields are sums k of signs: expit(2 beta c k) for each, with c the size of all couplings
            size, signs = unit
            largest = int(np.diff(signs.indptr).max())
            # a change of a spin by 2 must fit as well
            fits = largest < np.iinfo(np.int16).max - 1
            data = signs.data.astype(np.int16 if fits else np.int32)
            with np.errstate(over="ignore"):
                self.table = 1 / (1 + np.exp(-2 * beta * size * np.arange(-largest, largest + 1)))
        self.matrix = (coupling.indptr, coupling.indices, data)
        self.doubled = 2 * beta
        self.components = csgraph.connected_components(coupling, directed=False)[1]
        if moves == "heat-bath":
            self.bonds = None
        else:
            self.bonds = bonds(coupling, beta)

    def run(self, spins: np.ndarray, state: np.ndarray, trace: np.ndarray) -> None:
        """Sweep len(trace) times and write energy and order to `trace`, shape (sweeps, 2, chains).

        `spins` has shape (n, chains).
        """
        from bayesprivmrf.chains.kernels import flip_clusters, local_fields, sweep_network

        fields = np.empty(spins.shape, self.matrix[2].dtype)
        step = _FRESH_FIELDS if self.bonds is None else 1
        for first in range(0, len(trace), step):
            if self.bonds is not None:
                flip_clusters(*self.bonds, spins, state)
            local_fields(self.matrix, spins, fields)
            part = trace[first : first + step]
            sweep_network(
                self.matrix, self.doubled, self.table, self.components, spins, fields, state, part
            )
