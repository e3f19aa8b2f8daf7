"""Buckets of variable elimination, and how to sum each most cheaply: cell by cell, or as one matrix product.

All items of a bucket (potentials and messages) contain its variable v. There are two ways to sum v out.

- Cell by cell: compute the table of the items' product, and sum it over v.
- As a matrix product: split the items into two groups with products L(shared, left, v) and R(shared, v, right). The
  message is m(shared, left, right) = Σ_v L R, and the table of all items is never stored.

A cost model chooses between them. Its numbers are rough nanoseconds from timings of both kinds of step. On the
models of ``benchmarks/models.py`` the choice is within 15 % of the better of all-cells and all-products, and better
than both where the kinds mix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bayesprivmrf.marginals.layout import Forecast, Layout, elimination_order
from bayesprivmrf.model.tables import DOUBLE

# multiplications from which a product is computed by BLAS, here and in `products`; by the timings of the cost model
BLAS_FROM = 256

# The cost model: rough nanoseconds, from timings of both kinds of step on one processor of 2026
_STEP = 60.0  # one step, or one group of a product
_ITEM = 10.0  # one item of a step
# cell by cell
_ITEM_CELL = 1.1  # one cell of an item
_ITEM_ROW = 4.0  # one row of an item
_CELL = 2.5  # one cell of the table
# as a product
_GROUP_CELL = 1.5  # one cell of a group's table, written or read
_GROUP_ROW = 3.0  # one row of it
_ALIAS = 0.5  # weight of a group with one item, which is read in place, in tables
_VECTOR_CELL = 1.2  # one multiplication with a vector, and those of its two adjoints
_LOOP_CELL = 2.0  # one multiplication by plain loops, the same
_BLAS_CELL = 0.15  # one multiplication by BLAS, the same
_BLAS_CALLS = 400.0  # three calls of BLAS
# cells below which no product is cheaper
_PRODUCT_FROM = 48
# blocks of items of which all splits into two groups are tried: 31 splits
_BLOCKS = 6

# copies that the NumPy engine stores for one product Σv: of the potentials, of each table, of each message
_POTENTIALS = 4
_TABLES = 3
_MESSAGES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Factors and messages that are multiplied and summed when one variable is eliminated.

    Attributes
    ----------
    variable : int
        The variable that is eliminated.
    factors : tuple of int
        Factors whose first eliminated variable is this one.
    children : tuple of int
        Buckets that send their messages to this one.
    separator : tuple of int
        Variables of the message that this bucket sends; the one eliminated last comes first.
    """

    variable: int
    factors: tuple[int, ...]
    children: tuple[int, ...]
    separator: tuple[int, ...]

    @property
    def scope(self) -> tuple[int, ...]:
        """All variables of the bucket, with its own variable last."""
        return (*self.separator, self.variable)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTree:
    """Buckets in the order of elimination, children before their parents.

    Attributes
    ----------
    layout : Layout
        Variables and factors.
    reduced : tuple of tuple of int
        Scopes of the factors without one-state variables; the order of cells is the same.
    buckets : tuple of Bucket
        One bucket for each variable with several states that is in a factor.
    free : tuple of int
        Variables with several states that are in no factor; their distribution is uniform.
    constants : tuple of int
        Factors with a single cell.
    """

    layout: Layout
    reduced: tuple[tuple[int, ...], ...]
    buckets: tuple[Bucket, ...]
    free: tuple[int, ...]
    constants: tuple[int, ...]

    @classmethod
    def build(cls, layout: Layout, order: Sequence[int] | None = None) -> BucketTree:
        """Return the buckets of an order, by default that of `elimination_order`.

        Variables that are not in the order count as if they had one state.
        """
        cards = layout.cardinalities
        if order is None:
            order = elimination_order(cards, layout.scopes)
        place = {v: i for i, v in enumerate(order)}
        reduced = tuple(tuple(v for v in scope if v in place) for scope in layout.scopes)
        factors: list[list[int]] = [[] for _ in order]
        for f, scope in enumerate(reduced):
            if scope:
                factors[min(place[v] for v in scope)].append(f)
        children: list[list[int]] = [[] for _ in order]
        separators: list[set[int]] = []
        buckets = []
        for i, variable in enumerate(order):
            inside: set[int] = set()
            for f in factors[i]:
                inside.update(reduced[f])
            for c in children[i]:
                inside |= separators[c]
            inside.discard(variable)
            separators.append(inside)
            if inside:
                children[min(place[v] for v in inside)].append(i)
            buckets.append(
                Bucket(
                    variable=variable,
                    factors=tuple(factors[i]),
                    children=tuple(children[i]),
                    separator=tuple(sorted(inside, key=lambda v: -place[v])),
                )
            )
        return cls(
            layout=layout,
            reduced=reduced,
            buckets=tuple(buckets),
            free=tuple(v for v, k in enumerate(cards) if k > 1 and v not in place),
            constants=tuple(f for f, scope in enumerate(reduced) if not scope),
        )

    @property
    def free_log_count(self) -> float:
        """Logarithm of the number of joint states of the variables in no factor."""
        return math.fsum(math.log(self.layout.cardinalities[v]) for v in self.free)


def array_forecast(tree: BucketTree) -> Forecast:
    """Return the cost if the table of every bucket is stored.

    Sampling and the NumPy engine store all of these tables; the compiled engine may not.
    """
    cards = tree.layout.cardinalities
    cells = [math.prod(cards[v] for v in bucket.scope) for bucket in tree.buckets]
    messages = sum(
        size // cards[bucket.variable] for size, bucket in zip(cells, tree.buckets, strict=True)
    )
    items = [len(bucket.factors) + len(bucket.children) for bucket in tree.buckets]
    return Forecast(
        treewidth=max((len(bucket.separator) for bucket in tree.buckets), default=0),
        largest_table=max(cells, default=1),
        total_cells=sum(cells),
        memory_bytes=DOUBLE
        * (_POTENTIALS * tree.layout.size + _TABLES * sum(cells) + _MESSAGES * messages),
        multiplications=sum(size * (count + 2) for size, count in zip(cells, items, strict=True)),
    )


@dataclass(frozen=True, slots=True)
class Item:
    """A potential or a message.

    Attributes
    ----------
    source : int
        Number of the factor, or of the step that sends the message.
    is_message : bool
        True for a message.
    scope : tuple of int
        Axes of its table, in storage order.
    """

    source: int
    is_message: bool
    scope: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Items multiplied into one table.

    Attributes
    ----------
    items : tuple of Item
        The items.
    scope : tuple of int
        Axes of the table, in storage order.
    is_alias : bool
        True if the table is a single item, read in place.
    is_transposed : bool
        True if the last two blocks of axes are stored in exchanged order.
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
        The variable that is summed out.
    separator : tuple of int
        Axes of the message, in storage order.
    groups : tuple of Group
        One group for a step that goes cell by cell, with axes (separator, variable); two for a product.
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
        Take one kind wherever possible, whatever its cost; for tests.
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
    variable: int,
    separator: tuple[int, ...],
    items: list[Item],
    cards: Sequence[int],
    force: str | None,
) -> Step:
    """Return the cheapest step that eliminates one variable."""
    rows = math.prod(cards[v] for v in separator)
    cells = rows * cards[variable]
    best: tuple[list[Item], list[Item]] | None = None
    of_an_item = _ITEM + _ITEM_CELL * cells + _ITEM_ROW * rows
    cost = _STEP + len(items) * of_an_item + _CELL * cells
    if force == "products":
        cost = math.inf
    if force != "cells" and len(items) > 1 and (cells >= _PRODUCT_FROM or force):
        for split in _splits(items):
            rival = _product_cost(split, variable, cards)
            if rival < cost:
                best = split
                cost = rival
    if best is None:
        separator = _ordered(separator, max(items, key=lambda item: _cells(item, cards)), separator)
        table = (*separator, variable)
        return Step(variable, separator, (Group(tuple(items), table, False, False),), (1, rows, 1))
    # The step that multiplies two groups, with axes ordered so that large items are read in place
    shared, left, right = _sides(best, variable)
    first, second = best
    if math.prod(cards[v] for v in right) == 1 < math.prod(cards[v] for v in left):
        # a vector is always the left factor
        first, second = second, first
        left, right = right, left
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


def _splits(items: list[Item]) -> Iterator[tuple[list[Item], list[Item]]]:
    """Yield the splits of the items into two groups.

    All splits of up to `_BLOCKS` items are tried. More items are first joined to as many blocks: again and again the
    two blocks whose union has the fewest variables.
    """
    blocks = [([item], frozenset(item.scope)) for item in items]
    while len(blocks) > _BLOCKS:
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
    """Return the variables in both groups, in the first only and in the second only, all without `variable`."""
    first = frozenset(v for item in split[0] for v in item.scope) - {variable}
    second = frozenset(v for item in split[1] for v in item.scope) - {variable}
    return first & second, first - second, second - first


def _product_cost(
    split: tuple[list[Item], list[Item]], variable: int, cards: Sequence[int]
) -> float:
    """Return the nanoseconds that a product of two groups takes."""
    k = cards[variable]
    shared, left, right = (math.prod(cards[v] for v in side) for side in _sides(split, variable))
    cost = 2 * _STEP
    # making each group's table and spreading its marginal: nanoseconds of an item, a cell and a row
    for group, other in zip(split, (left, right), strict=True):
        table = shared * other * k
        if len(group) > 1:
            handled = len(group) + 1
        else:
            handled = _ALIAS
        cost += _ITEM * len(group) + handled * (_GROUP_CELL * table + _GROUP_ROW * table / k)
    # the product and its two adjoints: a group that is a vector, plain loops, or three calls of BLAS
    if left == 1 or right == 1:
        return cost + _VECTOR_CELL * shared * left * right * k
    each = left * right * k
    if each < BLAS_FROM:
        return cost + shared * _LOOP_CELL * each
    return cost + shared * (_BLAS_CELL * each + _BLAS_CALLS)


def _cells(item: Item, cards: Sequence[int]) -> int:
    return math.prod(cards[v] for v in item.scope)


def _ordered(variables: Iterable[int], leader: Item, separator: tuple[int, ...]) -> tuple[int, ...]:
    """Return variables in their order in the scope of `leader`; variables that it lacks come first."""
    place = {v: i for i, v in enumerate(leader.scope)}
    inside = set(variables)
    others = [v for v in separator if v in inside and v not in place]
    return (*others, *sorted((v for v in inside if v in place), key=place.__getitem__))


def _group(
    items: list[Item], natural: tuple[int, ...], transposed: tuple[int, ...], cards: Sequence[int]
) -> Group:
    """Return the group of some items; a single item is read in place if its axes allow it."""
    if len(items) == 1 and items[0].scope in (natural, transposed):
        return Group(tuple(items), items[0].scope, True, items[0].scope != natural)
    scope = min((natural, transposed), key=lambda axes: _unevenness(items, axes, cards))
    return Group(tuple(items), scope, False, scope != natural)


def _unevenness(items: list[Item], axes: tuple[int, ...], cards: Sequence[int]) -> float:
    """Return the number of items not contiguous along a row of the table, plus one over the length of a row."""
    last = axes[-1]
    total = 1.0 / cards[last]
    for item in items:
        if last in item.scope and item.scope[-1] != last:
            total += 1.0
    return total
