"""Normal priors of a model's coordinates, whose scales are fixed or learned from the estimate.

A search asks a prior for the precision of each coordinate, and in the rounds that learn scales for the prior that an
estimate and its variances support. Priors are values: learning returns another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from bayesprivmrf.model.tables import FloatArray


class Prior(Protocol):
    """Independent normal distributions of mean 0, one for each coordinate."""

    @property
    def is_learned(self) -> bool:
        """True if the scales are learned from the estimate."""
        ...

    @property
    def precision(self) -> FloatArray:
        """Precision of each coordinate, shape (d,), positive."""
        ...

    def learned(self, beta: FloatArray, variances: FloatArray, /) -> Self:
        """Return the prior that an estimate supports.

        Parameters
        ----------
        beta, variances
            Coordinates, and the diagonal of their posterior covariance, shape (d,).
        """
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedPrior:
    """A prior whose scales are known.

    Parameters
    ----------
    precision
        Precision of each coordinate, shape (d,), positive.
    """

    precision: FloatArray

    @property
    def is_learned(self) -> bool:
        """Return False: the scales are known."""
        return False

    def learned(self, beta: FloatArray, variances: FloatArray) -> Self:
        """Return the prior itself, whatever the estimate."""
        return self
