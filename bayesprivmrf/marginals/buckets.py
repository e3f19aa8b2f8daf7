"""The tree of buckets that an elimination order makes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bayesprivmrf.marginals.layout import Layout
from bayesprivmrf.marginals.ordering import elimination_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Factors and messages that are multiplied and summed when one variable is eliminated.

    Attributes
    ----------
    variable : int
        The variable summed out.
    factors : tuple of int
        Factors that meet their first eliminated variable here.
    children : tuple of int
        Buckets whose messages arrive here.
    separator : tuple of int
        Variables of the message that leaves, latest eliminated first.
    """

    variable: int
    factors: tuple[int, ...]
    children: tuple[int, ...]
    separator: tuple[int, ...]

    @property
    def scope(self) -> tuple[int, ...]:
        """All variables of the bucket, its own last."""
        return (*self.separator, self.variable)


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketTree:
    """Buckets in the order of elimination, children before their parents.

    Attributes
    ----------
    layout : Layout
        Variables and factors.
    reduced : tuple of tuple of int
        The factors' scopes without one-state variables; the flat order of cells is the same.
    buckets : tuple of Bucket
        One a variable that has several states and a factor.
    free : tuple of int
        Variables with several states in no factor: uniform.
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
        """Return the buckets of an order, by default of `elimination_order`."""
        cards = layout.cardinalities
        if order is None:
            order = elimination_order(cards, layout.scopes)
        place = {v: i for i, v in enumerate(order)}
        reduced = tuple(tuple(v for v in scope if cards[v] > 1) for scope in layout.scopes)
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
        """Log of the number of joint states of the variables in no factor."""
        return math.fsum(math.log(self.layout.cardinalities[v]) for v in self.free)
