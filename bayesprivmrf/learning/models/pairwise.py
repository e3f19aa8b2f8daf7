"""A learnt pairwise model: tables of couplings between variables of any number of states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.learning.models.base import LearnedNetwork
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.model.domain import Variable
from bayesprivmrf.model.tables import FloatArray, IntArray, labelled

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["LearnedPairwise"]

_TOLERANCE = 1e-9  # of row sums, relative to the largest entry


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedPairwise(LearnedNetwork):
    r"""A learnt pairwise model, :math:`P(x) \propto \exp(\sum_{i<j} W_{ij}(x_i, x_j) + \sum_i \theta_i(x_i))`.

    Tables are centred: the rows and the columns of each :math:`W_{ij}`, and each :math:`\theta_i`, add to 0.

    Parameters
    ----------
    coupling_matrix
        All :math:`W_{ij}`, states of all variables after another in declared order: shape (K, K), symmetric, with
        zero blocks on the diagonal.
    field_vector
        All :math:`\theta_i`, shape (K,).

    Raises
    ------
    ModelError
        The arrays do not fit the states, are not finite, or are not symmetric and centred.
    """

    coupling_matrix: FloatArray
    field_vector: FloatArray

    kind = "learned-pairwise"

    def __post_init__(self) -> None:
        K = int(self.starts[-1])
        W, theta = np.array(self.coupling_matrix, dtype=float), np.array(self.field_vector, dtype=float)
        if W.shape != (K, K) or theta.shape != (K,):
            raise ModelError(f"`coupling_matrix` and `field_vector` must fit {K} states, got {W.shape}.")
        if not (np.isfinite(W).all() and np.isfinite(theta).all() and (W == W.T).all()):
            raise ModelError("`coupling_matrix` must be finite and symmetric, and `field_vector` finite.")
        owner = np.arange(len(self.starts) - 1).repeat(np.diff(self.starts))
        sums = np.add.reduceat(np.column_stack([W, theta]), self.starts[:-1], axis=0)
        scale = max(np.abs(W).max(initial=0.0), np.abs(theta).max(initial=0.0))
        if W[owner[:, None] == owner].any() or np.abs(sums).max(initial=0.0) > _TOLERANCE * K * scale:
            raise ModelError(
                "`coupling_matrix` must be centred and have zero blocks on its diagonal, and `field_vector` centred."
            )
        for name, array in (("coupling_matrix", W), ("field_vector", theta)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @cached_property
    def starts(self) -> IntArray:
        """First state of each variable, and the number K of states."""
        return np.concatenate([[0], np.cumsum(self.domain.cardinalities)]).astype(np.int64)

    @property
    def couplings(self) -> Mapping[tuple[Variable, Variable], xr.DataArray]:
        """Tables by pair of variables, in either order; iterates over each pair once, in declared order."""
        return _Couplings(self)

    @cached_property
    def fields(self) -> Mapping[Variable, xr.DataArray]:
        """Theta by variable, each labelled by its states."""
        domain, parts = self.domain, np.split(self.field_vector, self.starts[1:-1])
        return {
            v: labelled(domain, (v,), part, "fields") for v, part in zip(domain.variables, parts, strict=True)
        }

    @cached_property
    def strengths(self) -> FloatArray:
        """Largest absolute entry of each coupling's table, shape (p, p)."""
        by_row = np.maximum.reduceat(np.abs(self.coupling_matrix), self.starts[:-1], axis=0)
        return np.maximum.reduceat(by_row, self.starts[:-1], axis=1)

    def block(self, first: int, second: int) -> FloatArray:
        """Return the table of two variables by their positions, shape of their states."""
        rows = slice(self.starts[first], self.starts[first + 1])
        return self.coupling_matrix[rows, self.starts[second] : self.starts[second + 1]]

    @cached_property
    def _pairs(self) -> np.ndarray:
        return np.argwhere(np.triu(self.strengths, k=1))

    @property
    def specification(self) -> ModelSpecification:
        """The model: one clique for each coupling that is not zero, one for each variable without."""
        names = self.domain.variables
        pairs = [(names[i], names[j]) for i, j in self._pairs]
        lonely = np.setdiff1d(np.arange(len(names)), self._pairs)
        return ModelSpecification(domain=self.domain, cliques=(*pairs, *((names[i],) for i in lonely)))

    @property
    def potentials(self) -> CliqueTables:
        """Log potentials, nats; a field is in the first table of its variable."""
        waiting = dict(enumerate(np.split(self.field_vector, self.starts[1:-1])))
        tables = []
        for scope in self.specification.scopes:
            table = (
                self.block(*scope).copy()
                if len(scope) == 2
                else np.zeros(self.domain.cardinalities[scope[0]])
            )
            for axis, variable in enumerate(scope):
                field = waiting.pop(variable, None)
                if field is not None:
                    table += field.reshape([-1 if a == axis else 1 for a in range(len(scope))])
            tables.append(table)
        return CliqueTables.from_arrays(self.domain, self.specification.cliques, tables)

    def _weighted_pairs(self) -> Iterator[tuple[int, int, float]]:
        """Yield positions of coupled variables, and the largest entry of their coupling."""
        return ((int(i), int(j), float(self.strengths[i, j])) for i, j in self._pairs)


class _Couplings(Mapping[tuple[Any, Any], Any]):
    """Tables of a learnt pairwise model by pair of variables."""

    def __init__(self, learned: LearnedPairwise) -> None:
        self._learned = learned

    def __getitem__(self, pair: tuple[Variable, Variable]) -> xr.DataArray:
        domain: Domain = self._learned.domain
        try:
            first, second = (domain.index(variable) for variable in pair)
        except (TypeError, ValueError):
            raise KeyError(pair) from None
        if first == second:
            raise KeyError(pair)
        names = domain.variables[first], domain.variables[second]
        return labelled(domain, names, self._learned.block(first, second), "couplings")

    def __iter__(self) -> Iterator[tuple[Variable, Variable]]:
        names = self._learned.domain.variables
        return ((names[i], names[j]) for i in range(len(names)) for j in range(i + 1, len(names)))

    def __len__(self) -> int:
        p = len(self._learned.domain.variables)
        return p * (p - 1) // 2
