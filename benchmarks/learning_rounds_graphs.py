"""Graphs of pairs learned in rounds, without a degree, beside one choice of pairs with the right degree and one more.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/learning_rounds_graphs.py [--quick]

Random 3-regular Ising models and a grid, couplings of .3 with random signs, no fields; add-or-remove-one neighbours,
one population and one release of a seed each. Errors: the mean total variation of tables of two variables between
the records and the model (exact where the model allows, else of 500,000 draws), and the largest error of a coupling.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from learning_models import drawn

from bayesprivmrf.learning.models.base import LearnedNetwork
from bayesprivmrf.mechanisms import SelectMeasure

CELLS = (
    ("3-regular", 20, 20_000, 0.1),
    ("3-regular", 20, 100_000, 1.0),
    ("grid", 25, 20_000, 0.1),
    ("3-regular", 50, 100_000, 0.1),
)
SEED, DRAWS, WIDEST = 20_261_123, 500_000, 25


def pairs_of(codes: np.ndarray) -> np.ndarray:
    """Return shares of all pairs of two-state variables, shape (pairs, 4)."""
    ones = codes.astype(float)
    both = ones.T @ ones / len(codes)
    single = ones.mean(axis=0)
    found = []
    for i, j in itertools.combinations(range(codes.shape[1]), 2):
        shared = both[i, j]
        found.append(
            [1 - single[i] - single[j] + shared, single[j] - shared, single[i] - shared, shared]
        )
    return np.array(found)


def pairs_of_model(learned: LearnedNetwork, names: list[str]) -> np.ndarray:
    """Return the same of a learned model."""
    if len(names) > WIDEST:
        return pairs_of(
            learned.solution.sample(DRAWS, rng=np.random.default_rng(SEED))[names].to_numpy()
        )
    marginal = learned.solution.marginal
    return np.array(
        [marginal(list(pair)).values.ravel() for pair in itertools.combinations(names, 2)]
    )


def main() -> None:
    """Run the cells and print their rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="the first cell")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for graph, variables, records, rho in CELLS[: 1 if options.quick else None]:
        population, codes = drawn(graph, variables, records, SEED)
        names = [f"v{i}" for i in range(variables)]
        truth = pairs_of(codes)
        for degree in (None, 3, 4):
            begin = time.perf_counter()
            learned = SelectMeasure(rho=rho, degree=degree).release(
                population.network, population.frame(codes), rng=SEED
            )
            seconds = time.perf_counter() - begin
            distance = 0.5 * np.abs(pairs_of_model(learned, names) - truth).sum(axis=1).mean()
            couplings = np.zeros((variables, variables))
            for i, j in itertools.combinations(range(variables), 2):
                couplings[i, j] = couplings[j, i] = coupling(learned, names[i], names[j])
            error = population.error(couplings)
            if degree is None:
                name = "rounds"
            else:
                name = f"degree={degree}"
            cell = f"{graph}, {variables} variables, n = {records:,}, rho = {rho:g}"
            print(
                f"{cell} | {name} | {distance:.4f} / {error:.3f} | {seconds:.0f} s | {learned.status}",
                flush=True,
            )


def coupling(learned: LearnedNetwork, first: str, second: str) -> float:
    """Return the effect of two two-state variables on the log potentials, summed over tables that hold both."""
    total = 0.0
    for clique, table in learned.solution.potentials.items():
        if first in clique and second in clique:
            signs = np.ones(table.shape)
            for name in (first, second):
                axis = clique.index(name)
                signs = signs * np.reshape(
                    [-1, 1], [2 if a == axis else 1 for a in range(table.ndim)]
                )
            total += float((signs * np.asarray(table)).mean())
    return total


if __name__ == "__main__":
    main()
