"""A learned Ising model: couplings and fields of two-state variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.cards import marked
from bayesprivmrf.errors import ModelError
from bayesprivmrf.learning.models.pairs import LearnedPairs
from bayesprivmrf.model.tables import FloatArray, IntArray, plain_array

if TYPE_CHECKING:
    import xarray as xr

_SPINS = np.array([-1.0, 1.0])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedIsing(LearnedPairs):
    r"""A learned Ising model, :math:`P(x) \propto \exp(\tfrac12 x^\top A x + h^\top x)`.

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
        A variable does not have two states, or the arrays do not fit them, are not finite, or A is not symmetric with
        zero diagonal.
    """

    kind = "learned-ising"
    graph_heading = "Largest couplings"
    has_signs = True

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
        self._keep(coupling_matrix=A, field_vector=h)

    @cached_property
    def starts(self) -> IntArray:
        """Positions of the variables, and their number: a variable has one row."""
        return np.arange(len(self.domain.variables) + 1)

    @property
    def own_states(self) -> IntArray:
        """The second state of each variable: +1."""
        return 2 * self.starts[:-1] + 1

    def block(self, first: int, second: int) -> FloatArray:
        """Return the table of two variables by their positions, shape (2, 2)."""
        return self.coupling_matrix[first, second] * np.outer(_SPINS, _SPINS)

    def field_tables(self) -> list[FloatArray]:
        """Return the field of each variable as a table of its two states."""
        return list(np.multiply.outer(self.field_vector, _SPINS))

    @cached_property
    def couplings(self) -> xr.DataArray:
        """A with the variables' names, dimensions ``variable`` and ``other``."""
        import xarray as xr

        names = plain_array(self.domain.variables)
        table = xr.DataArray(
            self.coupling_matrix,
            dims=("variable", "other"),
            coords={"variable": names, "other": names},
            name="couplings",
        )
        return marked(table, self.provenance.simulated)

    @cached_property
    def fields(self) -> xr.DataArray:
        """Fields h with the variables' names, dimension ``variable``."""
        import xarray as xr

        names = plain_array(self.domain.variables)
        table = xr.DataArray(self.field_vector, dims=("variable",), coords={"variable": names}, name="fields")
        return marked(table, self.provenance.simulated)

    def _weighted_pairs(self) -> Iterator[tuple[int, int, float]]:
        """Yield positions of coupled variables, and their coupling."""
        return ((int(i), int(j), float(self.coupling_matrix[i, j])) for i, j in self._pairs)
