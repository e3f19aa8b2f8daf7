r"""Private Frank-Wolfe: a convex loss over the convex hull of atoms, one noisy choice of an atom a step.

Step t picks the atom that best follows the negative gradient at the last iterate, by the exponential mechanism. All
atoms picked so far, and the starting point 0, have one weight in the iterate. The result is a mean of iterates:

.. math:: w_t = \frac{1}{t + 1} \sum_{k \le t} s_k = (1 - \mu_t)\, w_{t-1} + \mu_t s_t, \quad \mu_t = \frac{1}{t + 1},
    \qquad \bar w = \frac{\sum_t t^2 w_t}{\sum_t t^2} .

So an iterate is a mean of atoms with whole weights, and margins are whole numbers over a public one. With noise this
was better than :math:`\mu_t = 2/(t + 2)` and the last iterate, at half the steps (docs/frank_wolfe.md). The choice
of weights is post-processing and costs nothing.

References
----------
Talwar, Thakurta, Zhang 2015. Zhang, Kamath, Kulkarni, Wu 2020, Algorithm 1.
"""

from __future__ import annotations

import numpy as np

from bayesprivmrf.interruption import remember
from bayesprivmrf.learning.frank_wolfe.atoms import choose_atoms
from bayesprivmrf.learning.frank_wolfe.node_regressions import NodeRegressions
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.threads import one_blas_thread

# Whose margins fit 16 bits
LARGEST_STEPS = 30_000

_UP = 1 + 2.0**-50  # more than the rounding of a product


def frank_wolfe(
    regressions: NodeRegressions, *, steps: int, multiple: float, source: NoiseSource, eligible: np.ndarray
) -> FloatArray:
    r"""Return the mean iterate of all regressions, run in lockstep.

    Parameters
    ----------
    regressions
        The regressions, at their start. The search changes them, so they serve once.
    steps
        T, the public number of steps.
    multiple
        :math:`\kappa`: regression r chooses at scale :math:`\kappa B_r`, with its public bound of residuals
        (`NodeRegressions.bounds`); from `bayesprivmrf.privacy.frank_wolfe.step_scale`.
    source
        Source of the random choices.
    eligible
        Public mask of groups, shape (regressions, groups).

    Returns
    -------
    ndarray
        Coefficients, shape (regressions, columns).
    """
    mean, weights, taken = np.zeros(regressions.coefficients.shape), step_weights(steps), 0
    try:
        with one_blas_thread() as regressions.workers:
            for step in range(1, steps + 1):
                sums = regressions.sums()
                scales = regressions.bounds.astype(np.float64) * (multiple * _UP)
                regressions.move(choose_atoms(sums, regressions.design.starts, scales, source, eligible), 1)
                mean, taken = mean + weights[step - 1] * regressions.iterates, step
    except BaseException as error:
        remember(error)  # the mean of the iterates so far is a result as well
        mean = mean / weights[:taken].sum() if taken else mean
    return mean


def step_weights(steps: int) -> FloatArray:
    r"""Return :math:`t^2 / \sum_t t^2`, the weights of the iterates in their mean."""
    t = np.arange(1, steps + 1)
    return 6 * t**2 / (steps * (steps + 1) * (2 * steps + 1))
