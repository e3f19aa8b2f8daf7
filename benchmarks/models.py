"""The thirteen models on which the marginal engines are compared."""

from __future__ import annotations

import numpy as np
from papers.graphs import chain, erdos_renyi

Model = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]


def grid(side: int, states: int) -> Model:
    """A square lattice."""
    across = [(side * i + j, side * i + j + 1) for i in range(side) for j in range(side - 1)]
    down = [(side * i + j, side * i + j + side) for i in range(side - 1) for j in range(side)]
    return (states,) * side**2, tuple(across + down)


def families(nodes: int, arcs: int, seed: int) -> Model:
    """One factor a node with its parents, of the size and sparsity of the ALARM network."""
    rng = np.random.default_rng(seed)
    parents: list[set[int]] = [set() for _ in range(nodes)]
    while sum(map(len, parents)) < arcs:
        child = int(rng.integers(1, nodes))
        parent = int(rng.integers(max(0, child - 8), child))
        if len(parents[child]) < 4:
            parents[child].add(parent)
    states = tuple(int(k) for k in rng.choice([2, 3, 4], size=nodes, p=[0.4, 0.45, 0.15]))
    return states, tuple((*sorted(p), i) for i, p in enumerate(parents))


def models(seed: int) -> dict[str, Model]:
    """Name to cardinalities and scopes; `seed` draws the random graphs."""
    return {
        "chain T10 K10": chain(10, 10),
        "third-order chain T10 K5": chain(10, 5, 3),
        "third-order chain T10 K10": chain(10, 10, 3),
        "third-order chain T10 K20": chain(10, 20, 3),
        "Erdős-Rényi T10 K20, 1": erdos_renyi(10, 20, 0.3, 3 * seed),
        "Erdős-Rényi T10 K20, 2": erdos_renyi(10, 20, 0.3, 3 * seed + 1),
        "Erdős-Rényi T10 K20, 3": erdos_renyi(10, 20, 0.3, 3 * seed + 2),
        "grid 10x10 K2": grid(10, 2),
        "chain T40 K4": chain(40, 4),
        "star, 30 leaves K5": ((5,) * 31, tuple((0, i) for i in range(1, 31))),
        "families, 37 variables": families(37, 46, seed),
        "50 isolated K5": ((5,) * 50, tuple((i,) for i in range(50))),
        "chain T1000 K50": chain(1000, 50),
    }
