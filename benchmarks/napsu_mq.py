"""NAPSU-MQ's posterior (Räisä, Jälkö, Kaski, Honkela 2023), written afresh in JAX for the comparison of samplers.

    y ~ Normal(N μ(θ), N Σ(θ) + σ² I),    θ ~ Normal(0, prior scale² I),

in double precision, sampled by NumPyro's NUTS from the Laplace approximation, which also scales the space.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
import scipy.optimize

from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model import Effects, ModelSpecification

if TYPE_CHECKING:
    from samplers import Problem

BLOCK = 25
"""Draws of one compiled call."""


def row_moments(model: ModelSpecification, rows, chosen: np.ndarray, derivatives: str) -> Callable:
    """Mean and covariance of the chosen cells' indicators in JAX, as a function of those cells' potentials.

    The rows' joint states s_0, s_1, .. are a Markov chain. A cell belongs to a pair of neighbouring rows, of
    which it is a function f(s_r, s_r+1); two functions of different pairs covary through the transitions between.
    With ``derivatives="automatic"`` the rows are summed out one at a time and the moments are the log-partition's
    gradient and Hessian by automatic differentiation.
    """
    import jax
    import jax.numpy as jnp

    home = {v: r for r, row in enumerate(rows) for v in row}
    states = [
        np.array(list(product(*(range(model.cardinalities[v]) for v in row)))) for row in rows
    ]
    pairs = len(rows) - 1

    def indicator(flat: int) -> tuple[int, np.ndarray]:
        position = int(np.searchsorted(model.offsets, flat, side="right")) - 1
        scope = model.scopes[position]
        values = np.unravel_index(flat - model.offsets[position], model.shapes[position])
        pair = min(*(home[v] for v in scope), pairs - 1)
        truth = np.ones((len(states[pair]), len(states[pair + 1])), bool)
        for v, value in zip(scope, values, strict=True):
            row = home[v]
            equal = states[row][:, rows[row].index(v)] == value
            truth &= equal[:, None] if row == pair else equal[None, :]
        return pair, truth

    located = [indicator(int(flat)) for flat in chosen]
    members = [
        np.array([j for j, (pair, _) in enumerate(located) if pair == r]) for r in range(pairs)
    ]
    features = [
        np.stack([located[j][1] for j in block], axis=-1).astype(float) for block in members
    ]
    order = np.argsort(np.concatenate(members))

    def energies(theta):
        return [feature @ theta[block] for feature, block in zip(features, members, strict=True)]

    def log_partition(theta):
        message = jnp.zeros(len(states[0]))
        for energy in energies(theta):
            message = jax.scipy.special.logsumexp(message[:, None] + energy, axis=0)
        return jax.scipy.special.logsumexp(message)

    def moments(theta):
        energy = energies(theta)
        forward = [jnp.zeros(len(states[0]))]
        for r in range(pairs):
            forward.append(jax.scipy.special.logsumexp(forward[r][:, None] + energy[r], axis=0))
        backward = [jnp.zeros(len(states[-1]))]
        for r in reversed(range(pairs)):
            backward.insert(
                0, jax.scipy.special.logsumexp(energy[r] + backward[0][None, :], axis=1)
            )
        whole = jax.scipy.special.logsumexp(forward[-1])
        single = [jnp.exp(a + b - whole) for a, b in zip(forward, backward, strict=True)]
        onward = [
            jnp.exp(energy[r] + backward[r + 1][None, :] - backward[r][:, None])
            for r in range(pairs)
        ]
        before = [
            jnp.exp(forward[r][:, None] + energy[r] - forward[r + 1][None, :]) for r in range(pairs)
        ]
        joint = [single[r][:, None] * onward[r] for r in range(pairs)]
        mean = [jnp.einsum("st,stk->k", joint[r], features[r]) for r in range(pairs)]
        given_last = [jnp.einsum("st,stk->tk", before[r], features[r]) for r in range(pairs)]
        given_first = [jnp.einsum("st,stk->sk", onward[r], features[r]) for r in range(pairs)]
        blocks = [[None] * pairs for _ in range(pairs)]
        for q in range(pairs):
            flat = features[q].reshape(-1, features[q].shape[-1])
            blocks[q][q] = (flat.T * joint[q].ravel()) @ flat - jnp.outer(mean[q], mean[q])
            reach = single[q + 1][:, None] * given_last[q]
            for r in range(q + 1, pairs):
                blocks[q][r] = reach.T @ given_first[r] - jnp.outer(mean[q], mean[r])
                blocks[r][q] = blocks[q][r].T
                reach = onward[r].T @ reach
        return jnp.concatenate(mean)[order], jnp.block(blocks)[order][:, order]

    if derivatives == "automatic":
        return lambda theta: (jax.grad(log_partition)(theta), jax.hessian(log_partition)(theta))
    return moments


@dataclass(frozen=True, kw_only=True)
class Napsu:
    """The normal approximation in the coordinates of as many cells as θ has dimensions."""

    cells: np.ndarray
    potential: Callable
    mode: np.ndarray
    whitening: np.ndarray


def napsu(task: Problem, derivatives: str) -> Napsu:
    """Energy of whitened coordinates z, θ = mode + whitening z, and what is needed to go back."""
    import jax
    import jax.numpy as jnp

    model = task.model
    effects = Effects.of(model.cardinalities, model.scopes)
    engine = marginal_engine(model.cardinalities, model.scopes)
    _, uniform, covariance = engine.linearize(np.zeros(model.size))
    tangents = np.stack([covariance(row) for row in effects.potentials(np.eye(effects.size))])
    basis = np.linalg.qr(tangents.T)[0]
    cells = np.sort(scipy.linalg.qr(basis.T, pivoting=True, mode="r")[1][: effects.size])
    projection = basis @ basis[cells].T
    noise = task.scale**2 * projection[cells]
    noisy = (
        projection.T @ (task.release.tables.flat - task.records * uniform)
        + task.records * uniform[cells]
    )
    flat = np.zeros((effects.size, model.size))
    flat[np.arange(effects.size), cells] = 1
    to_effects = np.stack([effects.coordinates(row) for row in flat], axis=1)
    precision = to_effects.T @ to_effects / task.prior_scale**2
    moments = row_moments(model, task.rows, cells, derivatives)

    def energy(theta):
        mean, spread = moments(theta)
        factor = jnp.linalg.cholesky(task.records * spread + noise)
        residual = jax.scipy.linalg.solve_triangular(
            factor, noisy - task.records * mean, lower=True
        )
        return (
            0.5 * residual @ residual
            + jnp.log(jnp.diag(factor)).sum()
            + 0.5 * theta @ (precision @ theta)
        )

    # The mode by least squares with the covariance held, then of the energy itself by L-BFGS in whitened space.
    theta = np.zeros(effects.size)
    both = jax.jit(moments)
    for _ in range(30):
        expected, sigma = (np.asarray(part) for part in both(theta))
        weight = scipy.linalg.cho_factor(task.records * sigma + noise)
        fisher = task.records**2 * sigma @ scipy.linalg.cho_solve(weight, sigma) + precision
        gradient = (
            task.records * sigma @ scipy.linalg.cho_solve(weight, noisy - task.records * expected)
        )
        step = np.linalg.solve(fisher, gradient - precision @ theta)
        theta = theta + step * min(1.0, 2.0 / np.abs(step).max())
        if np.abs(step).max() < 1e-6:
            break
    whitening = scipy.linalg.solve_triangular(
        np.linalg.cholesky(fisher), np.eye(effects.size), lower=True
    ).T
    moved = jax.jit(jax.value_and_grad(lambda z: energy(theta + whitening @ z)))
    found = scipy.optimize.minimize(
        lambda z: tuple(np.asarray(part, float) for part in moved(z)), np.zeros(effects.size), jac=True,
        method="L-BFGS-B", options={"maxiter": 30},
    )  # fmt: skip
    mode = theta + whitening @ found.x
    return Napsu(
        cells=cells,
        potential=lambda z: energy(mode + whitening @ z),
        mode=mode,
        whitening=whitening,
    )


def napsu_run(
    task: Problem, derivatives: str, chains: int, warmup: int, draws: int, *, seed: int = 0
) -> dict[str, object]:
    """Sample with NumPyro's NUTS, one chain after the other, in compiled blocks."""
    import jax
    from numpyro.infer import NUTS

    jax.config.update("jax_enable_x64", True)
    begin = time.process_time()
    model = napsu(task, derivatives)
    laplace = time.process_time() - begin
    # NumPyro's own settings; the space is whitened already, so that a diagonal mass matrix is learned on top
    kernel = NUTS(potential_fn=model.potential)
    size = len(model.cells)

    @jax.jit
    def block(state):
        def step(carry, _):
            moved = kernel.sample(carry, (), {})
            return moved, (moved.z, moved.num_steps, moved.diverging)

        return jax.lax.scan(step, state, None, length=BLOCK)

    kept = []
    seconds = 0.0
    warm_seconds = 0.0
    steps = []
    diverging = 0
    compiling = time.process_time()
    starts = np.random.default_rng(size + seed).normal(size=(chains, size))
    for number in range(chains):
        key = jax.random.PRNGKey(chains * seed + number)
        state = kernel.init(
            key,
            warmup,
            init_params=jax.numpy.asarray(starts[number]),
            model_args=(),
            model_kwargs={},
        )
        if number == 0:
            block = block.lower(state).compile()  # type: ignore[attr-defined]
            compiling = time.process_time() - compiling
        chain: list[np.ndarray] = []
        for position in range(0, warmup + draws, BLOCK):
            begin = time.process_time()
            state, (z, count, bad) = jax.block_until_ready(block(state))
            spent = time.process_time() - begin
            if position < warmup:
                warm_seconds += spent
            else:
                seconds += spent
                chain.append(np.asarray(z))
                steps.append(float(np.mean(count)))
                diverging += int(np.sum(bad))
        kept.append(np.concatenate(chain))
    theta = model.mode + np.stack(kept) @ model.whitening.T
    engine = marginal_engine(task.model.cardinalities, task.model.scopes)
    flat = np.zeros((*theta.shape[:2], task.model.size))
    flat[..., model.cells] = theta
    marginals = np.stack([[engine.marginals(row)[1] for row in rows] for rows in flat])
    return {
        "marginals": marginals, "judged": marginals, "seconds": seconds, "warm_seconds": warm_seconds,
        "compile_seconds": compiling + laplace, "steps": float(np.mean(steps)), "divergences": diverging,
    }  # fmt: skip
