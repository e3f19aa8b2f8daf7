r"""Potentials of the population given latent tables: this step restores the sampling noise.

Latent tables say what the N records were, not what they were drawn from. Given tables of statistics s the potentials
follow

.. math:: p(β \mid n) \propto \exp\bigl(β·s - N A(β) - \tfrac12 β' T^{-1} β\bigr),

which does not depend on the noisy tables, is log-concave, and for few records is far from normal. Each sampled draw
of the tables gets one draw of it, by Hamiltonian Monte Carlo from a normal approximation: some trajectories of a
quarter period each, in coordinates whitened by the curvature at a preliminary mode, rescaled coordinate by coordinate
to the draw's own. Were the target normal with that curvature, one trajectory would forget its start. Metropolis'
correction makes the target exact, so what remains of the start shrinks from trajectory to trajectory. A start
where the target has next to no mass is moved towards the centre, and a draw whose first trajectories are refused
takes smaller steps: with many empty cells the preliminary curvature can be far from a draw's own.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numba import njit

from bayesprivmrf.compiled import INNER, kept, put
from bayesprivmrf.inference.posterior import effects_engine
from bayesprivmrf.inference.posterior.effects_engine import Plan
from bayesprivmrf.model.tables import FloatArray

_evaluate, _marginals, _means = effects_engine._evaluate, effects_engine._marginals, effects_engine._means
# trajectories per draw; fewer beyond 150 coordinates, each of which then has many records or little skew
_TRAJECTORIES, _MANY, _FEWER = 8, 150, 4
# step size in 60 whitened dimensions; the acceptance falls with the dimension times the step's fourth power
_STEP = 0.5
# draws by which the step is tuned before all others are made
_PILOT = 32
# least mean acceptance of the tuned step: near 0.651, which is optimal for Hamiltonian Monte Carlo in many dimensions
_ACCEPTED = 0.65
# most halvings of the step while it is tuned, to a sixteenth
_HALVINGS = 4
# most halvings of a first move to where the target has almost no mass, to a 4,000th of a standard deviation
_DRAWN_IN = 12
# Parts that threads share, each with a generator of its own: the draws do not depend on the number of threads
_PARTS = 16


@njit(nogil=True, **INNER)
def target(beta, statistics, total, precision, tape):
    """Return log p(β | n) up to a constant, its gradient s - N E t - T⁻¹ β, and μ."""
    mu, log_partition, _ = _marginals(beta, *tape)
    mean = _means(mu, tape[-3], tape[-2], tape[-1], beta.size)
    value = -total * log_partition
    gradient = np.empty(beta.size)
    for i in range(beta.size):
        value += beta[i] * (statistics[i] - 0.5 * precision[i] * beta[i])
        gradient[i] = statistics[i] - total * mean[i] - precision[i] * beta[i]
    return value, gradient, mu


@njit(nogil=True, **INNER)
def _normals(size, rng):
    out = np.empty(size)
    for i in range(size):
        out[i] = rng.standard_normal()
    return out


@njit(nogil=True, **INNER)
def spread(root, scale, whitened):
    """Return a move of the coordinates from one in whitened coordinates; a root without rows is the identity."""
    return scale * (root @ whitened) if root.size else scale * whitened


@njit(nogil=True, **INNER)
def _gathered(root, scale, gradient):
    """Apply the transpose of `spread` to a gradient."""
    return root.T @ (scale * gradient) if root.size else scale * gradient


@njit(nogil=True, **INNER)
def _start(centre, root, scale, statistics, total, precision, rng, tape):
    """Draw from the normal approximation, moved towards its center while the target has almost no mass at the draw.

    Under the approximation the log-density falls by half a chi-square of d degrees of freedom.
    """
    move = spread(root, scale, _normals(centre.size, rng))
    most, _, _ = target(centre, statistics, total, precision, tape)
    least = most - 0.5 * centre.size - 4.0 * math.sqrt(0.5 * centre.size) - 4.0
    beta = centre + move
    value, gradient, mu = target(beta, statistics, total, precision, tape)
    for _ in range(_DRAWN_IN):
        if value >= least:
            break
        move *= 0.5
        beta = centre + move
        value, gradient, mu = target(beta, statistics, total, precision, tape)
    return beta, value, gradient, mu


@njit(nogil=True, **INNER)
def trajectory(
    beta, value, gradient, mu, statistics, total, precision, root, scale, step, leaps, rng, tape
):  # fmt: skip
    """Make one Hamiltonian trajectory from a point; return the next point, the acceptance, and True if it moved."""
    momentum = _normals(beta.size, rng)
    before = value - 0.5 * np.sum(momentum * momentum)
    # the length varies, for a trajectory of a fixed one could return to its start in some direction
    size = step * (0.8 + 0.4 * rng.random())
    here, new_value, new_gradient, new_mu = beta.copy(), value, gradient, mu
    momentum += 0.5 * size * _gathered(root, scale, new_gradient)
    for leap in range(leaps):
        here += size * spread(root, scale, momentum)
        new_value, new_gradient, new_mu = target(here, statistics, total, precision, tape)
        share = size if leap + 1 < leaps else 0.5 * size
        momentum += share * _gathered(root, scale, new_gradient)
    # Metropolis' correction makes the target exact; an energy that is not a number is refused
    gain = new_value - 0.5 * np.sum(momentum * momentum) - before
    chance = math.exp(min(gain, 0.0)) if gain == gain else 0.0
    if rng.random() < chance:
        return here, new_value, new_gradient, new_mu, chance, True
    return beta, value, gradient, mu, chance, False


@kept()
def _draw(
    points, totals, precisions, excess, base, fixed, root, own, step, leaps, trajectories, rng, tape, betas, mus
):  # fmt: skip
    """Fill `betas` and `mus`, a row for each latent point; return the mean acceptance."""
    accepted = 0.0
    for k in range(points.shape[0]):
        total, precision = totals[k], precisions[k]
        _, _, mean, square, _ = _evaluate(points[k], *tape)
        # sufficient statistics of the latent tables, and this draw's own scale by their curvature
        statistics = (total + excess) * mean - base
        scale, beta = np.empty(mean.size), np.empty(mean.size)
        for i in range(mean.size):
            information = total * (fixed[i] if fixed.size else max(square[i] - mean[i] * mean[i], 0.0))
            scale[i] = math.sqrt(own[i] / (information + precision[i]))
            # the prior's pull, coordinate by coordinate
            beta[i] = points[k, i] * information / (information + precision[i])
        shrunk, _, _ = target(beta, statistics, total, precision, tape)
        own_point, _, _ = target(points[k], statistics, total, precision, tape)
        if own_point > shrunk:  # where cells are empty the curvature at the latent point says little
            beta = points[k].copy()
        beta, value, gradient, mu = _start(beta, root, scale, statistics, total, precision, rng, tape)
        own_step, own_leaps = step, leaps
        for turn in range(trajectories):
            beta, value, gradient, mu, chance, moved = trajectory(
                beta, value, gradient, mu, statistics, total, precision, root, scale, own_step, own_leaps, rng,
                tape,
            )  # fmt: skip
            accepted += chance
            # a draw narrower than the preliminary one
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
        The model.
    points
        θ', coordinates of the latent tables, shape (draws, d): :math:`s = (N + κ) E_{θ'} t - κ E_0 t`.
    totals
        N, records, shape (draws,).
    precisions
        Diagonal of T⁻¹, shape (draws, d).
    curvature
        NΣ + T⁻¹ at a preliminary mode, shape (d, d); its diagonal, shape (d,), where d is large.
    rng
        Source of randomness.
    excess
        κ, records.
    information
        Fisher's information of one record about each coordinate at a preliminary mode, shape (d,), where a draw's own
        cannot be read off the marginals: where a coordinate is of several cliques, as with ties.

    Returns
    -------
    betas, marginals, acceptance
        Shapes (draws, d) and (draws, cells); mean probability with which a trajectory was accepted.
    """
    size = points.shape[1]
    betas, marginals = np.empty(points.shape), np.empty((len(points), plan.effects.cells))
    if not points.size:
        marginals[:] = plan.moments(np.zeros(size))[1]
        return betas, marginals, 1.0
    given = [np.ascontiguousarray(values, dtype=float) for values in (points, totals, precisions)]
    trajectories = _TRAJECTORIES if size <= _MANY else _FEWER
    base = excess * plan.moments(np.zeros(size))[2]
    fixed = np.zeros(0) if information is None else np.ascontiguousarray(information, dtype=float)
    root, own = np.zeros((0, 0)), np.ones(size)  # each draw's own diagonal is all the scale there is
    if curvature.ndim == 2:
        own = np.diag(curvature).copy()
        root = np.ascontiguousarray(np.linalg.inv(np.linalg.cholesky(curvature)).T)

    def run(rows: slice, generator: np.random.Generator, step: float) -> float:
        parts = [np.ascontiguousarray(values[rows]) for values in given]
        found = np.empty_like(parts[0]), np.empty((len(parts[0]), marginals.shape[1]))
        leaps = math.ceil(0.5 * math.pi / step)
        share = _draw(
            *parts, float(excess), base, fixed, root, own,
            step, leaps, trajectories, generator, tuple(plan.tape), *found,
        )  # fmt: skip
        betas[rows], marginals[rows] = found
        return share

    step = _STEP * min(1.0, (60 / size) ** 0.25)
    # a few draws fix the step, with generators of their own: adapting on the way would bias the draws
    pilot = slice(0, len(points), max(len(points) // _PILOT, 1))
    for _ in range(_HALVINGS):
        if run(pilot, rng.spawn(1)[0], step) >= _ACCEPTED:
            break
        step *= 0.5
    bounds = np.linspace(0, len(points), _PARTS + 1).astype(int)
    rows = [slice(a, b) for a, b in pairwise(bounds) if b > a]
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _PARTS)) as pool:
        shares = list(pool.map(run, rows, rng.spawn(len(rows)), [step] * len(rows)))
    return betas, marginals, float(np.mean(shares))
