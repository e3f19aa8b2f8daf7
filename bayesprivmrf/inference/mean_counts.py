"""Mean counts N μ of the noisy tables' cells as a function of zero-sum coordinates, with its derivative."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.marginals import MarginalEngine, marginal_engine
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.model.ties import TiedEffects, coordinates_of

# Coordinates whose potentials are formed at once, to spare a product of each and the memory of all
_TOGETHER = 64

# Noisy numbers whose covariance is formed
_MOST_ROWS = 3000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Linearized:
    """Mean counts at a point, and the products with their derivative J, shape (cells, d + 1).

    Parameters
    ----------
    total
        N at the point, records.
    mean
        N μ of the possible cells of the noisy tables, shape (cells,), records.
    along
        Change of the mean with the potentials of all cliques, shape (size,), N held.
    forward, backward
        v → J v and u → J'u; the last coordinate is log N.
    unexplained
        Covariance of the measured counts given the statistics of a tied model, shape (cells, cells), records squared;
        None where these statistics tell the counts.
    """

    total: float
    mean: FloatArray
    along: Callable[[FloatArray], FloatArray]
    forward: Callable[[FloatArray], FloatArray]
    backward: Callable[[FloatArray], FloatArray]
    unexplained: FloatArray | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class MeanCounts:
    """The map from coordinates (β, log N), shape (d + 1,), to mean counts.

    Parameters
    ----------
    evidence
        The releases.
    inference
        ``"exact"`` or ``"loopy"`` marginals.
    """

    evidence: Evidence
    inference: Inference = "exact"

    @cached_property
    def effects(self) -> Effects | TiedEffects:
        """Coordinates of the model's potentials."""
        return coordinates_of(self.evidence.specification)

    @cached_property
    def engine(self) -> MarginalEngine:
        """Marginals of the model's cliques."""
        model = self.evidence.specification
        return marginal_engine(model.cardinalities, model.scopes, kind=self.inference)

    @property
    def size(self) -> int:
        """Number of coordinates, d + 1."""
        return self.effects.size + 1

    def potentials(self, beta: FloatArray) -> FloatArray:
        """Return potentials of the model's cliques, minus infinity at impossible cells."""
        flat = self.effects.potentials(beta)
        if self.evidence.supported is not None:
            flat[..., ~self.evidence.supported] = -np.inf
        return flat

    def at(self, point: FloatArray) -> Linearized:
        """Mean counts and their derivative at (β, log N)."""
        total = float(np.exp(point[-1]))
        _, marginals, product = self.engine.linearize(self.potentials(point[:-1]))
        mean = total * self._gathered(marginals)

        def along(change: FloatArray) -> FloatArray:
            return total * self._gathered(product(change))

        def forward(direction: FloatArray) -> FloatArray:
            return along(self.effects.potentials(direction[:-1])) + direction[-1] * mean

        def backward(cells: FloatArray) -> FloatArray:
            change = self.effects.pull_back(product(self._spread(cells)))
            return np.append(total * change, cells @ mean)

        unexplained = None if self.tells_all else total * self._unexplained(product)
        return Linearized(
            total=total, mean=mean, along=along, forward=forward, backward=backward, unexplained=unexplained
        )

    @cached_property
    def tells_all(self) -> bool:
        """True if the measurements depend on the records only through the sufficient statistics of the model.

        So it is where potentials are free: the tables of the cliques are the statistics. With ties the statistics
        are sums of tables, and a table of one step tells more; with scores of ordered states they are sums of scores.
        """
        if self.effects.size == self.effects.full.size:
            return True
        rows = self.evidence.possible_rows()
        if rows is None:
            return False
        if rows.shape[0] > _MOST_ROWS:
            raise ModelTooLargeError(
                f"{rows.shape[0]:,} noisy numbers of a model with ties, scores or waves are more than "
                f"{_MOST_ROWS:,}; measure sums over the tied scopes (queries.pooled), or fit each wave apart."
            )
        missed = (cast(TiedEffects, self.effects).missed(row) for row in rows.toarray().astype(float))
        # a smaller part of a measured number, in zero-sum coordinates, is a rounding error
        return max(missed, default=0.0) < 1e-9

    def _unexplained(self, product: Callable[[FloatArray], FloatArray]) -> FloatArray:
        r"""Return the covariance of one record's measured numbers a given its statistics t.

        .. math:: \operatorname{Cov}(a) - \operatorname{Cov}(a, t) \operatorname{Cov}(t)^+ \operatorname{Cov}(t, a)
        """
        size = int(self.evidence.possible.sum())
        spread = np.array([product(self._spread(row)) for row in np.eye(size)]).reshape(size, -1)
        own = np.array([self._gathered(column) for column in spread])
        cross = self.effects.pull_back(spread)
        statistics = np.array([self.effects.pull_back(product(row)) for row in self._columns])
        return own - cross @ np.linalg.pinv(0.5 * (statistics + statistics.T), hermitian=True) @ cross.T

    @cached_property
    def _columns(self) -> FloatArray:
        return self.effects.potentials(np.eye(self.effects.size))

    def jacobian(self, linearized: Linearized) -> FloatArray:
        """Return J', shape (d + 1, cells), with N free; the cost is one product with J for each coordinate."""
        rows = np.empty((self.size, len(linearized.mean)))
        for first in range(0, self.effects.size, _TOGETHER):
            some = np.eye(min(_TOGETHER, self.effects.size - first), self.effects.size, first)
            for position, change in enumerate(self.effects.potentials(some), first):
                rows[position] = linearized.along(change)
        rows[-1] = linearized.mean
        return rows

    @cached_property
    def _fold(self) -> tuple[Any, Any] | None:
        """Sums of the cliques' cells that make up each possible cell of the tables, and the transpose."""
        rows = self.evidence.possible_rows()
        return None if rows is None else (rows, rows.T.tocsr())

    def _gathered(self, cells: FloatArray) -> FloatArray:
        return cells if self._fold is None else self._fold[0] @ cells

    def _spread(self, cells: FloatArray) -> FloatArray:
        return cells if self._fold is None else self._fold[1] @ cells


def with_total_held(linearized: Linearized) -> Linearized:
    """Return the products with J for a known N: its last column is zero."""

    def forward(direction: FloatArray) -> FloatArray:
        return linearized.forward(np.append(direction[:-1], 0.0))

    def backward(cells: FloatArray) -> FloatArray:
        return np.append(linearized.backward(cells)[:-1], 0.0)

    return replace(linearized, forward=forward, backward=backward)
