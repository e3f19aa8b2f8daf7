r"""Compiled moves along simple cycles of a graph of sums (`crossing`).

A walk begins at a random arc, in a random direction, and takes a random arc at each node, but not the one by which it
came. When it meets itself, the part since then is a simple cycle, and every simple cycle has a positive probability.
The walk does not depend on the table. The cells that the cycle passes forward gain t records, and the others lose t.
The probability of a cycle is the same before and after, so t is drawn from its conditional distribution, or by a
Metropolis step of random size if more than 32 values of t leave no count negative.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER
from bayesprivmrf.inference.posterior.whole_records.cell_steps import (
    add,
    log_cell,
    log_total,
    size_of_move,
)

# Most values of t that are compared; arbitrary: beyond it their comparison takes longer than a few random steps
_MOST_VALUES = 32


@njit(nogil=True, **INNER)
def _next_arc(node, last, graph, rng):
    """Draw an arc of a node, but not the last one."""
    start = graph.node_starts[node]
    others = graph.node_starts[node + 1] - start - 1
    arc = graph.node_arcs[start + int(rng.random() * others)]
    if arc == last:
        return graph.node_arcs[start + others]
    return arc


@njit(nogil=True, **INNER)
def _walk(graph, rng):
    """Walk until a node is met again, and return the ends of the cycle in `path` and `signs`."""
    places = graph.places
    arc = int(rng.random() * graph.arc_cells.size)
    node = graph.arc_nodes[arc, int(rng.random() * 2)]
    first_node = node
    length = 0
    while places[node] < 0:
        places[node] = length
        if length:
            arc = _next_arc(node, arc, graph, rng)
        is_forward = graph.arc_nodes[arc, 0] == node
        graph.path[length] = arc
        graph.signs[length] = 1 if is_forward else -1
        node = graph.arc_nodes[arc, 1 if is_forward else 0]
        length += 1
    start = places[node]
    # forget the nodes of the path
    node = first_node
    for k in range(length):
        places[node] = -1
        node = graph.arc_nodes[graph.path[k], 1 if graph.signs[k] > 0 else 0]
    return start, length


@njit(nogil=True, **INNER)
def _shift(start, stop, by, state, table, data):
    """Add records along a cycle, and return the change of the log density of cells and noise."""
    graph = table.graph
    change = 0.0
    for k in range(start, stop):
        cell = graph.arc_cells[graph.path[k]]
        if cell >= 0:
            own = by * graph.signs[k]
            change += log_cell(state.counts[cell], own, state.shapes[cell])
            change += add(cell, own, state, table, data)
    return change


@njit(nogil=True, **INNER)
def _range(start, stop, least, most, state, graph):
    """Return the sum of the cells' directions, and the smallest and largest change that leaves no count negative."""
    low = -(1 << 60)
    high = 1 << 60
    direction = 0
    for k in range(start, stop):
        cell = graph.arc_cells[graph.path[k]]
        if cell < 0:
            continue
        direction += graph.signs[k]
        if graph.signs[k] > 0:
            low = max(low, -state.counts[cell])
        else:
            high = min(high, state.counts[cell])
    # N grows by one record or loses one along a cycle through the roots
    if direction > 0:
        low = max(low, least)
        high = min(high, most)
    elif direction < 0:
        low = max(low, -most)
        high = min(high, -least)
    return direction, low, high


@njit(nogil=True, **INNER)
def move_along_cycle(least, most, total, state, table, data, rng):
    """Move records along a random cycle, and return the number of records, which stays within two bounds."""
    start, stop = _walk(table.graph, rng)
    direction, low, high = _range(start, stop, least - total, most - total, state, table.graph)
    whole = state.shapes.sum()
    if high - low >= _MOST_VALUES:
        by = size_of_move(table.scales, rng)
        if rng.random() < 0.5:
            by = -by
        if not low <= by <= high:
            return total
        ratio = _shift(start, stop, by, state, table, data)
        if direction != 0:
            ratio += log_total(total, by * direction, whole)
        if math.log(rng.random()) < ratio:
            return total + by * direction
        _shift(start, stop, -by, state, table, data)
        return total
    # the Gumbel trick draws t from the log weights of all values
    now = low
    _shift(start, stop, low, state, table, data)
    chosen = low
    log_weight = 0.0
    best = -np.inf
    for by in range(low, high + 1):
        if by > low:
            log_weight += _shift(start, stop, 1, state, table, data)
            if direction != 0:
                log_weight += log_total(total + now * direction, direction, whole)
            now = by
        mark = log_weight - math.log(rng.standard_exponential())
        if mark > best:
            best = mark
            chosen = by
    _shift(start, stop, chosen - high, state, table, data)
    return total + chosen * direction
