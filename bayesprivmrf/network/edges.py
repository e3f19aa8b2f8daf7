"""Edges out of networkx graphs, data frames and plain pairs: node names and positions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from bayesprivmrf.errors import ModelError

type Edges = tuple[list[Hashable], np.ndarray, np.ndarray, np.ndarray]


def is_networkx(graph: Any) -> bool:
    """Return True for a networkx graph; pgmpy's networks are among them."""
    return any(kind.__module__.split(".")[0] == "networkx" for kind in type(graph).__mro__)


def is_frame(graph: Any) -> bool:
    """Return True for a data frame that narwhals knows."""
    import narwhals.stable.v2 as nw

    return isinstance(nw.from_native(graph, pass_through=True), nw.DataFrame | nw.LazyFrame)


def read_networkx(graph: Any, weight: str | None) -> Edges:
    """Return node names in graph order and the edges; a pgmpy network gives its structure only."""
    if graph.is_directed():
        raise ModelError(
            "`graph` must be undirected: influence runs both ways along an edge; pass `graph.to_undirected()` "
            "where that is meant."
        )
    if not isinstance(weight, str | None):
        raise ModelError(f"`weight` must be the name of an edge attribute or None, got {weight!r}.")
    from_pgmpy = any(kind.__module__.split(".")[0] == "pgmpy" for kind in type(graph).__mro__)
    key = None if from_pgmpy else weight
    if key is None:
        edges: Iterable[Any] = ((a, b) for a, b in graph.edges())
    else:
        if (
            key != "weight"
            and graph.number_of_edges()
            and not any(key in data for *_, data in graph.edges(data=True))
        ):
            raise ModelError(
                f"`weight` must be an attribute of edges, got {key!r}, which no edge has; "
                "correct the name, or pass None."
            )
        edges = graph.edges(data=key, default=1.0)
    return read_edges(edges, list(graph.nodes))


def read_frame(edge_table: Any) -> Edges:
    """Return the edges of a frame with two columns of nodes and, if there is a third, of weights."""
    import narwhals.stable.v2 as nw

    table: Any = nw.from_native(edge_table)
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    if len(table.columns) not in (2, 3):
        raise ModelError(
            f"an edge table must have two columns of nodes and at most one of weights, got {len(table.columns)} "
            "columns; select them, in this order. The rows of an adjacency matrix must be labeled as its columns are."
        )
    ends = [table[:, 0], table[:, 1]]  # by position: names may be numbers
    if any(end.is_null().any() or (end.dtype.is_float() and end.is_nan().any()) for end in ends):
        raise ModelError(
            "an edge table must name both ends of each edge, but some are missing; drop those rows."
        )
    weights = np.ones(len(table))
    if len(table.columns) == 3:
        weights = _as_weights(table[:, 2].to_numpy())
    if all(end.dtype.is_integer() for end in ends):
        return *_numbered(np.concatenate([end.to_numpy() for end in ends])), weights
    found, u, v, _ = read_edges(zip(*(end.to_list() for end in ends), strict=True))
    return found, u, v, weights


def _numbered(ends: np.ndarray) -> tuple[list[Hashable], np.ndarray, np.ndarray]:
    """Return integer names in order of first appearance, all first ends before all second ones, and positions."""
    distinct, first, inverse = np.unique(ends, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    u, v = place[inverse].reshape(2, -1)
    return distinct[order].tolist(), u, v


def _as_weights(values: Any) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError("edge weights must be numbers; convert them, or leave them out.") from error


def read_edges(edges: Iterable[Any], nodes: Iterable[Hashable] = ()) -> Edges:
    """Return the edges of an iterable of pairs (node, node) or triples (node, node, weight).

    Raises
    ------
    ModelError
        Something is neither a pair nor a triple, a node is missing or not hashable, a weight is no number.
    """
    place: dict[Hashable, int] = {node: k for k, node in enumerate(nodes)}
    u: list[int] = []
    v: list[int] = []
    weights: list[Any] = []
    try:
        for a, b, *rest in edges:
            if isinstance(rest, list) and len(rest) > 1:
                raise ModelError(
                    "an edge must be a pair of nodes, or a pair and a weight; got more than that."
                )
            u.append(place.setdefault(a, len(place)))
            v.append(place.setdefault(b, len(place)))
            weights.append(rest[0] if rest else 1.0)
    except (TypeError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            "`graph` must be a networkx graph, a pgmpy network, a SciPy or NumPy adjacency matrix, an edge table, or "
            f"pairs of hashable nodes, got {type(edges).__name__}."
        ) from error
    if not all(node is not None and node == node for node in place):
        raise ModelError("an edge must name both of its ends, but some are missing (None or NaN).")
    as_ints = np.array(u, dtype=np.int64), np.array(v, dtype=np.int64)
    return list(place), *as_ints, _as_weights(weights)
