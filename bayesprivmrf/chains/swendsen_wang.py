r"""Cluster moves of Swendsen and Wang (1987): whole groups of nodes change sign at once.

Each edge of :math:`P(s) \propto \exp(\tfrac\beta2 s^\top J s)` comes twice in the sum, so P(s) is proportional to
the product over edges of :math:`\exp(\beta J_{ij} s_i s_j)`. With :math:`K = |\beta J_{ij}|`, and an edge satisfied
where :math:`\beta J_{ij} s_i s_j > 0`, the factor of an edge is

.. math:: e^K \bigl[e^{-2K} + (1 - e^{-2K})\, 1\{\text{satisfied}\}\bigr],

the sum over b = 0 and b = 1 of a joint weight of spins and bonds b (Edwards and Sokal 1988), whose marginal is P.

- Given the spins, the bonds are independent: a satisfied edge is bonded with probability
  :math:`1 - e^{-2K} = 1 - e^{-2|\beta J_{ij}|}`, another one never.
- Given the bonds, all spins that satisfy every bonded edge are equally likely. Bonds fix the relative signs within
  a cluster (a component of the bonded edges) and say nothing between clusters: each changes sign by a fair coin.

Drawing first the one, then the other leaves P unchanged, whatever the signs of beta and of J. Where couplings are
frustrated, clusters say little about which configurations are likely: the move is as exact there, but helps little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy import sparse


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterMoves:
    """The edges of a network, each once, and how likely they are to be bonded.

    Parameters
    ----------
    low, high
        Nodes of each edge, int32 of shape (m,).
    signs
        1 where equal spins satisfy the edge, -1 where unequal ones do, int8 of shape (m,).
    thresholds
        Probability of a bond where satisfied, in units of 2^-64, uint64 of shape (m,); at most 1 - 2^-53.
    """

    low: np.ndarray
    high: np.ndarray
    signs: np.ndarray
    thresholds: np.ndarray

    @classmethod
    def of(cls, coupling: sparse.csr_array, beta: float) -> Self:
        """Return the edges of the upper triangle of J, in the order of its rows."""
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
        """Make one move in each chain, in place; int8 `spins` of shape (n, chains), `state` of shape (4, chains)."""
        from bayesprivmrf.chains.kernels import flip_clusters

        flip_clusters(self.low, self.high, self.signs, self.thresholds, spins, state)
