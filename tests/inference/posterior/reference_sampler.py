"""Data augmentation over latent records: the exact posterior, at sizes where the tables cannot be enumerated.

The target is p(θ, x_1 .. x_N, N, τ | y), records x_i independent given θ, noise added to the tables of their
counts. Nothing is relaxed: counts are whole numbers. One sweep moves

* each record by an independent proposal from p(x; θ), accepted by the ratio of the noise densities alone
  (Ju, Awan, Gong, Rao 2022, Algorithm 1), and by a new state of one variable (Metropolis);
* N, where it is private, by adding or removing a record (prior 1/N on the whole numbers of a range);
* θ given the records: Dirichlet rows of a junction forest (conjugate), or Hamiltonian steps on the log-concave
  density of zero-sum effects with a Gaussian prior (the Gibbs scheme of Bernstein and Sheldon 2018, whose
  latent sufficient statistics are here those of the records);
* each scale τ_g by a Metropolis step on its logarithm.

Written for tests: the joint states are listed, so only small models fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from bayesprivmrf.release import NoisyStatistics

LEAPFROG_STEPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceDraws:
    """Thinned draws; the first axes are chain and draw."""

    marginals: np.ndarray
    counts: np.ndarray
    total: np.ndarray
    scales: np.ndarray


class Moments(NamedTuple):
    """Mean and standard deviation of each quantity, and the Monte Carlo standard errors of both."""

    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray


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
    spread: float  # 0: the scales stay at exp(log_location)


def hyper_dirichlet_draws(release, *, concentration=1.0, total_range=None, **settings) -> ReferenceDraws:
    """Posterior under a Dirichlet on the first clique and on the rows of each later clique, in declared order."""
    model = release.specification
    prior = Rows(_rows(model), float(concentration))
    return _run(release, _hyper_dirichlet_chain, prior, 0, total_range, **settings)


def log_linear_draws(release, *, location, spread=0.0, total_range=None, **settings) -> ReferenceDraws:
    """Posterior under effects β_S ~ N(0, τ_|S|² I), log τ_g ~ N(log location, spread²)."""
    model = release.specification
    design, order = effect_design(model)
    records = max(float(release.estimated_total), 10.0)
    centred = design - design.mean(0)
    precision = records * centred.T @ centred / len(design) + np.eye(design.shape[1]) / location**2
    whitening = np.linalg.inv(np.linalg.cholesky(precision)).T
    prior = Gauss(design, np.ascontiguousarray(whitening), order, math.log(location), float(spread))
    return _run(release, _log_linear_chain, prior, int(order.max()) + 1, total_range, **settings)


def moments(draws: np.ndarray, batches: int = 10) -> Moments:
    """Mean and standard deviation over chains and draws, with errors from the means of batches."""
    chains, size = draws.shape[:2]
    used = size // batches * batches
    parts = draws[:, :used].reshape(chains * batches, used // batches, *draws.shape[2:])
    mean = parts.mean((0, 1))
    square = (parts - mean) ** 2
    sd = np.sqrt(square.mean((0, 1)))
    count = math.sqrt(len(parts))
    mean_error = parts.mean(1).std(0, ddof=1) / count
    with np.errstate(invalid="ignore", divide="ignore"):
        sd_error = square.mean(1).std(0, ddof=1) / count / (2 * sd)
    return Moments(mean, sd, mean_error, sd_error)


def joint_cells(model: ModelSpecification) -> np.ndarray:
    """Flat cell of each table that each joint state counts in, shape (joint states, tables)."""
    x = np.array(list(product(*map(range, model.cardinalities))))
    tables = zip(model.scopes, model.shapes, model.offsets[:-1], strict=True)
    return np.stack(
        [
            start + np.ravel_multi_index(tuple(x[:, v] for v in scope), shape)
            for scope, shape, start in tables
        ],
        axis=1,
    )


def effect_design(model: ModelSpecification) -> tuple[np.ndarray, np.ndarray]:
    """Value of each orthonormal zero-sum effect in each joint state, (joint states, d), and its order - 1."""
    x = np.array(list(product(*map(range, model.cardinalities))))
    contrasts = [
        np.linalg.qr(np.column_stack([np.ones(k), np.eye(k)]))[0][:, 1:k] for k in model.cardinalities
    ]
    subsets = {
        s for scope in model.scopes for g in range(1, len(scope) + 1) for s in combinations(sorted(scope), g)
    }
    columns, order = [], []
    for subset in sorted(subsets, key=lambda s: (len(s), s)):
        for choice in product(*(range(contrasts[v].shape[1]) for v in subset)):
            columns.append(
                np.prod([contrasts[v][x[:, v], j] for v, j in zip(subset, choice, strict=True)], axis=0)
            )
            order.append(len(subset) - 1)
    return np.ascontiguousarray(np.stack(columns, axis=1)), np.array(order)


def _rows(model: ModelSpecification) -> np.ndarray:
    """Dirichlet row of each cell: a clique's separator is what it shares with the cliques before it."""
    row = np.zeros(model.size, int)
    seen: set[int] = set()
    first = 0
    for position, (scope, shape) in enumerate(zip(model.scopes, model.shapes, strict=True)):
        separator = seen & set(scope)
        holders = [set(other) for other in model.scopes[:position]]
        if separator and not any(separator <= other for other in holders):
            raise ValueError(
                "the cliques must be declared in an order with the running intersection property."
            )
        axes = [axis for axis, v in enumerate(scope) if v in separator]
        index = np.indices(shape).reshape(len(shape), -1)
        start, stop = model.offsets[position : position + 2]
        sizes = tuple(shape[axis] for axis in axes)
        row[start:stop] = first + (np.ravel_multi_index(tuple(index[axes]), sizes) if axes else 0)
        first = int(row[start:stop].max()) + 1
        seen |= set(scope)
    return row


def _run(
    release: NoisyStatistics, kernel, prior, scales, total_range, *, seed, chains=4, sweeps=20_000, thin=10
):
    model = release.specification
    sizes = np.diff(model.offsets)
    laws = release.noise
    if not all(isinstance(law, Laplace | DiscreteLaplace | Gaussian | DiscreteGaussian) for law in laws):
        raise ValueError("the reference sampler knows Laplace and Gaussian noise alone.")
    likelihood = Likelihood(
        joint_cells(model),
        np.asarray(release.tables.flat, float),
        np.repeat([isinstance(law, Laplace | DiscreteLaplace) for law in laws], sizes),
        np.repeat([law.scale for law in laws], sizes),
    )
    strides = np.array([math.prod(model.cardinalities[v + 1 :]) for v in range(len(model.cardinalities))])
    if release.total is not None:
        low = high = start = release.total
    else:
        low, high = math.ceil(total_range[0]), math.floor(total_range[1])
        start = int(np.clip(release.estimated_total, low, high))
    kept = sweeps // thin
    shape = (chains, kept)
    draws = ReferenceDraws(
        marginals=np.empty((*shape, model.size)),
        counts=np.empty((*shape, model.size)),
        total=np.empty(shape),
        scales=np.empty((*shape, scales)),
    )
    for chain, entropy in enumerate(np.random.SeedSequence(seed).generate_state(chains)):
        out = (draws.marginals[chain], draws.counts[chain], draws.total[chain], draws.scales[chain])
        cardinalities = np.array(model.cardinalities)
        kernel(likelihood, prior, strides, cardinalities, low, high, start, sweeps, thin, entropy, *out)
    return draws


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
            change += _log_density(likelihood, a, counts[a] - 1) - _log_density(likelihood, a, counts[a])
        if b >= 0:
            change += _log_density(likelihood, b, counts[b] + 1) - _log_density(likelihood, b, counts[b])
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
def _draw_state(cumulative):
    return min(
        np.searchsorted(cumulative, np.random.random() * cumulative[-1], side="right"), len(cumulative) - 1
    )


@njit(cache=True)
def _sweep_records(likelihood, strides, cardinalities, probability, x, total, counts, histogram):
    cumulative = np.cumsum(probability)
    for i in range(total):
        new = _draw_state(cumulative)
        if np.log(np.random.random()) < _change(likelihood, counts, x[i], new):
            _move(likelihood, counts, histogram, x[i], new)
            x[i] = new
        v = np.random.randint(len(strides))
        state = (x[i] // strides[v]) % cardinalities[v]
        new = x[i] + (np.random.randint(cardinalities[v]) - state) * strides[v]
        ratio = np.log(probability[new] / probability[x[i]]) + _change(likelihood, counts, x[i], new)
        if np.log(np.random.random()) < ratio:
            _move(likelihood, counts, histogram, x[i], new)
            x[i] = new


@njit(cache=True)
def _sweep_total(likelihood, probability, x, total, low, high, counts, histogram):
    """Proposals, as many as N may have values, to add or to remove a record; p(N) is in proportion to 1/N."""
    cumulative = np.cumsum(probability)
    for _ in range(high - low):  # a number that depended on N would favour some N
        if np.random.random() < 0.5:
            new = _draw_state(cumulative)
            ratio = _change(likelihood, counts, -1, new) + np.log(total / (total + 1))
            if total < high and np.log(np.random.random()) < ratio:
                _move(likelihood, counts, histogram, -1, new)
                x[total] = new
                total += 1
        else:
            i = np.random.randint(total)
            ratio = (
                _change(likelihood, counts, x[i], -1) + np.log(total / (total - 1)) if total > 1 else -np.inf
            )
            if total > low and np.log(np.random.random()) < ratio:
                _move(likelihood, counts, histogram, x[i], -1)
                total -= 1
                x[i] = x[total]
    return total


@njit(cache=True)
def _keep(
    likelihood, probability, counts, total, scales, marginals_out, counts_out, total_out, scales_out, k
):
    marginals_out[k] = 0
    for state in range(len(probability)):
        for table in range(likelihood.cells.shape[1]):
            marginals_out[k, likelihood.cells[state, table]] += probability[state]
    counts_out[k] = counts
    total_out[k] = total
    scales_out[k] = scales


@njit(cache=True)
def _begin(likelihood, start, high):
    states, tables = likelihood.cells.shape
    counts, histogram = np.zeros(len(likelihood.noisy)), np.zeros(states)
    x = np.zeros(high, np.int64)
    for i in range(start):
        x[i] = np.random.randint(states)
        _move(likelihood, counts, histogram, -1, x[i])
    return x, counts, histogram


@njit(cache=True)
def _draw_rows(likelihood, prior, counts):
    """Probabilities of the joint states: a product of Dirichlet rows drawn given the counts."""
    gammas, sums = np.empty(len(counts)), np.zeros(prior.row.max() + 1)
    for cell in range(len(counts)):
        gammas[cell] = np.random.gamma(prior.concentration + counts[cell], 1.0)
        sums[prior.row[cell]] += gammas[cell]
    probability = np.ones(len(likelihood.cells))
    for state in range(len(probability)):
        for cell in likelihood.cells[state]:
            probability[state] *= max(gammas[cell], 1e-290) / sums[prior.row[cell]]
    return probability


@njit(cache=True)
def _hyper_dirichlet_chain(
    likelihood,
    prior,
    strides,
    cardinalities,
    low,
    high,
    start,
    sweeps,
    thin,
    seed,
    out_m,
    out_n,
    out_t,
    out_s,
):
    np.random.seed(seed)
    x, counts, histogram = _begin(likelihood, start, high)
    total, scales = start, np.zeros(0)
    burn = sweeps // 5
    for sweep in range(-burn, sweeps):
        probability = _draw_rows(likelihood, prior, counts)
        if sweep >= 0 and sweep % thin == 0 and sweep // thin < len(out_t):
            _keep(likelihood, probability, counts, total, scales, out_m, out_n, out_t, out_s, sweep // thin)
        _sweep_records(likelihood, strides, cardinalities, probability, x, total, counts, histogram)
        total = _sweep_total(likelihood, probability, x, total, low, high, counts, histogram)


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
    return log_density, prior.design.T @ (histogram - total * probability) - theta * precision, probability


@njit(cache=True)
def _hamiltonian_step(prior, histogram, total, log_scales, theta, step):
    momentum = np.random.standard_normal(len(theta))
    density, gradient, probability = _gaussian_energy(prior, histogram, total, log_scales, theta)
    begin = density - 0.5 * np.sum(momentum**2)
    size = step * (0.5 + np.random.random())
    moved, new_probability = theta.copy(), probability
    for _ in range(LEAPFROG_STEPS):
        momentum = momentum + 0.5 * size * (prior.whitening.T @ gradient)
        moved = moved + size * (prior.whitening @ momentum)
        density, gradient, new_probability = _gaussian_energy(prior, histogram, total, log_scales, moved)
        momentum = momentum + 0.5 * size * (prior.whitening.T @ gradient)
    if np.log(np.random.random()) < density - 0.5 * np.sum(momentum**2) - begin:
        return moved, new_probability, True
    return theta, probability, False


@njit(cache=True)
def _sweep_scales(prior, theta, log_scales):
    for g in range(len(log_scales) if prior.spread > 0 else 0):
        square, size = 0.0, 0
        for j in range(len(theta)):
            if prior.order[j] == g:
                square += theta[j] ** 2
                size += 1
        for _ in range(5):
            old = log_scales[g]
            new = old + np.random.standard_normal() * min(prior.spread, 1.5 / np.sqrt(size))
            ratio = -size * (new - old) - 0.5 * square * (np.exp(-2 * new) - np.exp(-2 * old))
            ratio -= ((new - prior.log_location) ** 2 - (old - prior.log_location) ** 2) / (
                2 * prior.spread**2
            )
            if np.log(np.random.random()) < ratio:
                log_scales[g] = new


@njit(cache=True)
def _log_linear_chain(
    likelihood,
    prior,
    strides,
    cardinalities,
    low,
    high,
    start,
    sweeps,
    thin,
    seed,
    out_m,
    out_n,
    out_t,
    out_s,
):
    np.random.seed(seed)
    x, counts, histogram = _begin(likelihood, start, high)
    total, theta = start, np.zeros(prior.design.shape[1])
    log_scales = np.full(out_s.shape[1], prior.log_location)
    step, burn = 0.2, sweeps // 5
    for sweep in range(-burn, sweeps):
        theta, probability, accepted = _hamiltonian_step(prior, histogram, total, log_scales, theta, step)
        if sweep < 0:  # the step is adapted before the draws that are kept, towards 80 % accepted
            step *= np.exp(0.05 * ((1.0 if accepted else 0.0) - 0.8))
        _sweep_scales(prior, theta, log_scales)
        if sweep >= 0 and sweep % thin == 0 and sweep // thin < len(out_t):
            scales = np.exp(log_scales)
            _keep(likelihood, probability, counts, total, scales, out_m, out_n, out_t, out_s, sweep // thin)
        _sweep_records(likelihood, strides, cardinalities, probability, x, total, counts, histogram)
        total = _sweep_total(likelihood, probability, x, total, low, high, counts, histogram)
