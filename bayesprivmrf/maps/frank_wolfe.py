r"""Private Frank-Wolfe: a convex loss over the convex hull of atoms, one noisy choice of an atom a step.

Step t picks the atom that best follows the negative gradient, by the exponential mechanism, and moves the iterate to

.. math:: w_t = \frac{\sum_{k \le t} k\, s_k}{\sum_{k \le t} k}, \qquad
    w_t = (1 - \mu_t)\, w_{t-1} + \mu_t s_t, \quad \mu_t = \frac{2}{t + 1}, \quad w_0 = 0 .

An iterate is a mean of atoms with whole weights, so that margins are whole numbers over a public one. The result is
the mean of iterates with weights t. Both means are post-processing.

References
----------
Talwar, Thakurta, Zhang 2015. Zhang, Kamath, Kulkarni, Wu 2020, Algorithm 1.
"""

from __future__ import annotations

import numpy as np

from bayesprivmrf.maps.atoms import choose_atoms
from bayesprivmrf.maps.node_regressions import NodeRegressions
from bayesprivmrf.maps.noise import NoiseSource
from bayesprivmrf.model.tables import FloatArray

__all__ = ["LARGEST_STEPS", "frank_wolfe"]

LARGEST_STEPS = 30_000
"""Steps whose weights add up to less than 2^31."""


def frank_wolfe(
    regressions: NodeRegressions, *, steps: int, multiple: float, source: NoiseSource, eligible: np.ndarray
) -> FloatArray:
    r"""Return the mean iterate of all regressions, run in lockstep.

    Parameters
    ----------
    regressions
        At their start; used up.
    steps
        T, public.
    multiple
        :math:`\kappa`: regression r chooses at scale :math:`\kappa B_r`, with its public bound of residuals
        (`NodeRegressions.bounds`); from `bayesprivmrf.privacy.frank_wolfe.step_scale`.
    source
        Of randomness.
    eligible
        Public mask of groups, shape (regressions, groups).

    Returns
    -------
    ndarray
        Coefficients, shape (regressions, columns).
    """
    mean = np.zeros(regressions.coefficients.shape)
    for step in range(1, steps + 1):
        sums = regressions.sums()
        scales = regressions.bounds.astype(np.float64) * (multiple * _UP)
        atoms = choose_atoms(sums, regressions.design.starts, scales, source, eligible)
        regressions.move(atoms, step)
        mean += step * regressions.iterates
    return mean * (2 / (steps * (steps + 1)))


_UP = 1 + 2.0**-50  # more than the rounding of a product
