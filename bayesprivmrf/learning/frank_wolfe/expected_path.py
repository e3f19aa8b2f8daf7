r"""Private Frank-Wolfe as a random walk: its expected path, the propagation of errors, and limits of couplings.

A node's iterate is a mean of atoms, :math:`w_t = (t\, w_{t-1} + a_t) / (t + 1)`. The atom :math:`a_t` is
:math:`\pm R e_j` with probability proportional to :math:`\exp(\pm G_j / \beta_t)`, where G is minus the gradient at
:math:`w_{t-1}`, in records. With :math:`g = G / \beta_t`, :math:`c_j = \cosh g_j / \sum_k \cosh g_k` and
:math:`\varphi_j = \sinh g_j / \sum_k \cosh g_k`,

.. math:: \operatorname{E}[a_t \mid w_{t-1}] = R \varphi, \qquad
    \operatorname{Cov}[a_t \mid w_{t-1}] = R^2 K_t, \qquad K_t = \operatorname{diag} c - \varphi \varphi^\top ,

and :math:`K_t` is also the derivative of :math:`\varphi` in g. The **expected path** replaces each atom by
:math:`R \varphi`, and the gradient of the records by its mean :math:`N \operatorname{E}[f (\sigma(\langle w_0, f
\rangle) - \sigma(\langle w, f \rangle))]` under a model with coefficients :math:`w_0`.

**Errors.** Let :math:`H_t = N \operatorname{E}[f f^\top \sigma'(\langle w_t, f \rangle)]`, and let :math:`\xi_t` be
the error of the choice, of covariance :math:`R^2 K_t`. A perturbation e of the gradient and the errors of choices
move the iterate by

.. math:: \delta_t = \bigl((t + 1) I + \tfrac{R}{\beta_t} K_t H\bigr)^{-1} \bigl(t\, \delta_{t-1} + \xi_t
    + \tfrac{R}{\beta_t} K_t e \bigr) .

This is the implicit form of the linearized step: the contraction is evaluated at the end of the step. For small steps
the explicit and the implicit form agree to first order. In the first steps the explicit form would grow without
bound, although the walk cannot leave the ball; the implicit form is stable. Sums over steps with the weights of the
mean iterate give S, its derivative in e, and V, its covariance from choices. A change of :math:`w_0` is
:math:`e = H_0\, dw_0`, so the mean iterate responds by :math:`D = S H_0`, the shrinkage of the search.

**Curved limits.** The mean iterate is linear in the gradient of the records, hence in the share c of records that
have both states of a pair, given the measured margins q and r. It is linear in the coupling a only near one value.
For fixed margins and a pair by itself, c is the root of

.. math:: \frac{c\,(1 - q - r + c)}{(q - c)(r - c)} = e^{4a}, \qquad
    \frac{dc}{da} = 4 h(c), \qquad
    \frac{1}{h} = \frac1c + \frac1{q - c} + \frac1{r - c} + \frac1{1 - q - r + c} ,

and for small c, h changes by a factor of e in a quarter of a nat. Where noise makes an estimate too large, linear
limits would use a slope that is too large and a standard error that is too small.

The linear theory (`bayesprivmrf.learning.frank_wolfe.interval`) gives a normal distribution of a coupling, with mean
m and standard deviation s, under the prior :math:`N(0, \tau^2)`. Without the prior it is :math:`N(m_0, s_0^2)` with
:math:`s_0^{-2} = s^{-2} - \tau^{-2}` and :math:`m_0 = m s_0^2 / s^2`. As a share of records, the observation is
:math:`\hat c = c(m) + 4 h(c(m)) (m_0 - m)` with standard deviation :math:`4 h(c(m)) s_0`. A share g of its variance
comes from the choices, whose noise does not depend on the coupling. The rest is sampling variance, which is
proportional to h: in a table of N records with these margins, :math:`\operatorname{Var} c = h / N`. So the density of
a is

.. math:: f(a) \propto \frac{1}{\sqrt v} \exp\Bigl(-\frac{(\hat c - c(a))^2}{2 v} - \frac{a^2}{2 \tau^2}\Bigr),
    \qquad v = (4 h(c(m)) s_0)^2 \Bigl( g + (1 - g) \frac{h(c(a))}{h(c(m))} \Bigr) .

The lower limit is the lower quantile of f. The upper limit is the larger of two upper quantiles, that of f and that
of the normal distribution: upper quantiles of f alone covered too seldom, because the noise of the choices grows with
the coupling, which the linear theory leaves out. Where many records have both states, c is nearly linear over the
interval, and both limits are those of the normal distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from bayesprivmrf.learning.frank_wolfe.node_regressions import step_weights
from bayesprivmrf.model.tables import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedPath:
    """Expected mean iterate of all nodes' regressions, and its derivatives; q = p + 1 features, the constant last.

    Parameters
    ----------
    mean
        Expected mean iterate, shape (p, q).
    sensitivity
        S, its derivative in a perturbation of the gradient, 1/records: shape (p, q, q).
    choices
        V, its covariance from the choices: shape (p, q, q).
    response
        D, its derivative in the coefficients of the model: shape (p, q, q).
    """

    mean: FloatArray
    sensitivity: FloatArray
    choices: FloatArray
    response: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    r"""Settings of a search: the radius R of the ball, the number of steps T, and the multiple :math:`\kappa`."""

    radius: float
    steps: int
    multiple: float


def expected_path(
    features: FloatArray,
    weights: FloatArray,
    truth: FloatArray,
    mask: FloatArray,
    walk: Walk,
) -> ExpectedPath:
    r"""Return the expected path of logistic regressions of each variable on the others, and its errors.

    Parameters
    ----------
    features
        -1 and +1 of records of the model, the constant last: shape (rows, q).
    weights
        Number of records, of all N, that each row represents, shape (rows,).
    truth
        :math:`w_0` of each node, 0 where the mask is 0: shape (p, q).
    mask
        1 for the features that a node may use, else 0: shape (p, q).
    walk
        Settings of the search.
    """
    share = step_weights(walk.steps)
    sharp = []
    target = expit(features @ truth.T)
    w = np.zeros_like(truth)
    mean = np.zeros_like(truth)
    for t in range(1, walk.steps + 1):
        gradient = ((target - expit(features @ w.T)) * weights[:, None]).T @ features * mask
        scale = walk.multiple * expit(np.abs(w).sum(axis=1, keepdims=True))
        slope, spread = _choice(gradient / scale, mask)
        sharp.append((slope, spread, walk.radius / scale))
        w = (t * w + walk.radius * slope) / (t + 1)
        mean += share[t - 1] * w
    curvature = _curvature(features, weights, w, mask)
    sensitivity, choices = _errors(sharp, share, curvature, walk.radius)
    start = _curvature(features, weights, truth, mask)
    return ExpectedPath(
        mean=mean, sensitivity=sensitivity, choices=choices, response=sensitivity @ start
    )


def _choice(scores: FloatArray, mask: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Return :math:`\varphi` and c of each node."""
    top = np.abs(scores).max(axis=1, keepdims=True)
    up = np.exp(scores - top) * mask
    down = np.exp(-scores - top) * mask
    total = (up + down).sum(axis=1, keepdims=True)
    return (up - down) / total, (up + down) / total


def _curvature(
    features: FloatArray, weights: FloatArray, w: FloatArray, mask: FloatArray
) -> FloatArray:
    """Return H of each node, shape (p, q, q)."""
    probability = expit(features @ w.T)
    density = (probability * (1 - probability) * weights[:, None]).T
    inner = np.stack([(features * own[:, None]).T @ features for own in density])
    return inner * mask[:, :, None] * mask[:, None, :]


def _errors(
    sharp: list[tuple[FloatArray, FloatArray, FloatArray]],
    share: FloatArray,
    curvature: FloatArray,
    radius: float,
) -> tuple[FloatArray, FloatArray]:
    """Return S and V, from the last step to the first."""
    p, q, _ = curvature.shape
    sensitivity, choices, onwards = np.zeros((3, p, q, q))
    for t in range(len(sharp), 0, -1):
        slope, spread, gain = sharp[t - 1]
        kernel = -slope[:, :, None] * slope[:, None, :]
        kernel[:, np.arange(q), np.arange(q)] += spread
        step = np.linalg.inv((t + 1) * np.eye(q) + gain[:, :, None] * (kernel @ curvature))
        # the mean iterate by what is added in this step
        moved = (share[t - 1] * np.eye(q) + onwards) @ step
        through = moved @ kernel
        sensitivity += gain[:, :, None] * through
        choices += radius**2 * (through @ moved.transpose(0, 2, 1))
        onwards = t * moved
    return sensitivity, choices


# Points of the grid on which a density is summed up, and searches for its range, each closer than the last. With
# 4,097 points and eight searches, limits differ by at most 0.003 standard deviations.
_POINTS = 257
_PASSES = 4
_REACH = 8.0  # deviations about the mean, and of the prior about 0, at which a search for quantiles begins
_TAIL = 1e-7  # probability left out at each end of the range of integration, far below that of any limit


def curved_limits(
    mean: FloatArray,
    deviation: FloatArray,
    prior: float,
    shares: tuple[FloatArray, FloatArray],
    by_choices: FloatArray,
    prob: float,
) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper limits of couplings, each of shape (pairs,).

    Parameters
    ----------
    mean, deviation
        m and s of each coupling, nats.
    prior
        Its deviation, nats.
    shares
        q and r: the share of records with the second state of a pair's first and second variable, in (0, 1).
    by_choices
        g, the share of the choices in the variance of the answers, in [0, 1].
    prob
        Coverage, in (0, 1).
    """
    tail = (1 - prob) / 2
    # at least a millionth of the prior's information, because the limits divide by it
    information = np.maximum(1 / deviation**2 - 1 / prior**2, 1e-6 / prior**2)
    pull = 1 / (information * deviation**2)
    both, slope = share_of_both(mean, *shares)
    corrected = both + 4 * slope * mean * (pull - 1)
    variance = 16 * slope**2 / information

    def log_density(a: FloatArray) -> FloatArray:
        c, h = share_of_both(a, shares[0][:, None], shares[1][:, None])
        v = variance[:, None] * (
            by_choices[:, None] + (1 - by_choices[:, None]) * h / slope[:, None]
        )
        return -((corrected[:, None] - c) ** 2 / v + np.log(v) + (a / prior) ** 2) / 2

    low = np.minimum(mean - _REACH * deviation, -_REACH * prior)
    high = np.maximum(mean + _REACH * deviation, _REACH * prior)
    for _ in range(_PASSES):  # ever closer to where the density is
        edges = _quantiles(log_density, low, high, (_TAIL, 1 - _TAIL))
        step = (high - low) / (_POINTS - 1)
        low = edges[0] - step
        high = edges[1] + step
    lower, upper = _quantiles(log_density, low, high, (tail, 1 - tail))
    return lower, np.maximum(upper, mean + float(norm.isf(tail)) * deviation)


def _quantiles(
    log_density: Callable[[FloatArray], FloatArray],
    low: FloatArray,
    high: FloatArray,
    levels: tuple[float, float],
) -> list[FloatArray]:
    """Return quantiles of densities that are 0 outside their ends, one a pair for each level."""
    points = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, _POINTS)
    density = log_density(points)
    density = np.exp(density - density.max(axis=1, keepdims=True))
    mass = np.cumsum((density[:, 1:] + density[:, :-1]) / 2, axis=1)
    mass = np.column_stack([np.zeros(len(mass)), mass / mass[:, -1:]])
    return [
        np.array([np.interp(level, own, at) for own, at in zip(mass, points, strict=True)])
        for level in levels
    ]


def share_of_both(a: FloatArray, q: FloatArray, r: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return c, the share of records with both states, and h; see the module.

    Where most records have one of them at least, the share with neither, whose equation is the same in 1 - q and
    1 - r, is found instead: no digits cancel.
    """
    has_most = q + r > 1
    more = np.where(has_most, q + r - 1, 0.0)
    q = np.where(has_most, 1 - q, q)
    r = np.where(has_most, 1 - r, r)
    # beyond, a cell is below 10^-26 of the records either way
    odds = np.exp(np.clip(4 * a, -60.0, 60.0))
    sums = 1 + (q + r) * (odds - 1)
    root = np.sqrt(np.maximum(sums**2 - 4 * q * r * odds * (odds - 1), 0.0))
    c = 2 * q * r * odds / (sums + root)
    cells = np.stack(np.broadcast_arrays(c, q - c, r - c, 1 - q - r + c))
    # cells of probability 0 must not divide by 0
    return c + more, 1 / (1 / np.maximum(cells, 1e-100)).sum(axis=0)
