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
from inference.posterior.reference_kernels import (
    Gauss,
    Likelihood,
    Rows,
    hyper_dirichlet_chain,
    log_linear_chain,
)

from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from bayesprivmrf.release import NoisyStatistics


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


def hyper_dirichlet_draws(
    release, *, concentration=1.0, total_range=None, **settings
) -> ReferenceDraws:
    """Posterior under a Dirichlet on the first clique and on the rows of each later clique, in declared order."""
    model = release.specification
    prior = Rows(_rows(model), float(concentration))
    return _run(release, hyper_dirichlet_chain, prior, 0, total_range, **settings)


def log_linear_draws(
    release, *, location, in_common=0.0, between=0.0, apart=0.0, total_range=None, **settings
) -> ReferenceDraws:
    """Posterior under β_S ~ N(0, τ_S² I), log τ normal about log location.

    What all log τ have in common varies by `in_common`, what those of an order have by `between`, and each effect's
    own part by `apart`; there is one scale an order where that is 0.
    """
    model = release.specification
    design, order = effect_design(model)
    records = max(float(release.estimated_total), 10.0)
    centred = design - design.mean(0)
    precision = records * centred.T @ centred / len(design) + np.eye(design.shape[1]) / location**2
    whitening = np.linalg.inv(np.linalg.cholesky(precision)).T
    level = effect_of(model) if apart else order
    of_order = np.array([order[np.flatnonzero(level == g)[0]] for g in range(level.max() + 1)])
    scales = len(of_order)
    covariance = (
        in_common**2 + between**2 * (of_order[:, None] == of_order) + apart**2 * np.eye(scales)
    )
    prior = Gauss(
        design=design,
        whitening=np.ascontiguousarray(whitening),
        order=level,
        log_location=math.log(location),
        covariance=covariance,
        precision=np.linalg.pinv(covariance),
    )
    return _run(release, log_linear_chain, prior, scales, total_range, **settings)


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
        np.linalg.qr(np.column_stack([np.ones(k), np.eye(k)]))[0][:, 1:k]
        for k in model.cardinalities
    ]
    columns, order = [], []
    for subset in _subsets(model):
        for choice in product(*(range(contrasts[v].shape[1]) for v in subset)):
            columns.append(
                np.prod(
                    [contrasts[v][x[:, v], j] for v, j in zip(subset, choice, strict=True)], axis=0
                )
            )
            order.append(len(subset) - 1)
    return np.ascontiguousarray(np.stack(columns, axis=1)), np.array(order)


def effect_of(model: ModelSpecification) -> np.ndarray:
    """Which effect each column of `effect_design` is of."""
    sizes = [math.prod(model.cardinalities[v] - 1 for v in subset) for subset in _subsets(model)]
    return np.repeat(np.arange(len(sizes)), sizes)


def _subsets(model: ModelSpecification) -> list[tuple[int, ...]]:
    found = {
        s
        for scope in model.scopes
        for g in range(1, len(scope) + 1)
        for s in combinations(sorted(scope), g)
    }
    return sorted(found, key=lambda s: (len(s), s))


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
    release: NoisyStatistics,
    kernel,
    prior,
    scales,
    total_range,
    *,
    seed,
    chains=4,
    sweeps=20_000,
    thin=10,
):
    model = release.specification
    sizes = np.diff(model.offsets)
    laws = release.noise
    if not all(
        isinstance(law, Laplace | DiscreteLaplace | Gaussian | DiscreteGaussian) for law in laws
    ):
        raise ValueError("the reference sampler knows Laplace and Gaussian noise alone.")
    likelihood = Likelihood(
        joint_cells(model),
        np.asarray(release.tables.flat, float),
        np.repeat([isinstance(law, Laplace | DiscreteLaplace) for law in laws], sizes),
        np.repeat([law.scale for law in laws], sizes),
    )
    strides = np.array(
        [math.prod(model.cardinalities[v + 1 :]) for v in range(len(model.cardinalities))]
    )
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
    cardinalities = np.array(model.cardinalities)
    for chain, rng in enumerate(np.random.default_rng(seed).spawn(chains)):
        out = (draws.marginals[chain], draws.counts[chain], draws.total[chain], draws.scales[chain])
        kernel(likelihood, prior, strides, cardinalities, low, high, start, sweeps, thin, rng, *out)
    return draws
