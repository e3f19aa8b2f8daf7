r"""Test of a prior scale that the user gave against the effects that the release shows.

Exact answers are met whatever the prior, so that no distance between fitted and measured numbers tells a wrong scale:
exact margins force main effects far outside the prior, while it draws the interactions beside them to 0.

Let u be the estimated coordinates in units of the given scale τ, and C their covariance given the release, in the
same units. With :math:`R = 1 - C`, whose eigenvalues are the shares of each direction that the release determines,
u has the covariance R if the prior is right and all is normal. The estimate is that of the N people. Their
coordinates differ from the population's by sampling, of covariance :math:`S = (N Σ)^{-1}`, so that
:math:`x = R^{-1/2} u` has the covariance :math:`G = 1 + R^{1/2} S R^{1/2}`. Under a model smaller than its tables, C
has the sampling already, and S is 0. The share :math:`1 - R` of it is noise. C has the variance :math:`2 b^2` of
Laplace noise, but where noise hides an effect, u has the slope of its density, ±1/b, whose variance is twice
:math:`1 / (2 b^2)`. Beside Laplace noise G therefore has the noise once more. The score statistic for a prior with
the variance :math:`κ^2 τ^2` is

.. math:: Q = x' G^{-1} R\, G^{-1} x, \qquad E\,Q = \operatorname{tr} M, \quad \operatorname{var} Q = 2
          \operatorname{tr} M^2, \quad M = R\, G^{-1},

and its p-value is that of a scaled χ². In directions that the release determines, Q adds up squared coordinates, and
elsewhere next to nothing. The estimate of κ² is :math:`1 + (Q - E\,Q) / \operatorname{tr} M^2`.

If effects are κ times as large as the prior has them, a direction of which the release determines the share r is
biased by :math:`κ (1 - r)` and has the standard deviation :math:`(1 - r)^{1/2}`. The bias in standard deviations,
:math:`κ (1 - r)^{1/2}`, tells whether a wrong prior does harm. Where the release determines everything, it does none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from bayesprivmrf.inference.noise_aware.interval import coordinate_noise, statistics_covariance
from bayesprivmrf.inference.noise_aware.mode import Mode
from bayesprivmrf.noise.kernels import ABSOLUTE

# P-value below which the release contradicts a given scale. The levels of all tests of one fit add up to less than
# 0.01: docs/explanation/estimators.md has the table.
_SMALLEST_TAIL = 1e-3
# Bias, in posterior standard deviations, from which a contradicted scale does harm: with half of it, nine in ten
# intervals still hold
_HARMFUL = 2.0
# Scale from which none is judged, nats: effects twice as large are those of nearly empty cells, and others have wide
# intervals
_WIDE = 1.0
# Share of a direction that the release determines, below which it is a rounding error
_NOTHING = 1e-6
# Smallest precision of sampling in a direction, in units of the prior's: cells without a record have none
_EMPTY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleConflict:
    """Distance of the effects of a fit from its given prior.

    Parameters
    ----------
    tail
        P-value of the size of the effects.
    ratio
        Estimate of κ, the size of the effects over the given scale; at least 1.
    bias
        Largest bias of a direction, in standard deviations.
    """

    tail: float
    ratio: float
    bias: float

    @property
    def is_real(self) -> bool:
        """Return True if the release contradicts the scale, and the prior decides something."""
        return self.tail < _SMALLEST_TAIL and self.bias > _HARMFUL

    @property
    def problem(self) -> str:
        """Describe the contradiction, with its remedy."""
        return (
            f"the release contradicts the given `scale`: effects are about {self.ratio:.1f} times as large as it "
            f"allows (tail probability {self.tail:.1g}), and it may draw others too near to 0; leave `scale` to be "
            "learned"
        )


def scale_conflict(mode: Mode) -> ScaleConflict | None:
    """Return how the effects of a fit with a given scale contradict it; None where none is judged.

    Parameters
    ----------
    mode
        Where the search ended. A wide scale is not judged, nor that of a model whose matrices are not formed, of more
        than `bayesprivmrf.inference.loglinear_fit.scale_prior.DENSE_LIMIT` coordinates.
    """
    scale = 1 / np.sqrt(mode.prior.precision(mode.log_scales))
    if mode.curvature.formed is None or scale.min(initial=_WIDE) >= _WIDE:
        return None
    units = np.outer(scale, scale)
    told = np.eye(len(scale)) - coordinate_noise(mode) / units
    shares, directions = np.linalg.eigh(0.5 * (told + told.T))
    least = float(np.clip(shares[0], 0.0, 1.0))
    is_told = shares > _NOTHING
    if not is_told.any():
        return None
    root = np.sqrt(np.minimum(shares[is_told], 1.0))
    directions = directions[:, is_told]
    whitened = directions.T @ (mode.coordinates / scale) / root
    spread = np.eye(len(root))
    if (mode.likelihood.kernels == ABSOLUTE).any():
        spread += np.diag(1 - root**2)
    if not mode.means.is_smaller:
        information = float(np.exp(mode.log_total)) * units * statistics_covariance(mode)
        precisions, axes = np.linalg.eigh(information)
        along = root[:, np.newaxis] * (directions.T @ axes)
        spread += (along / np.maximum(precisions, _EMPTY)) @ along.T
    pulled = np.linalg.solve(spread, np.column_stack([whitened, np.diag(root**2)]))
    value = float(np.square(root * pulled[:, 0]).sum())
    product = pulled[:, 1:]
    mean = float(np.trace(product))
    squares = float((product * product.T).sum())
    tail = float(chdtrc(mean**2 / squares, value * mean / squares))
    ratio = np.sqrt(max(1.0, 1 + (value - mean) / squares))
    return ScaleConflict(tail=tail, ratio=float(ratio), bias=float(ratio * np.sqrt(1 - least)))
