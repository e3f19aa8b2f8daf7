r"""Joint tables of variables that share no factor, for many sets of potentials at once.

**Elimination.** With factors :math:`f_C(x_C) \ge 0` and the variables E that are not kept,

.. math:: t(x_K) = \sum_{x_E} \prod_C f_C(x_C),

is summed one variable at a time: the factors with that variable are multiplied, and their sum over it is a factor of
its neighbors. Every factor has a leading axis of draws, so that each step is one array operation for all draws. The
sums have no negative terms, and each is divided by its largest entry in a draw, so that no digit is lost and none
underflows. The result is divided by its sum, which makes all these scales cancel.

**Pruning.** Where the model is decomposable and the marginals :math:`\mu_C` of its cliques are known,
:math:`p(x) = \prod_C \mu_C / \prod_S \mu_S` along a junction tree with separators S. A clique with one neighbor in
the tree, none of whose own variables is asked for, sums to one given its separator and is left out. There remains
the part of the tree between the cliques of the asked variables, such as the path from the first clique of a chain to
the last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.checks import require_memory
from bayesprivmrf.marginals.layout import MEMORY_LIMIT, elimination_order
from bayesprivmrf.model.tables import FloatArray, project

# Largest array of an elimination for several draws together, in bytes; more draws are taken in parts. Arbitrary:
# larger arrays do not make steps faster, and leave the cache.
_PART = 2**25


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Factor:
    """Nonnegative function of some variables, in each draw.

    Parameters
    ----------
    scope
        Variables, by position.
    values
        Shape (draws, K_v for v in scope).
    """

    scope: tuple[int, ...]
    values: FloatArray


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Elimination:
    """Plan of the elimination of all variables but some.

    Parameters
    ----------
    keep
        Variables of the joint table, in the order of its axes.
    order
        Variables to sum out, first to last.
    largest
        Number of cells of the largest table, in one draw.
    """

    keep: tuple[int, ...]
    order: tuple[int, ...]
    largest: int

    @classmethod
    def of(
        cls, cardinalities: Sequence[int], scopes: Sequence[Sequence[int]], keep: Sequence[int]
    ) -> Elimination:
        """Return a plan for factors over some scopes, with a small largest table."""
        used = sorted({v for scope in scopes for v in scope})
        found = elimination_order(cardinalities, (*scopes, tuple(keep)))
        several = [v for v in found if v not in keep and v in used]
        # variables of one state are summed out last, where they cost nothing
        single = [v for v in used if v not in keep and v not in several]
        left = [set(scope) for scope in scopes]
        largest = math.prod(cardinalities[v] for v in keep)
        for v in several:
            joined = set[int]().union(*(scope for scope in left if v in scope))
            largest = max(largest, math.prod(cardinalities[u] for u in joined))
            left = [scope for scope in left if v not in scope] + [joined - {v}]
        return cls(keep=tuple(keep), order=(*several, *single), largest=largest)

    def require_memory(self, what: str, remedy: str) -> None:
        """Raise a ModelTooLargeError if one draw's largest table would not fit into memory."""
        require_memory(what, 8.0 * self.largest, remedy, MEMORY_LIMIT)

    def part(self, draws: int) -> int:
        """Return the number of draws that are taken together."""
        return max(1, min(draws, _PART // (8 * self.largest)))

    def joint(self, factors: Sequence[Factor]) -> FloatArray:
        """Return the joint table of the kept variables in each draw, with sums of 1; NaN where all factors are 0."""
        left = [_scaled(factor) for factor in factors]
        for v in self.order:
            mixed = [factor for factor in left if v in factor.scope]
            scope = tuple(dict.fromkeys(u for factor in mixed for u in factor.scope if u != v))
            left = [factor for factor in left if v not in factor.scope]
            left.append(_scaled(_contracted(mixed, scope)))
        table = _contracted(left, self.keep).values
        sums = table.sum(axis=tuple(range(1, table.ndim)), keepdims=True)
        with np.errstate(invalid="ignore"):
            return table / sums


def between(
    scopes: Sequence[Sequence[int]],
    parents: Sequence[int],
    asked: Sequence[int],
) -> dict[int, int]:
    """Return the cliques between those of the asked variables, each with its parent among them, or -1.

    Parameters
    ----------
    scopes, parents
        Cliques, and their parents in a junction forest; -1 for a root.
    asked
        Variables, by position.

    Examples
    --------
    >>> between([(0, 1), (1, 2), (2, 3)], [-1, 0, 1], [1])
    {0: -1}
    """
    wanted = set(asked)
    kept = dict(enumerate(parents))
    neighbors: dict[int, set[int]] = {clique: set() for clique in kept}
    for clique, above in kept.items():
        if above >= 0:
            neighbors[clique].add(above)
            neighbors[above].add(clique)
    # a clique alone in its tree has no separator, so that all its variables are its own
    waiting = list(kept)
    while waiting:
        clique = waiting.pop()
        if clique not in kept or len(neighbors[clique]) > 1:
            continue
        others = list(neighbors[clique])
        shared = set[int]().union(*(scopes[other] for other in others))
        if wanted & (set(scopes[clique]) - shared):
            continue
        if not others and wanted & set(scopes[clique]):
            continue
        del kept[clique]
        for other in others:
            neighbors[other].discard(clique)
            waiting.append(other)
    return {clique: above if above in kept else -1 for clique, above in kept.items()}


def conditional_factors(
    scopes: Sequence[tuple[int, ...]],
    tables: Mapping[int, FloatArray],
    parents: Mapping[int, int],
) -> list[Factor]:
    """Return each clique's marginal table over that of its separator, which multiply to the distribution.

    Parameters
    ----------
    scopes
        Variables of each clique.
    tables
        Marginal table of each clique between the asked ones, shape (draws, K_v for v in scope).
    parents
        Parent of each of these cliques; -1 for a root.
    """
    factors = []
    for clique, above in parents.items():
        scope = scopes[clique]
        values = tables[clique]
        if above >= 0:
            shared = [v for v in scope if v in scopes[above]]
            below = project(values, scope, shared)
            shape = [values.shape[1 + axis] if v in shared else 1 for axis, v in enumerate(scope)]
            below = below.reshape(len(values), *shape)
            values = np.divide(values, below, out=np.zeros_like(values), where=below > 0)
        factors.append(Factor(scope=scope, values=values))
    return factors


def restricted(
    factors: Sequence[Factor],
    cardinalities: Sequence[int],
    given: Mapping[int, Sequence[int]],
) -> list[Factor]:
    """Return the factors with indicators of the states that are given."""
    indicators = []
    for v, codes in given.items():
        values = np.zeros((1, cardinalities[v]))
        values[0, list(codes)] = 1.0
        indicators.append(Factor(scope=(v,), values=values))
    return [*factors, *indicators]


def _scaled(factor: Factor) -> Factor:
    """Return the factor divided by its largest entry in each draw."""
    largest = factor.values.max(axis=tuple(range(1, factor.values.ndim)), keepdims=True)
    values = np.divide(factor.values, largest, out=np.zeros_like(factor.values), where=largest > 0)
    return Factor(scope=factor.scope, values=values)


def _contracted(factors: Sequence[Factor], scope: tuple[int, ...]) -> Factor:
    """Return the product of some factors, summed over all variables but those of a scope."""
    left = sorted(factors, key=lambda factor: factor.values.size)
    while len(left) > 2:
        first, second, *rest = left
        joined = tuple(dict.fromkeys((*first.scope, *second.scope)))
        left = sorted([*rest, _product([first, second], joined)], key=lambda f: f.values.size)
    return _product(left, scope)


def _product(factors: Sequence[Factor], scope: tuple[int, ...]) -> Factor:
    """Return the product of at most two factors, summed over all variables but those of a scope."""
    # einsum numbers its axes: 0 for the draws, then the variables
    used = dict.fromkeys(v for factor in factors for v in factor.scope)
    axes = {v: number for number, v in enumerate(used, start=1)}
    operands: list[object] = []
    for factor in factors:
        operands += [factor.values, [0, *(axes[v] for v in factor.scope)]]
    values = np.einsum(*operands, [0, *(axes[v] for v in scope)])  # type: ignore[call-overload]
    return Factor(scope=scope, values=values)
