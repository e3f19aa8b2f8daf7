"""Coverage of 90 % intervals on populations made of real tables, by size of the cell, status and share of the noise.

    OMP_NUM_THREADS=1 uv run --no-sync python benchmarks/marks.py --fits 100 --output benchmarks/results/marks.csv
    OMP_NUM_THREADS=1 uv run --no-sync python benchmarks/marks.py --fits 100 --estimator posterior \
        --rows rows.csv --output benchmarks/results/marks-posterior.csv

With `--rows` each fit is appended to a file when it is done, and a second call makes those that the file lacks.

A population is the joint distribution of three to five columns of a real table: the survey that comes with the
library, or a data set in ../shared/data beside the repository (another folder by `--data`). The cliques are declared
blindly, as a random tree of pairs that may have one triple, so that the declared independences are wrong. N records,
300 to 6,000, are drawn with replacement. Their tables get discrete Laplace noise, epsilon 0.3 to 3, N private.

Each fit answers for all cells of its measured tables and of their variables, and each interval is compared with the
population's probability. The groups are all cells, common ones (above half a percent), rare ones (at most that), and
cells that no one of the population is in; rows of each status; and tenths of the rows by the noise's standard
deviation of the cell over its expected number of records. Standard errors are clustered by fit.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf.noise import DiscreteLaplace
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.survey import fair_survey_records

LEVEL = 0.9
SEED = 20_261_129
FILES = {
    "adult": "adult/adult.csv",
    "bfi": "bfi/bfi.csv",
    "biofam": "biofam/biofam_states.csv",
    "coronary": "coronary/coronary.csv",
    "nltcs": "nltcs/nltcs.csv",
}
MOST_STATES = 16
"""Columns with more states are left out."""
MOST_CELLS = 400
"""Largest size of a declared triple."""
COMMON = 0.005
"""Probability above which a cell is common."""
TENTHS = 10


@dataclass(frozen=True)
class Problem:
    """A population, what is declared about it, and a release of records from it."""

    table: str
    shape: tuple[int, ...]
    truth: np.ndarray
    cliques: tuple[tuple[int, ...], ...]
    release: NoisyStatistics
    scale: float
    records: int
    epsilon: float

    def asked(self) -> list[tuple[int, ...]]:
        """The measured tables, and their variables one by one."""
        return [*self.cliques, *((v,) for v in range(len(self.shape)))]

    def share(self, variables: tuple[int, ...]) -> np.ndarray:
        """Probabilities of the joint states of some variables, flat."""
        others = tuple(v for v in range(len(self.shape)) if v not in variables)
        return self.truth.sum(axis=others).ravel()

    def noise(self, variables: tuple[int, ...]) -> float:
        """Standard deviation of the noise in one number of the smallest table that holds the variables, records."""
        sizes = [
            np.prod([self.shape[v] for v in clique])
            for clique in self.cliques
            if set(variables) <= set(clique)
        ]
        summed = min(sizes) / np.prod([self.shape[v] for v in variables])
        return float(np.sqrt(2 * summed) * self.scale)


def real_tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Columns of the real tables that have few states, by name of the table; a missing answer is a state."""
    found = {"survey": fair_survey_records()}
    found |= {name: pd.read_csv(folder / file) for name, file in FILES.items()}
    usable = {}
    for name, frame in found.items():
        as_text: Any = frame.astype(object).fillna("missing").astype(str)
        few = [c for c in as_text if 2 <= as_text[c].nunique() <= MOST_STATES]
        usable[name] = as_text[few]
    return usable


def blind_cliques(shape: tuple[int, ...], rng: np.random.Generator) -> tuple[tuple[int, ...], ...]:
    """A random tree of pairs over all variables; in half of the models, a small triple takes the place of two."""
    order = rng.permutation(len(shape)).tolist()
    pairs = [tuple(sorted((order[k], order[int(rng.integers(k))]))) for k in range(1, len(order))]
    linked = [tuple(sorted(set(a) | set(b))) for a, b in combinations(pairs, 2) if set(a) & set(b)]
    small = [own for own in linked if np.prod([shape[v] for v in own]) <= MOST_CELLS]
    if not small or rng.random() < 0.5:
        return tuple(pairs)
    triple = small[int(rng.integers(len(small)))]
    return (triple, *(pair for pair in pairs if not set(pair) <= set(triple)))


def problem(tables: dict[str, pd.DataFrame], rng: np.random.Generator) -> Problem:
    """Draw a population, cliques, a number of records, a budget and a release."""
    name = list(tables)[int(rng.integers(len(tables)))]
    frame = tables[name]
    count = int(rng.integers(3, min(5, frame.shape[1]) + 1))
    columns = [frame.columns[i] for i in rng.choice(frame.shape[1], count, replace=False)]
    codes = [pd.factorize(frame[column], sort=True)[0] for column in columns]
    shape = tuple(int(own.max()) + 1 for own in codes)
    cell = np.ravel_multi_index(tuple(codes), shape)
    truth = np.bincount(cell, minlength=int(np.prod(shape))) / len(frame)
    records = int(np.exp(rng.uniform(np.log(300), np.log(6_000))))
    epsilon = float(np.exp(rng.uniform(np.log(0.3), np.log(3))))
    cliques = blind_cliques(shape, rng)
    counts = rng.multinomial(records, truth).reshape(shape)
    scale = len(cliques) / epsilon
    stop = 1 - np.exp(-1 / scale)
    noisy = {}
    for clique in cliques:
        others = tuple(v for v in range(count) if v not in clique)
        own = counts.sum(axis=others)
        noisy[clique] = own + rng.geometric(stop, own.shape) - rng.geometric(stop, own.shape)
    network = bpm.declare(
        states={v: list(range(size)) for v, size in enumerate(shape)}, cliques=list(cliques)
    )
    release = NoisyStatistics.from_tables(network, noisy, noise=DiscreteLaplace(scale))
    return Problem(name, shape, truth.reshape(shape), cliques, release, scale, records, epsilon)


def fitted(release: NoisyStatistics, estimator: str, seed: int) -> Any:
    """The fit, without its warnings: its statuses are what is measured."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if estimator == "map":
            return bpm.NoiseAwareMAP().fit(release)
        return bpm.LatentCounts().fit(release, rng=seed)


def rows_of(asked: Problem, fit: Any) -> Iterator[pd.DataFrame]:
    """One frame for each table that is asked for, with the truth of each row."""
    for variables in asked.asked():
        frame = fit.interval(list(variables), LEVEL)
        truth = asked.share(variables)
        expected = asked.records * frame["estimate"].to_numpy()
        yield pd.DataFrame(
            {
                "truth": truth,
                "estimate": frame["estimate"].to_numpy(),
                "lower": frame["lower"].to_numpy(),
                "upper": frame["upper"].to_numpy(),
                "status": frame["status"].to_numpy(),
                "noise": asked.noise(variables) / np.maximum(expected, 1e-9),
            }
        )


@dataclass(frozen=True)
class Run:
    """Which fits are made, and where their rows are kept."""

    fits: int
    estimator: str
    seed: int
    folder: Path
    kept: Path | None


def measured(run: Run) -> pd.DataFrame:
    """All rows of some fits."""
    tables = real_tables(run.folder)
    done = {}
    if run.kept is not None and run.kept.exists():
        done = dict(list(pd.read_csv(run.kept).groupby("fit")))
    found = list(done.values())
    for number in sorted(set(range(run.fits)) - done.keys()):
        asked = problem(tables, np.random.default_rng([run.seed, number]))
        fit = fitted(asked.release, run.estimator, number)
        rows = pd.concat(rows_of(asked, fit), ignore_index=True)
        found.append(rows.assign(fit=number, fit_status=fit.status.value))
        if run.kept is not None:
            is_first = len(found) == 1
            found[-1].to_csv(run.kept, mode="a", header=is_first, index=False)
    rows = pd.concat(found, ignore_index=True)
    return rows.assign(holds=(rows["lower"] <= rows["truth"]) & (rows["truth"] <= rows["upper"]))


def coverage(rows: Any) -> dict[str, Any]:
    """Number of rows, their coverage, and its standard error clustered by fit."""
    share = rows["holds"].mean()
    excess = (rows["holds"] - share).groupby(rows["fit"]).sum()
    error = float(np.sqrt((excess**2).sum()) / max(len(rows), 1))
    return {"rows": len(rows), "coverage": round(share, 4), "error": round(error, 4)}


def groups(rows: Any) -> Iterator[tuple[str, Any]]:
    """Groups of rows by name."""
    is_common = rows["truth"] > COMMON
    is_empty = rows["truth"] == 0
    yield "all", rows
    yield "common", rows[is_common]
    yield "rare", rows[~is_common & ~is_empty]
    yield "empty", rows[is_empty]
    tenth = pd.qcut(rows["noise"].rank(method="first"), TENTHS, labels=False)
    for number in range(TENTHS):
        yield f"noise, tenth {number + 1}", rows[tenth == number]


def summary(rows: Any) -> pd.DataFrame:
    """Coverage of each group, for all statuses together and for each."""
    found = []
    for name, own in groups(rows):
        found.append({"group": name, "status": "any", **coverage(own)})
        each = own.groupby("status")
        found += [{"group": name, "status": own, **coverage(rows)} for own, rows in each]
    return pd.DataFrame(found)


def main() -> None:
    """Fit, print the summary, and write it."""
    parser = argparse.ArgumentParser(description="Coverage by size, status and noise.")
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--estimator", choices=("map", "posterior"), default="map")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--rows", type=Path, help="file of the rows of fits that are done")
    arguments = parser.parse_args()
    run = Run(arguments.fits, arguments.estimator, arguments.seed, arguments.data, arguments.rows)
    rows = measured(run)
    table = summary(rows).assign(estimator=arguments.estimator)
    print(table.to_string(index=False))
    print(rows.groupby("fit")["fit_status"].first().value_counts().to_string())
    if arguments.output is not None:
        table.to_csv(arguments.output, index=False)


if __name__ == "__main__":
    main()
