"""Transitions of visits of unequal length, each person weighed 1/K: three estimators, three budgets, held-out people.

Run: python benchmarks/msnbc.py [--seeds 5]
Data: ../shared/data/msnbc/msnbc990928.seq beside the repository (or its path by --data): 989,818 visits, 17 states,
the first 16 events of each; without the file 100,000 visits are simulated. Nine tenths of the people, drawn with seed
0, are released; noise has seeds 0, 1, ... The first table is of the weights (grid 360360, which 1 to 15 divide), the
second of the noise-aware mode by what bounds a person: weights, or the first rows of each. "A person" is the mean
over held-out people of the mean log probability of their transitions, "a transition" that over all their transitions,
nats. Markdown to stdout.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics, transition_rows

STATES, LENGTH = [str(state) for state in range(1, 18)], 16
PAIR = bpm.declare({"from": STATES, "to": STATES}, [("from", "to")])
BOUNDS: Mapping[str, Mapping[str, int]] = {
    "weights 1/K": {"at_most": LENGTH - 1, "grid": 360360},
    "first 15": {"at_most": 15},
    "first 4": {"at_most": 4},
    "first 1": {"at_most": 1},
}
ESTIMATORS = {"naive MLE": bpm.NaiveMLE, "CGM": bpm.CGM, "noise-aware mode": bpm.NoiseAwareMAP}
BUDGETS = (0.01, 0.1, 1.0)


def visits(path: Path) -> pl.DataFrame:
    """One row an event: whose it is, which of theirs, and the state."""
    if path.exists():
        text = pl.Series(
            "state", [line for line in path.read_text().splitlines() if line[:1].isdigit()]
        )
    else:
        rng = np.random.default_rng(0)
        law = rng.dirichlet(np.ones(17))
        matrix = rng.dirichlet(np.full(17, 0.3), 17) * 0.6 + 0.4 * np.eye(17)
        steps = np.empty((100_000, LENGTH), int)
        steps[:, 0] = rng.choice(17, len(steps), p=law)
        for t in range(1, LENGTH):
            steps[:, t] = (
                rng.random(len(steps))[:, None] > matrix.cumsum(axis=1)[steps[:, t - 1]]
            ).sum(axis=1)
        ends = np.minimum(rng.geometric(0.25, len(steps)), LENGTH)
        text = pl.Series(
            "state", [" ".join(map(str, own[:k] + 1)) for own, k in zip(steps, ends, strict=True)]
        )
    people = text.to_frame().with_row_index("person")
    people = people.with_columns(pl.col("state").str.strip_chars().str.split(" ").list.head(LENGTH))
    people = people.with_columns(position=pl.int_ranges(pl.col("state").list.len()))
    return people.explode("state", "position")


def table_of(transitions: pl.DataFrame, **bound: Any) -> np.ndarray:
    """Exact sums of the held-out transitions, one unit a person or a transition."""
    mechanism = ExactStatistics(queries=[q.table("from", "to")], person="person", **bound)
    answers = mechanism.release(PAIR, transitions).measurements[0].values
    return answers / answers.sum()


def score(fit: bpm.Solution, held: np.ndarray) -> float:
    """Mean log probability of transitions whose shares are given."""
    joint = fit.marginal(["from", "to"]).values
    with np.errstate(divide="ignore"):
        logs = np.log(joint / joint.sum(axis=1, keepdims=True)).ravel()
    return float(held[held > 0] @ logs[held > 0])


def main() -> None:
    """Count, release, fit, and print a row each."""
    parser = argparse.ArgumentParser(description="Transitions of visits of unequal length.")
    parser.add_argument("--seeds", type=int, default=5)
    shared = Path(__file__).parents[2] / "shared" / "data" / "msnbc" / "msnbc990928.seq"
    parser.add_argument("--data", type=Path, default=shared)
    arguments = parser.parse_args()
    begin = time.perf_counter()
    events = visits(arguments.data)
    transitions = transition_rows(events, person="person", position="position", state="state")
    everybody = LaplaceStatistics(
        epsilon=1.0, queries=[q.table("from", "to")], person="person", **BOUNDS["weights 1/K"]
    )
    everybody.release(PAIR, transitions, rng=0)
    people = events["person"].n_unique()
    print(f"{people:,} visits read and counted in {time.perf_counter() - begin:.1f} s\n")
    is_held = np.random.default_rng(0).random(people) < 0.1
    mask = pl.Series(is_held[transitions["person"].to_numpy()])
    train = transitions.filter(~mask)
    held = transitions.filter(mask)
    by_person = table_of(held, **BOUNDS["weights 1/K"])
    by_transition = table_of(held, at_most=LENGTH - 1)
    warnings.simplefilter("ignore")
    begin = time.perf_counter()
    print(f"| epsilon | {' | '.join(ESTIMATORS)} |\n|---|---|---|---|")
    others: list[str] = []
    for epsilon in BUDGETS:
        found: dict[str, list[float]] = {}
        for bound, settings in BOUNDS.items():
            mechanism = LaplaceStatistics(
                epsilon=epsilon, queries=[q.table("from", "to")], person="person", **settings
            )
            for seed in range(arguments.seeds):
                release = mechanism.release(PAIR, train, rng=seed)
                fit = bpm.NoiseAwareMAP().fit(release)
                found.setdefault(f"{bound}, a person", []).append(score(fit, by_person))
                found.setdefault(f"{bound}, a transition", []).append(score(fit, by_transition))
                for name, estimator in ESTIMATORS.items():
                    if "grid" in settings:
                        found.setdefault(name, []).append(
                            score(estimator().fit(release), by_person)
                        )
        print(
            f"| {epsilon} | {' | '.join(f'{np.mean(found[name]):.4f}' for name in ESTIMATORS)} |",
            flush=True,
        )
        others += [
            f"| {epsilon} | {bound} | {np.mean(found[f'{bound}, a person']):.4f} | "
            f"{np.mean(found[f'{bound}, a transition']):.4f} |"
            for bound in BOUNDS
        ]
    print("\n| epsilon | bound | a person | a transition |\n|---|---|---|---|", *others, sep="\n")
    print(f"\nreleases and fits: {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
