r"""Compiled log density of a posterior with relaxed counts, and the likelihood of its noisy numbers.

**One C function per formulation.** Numba compiles it once per installation and stores it on disk, and a network is
only data for it:

    ``visit(size, position, gradient, value, given) -> 0, or another number if the density is not finite``.

`given` is an array of integers, three for each array, its address and two lengths. The first array is for the latent
numbers, the second has derivatives with respect to them, and the others are the data. There are three tasks.

- If both are empty, the function writes the log posterior density to `value` (log prior density of the position plus
  log likelihood), and its gradient to `gradient`, in which a force replaces the derivative of the likelihood (see
  below). The signature is that of nutpie's own densities, so its threads call it without Python.
- If the first array is not empty, it writes the latent numbers there, and the log prior density to `value`.
- If the second is not empty, it writes to `gradient` the exact derivative with respect to the position, given the
  derivatives with respect to the latent numbers and, in `value`, the log prior density.

The vector of latent numbers begins with the counts. One function has all three tasks because each function would be
compiled with everything that it calls. A formulation defines ``_visit``, which returns the latent numbers, the log
prior density, the log likelihood and the gradient.

**Noise.** As a function of the count n, discrete and continuous Laplace noise have the same kernel
:math:`e^{-|y - n| / b}`, and discrete and continuous Gaussian noise the same :math:`e^{-(y - n)^2 / (2 s^2)}`. The
constants do not depend on n. Relaxed counts therefore have the same posterior under discrete noise and under its
continuous counterpart, whose density is computed.

**Kinks.** The log density :math:`-|y - n| / b` has a kink where a latent count n passes its noisy count y. A leapfrog
trajectory that steps over hundreds of kinks makes an error at each, and the step size would have to resolve them all.
However, Hamiltonian Monte Carlo does not need the exact gradient. Trajectories preserve volume and are reversible
with any function of the position in place of the gradient, and the draws are correct if the acceptance uses the exact
density (Duane et al. 1987, section 2). Therefore the value is exact, and the force is the derivative of Huber's
function, :math:`\max(-1, \min(1, r / (δb))) / b` with r = y - n. The two potentials differ by :math:`(δ - |r| / b)^2
/ (2δ)` within δ, with a variance of at most :math:`D δ^3 / 20` over D residuals. The only price is a lower acceptance
probability, which no step size can raise; `force_width` chooses δ so that it stays small.

**Whole numbers.** True counts are integers, and the integer k stands for the relaxed counts in
:math:`[k - \frac12, k + \frac12]`. The integral of the kernel over such an interval that does not contain y is
:math:`2b \sinh(1/(2b))` times its value at k. Over the interval around :math:`k_0` that contains y, with
:math:`f = y - k_0`, the integral is smaller than that. With a noise scale below one record, the nearest integer would
therefore have too little mass. The missing mass,

.. math:: m = 2b \bigl(e^{-|f|/b} \sinh\tfrac{1}{2b} - 1 + e^{-1/(2b)} \cosh\tfrac{f}{b}\bigr) ≥ 0,

is added as :math:`2 m \cos^2(π (n - k_0))` within that interval. All integers then have their correct probabilities.
`lattice_mass` computes m; it is negligible, and left out, for noise scales of 1.5 and more.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.np.numpy_support import from_dtype

from bayesprivmrf.compiled import INNER, carray, kept_c_function, put
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.measured import MeasuredCells
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise import kernels
from bayesprivmrf.noise.kernels import ABSOLUTE, KERNELS, by_kernel

# types of the arrays: real numbers with one axis or two, and whole numbers
F1, F2, I1 = types.float64[::1], types.float64[:, ::1], types.int64[::1]
# types of short whole numbers, and of bytes
H1, B1 = types.int32[::1], types.uint8[::1]
# the latent numbers and derivatives with respect to them, with which every formulation's arrays begin
LATENT = (F1, F1)
# fields of `NoiseData`
NOISE = (I1, I1, F1, F1, F1, F1, I1, F1)
# types of the C function; the module's docstring describes it
_REAL = types.CPointer(types.double)
# result; then number of positions, position, gradient, value, and the address of `given`
_SIGNATURE = types.int64(types.uint64, _REAL, _REAL, _REAL, types.voidptr)


@cache
def compiled_visit(function: Callable[..., Any]) -> Any:
    """Return the C function of a formulation, which is loaded from disk or compiled at the first call."""
    return kept_c_function(_SIGNATURE)(function)


@njit(nogil=True, **INNER)
def task_of(arrays, size, position, value):
    """Return the arguments of `_visit` before the data: the position, and the task."""
    by_latent = arrays[1]
    is_forward = arrays[0].size > 0
    if by_latent.size:
        by_prior = carray(value, (1,))[0]
    else:
        by_prior = 1.0
    return carray(position, (size,)), is_forward, by_latent, by_prior


@njit(nogil=True, **INNER)
def finished(found, arrays, size, gradient, value):
    """Write the results of `_visit` to the addresses that the task needs, and return the status."""
    latent, prior, likelihood, slope = found
    values = carray(value, (1,))
    values[0] = prior + likelihood
    if arrays[0].size:
        put(arrays[0], latent)
        return 0
    put(carray(gradient, (size,)), slope)
    is_finite = math.isfinite(values[0])
    for k in range(slope.size):
        is_finite &= math.isfinite(slope[k])
    return 0 if is_finite else 3


@dataclass(frozen=True, eq=False, kw_only=True)
class Density:
    """Compiled density of one posterior.

    Parameters
    ----------
    visit
        The function that is compiled for C.
    kinds
        Type of each array, after those of `LATENT`.
    arrays
        The data: arrays, and tuples of arrays.
    size
        Length of the sampler's position.
    shapes
        Shape of each group of latent numbers, by name, in the order of the flat vector.
    """

    visit: Callable[..., Any]
    kinds: tuple[types.Array, ...]
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

    @cached_property
    def given(self) -> IntArray:
        """Argument `given` of the C function for the log posterior density; the data must outlive every call."""
        numbers = [0, 0, 1] * len(LATENT)
        for array, kind in zip(_leaves(self.arrays), self.kinds[len(LATENT) :], strict=True):
            if not array.flags.c_contiguous or (from_dtype(array.dtype), array.ndim) != (
                kind.dtype,
                kind.ndim,
            ):
                raise TypeError(
                    f"an array of the density must be a {kind}, got {array.dtype} with {array.ndim} axes."
                )
            numbers += [array.ctypes.data, *array.shape, *[1] * (2 - array.ndim)]
        return np.array(numbers, np.int64)

    def posterior(self, position: FloatArray) -> tuple[float, FloatArray]:
        """Return the log density at a position, and the vector that the sampler uses as its gradient."""
        return self._call(position)

    def forward(self, position: FloatArray) -> tuple[FloatArray, float]:
        """Return the latent numbers at a position, and the log prior density of the position."""
        latent = np.empty(max(place.stop for place in self.places.values()))
        return latent, self._call(position, latent, place=0)[0]

    def pullback(self, position: FloatArray, by_latent: FloatArray, by_prior: float) -> FloatArray:
        """Return the derivative with respect to the position.

        Parameters
        ----------
        position
            Position of the sampler, shape (size,).
        by_latent
            Derivatives with respect to the latent numbers, shape of `forward`'s first result.
        by_prior
            Derivative with respect to the log prior density.
        """
        return self._call(
            position, np.ascontiguousarray(by_latent, dtype=float), by_prior, place=1
        )[1]

    def _call(
        self,
        position: FloatArray,
        latent: FloatArray | None = None,
        value: float = 0.0,
        *,
        place: int = 0,
    ) -> tuple[float, FloatArray]:
        """Call the C function, and return the value and the gradient; `latent` is one of the arrays `LATENT`."""
        given = self.given.copy()
        gradient = np.empty(self.size)
        values = np.array([float(value)])
        if latent is not None:
            given[3 * place : 3 * place + 2] = latent.ctypes.data, latent.size
        arrays = np.ascontiguousarray(position, dtype=float), gradient, values
        addresses = (array.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for array in arrays)
        compiled_visit(self.visit).ctypes(self.size, *addresses, given.ctypes.data)
        return float(values[0]), gradient

    def expand(self, positions: FloatArray, names: Sequence[str]) -> dict[str, FloatArray]:
        """Return groups of latent numbers, shape (chain, draw, ...), at positions of shape (chain, draw, size)."""
        lead = positions.shape[:2]
        flat = positions.reshape(-1, self.size)
        expanded = {name: np.empty((len(flat), *self.shapes[name])) for name in names}
        # one set of arrays and addresses serves all positions: making them takes as long as a small density
        here = np.empty(self.size)
        gradient = np.empty(self.size)
        values = np.empty(1)
        latent = np.empty(max(place.stop for place in self.places.values()))
        given = self.given.copy()
        given[:2] = latent.ctypes.data, latent.size
        real = ctypes.POINTER(ctypes.c_double)
        addresses = [array.ctypes.data_as(real) for array in (here, gradient, values)]
        visit = compiled_visit(self.visit).ctypes
        where = given.ctypes.data
        groups = [
            (own, latent[self.places[name]].reshape(self.shapes[name]))
            for name, own in expanded.items()
        ]
        for place, position in enumerate(flat):
            here[:] = position
            values[:] = 0.0
            visit(self.size, *addresses, where)
            for own, group in groups:
                own[place] = group
        return {
            name: values.reshape(*lead, *self.shapes[name]) for name, values in expanded.items()
        }


def _leaves(arrays: Any) -> list[Any]:
    """Return the arrays of nested tuples, in order."""
    if isinstance(arrays, tuple):
        return [leaf for part in arrays for leaf in _leaves(part)]
    return [arrays]


# Mean acceptance probability for which the step size is tuned under Laplace noise. The smoothed force alone lowers
# the acceptance to 0.79 at steps of length 0, so a step that is tuned for that value would shrink without end.
ACCEPTANCE = 0.65


def force_width(cells: int) -> float:
    """Return the width δ over which the force changes its sign, in noise scales.

    The variance of the difference of the two potentials is then 0.25, and the acceptance about 0.8 of what it would
    be. That gave the most effective draws per gradient, twice those at a tenth of it.

    Parameters
    ----------
    cells
        D, number of cells with Laplace noise.
    """
    return float(min((20 * 0.25 / max(cells, 1)) ** (1 / 3), 0.3))


def lattice_mass(noisy_counts: FloatArray, scales: FloatArray) -> FloatArray:
    """Return the missing mass m at the integer nearest to each noisy count; 0 for noise scales above 1.5."""
    # below a scale of 0.05 the nearest integer has all the mass in any case
    within = (scales >= 0.05) & (scales <= 1.5)
    b = np.where(within, scales, 1.0)
    f = np.abs(noisy_counts - np.rint(noisy_counts))
    missing = np.exp(-f / b) * np.sinh(0.5 / b) - 1 + np.exp(-0.5 / b) * np.cosh(f / b)
    return np.where(within, np.maximum(2 * b * missing, 0.0), 0.0)


# with error_model="numpy" a division by zero far out gives NaN, which ends a trajectory; an exception would end
# sampling
@njit(nogil=True, error_model="numpy")
def laplace_kernel(count, noisy, scale, mass, sharpness):
    """Return the log kernel of a count given its noisy count, without its constant, and the force.

    `mass` is m of `lattice_mass`, or 0 for the kernel at real counts. `sharpness` is 1/δ, with δ of `force_width`.
    """
    inverse = 1.0 / scale
    ratio = (noisy - count) * inverse
    value = -abs(ratio)
    force = min(max(ratio * sharpness, -1.0), 1.0) * inverse
    offset = count - np.rint(noisy)
    if mass > 0.0 and abs(offset) < 0.5:
        own = math.exp(value)
        kernel = own + 2.0 * mass * math.cos(math.pi * offset) ** 2
        force = (own * force - 2.0 * math.pi * mass * math.sin(2.0 * math.pi * offset)) / kernel
        value = math.log(kernel)
    return value, force


class NoiseData(NamedTuple):
    """Arguments of `log_likelihood` from a release, in their order.

    Parameters
    ----------
    starts, columns, entries
        Possible measured cells as sums of latent numbers, a sparse matrix by rows.
    noisy, scales
        Noisy counts and noise scales, records.
    masses
        m of `lattice_mass`; 0 for latent counts that are means.
    kernels
        Codes of the noise's kernels.
    settings
        Width δ of the force, and the sum of the log constants.
    """

    starts: IntArray
    columns: IntArray
    entries: FloatArray
    noisy: FloatArray
    scales: FloatArray
    masses: FloatArray
    kernels: IntArray
    settings: FloatArray

    @classmethod
    def of(cls, evidence: Evidence, cells: MeasuredCells, *, whole_numbers: bool) -> NoiseData:
        """Return the data of one evidence.

        Parameters
        ----------
        evidence
            Evidence of the releases; impossible cells are left out.
        cells
            Latent cells that each measured number sums.
        whole_numbers
            Whether each latent count stands for the nearest integer, rather than for a mean.
        """
        noisy = evidence.noisy_counts[evidence.possible].astype(float)
        scales = evidence.noise_scale[evidence.possible]
        codes = evidence.kernels[evidence.possible]
        is_kinked = codes == ABSOLUTE
        if whole_numbers:
            masses = lattice_mass(noisy, scales)
        else:
            masses = np.zeros(noisy.size)
        constant = -np.log(scales) - by_kernel(
            codes, lambda kernel, s: kernel.log_constant + 0 * s, scales
        )
        return cls(
            *cells.rows,
            noisy=noisy,
            scales=scales,
            masses=np.where(is_kinked & evidence.is_count[evidence.possible], masses, 0.0),
            kernels=codes,
            settings=np.array([force_width(int(is_kinked.sum())), constant.sum()]),
        )


# the formulas of the noise's kernels, compiled into the density
log_kernel = njit(nogil=True, inline="always")(kernels.log_kernel)
kernel_slope = njit(nogil=True, inline="always")(kernels.kernel_slope)


@njit(nogil=True, error_model="numpy", **INNER)
def log_likelihood(latent, starts, columns, entries, noisy, scales, masses, kernels, settings):
    """Return the log density of the noisy counts, and the force: its smoothed derivative by the latent numbers."""
    value = settings[1]
    sharpness = 1.0 / settings[0]
    by_latent = np.zeros_like(latent)
    # each measured number: its latent value, its kernel, and the force on its cells
    for i in range(noisy.size):
        count = 0.0
        for k in range(starts[i], starts[i + 1]):
            count += entries[k] * latent[columns[k]]
        ratio = (noisy[i] - count) / scales[i]
        if kernels[i] == ABSOLUTE:
            term, force = laplace_kernel(count, noisy[i], scales[i], masses[i], sharpness)
        else:
            term = log_kernel(kernels[i], ratio)
            force = kernel_slope(kernels[i], ratio) / scales[i]
        value += term
        for k in range(starts[i], starts[i + 1]):
            by_latent[columns[k]] += entries[k] * force
    return value, by_latent


def observe_noisy_counts(noise: NoiseData, counts: Any) -> Any:
    """Declare the observed variable ``noisy_counts`` inside a PyMC model, given the symbolic counts of the cells."""
    import pymc as pm
    import pytensor.tensor as pt

    rows = np.repeat(np.arange(noise.noisy.size), np.diff(noise.starts))
    sums: Any = pt.inc_subtensor(
        pt.zeros(noise.noisy.size)[rows], noise.entries * counts[noise.columns]
    )

    def logp(value: Any, counts: Any, scale: Any) -> Any:
        ratio: Any = (value - counts) / scale
        offset: Any = counts - pt.round(value)
        wave: Any = pt.cos(np.pi * offset)
        lattice = 2 * noise.masses * wave**2 * (abs(offset) < 0.5)
        found: Any = 0.0
        for kernel in KERNELS.values():
            value = kernel.log(ratio) - kernel.log_constant
            found = pt.where(pt.eq(noise.kernels, kernel.code), value, found)
        # the lattice term is 0 but under the kernel with a kink
        return found + pt.log1p(lattice * pt.exp(pt.minimum(abs(ratio), 30.0))) - pt.log(scale)

    return pm.CustomDist("noisy_counts", sums, noise.scales, logp=logp, observed=noise.noisy)
