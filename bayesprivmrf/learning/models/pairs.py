"""Base class of learned pairwise models: arrays of couplings and fields, whose entries are numbers or tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from bayesprivmrf.errors import ModelError, ReleaseFileError
from bayesprivmrf.files import Json
from bayesprivmrf.learning.models.base import LearnedNetwork
from bayesprivmrf.learning.models.maps import (
    common_content,
    map_content,
    restored_fields,
    statistics_size,
)
from bayesprivmrf.learning.models.parameters import Entry
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.release.codec import (
    Fields,
    domain_content,
    numbers,
    restored_domain,
    upper_places,
)

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedPairs(LearnedNetwork):
    """Abstract pairwise model, whose arrays have one row for each variable or one for each state.

    Parameters
    ----------
    coupling_matrix
        Symmetric matrix with zero blocks on its diagonal.
    field_vector
        One field for each row.
    """

    coupling_matrix: FloatArray
    field_vector: FloatArray

    parameters = ("coupling_matrix", "field_vector")
    _profile: ClassVar[FloatArray] = np.ones(1)
    """Factors of a row's parameters in the states that it stands for."""

    def __post_init__(self) -> None:
        rows = int(self.starts[-1])
        owner = self._owner
        matrix = np.array(self.coupling_matrix, dtype=float)
        fields = np.array(self.field_vector, dtype=float)
        if matrix.shape != (rows, rows) or fields.shape != (rows,):
            if rows == len(self.domain.variables):
                what = "variables"
            else:
                what = "states"
            raise ModelError(
                f"`coupling_matrix` must fit {rows} {what}, got {matrix.shape}; so must fields."
            )
        is_finite = np.isfinite(matrix).all() and np.isfinite(fields).all()
        if not (is_finite and (matrix == matrix.T).all()) or matrix[owner[:, None] == owner].any():
            raise ModelError(
                "`coupling_matrix` must be finite and symmetric with a zero diagonal, where a variable of several "
                "rows has a block of zeros, and `field_vector` finite."
            )
        for name, array in (("coupling_matrix", matrix), ("field_vector", fields)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @cached_property
    def starts(self) -> IntArray:
        """First row of each variable, and the number of rows."""
        rows = [states // self._profile.size for states in self.domain.cardinalities]
        return np.cumsum([0, *rows]).astype(np.int64)

    @property
    def own_states(self) -> IntArray:
        """Positions, among the states of all variables, of the last state that each row stands for."""
        states = self._profile.size
        return np.arange(states - 1, sum(self.domain.cardinalities), states)

    def block(self, first: int, second: int) -> FloatArray:
        """Return the table of two variables by their positions, shape of their states."""
        rows, columns = (slice(self.starts[v], self.starts[v + 1]) for v in (first, second))
        return self.coupling_matrix[rows, columns] * np.outer(self._profile, self._profile)

    def field_tables(self) -> list[FloatArray]:
        """Return the field of each variable as a table of its states."""
        return [part * self._profile for part in np.split(self.field_vector, self.starts[1:-1])]

    @cached_property
    def strengths(self) -> FloatArray:
        """Largest absolute entry of each coupling, nats, shape (p, p)."""
        by_row = np.maximum.reduceat(np.abs(self.coupling_matrix), self.starts[:-1], axis=0)
        return np.maximum.reduceat(by_row, self.starts[:-1], axis=1)

    @cached_property
    def _pairs(self) -> np.ndarray:
        return np.argwhere(np.triu(self.strengths, k=1))

    @property
    def specification(self) -> ModelSpecification:
        """The model, with a clique for each nonzero coupling and for each variable without a coupling."""
        names = self.domain.variables
        pairs = [(names[i], names[j]) for i, j in self._pairs]
        lonely = np.setdiff1d(np.arange(len(names)), self._pairs)
        return ModelSpecification(
            domain=self.domain, cliques=(*pairs, *((names[i],) for i in lonely))
        )

    @property
    def potentials(self) -> CliqueTables:
        """Log potentials, nats; the first table of a variable contains its field."""
        model = self.specification
        waiting = dict(enumerate(self.field_tables()))
        tables = []
        for scope in model.scopes:
            if len(scope) == 2:
                table = self.block(*scope).copy()
            else:
                table = np.zeros_like(waiting[scope[0]])
            for axis, variable in enumerate(scope):
                if (field := waiting.pop(variable, None)) is not None:
                    table += field.reshape([-1 if a == axis else 1 for a in range(len(scope))])
            tables.append(table)
        return CliqueTables.from_arrays(self.domain, model.cliques, tables)

    @cached_property
    def _owner(self) -> IntArray:
        return np.arange(len(self.starts) - 1).repeat(np.diff(self.starts))

    @cached_property
    def _entries(self) -> tuple[IntArray, IntArray]:
        """Rows and columns of the couplings, with each pair once."""
        rows, columns = np.nonzero(self._owner[:, None] < self._owner)
        return rows, columns

    def flat(self, coupling_matrix: FloatArray, field_vector: FloatArray) -> FloatArray:
        """Return arrays of this model's shape as one vector."""
        return np.concatenate([coupling_matrix[self._entries], field_vector])

    def vector(self) -> FloatArray:
        """Return the couplings, each once, and then the fields."""
        return self.flat(self.coupling_matrix, self.field_vector)

    def with_vector(self, values: FloatArray) -> Self:
        """Return the same release with the parameters that a vector holds."""
        rows, columns = self._entries
        matrix = np.zeros(self.coupling_matrix.shape)
        matrix[rows, columns] = matrix[columns, rows] = values[: rows.size]
        return self.with_parameters((matrix, values[rows.size :]))

    def _vector_entries(self) -> list[Entry]:
        """Return the variables and the states of each coupling, and then of each field."""
        owner = self._owner.tolist()
        states = self.own_states.tolist()
        pairs = zip(*(places.tolist() for places in self._entries), strict=True)
        couplings = [((owner[r], owner[c]), (states[r], states[c])) for r, c in pairs]
        return [*couplings, *(((v,), (state,)) for v, state in zip(owner, states, strict=True))]

    def labels(self, of: str) -> pd.Index:
        """Return the variables, and for tables the states, of each coupling or field."""
        rows = self._row_labels()
        if of == "fields":
            return _declared_index(rows)
        first, second = self._entries
        levels: dict[str, list[Any]] = {}
        for level, values in rows.items():
            levels[level] = [values[k] for k in first]
            levels["other" if level == "variable" else f"other_{level}"] = [
                values[k] for k in second
            ]
        return _declared_index(levels)

    def _weighted_pairs(self) -> Iterator[tuple[int, int, float]]:
        """Yield positions of coupled variables, and their coupling or the largest entry of its table."""
        if self.has_signs:
            weights = self.coupling_matrix
        else:
            weights = self.strengths
        return ((int(i), int(j), float(weights[i, j])) for i, j in self._pairs)

    def _row_labels(self) -> dict[str, list[Any]]:
        """Return the labels of the rows, by the name of an index level."""
        return {"variable": list(self.domain.variables)}

    # File format: the array holds the fields, then rows, columns and values of all nonzero couplings above the
    # diagonal, then the noisy measurements.

    def _content(self) -> dict[str, Json]:
        count = int(np.count_nonzero(np.triu(self.coupling_matrix, k=1)))
        # the order of the entries in a file
        names = ("total", "total_noise", "details", "couplings", "map", "statistics")
        content = (
            dict.fromkeys(names) | {"couplings": count} | common_content(self) | map_content(self)
        )
        return content | domain_content(self.domain)

    def _array(self) -> np.ndarray:
        matrix = self.coupling_matrix
        rows, columns = np.nonzero(np.triu(matrix, k=1))
        return np.concatenate(
            [self.field_vector, rows, columns, matrix[rows, columns], self._measured_numbers]
        )

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        domain = restored_domain(content)
        count = content.whole("couplings", 0)
        width = array.size - 3 * count - statistics_size(content, domain)
        if width not in (len(domain.variables), sum(domain.cardinalities)):
            raise ReleaseFileError(
                f"its array must hold {count} couplings, fields and tables, got {array.size}"
            )
        parts = np.split(numbers(array, (array.size,)), width + np.arange(4) * count)
        matrix = np.zeros((width, width))
        matrix[tuple(upper_places(parts[1:3], width))] = parts[3]
        known = restored_fields(
            content, domain, parts[4], cls.parameters, domain.cardinalities, stamp
        )
        return cls(coupling_matrix=matrix + matrix.T, field_vector=parts[0], **known)


def pair_arrays(effects: Effects, coordinates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return couplings and fields, as arrays of an Ising model if all variables have two states, else of tables.

    Parameters
    ----------
    effects
        Coordinates of the pairs and of the single variables.
    coordinates
        β, shape (d,), nats.
    """
    if all(states == 2 for states in effects.cardinalities):
        p = len(effects.cardinalities)
        A = np.zeros((p, p))
        h = np.zeros(p)
        for subset, beta in zip(effects.subsets, coordinates.tolist(), strict=True):
            # contrasts of two states are spins over the root of two
            if len(subset) == 1:
                h[subset] = beta / np.sqrt(2)
            else:
                A[subset] = A[subset[::-1]] = beta / 2
        return A, h
    # otherwise the centered tables of all pairs as one matrix, and the centered fields
    first = np.cumsum([0, *effects.cardinalities])
    W = np.zeros((first[-1], first[-1]))
    theta = np.zeros(first[-1])
    for subset, table in zip(effects.subsets, effects.tables(coordinates), strict=True):
        place = [slice(first[v], first[v + 1]) for v in subset]
        if len(subset) == 1:
            theta[place[0]] = table
        else:
            W[place[0], place[1]] = table
            W[place[1], place[0]] = table.T
    return W, theta


def _declared_index(levels: dict[str, list[Any]]) -> pd.Index:
    """Return an index of labels by the name of their level, which keeps labels as they were declared."""
    import pandas as pd

    if len(levels) == 1:
        ((name, values),) = levels.items()
        return pd.Index(pd.Series(values, dtype=object), name=name, tupleize_cols=False)
    return pd.MultiIndex.from_arrays(
        [pd.Series(v, dtype=object) for v in levels.values()], names=list(levels)
    )
