r"""The log-linear family of a model, and the mean counts of its members with their derivative.

A declared model is the family of distributions with the potentials

.. math:: θ = θ_0 + D β ,

D being the map from zero-sum coordinates (`bayesprivmrf.model.ties.coordinates_of`) and the base :math:`θ_0` being 0,
or minus infinity at cells that cannot occur. Estimators, posteriors and tests of fit read the family from
`Evidence.family` and nothing else of the declaration, so that a feature that restricts the map or shifts the base
reaches all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.marginals import MarginalEngine, marginal_engine
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.model.ties import TiedEffects, coordinates_of, shared_basis

if TYPE_CHECKING:
    from bayesprivmrf.inference.evidence import Evidence

type Inference = Literal["exact", "loopy"]

# Coordinates whose potentials are formed at once, to spare a product of each and the memory of all
_TOGETHER = 64

# Noisy numbers whose covariance is formed
_MOST_ROWS = 3000


@dataclass(frozen=True, eq=False)
class LogLinearFamily:
    """All distributions of a declared model, in zero-sum coordinates β; `family_of` makes it.

    Parameters
    ----------
    model
        The declared model.
    """

    model: ModelSpecification

    @cached_property
    def supported(self) -> np.ndarray | None:
        """Mask of the clique cells that some possible joint state reaches; None if all may occur.

        A structural zero can exclude cells of other cliques. They are found as the zero marginals of the uniform
        distribution; where that is too large, the declared zeros alone are used.
        """
        if self.model.possible is None:
            return None
        try:
            return self.engine("exact").marginals(np.where(self.model.possible, 0.0, -np.inf))[1] > 0
        except ModelTooLargeError:
            return self.model.possible

    @cached_property
    def base(self) -> FloatArray:
        """Potentials at β = 0, shape (model size,): 0, or minus infinity at cells that cannot occur."""
        base = np.zeros(self.model.size)
        if self.supported is not None:
            base[~self.supported] = -np.inf
        return base

    @cached_property
    def effects(self) -> Effects | TiedEffects:
        """Zero-sum coordinates of the potentials, restricted as the model declares."""
        return coordinates_of(self.model)

    @property
    def is_free(self) -> bool:
        """True if the coordinates reach every distribution of the cliques."""
        return self.effects.size == self.effects.full.size

    @cached_property
    def basis(self) -> Any | None:
        """Sparse B of the potentials θ_0 + B β over shared tables or scores; None without restrictions."""
        return shared_basis(self.model)

    def potentials(self, beta: FloatArray) -> FloatArray:
        """Return potentials of the model's cliques, nats, shape (..., d) to (..., model size)."""
        return self.effects.potentials(beta) + self.base

    def untied_potentials(self, beta: FloatArray) -> FloatArray:
        """Return potentials from coordinates of the model without ties, as posteriors store them."""
        return self.effects.full.potentials(beta) + self.base

    def coordinates(self, potentials: FloatArray) -> FloatArray:
        """Return the coordinates nearest to potentials, minus infinity at impossible cells; shape (d,)."""
        inside = np.isfinite(potentials) & np.isfinite(self.base)
        return self.effects.coordinates(np.where(inside, potentials, 0.0) - np.where(inside, self.base, 0.0))

    def engine(self, inference: Inference) -> MarginalEngine:
        """Return the engine for marginals of the model's cliques."""
        return marginal_engine(self.model.cardinalities, self.model.scopes, kind=inference)


@lru_cache(maxsize=32)
def family_of(model: ModelSpecification) -> LogLinearFamily:
    """Return the family of a model; recent results are cached."""
    return LogLinearFamily(model)


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

    @property
    def effects(self) -> Effects | TiedEffects:
        """Coordinates of the model's potentials."""
        return self.evidence.family.effects

    @cached_property
    def engine(self) -> MarginalEngine:
        """Marginals of the model's cliques."""
        return self.evidence.engine(self.inference)

    @property
    def size(self) -> int:
        """Number of coordinates, d + 1."""
        return self.effects.size + 1

    def at(self, point: FloatArray) -> Linearized:
        """Mean counts and their derivative at (β, log N)."""
        total = float(np.exp(point[-1]))
        _, marginals, product = self.engine.linearize(self.evidence.family.potentials(point[:-1]))
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
        if self.evidence.family.is_free:
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
