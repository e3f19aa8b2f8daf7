r"""The absolute value with a force that a sampler can follow.

Under Laplace noise the log density has a kink wherever a latent count passes its noisy count. A leapfrog
trajectory that steps over hundreds of kinks makes an error at each, and the step shrinks until it resolves them.

Hamiltonian Monte Carlo does not need the gradient: trajectories preserve volume and can be reversed whatever
function of the position stands in for it, and the draws are right as long as their weights are from the exact
density (Duane et al. 1987, section 2). So the value here is exact, |x|, and what PyTensor takes for its derivative is
the slope of Huber's function, :math:`\max(-1, \min(1, x / δ))`. The two potentials differ by
:math:`(δ - |x|)^2 / (2δ)` within δ, whose variance over D Laplace residuals is at most
:math:`D δ^3 / 20`: the only price, a lower acceptance probability that no step size can raise. `force_width`
keeps it small.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

__all__ = ["absolute", "force_width"]

_VARIANCE = 0.02
"""Of the difference of the two potentials, by which acceptance falls to about nine in ten."""


def force_width(cells: int) -> float:
    """Width δ over which the force turns round, in noise scales.

    Parameters
    ----------
    cells
        D, number of cells with Laplace noise.
    """
    return float(min((20 * _VARIANCE / max(cells, 1)) ** (1 / 3), 0.3))


def absolute(ratio: Any, width: Any) -> Any:
    """|x| of a vector, whose derivative is taken to be that of Huber's function of the given width."""
    return _ABSOLUTE(ratio, width)[0]


class _Absolute(Op):
    __props__ = ()

    def make_node(self, ratio, width):
        variables = [pt.as_tensor(ratio, dtype="float64"), pt.as_tensor(width, dtype="float64")]
        return Apply(self, variables, [variables[0].type(), variables[0].type()])

    def perform(self, node, inputs, output_storage):
        ratio, width = inputs
        output_storage[0][0] = np.abs(ratio)
        output_storage[1][0] = np.clip(ratio / width, -1.0, 1.0)

    def infer_shape(self, fgraph, node, input_shapes):
        return [input_shapes[0], input_shapes[0]]

    def connection_pattern(self, node):
        return [[True, False], [False, False]]

    def pullback(self, inputs, outputs, cotangents):
        if isinstance(cotangents[0].type, DisconnectedType):
            return [disconnected_type(), disconnected_type()]
        return [cotangents[0] * outputs[1], disconnected_type()]


_ABSOLUTE = _Absolute()


@register_funcify_default_op_cache_key(_Absolute)
def _compiled_absolute(op, node, **kwargs):
    @numba_njit
    def values(ratio, width):
        distances, slopes, bound = np.empty_like(ratio), np.empty_like(ratio), width.item()
        for i in range(len(ratio)):
            distances[i] = abs(ratio[i])
            slopes[i] = min(max(ratio[i] / bound, -1.0), 1.0)
        return distances, slopes

    return values, 1
