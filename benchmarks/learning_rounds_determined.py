"""Errors and interval coverage of `SelectMeasure(rho)` for nearly deterministic columns.

    OMP_NUM_THREADS=1 uv run python benchmarks/learning_rounds_determined.py \\
        [--seeds 8] [--first 0] [--rho 0.1 1] [--mode]

Five populations, from which 1,500 records are drawn; add-or-remove-one neighbors, fresh seeds:

- `all missing`: eight questions with the answers no and yes, which depend on one trait; 4 % lack all answers;
- `missing`: the same, and each single answer is missing in 1 % of the others;
- `skipped`: two gates, each with three questions that are asked of those only who said yes, and three more questions;
- `copies`: ten columns of two states, among them exact copies, and copies with 0.2, 1 and 3 % flipped;
- `zeros`: age, marriage, work, pension, children, license, car and illness, with the zeros that they have by nature.

The results are for the cells of measured pairs, in quarters by their true size; `population` is a draw of 400,000.
With --mode `NoiseAwareMAP` is fitted to the same released tables for comparison. For pairs that were not measured the
script reports how often the bound on their total variation holds (promised at 90 %), its mean, and the truth. Writes
benchmarks/results/learning-rounds-determined.csv.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import time
import warnings
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from learning_models import RESULTS
from learning_rounds import shares

import bayesprivmrf as bpm
from bayesprivmrf.mechanisms import SelectMeasure

RECORDS, POPULATION = 1_500, 400_000

type Records = tuple[np.ndarray, tuple[int, ...]]


def logistic(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def all_missing(n: int, rng: np.random.Generator) -> Records:
    trait = np.linspace(0.4, 1.2, 8) * rng.normal(size=n)[:, None]
    codes = (rng.random((n, 8)) < logistic(np.linspace(-1, 0.6, 8) + trait)).astype(int)
    codes[rng.random(n) < 0.04] = 2
    return codes, (3,) * 8


def missing(n: int, rng: np.random.Generator) -> Records:
    codes, cards = all_missing(n, rng)
    codes[rng.random(codes.shape) < 0.01] = 2
    return codes, cards


def skipped(n: int, rng: np.random.Generator) -> Records:
    trait = rng.normal(size=n)
    columns = []
    cards = []
    for _ in range(2):
        gate = (rng.random(n) < logistic(0.8 * trait - 0.5)).astype(int)
        columns.append(gate)
        cards.append(2)
        for k in (3, 4, 3):  # the last state: not asked
            score = np.floor(1.2 * (0.5 * trait + rng.normal(size=n)) + (k - 1) / 2)
            columns.append(np.where(gate == 1, np.clip(score, 0, k - 2), k - 1).astype(int))
            cards.append(k)
    for _ in range(3):
        columns.append((rng.random(n) < logistic(0.6 * trait)).astype(int))
        cards.append(2)
    return np.column_stack(columns), tuple(cards)


def copies(n: int, rng: np.random.Generator) -> Records:
    trait = rng.normal(size=n)
    first = (
        rng.random((n, 3)) < logistic(np.array([-1.5, -0.5, 0.5]) + 0.7 * trait[:, None])
    ).astype(int)
    flipped = np.where(rng.random((n, 3)) < [0.002, 0.01, 0.03], 1 - first, first)
    own = np.column_stack([rng.random(n) < 0.3, rng.random(n) < logistic(trait)]).astype(int)
    return np.column_stack([first, first[:, :2], flipped, own]), (2,) * 10


def zeros(n: int, rng: np.random.Generator) -> Records:
    age = rng.integers(0, 4, n)
    u = rng.random((n, 7))
    is_child = age == 0
    married = np.where(is_child, 0, np.digitize(u[:, 0], [0.3, 0.85]))
    retired = np.where(u[:, 1] < 0.85, 3, 1)
    work = np.where(is_child, 0, np.where(age == 3, retired, np.where(u[:, 1] < 0.7, 1, 2)))
    pension = np.where(work == 3, 1, (u[:, 2] < 0.02) & (age == 2))
    children = np.where(
        is_child, 0, np.where(u[:, 3] < 0.3 + 0.3 * (married == 0), 0, 1 + (u[:, 3] > 0.8))
    )
    license_ = np.where(is_child, 0, u[:, 4] < 0.8)
    car = np.where(license_ == 0, 0, u[:, 5] < 0.7)
    ill = u[:, 6] < 0.1 + 0.1 * age
    codes = np.column_stack([age, married, work, pension, children, license_, car, ill]).astype(int)
    return codes, (4, 3, 4, 2, 3, 2, 2, 2)


MADE: dict[str, Callable[[int, np.random.Generator], Records]] = {
    "all missing": all_missing,
    "missing": missing,
    "skipped": skipped,
    "copies": copies,
    "zeros": zeros,
}


def cell(
    name: str, rho: float, seed: int, has_mode: bool
) -> tuple[pd.DataFrame, dict[str, object]]:
    """Rows of cells of pairs, and the errors of one release."""
    (codes, cards) = MADE[name](RECORDS, np.random.default_rng([seed, 17]))
    population = TRUTHS[name]
    names = [f"v{i}" for i in range(len(cards))]
    network = bpm.declare(states={v: list(range(k)) for v, k in zip(names, cards, strict=True)})
    begin = time.process_time()
    learned = SelectMeasure(rho=rho).release(network, pd.DataFrame(codes, columns=names), rng=seed)
    told = {"data": name, "rho": rho, "seed": seed, "seconds": time.process_time() - begin}
    measured = [
        {names.index(v) for v in each.query.scope} for each in learned.statistics.measurements
    ]
    solutions = {"rounds": learned.solution}
    if has_mode:
        solutions["mode"] = bpm.NoiseAwareMAP().fit(learned.statistics)
    for method, order in itertools.product(solutions, (2, 3)):
        told[f"{method}, {order}-way"] = np.mean(
            [
                0.5
                * np.abs(
                    shares(codes, s, cards)
                    - solutions[method].marginal([names[v] for v in s]).values
                ).sum()
                for s in itertools.combinations(range(len(cards)), order)
            ]
        )
    rows = []
    for pair in itertools.combinations(range(len(cards)), 2):
        asked = [names[v] for v in pair]
        is_measured = any(set(pair) <= scope for scope in measured)
        for method, (of, source) in itertools.product(
            solutions, (("records", codes), ("population", population))
        ):
            frame = solutions[method].interval(asked, of=of)
            limits = frame[["estimate", "lower", "upper"]].to_numpy(dtype=float).copy()
            if limits[:, 0].sum() > 2:
                limits /= limits[:, 0].sum()
            truth = shares(source, pair, cards).ravel()
            if "note" in frame:
                notes = " ".join(frame["note"])
            else:
                notes = ""
            bound = re.search(r"variation at most (\S+\d)", notes)
            rows.append(
                pd.DataFrame(
                    {
                        "data": name, "rho": rho, "seed": seed, "method": method, "of": of,
                        "measured": is_measured, "pair": "-".join(asked), "truth": truth,
                        "held": (limits[:, 1] - 1e-9 <= truth) & (truth <= limits[:, 2] + 1e-9),
                        "width": limits[:, 2] - limits[:, 1],
                        "off": 0.5 * np.abs(truth - limits[:, 0]).sum(),
                        "bound": float(bound.group(1)) if bound else np.nan,
                    }
                )
            )  # fmt: skip
    return pd.concat(rows), told


TRUTHS: dict[str, np.ndarray] = {}


def main() -> None:
    """Run the cells and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--rho", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--only", nargs="+", default=list(MADE))
    parser.add_argument(
        "--mode", action="store_true", help="compare with NoiseAwareMAP on the same tables"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    errors = []
    for name in options.only:
        TRUTHS[name] = MADE[name](POPULATION, np.random.default_rng(99))[0]
        for rho, seed in itertools.product(
            options.rho, range(options.first, options.first + options.seeds)
        ):
            cells, told = cell(name, rho, seed, options.mode)
            found.append(cells)
            errors.append(told)
            print(name, rho, seed, flush=True)
    cells = pd.concat(found)
    told = pd.DataFrame(errors)
    print(
        told.drop(columns="seed").groupby(["data", "rho"], sort=False).mean().round(4).to_string()
    )
    known = cells[cells["measured"]].copy()
    keys = ["data", "rho", "of", "method"]
    known["quarter"] = known.groupby(keys)["truth"].transform(
        lambda truth: pd.qcut(truth.rank(method="first"), 4, labels=False) + 1
    )
    held = known.pivot_table(index=keys, columns="quarter", values="held", sort=False)
    held["all"], held["width"] = (
        known.groupby(keys)["held"].mean(),
        known.groupby(keys)["width"].mean(),
    )
    print(held.round(4).to_string())
    held.join(told.groupby(["data", "rho"]).mean(), on=["data", "rho"]).to_csv(
        RESULTS / "learning-rounds-determined.csv", float_format="%.4g"
    )
    apart = cells[~cells["measured"] & (cells["of"] == "records") & (cells["method"] == "rounds")]
    if len(apart):
        tables = apart.groupby(["data", "rho", "seed", "pair"]).agg(
            off=("off", "first"), bound=("bound", "first"), held=("held", "mean")
        )
        tables["is held"] = (tables["off"] <= tables["bound"]).where(tables["bound"].notna())
        print(
            tables.groupby(["data", "rho"])[["off", "bound", "is held", "held"]]
            .agg(["mean", "count"])
            .round(4)
        )


if __name__ == "__main__":
    main()
