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
from typing import Any

import numba
import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.source_checksum import checksum

__all__ = ["ACCEPTANCE", "force_width", "lattice_mass", "log_laplace_kernel"]

_VARIANCE = 0.25
"""Variance of the difference of the two potentials, by which acceptance falls to about eight in ten. It gave the most
effective draws a gradient, twice those at a tenth of it, with a step tuned for `ACCEPTANCE`."""

ACCEPTANCE = 0.65
"""Mean acceptance probability at which a step is best where that fall is part of it."""

_LATTICE_SCALES = (0.05, 1.5)
"""Noise scales at which integers are given their shares: below, the nearest has all in any case."""

_VERSION = checksum(__file__)
"""Checksum of the compiled functions, for the cache on disk."""


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


def log_laplace_kernel(counts: Any, noisy_counts: Any, scales: Any, masses: Any, width: float) -> Any:
    """Log kernel of each count given its noisy count, without its constant, as a PyTensor vector.

    Parameters
    ----------
    counts, noisy_counts, scales
        n, y and b, records.
    masses
        m of `lattice_mass`; zeros for the kernel at real counts.
    width
        δ of `force_width`.
    """
    outputs: Any = _KERNEL(counts, noisy_counts, scales, masses, width)
    return outputs[0]


@numba.njit(
    error_model="numpy"
)  # far out, a number that is none ends a trajectory; an exception, the sampling
def _kernel(counts, noisy, scales, masses, width):
    values, slopes = np.empty_like(counts), np.empty_like(counts)
    for i in range(len(counts)):
        ratio = (noisy[i] - counts[i]) / scales[i]
        value, slope = -abs(ratio), min(max(ratio / width, -1.0), 1.0) / scales[i]
        offset = counts[i] - np.rint(noisy[i])
        if masses[i] > 0.0 and abs(offset) < 0.5:
            own = math.exp(value)
            kernel = own + 2.0 * masses[i] * math.cos(math.pi * offset) ** 2
            slope = (own * slope - 2.0 * math.pi * masses[i] * math.sin(2.0 * math.pi * offset)) / kernel
            value = math.log(kernel)
        values[i], slopes[i] = value, slope
    return values, slopes


class _LaplaceKernel(Op):
    __props__ = ()

    def make_node(self, *inputs: Any):
        variables = [pt.as_tensor(given, dtype="float64") for given in inputs]
        return Apply(self, variables, [variables[0].type(), variables[0].type()])

    def perform(self, node, inputs, output_storage):
        counts, noisy, scales, masses, width = inputs
        results = _kernel(counts, noisy, scales, masses, float(width))
        for storage, result in zip(output_storage, results, strict=True):
            storage[0] = result

    def infer_shape(self, node, input_shapes):
        return [input_shapes[0], input_shapes[0]]

    def connection_pattern(self, node):
        return [[True, False], *([False, False] for _ in node.inputs[1:])]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any):
        by_counts = disconnected_type()
        if not isinstance(cotangents[0].type, DisconnectedType):
            by_counts = cotangents[0] * outputs[1]
        return [by_counts, *(disconnected_type() for _ in inputs[1:])]


_KERNEL = _LaplaceKernel()


@register_funcify_default_op_cache_key(_LaplaceKernel)
def _compiled_kernel(op, node, **kwargs):
    @numba_njit
    def values(counts, noisy, scales, masses, width):
        return _kernel(counts, noisy, scales, masses, width.item())

    return values, _VERSION
