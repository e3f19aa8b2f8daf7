r"""Draws of the population's potentials given latent tables, which add the sampling noise.

Latent tables describe the N records, and not the population that the records were drawn from. Given tables with the
statistics s, the potentials have the density

.. math:: p(β \mid n) \propto \exp\bigl(β·s - N A(β) - \tfrac12 β' T^{-1} β\bigr),

which does not depend on the noisy tables. It is log-concave and, for few records, far from normal. For each sampled
draw of the tables one draw of β is made by Hamiltonian Monte Carlo that starts from a normal approximation. It makes
several trajectories, each a quarter of a period, in coordinates that are whitened by the curvature at a preliminary
mode and rescaled, coordinate by coordinate, to the curvature of the draw. If the target were normal with that
curvature, one trajectory would be independent of its start. The Metropolis correction makes the target exact, so the
influence of the start shrinks with each trajectory. A start where the target has almost no mass is moved towards the
center. A draw whose first trajectories are rejected takes smaller steps, because the preliminary curvature can be far
from its own if many cells are empty.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numba import njit

from bayesprivmrf.checks import require
from bayesprivmrf.compiled import INNER, kept, put
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.posterior.effects_engine import Plan, _evaluate, _marginals, _statistics
from bayesprivmrf.model.tables import FloatArray

# Number of parts into which draws are divided, each with its own generator: results do not depend on the threads
_PARTS = 16


@njit(nogil=True, **INNER)
def target(beta, statistics, total, precision, data):
    """Return log p(β | n) up to a constant, its gradient s - N E t - T⁻¹ β, and μ."""
    mu, log_partition, _ = _marginals(beta, data)
    mean = _statistics(mu, data)
    value = -total * log_partition
    gradient = np.empty(beta.size)
    for i in range(beta.size):
        value += beta[i] * (statistics[i] - 0.5 * precision[i] * beta[i])
        gradient[i] = statistics[i] - total * mean[i] - precision[i] * beta[i]
    return value, gradient, mu


@njit(nogil=True, **INNER)
def spread(root, scale, whitened):
    """Map a move in whitened coordinates to the potentials' coordinates; a root without rows is the identity."""
    return scale * (root @ whitened) if root.size else scale * whitened


@njit(nogil=True, **INNER)
def _gathered(root, scale, gradient):
    """Apply the transpose of `spread` to a gradient."""
    return root.T @ (scale * gradient) if root.size else scale * gradient


@njit(nogil=True, **INNER)
def _start(center, root, scale, statistics, total, precision, rng, data):
    """Draw from the normal approximation, and move the draw towards the center while the target has almost no mass.

    Under the approximation, the log density at a draw is below its maximum by half a chi-square variable with d
    degrees of freedom.
    """
    move = spread(root, scale, rng.standard_normal(center.size))
    most, _, _ = target(center, statistics, total, precision, data)
    least = most - 0.5 * center.size - 4.0 * math.sqrt(0.5 * center.size) - 4.0
    beta = center + move
    value, gradient, mu = target(beta, statistics, total, precision, data)
    for _ in range(12):  # at most to a 4,000th of the first move
        if value >= least:
            break
        move *= 0.5
        beta = center + move
        value, gradient, mu = target(beta, statistics, total, precision, data)
    return beta, value, gradient, mu


@njit(nogil=True, **INNER)
def trajectory(
    beta, value, gradient, mu, statistics, total, precision, root, scale, step, leaps, rng, data
):  # fmt: skip
    """Make one Hamiltonian trajectory, and return the next point, the acceptance, and whether it was accepted."""
    # draw a momentum, and remember the energy
    momentum = rng.standard_normal(beta.size)
    before = value - 0.5 * np.sum(momentum * momentum)
    # the length is random: a trajectory of fixed length could return to its start in some direction
    size = step * (0.8 + 0.4 * rng.random())
    here, new_value, new_gradient, new_mu = beta.copy(), value, gradient, mu
    # leapfrog steps: half a step of the momentum at both ends
    momentum += 0.5 * size * _gathered(root, scale, new_gradient)
    for leap in range(leaps):
        here += size * spread(root, scale, momentum)
        new_value, new_gradient, new_mu = target(here, statistics, total, precision, data)
        share = size if leap + 1 < leaps else 0.5 * size
        momentum += share * _gathered(root, scale, new_gradient)
    # the Metropolis correction makes the target exact; an energy that is not a number is rejected
    gain = new_value - 0.5 * np.sum(momentum * momentum) - before
    chance = math.exp(min(gain, 0.0)) if gain == gain else 0.0
    if rng.random() < chance:
        return here, new_value, new_gradient, new_mu, chance, True
    return beta, value, gradient, mu, chance, False


@kept()
def _draw(
    points, totals, precisions, excess, base, fixed, root, own, step, leaps, trajectories, rng, data, betas, mus
):  # fmt: skip
    """Fill `betas` and `mus`, one row for each latent point, and return the mean acceptance probability."""
    accepted = 0.0
    for k in range(points.shape[0]):
        total, precision = totals[k], precisions[k]
        _, _, mean, square, _ = _evaluate(points[k], data)
        # sufficient statistics of the latent tables, and the scale of each coordinate by the curvature of this draw
        statistics = (total + excess) * mean - base
        scale, beta = np.empty(mean.size), np.empty(mean.size)
        for i in range(mean.size):
            information = total * (fixed[i] if fixed.size else max(square[i] - mean[i] * mean[i], 0.0))
            scale[i] = math.sqrt(own[i] / (information + precision[i]))
            # shrinkage by the prior, coordinate by coordinate
            beta[i] = points[k, i] * information / (information + precision[i])
        shrunk, _, _ = target(beta, statistics, total, precision, data)
        own_point, _, _ = target(points[k], statistics, total, precision, data)
        if own_point > shrunk:  # with empty cells the curvature at the latent point is a poor guide
            beta = points[k].copy()
        beta, value, gradient, mu = _start(beta, root, scale, statistics, total, precision, rng, data)
        own_step, own_leaps = step, leaps
        for turn in range(trajectories):
            beta, value, gradient, mu, chance, moved = trajectory(
                beta, value, gradient, mu, statistics, total, precision, root, scale, own_step, own_leaps, rng,
                data,
            )  # fmt: skip
            accepted += chance
            # the target of this draw is narrower than the preliminary curvature says: halve the step
            if not moved and 2 * turn < trajectories and own_leaps < 8 * leaps:
                own_step, own_leaps = 0.5 * own_step, 2 * own_leaps
        put(betas[k], beta)
        put(mus[k], mu)
    return accepted / (points.shape[0] * trajectories)


def draw_potentials(
    plan: Plan,
    points: FloatArray,
    totals: FloatArray,
    precisions: FloatArray,
    curvature: FloatArray,
    rng: np.random.Generator,
    *,
    excess: float = 0.0,
    information: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray, float]:
    """Draw the potentials once for each draw of the latent tables.

    Parameters
    ----------
    plan
        Compiled marginals of the model.
    points
        Coordinates θ' of the latent tables, shape (draws, d): :math:`s = (N + κ) E_{θ'} t - κ E_0 t`.
    totals
        Numbers of records N, shape (draws,).
    precisions
        Diagonal of T⁻¹, shape (draws, d).
    curvature
        NΣ + T⁻¹ at a preliminary mode, shape (d, d); if d is large its diagonal, shape (d,).
    rng
        Random generator.
    excess
        Excess κ, records.
    information
        Fisher information of one record about each coordinate at a preliminary mode, shape (d,). It is needed if a
        coordinate belongs to several cliques, as with ties; None computes it from the marginals of each draw.

    Returns
    -------
    tuple
        Potentials, shape (draws, d); marginals, shape (draws, cells); and the mean acceptance probability of a
        trajectory.
    """
    size = points.shape[1]
    betas, marginals = np.empty(points.shape), np.empty((len(points), plan.effects.cells))
    if not points.size:
        marginals[:] = plan.moments(np.zeros(size))[1]
        return betas, marginals, 1.0
    given = [np.ascontiguousarray(values, dtype=float) for values in (points, totals, precisions)]
    # with more than 150 coordinates each has many records or little skew, and fewer trajectories suffice
    trajectories = 8 if size <= 150 else 4
    base = excess * plan.moments(np.zeros(size))[2]
    fixed = np.zeros(0) if information is None else np.ascontiguousarray(information, dtype=float)
    root, own = np.zeros((0, 0)), np.ones(size)  # without a matrix, each draw is scaled by its own diagonal
    if curvature.ndim == 2:
        own = np.diag(curvature).copy()
        root = np.ascontiguousarray(np.linalg.inv(np.linalg.cholesky(curvature)).T)

    def run(rows: slice, generator: np.random.Generator, step: float) -> float:
        parts = [np.ascontiguousarray(values[rows]) for values in given]
        found = np.empty_like(parts[0]), np.empty((len(parts[0]), marginals.shape[1]))
        leaps = math.ceil(0.5 * math.pi / step)
        share = _draw(
            *parts, float(excess), base, fixed, root, own,
            step, leaps, trajectories, generator, plan.data, *found,
        )  # fmt: skip
        betas[rows], marginals[rows] = found
        return share

    # 0.5 in up to 60 whitened dimensions; the acceptance falls with the dimension times the step's fourth power
    step = 0.5 * min(1.0, (60 / size) ** 0.25)
    # about 32 pilot draws fix the step, with generators of their own: adapting it later would bias the draws
    pilot = slice(0, len(points), max(len(points) // 32, 1))
    for _ in range(4):
        # 0.651 is the optimal acceptance of Hamiltonian Monte Carlo in many dimensions
        if run(pilot, rng.spawn(1)[0], step) >= 0.65:
            break
        step *= 0.5
    bounds = np.linspace(0, len(points), _PARTS + 1).astype(int)
    rows = [slice(a, b) for a, b in pairwise(bounds) if b > a]
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _PARTS)) as pool:
        shares = list(pool.map(run, rows, rng.spawn(len(rows)), [step] * len(rows)))
    require(
        bool(np.isfinite(marginals).all()), "the potentials of the posterior",
        "be so small that sums of their exponentials do not underflow", "some that do",
        "fit with a smaller `scale`, or use NoiseAwareMAP", error=ModelError,
    )  # fmt: skip
    return betas, marginals, float(np.mean(shares))
