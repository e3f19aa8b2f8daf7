"""Exact posterior of three binary variables under normal effects: a sum over all tables, integrated over effects.

With edges ab and bc, given the effects β the records of each state of b are binomial in a and in c, independently.
So p(y | β) is a sum over the number of records with b = 0 of four sums, one for each row of the two tables. The
sums are tabulated over a fine grid of each row's log-odds; the integral over the five effects is importance
sampling from a Student distribution fitted to a pilot run.
"""

from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp
from scipy.stats import multivariate_t

from bayesprivmrf.model import Effects

SCOPES = ((0, 1), (1, 2))
STATES = np.array(list(product((0, 1), repeat=3)))
GRID = np.linspace(-25, 25, 5001)


class Exact(NamedTuple):
    """Moments of the eight cells of μ, and how many independent draws they are worth."""

    mean: np.ndarray
    sd: np.ndarray
    size: float


def exact_posterior(noisy, law, records: int, scale: float, *, draws=40_000, seed=0) -> Exact:
    """Posterior mean and standard deviation of the cells of tables ab and bc, shape (8,)."""
    effects = Effects.of([2, 2, 2], SCOPES)
    rng = np.random.default_rng(seed)
    likelihood = Likelihood(np.asarray(noisy, dtype=float), law, records)
    beta = scale * rng.normal(size=(draws, effects.size))
    log_weight = likelihood(joint(effects, beta))
    for _ in range(3):
        weight = normalised(log_weight / max(1.0, np.ptp(log_weight) / 200))
        mean = weight @ beta
        spread = (beta - mean).T * weight @ (beta - mean) + 1e-4 * np.eye(effects.size)
        proposal = multivariate_t(mean, 1.3 * spread, df=7, seed=rng)
        beta = np.asarray(proposal.rvs(draws)).reshape(draws, -1)
        log_weight = likelihood(joint(effects, beta)) - 0.5 * np.sum(beta**2, axis=1) / scale**2
        log_weight -= proposal.logpdf(beta)
    weight = normalised(log_weight)
    mu = cells(joint(effects, beta))
    mean = weight @ mu
    return Exact(mean, np.sqrt(weight @ (mu - mean) ** 2), 1 / np.sum(weight**2))


def joint(effects: Effects, beta: np.ndarray) -> np.ndarray:
    """Probabilities of the eight joint states, shape (draws, 8)."""
    flat = effects.potentials(beta)
    a, b, c = STATES.T
    log_p = flat[:, 2 * a + b] + flat[:, 4 + 2 * b + c]
    return np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True))


def cells(p: np.ndarray) -> np.ndarray:
    """Marginals ab and bc, shape (draws, 8)."""
    cube = p.reshape(-1, 2, 2, 2)
    return np.concatenate([cube.sum(3).reshape(-1, 4), cube.sum(1).reshape(-1, 4)], axis=1)


def normalised(log_weight: np.ndarray) -> np.ndarray:
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


class Likelihood:
    """log p(y | β) of the noisy tables ab, bc (eight cells) of a known number of records."""

    def __init__(self, noisy: np.ndarray, law, records: int) -> None:
        self.records = records
        count = np.arange(records + 1)
        loss = law.log_density(noisy[:, None] - count)  # of each cell, by its true count
        pairs = {("a", 0): (0, 2), ("a", 1): (1, 3), ("c", 0): (4, 5), ("c", 1): (6, 7)}
        log_p, log_q = -np.logaddexp(0, -GRID), -np.logaddexp(0, GRID)
        choose = gammaln(count + 1)
        self.rows = {}
        for name, (first, second) in pairs.items():
            rows = np.empty((records + 1, GRID.size))
            for n in count:
                k = count[: n + 1]
                log_weight = (
                    choose[n] - choose[k] - choose[n - k] + loss[first][k] + loss[second][n - k]
                )
                rows[n] = logsumexp(
                    log_weight[:, None] + k[:, None] * log_p + (n - k)[:, None] * log_q, axis=0
                )
            self.rows[name] = rows
        self.choose = choose[records] - choose - choose[::-1]

    def __call__(self, p: np.ndarray) -> np.ndarray:
        cube = np.maximum(p, 1e-300).reshape(-1, 2, 2, 2)
        b = cube.sum((1, 3))
        n = np.arange(self.records + 1)
        total = self.choose + n * np.log(b[:, [0]]) + (self.records - n) * np.log(b[:, [1]])
        for (name, state), rows in self.rows.items():
            table = cube.sum(3)[:, :, state] if name == "a" else cube.sum(1)[:, state, :]
            found = interpolated(rows, np.log(table[:, 0]) - np.log(table[:, 1]))
            total += found if state == 0 else found[:, ::-1]
        return logsumexp(total, axis=1)


def interpolated(rows: np.ndarray, odds: np.ndarray) -> np.ndarray:
    place = (np.clip(odds, GRID[0], GRID[-1] - 1e-9) - GRID[0]) / (GRID[1] - GRID[0])
    left = place.astype(int)
    share = (place - left)[:, None]
    return (1 - share) * rows[:, left].T + share * rows[:, left + 1].T
