"""stub"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from numba import njit
from bayesprivmrf.inference.posterior import effects_engine
from bayesprivmrf.inference.posterior.effects_engine import CHECKSUM, Plan, _evaluate

__all__ = ["superpopulation"]


@njit(nogil=True)
def _target(beta, statistics, total, precision, tape):
    mu, A, mean, square, _ = _evaluate(beta, *tape)
    value = -total * A
    gradient = np.empty(beta.size)
    for i in range(beta.size):
        value += beta[i] * statistics[i] - 0.5 * precision[i] * beta[i] * beta[i]
        gradient[i] = statistics[i] - total * mean[i] - precision[i] * beta[i]
    return value, gradient, mu


@njit(nogil=True)
def _chunk(points, totals, precisions, whiten, own, step, leaps, iterations, rng, tape, betas, marginals):
    """HMC draws of beta given counts; returns acceptance."""
    size = points.shape[1]
    accepted = 0.0
    for k in range(points.shape[0]):
        total, precision = totals[k], precisions[k]
        mu, A, mean, square, _ = _evaluate(points[k], *tape)
        stat = total * mean
        scale = np.empty(size)
        beta = np.empty(size)
        for i in range(size):
            info = total * max(square[i] - mean[i] * mean[i], 0.0)
            scale[i] = math.sqrt(own[i] / (info + precision[i]))
            beta[i] = points[k, i] * info / (info + precision[i])
        for i in range(size):
            beta[i] += 0.0
        noise = np.empty(size)
        for i in range(size):
            noise[i] = rng.standard_normal()
        beta += scale * (whiten @ noise)
        value, gradient, mu = _target(beta, stat, total, precision, tape)
        for _ in range(iterations):
            momentum = np.empty(size)
            energy = -value
            for i in range(size):
                momentum[i] = rng.standard_normal()
                energy += 0.5 * momentum[i] * momentum[i]
            here = beta.copy()
            new_value, new_gradient, new_mu = value, gradient, mu
            h = step * (0.8 + 0.4 * rng.random())
            momentum += 0.5 * h * (whiten.T @ (scale * new_gradient))
            for leap in range(leaps):
                here += h * scale * (whiten @ momentum)
                new_value, new_gradient, new_mu = _target(here, stat, total, precision, tape)
                momentum += (h if leap + 1 < leaps else 0.5 * h) * (whiten.T @ (scale * new_gradient))
            change = -new_value - energy
            for i in range(size):
                change += 0.5 * momentum[i] * momentum[i]
            if change < 0.0:
                accepted += 1.0
            elif change == change:
                accepted += math.exp(-change)
            if math.log(rng.random()) < -change:
                beta, value, gradient, mu = here, new_value, new_gradient, new_mu
        betas[k] = beta
        marginals[k] = mu
    return accepted / (points.shape[0] * iterations)


def _entry(checksum):
    @njit(cache=True, nogil=True)
    def chunk(points, totals, precisions, whiten, own, step, leaps, iterations, rng, tape, betas, marginals):
        assert checksum >= 0
        return _chunk(
            points, totals, precisions, whiten, own, step, leaps, iterations, rng, tape, betas, marginals
        )

    return chunk


_run = _entry(CHECKSUM)


def superpopulation(
    plan, points, totals, precisions, information, rng, *, iterations=4, threads=2, spread=None
):
    """draws theta | theta'. points (n,d), totals (n,), precisions (n,d), information (d,d) P0."""
    if spread is not None:  # coherent Gaussian
        info = totals[:, None] * spread
        betas = points * info / (info + precisions) + rng.standard_normal(points.shape) / np.sqrt(
            info + precisions
        )
        return betas, np.array([plan.moments(b)[1] for b in betas]), [1.0]
    own = np.diag(information).copy()
    L = np.linalg.cholesky(information)
    whiten = np.ascontiguousarray(np.linalg.inv(L).T)
    d = points.shape[1]
    step = min(0.5, 0.5 * (60 / max(d, 1)) ** 0.25)
    leaps = max(int(math.ceil(math.pi / 2 / step)), 1)
    betas = np.empty_like(points)
    marginals = np.empty((len(points), plan.effects.cells))
    parts = np.array_split(np.arange(len(points)), threads)
    gens = rng.spawn(threads)
    with ThreadPoolExecutor(threads) as pool:
        jobs = [
            pool.submit(
                _run,
                points[i[0] : i[-1] + 1],
                totals[i[0] : i[-1] + 1],
                precisions[i[0] : i[-1] + 1],
                whiten,
                own,
                step,
                leaps,
                iterations,
                g,
                tuple(plan.tape),
                betas[i[0] : i[-1] + 1],
                marginals[i[0] : i[-1] + 1],
            )
            for i, g in zip(parts, gens)
            if len(i)
        ]
        acc = [j.result() for j in jobs]
    return betas, marginals, acc
