r"""Declared independences on which the joint distribution of variables depends if no clique contains all of them.

The declaration of a model implies that two variables without a common clique are independent, conditional on any set
of variables that separates them in the graph of the cliques. No table contains both variables, so that no measurement
can contradict this. The minimal separators of a pair are listed along the graph, from the first variable to the
second. For example, the joint distribution of the ends of a chain depends on every independence between them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from bayesprivmrf.cards import printable
from bayesprivmrf.model.specification import ModelSpecification
from bayesprivmrf.model.tables import parent

if TYPE_CHECKING:
    import networkx as nx


def declared_independences(model: ModelSpecification, variables: Sequence[int]) -> tuple[str, ...]:
    """Return the independences on which the joint distribution of variables depends; none within one clique.

    Examples
    --------
    >>> from bayesprivmrf.model import Domain
    >>> states = {"age": [0, 1], "job": [0, 1], "income": [0, 1]}
    >>> cliques = (("age", "job"), ("job", "income"))
    >>> model = ModelSpecification(domain=Domain.from_states(states), cliques=cliques)
    >>> declared_independences(model, [0, 2])
    ('age ⟂ income | job',)
    """
    if parent(model.scopes, variables) is not None:
        return ()
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(len(model.cardinalities)))
    for scope in model.scopes:
        graph.add_edges_from(combinations(scope, 2))
    names = [printable(str(variable)) for variable in model.domain.variables]

    def listed(positions: Sequence[int]) -> str:
        return ", ".join(names[v] for v in sorted(positions))

    apart = [pair for pair in combinations(variables, 2) if not graph.has_edge(*pair)]
    whole = nx.find_cliques(graph.subgraph(variables))
    return (
        *(
            f"{names[a]} ⟂ {names[b]}{(separator and f' | {listed(separator)}') or ''}"
            for a, b in apart
            for separator in _separators(graph, a, b)
        ),
        *(
            f"no interaction of {listed(together)} all together"
            for together in whole
            if parent(model.scopes, together) is None
        ),
    )


def _separators(graph: nx.Graph, a: Hashable, b: Hashable) -> Iterator[list[int]]:
    """Yield minimal separators of two nodes, beginning at the first node; an empty one if there is no path."""
    import networkx as nx

    near, border = {a}, set(graph[a])
    while b not in border:
        behind = nx.node_connected_component(graph.subgraph(set(graph) - near - border), b)
        separator = [v for v in border if not behind.isdisjoint(graph[v])]
        yield separator
        if not separator:
            return
        near = set(graph) - behind
        border = {v for s in separator for v in graph[s]} & behind
