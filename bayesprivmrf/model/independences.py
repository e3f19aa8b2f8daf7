r"""The declared independences on which a joint law rests where no clique holds all its variables.

Two variables that meet in no clique are independent given any set of variables that separates them in the graph of
the cliques, because that is what the declaration says; no table holds them together, so that no measurement could
contradict it. The separators of a pair are listed along the graph, each the border of what lies behind the one
before: the joint law of the ends of a chain rests on every independence between them.
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
    """Return the independences that the joint distribution of variables rests on; none within one clique.

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
    """Yield minimal separators of two nodes, nearest to the first node first; an empty one without a path."""
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
