r"""Potentials that several cliques share, or that scores or levels restrict: :math:`θ = B β`.

A model has one table of potentials β_g for each clique that is not tied, one for each group of tied scopes, and one
for each scope that was declared inside a tied clique. The log potential of a joint state is their sum,

.. math:: \sum_C θ_C(x_C) = \sum_g \sum_{S ∈ g} β_g(x_S),

where the axes of β_g correspond to the variables of S as written. B maps the cells of all β_g to the cells of the
model's cliques. It adds the table of each scope to the clique that contains the scope.

**Coordinates.** Take zero-sum coordinates (`bayesprivmrf.model.effects`). The effect of a subset of the axes of β_g
becomes, by a permutation of its entries, part of the effect of the corresponding variables in each scope of the
group. Hence :math:`b = M_0 γ_0`, with the coordinates b of the untied model and the coordinates γ_0 of all β_g. The
entries of M_0 are zeros and ones, or larger numbers if the scopes of a group share variables. Equal rows of M_0 are
coordinates of b that the ties make equal, and one coordinate γ replaces them. In a chain these are the main effects
of the first state, of all inner states and of the last state, and the interaction of neighbors. The distinct rows may
be linearly dependent: in a chain without a separate potential of the first state, first + last = inner. Then γ are
coordinates in an orthonormal basis of the span of the distinct rows. The number of coordinates γ is thus the number
of parameters of the model. A standard normal prior of γ is a standard normal prior of the distinct coordinates,
conditional on the relations between them.

**Interactions.** A model may be smaller than its measured tables: then :math:`b = S b_0`, with :math:`b_0` the
coordinates of the interactions' own tables and S the inclusion of their effects among those of the cliques. All
relations above are those of :math:`b_0`.

**Scores and levels** (`bayesprivmrf.model.contrast_parts`) give orthonormal bases of the parts of an effect: γ = R δ,
where R has a block for each effect, and b = M R δ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import product
from typing import Any

import numpy as np

from bayesprivmrf.model.contrast_parts import contrast_parts
from bayesprivmrf.model.domain import require_fit
from bayesprivmrf.model.effects import Effects, Scope
from bayesprivmrf.model.specification import ModelSpecification
from bayesprivmrf.model.tables import FloatArray, IntArray, cells_within, parent, subsets


def potential_groups(model: ModelSpecification) -> tuple[tuple[Scope, ...], ...]:
    """Return the scopes that use each table of potentials, as variable positions; untied cliques come first.

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
    ties = tuple(
        tuple(tuple(map(model.domain.index, scope)) for scope in group) for group in model.ties
    )
    tied = {frozenset(scope) for group in ties for scope in group}
    free = tuple((scope,) for scope in model.believed.scopes if frozenset(scope) not in tied)
    return (*free, *ties)


def tie_matrix(model: ModelSpecification) -> Any:
    """Return B, sparse: a row for each cell of the model's cliques, a column for each cell of a potential table."""
    from scipy.sparse import csr_array

    cards = model.cardinalities
    rows = [np.zeros(0, int)]
    columns = [np.zeros(0, int)]
    start = 0
    for group in potential_groups(model):
        for scope in group:
            home = parent(model.scopes, scope)
            assert home is not None
            # the table of a scope is added to the clique that contains it
            rows.append(np.arange(*model.offsets[home : home + 2]))
            columns.append(start + cells_within(cards, scope, model.scopes[home]))
        start += math.prod(cards[v] for v in group[0])
    row = np.concatenate(rows)
    column = np.concatenate(columns)
    return csr_array((np.ones(len(row)), (row, column)), shape=(model.size, start))


def shared_basis(model: ModelSpecification) -> Any | None:
    """Return the sparse matrix B of θ = B β; None if the potentials are not restricted.

    The columns are cells of the shared tables, or coordinates if the model has scores or waves.
    """
    from scipy.sparse import csr_array

    if not model.is_restricted:
        return None
    if not (model.ordinal or model.waves is not None):
        return tie_matrix(model)
    coordinates = coordinates_of(model)
    return csr_array(coordinates.potentials(np.eye(coordinates.size)).T)


def coordinates_of(model: ModelSpecification) -> Effects:
    """Return the zero-sum coordinates of a model's potentials, restricted by its ties, scores and levels."""
    if model.interactions is not None:
        return _included(model)
    full = Effects.of(model.cardinalities, model.scopes)
    if model.ties:
        tied = _tied(model.cardinalities, model.scopes, potential_groups(model))
    else:
        tied = None
    if not (model.ordinal or model.levels or model.waves is not None):
        return full if tied is None else tied
    return _in_parts(model, full, tied)


@lru_cache(maxsize=32)
def _included(model: ModelSpecification) -> Effects:
    """Return the coordinates of a model's interactions, as potentials of its cliques: b = S b_0."""
    from scipy.sparse import csr_array

    full = Effects.of(model.cardinalities, model.scopes)
    own = coordinates_of(model.believed)
    starts = dict(zip(full.subsets, full.offsets, strict=False))
    inner = own.full
    # each effect of the interactions has the same coordinates among those of the cliques
    rows = [
        starts[subset] + np.arange(stop - start)
        for subset, start, stop in zip(
            inner.subsets, inner.offsets, inner.offsets[1:], strict=False
        )
    ]
    row = np.concatenate([np.zeros(0, int), *rows])
    shape = (full.size, inner.size)
    included = csr_array((np.ones(len(row)), (row, np.arange(len(row)))), shape=shape)
    if own.matrix is not None:
        included = csr_array(included @ own.matrix)
    return replace(
        full,
        _full=full,
        matrix=included,
        subsets=own.subsets,
        offsets=own.offsets,
        orders=own.orders,
        kinds=own.kinds,
    )


@lru_cache(maxsize=32)
def _tied(
    cards: tuple[int, ...], scopes: tuple[Scope, ...], groups: tuple[tuple[Scope, ...], ...]
) -> Effects:
    """Return the coordinates of a model with tied potentials; recent results are cached."""
    from scipy.sparse import csr_array

    full = Effects.of(cards, scopes)
    owner = np.repeat(np.arange(len(full.subsets)), np.diff(full.offsets))
    # rows of M_0 that are equal are coordinates of b that the ties make equal
    first, distinct, kind = _distinct(_merged(full, groups))
    rows = [np.zeros(0, int)]
    columns = [np.zeros(0, int)]
    values = [np.zeros(0)]
    stands = []
    members = np.split(np.argsort(kind, kind="stable"), np.cumsum(np.bincount(kind))[:-1])
    # one coordinate for each dimension of the span of the distinct rows, written into all rows of their kind
    for kinds, basis in _independent(distinct):
        for position, k in enumerate(kinds):
            own = members[k]
            rows.append(np.repeat(own, basis.shape[1]))
            columns.append(np.tile(len(stands) + np.arange(basis.shape[1]), len(own)))
            values.append(np.tile(basis[position], len(own)))
        stands.extend(first[k] for k in kinds[: basis.shape[1]])
    places = np.concatenate(rows), np.concatenate(columns)
    matrix = csr_array((np.concatenate(values), places), shape=(full.size, len(stands)))
    # the columns are ordered by the effects that they represent, so that those of one effect are consecutive
    order = np.argsort(np.array(stands, dtype=int), kind="stable")
    owners = owner[np.array(stands, dtype=int)[order]]
    ends = np.flatnonzero(np.diff(np.append(owners, -1)) != 0) + 1
    return replace(
        full,
        _full=full,
        matrix=matrix.tocsc()[:, order].tocsr(),
        subsets=tuple(full.subsets[owners[end - 1]] for end in ends),
        offsets=(0, *ends.tolist()),
        orders=(orders := full.orders[np.array(stands, dtype=int)[order]]),
        kinds=orders,
    )


@lru_cache(maxsize=32)
def _in_parts(model: ModelSpecification, full: Effects, tied: Effects | None) -> Effects:
    """Return the coordinates of the parts of the effects that a model's scores and levels keep."""
    from scipy.sparse import block_diag, csr_array, eye_array, hstack, kron

    effects = full if tied is None else tied
    parts = [contrast_parts(model, v) for v in range(len(model.cardinalities))]
    blocks = []
    kinds = []
    ends = [0]
    for subset, start, stop in zip(
        effects.subsets, effects.offsets, effects.offsets[1:], strict=False
    ):
        bases = [parts[v][len(subset) > 1] for v in subset]
        if all(list(one) == [""] and one[""].shape[0] == one[""].shape[1] for one in bases):
            # no variable is split into parts, so that the effect keeps its coordinates
            block = eye_array(stop - start)
            names = [""] * (stop - start)
        else:
            is_separate = stop - start == math.prod(model.cardinalities[v] - 1 for v in subset)
            must = "have a separate interaction for each tied table"
            remedy = "declare the scopes inside the first tied scope as cliques too, or leave `ordinal` out"
            require_fit(is_separate, "scores of ordered states", must, "none", remedy)
            columns = []
            names = []
            for chosen in product(*(one.items() for one in bases)):
                columns.append(reduce(kron, [csr_array(basis) for _, basis in chosen]))
                names += [", ".join(dict.fromkeys(name for name, _ in chosen if name))] * columns[
                    -1
                ].shape[1]
            if columns:
                block = hstack(columns)
            else:
                block = csr_array((stop - start, 0))
        blocks.append(csr_array(block))
        kinds += [f"{len(subset)}, {name}" if name else str(len(subset)) for name in names]
        ends.append(ends[-1] + len(names))
    if blocks:
        rotation = csr_array(block_diag(blocks))
    else:
        rotation = csr_array((0, 0))
    widths = np.diff(ends)
    kept = np.flatnonzero(widths)  # an interaction with waves has no coordinates
    return replace(
        full,
        _full=full,
        matrix=rotation if tied is None else csr_array(tied.matrix @ rotation),
        subsets=tuple(effects.subsets[k] for k in kept),
        offsets=(0, *(ends[k + 1] for k in kept)),
        orders=np.repeat(np.array([len(subset) for subset in effects.subsets], dtype=int), widths),
        kinds=np.array(kinds, dtype=str),
    )


def _merged(full: Effects, groups: Sequence[tuple[Scope, ...]]) -> Any:
    """Return the sparse matrix M_0, which maps the zero-sum coordinates of the tables of potentials to b."""
    from scipy.sparse import csr_array

    cards = full.cardinalities
    places = dict(zip(full.subsets, full.offsets, strict=False))
    rows = [np.zeros(0, int)]
    columns = [np.zeros(0, int)]
    start = 0
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
    row = np.concatenate(rows)
    column = np.concatenate(columns)
    return csr_array((np.ones(len(row)), (row, column)), shape=(full.size, start))


def _distinct(merged: Any) -> tuple[list[int], Any, IntArray]:
    """Return the positions of the distinct rows, the matrix of these rows, and the kind of each row."""
    merged.sum_duplicates()
    merged.sort_indices()
    kinds: dict[bytes, int] = {}
    first = []
    kind = np.empty(merged.shape[0], int)
    for row in range(merged.shape[0]):
        part = slice(merged.indptr[row], merged.indptr[row + 1])
        key = merged.indices[part].tobytes() + b"|" + merged.data[part].tobytes()
        if key not in kinds:
            kinds[key] = len(first)
            first.append(row)
        kind[row] = kinds[key]
    return first, merged[first], kind


def _independent(distinct: Any) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield the connected sets of rows that share columns, each with an orthonormal basis of their span."""
    from scipy.sparse.csgraph import connected_components

    count, labels = connected_components(abs(distinct) @ abs(distinct).T, directed=False)
    ends = np.cumsum(np.bincount(labels, minlength=count))[:-1]
    for kinds in np.split(np.argsort(labels, kind="stable"), ends):
        rows = distinct[kinds].toarray()
        if len(kinds) == 1 or np.linalg.matrix_rank(rows) == len(kinds):
            yield kinds, np.eye(len(kinds))
            continue
        left, sizes, _ = np.linalg.svd(rows, full_matrices=False)
        yield kinds, left[:, sizes > 1e-9 * sizes.max()]
