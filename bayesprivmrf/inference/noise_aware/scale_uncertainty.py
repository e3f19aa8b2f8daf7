r"""Uncertainty of learned scales in the covariance of the coordinates.

The covariance C of the coordinates β takes the learned scales τ for known. Where noise hides an effect, the release
says little of its scale as well, and such an interval is as wide as that scale. With :math:`t = \log τ`, mode
:math:`\hat t` and covariance H, the law of total variance has two parts,

.. math:: \operatorname{Cov} β = E\, C(t) + D H D', \qquad D = \frac{d \hatβ}{dt} = 2\, C\, T^{-1} \hatβ ,

the column of D for a scale having the coordinates of its effect alone (Kass and Steffey 1989). A normal t gives
:math:`E τ^2 = e^{2 (\hat t + h)}`, h being its variance. The first part is therefore C at the scales
:math:`e^{\hat t + h}`: exact where the release determines nothing, and nearly :math:`C(\hat t)` where it determines
all. The precision of t is that of its prior plus the Fisher information of the expansion,

.. math:: I_{gh} = 2 \sum_{i ∈ g, j ∈ h} R_{ij}^2, \qquad R = 1 - T^{-1/2} C\, T^{-1/2} .

Answers without noise can hold coordinates where neither prior nor noise would have them. With an exact count of 0 an
effect is without bound, and no linear constraint on the tables tells it. Given t, :math:`T^{-1/2} \hatβ` has the
covariance R. Beside answers without noise, its component along an eigenvector of R with the eigenvalue r therefore
counts as :math:`3 \sqrt r` at most.

The statuses of rows depend on C alone (`bayesprivmrf.inference.joint_estimate`). benchmarks/exact_margins.py measures
the coverage under noise stronger than the counts.

References
----------
Kass and Steffey (1989). Approximate Bayesian inference in conditionally independent hierarchical models. JASA 84,
717-726.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bayesprivmrf.inference.noise_aware.mode import Mode
from bayesprivmrf.model.tables import FloatArray

# Size of a component of the standardized coordinates, in standard deviations, above which exact answers hold it: even
# that of an effect of 10 nats is 2.2, because the learned scale follows the effect
_HELD = 3.0


class ScaleUncertainty(NamedTuple):
    """Uncertainty of learned scales.

    Parameters
    ----------
    log_scales
        Log of the scales whose squares are the mean prior variances, shape (scales,).
    moved
        Covariance of the estimate from that of the scales, D H D', shape (d, d).
    """

    log_scales: FloatArray
    moved: FloatArray


def scale_uncertainty(mode: Mode, covariance: FloatArray) -> ScaleUncertainty:
    """Return the uncertainty of the scales of a mode.

    Parameters
    ----------
    mode
        Where the search ended, with learned scales.
    covariance
        C at these scales, shape (d, d).
    """
    precision = mode.prior.precision(mode.log_scales)
    root = np.sqrt(precision)
    told = np.eye(len(root)) - covariance * np.outer(root, root)
    members = np.zeros((len(root), mode.prior.count))
    members[np.arange(len(root)), mode.prior.levels] = 1
    information = 2 * members.T @ np.square(told) @ members
    # H = (P + I)⁻¹, by the covariance P⁻¹ of the prior
    before = mode.prior.scale_covariance
    after = np.linalg.solve(np.eye(len(before)) + before @ information, before)
    standardized = mode.coordinates * root
    if mode.means.evidence.is_exact.any():
        standardized = _within_reach(standardized, told)
    slopes = 2 * covariance @ ((root * standardized)[:, np.newaxis] * members)
    return ScaleUncertainty(mode.log_scales + np.diag(after), slopes @ after @ slopes.T)


def _within_reach(standardized: FloatArray, told: FloatArray) -> FloatArray:
    """Return standardized coordinates without what only answers without noise explain, shape (d,)."""
    shares, directions = np.linalg.eigh(0.5 * (told + told.T))
    reach = _HELD * np.sqrt(np.clip(shares, 0.0, 1.0))
    return directions @ np.clip(directions.T @ standardized, -reach, reach)
