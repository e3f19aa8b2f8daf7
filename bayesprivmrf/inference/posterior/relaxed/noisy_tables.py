r"""How noisy tables depend on latent counts: as compiled code, and as PyMC variables.

Discrete Laplace and Laplace noise have one kernel in the count, :math:`e^{-|y - n| / b}`, and discrete Gaussian and
Gaussian noise have one, :math:`e^{-(y - n)^2 / (2 s^2)}`; the constants do not depend on n. So relaxed counts have
the same posterior under an integer law and under its continuous relative, whose density is the one computed.

Under Laplace noise the compiled derivative is a smoothed one, while the value is exact; and latent counts that stand
for whole numbers have their kernel completed where the noise is below a count: see `laplace_kernel`.

A smoothed likelihood is another likelihood: with ``smoothing`` δ > 0, :math:`|r|` becomes
:math:`\sqrt{r^2 + (δb)^2}`, which has no kink at r = 0.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured_cells import MeasuredCells
from bayesprivmrf.inference.posterior.relaxed.laplace_kernel import (
    ACCEPTANCE,
    force_width,
    laplace_kernel,
    lattice_mass,
)
from bayesprivmrf.model.tables import FloatArray, IntArray


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
