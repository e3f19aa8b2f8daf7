"""`SelectMeasure(rho)` where columns are independent, beside independent columns that have all of the budget.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/learning_independent.py

Columns are independent and even, so that no table of several has anything to tell but the records' own sampling. A
cell is a list of numbers of states, a number of records, and rho; add-or-remove-one neighbours, one population and
one release a seed. Error: mean total variation, over all tables of two variables, between the records and the model.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from learning_rounds import Tables, independent_tables, shares

import bayesprivmrf as bpm
from bayesprivmrf.mechanisms import SelectMeasure

CELLS = (
    ((4,) * 8, 300, 0.05),
    ((4,) * 8, 100, 0.01),
    ((3,) * 12, 2_000, 0.02),
    ((1_000, 3, 3), 20_000, 0.1),
    ((1_000, 3, 3), 20_000, 0.01),
    ((10_000, 3), 3_000, 0.1),
    ((100, 100, 5, 2), 5_000, 0.1),
)
SEEDS = (1, 2, 3, 4)


def even(cards: tuple[int, ...], records: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, records, len(cards)])
    return np.column_stack([rng.integers(0, k, records) for k in cards])


def error(codes: np.ndarray, cards: tuple[int, ...], table_of: Tables) -> float:
    pairs = itertools.combinations(range(len(cards)), 2)
    return float(
        np.mean([0.5 * np.abs(shares(codes, c, cards) - table_of(c)).sum() for c in pairs])
    )


def released(codes: np.ndarray, cards: tuple[int, ...], rho: float, seed: int) -> dict[str, object]:
    names = [f"v{i}" for i in range(len(cards))]
    network = bpm.declare(states={v: range(k) for v, k in zip(names, cards, strict=True)})
    begin = time.process_time()
    learned = SelectMeasure(rho=rho).release(network, pd.DataFrame(codes, columns=names), rng=seed)
    seconds = time.process_time() - begin
    solution = learned.solution
    off = error(codes, cards, lambda scope: solution.marginal([names[v] for v in scope]).values)
    spent = learned.details["rho_spent"] / rho
    told = {"spent": spent, "tables": learned.details["tables_measured"], "seconds": seconds}
    return {"rounds": off, "status": learned.status.value} | told


def main() -> None:
    """Run the cells and print their means."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for cards, records, rho in CELLS:
        rows = []
        for seed in options.seeds:
            codes = even(cards, records, seed)
            alone = error(codes, cards, independent_tables(codes, cards, rho, seed))
            rows.append(released(codes, cards, rho, seed) | {"independent": alone})
        frame = pd.DataFrame(rows)
        means = (
            frame[["rounds", "independent", "spent", "tables", "seconds"]].mean().round(4).to_dict()
        )
        told = frame["status"].value_counts().to_dict()
        print(
            f"{len(cards)} of {max(cards)} states, n={records}, rho={rho}: {means} {told}",
            flush=True,
        )


if __name__ == "__main__":
    main()
