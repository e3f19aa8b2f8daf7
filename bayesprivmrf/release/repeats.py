"""Published numbers that are given twice, under rules that give a count the same number wherever it is published.

Under rounding without chance, ranges, suppression and cell keys, the number of a group of records depends on these
records alone. The same group in another table therefore has the same number, which tells nothing new. It is used
once. Two different numbers of one group are kept: they contradict the rule, or come from independent keys.
Numbers that were rounded at random are independent measurements, also of one group, and are kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.queries import BoundQuery, weighted
from bayesprivmrf.release.measurement import Measurement


def without_repeats(
    queries: Sequence[BoundQuery], measurements: Sequence[Measurement]
) -> list[Measurement]:
    """Return measurements without numbers that an earlier one has, in their order.

    Parameters
    ----------
    queries
        The query of each measurement, bound to the model of the release.
    measurements
        The measurements.
    """
    seen: set[Hashable] = set()
    found = []
    for query, one in zip(queries, measurements, strict=True):
        if not one.noise.gives_one_number or len(query.scopes) != 1:
            found.append(one)
            continue
        keys = [(one.noise, *key) for key in zip(_groups(query), one.values.tolist(), strict=True)]
        new = [row for row, key in enumerate(keys) if key not in seen]
        seen.update(keys)
        if len(new) == len(keys):
            found.append(one)
        elif new:
            labels = [query.labels[row] for row in new]
            rows = weighted(*query.scopes[0], matrix=query.matrix[new], labels=labels)
            found.append(Measurement(rows, one.values[new], one.noise))
    return found


def _groups(query: BoundQuery) -> Iterator[Hashable]:
    """Yield the records that each row of a query counts: the variables that matter, and their joint states."""
    (scope,) = query.scopes
    (positions,) = query.positions
    sizes = [len(query.model.domain.states_of(v)) for v in scope]
    order = np.argsort(positions)
    rows = query.matrix.tocsr()
    for row in range(rows.shape[0]):
        own = slice(rows.indptr[row], rows.indptr[row + 1])
        cells = np.array(np.unravel_index(rows.indices[own], sizes))
        # rules are of counts, so that all records of a row weigh the same
        weight = int(rows.data[own].max(initial=0))
        axes, states = _reduced(cells[order], [sizes[k] for k in order])
        kept = tuple(positions[order[axis]] for axis in axes)
        yield kept, states.tobytes(), weight


def _reduced(cells: IntArray, sizes: Sequence[int]) -> tuple[list[int], IntArray]:
    """Return the axes on which a set of cells depends, and the cells on these axes alone, sorted.

    Parameters
    ----------
    cells
        Coordinates of the cells, shape (axes, cells), each cell once.
    sizes
        Number of states of each axis.
    """
    axes = list(range(len(sizes)))
    if cells.shape[1] == 1 and min(sizes) > 1:
        return axes, cells
    for axis in range(len(sizes)):
        place = axes.index(axis)
        rest = np.unique(np.delete(cells, place, axis=0), axis=1)
        # without an axis each cell remains once for each of its states
        if rest.shape[1] * sizes[axis] == cells.shape[1]:
            cells = rest
            axes.remove(axis)
    return axes, np.unique(cells, axis=1)
