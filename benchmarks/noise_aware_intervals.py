"""Coverage of the quick intervals of `NoiseAwareMAP`, and of its warning of the doubtful ones.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/noise_aware_intervals.py --jobs 2

The populations, sizes and budgets of robustness_truths.py; every release is of a population of its own. Coverage of
the 90 % intervals over all cells of all tables, with its standard error over settings, of the rows that are not
called doubtful and of those that are; and in how many settings the first lies outside .80 to .96.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import numpy as np
import pandas as pd
from robustness_truths import STUDIES, Cell, Population

from bayesprivmrf.inference import NoiseAwareMAP

REPLICATIONS = 4
SEED = 4_242
LEAST, MOST = 0.80, 0.96


def covered(study: str, cell: Cell, index: int) -> pd.DataFrame:
    """Whether each of one release's intervals holds the true probability."""
    rng = np.random.default_rng([SEED, index, *map(ord, cell.slug(0))])
    truth = Population(cell.graph, cell.law, rng)
    release = truth.release(truth.counts(cell.records, rng), cell.epsilon, rng)
    solution = NoiseAwareMAP().fit(release)
    rows: list[Any] = []
    for clique, true in zip(truth.model.cliques, truth.tables, strict=True):
        frame = solution.interval(list(clique), prob=0.9)
        holds = (frame["lower"] <= true) & (true <= frame["upper"])
        doubtful = frame["status"].to_numpy() == "doubtful"
        rows.append(pd.DataFrame({"holds": holds.to_numpy(), "doubtful": doubtful}))
    setting = f"{cell.graph}, {cell.law}, {cell.records:,}, {cell.epsilon:g}"
    return pd.concat(rows).assign(study=study, setting=setting, index=index)


def share(rows: Any) -> str:
    """Coverage with its standard error over settings."""
    each = rows.groupby("setting")["holds"].mean()
    return f"{rows['holds'].mean():.3f} ± {each.std() / max(len(each), 1) ** 0.5:.3f}"


def outside(rows: Any) -> str:
    """Settings below and above the bounds by more than two standard errors over releases, of all."""
    by = rows.groupby(["setting", "index"])["holds"].mean().groupby("setting")
    mean = by.mean()
    error = by.std().fillna(np.inf) / by.size() ** 0.5
    low = mean + 2 * error < LEAST
    high = mean - 2 * error > MOST
    return f"{low.sum()}, {high.sum()} of {len(mean)}"


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(
        description="Coverage of the quick intervals of NoiseAwareMAP."
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--replications", type=int, default=REPLICATIONS)
    arguments = parser.parse_args()
    tasks = [
        joblib.delayed(covered)(study, cell, index)
        for index in range(arguments.replications)
        for study, cells in STUDIES.items()
        for cell in cells
    ]
    everything: Any = pd.concat(joblib.Parallel(n_jobs=arguments.jobs)(tasks))
    print(
        "| study | all rows | not doubtful | their share | settings below .80, above .96 | doubtful |"
    )
    print("|---" * 6 + "|")
    for study, rows in [*everything.groupby("study", sort=False), ("all", everything)]:
        clear = rows[~rows["doubtful"]]
        cells = [share(rows), share(clear), f"{len(clear) / len(rows):.2f}", outside(clear)]
        print(f"| {study} | {' | '.join(cells)} | {share(rows[rows['doubtful']])} |", flush=True)


if __name__ == "__main__":
    main()
