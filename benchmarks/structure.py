"""Records that `StableStructure` needs to release the tree of a chain, and its time on a thousand variables.

    OMP_NUM_THREADS=1 uv run python benchmarks/structure.py

Chains of p variables of k states: each equals the one before it with probability `stay`, else it is uniform.
Epsilon 1, delta 1e-6, add-or-remove-one, ten releases a cell. Counted: the right tree, a wrong one, a refusal.
"""

from __future__ import annotations

import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf.mechanisms import StableStructure

CELLS = [(16, 2), (64, 2), (256, 2), (16, 5)]
STAY, RUNS = 0.5, 10


def chain(p: int, k: int, size: int, rng: np.random.Generator) -> pd.DataFrame:
    columns = [rng.integers(0, k, size)]
    for _ in range(p - 1):
        columns.append(np.where(rng.random(size) < STAY, columns[-1], rng.integers(0, k, size)))
    return pd.DataFrame(np.column_stack(columns), columns=[f"v{i}" for i in range(p)])


def main() -> None:
    """Run the cells and print their table."""
    mechanism = StableStructure(epsilon=1.0, delta=1e-6)
    rows = []
    for p, k in CELLS:
        variables = bpm.declare(states={f"v{i}": list(range(k)) for i in range(p)})
        right = {(f"v{i}", f"v{i + 1}") for i in range(p - 1)}
        for size in (500, 1_000, 2_000, 4_000):
            rng = np.random.default_rng([p, k, size])
            found = [mechanism.release(variables, chain(p, k, size, rng), rng=seed) for seed in range(RUNS)]
            refused = sum(graph.is_refusal for graph in found)
            good = sum(not graph.is_refusal and set(graph.edges) == right for graph in found)
            rows.append(
                {"p": p, "k": k, "n": size, "right": good, "wrong": RUNS - good - refused, "refused": refused}
            )
    print(pd.DataFrame(rows).to_string(index=False))
    variables = bpm.declare(states={f"v{i}": [0, 1] for i in range(1_000)})
    data = chain(1_000, 2, 10_000, np.random.default_rng(1))
    begin = time.perf_counter()
    graph = mechanism.release(variables, data, rng=1)
    print(f"p = 1,000, n = 10,000: {time.perf_counter() - begin:.1f} s, refused: {graph.is_refusal}")


if __name__ == "__main__":
    main()
