r"""The constants of objective perturbation in whole numbers, so that no bit of floating-point rounding is released.

All numbers that are compared with noise are whole multiples of a step g, a power of two. J is rounded to multiples of
g, which uses no outcome; local fields and s'Js are then exact. Only the terms :math:`m_i \tanh(a m_i)` are rounded,
node by node, so that flipping one outcome changes the rounding of its neighbors alone. The estimate is released on a
public grid of spacing h, also a power of two, by comparing the integer noise with the score at the midpoints of the
grid. docs/explanation/network-privacy.md proves that this mechanism, as it is computed, keeps the guarantee;
`perturbation_constants` states the three places where rounding is paid for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.noise.continuous import DiscreteGaussian, DiscreteLaplace, NoiseDistribution
from bayesprivmrf.privacy.external_field import ExternalField
from bayesprivmrf.privacy.objective_perturbation import (
    SAFETY,
    Calibration,
    CouplingNorms,
    Split,
    least_curvature,
    paper_curvature,
    score_sensitivity,
    split_budget,
    two_sided_delta,
)

NOISE_BITS = 40  # the scale of the noise is about 2^40 steps
# a local field has at most about 2^46 steps, so that a double represents it exactly
FIELD_BITS = 46
# Error of a computed m tanh(a m) before it is rounded, in steps: |m| 2^-50 <= 2^-4.
#
# With t = a m, the rounding of t moves tanh by at most t / cosh^2 t 2^-53 < 2^-54, the error of a library's tanh is
# at most 4 units of 2^-53, and the product adds one more: together below |m| 2^-50. With an external field h,
# t = a m + h: two roundings move t by at most (2|t| + |h|) 2^-53 and tanh by at most (0.9 + |h|) 2^-53, so the
# error is at most (6 + |h|) |m| 2^-53, which is twice the error above for |h| = 10.
TERM_ERROR = 2.0**-4
# Least number of steps in the largest row of J: with fewer, rounding J to steps would change the model.
_SMALLEST_FIELD = 2**16
# Least number of steps in the scale of the noise, so that a step is negligible beside it.
_SMALLEST_SCALE = 2.0**20
# Scales of noise that 64-bit integers hold, with 2^11 scales to spare.
_LARGEST_SCALE = 2.0**52
# Sizes of couplings whose squares and fourth powers stay far from the limits of doubles.
_SMALLEST_COUPLING = 1e-100
_LARGEST_COUPLING = 1e100
# Spacings of the grid in one proxy error: 256, or a half up to four times (to a sixteenth of it) where the slack
# for rounding would add more than a hundredth to Delta.
_SPACINGS = 256
_MOST_DOUBLINGS = 4
_SLACK_SHARE = 0.01
# First relative widening of a scale that costs too much because of rounding; it doubles until the cost is right.
_WIDENING = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class PerturbationConstants:
    r"""Public constants of one perturbation of the score: division of the budget, steps and noise.

    Parameters
    ----------
    calibration
        ``"tight"`` or ``"paper"``.
    epsilon_noise, epsilon_slope
        The parts of epsilon for the noise and for the slope, nats.
    noise
        Distribution of the noise, in steps: discrete Laplace for pure privacy, else discrete Gaussian.
    step
        g, in units of the score.
    grid
        h, spacing of the estimates that can be released, in units of beta.
    pull
        Change of the score by Delta over half a spacing, in steps: :math:`\Delta = 2 g\, \text{pull} / h`.
    sensitivity
        Largest number of steps by which one outcome can move the score, rounding included.
    """

    calibration: Calibration
    epsilon_noise: float
    epsilon_slope: float
    noise: NoiseDistribution
    step: float
    grid: float
    pull: int
    sensitivity: int

    @property
    def curvature(self) -> float:
        """Delta, the coefficient of beta in the perturbed score."""
        return 2 * self.pull * self.step / self.grid

    @property
    def noise_scale(self) -> float:
        """Scale of the noise, in units of the score: b of Laplace noise, or s of normal noise."""
        return self.noise.scale * self.step

    @property
    def noise_deviation(self) -> float:
        """Standard deviation of the noise, in units of the score."""
        return self.noise.standard_deviation * self.step

    def as_dict(self) -> dict[str, Any]:
        """Return the constants as plain values that JSON can hold."""
        names = (
            "calibration",
            "epsilon_noise",
            "epsilon_slope",
            "step",
            "grid",
            "pull",
            "sensitivity",
        )
        return {**{name: getattr(self, name) for name in names}, "noise": self.noise.as_dict()}


def lattice_coupling(coupling: Any, step: float) -> Any:
    """Return J in whole steps, rounded to the nearest: a SciPy matrix of int64 with the same pattern."""
    rounded = coupling.copy()
    rounded.data = np.rint(coupling.data / step).astype(np.int64)
    return rounded


def lattice_offsets(lattice: Any, field: ExternalField | None) -> np.ndarray:
    """Return the numbers that a field subtracts from the local fields, in whole steps: int64 of shape (n,)."""
    if field is None:
        return np.zeros(lattice.shape[0], dtype=np.int64)
    return np.rint(field.offsets(lattice)).astype(np.int64)


def perturbation_constants(
    coupling: Any,
    epsilon: float,
    delta: float = 0.0,
    calibration: Calibration = "tight",
    field: ExternalField | None = None,
) -> PerturbationConstants:
    r"""Return the constants for a coupling matrix, a budget and a public external field, if there is one.

    For the rounded J in steps, let zeta be its `score_sensitivity`, d its largest number of neighbors, n the number
    of nodes and e = `TERM_ERROR`. Rounding is paid for in three places:

    - Sensitivity: the exact bound plus the rounding of d terms in both scores, :math:`\zeta + d (1 + 2e)`.
    - Slope: over one spacing the rounded score falls by at least the fall of the exact score, less one step for each
      node, because a rounded term of a common node falls back by at most one step where the exact term rises. The
      terms of d neighbors differ from the exact ones by up to :math:`c = d (1 + 2e)`. So Delta is increased by
      :math:`(n + c \coth(\epsilon_J / 2))\, g / h`, which keeps the ratio within :math:`e^{\epsilon_J}`.
    - Noise: discrete Laplace noise of scale sensitivity over :math:`\epsilon_N`, or discrete Gaussian noise whose
      exact two-sided tail sum is at most delta.

    Parameters
    ----------
    coupling
        J, a symmetric SciPy matrix in compressed rows with zero diagonal.
    epsilon
        Budget, nats, positive.
    delta
        0 for Laplace noise, or a probability for Gaussian noise.
    calibration
        ``"tight"`` or ``"paper"``.
    field
        The public external field; ``None`` for none.

    Raises
    ------
    ArgumentError
        The budget is so small or so large that a lattice of 64-bit steps cannot hold it; or there is a field, and
        the calibration is the paper's, which has none.
    ModelError
        The largest coupling is so small or so large that its square is not accurate in double precision.
    """
    largest = float(np.abs(coupling.data).max())
    must = "be between 1e-100 and 1e+100 in size"
    remedy = "change the unit of J, and with it the unit of beta"
    is_usual = _SMALLEST_COUPLING <= largest <= _LARGEST_COUPLING
    require(is_usual, "the largest coupling", must, f"{largest:g}", remedy, error=ModelError)
    is_known = calibration != "paper" or field is None
    require(is_known, "calibration", "be 'tight' with an external field", "'paper'", "leave it out")
    norms = CouplingNorms.of(coupling, field)
    split = split_budget(norms, epsilon, delta, calibration)
    remedy = "choose a budget nearer to one"
    require(
        split.proxy_error > 0,
        "epsilon",
        "leave an error that a float can represent",
        epsilon,
        remedy,
    )
    scale = split.multiple * split.sensitivity
    farthest = norms.row_norm * (1 if field is None else 1 + abs(field.center))
    # a step that resolves the noise, or a larger one if local fields would not fit
    exponent = max(
        math.floor(math.log2(scale)) - NOISE_BITS, math.ceil(math.log2(farthest)) - FIELD_BITS
    )
    step = 2.0**exponent
    lattice = lattice_coupling(coupling, step)
    offsets = lattice_offsets(lattice, field)
    size = abs(lattice)
    is_fine = size.sum(axis=1).max() >= _SMALLEST_FIELD
    must = "be so large that couplings are not lost in the noise"
    require(is_fine, "epsilon", must, epsilon, "choose a larger budget")
    rounding = norms.degree * (1 + 2 * TERM_ERROR * (1 if field is None else 2))
    exact = score_sensitivity(size, calibration, field=field, offsets=offsets)
    sensitivity = math.ceil(exact * SAFETY + rounding)
    # the constants are those of the rounded couplings, which the mechanism uses
    rounded = CouplingNorms.of(lattice * step, field, offsets * step)
    if calibration == "paper":
        curvature = paper_curvature(rounded, epsilon)
    else:
        curvature = least_curvature(rounded, split.epsilon_slope)
    # the most that rounding can take from the slope, in steps over one spacing
    slack = norms.nodes + rounding / math.tanh(split.epsilon_slope / 2)
    grid = 2.0 ** math.floor(math.log2(split.proxy_error / _SPACINGS))
    for _ in range(_MOST_DOUBLINGS):
        if slack * step / grid <= _SLACK_SHARE * curvature:
            break
        grid *= 2
    return PerturbationConstants(
        calibration=calibration,
        epsilon_noise=split.epsilon_noise,
        epsilon_slope=split.epsilon_slope,
        noise=_noise(sensitivity, split, epsilon, delta),
        step=step,
        grid=grid,
        pull=math.ceil((curvature * grid / step * SAFETY + slack) / 2),
        sensitivity=sensitivity,
    )


def _noise(sensitivity: int, split: Split, epsilon: float, delta: float) -> NoiseDistribution:
    scale = sensitivity * split.multiple * SAFETY
    is_whole = _SMALLEST_SCALE <= scale < _LARGEST_SCALE
    remedy = "choose a budget nearer to one"
    require(is_whole, "epsilon", "give noise that 64-bit integers can hold", epsilon, remedy)
    if delta == 0:
        return DiscreteLaplace(scale)
    widening = _WIDENING
    while not discrete_two_sided_delta(scale, sensitivity, split.epsilon_noise) <= delta:
        scale *= 1 + widening
        widening *= 2
    return DiscreteGaussian(scale)


def discrete_two_sided_delta(scale: float, sensitivity: int, epsilon: float) -> float:
    r"""Return an upper bound of :math:`\sum_N [p(N) - e^\epsilon p(|N| + Z)]_+` for discrete Gaussian p.

    The normalizer of p is at least that of the normal density :math:`\nu`, and exceeds it by a factor of at most
    :math:`1 + 3 e^{-2 \pi^2 s^2}`, which is 1 in double precision. On each half-line the bracket with :math:`\nu` is
    zero up to :math:`y_0`, rises to one maximum below :math:`\nu(y_0)` and falls. So on each half-line its sum over
    N >= 1 exceeds its integral by at most :math:`\nu(y_0)`, and N = 0 adds at most :math:`\nu(y_0)`. Together these
    are three times :math:`\nu(y_0)` on top of `two_sided_delta`.
    """
    multiple = scale / sensitivity
    start = max(epsilon * multiple - 0.5 / multiple, 0.0)  # y_0 over the scale
    return two_sided_delta(multiple, epsilon) * SAFETY + 3 * math.exp(-0.5 * start * start) / (
        scale * math.sqrt(2 * math.pi)
    )
