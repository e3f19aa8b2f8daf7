"""Rounds over hundreds of columns beside independent columns: error, processor seconds, memory, and the forecast.

    OMP_NUM_THREADS=1 uv run python benchmarks/learning_rounds_wide.py {tree,blocks} COLUMNS [--tables 300]

Simulated records, add-or-remove-one neighbours, one population and one release of a seed. In "tree" each column keeps
a relabelled state of one of the thirty before it with a probability of .2 to .8; in "blocks" twenty columns at a time
depend on a hidden class of four. Errors are mean total variations between tables of the records and of the model,
exact: over random tables of two and of three columns, and over near ones (a column and one or two that it was drawn
from; columns of one block). Independent columns spend the whole budget on single columns.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Sequence
from functools import reduce

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.learning import LearnedPotentials
from bayesprivmrf.mechanisms import SelectMeasure

SEED, TABLES, BLOCK = 20_261_123, 300, 20


def drawn(
    kind: str, columns: int, states: int, records: int, rng: np.random.Generator
) -> tuple[np.ndarray, list[int]]:
    """Return records, and the column that each column was drawn from or the first of its block."""
    codes = np.empty((records, columns), dtype=np.uint8, order="F")
    above = [0] * columns
    for v in range(columns):
        if kind == "blocks":
            above[v] = v - v % BLOCK
            if above[v] == v:
                hidden = rng.integers(0, 4, records)
            shares = np.cumsum(rng.dirichlet(np.full(states, 0.8), 4), axis=1)
            codes[:, v] = np.minimum(
                (rng.random((records, 1)) > shares[hidden]).sum(axis=1), states - 1
            )
            continue
        codes[:, v] = rng.choice(states, records, p=rng.dirichlet(np.full(states, 3.0)))
        if v:
            above[v] = int(rng.integers(max(0, v - 30), v))
            is_kept = rng.random(records) < rng.uniform(0.2, 0.8)
            codes[is_kept, v] = rng.permutation(states)[codes[is_kept, above[v]]]
    return codes, above


def near(kind: str, above: list[int], size: int, rng: np.random.Generator) -> Scope:
    """Return a few columns that depend on each other."""
    v = int(rng.integers(BLOCK, len(above)))
    if kind == "blocks":
        return tuple(sorted((above[v] + rng.choice(BLOCK, size, replace=False)).tolist()))
    found = [v]
    while len(found) < size and found[-1]:
        found.append(above[found[-1]])
    return tuple(sorted(found))


def share(codes: np.ndarray, scope: Scope, states: int) -> np.ndarray:
    """Return a table of the records' shares."""
    flat = np.ravel_multi_index(
        tuple(codes[:, v].astype(int) for v in scope), [states] * len(scope)
    )
    return np.bincount(flat, minlength=states ** len(scope)).reshape([states] * len(scope)) / len(
        codes
    )


def main() -> None:
    """Make the release, and print a row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=["tree", "blocks"])
    parser.add_argument("columns", type=int)
    parser.add_argument("--states", type=int, default=10)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rho", type=float, default=1.0)
    parser.add_argument("--tables", type=int, default=TABLES)
    given = parser.parse_args()
    rng = np.random.default_rng(SEED)
    codes, above = drawn(given.kind, given.columns, given.states, given.records, rng)
    names = [f"v{v}" for v in range(given.columns)]
    data = pd.DataFrame(codes, columns=names)
    network = bpm.declare(states={name: range(given.states) for name in names})
    mechanism = SelectMeasure(rho=given.rho)
    forecast = mechanism.preview(network, total=given.records)
    wall = time.perf_counter()
    processor = time.process_time()
    learned = mechanism.release(network, data, rng=SEED)
    wall = time.perf_counter() - wall
    processor = time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    told = f"{forecast['seconds'].sum():.0f} s, {forecast['memory_bytes'].max() / 2**30:.1f} GiB"
    sizes = f"{given.columns} columns of {given.states}, n = {given.records:,}, rho = {given.rho:g}"
    print(f"{given.kind}, {sizes}: {learned.status}")
    print(
        f"wall {wall:.0f} s | processor {processor:.0f} s | peak {peak:.2f} GiB | forecast {told}",
        flush=True,
    )
    print(
        f"tables by round {learned.details['tables_by_round']}, cliques {len(learned.model.cliques)}",
        flush=True,
    )
    scopes = {
        f"{word} tables of {size}": [
            near(given.kind, above, size, rng)
            if word == "near"
            else tuple(sorted(rng.choice(given.columns, size, replace=False).tolist()))
            for _ in range(given.tables)
        ]
        for size in (2, 3)
        for word in ("random", "near")
    }
    deviation = np.sqrt(given.columns / (2 * given.rho))
    noisy = [
        np.maximum(
            given.records * share(codes, (v,), given.states)
            + rng.normal(0, deviation, given.states),
            0,
        )
        for v in range(given.columns)
    ]
    single = [each / each.sum() for each in noisy]
    for what, tables in scopes.items():
        print(
            f"{what}: rounds, independent columns: {errors(learned, codes, tables, single, names)}",
            flush=True,
        )


def errors(
    learned: LearnedPotentials,
    codes: np.ndarray,
    scopes: Sequence[Scope],
    single: Sequence[np.ndarray],
    names: Sequence[str],
) -> str:
    """Return mean total variations of the model and of independent columns."""
    found = []
    for scope in scopes:
        truth = share(codes, scope, len(single[0]))
        model = learned.solution.marginal([names[v] for v in scope]).values
        alone = reduce(np.multiply.outer, [single[v] for v in scope])
        found.append([0.5 * np.abs(each - truth).sum() for each in (model, alone)])
    return " / ".join(f"{value:.4f}" for value in np.mean(found, axis=0))


if __name__ == "__main__":
    main()
