"""Forecast and measured error of tables fitted to noisy answers, the budget split evenly and by least forecast.

Run: python benchmarks/query_budget.py [--runs 20]
Each case is a declared model, queries and records. Forecasts are those of `preview`. The measured error is that of
consistent tables fitted to releases by generalised least squares, against the tables of the records: square root of
the summed squares of all cells, mean square over the runs, whose seeds are 0, 1, ... Rhode Island needs
../shared/data/pl94_ri beside the repository (or its path by --rhode-island), and is left out without it. Writes
Markdown to stdout.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import itertools
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import NoiseWarning
from bayesprivmrf.mechanisms import ExactStatistics, GaussianStatistics, LaplaceStatistics
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.survey import load_fair_survey

type Case = tuple[str, Any, list[q.Query], pd.DataFrame]


def cases(rhode_island: Path) -> Iterator[Case]:
    network, data = load_fair_survey()
    model = ModelSpecification.from_pgmpy(network)
    tables = [q.table(*clique) for clique in model.cliques]
    yield "survey, its tables", network, tables, data
    singles = [q.table(v) for v in model.domain.variables]
    yield "survey, its tables and each variable's", network, [*tables, *singles], data
    states = {f"x{t}": ["a", "b", "c"] for t in range(8)}
    names = list(states)
    chain = bpm.declare(states, [tuple(names[t : t + 4]) for t in range(5)])
    rng = np.random.default_rng(3)
    walk = [[0] * 5_000]
    for _ in range(7):  # a sticky walk
        walk.append(np.where(rng.random(5_000) < 0.7, walk[-1], rng.integers(0, 3, 5_000)))
    answers = pd.DataFrame(
        {v: np.array(["a", "b", "c"])[codes] for v, codes in zip(names, walk, strict=True)}
    )
    fours = [q.table(*names[t : t + 4]) for t in range(5)]
    pairs = [q.table(*pair) for pair in itertools.pairwise(names)]
    yield "third-order chain, its tables", chain, fours, answers
    yield "third-order chain, its tables and pairs", chain, [*fours, *pairs], answers
    if (rhode_island / "blocks.csv").is_file():
        yield rhode_island_case(rhode_island)


def rhode_island_case(folder: Path) -> Case:
    cells = pd.read_csv(folder / "blocks.csv", dtype={"tract": str})
    data = cells.loc[
        cells.index.repeat(cells["count"]), ["tract", "voting_age", "hispanic", "race"]
    ]
    states = {v: sorted(cells[v].unique().tolist()) for v in ("tract", "voting_age", "hispanic")}
    network = bpm.declare(states | {"race": range(1, 64)}, [(*states, "race")])
    others = ["voting_age", "hispanic", "race"]
    scopes = itertools.chain.from_iterable(itertools.combinations(others, k) for k in range(4))
    return (
        "Rhode Island, tract x the census's queries",
        network,
        [q.table("tract", *s) for s in scopes],
        data,
    )


def fitted(model: ModelSpecification, matrix: Any, variances: np.ndarray) -> np.ndarray:
    """The matrix that turns noise on the answers into the error of consistent tables, by least squares."""
    if len(model.cliques) == 1:
        basis = np.eye(model.size)
    else:
        sizes = np.diff(model.offsets)
        effects = Effects.of(model.cardinalities, model.scopes)
        basis = np.vstack([np.repeat(1 / sizes, sizes), effects.margins(np.eye(effects.size))])
    design = (matrix @ basis.T) / np.sqrt(variances)[:, None]
    return basis.T @ cho_solve(cho_factor(design.T @ design), design.T / np.sqrt(variances))


def measured(mechanism: Any, network: Any, data: pd.DataFrame, runs: int) -> float:
    """Root of the mean, over releases, of the summed squared errors of all cells."""
    exact = ExactStatistics(queries=mechanism.queries).release(network, data)
    model = exact.specification
    squares = []
    for seed in range(runs):
        release = mechanism.release(network, data, rng=seed)
        if not seed:
            if release.matrix is None:
                matrix = np.eye(model.size)
            else:
                matrix = release.matrix
            error_of = fitted(model, matrix, release.cell_variances())
        squares.append(float(np.sum((error_of @ (release.flat - exact.flat)) ** 2)))
    return float(np.sqrt(np.mean(squares)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    default = Path(__file__).parents[2] / "shared" / "data" / "pl94_ri"
    parser.add_argument("--rhode-island", type=Path, default=default)
    options = parser.parse_args()
    warnings.simplefilter("ignore", NoiseWarning)
    print("| case | queries | noise | forecast, even | forecast, split | less variance | measured, even "
          "| measured, split | seconds to split |\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    for what, network, queries, data in cases(options.rhode_island):
        for kind, budget, adjacency in (
            (LaplaceStatistics, {"epsilon": 1.0}, "add-or-remove-one"),
            (GaussianStatistics, {"rho": 0.1}, "replace-one"),
        ):
            split = kind(**budget, queries=queries, adjacency=adjacency)
            even = kind(**budget, queries=queries, adjacency=adjacency, weights=[1] * len(queries))
            begin = time.perf_counter()
            told = split.preview(network)
            seconds = time.perf_counter() - begin
            variances = told.attrs["even_forecast_variance"], told.attrs["forecast_variance"]
            errors = [measured(each, network, data, options.runs) for each in (even, split)]
            name = kind.__name__.removesuffix("Statistics")
            roots = [f"{one**0.5:,.1f}" for one in variances]
            less = f"{1 - variances[1] / variances[0]:.1%}"
            found = [f"{one:,.1f}" for one in errors]
            row = [what, str(len(queries)), name, *roots, less, *found, f"{seconds:.2f}"]
            print(f"| {' | '.join(row)} |", flush=True)
            if what.startswith("Rhode"):
                shares = ", ".join(f"{one:.3f}" for one in told["share"])
                print(f"<!-- shares: {shares} -->", flush=True)


if __name__ == "__main__":
    main()
