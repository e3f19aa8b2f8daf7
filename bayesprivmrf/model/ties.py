r"""Potentials that several cliques share, or that scores restrict: :math:`θ = B β`.

A model's potentials are one table β_g for each clique that is free, one for each group of tied scopes, and one for
each scope that was declared inside a tied one. The potential of a joint state adds up what they say,

.. math:: \sum_C θ_C(x_C) = \sum_g \sum_{S ∈ g} β_g(x_S),

axis by axis as the scopes are written. B maps the cells of all β_g to the cells of the model's cliques: each scope's
table is added inside the clique that holds it.

**Coordinates.** In zero-sum coordinates (`bayesprivmrf.model.effects`) the effect of a subset of the axes of β_g
becomes, by a permutation of its entries, part of the effect of those variables in each scope of the group. So
:math:`b = M_0 γ_0`: b the coordinates of the untied model, γ_0 those of all β_g, and M_0 holds zeros and ones, or
how often a group contributes where its scopes share variables. Rows of M_0 that are equal are coordinates of b that
the ties make equal: one coordinate γ stands for them. In a chain these are the main effects of the first state, of
all inner states, of the last state, and the interaction of neighbours. Where the distinct rows depend on each
other (a chain without a potential of the first state's own: first + last = inner), γ are coordinates in an
orthonormal basis of what the distinct rows span. Thus γ are as many as the model has parameters. A standard normal
prior of γ is one of the distinct coordinates, given the relations between them.

**Scores and levels** (`bayesprivmrf.model.contrast_parts`) are orthonormal bases of an effect's parts: γ = R δ, R
with a block for each effect, and b = M R δ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.contrast_parts import parts_of
from bayesprivmrf.model.effects import Effects, times_rows
from bayesprivmrf.model.specification import ModelSpecification
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within, parent, subsets

type Scope = tuple[int, ...]


def potential_groups(model: ModelSpecification) -> tuple[tuple[Scope, ...], ...]:
    """Return the scopes that use each table of potentials, as variable positions: free cliques first, then ties.

    Examples
    --------
    >>> from bayesprivmrf.model import Domain
    >>> domain = Domain.from_states({"a": [0, 1], "b": [0, 1], "c": [0, 1]})
    >>> model = ModelSpecification(
    ...     domain=domain, cliques=(("a",), ("a", "b"), ("b", "c")), ties=((("a", "b"), ("b", "c")),)
    ... )
    >>> potential_groups(model)
    (((0, 1), (1, 2)), ((0,),))
    """
    ties = tuple(tuple(tuple(map(model.domain.index, scope)) for scope in group) for group in model.ties)
    tied = {frozenset(scope) for group in ties for scope in group}
    free = tuple((scope,) for scope in model.scopes if frozenset(scope) not in tied)
    return (*free, *ties)


def tie_matrix(model: ModelSpecification) -> Any:
    """Return B, sparse: a row for each cell of the model's cliques, a column for each cell of a potential table."""
    from scipy.sparse import csr_array

    cards, rows, columns, start = model.cardinalities, [np.zeros(0, int)], [np.zeros(0, int)], 0
    for group in potential_groups(model):
        for scope in group:
            home = parent(model.scopes, scope)
            assert home is not None
            # a scope's table is added inside the clique that holds it
            rows.append(np.arange(*model.offsets[home : home + 2]))
            columns.append(start + cells_within(cards, scope, model.scopes[home]))
        start += math.prod(cards[v] for v in group[0])
    row, column = np.concatenate(rows), np.concatenate(columns)
    return csr_array((np.ones(len(row)), (row, column)), shape=(model.size, start))


def shared_basis(model: ModelSpecification) -> Any | None:
    """Return the sparse B of θ = B β, by cells of shared tables or by coordinates; None if potentials are free."""
    from scipy.sparse import csr_array

    if not model.is_restricted:
        return None
    if not (model.ordinal or model.waves is not None):
        return tie_matrix(model)
    coordinates = coordinates_of(model)
    return csr_array(coordinates.potentials(np.eye(coordinates.size)).T)


def coordinates_of(model: ModelSpecification) -> Effects | TiedEffects:
    """Return zero-sum coordinates of a model's potentials: those of its cliques, or those that ties leave free."""
    full = Effects.of(model.cardinalities, model.scopes)
    tied = _tied(model.cardinalities, model.scopes, potential_groups(model)) if model.ties else None
    if not (model.ordinal or model.levels or model.waves is not None):
        return full if tied is None else tied
    return _in_parts(model, full, tied)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TiedEffects:
    """The map between coordinates γ of a tied model and potentials of its cliques; `coordinates_of` makes one.

    It has the methods of `Effects` that estimators use.

    Parameters
    ----------
    full
        Coordinates b of the untied model.
    groups
        Scopes of each table of potentials.
    matrix
        M, sparse, shape (untied coordinates, d): b = M γ.
    subsets, offsets
        A subset of variables whose effect stands for γ's ``offsets[k]:offsets[k + 1]``.
    orders
        Number of variables of each coordinate's effect, shape (d,).
    kinds
        Which coordinates have one prior scale, shape (d,): their order, or order and part as text.
    """

    full: Effects
    groups: tuple[tuple[Scope, ...], ...]
    matrix: Any
    subsets: tuple[Scope, ...]
    offsets: tuple[int, ...]
    orders: IntArray
    kinds: NDArray[Any]

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Number of states of each variable."""
        return self.full.cardinalities

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Variable positions of each clique."""
        return self.full.scopes

    @property
    def cells(self) -> int:
        """Number of cells of all cliques together."""
        return self.full.cells

    @property
    def size(self) -> int:
        """Number of coordinates d: the free parameters of the model."""
        return self.matrix.shape[1]

    def untied(self, gamma: FloatArray) -> FloatArray:
        """Return the coordinates b of the untied model, shape (..., d) to (..., untied coordinates)."""
        return times_rows(self.matrix, np.asarray(gamma, dtype=float))

    def potentials(self, gamma: FloatArray) -> FloatArray:
        """Return the potentials of all cliques, each effect in the first clique that holds it, (..., cells), nats."""
        return self.full.potentials(self.untied(gamma))

    def pull_back(self, flat: FloatArray) -> FloatArray:
        """Apply the transpose of `potentials`, shape (..., cells) to (..., d)."""
        return times_rows(self._transposed, self.full.pull_back(flat))

    def coordinates(self, potentials: FloatArray) -> FloatArray:
        """Return coordinates of the tied potentials nearest to finite ones, in the norm of b; (cells,) to (d,)."""
        return self._solve(self._transposed @ self.full.coordinates(potentials))

    def missed(self, potentials: FloatArray) -> float:
        """Return how far potentials, shape (cells,), are from tied ones: the largest part of b that ties rule out."""
        b = self.full.coordinates(potentials)
        return float(np.abs(b - self.untied(self._solve(self._transposed @ b))).max(initial=0.0))

    @cached_property
    def _transposed(self) -> Any:
        return self.matrix.T.tocsr()

    @cached_property
    def _solve(self) -> Any:
        from scipy.sparse.linalg import splu

        if not self.size:
            return lambda right: np.zeros(0)
        return splu((self.matrix.T @ self.matrix).tocsc()).solve

    def __repr__(self) -> str:
        return f"TiedEffects({len(self.groups)} tables, {self.size} coordinates, {self.cells} cells)"


@lru_cache(maxsize=32)
def _tied(
    cards: tuple[int, ...], scopes: tuple[Scope, ...], groups: tuple[tuple[Scope, ...], ...]
) -> TiedEffects:
    from scipy.sparse import csr_array

    full = Effects.of(cards, scopes)
    owner = np.repeat(np.arange(len(full.subsets)), np.diff(full.offsets))
    # rows of M_0 that are equal are coordinates of b that the ties make equal
    first, distinct, kind = _distinct(_merged(full, groups))
    rows, columns, values, stands = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)], []
    members = np.split(np.argsort(kind, kind="stable"), np.cumsum(np.bincount(kind))[:-1])
    # one coordinate for each dimension of what distinct rows span, written into all rows of their kind
    for kinds, basis in _independent(distinct):
        for position, k in enumerate(kinds):
            own = members[k]
            rows.append(np.repeat(own, basis.shape[1]))
            columns.append(np.tile(len(stands) + np.arange(basis.shape[1]), len(own)))
            values.append(np.tile(basis[position], len(own)))
        stands.extend(first[k] for k in kinds[: basis.shape[1]])
    flat = np.concatenate(values)
    matrix = csr_array(
        (flat, (np.concatenate(rows), np.concatenate(columns))), shape=(full.size, len(stands))
    )
    # columns in the order of the effects that they stand for: blocks of one effect lie together
    order = np.argsort(np.array(stands, dtype=int), kind="stable")
    owners = owner[np.array(stands, dtype=int)[order]]
    ends = np.flatnonzero(np.diff(np.append(owners, -1)) != 0) + 1
    return TiedEffects(
        full=full,
        groups=groups,
        matrix=matrix.tocsc()[:, order].tocsr(),
        subsets=tuple(full.subsets[owners[end - 1]] for end in ends),
        offsets=(0, *ends.tolist()),
        orders=(orders := full.orders[np.array(stands, dtype=int)[order]]),
        kinds=orders,
    )


@lru_cache(maxsize=32)
def _in_parts(model: ModelSpecification, full: Effects, tied: TiedEffects | None) -> TiedEffects:
    """Return the coordinates of each part of the effects that a model's scores and levels keep."""
    from scipy.sparse import block_diag, csr_array, eye_array, hstack, kron

    effects = full if tied is None else tied
    told = {"waves": model.waves, "levels": model.levels, "ordinal": model.ordinal}
    parts = [parts_of(model.domain, v, **told) for v in range(len(model.cardinalities))]
    blocks, kinds, ends = [], [], [0]
    for subset, start, stop in zip(effects.subsets, effects.offsets, effects.offsets[1:], strict=False):
        held = [parts[v][len(subset) > 1] for v in subset]
        if all(list(one) == [""] and one[""].shape[0] == one[""].shape[1] for one in held):
            # whatever ties have made of the effect
            block, names = (eye_array(stop - start), [""] * (stop - start))
        elif stop - start != math.prod(model.cardinalities[v] - 1 for v in subset):
            raise ModelError(
                "scores of ordered states need an interaction of their own for each tied table; declare the scopes "
                "inside the first tied one as cliques too (markov_chain does), or leave `ordinal` out."
            )
        else:
            columns, names = [], []
            for chosen in product(*(one.items() for one in held)):
                columns.append(reduce(kron, [csr_array(basis) for _, basis in chosen]))
                names += [", ".join(dict.fromkeys(name for name, _ in chosen if name))] * columns[-1].shape[1]
            block = hstack(columns) if columns else csr_array((stop - start, 0))
        blocks.append(csr_array(block))
        kinds += [f"{len(subset)}, {name}" if name else str(len(subset)) for name in names]
        ends.append(ends[-1] + len(names))
    rotation = csr_array(block_diag(blocks)) if blocks else csr_array((0, 0))
    widths = np.diff(ends)
    kept = np.flatnonzero(widths)  # what interacts with waves has no coordinate
    return TiedEffects(
        full=full,
        groups=tuple((scope,) for scope in full.scopes) if tied is None else tied.groups,
        matrix=rotation if tied is None else csr_array(tied.matrix @ rotation),
        subsets=tuple(effects.subsets[k] for k in kept),
        offsets=(0, *(ends[k + 1] for k in kept)),
        orders=np.repeat(np.array([len(subset) for subset in effects.subsets], dtype=int), widths),
        kinds=np.array(kinds, dtype=str),
    )


def _merged(full: Effects, groups: Sequence[tuple[Scope, ...]]) -> Any:
    """Return M_0, sparse, which maps the zero-sum coordinates of the tables of potentials to b."""
    from scipy.sparse import csr_array

    cards, places = full.cardinalities, dict(zip(full.subsets, full.offsets, strict=False))
    rows, columns, start = [np.zeros(0, int)], [np.zeros(0, int)], 0
    for group in groups:
        axes = [a for a, v in enumerate(group[0]) if cards[v] > 1]
        for chosen in [*subsets(axes)][1:]:
            shape = [cards[group[0][a]] - 1 for a in chosen]
            block = start + np.arange(math.prod(shape)).reshape(shape)
            for scope in group:
                variables = [scope[a] for a in chosen]
                subset = tuple(sorted(variables))
                rows.append(places[subset] + np.arange(block.size))
                columns.append(block.transpose([variables.index(v) for v in subset]).ravel())
            start += block.size
    row, column = np.concatenate(rows), np.concatenate(columns)
    return csr_array((np.ones(len(row)), (row, column)), shape=(full.size, start))


def _distinct(merged: Any) -> tuple[list[int], Any, IntArray]:
    """Return the first row of each kind of equal rows, those rows, sparse, and the kind of each row."""
    merged.sum_duplicates()
    merged.sort_indices()
    kinds: dict[bytes, int] = {}
    first, kind = [], np.empty(merged.shape[0], int)
    for row in range(merged.shape[0]):
        part = slice(merged.indptr[row], merged.indptr[row + 1])
        key = merged.indices[part].tobytes() + b"|" + merged.data[part].tobytes()
        if key not in kinds:
            kinds[key] = len(first)
            first.append(row)
        kind[row] = kinds[key]
    return first, merged[first], kind


def _independent(distinct: Any) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield sets of rows that share columns, each with an orthonormal basis of their span."""
    from scipy.sparse.csgraph import connected_components

    count, labels = connected_components(abs(distinct) @ abs(distinct).T, directed=False)
    for kinds in np.split(
        np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels, minlength=count))[:-1]
    ):
        rows = distinct[kinds].toarray()
        if len(kinds) == 1 or np.linalg.matrix_rank(rows) == len(kinds):
            yield kinds, np.eye(len(kinds))
            continue
        left, sizes, _ = np.linalg.svd(rows, full_matrices=False)
        yield kinds, left[:, sizes > 1e-9 * sizes.max()]
