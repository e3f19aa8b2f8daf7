"""How each bucket is summed: cell by cell, or as one product of matrices.

A bucket's items (potentials and messages) all contain its variable v. Either the table of their product is
made, cell by cell, and summed over v; or the items are split in two groups with products
L(shared, left, v) and R(shared, v, right), and the message is the matrix product
m(shared, left, right) = Σ_v L R, which never forms the table. Which is cheaper is told by a cost model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bayesprivmrf.marginals.ordering import BucketTree

# Rough nanoseconds, from timings of both kinds of step. On the models of benchmarks/models.py the choice is within
# 15 % of the better of all-cells and all-products, and beats both where kinds mix.
STEP = 60.0  # a step, whatever its size
CELL_ITEM = 1.1  # a cell, once an item, both sweeps
CELL = 2.5  # a cell, once
ROW_ITEM = 4.0  # a row of cells with common separator state, once an item
GROUP_CELL = 1.5  # making a group's table and spreading its marginal, a cell an item
GROUP_ROW = 3.0  # the same for a row, an item
MULTIPLY_VECTOR = 1.2  # three passes of multiply and add, when a group is a vector
MULTIPLY_SMALL = 2.0  # the same in plain loops
MULTIPLY_LARGE = 0.15  # the same through BLAS
BLAS_CALL = 400.0  # three calls
BLAS_FROM = 256  # multiplications from which a product goes through BLAS, here and in `products`
ENUMERATED = 6  # items whose splits are all tried
WORTH_SPLITTING = 48  # cells below which no split is tried


@dataclass(frozen=True, slots=True)
class Item:
    """A potential (``is_message`` false, source a factor) or a message (source a step)."""

    source: int
    is_message: bool
    scope: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Items multiplied into one table.

    Attributes
    ----------
    items : tuple of Item
        What is multiplied.
    scope : tuple of int
        Axes of the table, in storage order.
    is_alias : bool
        The table is the single item as it lies.
    is_transposed : bool
        The last two blocks of axes are stored in exchanged order.
    """

    items: tuple[Item, ...]
    scope: tuple[int, ...]
    is_alias: bool
    is_transposed: bool


@dataclass(frozen=True, slots=True)
class Step:
    """The elimination of one variable.

    Attributes
    ----------
    variable : int
        The variable summed out.
    separator : tuple of int
        Axes of the message, in storage order.
    groups : tuple of Group
        One group: cell by cell, axes (separator, variable). Two: a product.
    shape : tuple of int
        Sizes (shared, left, right) of the product.
    """

    variable: int
    separator: tuple[int, ...]
    groups: tuple[Group, ...]
    shape: tuple[int, int, int]


def plan_steps(tree: BucketTree, *, force: str | None = None) -> list[Step]:
    """Return a step for every bucket.

    Parameters
    ----------
    tree : BucketTree
        Buckets in the order of elimination.
    force : {"cells", "products"}, optional
        Take one kind wherever it is possible, whatever it costs; for tests.
    """
    cards = tree.layout.cardinalities
    separators: list[tuple[int, ...]] = []
    steps = []
    for bucket in tree.buckets:
        items = [Item(f, False, tree.reduced[f]) for f in bucket.factors]
        items += [Item(c, True, separators[c]) for c in bucket.children]
        step = _plan_step(bucket.variable, bucket.separator, items, cards, force)
        separators.append(step.separator)
        steps.append(step)
    return steps


def _plan_step(
    variable: int, separator: tuple[int, ...], items: list[Item], cards: Sequence[int], force: str | None
) -> Step:
    rows = math.prod(cards[v] for v in separator)
    cells = rows * cards[variable]
    best: tuple[list[Item], list[Item]] | None = None
    cost = STEP + len(items) * (10.0 + CELL_ITEM * cells + ROW_ITEM * rows) + CELL * cells
    if force == "products":
        cost = math.inf
    if force != "cells" and len(items) > 1 and (cells >= WORTH_SPLITTING or force):
        for split in _splits(items):
            rival = _product_cost(split, variable, cards)
            if rival < cost:
                best, cost = split, rival
    if best is None:
        separator = _ordered(separator, max(items, key=lambda item: _cells(item, cards)), separator)
        table = (*separator, variable)
        return Step(variable, separator, (Group(tuple(items), table, False, False),), (1, rows, 1))
    return _product(best, variable, separator, cards)


def _splits(items: list[Item]) -> Iterator[tuple[list[Item], list[Item]]]:
    """Yield the ways to split the items in two; where there are many, the most alike are joined first."""
    blocks = [([item], frozenset(item.scope)) for item in items]
    while len(blocks) > ENUMERATED:
        pairs = ((a, b) for b in range(len(blocks)) for a in range(b))
        a, b = min(pairs, key=lambda p: (len(blocks[p[0]][1] | blocks[p[1]][1]), p))
        joined = (blocks[a][0] + blocks[b][0], blocks[a][1] | blocks[b][1])
        blocks = [block for i, block in enumerate(blocks) if i not in (a, b)] + [joined]
    for code in range(1, 2 ** (len(blocks) - 1)):
        left = [item for i, block in enumerate(blocks) if code >> i & 1 for item in block[0]]
        right = [item for i, block in enumerate(blocks) if not code >> i & 1 for item in block[0]]
        yield left, right


def _sides(
    split: tuple[list[Item], list[Item]], variable: int
) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """Return the variables in both groups, in the first only, in the second only; without the one summed out."""
    first = frozenset(v for item in split[0] for v in item.scope) - {variable}
    second = frozenset(v for item in split[1] for v in item.scope) - {variable}
    return first & second, first - second, second - first


def _product_cost(split: tuple[list[Item], list[Item]], variable: int, cards: Sequence[int]) -> float:
    k = cards[variable]
    shared, left, right = (math.prod(cards[v] for v in side) for side in _sides(split, variable))
    cost = 2 * STEP
    for group, other in zip(split, (left, right), strict=True):
        table = shared * other * k
        handled = len(group) + 1 if len(group) > 1 else 0.5
        cost += 10.0 * len(group) + handled * (GROUP_CELL * table + GROUP_ROW * table / k)
    if left == 1 or right == 1:
        return cost + MULTIPLY_VECTOR * shared * left * right * k
    each = left * right * k
    if each < BLAS_FROM:
        return cost + shared * MULTIPLY_SMALL * each
    return cost + shared * (MULTIPLY_LARGE * each + BLAS_CALL)


def _product(
    split: tuple[list[Item], list[Item]], variable: int, separator: tuple[int, ...], cards: Sequence[int]
) -> Step:
    shared, left, right = _sides(split, variable)
    first, second = split
    if math.prod(cards[v] for v in right) == 1 < math.prod(cards[v] for v in left):
        first, second, left, right = second, first, right, left  # a vector is always the left factor
    leader = max((*first, *second), key=lambda item: _cells(item, cards))
    a = _ordered(shared, leader, separator)
    b = _ordered(left, max(first, key=lambda item: _cells(item, cards)), separator)
    c = _ordered(right, max(second, key=lambda item: _cells(item, cards)), separator)
    groups = (
        _group(first, (*a, *b, variable), (*a, variable, *b), cards),
        _group(second, (*a, variable, *c), (*a, *c, variable), cards),
    )
    sizes = [math.prod(cards[v] for v in part) for part in (a, b, c)]
    return Step(variable, (*a, *b, *c), groups, (sizes[0], sizes[1], sizes[2]))


def _cells(item: Item, cards: Sequence[int]) -> int:
    return math.prod(cards[v] for v in item.scope)


def _ordered(variables: Iterable[int], leader: Item, separator: tuple[int, ...]) -> tuple[int, ...]:
    """Return variables in the order of the largest item, so that it is read in place; others outermost."""
    place = {v: i for i, v in enumerate(leader.scope)}
    inside = set(variables)
    others = [v for v in separator if v in inside and v not in place]
    return (*others, *sorted((v for v in inside if v in place), key=place.__getitem__))


def _group(
    items: list[Item], natural: tuple[int, ...], transposed: tuple[int, ...], cards: Sequence[int]
) -> Group:
    """Return the group of some items; a single one is used where it lies if its axes allow it."""
    if len(items) == 1 and items[0].scope in (natural, transposed):
        return Group(tuple(items), items[0].scope, True, items[0].scope != natural)
    scope = min((natural, transposed), key=lambda axes: _unevenness(items, axes, cards))
    return Group(tuple(items), scope, False, scope != natural)


def _unevenness(items: list[Item], axes: tuple[int, ...], cards: Sequence[int]) -> float:
    """Return how many items are not contiguous along a row of the table, with a bonus for long rows."""
    last = axes[-1]
    total = 1.0 / cards[last]
    for item in items:
        if last in item.scope and item.scope[-1] != last:
            total += 1.0
    return total
