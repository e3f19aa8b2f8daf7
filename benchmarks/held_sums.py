"""Counts of people by tract where totals are exact and small counts are withheld: is the truth in the intervals?

Three tables of Rhode Island's 2018 test (tract x age, tract x Hispanic, tract x race) are published as an agency
might: the total of each tract exactly, other counts with discrete Laplace noise, and noisy counts below a threshold
withheld. The model has three cliques that share the tract, so that whole records are moved with the sums held.
Run: python benchmarks/held_sums.py FOLDER [--divide 10] [--seconds 60] [--seeds 3], FOLDER holding blocks.csv.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.noise import Within
from bayesprivmrf.privacy import DiscreteLaplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics

RACES = 7
"""The six races alone, and all who are of two or more."""


def true_tables(folder: Path, divide: int) -> dict[str, np.ndarray]:
    """Tables of tract x age, x Hispanic and x race, of every `divide`-th person of each kind."""
    found: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((2, 2, RACES), int))
    with (folder / "blocks.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            cell = (
                int(row["voting_age"] == "18+"),
                int(row["hispanic"] == "yes"),
                min(int(row["race"]), RACES) - 1,
            )
            found[row["tract"]][cell] += int(row["count"])
    joint = np.array([table // divide for _, table in sorted(found.items())])
    return {
        "age": joint.sum(axis=(2, 3)),
        "hispanic": joint.sum(axis=(1, 3)),
        "race": joint.sum(axis=(1, 2)),
    }


def published(
    truth: dict[str, np.ndarray], law: DiscreteLaplace, threshold: int, rng: np.random.Generator
):
    """The release, and which cells were withheld, by table."""
    tracts = len(truth["age"])
    network = bpm.declare(
        {
            "tract": list(range(tracts)),
            **{name: list(range(table.shape[1])) for name, table in truth.items()},
        },
        [("tract", name) for name in truth],
    )
    given = [Measurement(q.table("tract"), truth["age"].sum(axis=1), NoNoise())]
    hidden = {}
    for name, table in truth.items():
        noisy = np.ravel(table + law.draw(table.shape, rng))
        hidden[name] = noisy < threshold
        value, bounds = Within.between(-1000, threshold - 1, law)
        rows = np.eye(noisy.size, dtype=int)
        for mask, values, own in (
            (~hidden[name], noisy[~hidden[name]], law),
            (hidden[name], np.full(int(hidden[name].sum()), value), bounds),
        ):
            if mask.any():
                given.append(Measurement(q.weighted("tract", name, matrix=rows[mask]), values, own))
    return NoisyStatistics.from_measurements(network, given), hidden


def main() -> None:
    """Print a line for each seed, and the coverage of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--divide", type=int, default=10)
    parser.add_argument("--scale", type=float, default=4.0)
    parser.add_argument("--threshold", type=int, default=10)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    truth = true_tables(given.folder, given.divide)
    inside = {True: [0, 0], False: [0, 0]}
    for seed in range(given.seeds):
        rng = np.random.default_rng(seed)
        release, hidden = published(truth, DiscreteLaplace(given.scale), given.threshold, rng)
        begin = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            length = {"draws": given.draws, "tune": given.draws // 2, "chains": given.chains}
            posterior = bpm.LatentCounts().fit(
                release, rng=seed, time_limit=given.seconds, **length
            )
        seconds = time.perf_counter() - begin
        for name, table in truth.items():
            people = posterior.interval(["tract", name], prob=0.9, of="records")
            held = (people["lower"] <= table.ravel()) & (table.ravel() <= people["upper"])
            for kind in (True, False):
                inside[kind][0] += int(held[hidden[name] == kind].sum())
                inside[kind][1] += int((hidden[name] == kind).sum())
        stats = posterior.stats
        print(
            f"seed {seed}: {seconds:.0f} s, {posterior.status}, R-hat {stats['r_hat']:.3f}, effective draws "
            f"{stats['ess_bulk']:.0f}, {stats['steps_between_draws']} sweeps a draw"
        )
    for kind, (held, number) in inside.items():
        print(
            f"{'withheld' if kind else 'noisy'} cells: {held} of {number} true counts in their 90 % intervals"
        )


if __name__ == "__main__":
    main()
