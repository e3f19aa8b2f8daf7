"""Status and coverage of the default posterior on tables of many sizes, graphs with cycles, and sticky chains.

    OMP_NUM_THREADS=1 uv run --no-sync python -m benchmarks.default_convergence --seeds 3 \
        --output benchmarks/results/default-convergence.csv

Populations are columns of Adult. A column is merged to the wanted number of states by the order of its codes. A table
of three axes is one clique; "star", "cycle" and "triples" are cliques over four columns of four states. "Sticky" is a
chain whose people stay in their state with probability 0.9 and otherwise move to any other one; its cliques are
neighboring steps. N records are drawn and released by `LaplaceStatistics(epsilon=1)`, and `LatentCounts()` is fitted.

Columns: case, cells (of all cliques), records, seed, engine, status, effective (smallest number of effective draws),
r_hat (largest), rows (unmarked: `ok` or `model`), held (share of them whose 90 percent interval holds the
population's probability), marked (share of other rows), cpu (seconds, with compilation).

Each fit is appended to the output when it is done, and a second call continues after the last one.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf.mechanisms import LaplaceStatistics

LEVEL = 0.9
EPSILON = 1.0
STAYS = 0.9
# columns of Adult with enough states to be merged, and binary ones
MANY = ("age", "hours-per-week", "education-num", "occupation")
BINARY = ("income>50K", "sex")
SHAPES = ((3, 4), (4, 6, 2), (12, 12, 2))
DENSITIES = (1, 10, 100)
GRAPHS = {
    "star": ((0, 1), (0, 2), (0, 3)),
    "cycle": ((0, 1), (1, 2), (2, 3), (0, 3)),
    "triples": ((0, 1, 2), (1, 2, 3)),
}
GRAPH_RECORDS = (300, 3000)
# states, steps and people of the chains
CHAINS = ((4, 6, 2000), (16, 10, 5000))
HEAD = [
    "case",
    "cells",
    "records",
    "seed",
    "engine",
    "status",
    "effective",
    "r_hat",
    "rows",
    "held",
    "marked",
    "cpu",
]


@dataclass(frozen=True)
class Problem:
    """Cliques over columns of people, and how many records are drawn."""

    name: str
    cliques: tuple[tuple[str, ...], ...]
    people: pd.DataFrame
    records: int

    @property
    def states(self) -> dict[str, list[int]]:
        return {str(v): list(range(int(self.people[v].max()) + 1)) for v in self.people}

    @property
    def cells(self) -> int:
        sizes = {name: len(states) for name, states in self.states.items()}
        return sum(int(np.prod([sizes[v] for v in clique])) for clique in self.cliques)

    def truth(self, clique: tuple[str, ...]) -> np.ndarray:
        """Probabilities of a clique's cells, flat."""
        shape = [len(self.states[v]) for v in clique]
        codes = tuple(self.people[v].to_numpy() for v in clique)
        cell = np.ravel_multi_index(codes, tuple(shape))
        return np.bincount(cell, minlength=int(np.prod(shape))) / len(self.people)


def merged(column: pd.Series, states: int) -> np.ndarray:
    """Codes of a column, of which neighbors are merged to so many states of about equal size."""
    ranks = column.astype("category").cat.codes.rank(method="average", pct=True)
    groups = np.minimum((ranks * states).astype(int), states - 1)
    return np.unique(groups, return_inverse=True)[1]


def columns(adult: pd.DataFrame, shape: tuple[int, ...]) -> pd.DataFrame:
    """Columns of Adult with about the wanted numbers of states."""
    many = iter(MANY)
    binary = iter(BINARY)
    found = {}
    for states in shape:
        name = next(binary) if states == 2 else next(many)
        found[name] = merged(adult[name], states)
    return pd.DataFrame(found)


def sticky(states: int, steps: int, rng: np.random.Generator) -> pd.DataFrame:
    """People who stay in their state with probability `STAYS`, many of them: the population."""
    size = 200_000
    at = rng.choice(states, size, p=rng.dirichlet(np.full(states, 5.0)))
    found = {}
    for step in range(steps):
        found[f"t{step}"] = at
        moved = (at + rng.integers(1, states, size)) % states
        at = np.where(rng.random(size) < STAYS, at, moved)
    return pd.DataFrame(found)


def problems(adult: pd.DataFrame, seed: int) -> list[Problem]:
    """All problems of one seed, the quick ones first."""
    found = []
    for shape in SHAPES:
        people = columns(adult, shape)
        cliques = (tuple(map(str, people)),)
        cells = int(np.prod([people[v].max() + 1 for v in people]))
        name = "x".join(map(str, shape))
        found += [Problem(name, cliques, people, each * cells) for each in DENSITIES]
    people = columns(adult, (4, 4, 4, 4))
    for name, scopes in GRAPHS.items():
        cliques = tuple(tuple(str(people.columns[v]) for v in scope) for scope in scopes)
        found += [Problem(name, cliques, people, records) for records in GRAPH_RECORDS]
    for states, steps, records in CHAINS:
        people = sticky(states, steps, np.random.default_rng([seed, states]))
        cliques = tuple((f"t{k}", f"t{k + 1}") for k in range(steps - 1))
        found.append(Problem(f"sticky {states} by {steps}", cliques, people, records))
    return found


def row(problem: Problem, seed: int) -> list[object]:
    """Draw, release and fit, and return what became of it."""
    rng = np.random.default_rng([seed, problem.records])
    data = problem.people.sample(problem.records, replace=True, random_state=rng)
    network = bpm.declare(states=problem.states, cliques=list(problem.cliques))
    release = LaplaceStatistics(epsilon=EPSILON).release(network, data, rng=rng)
    begin = time.process_time()
    with warnings.catch_warnings(action="ignore"):
        fit = bpm.LatentCounts().fit(release, rng=seed, progress_bar=False)
    seconds = time.process_time() - begin
    holds = []
    is_told = []
    for clique in problem.cliques:
        frame = fit.interval(list(clique), prob=LEVEL)
        truth = problem.truth(clique)
        inside = (frame["lower"] <= truth) & (truth <= frame["upper"])
        holds.append(inside.to_numpy())
        is_told.append(frame["status"].isin(["ok", "model"]).to_numpy())
    told = np.concatenate(is_told)
    held = np.concatenate(holds)[told].mean() if told.any() else float("nan")
    facts = [fit.stats["formulation"], fit.status.value]
    numbers = [fit.stats.get("ess_bulk", np.nan), fit.stats.get("r_hat", np.nan)]
    shares = [int(told.sum()), held, 1 - told.mean(), seconds]
    own = [problem.name, problem.cells, problem.records, seed, *facts]
    return own + [f"{number:.4g}" for number in (*numbers, *shares)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=6100, help="first seed")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases whose names begin with this")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    given = parser.parse_args()
    adult = pd.read_csv(given.data / "adult" / "adult.csv")
    done = set()
    if given.output.exists():
        kept = pd.read_csv(given.output)
        done = set(zip(kept["case"], kept["records"], kept["seed"], strict=True))
    else:
        given.output.write_text(",".join(HEAD) + "\n")
    for seed in range(given.first, given.first + given.seeds):
        for problem in problems(adult, seed):
            is_done = (problem.name, problem.records, seed) in done
            if is_done or not problem.name.startswith(given.only):
                continue
            found = row(problem, seed)
            with given.output.open("a", newline="") as file:
                csv.writer(file).writerow(found)
            print(*found, flush=True)


if __name__ == "__main__":
    main()
