"""Panels in which noise hides those who move: number of people and intervals of the default posterior.

    OMP_NUM_THREADS=1 uv run --no-sync python benchmarks/hidden_moves.py --seeds 4 --output hidden-moves.csv

3,000 people, ten states, six visits, of whom a tenth move between two of them, a few in each cell; their tables have
Laplace noise of scale 5, N private. Where those go who move, by kind of population:

- even: to all states alike;
- few: to states drawn from a Dirichlet law of shape 1, mostly a few;
- uneven: as few, and the share who move differs between states, log standard deviation 0.6;
- changing: as even, and the share who move changes between visits, by factors of 0.3 to 2;
- neighbors: to a neighboring state.

A row a kind: the error of the posterior mean of N over the standard deviation of N, mean over the releases with
its standard error; the share of 90 % intervals of the records' tables and of N that hold the truth; the root mean
square error of the tables' cells, people; and how the fits ended.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf.noise import Laplace

STATES = 10
PEOPLE = 3_000
SCALE = 5.0
PROB = 0.9
VISITS = [f"visit {number}" for number in range(6)]
MOVING = 0.1
CHANGES = (0.3, 1.0, 2.0, 0.5, 1.5)
KINDS = ("even", "few", "uneven", "changing", "neighbors")


def panel(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return the states of all people at each visit, shape (visits, people)."""
    goes_to_few = kind in ("few", "uneven")
    shape = 1.0 if goes_to_few else 3.0
    first = rng.dirichlet(np.full(STATES, shape))
    destinations = np.full(STATES, 1 / STATES)
    moving = np.full(STATES, MOVING)
    if goes_to_few:
        destinations = rng.dirichlet(np.full(STATES, 1.0))
    if kind == "uneven":
        moving = np.clip(MOVING * np.exp(rng.normal(0, 0.6, STATES)), 0.005, 0.5)
    found = [rng.choice(STATES, PEOPLE, p=first)]
    for change in CHANGES:
        now = found[-1]
        rate = moving[now] * (change if kind == "changing" else 1.0)
        moves = rng.random(PEOPLE) < rate
        if kind == "neighbors":
            goes = np.clip(now + rng.choice([-1, 1], PEOPLE), 0, STATES - 1)
        else:
            goes = rng.choice(STATES, PEOPLE, p=destinations)
        found.append(np.where(moves, goes, now))
    return np.array(found)


def tables_of(states: np.ndarray) -> dict[tuple[str, str], np.ndarray]:
    """Return the table of each two visits in turn."""
    tables = {}
    for (name, now), (after_name, after) in pairwise(zip(VISITS, states, strict=True)):
        table = np.zeros((STATES, STATES))
        np.add.at(table, (now, after), 1)
        tables[name, after_name] = table
    return tables


def fitted(kind: str, seed: int) -> dict[str, object]:
    """Return the row of one release."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    network = bpm.declare(
        states={visit: list(range(STATES)) for visit in VISITS}, cliques=list(pairwise(VISITS))
    )
    true = tables_of(panel(kind, rng))
    noisy = {names: table + rng.laplace(0, SCALE, table.shape) for names, table in true.items()}
    release = bpm.NoisyStatistics.from_tables(network, noisy, noise=Laplace(SCALE))
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = bpm.LatentCounts().fit(release, rng=seed, progress_bar=False)
    cpu = time.process_time() - start
    total = np.asarray(fit.tree["posterior"]["total"])
    held = []
    errors = []
    for names, table in true.items():
        rows = fit.interval(list(names), prob=PROB, of="records")
        counts = table.ravel()
        held.append((rows["lower"].to_numpy() <= counts) & (counts <= rows["upper"].to_numpy()))
        errors.append(rows["estimate"].to_numpy() - counts)
    lower, upper = np.quantile(total, [(1 - PROB) / 2, (1 + PROB) / 2])
    return {
        "kind": kind,
        "seed": seed,
        "error of N": (total.mean() - PEOPLE) / total.std(),
        "held": np.mean(held),
        "N held": lower <= PEOPLE <= upper,
        "error": np.sqrt(np.mean(np.square(errors))),
        "status": fit.status.value,
        "cpu": cpu,
    }


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each kind."""
    found = []
    for kind, of in rows.groupby("kind", sort=False):
        found.append(
            {
                "kind": kind,
                "releases": len(of),
                "error of N": of["error of N"].mean().round(2),
                "standard error": (of["error of N"].std() / np.sqrt(len(of))).round(2),
                "held": of["held"].mean().round(3),
                "N held": of["N held"].mean().round(2),
                "error": of["error"].mean().round(2),
                "converged": (of["status"] == "converged").sum(),
                "not trusted": (of["status"] == "not trusted").sum(),
                "cpu": of["cpu"].median().round(),
            }
        )
    return pd.DataFrame(found)


def main() -> None:
    """Simulate, fit, write a row each."""
    parser = argparse.ArgumentParser(description="Panels in which noise hides those who move.")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=7000, help="first seed")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    rows = []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for kind in arguments.kinds:
            rows.append(fitted(kind, seed))
            print(rows[-1], flush=True)
            # after each fit, so that an interrupted run leaves what is done
            summary(pd.DataFrame(rows)).to_csv(arguments.output, index=False)


if __name__ == "__main__":
    main()
