r"""Likelihood of noisy tables given latent counts: as compiled code, and as PyMC variables.

Discrete Laplace and Laplace noise have one kernel in the count, :math:`e^{-|y - n| / b}`, and discrete Gaussian and
Gaussian noise have one, :math:`e^{-(y - n)^2 / (2 s^2)}`; the constants do not depend on n. Relaxed counts therefore
have the same posterior under a discrete distribution and under its continuous relative, whose density is computed.

A smoothed likelihood is another likelihood: with ``smoothing`` δ > 0, :math:`|r|` becomes
:math:`\sqrt{r^2 + (δb)^2}`, which has no kink at r = 0.

**Kinks.** The log density :math:`-|y - n| / b` has a kink wherever a latent count n passes its noisy count y. A
leapfrog trajectory that steps over hundreds of kinks makes an error at each, and the step shrinks until it
resolves them. Hamiltonian Monte Carlo does not need the gradient, though: trajectories preserve volume and can be
reversed whatever function of the position stands in for it, and the draws are right as long as their weights are
from the exact density (Duane et al. 1987, section 2). So the value here is exact, and the derivative is that of
Huber's function, :math:`\max(-1, \min(1, r / (δb))) / b` with r = y - n. The two potentials differ by
:math:`(δ - |r| / b)^2 / (2δ)` within δ, of variance at most :math:`D δ^3 / 20` over D residuals. The only price is a
lower acceptance probability that no step size can raise. `force_width` keeps it small.

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
from typing import Any, NamedTuple, cast

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.model.tables import FloatArray, IntArray

# Variance of the difference of the two potentials, by which acceptance falls to about eight in ten. It gave the
# most effective draws a gradient, twice those at a tenth of it, with a step tuned for `ACCEPTANCE`.
_VARIANCE = 0.25

# Mean acceptance probability at which a step is best where that fall is part of it.
#
# With the fall alone, at steps of no length, it is .79; a step that is tuned for as much shrinks without end.
ACCEPTANCE = 0.65

# Noise scales at which integers are given their shares: below, the nearest has all in any case
_LATTICE_SCALES = (0.05, 1.5)


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


class NoiseData(NamedTuple):
    """What `log_likelihood` needs of a release, in the order in which it takes it.

    Parameters
    ----------
    starts, columns, entries
        The possible measured cells as sums of latent numbers, a sparse matrix by rows.
    noisy, scales
        Noisy counts and noise scales, records.
    masses
        m of `lattice_mass`; zero for latent counts that are means.
    absolute
        1 where the kernel is in the absolute residual, 0 where it is in its square.
    settings
        Width δ of the force, the smoothing, and the sum of the log constants.
    """

    starts: IntArray
    columns: IntArray
    entries: FloatArray
    noisy: FloatArray
    scales: FloatArray
    masses: FloatArray
    absolute: FloatArray
    settings: FloatArray

    @classmethod
    def of(
        cls, evidence: Evidence, cells: MeasuredCells, *, smoothing: float, whole_numbers: bool
    ) -> NoiseData:
        """The data of one evidence.

        Parameters
        ----------
        evidence
            The releases; impossible cells are left out.
        cells
            Which latent cells the measured ones are sums of.
        smoothing
            δ, in noise scales; 0 for the exact likelihood.
        whole_numbers
            Whether each latent count stands for the integer nearest to it, rather than for a mean.
        """
        noisy = evidence.noisy_counts[evidence.possible].astype(float)
        scales = evidence.spread([law.scale for law in evidence.noise])[evidence.possible]
        absolute = evidence.is_absolute[evidence.possible]
        masses = lattice_mass(noisy, scales) if whole_numbers and smoothing == 0 else np.zeros(noisy.size)
        constant = -np.log(scales) - np.where(absolute, math.log(2), 0.5 * math.log(2 * math.pi))
        return cls(
            *cells.rows,
            noisy=noisy,
            scales=scales,
            masses=np.where(absolute & evidence.is_count[evidence.possible], masses, 0.0),
            absolute=absolute.astype(float),
            settings=np.array([force_width(int(absolute.sum())), smoothing, constant.sum()]),
        )


@njit(nogil=True, error_model="numpy", **INNER)
def log_likelihood(latent, starts, columns, entries, noisy, scales, masses, absolute, settings):
    """Log density of the noisy counts, and what stands for its derivative by the latent numbers."""
    value, by_latent = settings[2], np.zeros_like(latent)
    for i in range(noisy.size):
        count = 0.0
        for k in range(starts[i], starts[i + 1]):
            count += entries[k] * latent[columns[k]]
        ratio = (noisy[i] - count) / scales[i]
        if absolute[i] == 0.0:
            term, force = -0.5 * ratio * ratio, ratio / scales[i]
        elif settings[1] > 0.0:
            distance = math.sqrt(ratio * ratio + settings[1] * settings[1])
            term, force = -distance, ratio / (distance * scales[i])
        else:
            term, force = laplace_kernel(count, noisy[i], scales[i], masses[i], settings[0])
        value += term
        for k in range(starts[i], starts[i + 1]):
            by_latent[columns[k]] += entries[k] * force
    return value, by_latent


def target_acceptance(evidence: Evidence, smoothing: float) -> float:
    """Mean acceptance probability for which a sampler's step is tuned: less where Laplace noise costs some of it."""
    return 0.8 if smoothing > 0 or not evidence.is_absolute[evidence.possible].any() else ACCEPTANCE


def observe_noisy_counts(noise: NoiseData, counts: Any) -> Any:
    """Declare the observed variable ``noisy_counts`` inside a PyMC model, dims ``noisy_cell``.

    Parameters
    ----------
    noise
        The release; noisy counts and noise scales become ``pm.Data``.
    counts
        Symbolic latent counts of the possible cells, records.
    """
    import pymc as pm
    import pytensor.tensor as pt

    absolute, smoothing = noise.absolute > 0, float(noise.settings[1])
    rows = np.repeat(np.arange(noise.noisy.size), np.diff(noise.starts))
    sums: Any = pt.inc_subtensor(pt.zeros(noise.noisy.size)[rows], noise.entries * counts[noise.columns])
    noisy: Any = pm.Data("noisy_counts_data", noise.noisy, dims="noisy_cell")
    scale: Any = pm.Data("noise_scale", noise.scales, dims="noisy_cell")

    def logp(value: Any, counts: Any, scale: Any) -> Any:
        ratio: Any = (value - counts) / scale
        distance: Any = pt.sqrt(ratio**2 + smoothing**2) if smoothing > 0 else abs(ratio)
        offset: Any = counts - pt.round(value)
        wave: Any = pt.cos(np.pi * offset)
        lattice = 2 * noise.masses * wave**2 * (abs(offset) < 0.5)
        laplace = pt.log1p(lattice * pt.exp(pt.minimum(distance, 30.0))) - distance
        normal = -0.5 * (ratio**2 + np.log(np.pi / 2))
        kernel: Any = pt.where(absolute, laplace, normal)
        return kernel - cast(Any, pt.log(2 * scale))

    def dist(counts: Any, scale: Any, size: Any) -> Any:
        laplace, normal = (law.dist(counts, scale, size=size) for law in (pm.Laplace, pm.Normal))
        return pt.where(absolute, laplace, normal)

    return pm.CustomDist("noisy_counts", sums, scale, logp=logp, dist=dist, observed=noisy, dims="noisy_cell")
