"""Translation of a plan into integers, which the compiled sweeps interpret.

One workspace holds [cells of the factors | messages | tables of the steps | marginals of the groups | scratch]. A
second array with the layout of the first two parts receives the marginals of the cells and of the separators.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.marginals.layout import HOPELESS_CELLS, Forecast, Layout, require_inference_memory
from bayesprivmrf.marginals.planning import (
    BucketTree,
    Group,
    Item,
    Step,
    array_forecast,
    plan_steps,
)
from bayesprivmrf.model.tables import DOUBLE


class CodeLayout(NamedTuple):
    """Positions of the integers that describe a step, and of those within a group's part of them."""

    per_step: int = 24  # integers of a step
    is_product: int = 0  # 1 for a product of two groups, 0 for a step that goes cell by cell
    states: int = 1  # number of states of the variable that is eliminated
    message: int = 2  # offset of the message
    rows: int = 3  # number of cells of the message
    is_root: int = 4  # 1 if the separator is empty
    left: int = 5  # first integer of the left group, or of the only one: the offset of its table
    right: int = 11  # first integer of the right group
    shared: int = 17  # joint states of the variables in both groups
    outer: int = 18  # joint states of the variables in the left group only
    inner: int = 19  # joint states of the variables in the right group only
    left_turned: int = 20  # 1 if the left group is stored transposed
    right_turned: int = 21  # 1 if the right group is stored transposed
    left_marginal: int = 22  # offset of the left group's marginal, unless it is read in place
    right_marginal: int = 23  # the same for the right group
    # within a group, counted from its first integer
    items: int = 1  # place of the first item's record
    n_items: int = 2  # number of items
    cells: int = 3  # number of cells of the table
    is_alias: int = 4  # 1 if the table is a single item, read in place
    length: int = 5  # length of a row of the table
    # within the record of an item, whose first integer is the offset of its cells
    per_item: int = 4  # integers of a record
    row_map: int = 1  # place of its row map in `maps`
    stride: int = 2  # stride along a row of the group's table
    item_cells: int = 3  # number of its cells


# the layout that `lower` writes and the compiled sweeps read
AT = CodeLayout()

# what one evaluation with one product Σv stores
_VECTORS = 5  # over cells and messages: potentials, marginals, a direction, its gain and its change
_TABLES = 3  # copies of each: itself, its marginal and its tangent
_MAP_ENTRY = 4  # bytes of a map's entry
# matrix products of a step: the message and its two adjoints
_PRODUCTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Steps of exact inference as integers.

    Attributes
    ----------
    steps : int
        Number of steps.
    code : NDArray[np.int64]
        The steps, then the items' records; `CodeLayout` describes both.
    maps : NDArray[np.int32]
        Where each row of a step's table begins in an item. Equal maps are stored once.
    cells, messages, tables, groups : int
        Lengths of the parts of the workspace.
    largest_message, largest_group : int
        Number of cells of the largest message and of the largest group of a product.
    """

    steps: int
    code: NDArray[np.int64]
    maps: NDArray[np.int32]
    cells: int
    messages: int
    tables: int
    groups: int
    largest_message: int
    largest_group: int

    @property
    def plan(self) -> tuple[NDArray[np.int64], int, NDArray[np.int32]]:
        """First arguments of every compiled sweep: code, steps and row maps."""
        return self.code, self.steps, self.maps

    @property
    def scratch(self) -> int:
        """Start of the scratch in the workspace."""
        return self.cells + self.messages + self.tables + self.groups

    @property
    def workspace(self) -> int:
        """Length of the workspace."""
        return self.scratch + self.largest_message

    def roots(self) -> list[int]:
        """Return the offsets of the messages with an empty separator."""
        rows = self.code[: AT.per_step * self.steps].reshape(-1, AT.per_step)
        return rows[rows[:, AT.is_root] == 1, AT.message].tolist()


class _Maps:
    """Row maps, each distinct map stored once."""

    def __init__(self) -> None:
        self.parts: list[NDArray[np.int32]] = []
        self.places: dict[tuple[tuple[int, int], ...], int] = {}
        self.length = 0

    def place(self, axes: tuple[tuple[int, int], ...]) -> int:
        """Return the place of the row map with given axes, each a pair (size, stride)."""
        found = self.places.get(axes)
        if found is None:
            rows = np.zeros(1, dtype=np.int32)
            for size, stride in axes:
                steps = np.arange(size, dtype=np.int32) * np.int32(stride)
                rows = np.add.outer(rows, steps).ravel()
            found = self.places[axes] = self.length
            self.parts.append(rows)
            self.length += rows.size
        return found


def lower(tree: BucketTree, steps: Sequence[Step] | None = None) -> Program:
    """Assign offsets to everything and write the steps as integers.

    Raises
    ------
    ModelTooLargeError
        If a table has more cells than a row map can point to.
    """
    if steps is None:
        steps = plan_steps(tree)
    cards = tree.layout.cardinalities
    largest = max(
        (math.prod(cards[v] for v in g.scope) for step in steps for g in step.groups), default=1
    )
    most = np.iinfo(np.int32).max  # row maps are 32-bit integers
    if largest > most:
        raise ModelTooLargeError(
            f'A table must have at most {most:,} cells, got {largest:,}; use smaller cliques, or kind="loopy".'
        )
    # place the messages first, because a step's items may be messages of earlier steps; the tables follow
    places = [tree.layout.size]
    for step in steps:
        places.append(places[-1] + math.prod(cards[v] for v in step.separator))
    table = places[-1]
    built = [g.scope for step in steps for g in step.groups if not g.is_alias]
    groups = table + sum(math.prod(cards[v] for v in scope) for scope in built)
    maps = _Maps()
    items = []
    rows = []
    # the items' records follow the steps in `code`
    base = AT.per_step * len(steps)
    largest_message = largest_group = 0
    for step, place in zip(steps, places, strict=False):
        row = [0] * AT.per_step
        is_product = len(step.groups) == 2
        row[AT.is_product] = int(is_product)
        row[AT.states] = cards[step.variable]
        row[AT.message] = place
        row[AT.rows] = separator = math.prod(cards[v] for v in step.separator)
        row[AT.is_root] = int(not step.separator)
        row[AT.shared], row[AT.outer], row[AT.inner] = step.shape
        for at, turned, marginal, group in zip(
            (AT.left, AT.right),
            (AT.left_turned, AT.right_turned),
            (AT.left_marginal, AT.right_marginal),
            step.groups,
            strict=False,
        ):
            start = len(items)
            # The number of last axes of a table that can be one row, along which every item has a constant
            # stride
            strides = [_strides(item.scope, cards) for item in group.items]
            row_axes = 1
            while is_product and row_axes < len(group.scope):
                outer = group.scope[-row_axes - 1]
                inner = group.scope[-row_axes]
                if any(own.get(outer, 0) != own.get(inner, 0) * cards[inner] for own in strides):
                    break
                row_axes += 1
            for item in group.items:
                if item.is_message:
                    offset = places[item.source]
                else:
                    offset = tree.layout.offsets[item.source]
                items += [offset, *_rows(item, group, row_axes, cards, maps)]
            size = math.prod(cards[v] for v in group.scope)
            row[at + AT.items] = base + start
            row[at + AT.n_items] = len(group.items)
            row[at + AT.cells] = size
            row[at + AT.is_alias] = int(group.is_alias)
            row[at + AT.length] = math.prod(cards[v] for v in group.scope[-row_axes:])
            row[turned] = int(group.is_transposed)
            # a single item may be read in place
            if group.is_alias:
                row[at] = items[start]
            else:
                row[at] = table
                table += size
            if is_product:
                largest_message = max(largest_message, separator)
                largest_group = max(largest_group, size)
                if not group.is_alias:
                    row[marginal] = groups  # where the group's marginal is computed
                    groups += size
        rows.append(row)
    return Program(
        steps=len(rows),
        code=np.array([x for row in rows for x in row] + items, dtype=np.int64),
        maps=np.concatenate(maps.parts) if maps.parts else np.zeros(0, dtype=np.int32),
        cells=tree.layout.size,
        messages=places[-1] - tree.layout.size,
        tables=table - places[-1],
        groups=groups - table,
        largest_message=largest_message,
        largest_group=largest_group,
    )


def _strides(scope: tuple[int, ...], cards: Sequence[int]) -> dict[int, int]:
    """Return the stride of each variable in a table over `scope`, in C order."""
    strides: dict[int, int] = {}
    size = 1
    for v in reversed(scope):
        strides[v] = size
        size *= cards[v]
    return strides


def _rows(
    item: Item, group: Group, row_axes: int, cards: Sequence[int], maps: _Maps
) -> tuple[int, int, int]:
    """Return the place of an item's row map, its stride along a row, and its number of cells."""
    size = math.prod(cards[v] for v in item.scope)
    if group.is_alias:
        return 0, 1, size
    strides = _strides(item.scope, cards)
    axes: list[tuple[int, int]] = []
    for v in group.scope[:-row_axes]:
        k = cards[v]
        stride = strides.get(v, 0)
        if axes and axes[-1][1] == stride * k:
            axes[-1] = (axes[-1][0] * k, stride)  # merge two axes with one stride
        else:
            axes.append((k, stride))
    return maps.place(tuple(axes)), strides.get(group.scope[-1], 0), size


def memory_of_steps(tree: BucketTree, steps: Sequence[Step]) -> tuple[int, int]:
    """Return the memory of one evaluation with one product Σv, in bytes, and its number of multiplications."""
    cards = tree.layout.cardinalities
    messages = tables = maps = multiplications = 0
    largest_message = largest_group = 0
    for step in steps:
        separator = math.prod(cards[v] for v in step.separator)
        messages += separator
        for group in step.groups:
            size = math.prod(cards[v] for v in group.scope)
            multiplications += size * (len(group.items) + 1)
            if not group.is_alias:
                tables += size
                maps += len(group.items) * size // cards[group.scope[-1]]
            if len(step.groups) == 2:
                largest_group = max(largest_group, size)
        if len(step.groups) == 2:
            largest_message = max(largest_message, separator)
            multiplications += _PRODUCTS * separator * cards[step.variable]
    vectors = tree.layout.size + messages
    floats = _VECTORS * vectors + _TABLES * (tables + largest_message + largest_group)
    return DOUBLE * floats + _MAP_ENTRY * maps, multiplications


def plan(tree: BucketTree, memory_limit: float | None = None) -> tuple[list[Step], Forecast]:
    """Return the step that sums each bucket, and the cost of exact inference.

    There are no steps if the largest clique is too large for any machine.

    Raises
    ------
    ModelTooLargeError
        The plan needs more than `memory_limit` bytes.
    """
    cost = array_forecast(tree)
    steps = []
    if cost.largest_table <= HOPELESS_CELLS:
        steps = plan_steps(tree)
        memory, multiplications = memory_of_steps(tree, steps)
        cost = replace(cost, memory_bytes=memory, multiplications=multiplications)
    if memory_limit is not None:
        require_inference_memory(cost, min(memory_limit, HOPELESS_CELLS))
    return steps, cost


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
    return plan(BucketTree.build(Layout.build(cardinalities, scopes)))[1]
