"""Tables of models that `SelectMeasure` learns without a degree, beside one choice of pairs and independent columns.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/learning_rounds.py FOLDER [--quick]

FOLDER holds nltcs/nltcs.csv and adult/adult.csv of codes, each with its -domain.json of numbers of states (the data
of McKenna, Miklau and Sheldon's repository). Add-or-remove-one neighbours, budget rho, fresh seeds. Error: the mean
total variation, over all 3-way and all 2-way tables, between the records and the model; exact for rounds and for
independent columns, with ten times N records drawn for one choice of pairs. Writes
benchmarks/results/learning-rounds.csv.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from learning_models import RESULTS

import bayesprivmrf as bpm
from bayesprivmrf.mechanisms import SelectMeasure
from bayesprivmrf.mechanisms.reading.coded import CodedRecords
from bayesprivmrf.noise import SimulatedNoise

RHOS, SEEDS = (0.01, 0.1, 1.0), (1, 2)
DEGREES = {"nltcs": 15, "adult": 2}

type Row = dict[str, object]
type Tables = Callable[[tuple[int, ...]], np.ndarray]


def read(folder: Path, name: str) -> tuple[np.ndarray, tuple[int, ...]]:
    if name == "msnbc":
        counted = pd.read_csv(folder / name / "msnbc17_binary_counts.csv").to_numpy()
        return np.repeat(counted[:, :-1], counted[:, -1], axis=0), (2,) * (counted.shape[1] - 1)
    domain = json.loads((folder / name / f"{name}-domain.json").read_text())
    frame = pd.read_csv(folder / name / f"{name}.csv")
    return frame[list(domain)].to_numpy(), tuple(domain.values())


def shares(codes: np.ndarray, scope: tuple[int, ...], cards: tuple[int, ...]) -> np.ndarray:
    shape = [cards[v] for v in scope]
    flat = np.ravel_multi_index(tuple(codes[:, v] for v in scope), shape)
    return np.bincount(flat, minlength=math.prod(shape)).reshape(shape) / len(codes)


def errors(codes: np.ndarray, cards: tuple[int, ...], table_of: Tables) -> Row:
    """Mean total variation over all 3-way and all 2-way tables."""
    found: Row = {}
    for order in (3, 2):
        off = [
            0.5 * np.abs(shares(codes, scope, cards) - table_of(scope)).sum()
            for scope in itertools.combinations(range(len(cards)), order)
        ]
        found[f"{order}-way"] = float(np.mean(off))
    return found


def by_rounds(codes: np.ndarray, cards: tuple[int, ...], rho: float, seed: int) -> Row:
    """What a release runs, with the model of merged states at hand, whose tables are quickly found."""
    network = bpm.declare(states={f"v{i}": range(k) for i, k in enumerate(cards)})
    plan = SelectMeasure(rho=rho)._prepare(network).map
    begin = time.perf_counter()
    records = CodedRecords.of(codes, np.ones(len(codes), dtype=np.int64))
    run = plan.run(records, SimulatedNoise(np.random.default_rng(seed)))
    seconds = time.perf_counter() - begin

    def table_of(scope: tuple[int, ...]) -> np.ndarray:
        (merged,) = run.fit.probabilities([scope])
        table = merged[np.ix_(*(run.merging.groups[v] for v in scope))]
        for axis, v in enumerate(scope):
            table = table * run.merging.shares[v].reshape(
                [-1 if a == axis else 1 for a in range(len(scope))]
            )
        return table

    found = errors(codes, cards, table_of)
    return found | {
        "seconds": seconds,
        "status": run.fit.status.value,
        "tables": len(run.drawn.measured),
        "by round": " ".join(map(str, run.drawn.by_round)),
    }


def by_degree(codes: np.ndarray, cards: tuple[int, ...], rho: float, seed: int, degree: int) -> Row:
    names = [f"v{i}" for i in range(len(cards))]
    network = bpm.declare(
        states={name: list(range(k)) for name, k in zip(names, cards, strict=True)}
    )
    begin = time.perf_counter()
    learned = SelectMeasure(rho=rho, degree=degree).release(
        network, pd.DataFrame(codes, columns=names), rng=seed
    )
    seconds = time.perf_counter() - begin
    drawn = learned.sample(min(10 * len(codes), 2_000_000), rng=seed)[names].to_numpy()
    found = errors(codes, cards, lambda scope: shares(drawn, scope, cards))
    return found | {"seconds": seconds, "status": learned.status.value}


def independent_tables(codes: np.ndarray, cards: tuple[int, ...], rho: float, seed: int) -> Tables:
    """All of the budget on single variables, no couplings."""
    rng = np.random.default_rng(seed)
    sigma = math.sqrt(len(cards) / (2 * rho))
    singles = []
    for v, k in enumerate(cards):
        noisy = np.maximum(np.bincount(codes[:, v], minlength=k) + rng.normal(0, sigma, k), 0)
        singles.append(noisy / noisy.sum())

    def table_of(scope: tuple[int, ...]) -> np.ndarray:
        table = np.ones(())
        for v in scope:
            table = np.multiply.outer(table, singles[v])
        return table

    return table_of


def independent(codes: np.ndarray, cards: tuple[int, ...], rho: float, seed: int) -> Row:
    table_of = independent_tables(codes, cards, rho, seed)
    return errors(codes, cards, table_of) | {"seconds": 0.0, "status": "converged"}


def main() -> None:
    """Run the cells and print their table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true", help="one seed, rho of .1, rounds alone")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: list[Row] = []
    for name, rho, seed in itertools.product(
        DEGREES, (0.1,) if options.quick else RHOS, SEEDS[: 1 if options.quick else None]
    ):
        codes, cards = read(options.folder, name)
        methods: dict[str, Callable[..., Row]] = {"rounds": by_rounds}
        if not options.quick:
            methods["independent"] = independent
            if seed == SEEDS[0]:
                methods[f"degree {DEGREES[name]}"] = partial(by_degree, degree=DEGREES[name])
        for method, run in methods.items():
            rows.append(
                {"data": name, "rho": rho, "seed": seed, "method": method}
                | run(codes, cards, rho, seed)
            )
            print(rows[-1], flush=True)
    frame = pd.DataFrame(rows)
    if not options.quick:
        frame.to_csv(RESULTS / "learning-rounds.csv", index=False, float_format="%.4g")
    numbers = ["3-way", "2-way", "seconds"]
    print(frame.groupby(["data", "rho", "method"], sort=False)[numbers].mean().round(4))


if __name__ == "__main__":
    main()
