r"""Means, covariances and tables of a log-linear model, by one of three methods with the same methods.

In the orthonormal zero-sum coordinates of `bayesprivmrf.model.effects` a model is
:math:`\log p(x) = \beta^\top \phi(x) - A(\beta)`. Each fit of such a model asks for its log partition :math:`A`, the
means :math:`\mu = E \phi = \nabla A` and the covariance :math:`\Sigma = \nabla^2 A` of one record's effects.

- *Listing* holds the probabilities of all configurations. Effects are entries of their transform.
- *Elimination* computes exact marginals of the cliques (`bayesprivmrf.marginals`).
- *Gibbs sampling* estimates means and covariance from the same draws, for graphs too wide to eliminate.

With exact means, a covariance that would take too many operations is estimated from exact draws of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, reduce
from itertools import combinations
from typing import Literal, Protocol

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.loglinear_fit.sampled import (
    NOTHING_FIXED,
    Fixed,
    GibbsMoments,
    Scope,
    drawn_covariance,
    features_of,
)
from bayesprivmrf.marginals import clamped, forecast, marginal_engine, marginal_of, sample
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray, IntArray

type Product = Callable[[FloatArray], FloatArray]
"""The product of a vector with a matrix."""

type MomentsMethod = Literal["exact", "gibbs"]


class Moments(Protocol):
    """Means and covariances of a model's effects, as a fit needs them."""

    @property
    def has_means(self) -> bool:
        """True if means are exact."""
        ...

    @property
    def has_covariance(self) -> bool:
        """True if covariances are exact."""
        ...

    def means(self, beta: FloatArray, /) -> tuple[float, FloatArray]:
        """Return the log partition (NaN if it is not known), and the means of all effects, shape (d,)."""
        ...

    def expanded(self, beta: FloatArray, /) -> tuple[FloatArray, FloatArray]:
        """Return the means, shape (d,), and the covariance, shape (d, d)."""
        ...

    def is_mixed(self, beta: FloatArray, /) -> bool:
        """Return True if means at these coordinates can be trusted."""
        ...


# Configurations up to which all are listed: with many overlapping tables that is several times as fast
MOST_CONFIGURATIONS = 1 << 17

# Configurations of two-state variables that are listed where covariances are needed: always, and where elimination
# takes more operations. Listing them makes the covariance exact.
_MOST_EXPANDED, _MOST_LISTED = 1 << 18, 1 << 24

# Multiplications up to which a covariance is exact: about as long as the draws take that replace it
LARGEST_COVARIANCE_WORK = 3e7

# Draws for a covariance: the limits, and for each coordinate. A matrix of d coordinates from n draws has a relative
# error of about sqrt(d / n) in its smallest directions.
_FEWEST_DRAWS, _MOST_DRAWS, _DRAWS_EACH = 5_000, 20_000, 20


# Configurations of the variables that are transformed by one matrix: a BLAS product of that size is efficient
_BLOCK = 32


def moments_of(effects: Effects, generator: np.random.Generator | None = None) -> ExactMoments:
    """Return the exact moments of a model, by the cheaper method.

    Parameters
    ----------
    effects
        The model's coordinates.
    generator
        Generator of the draws for covariances that are too costly; None where no covariance is needed.

    Raises
    ------
    ModelTooLargeError
        No method fits in memory.
    """
    configurations = math.prod(effects.cardinalities)
    is_expanded = generator is not None and max(effects.cardinalities, default=1) <= 2
    if generator is not None and not is_expanded:
        return Eliminated(effects, generator)
    if configurations <= (_MOST_EXPANDED if is_expanded else MOST_CONFIGURATIONS):
        return Listed(effects)
    if is_expanded and configurations <= _MOST_LISTED:
        try:
            is_cheaper = (
                forecast(effects.cardinalities, effects.scopes).multiplications < configurations
            )
        except ModelTooLargeError:
            is_cheaper = False
        if not is_cheaper:
            return Listed(effects)
    return Eliminated(effects, generator)


def moments_by(
    inference: MomentsMethod, effects: Effects, generator: np.random.Generator
) -> Moments:
    """Return the moments of a model by exact inference or by Gibbs sampling, with draws of a generator."""
    if inference == "exact":
        return moments_of(effects, generator)
    return GibbsMoments(effects, generator)


def margin(table: FloatArray, scope: Scope, subset: Scope) -> FloatArray:
    """Return the margin of a table of ascending variables on some of them, ascending."""
    return table.sum(axis=tuple(a for a, v in enumerate(scope) if v not in set(subset)))


def _regular(covariance: FloatArray) -> FloatArray:
    """Return a covariance that stays positive definite despite rounding."""
    found = (covariance + covariance.T) / 2
    # rounding may leave an exact covariance indefinite
    found[np.diag_indices_from(found)] += 1e-12
    return found


def _multiplied(means: FloatArray, product: Product) -> tuple[FloatArray, FloatArray]:
    """Return means, and the covariance that multiplies a vector."""
    return means, _regular(np.array([product(row) for row in np.eye(len(means))]))


class Eliminated:
    """Moments by exact inference; covariances by its derivatives, or from exact draws where those are too many.

    Parameters
    ----------
    effects, generator
        See `moments_of`.
    fixed
        Further potentials, which are known.
    """

    has_means = True

    def __init__(
        self,
        effects: Effects,
        generator: np.random.Generator | None = None,
        fixed: Fixed = NOTHING_FIXED,
    ) -> None:
        self._effects = effects
        self._generator = generator
        self._fixed = fixed
        self._scopes = (*fixed.scopes, *effects.scopes)
        self._engine = marginal_engine(effects.cardinalities, self._scopes)

    @property
    def has_covariance(self) -> bool:
        """True if covariances are exact, and not estimated from draws: one product a coordinate is little work."""
        return self._is_little_work

    @cached_property
    def _is_little_work(self) -> bool:
        multiplications = forecast(self._effects.cardinalities, self._scopes).multiplications
        return multiplications * self._effects.size <= LARGEST_COVARIANCE_WORK

    def _potentials(self, beta: FloatArray) -> FloatArray:
        return np.concatenate([self._fixed.potentials, self._effects.potentials(beta)])

    def _pulled(self, flat: FloatArray) -> FloatArray:
        return self._effects.pull_back(flat[self._fixed.potentials.size :])

    def means(self, beta: FloatArray) -> tuple[float, FloatArray]:
        """Return the log partition and the means of all effects."""
        log_partition, found = self._engine.marginals(self._potentials(beta))
        return float(log_partition), self._pulled(found)

    def linearized(self, beta: FloatArray) -> tuple[FloatArray, Product]:
        """Return the means, and a function that multiplies a vector by the covariance."""
        _, found, product = self._engine.linearize(self._potentials(beta))
        still = np.zeros(self._fixed.potentials.size)

        def times(v: FloatArray) -> FloatArray:
            return self._pulled(product(np.concatenate([still, self._effects.potentials(v)])))

        return self._pulled(found), times

    def expanded(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the means and the covariance."""
        if self.has_covariance:
            return _multiplied(*self.linearized(beta))
        assert self._generator is not None
        draws = int(np.clip(_DRAWS_EACH * self._effects.size, _FEWEST_DRAWS, _MOST_DRAWS))
        cards = self._effects.cardinalities
        potentials = self._potentials(beta)
        codes = sample(cards, self._scopes, potentials, draws, self._generator)
        return self.means(beta)[1], drawn_covariance(features_of(self._effects)(codes))

    def is_mixed(self, beta: FloatArray) -> bool:
        """Return True: exact means need no chains."""
        return True

    def tables(self, beta: FloatArray, scopes: Sequence[Scope]) -> list[FloatArray]:
        """Return probabilities of any scopes.

        A clique's are a margin of it. For others, one or two variables are held at each of their states, so that a
        clique has the rest: a pass for each state serves all scopes that need the same variables held.
        """
        potentials = self._potentials(beta)
        whole, flat = self._engine.marginals(potentials)
        found = {scope: held for scope in scopes if (held := self._held(flat, scope)) is not None}
        waiting: dict[Scope, list[Scope]] = {}
        for scope in dict.fromkeys(scopes):
            if scope not in found:
                waiting.setdefault(self._opening(scope), []).append(scope)
        cards = self._effects.cardinalities
        for fixed, group in waiting.items():
            # eight passes over a planned model take less time than to plan it anew for one table
            if not fixed or math.prod(cards[v] for v in fixed) > 8 * len(group):
                for scope in group:
                    found[scope] = marginal_of(cards, self._scopes, potentials, scope)
                continue
            found |= {scope: np.zeros([cards[v] for v in scope]) for scope in group}
            for states in np.ndindex(*(cards[v] for v in fixed)):
                at = clamped(cards, self._scopes, potentials, dict(zip(fixed, states, strict=True)))
                log_partition, flat = self._engine.marginals(at)
                share = math.exp(log_partition - whole)
                for scope in group:
                    rest = self._held(flat, tuple(v for v in scope if v not in fixed))
                    assert rest is not None
                    place = tuple(
                        states[fixed.index(v)] if v in fixed else slice(None) for v in scope
                    )
                    found[scope][place] = share * rest
        return [found[scope] for scope in scopes]

    def _held(self, flat: FloatArray, scope: Scope) -> FloatArray | None:
        """Return the table of a scope from the cliques' tables; None if no clique contains the scope."""
        home = self._home(scope)
        if home is None:
            return None
        clique = self._scopes[home]
        shape = [self._effects.cardinalities[v] for v in clique]
        return margin(
            flat[slice(*self._engine.offsets[home : home + 2])].reshape(shape), clique, scope
        )

    def _home(self, scope: Scope) -> int | None:
        """Return the first clique that contains a scope."""
        return min(set.intersection(*(self._cliques[v] for v in scope)), default=None)

    @cached_property
    def _cliques(self) -> list[set[int]]:
        """Positions of the cliques of each variable."""
        found: list[set[int]] = [set() for _ in self._effects.cardinalities]
        for position, clique in enumerate(self._scopes):
            for v in clique:
                found[v].add(position)
        return found

    def _opening(self, scope: Scope) -> Scope:
        """Return the fewest variables, with fewest states, whose removal puts a scope in a clique; () if over two."""
        cards = self._effects.cardinalities
        for size in (1, 2):
            fitting = [
                fixed
                for fixed in combinations(scope, size)
                if size < len(scope)
                and self._home(tuple(v for v in scope if v not in fixed)) is not None
            ]
            if fitting:
                return min(fitting, key=lambda fixed: math.prod(cards[v] for v in fixed))
        return ()


class Listed:
    """Moments by the table of all configurations; effects are entries of its transform, block after block of axes."""

    has_means = True
    has_covariance = True

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._shape, self._matrices = _blocks(effects.cardinalities)

    @cached_property
    def _places(self) -> IntArray:
        cards = self._effects.cardinalities
        strides = np.append(np.cumprod(cards[::-1])[::-1][1:], 1)
        found = [np.zeros(0, dtype=np.int64)]
        for subset in self._effects.subsets:
            at = np.zeros(1, dtype=np.int64)
            for v in subset:
                at = np.add.outer(at, strides[v] * np.arange(1, cards[v])).ravel()
            found.append(at)
        return np.concatenate(found)

    @cached_property
    def _products(self) -> tuple[IntArray, FloatArray]:
        """Position and factor of the product of every two effects of two-state variables, shape (d, d)."""
        rows = self._places[:, np.newaxis]
        return rows ^ self._places, 0.5 ** np.bitwise_count(rows & self._places)

    def _logs(self, beta: FloatArray) -> FloatArray:
        inner = np.zeros(math.prod(self._shape))
        inner[self._places] = beta
        return _transformed(inner, self._shape, self._matrices)

    def _back(self, joint: FloatArray) -> FloatArray:
        """Return the inner products of a table with each effect."""
        return _transformed(joint, self._shape, [matrix.T for matrix in self._matrices])[
            self._places
        ]

    def _probabilities(self, beta: FloatArray) -> tuple[float, FloatArray]:
        logs = self._logs(beta)
        top = float(logs.max())
        weights = np.exp(logs - top)
        total = float(weights.sum())
        return top + math.log(total), weights / total

    def means(self, beta: FloatArray) -> tuple[float, FloatArray]:
        """Return the log partition and the means of all effects."""
        log_partition, joint = self._probabilities(beta)
        return log_partition, self._back(joint)

    def linearized(self, beta: FloatArray) -> tuple[FloatArray, Product]:
        """Return the means, and a function that multiplies a vector by the covariance."""
        joint = self._probabilities(beta)[1]

        def product(direction: FloatArray) -> FloatArray:
            change = self._logs(direction)  # of log-probabilities, up to their mean
            return self._back(joint * (change - joint @ change))

        return self._back(joint), product

    def expanded(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        r"""Return the means and the covariance.

        Of two states :math:`\phi_v^2 = 1/2`, so that :math:`\phi_I \phi_J = 2^{-|I \cap J|} \phi_{I \triangle J}`
        with the symmetric difference: one transform holds all second moments.
        """
        if max(self._effects.cardinalities, default=1) > 2:
            return _multiplied(*self.linearized(beta))
        joint = self._probabilities(beta)[1]
        (both, halves) = self._products
        everything = _transformed(joint, self._shape, [matrix.T for matrix in self._matrices])
        means = everything[self._places]
        return means, _regular(everything[both] * halves - np.multiply.outer(means, means))

    def is_mixed(self, beta: FloatArray) -> bool:
        """Return True: exact means need no chains."""
        return True

    def tables(self, beta: FloatArray, scopes: Sequence[Scope]) -> list[FloatArray]:
        """Return probabilities of any scopes."""
        cards = self._effects.cardinalities
        joint = self._probabilities(beta)[1].reshape(cards)
        everything = tuple(range(len(cards)))
        return [margin(joint, everything, scope) for scope in scopes]


type ExactMoments = Listed | Eliminated
"""Exact means, with products and tables."""


def _blocks(cardinalities: Sequence[int]) -> tuple[tuple[int, ...], Sequence[FloatArray]]:
    """Return the joint table's shape by blocks of neighbouring variables, and the matrix [1 | Q] of each block."""
    blocks: list[list[int]] = [[]]
    for k in cardinalities:
        if blocks[-1] and math.prod(blocks[-1]) * k > _BLOCK:
            blocks.append([])
        blocks[-1].append(k)
    matrices = [
        np.asarray(
            reduce(np.kron, [np.column_stack([np.ones(k), contrasts(k)]) for k in block]),
            dtype=float,
        )
        for block in blocks
    ]
    return tuple(len(matrix) for matrix in matrices), matrices


def _transformed(
    values: FloatArray, shape: tuple[int, ...], matrices: Sequence[FloatArray]
) -> FloatArray:
    table = values.reshape(shape)
    for matrix in matrices:  # each step moves the first axis to the end
        table = np.tensordot(table, matrix, axes=(0, 1))
    return table.ravel()
