"""Counts from rounded tables beside their exact posteriors under two priors.

Tables have 2 x 3 gamma-Poisson cells of shape 1. Cells and the totals of both directions are published by one
rule, each number by itself. The exact posterior is a sum over all tables that the published cells allow. Estimates
are its means, and intervals lie between its quantiles of 5 and 95 %. It is found twice:

- `exact`: under the geometric distribution from which the cells were drawn, which nobody knows in practice;
- `prior`: under the prior of `NoiseAwareMAP`, with normal effects whose scales are integrated out (an average over
  draws), multinomial counts and a log-uniform number of records. Only where the mean count is 4: with more records
  too few draws of the prior are near them.

The error of `NoiseAwareMAP` over that of `exact` is therefore the product of what its prior costs, and of what its
approximations cost.

    python -m benchmarks.published.exact --tables 40 > benchmarks/results/published-exact.csv

Columns: mean count; rule; tables; coverage of the fit and of `exact`; root mean square errors of both; mean widths
of both; the ratios of errors and of widths; the error of `prior`, its ratio to that of `exact`, and the ratio of the
fit's error to it. Seeds are 97000, 97001, ... of each row.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, log_softmax, logsumexp, softmax
from scipy.stats import geom

import bayesprivmrf as bpm
from bayesprivmrf.inference.given_releases import gather
from bayesprivmrf.inference.loglinear_fit.scale_prior import EffectsPrior
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.noise import Likelihood
from benchmarks.published.rounding import Published, published_table, rules_of

FIRST_SEED = 97_000
SHAPE = (2, 3)
MEANS = (4, 40)
RULES = ("random to 3", "nearest 5", "random to 5")
# Probability of a 90 % interval beyond each of its ends
TAIL = 0.05
# Draws of the prior, log posterior probability below the largest that is negligible, and numbers in a block of memory
DRAWS = 8_000
NEGLIGIBLE = 14.0
BLOCK = 20_000_000


class Posterior(NamedTuple):
    """Means and quantiles of the cells, shape (cells,) each."""

    means: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class AllowedTables:
    """The tables that published cells and totals allow.

    Parameters
    ----------
    cells
        Their cells, shape (tables, cells).
    log_likelihood
        Log probability of the published numbers given each table, nats.
    """

    cells: np.ndarray
    log_likelihood: np.ndarray

    @classmethod
    def of(cls, published: Published, rule: Likelihood) -> AllowedTables:
        """List the tables."""
        first, last = np.reshape(rule.allowed(published.tables["a", "b"]), (2, -1)).astype(int)
        sizes = (last - first + 1).tolist()
        cells = first + np.indices(sizes).reshape(len(sizes), -1).T
        tables = cells.reshape(-1, *SHAPE)
        sums = {("a", "b"): tables, ("a",): tables.sum(axis=2), ("b",): tables.sum(axis=1)}
        found = np.zeros(len(cells))
        for scope, own in sums.items():
            each = rule.log_probability(published.tables[scope], own)
            found += each.reshape(len(cells), -1).sum(axis=1)
        is_possible = np.isfinite(found)
        return cls(cells[is_possible], found[is_possible])

    def likely(self, mean: int) -> AllowedTables:
        """Return the tables whose posterior probability is not negligible."""
        weights = self.log_likelihood + geometric(self.cells, mean)
        kept = weights > weights.max() - NEGLIGIBLE
        return AllowedTables(self.cells[kept], self.log_likelihood[kept])

    def posterior(self, log_prior: np.ndarray) -> Posterior:
        """Return the posterior of the cells, given the log prior probability of each table."""
        weights = softmax(self.log_likelihood + log_prior)
        low = []
        high = []
        for own in self.cells.T:
            shares = np.bincount(own, weights).cumsum()
            low.append(np.searchsorted(shares, TAIL))
            high.append(np.searchsorted(shares, 1 - TAIL))
        return Posterior(weights @ self.cells, np.array(low), np.array(high))


def geometric(cells: np.ndarray, mean: int) -> np.ndarray:
    """Return log probabilities of tables of gamma-Poisson counts of shape 1, which are geometric from 0 on."""
    return geom.logpmf(cells + 1, 1 / (1 + mean)).sum(axis=1)


@lru_cache(maxsize=1)
def log_shares(effects: Effects) -> np.ndarray:
    """Return draws of the log shares of the cells from the prior of `NoiseAwareMAP`, shape (draws, cells)."""
    rng = np.random.default_rng(0)
    prior = EffectsPrior(effects=effects)
    root = np.linalg.cholesky(prior.scale_covariance)
    log_scales = prior.expected_log_scales + rng.normal(size=(DRAWS, prior.count)) @ root.T
    scales = np.exp(log_scales)[:, prior.levels]
    potentials = effects.potentials(scales * rng.normal(size=scales.shape))
    return log_softmax(potentials, axis=1)


def normal_effects(cells: np.ndarray, effects: Effects) -> np.ndarray:
    """Return log probabilities of tables under the prior of `NoiseAwareMAP`, up to a constant."""
    shares = log_shares(effects)
    total = cells.sum(axis=1)
    parts = np.array_split(cells, 1 + len(cells) * DRAWS // BLOCK)
    means: list[Any] = [logsumexp(part @ shares.T, axis=1) for part in parts]
    ways = gammaln(total + 1) - gammaln(cells + 1).sum(axis=1)
    return np.concatenate(means) + ways - np.log(np.maximum(total, 1))


def fitted(release: bpm.NoisyStatistics) -> Posterior:
    """Return estimates and limits of the noise-aware mode, rounded outward to whole counts."""
    with warnings.catch_warnings(action="ignore"):
        frame = bpm.NoiseAwareMAP().fit(release).interval(["a", "b"], of="records")
    return Posterior(frame.estimate.to_numpy(), np.floor(frame.lower), np.ceil(frame.upper))


def compared(seed: int, mean: int, rule: Likelihood) -> tuple[np.ndarray, list[Posterior]]:
    """Return the counts of one table, with the fit and the exact posteriors."""
    states: dict[Any, list[int]] = {"a": list(range(SHAPE[0])), "b": list(range(SHAPE[1]))}
    published = published_table(SHAPE, mean, rule, np.random.default_rng(seed))
    network = bpm.declare(states=states, cliques=[("a", "b")])
    release = bpm.NoisyStatistics.from_tables(network, published.tables, noise=rule)
    allowed = AllowedTables.of(published, rule)
    found = [fitted(release), allowed.posterior(geometric(allowed.cells, mean))]
    if mean == MEANS[0]:
        likely = allowed.likely(mean)
        effects = gather(release).family.effects
        found.append(likely.posterior(normal_effects(likely.cells, effects)))
    return published.counts.ravel(), found


def rows(tables: int) -> Iterator[list[object]]:
    """Yield the rows of the result."""
    for mean, name in itertools.product(MEANS, RULES):
        rule = rules_of(mean)[name]
        each = [compared(seed, mean, rule) for seed in range(FIRST_SEED, FIRST_SEED + tables)]
        held = []
        errors = []
        widths = []
        for truth, found in each:
            held.append([(own.low <= truth) & (truth <= own.high) for own in found])
            errors.append([own.means - truth for own in found])
            widths.append([own.high - own.low for own in found])
        coverage = np.mean(held, axis=(0, 2))
        error = np.sqrt(np.square(errors).mean(axis=(0, 2)))
        width = np.mean(widths, axis=(0, 2))
        figures = [*coverage[:2], *error[:2], *width[:2], error[0] / error[1], width[0] / width[1]]
        split = ["", "", ""]
        if len(error) > 2:
            split = [f"{own:.3f}" for own in (error[2], error[2] / error[1], error[0] / error[2])]
        yield [mean, name, tables, *(f"{figure:.3f}" for figure in figures), *split]


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tables", type=int, default=40)
    given = arguments.parse_args()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    pairs = [f"{what}{of}" for what in ("held", "rmse", "width") for of in ("", "_exact")]
    split = ["rmse_prior", "ratio_of_prior", "ratio_of_approximation"]
    writer.writerow(["mean", "rule", "tables", *pairs, "rmse_ratio", "width_ratio", *split])
    for row in rows(given.tables):
        writer.writerow(row)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
