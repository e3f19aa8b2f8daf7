"""Readers of graphs in their usual forms, and the coupling matrix J of an Ising model on a graph.

Graphs are networkx graphs, pgmpy networks, data frames of edges, adjacency matrices, or iterables of edges.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from scipy import sparse

from bayesprivmrf.checks import (
    is_labeled,
    one_of,
    positive_finite,
    refuse_masked,
    require,
    sides_of,
)
from bayesprivmrf.errors import DeclarationWarning, ModelError, warn_caller
from bayesprivmrf.model.domain import refuse_unwritten
from bayesprivmrf.model.labels import aligned

# asymmetry that rounding leaves in a product such as D^-1/2 A D^-1/2, relative to the largest entry
_ASYMMETRY = 1e-12

type Coupling = Literal["raw", "mean-degree", "degree-normalised"]

# node names, positions of both ends of each edge, and weights of the edges
type Edges = tuple[list[Hashable], np.ndarray, np.ndarray, np.ndarray]


_require = partial(require, error=ModelError)


def read_adjacency(
    graph: Any, nodes: Iterable[Hashable] | None, weight: str | None
) -> tuple[tuple[Hashable, ...], sparse.csr_array]:
    """Return the nodes and the weighted adjacency matrix of a graph.

    `weight` names the attribute or the column of the weights. All weights are 1 if it is None.

    Raises
    ------
    ModelError
        The graph is directed or has no edge, a weight is not a finite number, an edge is listed with different
        weights, no weights have the given name, or `nodes` leaves out a node of the graph.
    """
    import narwhals.stable.v2 as nw
    import pandas as pd

    _require(
        isinstance(weight, str | None),
        "weight",
        "be the name of the edges' weights or None",
        weight,
    )
    # the fields of a structured array are the columns of a table
    if isinstance(graph, np.ndarray) and graph.dtype.names is not None:
        graph = pd.DataFrame({name: graph[name].ravel().tolist() for name in graph.dtype.names})
    if isinstance(graph, np.ndarray) or sparse.issparse(graph) or _is_labeled_matrix(graph):
        _require_no_name(weight, "a matrix")
        order, adjacency = read_matrix(graph, nodes, "graph")
        return order, adjacency if weight is not None else _unweighted(adjacency)
    libraries = {kind.__module__.split(".")[0] for kind in type(graph).__mro__}
    table: Any = nw.from_native(graph, pass_through=True)
    if "pgmpy" in libraries:  # of a pgmpy network, only the structure is used
        _require_no_name(weight, "a pgmpy network")
        found, u, v, weights = _read_networkx(graph, None)
    elif "networkx" in libraries:
        found, u, v, weights = _read_networkx(graph, weight)
    elif isinstance(table, nw.DataFrame | nw.LazyFrame):
        if isinstance(table, nw.LazyFrame):
            frame = table.collect()
        else:
            frame = table
        found, u, v, weights = _read_frame(frame, weight)
    else:
        _require_no_name(weight, "pairs and triples")
        found, u, v, weights = _read_edges(_listed_edges(graph), is_weighted=weight is not None)
    if nodes is None:
        order = tuple(found)
    else:
        order = checked_nodes(nodes, None)
    if left_out := set(found).difference(order):
        raise ModelError(
            f"`nodes` must include every node of the graph, but leaves out {len(left_out)} of {len(found)}; "
            "add them, or pass the graph of only the chosen nodes."
        )
    place = {node: k for k, node in enumerate(order)}
    moved = np.array([place[node] for node in found], dtype=np.int64)
    return order, _assembled(moved[u], moved[v], weights, len(order))


def _read_networkx(graph: Any, weight: str | None) -> Edges:
    """Return the edges of a networkx graph, with nodes in graph order."""
    must = "be a graph, pairs or triples"
    seen = f"a {type(graph).__name__}"
    _require(hasattr(graph, "is_directed"), "graph", must, seen, "give the graph itself")
    must = "be undirected, because influence runs both ways along an edge"
    _require(
        not graph.is_directed(),
        "graph",
        must,
        "a directed one",
        "`graph.to_undirected()` may be what you mean",
    )
    if weight is None:
        return _read_edges(graph.edges(), list(graph.nodes))
    is_known = weight == "weight" or any(weight in data for *_, data in graph.edges(data=True))
    got = f"{weight!r}, which no edge has"
    _require(
        is_known or not graph.number_of_edges(),
        "weight",
        "be an attribute of the edges",
        got,
        "or pass None",
    )
    return _read_edges(graph.edges(data=weight, default=1.0), list(graph.nodes))


def _require_no_name(weight: str | None, graph: str) -> None:
    """Raise an error if weights without a name are asked for by a name."""
    must = f"be left out, or None to ignore weights, for {graph}"
    remedy = "its weights have no name"
    _require(weight in (None, "weight"), "weight", must, weight, remedy)


def _unweighted(adjacency: sparse.csr_array) -> sparse.csr_array:
    """Return an adjacency matrix with 1 for each edge."""
    ones = np.ones(adjacency.nnz)
    return sparse.csr_array((ones, adjacency.indices, adjacency.indptr), shape=adjacency.shape)


def _read_frame(table: Any, weight: str | None) -> Edges:
    """Return the edges of a data frame with columns of nodes and perhaps of weights."""
    import pandas as pd

    _refuse_bare_matrix(table)
    first, second, third = _edge_columns(list(table.columns), weight)
    ends = [table[:, first], table[:, second]]  # by position: names may be numbers
    missing = any(
        end.is_null().any() or (end.dtype.is_float() and end.is_nan().any()) for end in ends
    )
    _require(
        not missing,
        "an edge table",
        "name both ends of each edge",
        "missing ones",
        "drop those rows",
    )
    if third is None:
        weights = np.ones(len(table))
    else:
        weights = _as_weights(table[:, third].to_numpy())
    if all(end.dtype.is_integer() for end in ends):
        # in order of first appearance, all first ends before all second ends
        places, found = pd.factorize(np.concatenate([end.to_numpy() for end in ends]))
        u, v = places.reshape(2, -1)
        return found.tolist(), u, v, weights
    found, u, v, _ = _read_edges(zip(*(end.to_list() for end in ends), strict=True))
    return found, u, v, weights


def _edge_columns(names: list[Any], weight: str | None) -> tuple[int, int, int | None]:
    """Return the positions of the columns of both ends of the edges, and of the weights; None without weights.

    The weights are the column named `weight`. The ends are the columns ``source`` and ``target`` if there are such,
    and otherwise the other two columns. The third of three columns that pandas only numbered holds weights.
    """
    if weight == "weight" and names == [0, 1, 2]:
        return 0, 1, 2
    others = [place for place, name in enumerate(names) if name != (weight or "weight")]
    ends = [place for place in others if names[place] in ("source", "target")]
    if len(ends) < 2:
        if weight is None and len(others) == 3:
            ends = others[:2]
        else:
            ends = others
    must = "have two columns of nodes beside that of the weights"
    remedy = "name that column by `weight=`, or select the columns of the nodes"
    _require(len(ends) == 2, "an edge table", must, f"{len(ends)} columns", remedy)
    is_known = weight is None or weight in names or (weight == "weight" and len(names) == 2)
    must = "name a column of the edge table"
    remedy = "name that of the weights, or pass None for weights of 1"
    _require(is_known, "weight", must, repr(weight), remedy)
    return ends[0], ends[1], names.index(weight) if weight in names else None


def _refuse_bare_matrix(table: Any) -> None:
    """Raise an error for a frame without labels that could be an adjacency matrix or a table of edges."""
    size = len(table)
    if len(table.columns) != size or list(table.columns) != list(range(size)):
        return
    values = table.to_numpy()
    is_both = (
        values.dtype.kind in "biuf" and not values.diagonal().any() and (values == values.T).all()
    )
    must = "have names of its columns, or labels of its rows and columns"
    seen = "a symmetric table without them"
    _require(not is_both, "graph", must, seen, "give `.to_numpy()` of an adjacency matrix")


def _as_weights(values: Any) -> np.ndarray:
    """Return edge weights as floats."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(
            "edge weights must be numbers; convert them, or leave them out."
        ) from error


def _listed_edges(edges: Any) -> Any:
    """Return edges after a check that neither keys of a mapping nor letters of a text would be taken for nodes."""
    must = "be a list of edges, which a mapping is not"
    remedy = "write [(node, node, weight), ...]"
    _require(not isinstance(edges, Mapping), "graph", must, f"a {type(edges).__name__}", remedy)
    if not isinstance(edges, Iterable):
        return edges
    if isinstance(edges, list):
        found = edges
    else:
        found = list(edges)
    is_pair = not any(issubclass(kind, Mapping | str | bytes) for kind in set(map(type, found)))
    must = "be a pair of nodes, or a pair and a weight"
    remedy = "write (node, node, weight)"
    _require(is_pair, "an edge", must, "a mapping or text", remedy)
    return found


def _read_edges(
    edges: Iterable[Any], nodes: Iterable[Hashable] = (), *, is_weighted: bool = True
) -> Edges:
    """Return the edges of an iterable of pairs (node, node) or triples (node, node, weight).

    Raises
    ------
    ModelError
        An edge is neither a pair nor a triple, a node is missing or not hashable, or a weight is not a number.
    """
    place: dict[Hashable, int] = {node: k for k, node in enumerate(nodes)}
    u: list[int] = []
    v: list[int] = []
    weights: list[Any] = []
    longest = 0
    try:
        for a, b, *rest in edges:
            longest = max(longest, len(rest))
            u.append(place.setdefault(a, len(place)))
            v.append(place.setdefault(b, len(place)))
            weights.append(rest[0] if rest and is_weighted else 1.0)
    except (TypeError, ValueError) as error:
        raise ModelError(
            "`graph` must be a networkx graph, a pgmpy network, a SciPy or NumPy adjacency matrix, an edge table, or "
            f"pairs of hashable nodes, got {type(edges).__name__}."
        ) from error
    _require(longest < 2, "an edge", "be a pair of nodes, or a pair and a weight", "a longer one")
    known = all(node is not None and node == node for node in place)
    _require(
        known, "an edge", "name both of its ends", "missing ones (None or NaN)", "drop those edges"
    )
    return (
        list(place),
        np.array(u, dtype=np.int64),
        np.array(v, dtype=np.int64),
        _as_weights(weights),
    )


def _is_labeled_matrix(graph: Any) -> bool:
    """Return True for a labeled matrix: a DataArray, or a DataFrame with equal row and column labels."""
    sides = sides_of(graph)
    if sides is None or len(sides) != 2 or not hasattr(graph, "columns"):
        return sides is not None
    rows = graph.index
    columns = graph.columns
    return is_labeled(graph.T) and isinstance(sides[0][0][1], list) and set(rows) == set(columns)


def read_matrix(
    matrix: Any, nodes: Iterable[Hashable] | None, name: str
) -> tuple[tuple[Hashable, ...], sparse.csr_array]:
    """Return node names and a checked coupling or adjacency matrix in their order.

    Rows and columns of a DataFrame or DataArray with labels are aligned with `nodes`, or with the row labels if
    `nodes` is None.

    Raises
    ------
    ModelError
        The matrix is not square, real, finite and symmetric; the labels of its rows or columns are not the nodes,
        each once; or names repeat, are missing, or differ in number from the rows.
    """
    refuse_masked(name, matrix)
    if nodes is None:
        given = None
    else:
        given = checked_nodes(nodes, None)
    if getattr(matrix, "ndim", 0) == 2 and sides_of(matrix) is not None:
        # pandas turns names that are tuples into levels of an index
        if hasattr(matrix, "set_axis"):
            matrix = matrix.set_axis(matrix.index.to_flat_index(), axis=0)
            matrix = matrix.set_axis(matrix.columns.to_flat_index(), axis=1)
        labels = [
            labels
            for side in sides_of(matrix) or ()
            for _, labels in side
            if isinstance(labels, list)
        ]
        rows = range(len(matrix))
        # numbers by which pandas counts the rows say nothing about nodes of other names, which `nodes` lists in order
        is_bare = not labels and given is not None and set(given).isdisjoint(rows)
        if given is None:
            given = checked_nodes(labels[0] if labels else rows, None)
        if is_bare:
            matrix = matrix.to_numpy()
        else:
            matrix = aligned(f"`{name}`", matrix, None, [given, given])
    coupling = _checked_coupling(matrix, name)
    return checked_nodes(given, coupling.indptr.size - 1), coupling


def checked_nodes(nodes: Iterable[Hashable] | None, size: int | None) -> tuple[Hashable, ...]:
    """Return the node names as a tuple; without names, the numbers from 0 to size - 1.

    Raises
    ------
    ModelError
        Names repeat, are missing (``None`` or NaN) or not hashable; or `nodes` is not a collection of `size` names.
    """
    if nodes is None and size is not None:
        return tuple(range(size))
    try:
        order: tuple[Hashable, ...] = tuple(nodes)  # type: ignore[arg-type]
        distinct = len(set(order))
        is_complete = all(node is not None and node == node for node in order)
    except (TypeError, ValueError):
        raise ModelError(
            f"`nodes` must be a collection of hashable names, got {type(nodes).__name__}; use text or numbers."
        ) from None
    for node in order:
        refuse_unwritten("`nodes`", node)
    shown = f"{len(order)} names of which {distinct} are distinct"
    _require(distinct == len(order), "nodes", "not repeat", shown)
    _require(is_complete, "nodes", "not be missing", "None or NaN", "give every node a name")
    named = size is None or len(order) == size
    _require(named, "nodes", "name each row of the matrix", f"{len(order)} names for {size} rows")
    return order


def _assembled(u: np.ndarray, v: np.ndarray, weights: np.ndarray, size: int) -> sparse.csr_array:
    """Return the symmetric adjacency matrix of a simple graph, in which a repeated pair is one edge."""
    import pandas as pd

    _require(
        np.isfinite(weights).all(),
        "edge weights",
        "be finite numbers",
        "NaN or infinity",
        "drop those edges",
    )
    # drop self-loops, which change no probability
    keep = u != v
    _warn_of_loops(int(np.count_nonzero(~keep)))
    edges: Any = pd.DataFrame(
        {"low": np.minimum(u, v), "high": np.maximum(u, v), "weight": weights}
    )[keep]
    edges = edges.drop_duplicates()
    several = edges.duplicated(["low", "high"]).any()
    remedy = "sum or average the weights of each pair first"
    _require(
        not several, "an edge that is listed more than once", "have one weight", "several", remedy
    )
    low, high, weights = (edges[name].to_numpy() for name in edges)
    rows = np.concatenate([low, high])
    columns = np.concatenate([high, low])
    matrix = sparse.coo_array((np.tile(weights, 2), (rows, columns)), shape=(size, size))
    return _frozen(sparse.csr_array(matrix))


def _checked_coupling(matrix: Any, name: str) -> sparse.csr_array:
    """Return a coupling or adjacency matrix as read-only canonical CSR in double precision.

    The diagonal is dropped with a warning: s_i^2 = 1, so a self-coupling changes no probability. An asymmetry within
    rounding, up to 1e-12 of the largest entry, is averaged out.

    Raises
    ------
    ModelError
        The matrix is not square, real, finite and symmetric, or has no entry off its diagonal.
    """
    try:
        J: Any = sparse.csr_array(matrix)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"`{name}` must be a square matrix of numbers, got {type(matrix).__name__}."
        ) from error
    square = J.ndim == 2 and J.shape[0] == J.shape[1]
    _require(square, name, "be a square matrix", f"shape {J.shape}")
    _require(J.dtype.kind in "biuf", name, "hold real numbers", str(J.dtype))
    J = J.astype(np.float64, copy=True)
    J.sum_duplicates()
    _require(np.isfinite(J.data).all(), name, "be finite", "NaN or infinity", "drop those edges")
    loops = int(np.count_nonzero(J.diagonal()))
    if loops:
        _warn_of_loops(loops)
        J.setdiag(0.0)
    difference = abs(J - J.T)
    largest = np.abs(J.data).max(initial=0.0)
    asymmetry = difference.data.max(initial=0.0)
    must = "be symmetric, because influence runs both ways along an edge"
    remedy = "for a directed graph, A + A.T or the larger of both entries may be what you mean"
    _require(asymmetry <= _ASYMMETRY * largest, name, must, "another matrix", remedy)
    return _frozen(J if asymmetry == 0.0 else sparse.csr_array((J + J.T) * 0.5))


def _frozen(J: sparse.csr_array) -> sparse.csr_array:
    """Return a matrix without stored zeros and with sorted indices, made read-only in place."""
    J.eliminate_zeros()
    J.sort_indices()
    remedy = "without one outcomes have no peer influence"
    _require(J.nnz > 0, "the graph", "have an edge between two nodes", "none", remedy)
    for array in (J.data, J.indices, J.indptr):
        array.flags.writeable = False
    return J


def _warn_of_loops(count: int) -> None:
    """Give a DeclarationWarning if self-loops were dropped."""
    if count:
        warn_caller(
            f"{count} self-loop(s) dropped, which change no probability because the square of an outcome is one; "
            "remove them from the graph to silence this warning.",
            DeclarationWarning,
        )


def scaled(
    adjacency: sparse.csr_array, coupling: str, mean_degree: float | None
) -> sparse.csr_array:
    """Return J: the adjacency matrix A itself, A divided by the mean degree, or D^-1/2 A D^-1/2.

    Degrees are sums of absolute weights, so the spectral norm of D^-1/2 A D^-1/2 is at most one for negative
    weights as well. A node without neighbors has an empty row.

    Raises
    ------
    ArgumentError, ModelError
        The coupling is not known, or `mean_degree` is given with a coupling other than ``"mean-degree"``.
    """
    one_of("coupling", coupling, get_args(Coupling.__value__))
    is_used = mean_degree is None or coupling == "mean-degree"
    _require(is_used, "mean_degree", 'be left out unless `coupling="mean-degree"`', coupling)
    if coupling == "raw":
        return adjacency
    degrees = np.asarray(abs(adjacency).sum(axis=1)).ravel()
    if coupling == "mean-degree":
        if mean_degree is None:
            divisor = degrees.mean()
        else:
            divisor = positive_finite("mean_degree", mean_degree)
        data = adjacency.data / divisor
    else:
        rows = np.repeat(np.arange(degrees.size), np.diff(adjacency.indptr))
        data = adjacency.data / np.sqrt(degrees[rows] * degrees[adjacency.indices])
    return sparse.csr_array((data, adjacency.indices, adjacency.indptr), shape=adjacency.shape)
