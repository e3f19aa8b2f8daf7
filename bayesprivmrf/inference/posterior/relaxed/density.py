r"""A posterior's compiled density, driven by data: nothing is compiled for a network.

A formulation has one C function, which numba compiles once an installation and keeps on disk,

    ``visit(size, position, gradient, value, given) -> 0, or not where the density is not a number``.

`given` is an array of whole numbers: the task, the addresses of the latent numbers and of derivatives by them, and
then three for each array of the data, its address and its lengths. For the task `POSTERIOR`, whose signature is
that of nutpie's own densities, so that its threads call it without Python, `value` becomes the log density of the
position under the prior plus that of the noisy counts, and `gradient` its gradient, with the likelihood's force in
place of its derivative. For `FORWARD` the latent numbers at the position are written, and `value` is the log prior
density. For `PULLBACK` `gradient` becomes the exact derivative by the position, given those by the latent numbers
and, in `value`, by the log prior density. Latent numbers are flat: counts first, then whatever else follows from
the position. It is one function, since each would be compiled with all that it calls.

Likelihood of noisy tables given latent counts: as compiled code, and as PyMC variables.

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

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from numba import njit, types

from bayesprivmrf.compiled import INNER, carray, kept_c_function, pointer, put
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.model.tables import FloatArray, IntArray

FORWARD, POSTERIOR, PULLBACK = range(3)
# arrays among those given that come before the data: the latent numbers, and the derivatives by them
FIRST = 2
# numbers that come before the data: the task, and three for each of those arrays
_HEAD = 1 + 3 * FIRST
# types of the C function: see the module's docstring
_REAL = types.CPointer(types.double)
# result, number of positions, position, gradient, value, and address of what is given
_SIGNATURE = types.int64(types.uint64, _REAL, _REAL, _REAL, types.voidptr)


def compiled_visit(function: Callable[..., Any]) -> Any:
    """Return the C function of a formulation, loaded from disk or compiled."""
    return kept_c_function(_SIGNATURE)(function)


@njit(nogil=True, **INNER)
def finished(found, task, given, gradient, value):
    """Write the results of a formulation's `_visit` to the addresses that its task needs; return the status."""
    latent, prior, likelihood, slope = found
    value[0] = prior + likelihood
    if task == FORWARD:
        out = carray(pointer(given[1]), (latent.size,), types.float64)
        put(out, latent)
        return 0
    put(gradient, slope)
    return 0 if np.isfinite(value[0]) and np.isfinite(slope).all() else 3


@dataclass(frozen=True, eq=False, kw_only=True)
class Density:
    """The compiled density of one posterior.

    Parameters
    ----------
    visit
        Returns the C function, which is loaded or compiled at the first call.
    kinds
        Type and number of axes of each array of the data, one letter and digit each: ``f1 i1 f2 ...``.
    arrays
        The data: arrays, and tuples of arrays.
    size
        Number of the sampler's positions.
    shapes
        Shape of each group of latent numbers, by name, in the order of the flat vector.
    """

    visit: Callable[[], Any]
    kinds: str
    arrays: tuple[Any, ...]
    size: int
    shapes: Mapping[str, tuple[int, ...]]

    @cached_property
    def places(self) -> dict[str, slice]:
        """Slice of each group among the latent numbers."""
        stops = np.cumsum([math.prod(shape) for shape in self.shapes.values()]).tolist()
        return {
            name: slice(start, stop)
            for name, start, stop in zip(self.shapes, [0, *stops], stops, strict=False)
        }

    @property
    def latent_size(self) -> int:
        """Number of latent numbers."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @cached_property
    def given(self) -> IntArray:
        """Numbers for the C function with the task `POSTERIOR`; they must outlive every call."""
        numbers, arrays, kinds = [POSTERIOR, *[0] * (_HEAD - 1)], _leaves(self.arrays), self.kinds.split()
        for array, kind in zip(arrays, kinds, strict=True):
            if (_KINDS[array.dtype.str[1:]] + str(array.ndim), array.flags.c_contiguous) != (kind, True):
                raise TypeError(
                    f"the density takes a contiguous {kind}, got {array.dtype} of {array.ndim} axes."
                )
            numbers += [array.ctypes.data, *array.shape, *[1] * (2 - array.ndim)]
        return np.array(numbers, np.int64)

    def posterior(self, position: FloatArray) -> tuple[float, FloatArray]:
        """Return the log density at a position, and the vector that a sampler follows as its gradient."""
        gradient, value = np.empty(self.size), np.zeros(1)
        self._call(self.given, position, gradient, value)
        return float(value[0]), gradient

    def forward(self, position: FloatArray) -> tuple[FloatArray, float]:
        """Return the latent numbers at a position, and the log prior density of the position."""
        latent, value, given = np.empty(self.latent_size), np.zeros(1), self.given.copy()
        given[:2] = FORWARD, latent.ctypes.data
        self._call(given, position, np.empty(0), value)
        return latent, float(value[0])

    def pullback(self, position: FloatArray, by_latent: FloatArray, by_prior: float) -> FloatArray:
        """Return the derivative by the position, from those by the latent numbers and by the log prior density."""
        gradient, value, given = np.empty(self.size), np.array([float(by_prior)]), self.given.copy()
        by_latent = np.ascontiguousarray(by_latent, dtype=float)
        given[0], given[4] = PULLBACK, by_latent.ctypes.data
        self._call(given, position, gradient, value)
        return gradient

    def _call(self, given: IntArray, position: FloatArray, gradient: FloatArray, value: FloatArray) -> None:
        position = np.ascontiguousarray(position, dtype=float)
        addresses = (_address(array) for array in (position, gradient, value))
        self.visit().ctypes(self.size, *addresses, given.ctypes.data)

    def expand(self, positions: FloatArray, names: Sequence[str]) -> dict[str, FloatArray]:
        """Return groups of latent numbers, (chain, draw, ...), at positions of shape (chain, draw, size)."""
        lead, flat = positions.shape[:2], np.ascontiguousarray(positions.reshape(-1, self.size))
        expanded = {name: np.empty((len(flat), *self.shapes[name])) for name in names}
        for place, position in enumerate(flat):
            latent, _ = self.forward(position)
            for name, values in expanded.items():
                values[place] = latent[self.places[name]].reshape(self.shapes[name])
        return {name: values.reshape(*lead, *self.shapes[name]) for name, values in expanded.items()}


# letter of each type of array, as `Density.kinds` has them
_KINDS = {"f8": "f", "i8": "i", "i4": "h", "u1": "b"}


def _address(array: FloatArray) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


def _leaves(arrays: Any) -> list[Any]:
    """Return the arrays of nested tuples, in order."""
    return [leaf for part in arrays for leaf in _leaves(part)] if isinstance(arrays, tuple) else [arrays]


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
