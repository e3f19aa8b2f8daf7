"""Forecast of the time and memory of exact inference, before anything is allocated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.marginals.layout import Layout
from bayesprivmrf.marginals.lowering import memory_of_steps
from bayesprivmrf.marginals.ordering import BucketTree, elimination_order
from bayesprivmrf.marginals.planning import Step, plan_steps

#: Default memory limit of inference, in bytes: half the memory of a small laptop.
MEMORY_LIMIT = 4 * 2**30

#: Cells of a clique, 128 TiB, beyond which a model is refused without planning: no machine has so much memory.
HOPELESS_CELLS = 2**44


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Cost of exact inference along the elimination order that would be used.

    Attributes
    ----------
    treewidth : int
        Number of variables in the largest clique, less one: an upper bound on the treewidth of the graph.
    largest_table : int
        Number of cells of the largest clique.
    total_cells : int
        Number of cells of all cliques together.
    memory_bytes : int
        Upper bound on the memory of one evaluation with one product Σv, in bytes.
    multiplications : int
        Approximate number of multiplications in one evaluation of the marginals.
    """

    treewidth: int
    largest_table: int
    total_cells: int
    memory_bytes: int
    multiplications: int


def forecast(cardinalities: Iterable[int], scopes: Iterable[Iterable[int]]) -> Forecast:
    """Return the cost of exact inference in a model, without allocating its tables.

    Parameters
    ----------
    cardinalities : iterable of int
        Number of states of each variable, at least 1.
    scopes : iterable of iterable of int
        Variables of each factor.

    Returns
    -------
    Forecast
        Treewidth, numbers of cells, bytes and multiplications.

    Raises
    ------
    ModelError
        If a scope repeats a variable or names one that does not exist.

    Examples
    --------
    >>> forecast([2, 3, 2], [(0, 1), (1, 2)]).treewidth
    1
    """
    layout = Layout.build(cardinalities, scopes)
    order = elimination_order(layout.cardinalities, layout.scopes)
    cost = array_forecast(layout, order)
    return cost if cost.largest_table > HOPELESS_CELLS else plan(layout, order).forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of exact inference: the buckets, the step that sums each, and the cost."""

    tree: BucketTree
    steps: list[Step]
    forecast: Forecast


def plan(layout: Layout, order: Sequence[int] | None = None, memory_limit: int | None = None) -> Plan:
    """Plan exact inference along an elimination order, by default that of `elimination_order`.

    Raises
    ------
    ModelTooLargeError
        If the largest clique is too large for any machine, or the plan needs more than `memory_limit` bytes.
    """
    if order is None:
        order = elimination_order(layout.cardinalities, layout.scopes)
    cost = array_forecast(layout, order)
    if cost.largest_table > HOPELESS_CELLS:
        require_memory(cost, HOPELESS_CELLS if memory_limit is None else memory_limit)
    tree = BucketTree.build(layout, order)
    steps = plan_steps(tree)
    memory, multiplications = memory_of_steps(tree, steps)
    cost = replace(cost, memory_bytes=memory, multiplications=multiplications)
    if memory_limit is not None:
        require_memory(cost, memory_limit)
    return Plan(tree=tree, steps=steps, forecast=cost)


def array_forecast(layout: Layout, order: Sequence[int]) -> Forecast:
    """Return the cost along one elimination order if the table of every clique is stored.

    Sampling and the NumPy engine store all of these tables; the compiled engine may not.
    """
    cards = layout.cardinalities
    place = {v: i for i, v in enumerate(order)}
    ranks = [cards[v] for v in order]
    classes: dict[int, int] = {}
    for i, k in enumerate(ranks):
        classes[k] = classes.get(k, 0) | (1 << i)
    # a set of variables is an integer, whose bits are the places of its members in the order
    pending = [0] * len(order)
    counts = [0] * len(order)
    for scope in layout.scopes:
        mask = 0
        for v in scope:
            if v in place:
                mask |= 1 << place[v]
        if mask:
            first = (mask & -mask).bit_length() - 1
            pending[first] |= mask
            counts[first] += 1
    width, largest, total, messages, products = 0, 1, 0, 0, 0
    for i, mask in enumerate(pending):
        cells = math.prod(k ** (mask & members).bit_count() for k, members in classes.items())
        width = max(width, mask.bit_count() - 1)
        largest = max(largest, cells)
        total += cells
        products += cells * (counts[i] + 2)
        messages += cells // ranks[i]
        rest = mask & (mask - 1)
        if rest:
            parent = (rest & -rest).bit_length() - 1
            pending[parent] |= rest
            counts[parent] += 1
    return Forecast(
        treewidth=width,
        largest_table=largest,
        total_cells=total,
        memory_bytes=8 * (4 * layout.size + 3 * total + 4 * messages),
        multiplications=products,
    )


def require_memory(cost: Forecast, memory_limit: int) -> None:
    """Raise an error if exact inference in a model would not fit in memory.

    Raises
    ------
    ModelTooLargeError
        The model needs more memory. The error states the forecast, the limit and the size of cliques that would fit.
    """
    if not cost.memory_bytes <= memory_limit:
        raise ModelTooLargeError(
            f"Exact inference would need about {_bytes(cost.memory_bytes)} for cliques of up to "
            f"{cost.treewidth + 1} variables ({_count(cost.largest_table)} cells), more than `memory_limit` of "
            f"{_bytes(memory_limit)}, enough for cliques of about {_count(max(memory_limit // 64, 1))} cells. "
            "Declare fewer or smaller cliques, or use loopy belief propagation, an approximation that needs little "
            'more memory than the declared tables: `inference="loopy"` in an estimator, `kind="loopy"` here.'
        )


def _bytes(number: int) -> str:
    if number < 2**30:
        return f"{number / 2**20:.1f} MiB"
    return f"{number / 2**30:.1f} GiB" if number < 2**60 else f"10^{_exponent(number)} bytes"


def _count(number: int) -> str:
    return f"{number:,}" if number < 10**15 else f"10^{_exponent(number)}"


def _exponent(number: int) -> int:
    return round(math.log10(number))
