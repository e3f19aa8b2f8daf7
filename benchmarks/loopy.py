"""Loopy against exact marginals inside the estimators, as the CGM paper's Figure 2 had them.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/loopy.py

Populations, sizes and noise of benchmarks/quality.py (first noise draw), epsilon 1. Every fit is scored by the
exact divergence of its network from the truth. Prints a table of medians over populations.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time

import numpy as np
import pandas as pd
from quality import GRAPHS, POPULATIONS, SEED, Truth
from rich.progress import track

from bayesprivmrf.inference import CGM, NaiveMLE
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.privacy import DiscreteLaplace
from bayesprivmrf.release import NoisyStatistics

METHODS = {
    "naive, exact": NaiveMLE(),
    "naive, loopy": NaiveMLE(inference="loopy"),
    "CGM, exact": CGM(),
    "CGM, loopy": CGM(inference="loopy"),
}


def main() -> None:
    """Fit, score, print."""
    rows = []
    cells = [
        (g, p, n) for g in GRAPHS for p in range(POPULATIONS) for n in (1_000, 10_000, 100_000)
    ]
    for graph, population, records in track(cells, description="fits"):
        truth = Truth(graph, population)
        model = truth.model
        counts = truth.counts(
            records, np.random.default_rng([SEED, GRAPHS.index(graph), population, records])
        )
        rng = np.random.default_rng([SEED, GRAPHS.index(graph), population, records, 1_000, 0])
        scale = float(len(model.cliques))
        stop = 1 - np.exp(-1 / scale)
        noisy = counts + rng.geometric(stop, counts.size) - rng.geometric(stop, counts.size)
        release = NoisyStatistics.from_tables(
            model, dict(model.tables(noisy)), noise=DiscreteLaplace(scale)
        )
        engine = marginal_engine(model.cardinalities, model.scopes)
        for name, estimator in METHODS.items():
            begin = time.perf_counter()
            solution = estimator.fit(release)
            seconds = time.perf_counter() - begin
            divergence = truth.divergence(
                solution.potentials.flat, engine.log_partition(solution.potentials.flat)
            )
            rows.append(
                {
                    "graph": graph,
                    "N": f"{records:,}",
                    "method": name,
                    "KL": divergence,
                    "seconds": seconds,
                    "status": solution.status.value,
                }
            )
    frame = pd.DataFrame(rows)
    table = (
        frame.groupby(["graph", "N", "method"], sort=False)[["KL", "seconds"]]
        .median()
        .unstack("method")
    )
    print(table.map(lambda value: f"{value:.3g}").to_string())
    print(frame.groupby(["method", "status"]).size().to_string())


if __name__ == "__main__":
    main()
