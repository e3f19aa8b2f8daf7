"""Counts from rounded tables beside their exact posterior under the prior of the simulation.

Tables have 2 x 3 gamma-Poisson cells of shape 1. Cells and the totals of both directions are published by one
rule, each number by itself. The exact posterior is a sum over all tables that the published cells allow, with the
geometric distribution from which the cells were drawn. Estimates are its means, and intervals lie between its
quantiles of 5 and 95 %. `NoiseAwareMAP` does not know that distribution.

    python -m benchmarks.published.exact --tables 100 > benchmarks/results/published-exact.csv

Columns: mean count; rule; tables; coverage of the fit and of the exact posterior; root mean square errors of both;
mean widths of both; and the ratios of errors and of widths. Seeds are 83000, 83001, ... of each row.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import warnings
from collections.abc import Iterator

import numpy as np
from scipy.stats import geom

import bayesprivmrf as bpm
from bayesprivmrf.noise import Likelihood
from benchmarks.published.rounding import Published, published_table, rules_of

FIRST_SEED = 83_000
SHAPE = (2, 3)
MEANS = (4, 40)
RULES = ("random to 3", "random to 5", "nearest 5")
# Probability of a 90 % interval beyond each of its ends
TAIL = 0.05


def exact(published: Published, rule: Likelihood, mean: int) -> tuple[np.ndarray, ...]:
    """Return means and quantiles of the cells' posterior, shape (cells,) each."""
    first, last = (each.ravel().astype(int) for each in rule.allowed(published.tables["a", "b"]))
    values = [np.arange(low, high + 1) for low, high in zip(first, last, strict=True)]
    cells = np.array(list(itertools.product(*values)))
    tables = cells.reshape(-1, *SHAPE)
    # a gamma-Poisson count of shape 1 is geometric from 0 on
    weights = geom.logpmf(cells + 1, 1 / (1 + mean)).sum(axis=1)
    sums = {("a", "b"): tables, ("a",): tables.sum(axis=2), ("b",): tables.sum(axis=1)}
    for scope, own in sums.items():
        found = rule.log_probability(published.tables[scope], own)
        weights = weights + found.reshape(len(cells), -1).sum(axis=1)
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    low = np.empty(first.size)
    high = np.empty(first.size)
    for cell, own in enumerate(values):
        shares = np.bincount(cells[:, cell] - own[0], weights, own.size).cumsum()
        low[cell] = own[np.searchsorted(shares, TAIL)]
        high[cell] = own[np.searchsorted(shares, 1 - TAIL)]
    return weights @ cells, low, high


def fitted(published: Published, rule: Likelihood, network: object) -> tuple[np.ndarray, ...]:
    """Return estimates and limits of the noise-aware mode, rounded outward to whole counts."""
    release = bpm.NoisyStatistics.from_tables(network, published.tables, noise=rule)
    with warnings.catch_warnings(action="ignore"):
        frame = bpm.NoiseAwareMAP().fit(release).interval(["a", "b"], of="records")
    return frame.estimate.to_numpy(), np.floor(frame.lower), np.ceil(frame.upper)


def rows(tables: int) -> Iterator[list[object]]:
    """Yield the rows of the result."""
    states = {"a": list(range(SHAPE[0])), "b": list(range(SHAPE[1]))}
    network = bpm.declare(states=states, cliques=[("a", "b")])
    for mean, name in itertools.product(MEANS, RULES):
        rule = rules_of(mean)[name]
        held = []
        errors = []
        widths = []
        for seed in range(FIRST_SEED, FIRST_SEED + tables):
            published = published_table(SHAPE, mean, rule, np.random.default_rng(seed))
            truth = published.counts.ravel()
            found = [fitted(published, rule, network), exact(published, rule, mean)]
            held.append([(low <= truth) & (truth <= high) for _, low, high in found])
            errors.append([estimate - truth for estimate, _, _ in found])
            widths.append([high - low for _, low, high in found])
        coverage = np.mean(held, axis=(0, 2))
        error = np.sqrt(np.square(errors).mean(axis=(0, 2)))
        width = np.mean(widths, axis=(0, 2))
        figures = [*coverage, *error, *width, error[0] / error[1], width[0] / width[1]]
        yield [mean, name, tables, *(f"{figure:.3f}" for figure in figures)]


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tables", type=int, default=100)
    given = arguments.parse_args()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    pairs = [f"{what}{of}" for what in ("held", "rmse", "width") for of in ("", "_exact")]
    writer.writerow(["mean", "rule", "tables", *pairs, "rmse_ratio", "width_ratio"])
    for row in rows(given.tables):
        writer.writerow(row)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
