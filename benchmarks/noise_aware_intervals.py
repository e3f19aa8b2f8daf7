"""Coverage of the quick intervals of `NoiseAwareMAP`.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/noise_aware_intervals.py --jobs 2

A 3 x 3 grid and a chain of six three-state variables, potentials N(0, .3) and N(0, 1) on every edge, N records,
discrete Laplace noise of scale m / epsilon on m tables, N private. Every release is of a population of its own;
coverage of the 90 % intervals over all cells of all tables, with its standard error over releases.
"""

from __future__ import annotations

import argparse
import os
from itertools import product
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import numpy as np
from models import chain, grid

from bayesprivmrf.inference import NoiseAwareMAP
from bayesprivmrf.marginals import marginal_engine, sample
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import DiscreteLaplace
from bayesprivmrf.release import NoisyStatistics

GRAPHS = {"grid": grid(3, 3), "chain": chain(6, 3)}
RECORDS, EPSILONS, SPREADS = (1_000, 10_000), (0.1, 1.0), (0.3, 1.0)
REPLICATIONS = 60
SEED = 4_242


def covered(graph: str, records: int, epsilon: float, spread: float, index: int) -> float:
    """Share of one release's cells whose interval holds the true probability."""
    states, scopes = GRAPHS[graph]
    domain = Domain(variables=tuple(range(len(states))), states=tuple(tuple(range(k)) for k in states))
    model = ModelSpecification(domain=domain, cliques=scopes)
    rng = np.random.default_rng([SEED, records, int(10 * epsilon), index])
    potentials = spread * rng.normal(size=model.size)
    truth = marginal_engine(states, scopes).marginals(potentials)[1]
    people = sample(states, scopes, potentials, records, rng)
    counts = np.concatenate(
        [np.bincount(states[j] * people[:, i] + people[:, j], minlength=9) for i, j in scopes]
    )
    scale = len(scopes) / epsilon
    stop = 1 - np.exp(-1 / scale)
    noisy = counts + rng.geometric(stop, counts.size) - rng.geometric(stop, counts.size)
    release = NoisyStatistics.from_tables(model, dict(model.tables(noisy)), noise=DiscreteLaplace(scale))
    solution = NoiseAwareMAP().fit(release)
    intervals = [solution.interval(list(clique), prob=0.9) for clique in model.cliques]
    lower, upper = (np.concatenate([frame[end] for frame in intervals]) for end in ("lower", "upper"))
    return float(np.mean((lower <= truth) & (truth <= upper)))


def main() -> None:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description="Coverage of the quick intervals of NoiseAwareMAP.")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--replications", type=int, default=REPLICATIONS)
    arguments = parser.parse_args()
    print("| N, ε | " + " | ".join(f"{graph}, N(0, {s:g})" for graph, s in product(GRAPHS, SPREADS)) + " |")
    print("|---" * (1 + len(GRAPHS) * len(SPREADS)) + "|")
    for records, epsilon in product(RECORDS, EPSILONS):
        cells = []
        for graph, spread in product(GRAPHS, SPREADS):
            shares: Any = joblib.Parallel(n_jobs=arguments.jobs)(
                joblib.delayed(covered)(graph, records, epsilon, spread, index)
                for index in range(arguments.replications)
            )
            cells.append(f"{np.mean(shares):.3f} ± {np.std(shares, ddof=1) / len(shares) ** 0.5:.3f}")
        print(f"| {records:,}, {epsilon:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
