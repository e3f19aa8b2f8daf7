"""Counts, probabilities and odds ratios from ranges that are wide for their counts: coverage and marks.

Tables are multinomial, with shares from a flat Dirichlet distribution. `NoiseAwareMAP` reads

- `ranges`: ranges from 0.5 to 1, 1 to 2, 2 to 4, ... times the mean count, of cells and of both totals;
- `suppressed`: counts of 1 to 19 suppressed among exact ones and an exact number of records;
- `with totals`: the same with exact totals of rows and columns;
- `secondary`: counts of 1 to 4 suppressed, others suppressed to protect them, with exact totals;
- `two tables`: ranges in one table, and in another one, which shares a variable, random rounding to base 3.

    python -m benchmarks.published.ranges --tables 60 > benchmarks/results/published-ranges.csv

Columns: setting; what the rows are; number of rows; share of 90 % intervals that hold the truth; share of the rows
that are `doubtful`; coverage of these, and of the others. Odds ratios of cells without a record are left out. Seeds
are 97000, 97001, ... of each setting.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.noise import Coarsened, NoNoise, RandomRounding, Suppressed

FIRST_SEED = 97_000
# Mean count of a cell in tables with suppression, and of the first table of two
MEAN_SUPPRESSED = 30
MEAN_OF_TWO = 100
# Largest count that is suppressed, and the largest where others are suppressed to protect it
WIDEST = 19
PRIMARY = 4


class Drawn(NamedTuple):
    """A release, and its tables: axes, probabilities and counts of each."""

    release: bpm.NoisyStatistics
    truths: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]


def ranges_of(mean: int) -> Coarsened:
    """Return ranges whose edges double from half the mean."""
    edges = [0, 1, mean // 2 + 1, *(2**k * mean + 1 for k in range(8))]
    return Coarsened([(low, high - 1) for low, high in pairwise(edges)])


def counted(
    shape: tuple[int, int], mean: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares of the cells of a table, and its counts."""
    shares = rng.dirichlet(np.ones(shape[0] * shape[1]))
    counts = rng.multinomial(shares.size * mean, shares)
    return shares.reshape(shape), counts.reshape(shape)


def pair(shape: tuple[int, int]) -> Any:
    """Return the declared table of two variables."""
    states = {"a": list(range(shape[0])), "b": list(range(shape[1]))}
    return bpm.declare(states=states, cliques=[("a", "b")])


def in_ranges(mean: int, rng: np.random.Generator) -> Drawn:
    """Return a table in ranges, with both totals."""
    shares, counts = counted((3, 4), mean, rng)
    rule = ranges_of(mean)
    tables = {("a", "b"): counts, "a": counts.sum(axis=1), "b": counts.sum(axis=0)}
    shown = {key: rule.draw_given(own, rng) for key, own in tables.items()}
    release = bpm.NoisyStatistics.from_tables(pair((3, 4)), shown, noise=rule)
    return Drawn(release, {("a", "b"): (shares, counts)})


def protected(counts: np.ndarray, primary: np.ndarray) -> np.ndarray:
    """Return the cells to hide so that no row and no column has one hidden cell alone."""
    hidden = primary.copy()
    for _ in range(sum(counts.shape)):
        for axis in (0, 1):
            lines = np.moveaxis(hidden, axis, 0)
            own = np.moveaxis(counts, axis, 0)
            for line, numbers in zip(lines, own, strict=True):
                if line.sum() == 1:
                    others = np.where(line, np.inf, numbers)
                    line[np.argmin(others)] = True
    return hidden


def suppressed(name: str, rng: np.random.Generator) -> Drawn:
    """Return a table with suppressed cells; with exact totals of rows and columns unless only N is known."""
    shares, counts = counted((4, 4), MEAN_SUPPRESSED, rng)
    total = int(counts.sum())
    least = PRIMARY if name == "secondary" else WIDEST
    hidden = (counts >= 1) & (counts <= least)
    rule = Suppressed(1, least + 1)
    laws = np.full(counts.shape, NoNoise(), dtype=object)
    if name == "secondary":
        laws[protected(counts, hidden)] = Suppressed(0, total + 1)
    laws[hidden] = rule
    is_shown = np.vectorize(lambda law: law.is_exact)(laws)
    tables: dict[Any, Any] = {("a", "b"): np.where(is_shown, counts, -1)}
    noise: dict[Any, Any] = {("a", "b"): laws}
    if name != "suppressed":
        tables |= {"a": counts.sum(axis=1), "b": counts.sum(axis=0)}
        noise |= {"a": NoNoise(), "b": NoNoise()}
    release = bpm.NoisyStatistics.from_tables(pair((4, 4)), tables, noise=noise, total=total)
    return Drawn(release, {("a", "b"): (shares, counts)})


def two_tables(rng: np.random.Generator) -> Drawn:
    """Return a table in ranges, and one that was rounded at random and shares a variable with it."""
    first = rng.dirichlet(np.ones(12)).reshape(3, 4)
    second = rng.dirichlet(np.ones(3), size=4)
    shares = first[:, :, np.newaxis] * second
    counts = rng.multinomial(12 * MEAN_OF_TWO, shares.ravel()).reshape(shares.shape)
    network = bpm.declare(
        states={"a": [0, 1, 2], "b": [0, 1, 2, 3], "c": [0, 1, 2]}, cliques=[("a", "b"), ("b", "c")]
    )
    noise = {("a", "b"): ranges_of(MEAN_OF_TWO), ("b", "c"): RandomRounding(3)}
    sums = {("a", "b"): 2, ("b", "c"): 0}
    truths = {key: (shares.sum(axis=axis), counts.sum(axis=axis)) for key, axis in sums.items()}
    shown = {key: noise[key].draw_given(own, rng) for key, (_, own) in truths.items()}
    return Drawn(bpm.NoisyStatistics.from_tables(network, shown, noise=noise), truths)


SETTINGS = {
    "ranges, mean 40": lambda rng: in_ranges(40, rng),
    "ranges, mean 400": lambda rng: in_ranges(400, rng),
    "suppressed": lambda rng: suppressed("suppressed", rng),
    "with totals": lambda rng: suppressed("with totals", rng),
    "secondary": lambda rng: suppressed("secondary", rng),
    "two tables": two_tables,
}


def figures(drawn: Drawn) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield kinds of rows, and whether each interval holds the truth and is doubtful."""
    with warnings.catch_warnings(action="ignore"):
        solution = bpm.NoiseAwareMAP().fit(drawn.release)
        for (a, b), (shares, counts) in drawn.truths.items():
            sums = [((a, b), None), ((a,), 1), ((b,), 0)]
            for names, axis in sums:
                count = counts.ravel() if axis is None else counts.sum(axis=axis)
                share = shares.ravel() if axis is None else shares.sum(axis=axis)
                frame = solution.interval(list(names), of="records")
                frame = frame.assign(lower=np.floor(frame.lower), upper=np.ceil(frame.upper))
                yield "counts", *compared(frame, count)
                yield "probabilities", *compared(solution.interval(list(names)), share)
            given = (shares / shares.sum(axis=1, keepdims=True)).ravel()
            yield "conditional", *compared(solution.interval([b], given=[a]), given)
            ratios = shares[:-1, :-1] * shares[1:, 1:] / (shares[:-1, 1:] * shares[1:, :-1])
            least = np.minimum(counts[:-1], counts[1:])
            has_records = np.minimum(least[:, :-1], least[:, 1:]).ravel() > 0
            frame = analysis.odds_ratios(solution, a, b)[has_records]
            yield "odds ratios", *compared(frame, ratios.ravel()[has_records])


def compared(frame: Any, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of the rows whose interval holds the truth, and of those that are doubtful."""
    is_held = (frame.lower.to_numpy() <= truth) & (truth <= frame.upper.to_numpy())
    return is_held, (frame.status == "doubtful").to_numpy()


def rows(tables: int) -> Iterator[list[object]]:
    """Yield the rows of the result."""
    for name, draw in SETTINGS.items():
        found: dict[str, list[np.ndarray]] = {}
        for seed in range(FIRST_SEED, FIRST_SEED + tables):
            for kind, held, doubtful in figures(draw(np.random.default_rng(seed))):
                found.setdefault(kind, []).append(np.stack([held, doubtful]))
        for kind, parts in found.items():
            held, doubtful = np.concatenate(parts, axis=1).astype(bool)
            shares = [held, doubtful, held[doubtful], held[~doubtful]]
            yield [
                name,
                kind,
                held.size,
                *(f"{own.mean():.3f}" if own.size else "" for own in shares),
            ]


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tables", type=int, default=60)
    given = arguments.parse_args()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    named = ["setting", "rows", "number", "held", "doubtful", "held_doubtful", "held_others"]
    writer.writerow(named)
    for row in rows(given.tables):
        writer.writerow(row)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
