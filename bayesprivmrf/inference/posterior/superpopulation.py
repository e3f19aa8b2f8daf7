r"""Draws of the population's potentials given latent tables, which add the sampling noise.

Latent tables describe the N records, and not the population that the records were drawn from. Given tables with the
statistics s, the potentials have the density

.. math:: p(β \mid n) \propto \exp\bigl(β·s - N A(β) - \tfrac12 β' T^{-1} β\bigr),

which does not depend on the noisy tables. It is log-concave and, for few records, far from normal. For each sampled
draw of the tables one draw of β is made by Hamiltonian Monte Carlo that starts from a normal approximation. With
:math:`β = m + S z`, the approximation is the standard normal distribution of z. S whitens the curvature at a
preliminary mode, and is rescaled, coordinate by coordinate, to the curvature of the draw. The center m is one Newton
step from the latent point.

**Trajectories.** The energy is the one of a standard normal z and a remainder,

.. math:: H(z, q) = \tfrac12 z'z + \tfrac12 q'q + R(z), \qquad R(z) = -\log p(m + S z \mid n) - \tfrac12 z'z .

The first part moves (z, q) on a circle, which is computed exactly. Only the force -∇R of the remainder needs steps,
and it is small where the target is nearly normal, so three steps or so make a quarter of the circle (Shahbaba, Lan,
Johnson and Neal 2014). If the target were the approximation, one trajectory would be independent of its start. The
Metropolis correction leaves the target unchanged, so the influence of the start shrinks with each of several
trajectories.

**Why each draw starts afresh.** Trajectories that continued from the population of the previous draw would
not have the posterior as their distribution. Given the previous tables, that population is independent of the new
tables, so a finite number of trajectories would leave a mixture of p(β | n) over earlier tables. The error of a fresh
start has no memory, and the start is already close.

A start where the target has almost no mass is moved towards the center. A draw whose first trajectories are rejected
takes smaller steps, because the preliminary curvature can be far from its own if many cells are empty.

References
----------
Shahbaba, Lan, Johnson and Neal (2014). Split Hamiltonian Monte Carlo. Statistics and Computing 24, 339-349.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesprivmrf.checks import require
from bayesprivmrf.compiled import INNER, kept, put
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference.posterior.effects_engine import (
    Plan,
    marginals_at,
    moments_at,
    statistics_of,
)
from bayesprivmrf.model.tables import FloatArray

# Number of parts into which draws are divided, each with its own generator: results do not depend on the threads
_PARTS = 16
# Steps of a trajectory that are tried in turn. Fair's survey takes three; two are often accepted too, but leave
# populations that are slightly too narrow
_LEAPS = (3, 4, 6, 8, 12, 16, 24, 32)
# Mean acceptance at which the trial ends
_ACCEPTANCE = 0.8


@njit(nogil=True, **INNER)
def target(beta, statistics, total, precision, data):
    """Return log p(β | n) up to a constant, its gradient s - N E t - T⁻¹ β, and μ."""
    mu, log_partition, _ = marginals_at(beta, data)
    mean = statistics_of(mu, data)
    value = -total * log_partition
    gradient = np.empty(beta.size)
    for i in range(beta.size):
        value += beta[i] * (statistics[i] - 0.5 * precision[i] * beta[i])
        gradient[i] = statistics[i] - total * mean[i] - precision[i] * beta[i]
    return value, gradient, mu


@njit(nogil=True, **INNER)
def spread(root, scale, whitened):
    """Map a move in whitened coordinates to the potentials' coordinates; a root without rows is the identity."""
    if root.size:
        return scale * (root @ whitened)
    return scale * whitened


@njit(nogil=True, **INNER)
def gathered(root, scale, gradient):
    """Apply the transpose of `spread` to a gradient."""
    if root.size:
        return root.T @ (scale * gradient)
    return scale * gradient


@njit(nogil=True, **INNER)
def _at(place, center, root, scale, statistics, total, precision, data):
    """Return log p(m + S z | n) up to a constant, the force -∇R at z, and μ."""
    value, gradient, mu = target(
        center + spread(root, scale, place), statistics, total, precision, data
    )
    return value, gathered(root, scale, gradient) + place, mu


@njit(nogil=True, **INNER)
def _center(point, at_point, root, scale, statistics, total, precision, data):
    """Return the center m of the normal approximation, and log p(m | n).

    `at_point` has the log density at the latent point, and its gradient. The center is one Newton step away, or the
    point itself if the step does not raise the density: with empty cells the curvature there is a poor guide.
    """
    value, gradient = at_point
    center = point + spread(root, scale, gathered(root, scale, gradient))
    center_value, _, _ = target(center, statistics, total, precision, data)
    if center_value > value:
        return center, center_value
    return point.copy(), value


@njit(nogil=True, **INNER)
def _start(most, center, root, scale, statistics, total, precision, rng, data):
    """Draw z from the normal approximation, and move it towards 0 while the target has almost no mass.

    Under the approximation, the log density at a draw is below its maximum `most` by half a chi-square variable with
    d degrees of freedom.
    """
    least = most - 0.5 * center.size - 4.0 * math.sqrt(0.5 * center.size) - 4.0
    place = rng.standard_normal(center.size)
    value, force, mu = _at(place, center, root, scale, statistics, total, precision, data)
    for _ in range(12):  # at most to a 4,000th of the first move
        if value >= least:
            break
        place *= 0.5
        value, force, mu = _at(place, center, root, scale, statistics, total, precision, data)
    return place, value, force, mu


@njit(nogil=True, **INNER)
def acceptance(gain):
    """Return the Metropolis acceptance probability of a gain in log density; 0 if the gain is not a number."""
    if gain == gain:
        return math.exp(min(gain, 0.0))
    return 0.0


@njit(nogil=True, **INNER)
def _trajectory(
    place, value, force, mu, center, root, scale, statistics, total, precision, leaps, rng, data
):  # fmt: skip
    """Make one trajectory of about a quarter circle, and return the next z, the acceptance, and whether it moved."""
    # draw a momentum, and remember the energy
    momentum = rng.standard_normal(place.size)
    before = value - 0.5 * np.sum(momentum * momentum)
    # the length is random: a trajectory of fixed length could return to its start in some direction
    angle = 0.5 * math.pi / leaps * (0.8 + 0.4 * rng.random())
    cosine = math.cos(angle)
    sine = math.sin(angle)
    here = place.copy()
    new_value = value
    new_force = force
    new_mu = mu
    for _ in range(leaps):
        # half a step of the force, a turn on the circle, and half a step of the new force
        for i in range(here.size):
            pushed = momentum[i] + 0.5 * angle * new_force[i]
            momentum[i] = cosine * pushed - sine * here[i]
            here[i] = cosine * here[i] + sine * pushed
        new_value, new_force, new_mu = _at(
            here, center, root, scale, statistics, total, precision, data
        )
        for i in range(here.size):
            momentum[i] += 0.5 * angle * new_force[i]
    # the Metropolis correction leaves the target unchanged
    gain = new_value - 0.5 * np.sum(momentum * momentum) - before
    chance = acceptance(gain)
    if rng.random() < chance:
        return here, new_value, new_force, new_mu, chance, True
    return place, value, force, mu, chance, False


@kept()
def _draw(
    points, totals, precisions, excess, base, fixed, root, own, leaps, trajectories, rng, data, betas, mus
):  # fmt: skip
    """Fill `betas` and `mus`, one row for each latent point, and return the mean acceptance probability."""
    accepted = 0.0
    for k in range(points.shape[0]):
        point = points[k]
        total = totals[k]
        precision = precisions[k]
        _, log_partition, mean, square, _ = moments_at(point, data)
        # sufficient statistics of the latent tables, and the scale of each coordinate by the curvature of this draw
        statistics = (total + excess) * mean - base
        # the log density and its gradient at the latent point follow from the moments that are known there
        scale = np.empty(mean.size)
        gradient = np.empty(mean.size)
        value = -total * log_partition
        for i in range(mean.size):
            information = total * (
                fixed[i] if fixed.size else max(square[i] - mean[i] * mean[i], 0.0)
            )
            scale[i] = math.sqrt(own[i] / (information + precision[i]))
            value += point[i] * (statistics[i] - 0.5 * precision[i] * point[i])
            gradient[i] = statistics[i] - total * mean[i] - precision[i] * point[i]
        center, most = _center(
            point, (value, gradient), root, scale, statistics, total, precision, data
        )
        place, value, force, mu = _start(
            most, center, root, scale, statistics, total, precision, rng, data
        )
        own_leaps = leaps
        for turn in range(trajectories):
            place, value, force, mu, chance, moved = _trajectory(
                place, value, force, mu, center, root, scale, statistics, total, precision, own_leaps, rng, data
            )  # fmt: skip
            accepted += chance
            # the target of this draw is narrower than the preliminary curvature says: halve the steps
            if not moved and 2 * turn < trajectories and own_leaps < 8 * leaps:
                own_leaps *= 2
        put(betas[k], center + spread(root, scale, place))
        put(mus[k], mu)
    return accepted / (points.shape[0] * trajectories)


class LatentTables(NamedTuple):
    """Draws of the latent tables.

    Parameters
    ----------
    points
        Coordinates θ' of the tables, shape (draws, d): :math:`s = (N + κ) E_{θ'} t - κ E_0 t`.
    totals
        Numbers of records N, shape (draws,).
    precisions
        Diagonal of T⁻¹, shape (draws, d).
    """

    points: FloatArray
    totals: FloatArray
    precisions: FloatArray


def draw_potentials(
    plan: Plan,
    tables: LatentTables,
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
    tables
        Draws of the latent tables.
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
    points = tables.points
    size = points.shape[1]
    betas = np.empty(points.shape)
    marginals = np.empty((len(points), plan.effects.cells))
    if not points.size:
        marginals[:] = plan.moments(np.zeros(size))[1]
        return betas, marginals, 1.0
    given = [np.ascontiguousarray(values, dtype=float) for values in tables]
    # with more than 150 coordinates each has many records or little skew, and fewer trajectories suffice
    trajectories = 8 if size <= 150 else 4
    base = excess * plan.moments(np.zeros(size))[2]
    if information is None:
        fixed = np.zeros(0)
    else:
        fixed = np.ascontiguousarray(information, dtype=float)
    # without a matrix, each draw is scaled by its own diagonal
    root = np.zeros((0, 0))
    own = np.ones(size)
    if curvature.ndim == 2:
        own = np.diag(curvature).copy()
        root = np.ascontiguousarray(np.linalg.inv(np.linalg.cholesky(curvature)).T)

    def run(rows: slice, generator: np.random.Generator, leaps: int) -> float:
        parts = [np.ascontiguousarray(values[rows]) for values in given]
        found = np.empty_like(parts[0]), np.empty((len(parts[0]), marginals.shape[1]))
        share = _draw(
            *parts, float(excess), base, fixed, root, own,
            leaps, trajectories, generator, plan.data, *found,
        )  # fmt: skip
        betas[rows], marginals[rows] = found
        return share

    # about 32 pilot draws fix the number of steps, with generators of their own: later it would depend on the draws
    pilot = slice(0, len(points), max(len(points) // 32, 1))
    accepted = (n for n in _LEAPS if run(pilot, rng.spawn(1)[0], n) >= _ACCEPTANCE)
    leaps = next(accepted, _LEAPS[-1])
    bounds = np.linspace(0, len(points), _PARTS + 1).astype(int)
    rows = [slice(a, b) for a, b in pairwise(bounds) if b > a]
    with ThreadPoolExecutor(min(os.cpu_count() or 1, _PARTS)) as pool:
        shares = list(pool.map(run, rows, rng.spawn(len(rows)), [leaps] * len(rows)))
    require(
        bool(np.isfinite(marginals).all()), "the potentials of the posterior",
        "be so small that sums of their exponentials do not underflow", "some that do",
        "fit with a smaller `scale`, or use NoiseAwareMAP", error=ModelError,
    )  # fmt: skip
    return betas, marginals, float(np.mean(shares))
