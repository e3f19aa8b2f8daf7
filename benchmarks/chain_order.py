"""Shares of releases in which a table of distant times accuses a chain of a longer memory.

2,000 people are followed over twelve months at epsilon 1. Each step is measured, or the sum of all steps and the
first month, and besides the table of the first with the last month. Either all people move by one matrix, so that a
chain of order 1 is right, or half of them hardly move and half of them move often, so that it is wrong.

    python -m benchmarks.chain_order > benchmarks/results/chain-order.csv

Columns: model, what was measured of the steps, people, estimator, releases, accused ("not trusted"), accused of the
order or of an omitted interaction. Seeds are 0, 1, ... of each row. About two minutes on one core.
"""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.mechanisms import LaplaceStatistics

STATES = ["in work", "unemployed", "away"]
MONTHS = [f"m{month}" for month in range(1, 13)]
STEPS = list(pairwise(MONTHS))
FIRST = np.array([0.5, 0.3, 0.2])
ONE = np.array([[0.85, 0.10, 0.05], [0.10, 0.80, 0.10], [0.05, 0.15, 0.80]])
STAYERS = np.array([[0.97, 0.02, 0.01], [0.02, 0.96, 0.02], [0.01, 0.02, 0.97]])
MOVERS = np.array([[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]])


def people_of(matrices: list[np.ndarray], people: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw the states of people, each of whom moves by one of some matrices."""
    kind = rng.integers(len(matrices), size=people)
    codes = np.empty((people, len(MONTHS)), int)
    codes[:, 0] = rng.choice(len(STATES), people, p=FIRST)
    for month in range(1, len(MONTHS)):
        rows = np.array(matrices)[kind, codes[:, month - 1]].cumsum(axis=1)
        codes[:, month] = (rng.random(people)[:, np.newaxis] > rows).sum(axis=1)
    return pd.DataFrame(np.array(STATES)[codes], columns=MONTHS)


def network_of(model: str):
    """Return the network of one kind of chain."""
    if model == "pairs":
        return bpm.declare(states=dict.fromkeys(MONTHS, STATES), cliques=STEPS)
    return bpm.markov_chain(STATES, len(MONTHS), share=model, names=MONTHS)


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--wrong", type=int, default=20)
    arguments.add_argument("--right", type=int, default=100)
    given = arguments.parse_args()
    distant = q.table(MONTHS[0], MONTHS[-1])
    measured = {
        "each step": [*(q.table(*step) for step in STEPS), distant],
        "sum of steps": [q.pooled(STEPS), q.table(MONTHS[0]), distant],
    }
    kinds = {"one kind": ([ONE], given.right), "two kinds": ([STAYERS, MOVERS], given.wrong)}
    rows = [
        ("transitions", "each step", bpm.NoiseAwareMAP()),
        ("transitions", "each step", bpm.NaiveMLE()),
        ("transitions", "sum of steps", bpm.NoiseAwareMAP()),
        ("potentials", "each step", bpm.NoiseAwareMAP()),
        ("pairs", "each step", bpm.NoiseAwareMAP()),
        ("pairs", "each step", bpm.NaiveMLE()),
    ]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["model", "measured", "people", "estimator", "releases", "accused", "of_order"])
    for model, name, estimator in rows:
        network = network_of(model)
        mechanism = LaplaceStatistics(epsilon=1.0, queries=measured[name])
        for kind, (matrices, repeats) in kinds.items():
            accused = 0
            of_order = 0
            for seed in range(repeats):
                data = people_of(matrices, 2000, np.random.default_rng(seed))
                release = mechanism.release(network, data, rng=seed)
                with warnings.catch_warnings(action="ignore"):
                    fit = estimator.fit(release)
                accused += fit.status == "not trusted"
                of_order += any(
                    "order of this chain" in one or "omits" in one for one in fit.problems
                )
            writer.writerow([model, name, kind, estimator.method, repeats, accused, of_order])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
