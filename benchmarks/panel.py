"""Transitions of a real panel, pooled over its years: whether the default posterior's intervals hold them.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/panel.py --runs 3

Data: ../shared/data/biofam beside the repository (or its path by --data): 2,000 people, the first eight of their
years, eight states. A chain of seven tables of two years each, discrete Laplace noise for epsilon = 1 (add or remove
one person), N private, everything at its default; seeds 1, 2, ... of release and sampler. "Held" counts 90 %
intervals of the records' transitions, summed over the years, that hold the number in the data. Markdown to stdout.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.mechanisms import LaplaceStatistics

YEARS, STATES = 8, 8


def main() -> None:
    """Release, fit, print a row each."""
    parser = argparse.ArgumentParser(description="Pooled transitions of a panel.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data" / "biofam"
    )
    arguments = parser.parse_args()
    people = pd.read_csv(arguments.data / "biofam_states.csv").iloc[:, :YEARS].astype(int)
    years = list(people.columns)
    network = bpm.declare(
        states={year: list(range(STATES)) for year in years}, cliques=list(pairwise(years))
    )
    codes = people.to_numpy()
    true = np.zeros((STATES, STATES))
    np.add.at(true, (codes[:, :-1].ravel(), codes[:, 1:].ravel()), 1)
    print(
        "| seed | held | N, 90 % | status | seconds | R-hat | effective draws | E-BFMI | steps a draw |\n|"
        + "---|" * 9
    )
    for seed in range(1, arguments.runs + 1):
        release = LaplaceStatistics(epsilon=1.0).release(network, people, rng=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the status is printed
            begin = time.perf_counter()
            posterior = bpm.LatentCounts().fit(release, rng=seed)
            seconds = time.perf_counter() - begin
        frame = posterior.interval(q.pooled(list(pairwise(years))), of="records")
        held = ((frame["lower"] <= true.ravel()) & (true.ravel() <= frame["upper"])).sum()
        records = posterior.summary()["records"]
        stats = posterior.stats
        print(
            f"| {seed} | {held} of {true.size} | {records['lower']:.0f} to {records['upper']:.0f} | "
            f"{posterior.status.value} | {seconds:.0f} | {stats['r_hat']:.3f} | "
            f"{min(stats['ess_bulk'], stats['ess_tail']):.0f} | {stats['bfmi']:.2f} | "
            f"{stats['steps_between_draws']:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
