"""Intervals of the records' counts on nearly deterministic tables, from a hundred records to a million million.

    OMP_NUM_THREADS=1 uv run --no-sync python benchmarks/nearly_deterministic.py --replications 30 \
        --output benchmarks/results/nearly-deterministic.csv

People stay in their state but for one in ten thousand. The models are one table of two columns, and a chain of three
whose two tables share a column. Each table gets discrete Laplace noise, and the number of records is private.

Columns: estimator, model, states, records, scale (of the noise, records), releases, unmarked (share of rows of status
`ok` or `model`), held (share of these whose 90 percent interval of `of="records"` holds the count), marked_held (the
same of the other rows; empty without any).
"""

from __future__ import annotations

import argparse
import os
import warnings
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf.noise import DiscreteLaplace

LEVEL = 0.9
MOVES = 1e-4
STATES = (2, 3, 5)
RECORDS = (100, 2000, 10**6, 10**9, 10**12)
SCALES = (2.0, 20.0)
COLUMNS = {"table": 2, "chain": 3}
ESTIMATORS = {"map": bpm.NoiseAwareMAP, "posterior": bpm.LatentCounts}


def joint(states: int, columns: int) -> np.ndarray:
    """Probabilities of all paths of people who nearly always stay, an axis for each column."""
    stay = np.full((states, states), MOVES / (states - 1))
    np.fill_diagonal(stay, 1 - MOVES)
    law = np.full(states, 1 / states)
    for _ in range(columns - 1):
        law = law[..., np.newaxis] * stay
    return law


def rows_of(
    estimator: str, columns: int, states: int, records: int, scale: float, seed: list[int]
) -> pd.DataFrame:
    """Status of each row of one fit, and whether it holds the count."""
    rng = np.random.default_rng(seed)
    law = joint(states, columns)
    counts = rng.multinomial(records, law.ravel()).reshape(law.shape)
    names = "abc"[:columns]
    noise = DiscreteLaplace(scale)
    exact = {}
    for first in range(columns - 1):
        others = tuple(axis for axis in range(columns) if axis not in (first, first + 1))
        exact[names[first], names[first + 1]] = counts.sum(axis=others)
    noisy = {scope: table + noise.draw(table.shape, rng) for scope, table in exact.items()}
    network = bpm.declare({name: list(range(states)) for name in names}, list(exact))
    release = bpm.NoisyStatistics.from_tables(network, noisy, noise=noise)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if estimator == "map":
            fit = bpm.NoiseAwareMAP().fit(release)
        else:
            fit = bpm.LatentCounts().fit(release, rng=seed[-1])
    found = []
    for scope, table in exact.items():
        frame = fit.interval(list(scope), LEVEL, of="records")
        holds = (frame["lower"] <= table.ravel()) & (table.ravel() <= frame["upper"])
        found.append(pd.DataFrame({"status": frame["status"].array, "holds": holds.array}))
    return pd.concat(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replications", type=int, default=30)
    parser.add_argument("--estimators", nargs="+", choices=list(ESTIMATORS), default=["map"])
    parser.add_argument("--models", nargs="+", choices=list(COLUMNS), default=list(COLUMNS))
    parser.add_argument("--states", nargs="+", type=int, default=list(STATES))
    parser.add_argument("--seed", type=int, default=41)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    found = []
    for estimator, model in product(given.estimators, given.models):
        for states, records, scale in product(given.states, RECORDS, SCALES):
            rows = pd.concat(
                rows_of(estimator, COLUMNS[model], states, records, scale, [given.seed, k])
                for k in range(given.replications)
            )
            is_told = rows["status"].isin(["ok", "model"])
            found.append(
                {
                    "estimator": estimator,
                    "model": model,
                    "states": states,
                    "records": records,
                    "scale": scale,
                    "releases": given.replications,
                    "unmarked": is_told.mean(),
                    "held": rows["holds"][is_told].mean(),
                    "marked_held": rows["holds"][~is_told].mean(),
                }
            )
            print(found[-1], flush=True)
    if given.output is not None:
        has_header = not given.output.exists()
        frame = pd.DataFrame(found)
        frame.to_csv(given.output, mode="a", header=has_header, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
