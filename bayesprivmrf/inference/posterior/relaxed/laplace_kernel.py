r"""Log kernel of Laplace noise in a relaxed count, with a force that a sampler can follow.

**Kinks.** The log density :math:`-|y - n| / b` has a kink wherever a latent count n passes its noisy count y. A
leapfrog trajectory that steps over hundreds of kinks makes an error at each, and the step shrinks until it
resolves them. Hamiltonian Monte Carlo does not need the gradient, though: trajectories preserve volume and can be
reversed whatever function of the position stands in for it, and the draws are right as long as their weights are
from the exact density (Duane et al. 1987, section 2). So the value here is exact, and what PyTensor takes for its
derivative is that of Huber's function, :math:`\max(-1, \min(1, r / (δb))) / b` with r = y - n. The two potentials
differ by :math:`(δ - |r| / b)^2 / (2δ)` within δ, of variance at most :math:`D δ^3 / 20` over D residuals: the only
price, a lower acceptance probability that no step size can raise. `force_width` keeps it small.

**Whole numbers.** True counts are integers, each k standing for the relaxed counts in
:math:`[k - \frac12, k + \frac12]`. Over the cells that do not hold y the kernel integrates to
:math:`2b \sinh(1/(2b))` times its value at k, and over the one that does, :math:`k_0 = k` with f = y - k, to less:
a noise scale below a count would leave too little mass on the nearest integer. What is missing,

.. math:: m = 2b \bigl(e^{-|f|/b} \sinh\tfrac{1}{2b} - 1 + e^{-1/(2b)} \cosh\tfrac{f}{b}\bigr) ≥ 0,

is added as :math:`2 m \cos^2(π (n - k_0))` within that cell, after which all integers have their proper shares.
`lattice_mass` gives m; from a scale of 1.5 on it changes nothing that can be seen and is left out.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bayesprivmrf.model.tables import FloatArray

_VARIANCE = 0.25
"""Variance of the difference of the two potentials, by which acceptance falls to about eight in ten. It gave the most
effective draws a gradient, twice those at a tenth of it, with a step tuned for `ACCEPTANCE`."""

ACCEPTANCE = 0.65
"""Mean acceptance probability at which a step is best where that fall is part of it.

With the fall alone, at steps of no length, it is .79; a step that is tuned for as much shrinks without end.
"""

_LATTICE_SCALES = (0.05, 1.5)
"""Noise scales at which integers are given their shares: below, the nearest has all in any case."""


def force_width(cells: int) -> float:
    """Width δ over which the force turns round, in noise scales.

    Parameters
    ----------
    cells
        D, number of cells with Laplace noise.
    """
    return float(min((20 * _VARIANCE / max(cells, 1)) ** (1 / 3), 0.3))


def lattice_mass(noisy_counts: FloatArray, scales: FloatArray) -> FloatArray:
    """Mass m that the kernel lacks at the integer nearest to each noisy count; 0 where the noise is not small."""
    low, high = _LATTICE_SCALES
    within = (scales >= low) & (scales <= high)
    b = np.where(within, scales, 1.0)
    f = np.abs(noisy_counts - np.rint(noisy_counts))
    missing = np.exp(-f / b) * np.sinh(0.5 / b) - 1 + np.exp(-0.5 / b) * np.cosh(f / b)
    return np.where(within, np.maximum(2 * b * missing, 0.0), 0.0)


# far out, a number that is none ends a trajectory; an exception would end the sampling
@njit(nogil=True, error_model="numpy")
def laplace_kernel(count, noisy, scale, mass, width):
    """Log kernel of a count given its noisy count, without its constant, and the force at it.

    The mass is m of `lattice_mass`, zero for the kernel at real counts; the width is δ of `force_width`.
    """
    ratio = (noisy - count) / scale
    value, force = -abs(ratio), min(max(ratio / width, -1.0), 1.0) / scale
    offset = count - np.rint(noisy)
    if mass > 0.0 and abs(offset) < 0.5:
        own = math.exp(value)
        kernel = own + 2.0 * mass * math.cos(math.pi * offset) ** 2
        force = (own * force - 2.0 * math.pi * mass * math.sin(2.0 * math.pi * offset)) / kernel
        value = math.log(kernel)
    return value, force
