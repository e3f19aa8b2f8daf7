"""Graph of the couplings of a learned model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from bayesprivmrf.cards import marked
from bayesprivmrf.checks import at_least, one_of

if TYPE_CHECKING:
    import networkx as nx

    from bayesprivmrf.learning.models.base import LearnedNetwork

type Weight = Literal["largest", "dependence"]


def coupling_graph(learned: LearnedNetwork, threshold: float | None, weight: Weight) -> nx.Graph:
    """Return the graph that `LearnedNetwork.graph` describes."""
    import networkx as nx

    is_default = threshold is None
    least = at_least("threshold", 0.0 if is_default else threshold, 0)
    one_of("weight", weight, ("largest", "dependence"))
    names = learned.domain.variables
    weights = {
        (i, j): largest
        for i, j, largest in learned._weighted_pairs()
        if not is_default or learned._stands_out(i, j)
    }
    if weight == "dependence":
        # the correlation of two normal variables with the same mutual information
        information = {pair: learned._dependence.information(*pair) for pair in weights}
        weights = {pair: math.sqrt(-math.expm1(-2 * nats)) for pair, nats in information.items()}
    graph = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_weighted_edges_from(
        (names[i], names[j], size) for (i, j), size in weights.items() if abs(size) > least
    )
    return marked(graph, learned.is_simulated)
