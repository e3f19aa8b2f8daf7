r"""Private Frank-Wolfe as the random walk that it is: its expected path, and how errors travel along it.

A node's iterate is a mean of atoms, :math:`w_t = (t\, w_{t-1} + a_t) / (t + 1)`, and the atom :math:`a_t` is
:math:`\pm R e_j` with a probability that goes with :math:`\exp(\pm G_j / \beta_t)`, G being minus the gradient at
:math:`w_{t-1}`, records. With :math:`g = G / \beta_t`, :math:`c_j = \cosh g_j / \sum_k \cosh g_k` and
:math:`\varphi_j = \sinh g_j / \sum_k \cosh g_k`,

.. math:: \operatorname{E}[a_t \mid w_{t-1}] = R \varphi, \qquad
    \operatorname{Cov}[a_t \mid w_{t-1}] = R^2 K_t, \qquad K_t = \operatorname{diag} c - \varphi \varphi^\top ,

and :math:`K_t` is also the slope of :math:`\varphi` in g. The **expected path** puts :math:`R \varphi` in the place
of each atom, and in the place of the records' gradient its mean :math:`N \operatorname{E}[f (\sigma(\langle w_0, f
\rangle) - \sigma(\langle w, f \rangle))]` under a model with coefficients :math:`w_0`.

**Errors.** Let :math:`H_t = N \operatorname{E}[f f^\top \sigma'(\langle w_t, f \rangle)]`, and let :math:`\xi_t` be
the choice's error, of covariance :math:`R^2 K_t`. A perturbation e of the gradient and the errors of choices move the
iterate by

.. math:: \delta_t = \bigl((t + 1) I + \tfrac{R}{\beta_t} K_t H\bigr)^{-1} \bigl(t\, \delta_{t-1} + \xi_t
    + \tfrac{R}{\beta_t} K_t e \bigr) .

This is the linearised step with its contraction taken at the end of the step in place of its beginning. Where the
step is small beside the contraction the two agree to first order; in the first steps, where the linear one would grow
without bound though the walk cannot leave the ball, this one is stable. Sums over steps with the weights of the mean
iterate give S, its derivative in e, and V, its covariance by choices. As a change of :math:`w_0` is
:math:`e = H_0\, dw_0` the answer follows it by :math:`D = S H_0`: what the search shrinks, it shrinks by D.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from bayesprivmrf.learning.frank_wolfe.search import step_weights
from bayesprivmrf.model.tables import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedPath:
    """The mean iterate of all nodes' regressions, and how it moves; q = p + 1 features, the constant last.

    Parameters
    ----------
    mean
        Expected mean iterate, shape (p, q).
    sensitivity
        S, its derivative in a change of the gradient, one over records: shape (p, q, q).
    choices
        V, its covariance by the errors of choices: shape (p, q, q).
    response
        D, its derivative in the model's own coefficients: shape (p, q, q).
    """

    mean: FloatArray
    sensitivity: FloatArray
    choices: FloatArray
    response: FloatArray


def expected_path(
    features: FloatArray,
    weights: FloatArray,
    truth: FloatArray,
    mask: FloatArray,
    *,
    radius: float,
    steps: int,
    multiple: float,
) -> ExpectedPath:
    r"""Return the expected path of logistic regressions of each variable on the others, and its errors.

    Parameters
    ----------
    features
        -1 and +1 of records of the model, the constant last: shape (rows, q).
    weights
        How many of all N records each row stands for, shape (rows,).
    truth
        :math:`w_0` of each node, 0 where the mask is: shape (p, q).
    mask
        1 for the features that a node may use, else 0: shape (p, q).
    radius, steps, multiple
        R, T and :math:`\kappa`, of the search.
    """
    share, sharp = step_weights(steps), []
    target, w, mean = expit(features @ truth.T), np.zeros_like(truth), np.zeros_like(truth)
    for t in range(1, steps + 1):
        gradient = ((target - expit(features @ w.T)) * weights[:, None]).T @ features * mask
        scale = multiple * expit(np.abs(w).sum(axis=1, keepdims=True))
        slope, spread = _choice(gradient / scale, mask)
        sharp.append((slope, spread, radius / scale))
        w = (t * w + radius * slope) / (t + 1)
        mean += share[t - 1] * w
    curvature = _curvature(features, weights, w, mask)
    sensitivity, choices = _errors(sharp, share, curvature, radius)
    start = _curvature(features, weights, truth, mask)
    return ExpectedPath(mean=mean, sensitivity=sensitivity, choices=choices, response=sensitivity @ start)


def _choice(scores: FloatArray, mask: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Return :math:`\varphi` and c of each node."""
    top = np.abs(scores).max(axis=1, keepdims=True)
    up, down = np.exp(scores - top) * mask, np.exp(-scores - top) * mask
    total = (up + down).sum(axis=1, keepdims=True)
    return (up - down) / total, (up + down) / total


def _curvature(features: FloatArray, weights: FloatArray, w: FloatArray, mask: FloatArray) -> FloatArray:
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
        moved = (share[t - 1] * np.eye(q) + onwards) @ step  # the mean iterate by what is added in this step
        through = moved @ kernel
        sensitivity += gain[:, :, None] * through
        choices += radius**2 * (through @ moved.transpose(0, 2, 1))
        onwards = t * moved
    return sensitivity, choices
