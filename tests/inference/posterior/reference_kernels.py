"""Compiled moves of the reference sampler, one Markov kernel each, and the two chains that they make up."""

from typing import NamedTuple

import numpy as np
from numba import njit

LEAPFROG_STEPS = 8


class Likelihood(NamedTuple):
    cells: np.ndarray  # (joint states, tables): the flat cell that a record counts in
    noisy: np.ndarray
    is_laplace: np.ndarray
    scale: np.ndarray


class Rows(NamedTuple):
    row: np.ndarray  # (cells,): the Dirichlet row of each cell
    concentration: float


class Gauss(NamedTuple):
    design: np.ndarray  # (joint states, d): effects of each joint state
    whitening: np.ndarray  # (d, d): θ = whitening @ z
    order: np.ndarray  # (d,): which scale a coordinate has
    log_location: float
    covariance: (
        np.ndarray
    )  # of the scales' logarithms, (orders, orders); all zero: they stay where they are
    precision: np.ndarray


@njit(cache=True)
def _log_density(likelihood, cell, count):
    r = likelihood.noisy[cell] - count
    if likelihood.is_laplace[cell]:
        return -abs(r) / likelihood.scale[cell]
    return -0.5 * (r / likelihood.scale[cell]) ** 2


@njit(cache=True)
def _change(likelihood, counts, old, new):
    """Log ratio of the noise densities when a record moves from joint state `old` to `new`; -1 is no state."""
    change = 0.0
    for table in range(likelihood.cells.shape[1]):
        a = likelihood.cells[old, table] if old >= 0 else -1
        b = likelihood.cells[new, table] if new >= 0 else -1
        if a == b:
            continue
        if a >= 0:
            change += _log_density(likelihood, a, counts[a] - 1) - _log_density(
                likelihood, a, counts[a]
            )
        if b >= 0:
            change += _log_density(likelihood, b, counts[b] + 1) - _log_density(
                likelihood, b, counts[b]
            )
    return change


@njit(cache=True)
def _move(likelihood, counts, histogram, old, new):
    for table in range(likelihood.cells.shape[1]):
        if old >= 0:
            counts[likelihood.cells[old, table]] -= 1
        if new >= 0:
            counts[likelihood.cells[new, table]] += 1
    if old >= 0:
        histogram[old] -= 1
    if new >= 0:
        histogram[new] += 1


@njit(cache=True)
def _draw_state(rng, cumulative):
    return min(
        np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"),
        len(cumulative) - 1,
    )


@njit(cache=True)
def _sweep_records(
    rng, likelihood, strides, cardinalities, probability, x, total, counts, histogram
):
    cumulative = np.cumsum(probability)
    for i in range(total):
        new = _draw_state(rng, cumulative)
        if np.log(rng.random()) < _change(likelihood, counts, x[i], new):
            _move(likelihood, counts, histogram, x[i], new)
            x[i] = new
        v = rng.integers(0, len(strides))
        state = (x[i] // strides[v]) % cardinalities[v]
        new = x[i] + (rng.integers(0, cardinalities[v]) - state) * strides[v]
        ratio = np.log(probability[new] / probability[x[i]]) + _change(
            likelihood, counts, x[i], new
        )
        if np.log(rng.random()) < ratio:
            _move(likelihood, counts, histogram, x[i], new)
            x[i] = new


@njit(cache=True)
def _sweep_total(rng, likelihood, probability, x, total, low, high, counts, histogram):
    """Proposals, as many as N may have values, to add or to remove a record; p(N) is in proportion to 1/N."""
    cumulative = np.cumsum(probability)
    for _ in range(high - low):  # a number that depended on N would favour some N
        if rng.random() < 0.5:
            new = _draw_state(rng, cumulative)
            ratio = _change(likelihood, counts, -1, new) + np.log(total / (total + 1))
            if total < high and np.log(rng.random()) < ratio:
                _move(likelihood, counts, histogram, -1, new)
                x[total] = new
                total += 1
        else:
            i = rng.integers(0, total)
            ratio = (
                _change(likelihood, counts, x[i], -1) + np.log(total / (total - 1))
                if total > 1
                else -np.inf
            )
            if total > low and np.log(rng.random()) < ratio:
                _move(likelihood, counts, histogram, x[i], -1)
                total -= 1
                x[i] = x[total]
    return total


@njit(cache=True)
def _keep(
    likelihood,
    probability,
    counts,
    total,
    scales,
    marginals_out,
    counts_out,
    total_out,
    scales_out,
    k,
):
    marginals_out[k] = 0
    for state in range(len(probability)):
        for table in range(likelihood.cells.shape[1]):
            marginals_out[k, likelihood.cells[state, table]] += probability[state]
    counts_out[k] = counts
    total_out[k] = total
    scales_out[k] = scales


@njit(cache=True)
def _begin(rng, likelihood, start, high):
    states = len(likelihood.cells)
    counts, histogram = np.zeros(len(likelihood.noisy)), np.zeros(states)
    x = np.zeros(high, np.int64)
    for i in range(start):
        x[i] = rng.integers(0, states)
        _move(likelihood, counts, histogram, -1, x[i])
    return x, counts, histogram


@njit(cache=True)
def _draw_rows(rng, likelihood, prior, counts):
    """Probabilities of the joint states: a product of Dirichlet rows drawn given the counts."""
    gammas, sums = np.empty(len(counts)), np.zeros(prior.row.max() + 1)
    for cell in range(len(counts)):
        gammas[cell] = rng.gamma(prior.concentration + counts[cell], 1.0)
        sums[prior.row[cell]] += gammas[cell]
    probability = np.ones(len(likelihood.cells))
    for state in range(len(probability)):
        for cell in likelihood.cells[state]:
            probability[state] *= max(gammas[cell], 1e-290) / sums[prior.row[cell]]
    return probability


@njit(cache=True)
def hyper_dirichlet_chain(
    likelihood,
    prior,
    strides,
    cardinalities,
    low,
    high,
    start,
    sweeps,
    thin,
    rng,
    out_m,
    out_n,
    out_t,
    out_s,
):
    x, counts, histogram = _begin(rng, likelihood, start, high)
    total, scales = start, np.zeros(0)
    burn = sweeps // 5
    for sweep in range(-burn, sweeps):
        probability = _draw_rows(rng, likelihood, prior, counts)
        if sweep >= 0 and sweep % thin == 0 and sweep // thin < len(out_t):
            _keep(
                likelihood,
                probability,
                counts,
                total,
                scales,
                out_m,
                out_n,
                out_t,
                out_s,
                sweep // thin,
            )
        _sweep_records(
            rng, likelihood, strides, cardinalities, probability, x, total, counts, histogram
        )
        total = _sweep_total(rng, likelihood, probability, x, total, low, high, counts, histogram)


@njit(cache=True)
def _gaussian_energy(prior, histogram, total, log_scales, theta):
    """Log density of the effects given the records, its gradient, and the joint states' probabilities."""
    value = prior.design @ theta
    top = value.max()
    weights = np.exp(value - top)
    probability = weights / weights.sum()
    precision = np.exp(-2 * log_scales[prior.order])
    log_partition = top + np.log(weights.sum())
    log_density = histogram @ value - total * log_partition - 0.5 * np.sum(theta**2 * precision)
    return (
        log_density,
        prior.design.T @ (histogram - total * probability) - theta * precision,
        probability,
    )


@njit(cache=True)
def _hamiltonian_step(rng, prior, histogram, total, log_scales, theta, step):
    momentum = rng.standard_normal(len(theta))
    density, gradient, probability = _gaussian_energy(prior, histogram, total, log_scales, theta)
    begin = density - 0.5 * np.sum(momentum**2)
    size = step * (0.5 + rng.random())
    moved, new_probability = theta.copy(), probability
    for _ in range(LEAPFROG_STEPS):
        momentum = momentum + 0.5 * size * (prior.whitening.T @ gradient)
        moved = moved + size * (prior.whitening @ momentum)
        density, gradient, new_probability = _gaussian_energy(
            prior, histogram, total, log_scales, moved
        )
        momentum = momentum + 0.5 * size * (prior.whitening.T @ gradient)
    if np.log(rng.random()) < density - 0.5 * np.sum(momentum**2) - begin:
        return moved, new_probability, True
    return theta, probability, False


@njit(cache=True)
def _sweep_scales(rng, prior, theta, log_scales):
    """Random-walk steps on each log τ_g given the effects."""
    for g in range(len(log_scales) if prior.covariance[0, 0] > 0 else 0):
        square, size = 0.0, 0
        for j in range(len(theta)):
            if prior.order[j] == g:
                square += theta[j] ** 2
                size += 1
        for _ in range(5):
            away = log_scales - prior.log_location
            step = rng.standard_normal() * min(np.sqrt(prior.covariance[g, g]), 1.5 / np.sqrt(size))
            old, new = log_scales[g], log_scales[g] + step
            ratio = -size * step - 0.5 * square * (np.exp(-2 * new) - np.exp(-2 * old))
            ratio -= step * (prior.precision[g] @ away) + 0.5 * step**2 * prior.precision[g, g]
            if np.log(rng.random()) < ratio:
                log_scales[g] = new


@njit(cache=True)
def log_linear_chain(
    likelihood,
    prior,
    strides,
    cardinalities,
    low,
    high,
    start,
    sweeps,
    thin,
    rng,
    out_m,
    out_n,
    out_t,
    out_s,
):
    x, counts, histogram = _begin(rng, likelihood, start, high)
    total, theta = start, np.zeros(prior.design.shape[1])
    log_scales = np.full(out_s.shape[1], prior.log_location)
    step, burn = 0.2, sweeps // 5
    for sweep in range(-burn, sweeps):
        theta, probability, accepted = _hamiltonian_step(
            rng, prior, histogram, total, log_scales, theta, step
        )
        if sweep < 0:  # the step is adapted before the draws that are kept, towards 80 % accepted
            step *= np.exp(0.05 * ((1.0 if accepted else 0.0) - 0.8))
        _sweep_scales(rng, prior, theta, log_scales)
        if sweep >= 0 and sweep % thin == 0 and sweep // thin < len(out_t):
            scales = np.exp(log_scales)
            _keep(
                likelihood,
                probability,
                counts,
                total,
                scales,
                out_m,
                out_n,
                out_t,
                out_s,
                sweep // thin,
            )
        _sweep_records(
            rng, likelihood, strides, cardinalities, probability, x, total, counts, histogram
        )
        total = _sweep_total(rng, likelihood, probability, x, total, low, high, counts, histogram)
