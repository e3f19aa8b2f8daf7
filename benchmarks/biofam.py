"""Transitions of a real panel, most of which never happen: the noise-aware estimate against the posterior of sums.

Run: python benchmarks/biofam.py [--runs 5]
Data: ../shared/data/biofam beside the repository (or its path by --data): 2,000 people, 16 years, eight states. A
chain of one transition matrix; discrete Laplace noise for epsilon = 1 (add or remove one person) on the transitions
added up over the years and on the first year's table, seeds 0, 1, ... "Held" counts 90 % intervals that hold the
observed share of a transition, to three digits: of all 64, of those that happen, and of those whose interval lies
inside 0 and 1. The posterior of the sums is that of a table of one clique, a record for each transition; the other is
of the people. Markdown to stdout.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import time
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf import sequences
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.release import Measurement, NoisyStatistics

STATES = [str(state) for state in range(8)]


def row(
    name: str,
    lower: np.ndarray,
    upper: np.ndarray,
    truth: np.ndarray,
    status: object,
    seconds: float,
) -> str:
    """One line of the table."""
    held = (lower - 5e-4 <= truth) & (truth <= upper + 5e-4)
    inside = (lower > 0) & (upper < 1)
    happen = truth > 0
    parts = [f"{held.sum()} of {held.size}", f"{held[happen].sum()} of {happen.sum()}"]
    parts.append(f"{held[inside].sum()} of {inside.sum()}")
    return f"| {name} | {' | '.join(parts)} | {status} | {seconds:.0f} |"


def main() -> None:
    """Release, fit both ways, print a row each."""
    parser = argparse.ArgumentParser(description="Transitions of a real panel.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data" / "biofam"
    )
    arguments = parser.parse_args()
    people = pd.read_csv(arguments.data / "biofam_states.csv").astype(int).astype(str)
    years = list(people.columns)
    codes = people.to_numpy().astype(int)
    sums = np.zeros((8, 8))
    np.add.at(sums, (codes[:, :-1].ravel(), codes[:, 1:].ravel()), 1)
    truth = sums / sums.sum(axis=1, keepdims=True)
    chain = bpm.markov_chain(STATES, len(years), share="transitions", names=years)
    pair = bpm.declare({"from": STATES, "to": STATES}, [("from", "to")])
    mechanism = LaplaceStatistics(
        epsilon=1.0, queries=[q.pooled(list(pairwise(years))), q.table(years[0])], weights=[1, 1]
    )
    print(
        "| method | held | of those that happen | of those inside 0 and 1 | status | s |\n|---|---|---|---|---|---|"
    )
    for seed in range(arguments.runs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            release = mechanism.release(chain, people, rng=seed)
            begin = time.perf_counter()
            solution = bpm.NoiseAwareMAP().fit(release)
            table = sequences.transition_matrix(solution, prob=0.9)
            lower, upper = (table[bound].to_numpy().reshape(8, 8) for bound in ("lower", "upper"))
            print(
                row(
                    "noise-aware", lower, upper, truth, solution.status, time.perf_counter() - begin
                )
            )
            begin = time.perf_counter()
            people_posterior = bpm.LatentCounts().fit(release, rng=seed)
            table = sequences.transition_matrix(people_posterior, prob=0.9)
            lower, upper = (table[bound].to_numpy().reshape(8, 8) for bound in ("lower", "upper"))
            print(
                row(
                    "posterior",
                    lower,
                    upper,
                    truth,
                    people_posterior.status,
                    time.perf_counter() - begin,
                )
            )
            assert release.measurements is not None
            given = release.measurements[0]
            moves = NoisyStatistics.from_measurements(
                pair, [Measurement(q.table("from", "to"), given.values, given.noise)]
            )
            begin = time.perf_counter()
            posterior = bpm.LatentCounts().fit(moves, rng=seed)
            joint = posterior.tree["posterior"]["marginal[from,to]"].values.reshape(-1, 8, 8)
            lower, upper = np.quantile(
                joint / joint.sum(axis=2, keepdims=True), [0.05, 0.95], axis=0
            )
            print(
                row(
                    "posterior of the sums",
                    lower,
                    upper,
                    truth,
                    posterior.status,
                    time.perf_counter() - begin,
                )
            )


if __name__ == "__main__":
    main()
