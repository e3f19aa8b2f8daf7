"""Squared error of private estimates of peer influence: the paper's calibrations against the tight one.

Run: python benchmarks/objective_perturbation.py [--data polblogs.gml] [--repetitions 500] [--jobs 2]
Outcomes are simulated on an Erdős-Rényi graph (n = 2000, p = n^(-1/3), J = A / (n p)) and, with the file, on the
political blogs' graph; estimates are held to (0, 5). With the file also the distance from the maximum
pseudo-likelihood estimate of the real leanings, without bounds. Seed 1. Writes Markdown to stdout.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
from pathlib import Path

from joblib import Parallel, delayed
from papers import ErdosRenyi, SimulationCell, find_networks
from papers.cells import Row
from papers.experiments import CostCell
from papers.sources import Published, Source

GRAPH = ErdosRenyi(nodes=2000, exponent=1 / 3, seed=1)
BETAS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
BLOG_BETAS = (0.5, 1.0, 1.5, 2.0, 2.85)
ESTIMATORS = ("mple", "paper", "paper-laplace", "tight")
DRAWS = 500_000


def simulated(
    source: Source,
    betas: tuple[float, ...],
    epsilons: tuple[float, ...],
    options: argparse.Namespace,
) -> None:
    cells = [
        SimulationCell(
            source=source,
            beta=beta,
            epsilons=epsilons,
            repetitions=options.repetitions,
            burn_in=500,
            seed=1,
        )
        for beta in betas
    ]
    print(
        "| beta | epsilon | without privacy | paper, Gaussian | paper, Laplace | tight | paper, Gaussian / tight |"
    )
    print("|---|---|---|---|---|---|---|")
    for rows in Parallel(n_jobs=options.jobs, return_as="generator")(
        delayed(cell.rows)() for cell in cells
    ):
        for epsilon in epsilons:
            found = {row["estimator"]: row for row in rows if row["epsilon"] in (None, epsilon)}
            print(
                f"| {rows[0]['beta']} | {epsilon:g} | "
                + " | ".join(written(found[e]) for e in ESTIMATORS),
                end="",
            )
            print(f" | {found['paper']['mse'] / found['tight']['mse']:.1f} |", flush=True)


def written(row: Row) -> str:
    return f"{row['mse']:.4f} ± {row['mse_error']:.4f}"


def cost(source: Published) -> None:
    print("| epsilon | Delta | standard deviation of the noise | mean squared difference |")
    print("|---|---|---|---|")
    for epsilon in (5.0, 10.0, 20.0, 50.0, 100.0):
        rows = CostCell(source=source, epsilon=epsilon, noise_draws=DRAWS, seed=1).rows()
        row = next(r for r in rows if r["estimator"] == "paper" and r["bounds"] == "none")
        print(
            f"| {epsilon:g} | {row['curvature']:.3f} | {row['noise_sd']:.3f} | {written(row)} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the political blogs' GML file")
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    print("Erdős-Rényi\n")
    simulated(GRAPH, BETAS, (5.0,), arguments)
    print()
    simulated(GRAPH, (1.5,), (1.0,), arguments)
    if arguments.data is not None:
        blogs = find_networks([arguments.data])["blogs"]
        print("\nThe blogs' graph\n")
        simulated(blogs, BLOG_BETAS, (1.0, 2.0, 5.0), arguments)
        print("\nThe blogs' real leanings, paper's Gaussian branch, no bounds\n")
        cost(blogs)
