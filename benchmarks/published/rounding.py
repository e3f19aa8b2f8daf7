"""Counts estimated from rounded cells and rounded totals: error, width, and coverage.

Tables have gamma-Poisson cells of shape 1 with a mean of 4, 40 or 400 records. Cells and the totals of both
directions are published by one rule, each number by itself. The noise-aware mode reads all of them, and
`interval(of="records")` is compared with the counts. Limits are rounded outward to whole counts.

    python -m benchmarks.published.rounding --tables 100 > benchmarks/results/published-rounding.csv

Columns: shape, mean count, rule, estimator, tables; coverage of all cells and of each quarter of cells by published
size; root mean square error, also of the published numbers; mean width, and mean width of the bounds that integer
programming finds for each cell (of a fifth of the tables). Seeds are 80000, 80001, ... of each row.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

import bayesprivmrf as bpm
from bayesprivmrf.noise import Coarsened, Likelihood, RandomRounding, Rounded

FIRST_SEED = 80_000
SHAPES = ((3, 4), (4, 6))
MEANS = (4, 40, 400)
# Tables for each of which bounds are found
BOUNDED_SHARE = 5
QUARTERS = 4


class Published(NamedTuple):
    """A table of counts, and what was published of it."""

    counts: np.ndarray
    tables: dict[tuple[str, ...], np.ndarray]


def rules_of(mean: int) -> dict[str, Likelihood]:
    """Return the rules, with ranges whose edges suit a mean count."""
    edges = [0, 1, mean // 2 + 1, mean + 1, 2 * mean + 1, 4 * mean + 1, 8 * mean + 1]
    edges += [16 * mean + 1, 32 * mean + 1, 100 * mean + 1]
    ranges = [(low, high - 1) for low, high in pairwise(edges)]
    return {
        "random to 3": RandomRounding(3),
        "random to 5": RandomRounding(5),
        "nearest 5": Rounded(5),
        "midpoint 6": Rounded(6, kind="midpoint"),
        "ranges": Coarsened(ranges),
    }


def published_table(
    shape: tuple[int, int], mean: int, rule: Likelihood, rng: np.random.Generator
) -> Published:
    """Draw a table of counts and publish its cells and totals."""
    counts = rng.poisson(rng.gamma(1, mean, size=shape))
    sums = {("a", "b"): counts, ("a",): counts.sum(axis=1), ("b",): counts.sum(axis=0)}
    return Published(counts, {scope: rule.draw_given(table, rng) for scope, table in sums.items()})


def bounds_of(published: Published, rule: Likelihood) -> np.ndarray:
    """Return the distance between the smallest and the largest count of each cell that all numbers allow."""
    shape = published.counts.shape
    cells = np.arange(published.counts.size).reshape(shape)
    rows = []
    limits = []
    for axis, scope in ((1, ("a",)), (0, ("b",))):
        members = np.moveaxis(cells, axis, -1)
        for own in members:
            row = np.zeros(cells.size)
            row[own] = 1
            rows.append(row)
        limits.append(rule.allowed(published.tables[scope]))
    low = np.concatenate([each[0] for each in limits])
    high = np.concatenate([each[1] for each in limits])
    own_low, own_high = (each.ravel() for each in rule.allowed(published.tables["a", "b"]))
    found = []
    for cell in range(cells.size):
        goal = np.zeros(cells.size)
        goal[cell] = 1
        ends = [
            milp(
                sign * goal,
                integrality=np.ones(cells.size),
                bounds=Bounds(own_low, own_high),
                constraints=LinearConstraint(np.array(rows), low, high),
            )
            for sign in (1, -1)
        ]
        found.append(-ends[1].fun - ends[0].fun)
    return np.array(found)


def rows(tables: int) -> Iterator[list[object]]:
    """Yield the rows of the result."""
    for shape in SHAPES:
        states = {"a": list(range(shape[0])), "b": list(range(shape[1]))}
        network = bpm.declare(states=states, cliques=[("a", "b")])
        for mean in MEANS:
            for name, rule in rules_of(mean).items():
                yield [
                    f"{shape[0]}x{shape[1]}",
                    mean,
                    name,
                    *_figures(network, shape, mean, rule, tables),
                ]


def _figures(network, shape, mean, rule, tables) -> list[object]:
    """Return the figures of one setting."""
    held = []
    numbers = []
    errors = []
    widths = []
    bounds = []
    for index in range(tables):
        rng = np.random.default_rng(FIRST_SEED + index)
        drawn = published_table(shape, mean, rule, rng)
        release = bpm.NoisyStatistics.from_tables(network, drawn.tables, noise=rule)
        with warnings.catch_warnings(action="ignore"):
            frame = bpm.NoiseAwareMAP().fit(release).interval(["a", "b"], of="records")
        truth = drawn.counts.ravel()
        low = np.floor(frame.lower.to_numpy())
        high = np.ceil(frame.upper.to_numpy())
        shown = rule.estimate(drawn.tables["a", "b"]).ravel()
        held.append((low <= truth) & (truth <= high))
        numbers.append(shown)
        errors.append([frame.estimate.to_numpy() - truth, shown - truth])
        widths.append(high - low)
        if index % BOUNDED_SHARE == 0:
            bounds.append(bounds_of(drawn, rule))
    held = np.concatenate(held)
    order = np.argsort(np.concatenate(numbers), kind="stable")
    quarters = [held[part].mean() for part in np.array_split(order, QUARTERS)]
    ours, published = np.sqrt(np.square(np.array(errors)).mean(axis=(0, 2)))
    figures = [held.mean(), *quarters, ours, published, np.mean(widths), np.mean(bounds)]
    return ["noise-aware", tables, *(f"{figure:.3f}" for figure in figures)]


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tables", type=int, default=100)
    given = arguments.parse_args()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    quarters = [f"held_quarter_{quarter}" for quarter in range(1, QUARTERS + 1)]
    named = ["shape", "mean", "rule", "estimator", "tables", "held", *quarters]
    writer.writerow([*named, "rmse", "rmse_published", "width", "width_of_bounds"])
    for row in rows(given.tables):
        writer.writerow(row)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
