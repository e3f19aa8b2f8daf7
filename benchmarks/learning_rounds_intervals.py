"""How often intervals of a model that `SelectMeasure` learned in rounds hold the truth, by what was measured.

    OMP_NUM_THREADS=1 uv run python benchmarks/learning_rounds_intervals.py FOLDER [--quick]

FOLDER is that of benchmarks/learning_rounds.py. Truths: shares of NLTCS, Adult and MSNBC's indicators, from which
records are drawn with replacement, as many as there are, at most 50,000; and three simulated populations of 200,000,
in which each variable is drawn given up to four before it: ten of three states, densely coupled, fourteen of 2 to
8 states with few couplings, and twelve, some of twenty states, most of them rare. Add-or-remove-one neighbours,
fresh seeds. Counted are cells, whose truth is above .001, of all or 150 random tables of two and of three variables
that have at most 20,000 cells; the others' intervals mostly begin at 0. Rows that are marked doubtful, those of
merged states, are told apart. Writes benchmarks/results/learning-rounds-intervals.csv.

With --merged: a column of 100 states, a few of them with 60 or 150 records each and the others with none, which are
merged where noise is large, beside one of two states; how often intervals of 40 releases hold states with records.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import time
import warnings
from pathlib import Path
from typing import Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from learning_models import RESULTS
from learning_rounds import read, shares

import bayesprivmrf as bpm
from bayesprivmrf.mechanisms import SelectMeasure

RHOS, SEEDS = (0.01, 0.1, 1.0), (11, 12)
SIMULATED = {  # numbers of states, share of couplings, how much rarer the later states are
    "dense": ([3] * 10, 0.6, 0.0),
    "sparse": ([2, 3, 5, 8] * 3 + [2, 3], 0.2, 0.0),
    "rare": ([2, 2, 4, 20] * 3, 0.25, 2.5),
}
REAL = ("nltcs", "adult", "msnbc")
MOST, TABLES, LEAST, LARGEST = 50_000, 150, 1e-3, 20_000


def population(folder: Path, name: str, seed: int) -> tuple[np.ndarray, tuple[int, ...]]:
    if name in REAL:
        return read(folder, name)
    states, density, rarity = SIMULATED[name]
    rng = np.random.default_rng([seed, len(states)])
    codes = np.zeros((200_000, len(states)), dtype=int)
    for v, k in enumerate(states):
        parents = [u for u in range(v) if rng.random() < density][:4]
        logits = rng.normal(0, 0.7, k) - rarity * (np.arange(k) > 0)
        logits = logits + sum(
            (rng.normal(0, 0.5, (states[u], k))[codes[:, u]] for u in parents), start=0.0
        )
        codes[:, v] = (logits + rng.gumbel(size=(len(codes), k))).argmax(axis=1)
    return codes, tuple(states)


def cell(folder: Path, name: str, rho: float, seed: int) -> list[dict[str, object]]:
    codes, cards = population(folder, name, seed)
    rng = np.random.default_rng(seed)
    drawn = codes[rng.integers(0, len(codes), min(len(codes), MOST))]
    variables = [f"v{i}" for i in range(len(cards))]
    network = bpm.declare(states={v: list(range(k)) for v, k in zip(variables, cards, strict=True)})
    learned = SelectMeasure(rho=rho).release(
        network, pd.DataFrame(drawn, columns=variables), rng=seed
    )
    rows: list[dict[str, object]] = []
    for order in (2, 3):
        scopes = [
            scope
            for scope in itertools.combinations(range(len(cards)), order)
            if math.prod(cards[v] for v in scope) <= LARGEST
        ]
        for place in rng.permutation(len(scopes))[:TABLES]:
            scope = scopes[place]
            for of, source in (("population", codes), ("records", drawn)):
                begin = time.perf_counter()
                frame = learned.solution.interval([variables[v] for v in scope], of=of)
                seconds = time.perf_counter() - begin
                truth = shares(source, scope, cards).ravel()
                if of == "records":
                    frame[["lower", "upper"]] /= len(drawn)
                held = (frame["lower"] <= truth) & (truth <= frame["upper"])
                common = truth > LEAST
                doubtful = frame["note"].str.contains("merged").to_numpy()
                rows.append(
                    {
                        "data": name, "rho": rho, "seed": seed, "order": order, "of": of,
                        "measured": not frame["note"].str.contains("not measured").any(),
                        "held": int(held[common].sum()), "cells": int(common.sum()),
                        "held, all": int(held.sum()), "all": len(truth),
                        "held, doubtful": int(held[common & doubtful].sum()),
                        "doubtful": int((common & doubtful).sum()),
                        "width": float((frame["upper"] - frame["lower"])[common].sum()), "seconds": seconds,
                    }
                )  # fmt: skip
    return rows


def merged(
    rho: float, occupied: int, records: int, of: Literal["population", "records"]
) -> tuple[float, float, float]:
    """Return the coverage of occupied rare states, of the empty ones, and the half-width in records."""
    codes = np.repeat(np.arange(occupied + 1), [50_000 - occupied * records, *[records] * occupied])
    truth = np.bincount(codes, minlength=100) / codes.size
    data = pd.DataFrame({"gain": codes, "sex": np.arange(codes.size) % 2})
    network = bpm.declare(states={"gain": list(range(100)), "sex": [0, 1]})
    held = []
    widths = []
    for seed in range(100, 140):
        frame = (
            SelectMeasure(rho=rho).release(network, data, rng=seed).solution.interval("gain", of=of)
        )
        if of == "records":
            frame[["lower", "upper"]] /= codes.size
        held.append((frame["lower"] <= truth) & (truth <= frame["upper"]))
        widths.append((frame["upper"] - frame["lower"]) / 2 * codes.size)
    rare = np.mean(held, axis=0)[1:]
    return (
        rare[:occupied].mean(),
        rare[occupied:].mean(),
        float(np.mean(widths, axis=0)[1 : occupied + 1].mean()),
    )


def main() -> None:
    """Run the cells and print their table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path())
    parser.add_argument(
        "--quick", action="store_true", help="simulated populations, rho of .1, one seed"
    )
    parser.add_argument("--only", nargs="+", help="names of the data, in place of all")
    parser.add_argument("--merged", action="store_true", help="rare states that were merged, alone")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.merged:
        for rho, (occupied, records) in itertools.product((0.1, 0.03, 0.01), ((20, 60), (5, 150))):
            for of in ("records", "population"):
                rare, empty, width = merged(rho, occupied, records, of)
                print(
                    f"{rho:g} {occupied} of {records}, {of}: {rare:.3f} {empty:.3f} {width:.0f}",
                    flush=True,
                )
        return
    names = options.only or (tuple(SIMULATED) if options.quick else (*SIMULATED, *REAL))
    rows = []
    for name, rho, seed in itertools.product(
        names, (0.1,) if options.quick else RHOS, SEEDS[: 1 if options.quick else None]
    ):
        rows += cell(options.folder, name, rho, seed)
        print(name, rho, seed, flush=True)
    frame = pd.DataFrame(rows)
    keys = ["of", "order", "measured", "data", "rho"]
    numbers = ["held", "cells", "held, all", "all", "held, doubtful", "doubtful", "width"]
    sums = frame.groupby(keys)[numbers].sum().reset_index()
    if not options.quick and not options.only:
        sums.to_csv(RESULTS / "learning-rounds-intervals.csv", index=False, float_format="%.6g")
    for group in (keys, keys[:4], keys[:3]):
        table = sums.groupby(group)[numbers].sum()
        table["coverage"] = table["held"] / table["cells"]
        table["coverage, all"] = table["held, all"] / table["all"]
        table["not doubtful"] = (table["held"] - table["held, doubtful"]) / (
            table["cells"] - table["doubtful"]
        )
        table["doubtful"] = table["held, doubtful"] / table["doubtful"]
        table["mean width"] = table["width"] / table["cells"]
        shown = ["coverage", "coverage, all", "not doubtful", "doubtful", "mean width", "cells"]
        print(table[shown].round(4).to_string())
    print("seconds a table", frame["seconds"].median(), frame["seconds"].max())


if __name__ == "__main__":
    main()
