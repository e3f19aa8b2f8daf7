"""A learnt Ising model: couplings and fields of two-state variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.learning.models.base import LearnedNetwork
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.tables import FloatArray, plain_array

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["LearnedIsing"]

_SPINS = np.array([-1.0, 1.0])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedIsing(LearnedNetwork):
    r"""A learnt Ising model, :math:`P(x) \propto \exp(\tfrac12 x^\top A x + h^\top x)`.

    A variable's first declared state is -1, its second +1.

    Parameters
    ----------
    coupling_matrix
        A, shape (p, p), symmetric with zero diagonal.
    field_vector
        h, shape (p,).

    Raises
    ------
    ModelError
        A variable has not two states, or the arrays do not fit them, are not finite, or A is not symmetric with
        zero diagonal.
    """

    coupling_matrix: FloatArray
    field_vector: FloatArray

    kind = "learned-ising"

    def __post_init__(self) -> None:
        p = len(self.domain.variables)
        A, h = np.array(self.coupling_matrix, dtype=float), np.array(self.field_vector, dtype=float)
        if any(states != 2 for states in self.domain.cardinalities):
            raise ModelError("an Ising model must have two states a variable; use a pairwise model for more.")
        if A.shape != (p, p) or h.shape != (p,):
            raise ModelError(f"`coupling_matrix` and `field_vector` must fit {p} variables, got {A.shape}.")
        if not (
            np.isfinite(A).all() and np.isfinite(h).all() and (A == A.T).all() and not A.diagonal().any()
        ):
            raise ModelError("`coupling_matrix` must be finite and symmetric with zero diagonal.")
        for name, array in (("coupling_matrix", A), ("field_vector", h)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @cached_property
    def couplings(self) -> xr.DataArray:
        """A with the variables' names, dimensions ``variable`` and ``other``."""
        import xarray as xr

        names = plain_array(self.domain.variables)
        return xr.DataArray(
            self.coupling_matrix,
            dims=("variable", "other"),
            coords={"variable": names, "other": names},
            name="couplings",
        )

    @cached_property
    def fields(self) -> xr.DataArray:
        """Fields h with the variables' names, dimension ``variable``."""
        import xarray as xr

        names = plain_array(self.domain.variables)
        return xr.DataArray(self.field_vector, dims=("variable",), coords={"variable": names}, name="fields")

    @cached_property
    def _pairs(self) -> np.ndarray:
        return np.argwhere(np.triu(self.coupling_matrix, k=1))

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
        h = self.field_vector.copy()
        tables = []
        for scope in self.specification.scopes:
            table = np.zeros((2,) * len(scope))
            if len(scope) == 2:
                table += self.coupling_matrix[scope] * np.outer(_SPINS, _SPINS)
            for axis, variable in enumerate(scope):
                table += (h[variable] * _SPINS).reshape([-1 if a == axis else 1 for a in range(len(scope))])
                h[variable] = 0.0
            tables.append(table)
        return CliqueTables.from_arrays(self.domain, self.specification.cliques, tables)

    def _weighted_pairs(self) -> Iterator[tuple[int, int, float]]:
        """Yield positions of coupled variables, and their coupling."""
        return ((int(i), int(j), float(self.coupling_matrix[i, j])) for i, j in self._pairs)
