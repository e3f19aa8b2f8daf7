r"""Orthonormal zero-sum (ANOVA) coordinates of a hierarchical log-linear model.

Potentials on overlapping cliques are not unique: many of them give the same distribution. Every log-linear model over
cliques has, up to its constant, exactly one expansion

.. math:: \log p(x) = -A + \sum_S e_S(x_S), \qquad \sum_{x_v} e_S(x_S) = 0 \text{ for each } v ∈ S,

where S runs over the non-empty subsets of the cliques: main effects, interactions of pairs, and so on. With an
orthonormal basis :math:`Q_v` (:math:`K_v × (K_v - 1)`, columns of sum zero) of each variable's contrasts,

.. math:: e_S = \Bigl(\bigotimes_{v ∈ S} Q_v\Bigr) β_S, \qquad \lVert e_S \rVert = \lVert β_S \rVert,

The number of coordinates β is the number of parameters of the model. An isotropic normal prior on β does not depend
on the choice of the basis. The library uses Helmert's basis: column j compares state j with the mean of the states
before it.

The potentials of one clique are :math:`(\bigotimes_v [1 \mid Q_v])\, b`, where b has one entry for each cell of the
clique. An entry whose index is 0 for some variables is a coordinate of the effect of the other variables. Applied
axis by axis, this product takes :math:`O(\text{cells} · \sum_v K_v)` steps, for any number of subsets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesprivmrf.checks import require_memory
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.tables import FloatArray, IntArray, subsets

type Scope = tuple[int, ...]

# Largest number of entries up to which one sparse matrix is faster than array operations on cliques of one shape
_SPARSE = 60_000

# Number of states up to which the dense basis is faster than running sums; both agree up to rounding
_DENSE = 256


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Effects:
    """Linear map between zero-sum coordinates β and the potentials of cliques.

    `Effects.of` makes the map of all potentials of some cliques, `bayesprivmrf.model.ties.coordinates_of` that of a
    model whose potentials are restricted.

    Parameters
    ----------
    cardinalities, scopes
        Number of states of each variable, and variable positions of each clique in the order of its axes.
    subsets
        Variables of each effect as ascending positions, ordered by size and then lexicographically. A subset with a
        variable of a single state has no coordinate and is left out.
    offsets
        Effect k has the coordinates ``offsets[k]:offsets[k + 1]``, in C order of the contrasts of its variables.
    orders
        Number of variables of each coordinate's effect, shape (d,).
    kinds
        Label of each coordinate's prior scale, shape (d,): its order, or its order and part as text.
    cells
        Number of cells of all cliques together.
    matrix
        Sparse matrix M of the coordinates b = M β without restrictions, shape (coordinates b, d); None if there are
        none.
    """

    cardinalities: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    subsets: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]
    orders: IntArray
    kinds: NDArray[Any]
    cells: int
    _member: IntArray  # coordinate of each entry of b; d for the constant and for entries without an effect
    _mean: FloatArray  # 1 / (number of cells in the mean) for each entry of b
    _home: IntArray  # entry of b for each coordinate
    # each shape of a clique's table, and the cells of all cliques of that shape
    _groups: tuple[tuple[tuple[int, ...], IntArray], ...]
    # the map and its transpose as sparse matrices, if they are faster
    _matrices: tuple[Any, Any] | None
    matrix: Any = None
    _full: Effects | None = None  # the coordinates b; None if these are they

    @classmethod
    def of(cls, cardinalities: Iterable[int], scopes: Iterable[Iterable[int]]) -> Effects:
        """Return the coordinates of a model; recent results are cached.

        Parameters
        ----------
        cardinalities
            Number of states of each variable, at least 1.
        scopes
            Variable positions of each clique, in the order of its table's axes. Cliques may repeat or nest.

        Examples
        --------
        >>> effects = Effects.of([2, 3], [(0, 1)])
        >>> effects.subsets, effects.size
        (((0,), (1,), (0, 1)), 5)
        """
        return built_effects(
            tuple(map(int, cardinalities)), tuple(tuple(map(int, each)) for each in scopes)
        )

    @property
    def size(self) -> int:
        """Number of coordinates d: the free parameters of the model."""
        return self.offsets[-1]

    @property
    def full(self) -> Effects:
        """Coordinates of the model without restrictions."""
        if self._full is None:
            return self
        return self._full

    @property
    def entry_cells(self) -> IntArray:
        """Cell at which each coordinate b enters the tables that are multiplied by [1 | Q] along their axes."""
        return self._home

    @cached_property
    def _transposed(self) -> Any:
        return self.matrix.T.tocsr()

    @cached_property
    def _solve(self) -> Any:
        from scipy.sparse.linalg import splu

        if not self.size:
            return np.copy
        return splu((self._transposed @ self.matrix).tocsc()).solve

    def untied(self, beta: FloatArray) -> FloatArray:
        """Return the coordinates of the model without restrictions, shape (..., d) to (..., coordinates b)."""
        given = _checked("beta", beta, self.size)
        if self.matrix is None:
            return given
        return times_rows(self.matrix, given)

    def missed(self, potentials: FloatArray) -> float:
        """Return the largest deviation of b, for potentials of shape (cells,), from a model so restricted."""
        b = self.full.coordinates(potentials)
        return float(np.abs(b - self.untied(self.coordinates(potentials))).max(initial=0.0))

    def potentials(self, beta: FloatArray) -> FloatArray:
        """Return the potentials of all cliques, with each effect in the first clique that contains it.

        Coordinates have the shape (..., d), potentials (..., cells): clique after clique, each in C order; both nats.
        """
        given = self.untied(beta)
        if self._matrices is not None:
            return times_rows(self._matrices[0], given)
        inner = np.zeros((*given.shape[:-1], self.cells))
        inner[..., self._home] = given
        return self._transformed(inner, transposed=False)

    def pull_back(self, flat: FloatArray) -> FloatArray:
        """Apply the transpose of `potentials`.

        A gradient in the potentials, shape (..., cells), becomes one in β, shape (..., d).
        """
        given = _checked("flat", flat, self.cells)
        if self._matrices is not None:
            found = times_rows(self._matrices[1], given)
        else:
            found = self._transformed(given, transposed=True)[..., self._home]
        if self.matrix is None:
            return found
        return times_rows(self._transposed, found)

    def coordinates(self, potentials: FloatArray) -> FloatArray:
        """Return the coordinates of the distribution with given potentials.

        Parameters
        ----------
        potentials
            Potentials, shape (..., cells), nats, finite.

        Returns
        -------
        ndarray
            Coordinates, shape (..., d), nats. Their potentials may differ from the given ones, but give the same
            distribution. In a restricted model, they are the nearest in the norm of b, for potentials (cells,).
        """
        if self.matrix is not None:
            return self._solve(self._transposed @ self.full.coordinates(potentials))
        flat = _checked("potentials", potentials, self.cells)
        if not np.isfinite(flat).all():
            raise ModelError(
                "`potentials` must be finite; replace those of structural zeros first."
            )
        lead = flat.shape[:-1]
        width = self.size + 1
        inner = self._transformed(flat, transposed=True) * self._mean
        # effects add up over the cliques that contain them; entries without an effect fall into the last bin
        places = self._member + width * np.arange(math.prod(lead))[:, np.newaxis]
        sums = np.bincount(places.ravel(), weights=inner.ravel(), minlength=width * len(places))
        return sums.reshape(*lead, width)[..., : self.size]

    def margins(self, beta: FloatArray) -> FloatArray:
        """Return tables of sum zero that agree on every shared margin, shape (..., d) to (..., cells).

        This is the transpose of `coordinates`, where there are no restrictions. Each effect is spread evenly over the
        cells of all cliques that contain it.
        """
        given = _checked("beta", beta, self.size)
        padded = np.concatenate([given, np.zeros((*given.shape[:-1], 1))], axis=-1)
        return self._transformed(padded[..., self._member] * self._mean, transposed=False)

    def tables(self, beta: FloatArray) -> list[FloatArray]:
        """Return the effect tables e_S, nats, shape (..., d) to (..., K_v for v in S).

        They are in the order of `full.subsets`, and sum to zero along each of their axes.
        """
        given = self.untied(beta)
        lead = given.shape[:-1]
        result = []
        for subset, start, stop in zip(
            self.full.subsets, self.full.offsets, self.full.offsets[1:], strict=False
        ):
            table = given[..., start:stop].reshape(
                *lead, *(self.cardinalities[v] - 1 for v in subset)
            )
            for axis in range(len(lead), len(lead) + len(subset)):
                moved = table.swapaxes(axis, -1)
                moved = np.concatenate([np.zeros((*moved.shape[:-1], 1)), moved], axis=-1)
                table = _from_basis(moved).swapaxes(axis, -1)
            result.append(table)
        return result

    def _transformed(self, values: FloatArray, *, transposed: bool) -> FloatArray:
        """Apply the Kronecker product of [1 | Q], or its transpose, to the tables of every clique."""
        result = np.empty_like(values)
        lead = values.shape[:-1]
        for shape, cells in self._groups:
            count = math.prod(lead) * (len(cells) // math.prod(shape))
            tables = values[..., cells].reshape(count, *shape)
            for axis in range(1, 1 + len(shape)):
                moved = tables.swapaxes(axis, -1)
                tables = (_to_basis(moved) if transposed else _from_basis(moved)).swapaxes(axis, -1)
            result[..., cells] = tables.reshape(*lead, len(cells))
        return result

    def __repr__(self) -> str:
        return f"Effects({len(self.subsets)} effects, {self.size} coordinates, {self.cells} cells)"


@lru_cache(maxsize=256)
def contrasts(states: int) -> FloatArray:
    """Return Helmert's orthonormal contrasts as a read-only array, shape (K, K - 1); each column sums to zero.

    Examples
    --------
    >>> contrasts(2).round(3).tolist()
    [[-0.707], [0.707]]
    """
    # a dense basis of 16,000 states takes 2 GiB
    require_memory(
        f"the contrasts of {states:,} states", 8.0 * states**2, "declare fewer states", 2**31
    )
    basis = np.zeros((states, states - 1))
    for j in range(1, states):
        basis[:j, j - 1] = -1.0
        basis[j, j - 1] = j
        basis[:, j - 1] /= math.sqrt(j * (j + 1))
    basis.flags.writeable = False
    return basis


@lru_cache(maxsize=256)
def _with_constant(states: int) -> FloatArray:
    """Return the matrix [1 | Q], shape (K, K)."""
    return np.column_stack([np.ones(states), contrasts(states)])


def _from_basis(inner: FloatArray) -> FloatArray:
    r"""Return [1 | Q] times each vector c along the last axis, shape (..., K).

    With :math:`u_j = c_j / \sqrt{j (j + 1)}`, entry i of the product is :math:`c_0 + i u_i - \sum_{j > i} u_j`.
    Running sums take O(K) steps, while the dense product takes O(K²).
    """
    states = inner.shape[-1]
    if states <= _DENSE:
        return inner @ _with_constant(states).T
    scaled = inner[..., 1:] / _lengths(states)
    later = np.flip(np.cumsum(np.flip(scaled, axis=-1), axis=-1), axis=-1)  # sums over j >= i
    outer = np.empty_like(inner)
    outer[..., 0] = inner[..., 0] - later[..., 0]
    outer[..., 1:] = inner[..., :1] + np.arange(2.0, states + 1) * scaled - later
    return outer


def _to_basis(outer: FloatArray) -> FloatArray:
    r"""Return the transpose of [1 | Q] times each vector y along the last axis, shape (..., K).

    Coordinate 0 is the sum of y. Coordinate j is :math:`(j y_j - \sum_{i < j} y_i) / \sqrt{j (j + 1)}`.
    """
    states = outer.shape[-1]
    if states <= _DENSE:
        return outer @ _with_constant(states)
    sums = np.cumsum(outer, axis=-1)
    inner = np.empty_like(outer)
    inner[..., 0] = sums[..., -1]
    inner[..., 1:] = (np.arange(1.0, states) * outer[..., 1:] - sums[..., :-1]) / _lengths(states)
    return inner


@lru_cache(maxsize=16)
def _lengths(states: int) -> FloatArray:
    """Return the norms of Helmert's contrasts before normalization, shape (K - 1,)."""
    steps = np.arange(1.0, states)
    return np.sqrt(steps * (steps + 1))


@lru_cache(maxsize=32)
def built_effects(cardinalities: Scope, scopes: tuple[Scope, ...]) -> Effects:
    """Return the effects of some cliques; recent results are cached."""
    # coordinates are ordered by effect
    effects = subsets_inside(cardinalities, scopes)[1:]
    sizes = [math.prod(cardinalities[v] - 1 for v in subset) for subset in effects]
    offsets = (0, *np.cumsum(sizes, dtype=int).tolist())
    member, mean = _members(
        cardinalities, scopes, dict(zip(effects, offsets, strict=False)), offsets[-1]
    )
    # each effect is in the first clique that contains it
    home = np.full(offsets[-1] + 1, len(member))
    np.minimum.at(home, member, np.arange(len(member)))
    orders = np.repeat(np.array([len(s) for s in effects], dtype=int), sizes)
    return Effects(
        cardinalities=cardinalities,
        scopes=scopes,
        subsets=effects,
        offsets=offsets,
        orders=orders,
        kinds=orders,
        cells=len(member),
        _member=member,
        _mean=mean,
        _home=home[:-1],
        _groups=_groups(cardinalities, scopes),
        _matrices=_matrices(cardinalities, scopes, home[:-1]),
    )


def subsets_inside(
    cardinalities: Sequence[int], scopes: Iterable[Sequence[int]]
) -> tuple[Scope, ...]:
    """Return the sets of variables inside some scope, ordered by size; variables of a single state are left out."""
    found: set[tuple[int, ...]] = {()}
    for scope in scopes:
        found.update(subsets(sorted(v for v in scope if cardinalities[v] > 1)))
    return tuple(sorted(found, key=lambda subset: (len(subset), subset)))


def _members(
    cardinalities: Scope, scopes: tuple[Scope, ...], starts: dict[Scope, int], size: int
) -> tuple[IntArray, FloatArray]:
    """Return the coordinate of each entry of b, and the inverse of the number of cells in its mean."""
    members = [np.zeros(0, int)]
    means = [np.zeros(0)]
    for scope in scopes:
        shape = tuple(cardinalities[v] for v in scope)
        # entries without an effect keep the number `size`
        member = np.full(shape, size)
        mean = np.ones(shape)
        for axes in subsets(range(len(scope))):
            # index 0 of an axis is the mean over it, the others are its contrasts
            subset = tuple(sorted(scope[a] for a in axes))
            index = tuple(slice(1, None) if a in axes else 0 for a in range(len(scope)))
            mean[index] = 1 / math.prod(k for a, k in enumerate(shape) if a not in axes)
            if subset in starts:
                free = [cardinalities[v] - 1 for v in subset]
                own = starts[subset] + np.arange(math.prod(free)).reshape(free)
                member[index] = own.transpose([subset.index(scope[a]) for a in axes])
        members.append(member.ravel())
        means.append(mean.ravel())
    return np.concatenate(members), np.concatenate(means)


def _groups(cardinalities: Scope, scopes: tuple[Scope, ...]) -> tuple[tuple[Scope, IntArray], ...]:
    """Return each shape of a clique's table with the cells of all cliques of this shape."""
    shapes = [tuple(cardinalities[v] for v in scope) for scope in scopes]
    ends = np.cumsum([math.prod(shape) for shape in shapes], dtype=int)
    found: dict[tuple[int, ...], list[IntArray]] = {}
    for shape, stop in zip(shapes, ends, strict=True):
        found.setdefault(shape, []).append(np.arange(stop - math.prod(shape), stop))
    return tuple((shape, np.concatenate(cells)) for shape, cells in found.items())


def _matrices(
    cardinalities: Scope, scopes: tuple[Scope, ...], home: IntArray
) -> tuple[Any, Any] | None:
    """Return the map as a sparse matrix with its transpose; None if it has too many entries."""
    from scipy import sparse

    shapes = [tuple(cardinalities[v] for v in scope) for scope in scopes]
    if (
        not shapes
        or sum(math.prod((k * (k + 3) - 2) // 2 for k in shape) for shape in shapes) > _SPARSE
    ):
        return None
    blocks = {}
    for shape in set(shapes):
        block = sparse.csr_array(np.ones((1, 1)))
        for states in shape:
            block = sparse.kron(block, sparse.csr_array(_with_constant(states)), format="csr")
        blocks[shape] = block
    forward = sparse.block_diag([blocks[shape] for shape in shapes], format="csc")[:, home].tocsr()
    return forward, forward.T.tocsr()


def times_rows(matrix: Any, values: FloatArray) -> FloatArray:
    """Return the product of a sparse matrix and each row of an array, shape (..., rows of the matrix)."""
    if values.ndim == 1:
        return matrix @ values
    rows = matrix @ values.reshape(math.prod(values.shape[:-1]), values.shape[-1]).T
    return np.ascontiguousarray(rows.T).reshape(*values.shape[:-1], matrix.shape[0])


def _checked(name: str, values: FloatArray, size: int) -> FloatArray:
    array = np.asarray(values, dtype=float)
    if array.ndim == 0 or array.shape[-1] != size:
        raise ModelError(
            f"`{name}` must have {size} entries along its last axis, got shape {array.shape}."
        )
    return array
