"""The plan as rows of integers, for a compiled interpreter.

One workspace holds [cells of the factors | messages | tables of the steps | marginals of products' groups |
scratch]; a second array, laid out like the first two parts, receives the marginals of the cells and of the
messages' separators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.marginals import log_products as columns
from bayesprivmrf.marginals.ordering import BucketTree
from bayesprivmrf.marginals.planning import Group, Item, Step, plan_steps

#: Cells that the 32-bit row maps can point to.
LARGEST_TABLE = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Program of the compiled interpreter.

    Attributes
    ----------
    steps : int
        Number of steps.
    code : NDArray[np.int64]
        The steps, then the items' records, as `columns` has it.
    maps : NDArray[np.int32]
        Where each row of a step's table begins in an item; maps that are equal are shared.
    cells, messages, tables, groups : int
        Lengths of the parts of the workspace.
    message_room, group_room : int
        Cells of the largest message, and of the largest group, of a product.
    """

    steps: int
    code: NDArray[np.int64]
    maps: NDArray[np.int32]
    cells: int
    messages: int
    tables: int
    groups: int
    message_room: int
    group_room: int

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
        return self.scratch + self.message_room

    def roots(self) -> list[int]:
        """Return the offsets of the messages with an empty separator."""
        rows = self.code[: columns.HEADER * self.steps].reshape(-1, columns.HEADER)
        return rows[rows[:, columns.IS_ROOT] == 1, columns.MESSAGE].tolist()


class _Maps:
    """Row maps, each distinct one stored once."""

    def __init__(self) -> None:
        self.parts: list[NDArray[np.int32]] = []
        self.places: dict[tuple[tuple[int, int], ...], int] = {}
        self.length = 0

    def place(self, axes: tuple[tuple[int, int], ...]) -> int:
        """Return the place of the map of rows with axes (size, stride)."""
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
    steps = plan_steps(tree) if steps is None else steps
    cards = tree.layout.cardinalities
    largest = max((math.prod(cards[v] for v in g.scope) for step in steps for g in step.groups), default=1)
    if largest > LARGEST_TABLE:
        raise ModelTooLargeError(
            f"A table must have at most {LARGEST_TABLE:,} cells, got {largest:,}. Use fewer or smaller cliques, "
            'or the approximation kind="loopy".'
        )
    # messages have their places first: a step's items may be messages of steps before it
    maps = _Maps()
    items: list[int] = []
    rows: list[list[int]] = []
    message = tree.layout.size
    places: list[int] = []
    for step in steps:
        places.append(message)
        message += math.prod(cards[v] for v in step.separator)
    table = message
    largest_message = largest_group = 0
    for step, place in zip(steps, places, strict=True):
        described = []
        for group in step.groups:
            source = group.items[0]
            start = len(items)
            row_axes = _row_axes(group, cards, len(step.groups) == 2)
            for item in group.items:
                offset = places[item.source] if item.is_message else tree.layout.offsets[item.source]
                items += [offset, *_rows(item, group, row_axes, cards, maps)]
            size = math.prod(cards[v] for v in group.scope)
            if group.is_alias:  # one item that is the table already: nothing is copied
                lies = places[source.source] if source.is_message else tree.layout.offsets[source.source]
            else:
                lies = table
                table += size
            length = math.prod(cards[v] for v in group.scope[-row_axes:])
            described.append((lies, start, size, length, group))
        separator = math.prod(cards[v] for v in step.separator)
        if len(described) == 2:
            largest_message = max(largest_message, separator)
            largest_group = max(largest_group, described[0][2], described[1][2])
        rows.append(_row(step, place, separator, described, cards))
    # items' records stand behind the steps, so that where a group finds its own is shifted
    base = columns.HEADER * len(rows)
    groups = table
    for row in rows:
        for at, marginal in (
            (columns.LEFT, columns.LEFT_MARGINAL),
            (columns.RIGHT, columns.RIGHT_MARGINAL),
        ):
            row[at + columns.ITEMS] += base
            if row[columns.IS_PRODUCT] and not row[at + columns.IS_ALIAS]:
                row[marginal] = groups  # where the group's marginal is made before it is spread
                groups += row[at + columns.CELLS]
    code = np.array([x for row in rows for x in row] + items, dtype=np.int64)
    return Program(
        steps=len(rows),
        code=code,
        maps=np.concatenate(maps.parts) if maps.parts else np.zeros(0, dtype=np.int32),
        cells=tree.layout.size,
        messages=message - tree.layout.size,
        tables=table - message,
        groups=groups - table,
        message_room=largest_message,
        group_room=largest_group,
    )


def _strides(scope: tuple[int, ...], cards: Sequence[int]) -> dict[int, int]:
    strides: dict[int, int] = {}
    size = 1
    for v in reversed(scope):
        strides[v] = size
        size *= cards[v]
    return strides


def _row_axes(group: Group, cards: Sequence[int], is_product: bool) -> int:
    """Return how many of a table's last axes form a row along which every item lies evenly."""
    strides = [_strides(item.scope, cards) for item in group.items]
    axes = 1
    while is_product and axes < len(group.scope):
        outer, inner = group.scope[-axes - 1], group.scope[-axes]
        if any(own.get(outer, 0) != own.get(inner, 0) * cards[inner] for own in strides):
            break
        axes += 1
    return axes


def _rows(item: Item, group: Group, row_axes: int, cards: Sequence[int], maps: _Maps) -> tuple[int, int, int]:
    """Return the place of an item's row map, its stride along a row, and its number of cells."""
    size = math.prod(cards[v] for v in item.scope)
    if group.is_alias:
        return 0, 1, size
    strides = _strides(item.scope, cards)
    axes: list[tuple[int, int]] = []
    for v in group.scope[:-row_axes]:
        k, stride = cards[v], strides.get(v, 0)
        if axes and axes[-1][1] == stride * k:
            axes[-1] = (axes[-1][0] * k, stride)  # two axes that lie evenly are one
        else:
            axes.append((k, stride))
    return maps.place(tuple(axes)), strides.get(group.scope[-1], 0), size


def _row(
    step: Step,
    place: int,
    separator: int,
    described: list[tuple[int, int, int, int, Group]],
    cards: Sequence[int],
) -> list[int]:
    """Return the columns of a step."""
    row = [0] * columns.HEADER
    row[columns.IS_PRODUCT] = int(len(described) == 2)
    row[columns.STATES] = cards[step.variable]
    row[columns.MESSAGE] = place
    row[columns.ROWS] = separator
    row[columns.IS_ROOT] = int(not step.separator)
    for at, (lies, start, size, length, group) in zip((columns.LEFT, columns.RIGHT), described, strict=False):
        row[at] = lies
        row[at + columns.ITEMS] = start
        row[at + columns.COUNT] = len(group.items)
        row[at + columns.CELLS] = size
        row[at + columns.IS_ALIAS] = int(group.is_alias)
        row[at + columns.LENGTH] = length
    row[columns.SHARED], row[columns.OUTER], row[columns.INNER] = step.shape
    if len(described) == 2:
        row[columns.LEFT_TURNED] = int(described[0][4].is_transposed)
        row[columns.RIGHT_TURNED] = int(described[1][4].is_transposed)
    return row


def memory_of_steps(tree: BucketTree, steps: Sequence[Step]) -> tuple[int, int]:
    """Return the bytes of one evaluation with one product Σv, and multiplications; nothing is allocated."""
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
            multiplications += 3 * separator * cards[step.variable]
    vectors = tree.layout.size + messages
    floats = 5 * vectors + 3 * tables + 3 * largest_message + 3 * largest_group
    return 8 * floats + 4 * maps, multiplications
