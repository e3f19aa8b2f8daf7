"""Simulated models of Bernstein et al. 2017: chains and connected random graphs with Dirichlet potentials."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import Any, Literal

import networkx as nx
import numpy as np

from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.model import Domain, ModelSpecification

type Model = tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]
type GraphKind = Literal["chain", "third-order chain", "Erdős-Rényi"]

_DENSITY = 0.3


def chain(length: int, states: int, order: int = 1) -> Model:
    """Return pairs of variables at most `order` apart."""
    pairs = [(i, j) for i in range(length) for j in range(i + 1, min(i + order, length - 1) + 1)]
    return (states,) * length, tuple(pairs)


def erdos_renyi(nodes: int, states: int, density: float, seed: int) -> Model:
    """Return a connected Erdős-Rényi graph."""
    while not nx.is_connected(graph := nx.gnp_random_graph(nodes, density, seed=seed)):
        seed += 1000
    return (states,) * nodes, tuple(graph.edges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A pairwise model; the potentials of each edge are the logs of one draw of Dirichlet(1).

    Parameters
    ----------
    kind
        First- or third-order chain, or a connected Erdős-Rényi graph of density 0.3.
    nodes
        Number of variables.
    states
        States of each.
    seed
        Seed of graph and potentials.
    """

    kind: GraphKind
    nodes: int
    states: int
    seed: int

    def settings(self) -> dict[str, Any]:
        """Return what the model depends on."""
        return asdict(self)

    def described(self) -> dict[str, Any]:
        """Return the columns of a table that describe the model."""
        return {"graph": self.kind, "nodes": self.nodes, "states": self.states}


@functools.lru_cache(maxsize=4)
def truth_of(graph: Graph) -> Solution:
    """Return the model with its potentials, made once in each process."""
    rng = np.random.default_rng([graph.seed, graph.nodes, graph.states, len(graph.kind)])
    if graph.kind == "Erdős-Rényi":
        _, scopes = erdos_renyi(graph.nodes, graph.states, _DENSITY, int(rng.integers(2**31)))
    else:
        _, scopes = chain(graph.nodes, graph.states, 1 if graph.kind == "chain" else 3)
    names = [f"v{node}" for node in range(graph.nodes)]
    model = ModelSpecification(
        domain=Domain.from_states({name: list(range(graph.states)) for name in names}),
        cliques=tuple((names[a], names[b]) for a, b in scopes),
    )
    potentials = np.log(rng.dirichlet(np.ones(graph.states**2), size=len(scopes)))
    return Solution(
        specification=model,
        potentials=model.tables(potentials.ravel()),
        method="truth",
        status=Status.CONVERGED,
    )
