"""A folder of published tables for each of many areas: time, and coverage of counts, rates and odds ratios.

Areas are made of the Adult data (1994 census): each has its own weights of the records, and some hundred people drawn
by them. Six tables of two and three variables are published for each area, in a folder with one count a line:
rounded at random to base 3, rounded to the nearest 5, changed by cell keys, or with counts of 1 to 4 suppressed and
others suppressed to protect them. `readers.read_folder` reads each folder, and `NoiseAwareMAP` fits it.

    python -m benchmarks.published.folder --data adult.csv --areas 20 > benchmarks/results/published-folder.csv

Columns: rule; areas; share of suppressed cells; mean processor seconds of reading and fitting one area; coverage of
90 % intervals of counts, of rates (income given education, and given age and marital status) and of odds ratios of
cells that have records. Seeds are 84000, 84001, ... of each rule.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.noise import CellKey, Likelihood, RandomRounding, Rounded, Suppressed

FIRST_SEED = 84_000
STATES = {
    "age": ["<29", "29-38", "39-48", ">48"],
    "sex": ["Female", "Male"],
    "education": ["school", "high school", "some college", "degree"],
    "marital": ["married", "never", "other"],
    "race": ["one", "others"],
    "income": ["low", "high"],
}
TABLES = [
    ("age", "sex"),
    ("race", "education"),
    ("age", "marital", "income"),
    ("sex", "education", "income"),
    ("race", "income"),
    ("marital", "sex"),
]
RATES = [("income", ["education"]), ("income", ["age", "marital"])]
RATIOS = [("education", "income"), ("age", "sex"), ("race", "income"), ("marital", "sex")]
# Records of an area, and the standard deviation of log weights of the states of each variable in it
RECORDS = (300, 1500)
SPREAD = 0.5
# A made-up perturbation table: changes of a count by eight keys, with mean 0
CHANGES = {
    1: [-1, -1, 0, 0, 0, 0, 1, 1],
    2: [-2, -1, -1, 0, 0, 1, 1, 2],
    3: [-2, -1, -1, 0, 0, 1, 1, 2],
}
# Largest count that is suppressed
PRIMARY = 4


def adult(path: Path) -> pd.DataFrame:
    """Return the records, with few states of each variable."""
    raw = pd.read_csv(path)
    age = np.digitize(raw["age"], [12, 22, 32])
    education = np.digitize(raw["education-num"], [8, 9, 12])
    marital = np.select([raw["marital-status"] == 2, raw["marital-status"] == 0], [0, 1], 2)
    columns = {"age": age, "sex": raw["sex"], "education": education, "marital": marital}
    columns |= {"race": (raw["race"] > 0).astype(int), "income": raw["income>50K"]}
    return pd.DataFrame(columns)


def table(records: pd.DataFrame, scope: tuple[str, ...], weights: np.ndarray) -> np.ndarray:
    """Return the sums of weights of the cells of a scope."""
    shape = [len(STATES[name]) for name in scope]
    cells = np.ravel_multi_index([records[name].to_numpy() for name in scope], shape)
    return np.bincount(cells, weights, int(np.prod(shape))).reshape(shape)


def hidden_cells(counts: np.ndarray) -> np.ndarray:
    """Return the cells of 1 to 4, and the smallest other ones of each line of the last axis with one hidden cell."""
    hidden = (counts >= 1) & (counts <= PRIMARY)
    for line, numbers in zip(
        hidden.reshape(-1, counts.shape[-1]), counts.reshape(-1, counts.shape[-1]), strict=True
    ):
        if line.sum() == 1:
            line[np.argmin(np.where(line, np.inf, numbers))] = True
    return hidden


def written(
    folder: Path, counts: dict[tuple[str, ...], np.ndarray], rule: Likelihood, rng: Any
) -> float:
    """Write the tables of an area, and return the share of suppressed cells."""
    hidden = 0
    cells = 0
    for scope, own in counts.items():
        shown = [str(number) for number in rule.draw_given(own, rng).ravel()]
        if isinstance(rule, Suppressed):
            for cell in np.flatnonzero(hidden_cells(own)):
                shown[cell] = "s" if 1 <= own.ravel()[cell] <= PRIMARY else "x"
        hidden += sum(text in "sx" for text in shown)
        cells += own.size
        index = pd.MultiIndex.from_product([STATES[name] for name in scope], names=scope)
        frame = pd.DataFrame({"Count": shown}, index=index)
        frame.to_csv(folder / f"{'-'.join(scope)}.csv")
    return hidden / cells


def rules() -> dict[str, Likelihood]:
    """Return the rules by name."""
    keys = [(n, key, change) for n, own in CHANGES.items() for key, change in enumerate(own)]
    return {
        "random to 3": RandomRounding(3),
        "nearest 5": Rounded(5),
        "cell keys": CellKey(pd.DataFrame(keys, columns=["pcv", "ckey", "pvalue"])),
        "suppressed": Suppressed(1, PRIMARY + 1),
    }


def held(frame: pd.DataFrame, truth: np.ndarray) -> np.ndarray:
    """Return a mask of the rows whose interval holds the truth."""
    return (frame.lower.to_numpy() <= truth) & (truth <= frame.upper.to_numpy())


def figures(records: pd.DataFrame, rule: Likelihood, seed: int) -> dict[str, Any]:
    """Return the figures of one area."""
    rng = np.random.default_rng(seed)
    logs = sum(rng.normal(0, SPREAD, len(own))[records[name]] for name, own in STATES.items())
    shares = np.exp(logs) / np.exp(logs).sum()
    drawn = records.iloc[rng.choice(len(records), rng.integers(*RECORDS), p=shares)]
    counts = {own: table(drawn, own, np.ones(len(drawn))).astype(int) for own in TABLES}
    network = bpm.declare(STATES, TABLES)
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings(action="ignore"):
        suppressed = written(Path(place), counts, rule, rng)
        begin = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            release = bpm.readers.read_folder(
                network,
                place,
                noise=rule,
                withheld={"s": (1, PRIMARY), "x": None},
                total=len(drawn),
            )
        solution = bpm.NoiseAwareMAP().fit(release)
        seconds = time.process_time() - begin
        found: dict[str, Any] = {"suppressed": suppressed, "seconds": seconds}
        found["counts"] = []
        for scope, own in counts.items():
            frame = solution.interval(list(scope), of="records")
            frame = frame.assign(lower=np.floor(frame.lower), upper=np.ceil(frame.upper))
            found["counts"].append(held(frame, own.ravel()))
        found["rates"] = []
        for name, given in RATES:
            joint = table(records, (*given, name), shares)
            truth = joint / joint.sum(axis=-1, keepdims=True)
            found["rates"].append(held(solution.interval([name], given=given), truth.ravel()))
        found["odds ratios"] = []
        for a, b in RATIOS:
            p = table(records, (a, b), shares)
            n = table(drawn, (a, b), np.ones(len(drawn)))
            truth = (p[:-1, :-1] * p[1:, 1:] / (p[:-1, 1:] * p[1:, :-1])).ravel()
            least = np.minimum(
                np.minimum(n[:-1, :-1], n[1:, 1:]), np.minimum(n[:-1, 1:], n[1:, :-1])
            )
            own = held(analysis.odds_ratios(solution, a, b), truth)
            found["odds ratios"].append(own[least.ravel() > 0])
    return found


def rows(records: pd.DataFrame, areas: int) -> Iterator[list[object]]:
    """Yield the rows of the result."""
    for name, rule in rules().items():
        found = [figures(records, rule, FIRST_SEED + area) for area in range(areas)]
        row: list[object] = [name, areas]
        row += [f"{np.mean([own[key] for own in found]):.3f}" for key in ("suppressed", "seconds")]
        for key in ("counts", "rates", "odds ratios"):
            parts = [part for own in found for part in own[key]]
            row.append(f"{np.concatenate(parts).mean():.3f}")
        yield row


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--areas", type=int, default=20)
    given = arguments.parse_args()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["rule", "areas", "suppressed", "seconds", "counts", "rates", "odds_ratios"])
    for row in rows(adult(given.data), given.areas):
        writer.writerow(row)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
