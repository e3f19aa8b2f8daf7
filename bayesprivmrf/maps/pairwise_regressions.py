"""Pairwise models by node-wise regressions: the maps from records to couplings, and their public settings."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.maps.frank_wolfe import LARGEST_STEPS, frank_wolfe
from bayesprivmrf.maps.node_regressions import Design, LogisticRegressions
from bayesprivmrf.maps.noise import NoiseSource
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy import Adjacency
from bayesprivmrf.privacy.frank_wolfe import Exposure, step_scale

__all__ = ["IsingByRegressions", "default_steps"]

_FEWEST_STEPS = 10
_STEPS_FACTOR = 0.21


def default_steps(records: float, radius: float, exposure: Exposure, rho: float, adjacency: Adjacency) -> int:
    r"""Return T from public numbers: :math:`0.21\, (R n / \kappa_1)^{2/3}`, at least 10.

    The excess loss a record after T steps is of the order :math:`R^2/T + R \kappa_1 \sqrt{T} / n`, with
    :math:`\kappa_1` the noise multiple of a single step; the minimum over T has this form.
    """
    signal = radius * records / step_scale(exposure, rho, 1, adjacency)
    steps = math.ceil(_STEPS_FACTOR * signal ** (2 / 3))
    return min(max(steps, _FEWEST_STEPS), LARGEST_STEPS)


@dataclass(frozen=True, eq=False, kw_only=True)
class IsingByRegressions:
    r"""Couplings and fields of two-state variables from one private logistic regression a node.

    :math:`P(x_i = 1 | x) = \sigma(2 \sum_j A_{ij} x_j + 2 h_i)`, so node i has coefficients :math:`2 A_{ij}` and,
    of the constant feature, :math:`2 h_i`, in the :math:`\ell_1` ball of radius :math:`R = 2 \lambda` where the width
    :math:`\lambda` bounds :math:`\sum_j |A_{ij}| + |h_i|`. Both nodes' estimates of a coupling are averaged.

    Parameters
    ----------
    eligible
        Public mask of the couplings to learn, symmetric, False on the diagonal: shape (p, p).
    width
        :math:`\lambda`.
    rho
        Budget of all regressions, nats.
    adjacency
        The neighbouring relation.
    steps
        T, or ``None`` for `default_steps` of the number of records.
    """

    eligible: np.ndarray
    width: float
    rho: float
    adjacency: Adjacency
    steps: int | None = None

    @property
    def exposure(self) -> Exposure:
        """How far one record reaches."""
        return Exposure.of_logistic(len(self.eligible))

    def steps_for(self, records: float | None) -> int:
        """Return T for a public or noisy number of records."""
        if self.steps is not None:
            return self.steps
        assert records is not None
        return default_steps(records, 2 * self.width, self.exposure, self.rho, self.adjacency)

    def learn(
        self, codes: np.ndarray, counts: IntArray, records: float | None, source: NoiseSource
    ) -> tuple[FloatArray, FloatArray]:
        """Return couplings (p, p) and fields (p,).

        Parameters
        ----------
        codes, counts
            Records as codes 0 and 1, shape (rows, p), and how many each row stands for.
        records
            Their number as far as it may be used: public or noisy; unused where T is given.
        source
            Of randomness.
        """
        p = len(self.eligible)
        steps = self.steps_for(records)
        regressions = LogisticRegressions(
            Design.with_constant(codes, (2,) * p), codes, counts, 2 * self.width, np.arange(p)
        )
        coefficients = frank_wolfe(
            regressions,
            steps=steps,
            multiple=step_scale(self.exposure, self.rho, steps, self.adjacency),
            source=source,
            eligible=np.hstack([self.eligible, np.ones((p, 1), dtype=bool)]),
        )
        pairs = coefficients[:, :p]
        return (pairs + pairs.T) / 4, coefficients[:, p] / 2
