"""Time and outcome of declarations that are large: many states, long chains, many columns, a network's interval.

    OMP_NUM_THREADS=1 python benchmarks/large_declarations.py [name ...]

Prints a row for each case: CPU seconds of this process, the status, and what the forecast said where there is one.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
import warnings

import networkx as nx
import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf.mechanisms import LaplaceStatistics, ObjectivePerturbation, SelectMeasure
from bayesprivmrf.noise import DiscreteLaplace


def table(rows=1000, columns=2):
    rng = np.random.default_rng(1)
    network = bpm.declare({"a": range(rows), "b": range(columns)}, [("a", "b")])
    counts = rng.multinomial(50 * rows * columns, rng.dirichlet(np.full(rows * columns, 0.5)))
    noisy = counts + np.rint(rng.laplace(0, 2, rows * columns))
    return bpm.NoisyStatistics.from_tables(
        network, {("a", "b"): noisy.reshape(rows, columns)}, noise=DiscreteLaplace(2.0)
    )


def panel(states=16, length=20, people=3000):
    rng = np.random.default_rng(0)
    network = bpm.markov_chain(range(states), length, share="transitions")
    matrix = rng.dirichlet(np.full(states, 0.7), size=states).cumsum(axis=1)
    steps = [rng.integers(0, states, people)]
    for _ in range(length - 1):
        steps.append(
            (rng.random(people)[:, None] > matrix[steps[-1]]).sum(axis=1).clip(max=states - 1)
        )
    names = bpm.ModelSpecification.from_pgmpy(network).domain.variables
    data = pd.DataFrame(dict(zip(names, steps, strict=True)))
    return LaplaceStatistics(epsilon=20.0).release(network, data, rng=1)


def columns(number):
    rng = np.random.default_rng(2)
    hidden = rng.normal(size=(5000, 5))
    loads = rng.normal(size=(5, number))
    data = pd.DataFrame((hidden @ loads + rng.normal(size=(5000, number)) > 0).astype(int))
    data.columns = [f"c{i}" for i in range(number)]
    return bpm.declare({name: [0, 1] for name in data.columns}), data


def learned(number):
    network, data = columns(number)
    release = SelectMeasure(rho=0.1).release(network, data, rng=1)
    truth = data.to_numpy()
    far = []
    rng = np.random.default_rng(3)
    for _ in range(200):
        i, j = rng.choice(number, 2, replace=False)
        own = np.histogram2d(truth[:, i], truth[:, j], bins=2)[0] / len(truth)
        found = release.solution.marginal([f"c{i}", f"c{j}"]).values
        far.append(0.5 * np.abs(found - own).sum())
    return f"{release.details['status']}, mean total variation of pairs {np.mean(far):.4f}"


def network_interval():
    graph = nx.random_regular_graph(3, 200, seed=1)
    ising = bpm.network.IsingNetwork.from_graph(graph, coupling="mean-degree")
    outcomes = ising.sample(beta=0.5, rng=1)[0]
    estimate = ObjectivePerturbation(epsilon=2.0).release(ising, outcomes, rng=1)
    frame = estimate.interval(prob=0.9, rng=1)
    return f"{frame['lower'].iloc[0]:.2f} to {frame['upper'].iloc[0]:.2f}"


CASES = {
    "NoiseAwareMAP, 1,000 x 2": lambda: bpm.NoiseAwareMAP().fit(table()).status,
    "LatentCounts, 1,000 x 2": lambda: bpm.LatentCounts().fit(table(), rng=1).status,
    "NoiseAwareMAP, chain of 16 states and 10 steps": lambda: (
        bpm.NoiseAwareMAP().fit(panel(length=10)).status
    ),
    "NoiseAwareMAP, chain of 16 states and 20 steps": lambda: (
        bpm.NoiseAwareMAP().fit(panel()).status
    ),
    "SelectMeasure, 69 binary columns": lambda: learned(69),
    "SelectMeasure, 100 binary columns": lambda: learned(100),
    "interval of a network of 200 nodes": network_interval,
}


def main() -> None:
    warnings.simplefilter("ignore")
    asked = sys.argv[1:] or list(CASES)
    for name in [case for case in CASES if any(word in case for word in asked)]:
        begin = time.process_time()
        wall = time.perf_counter()
        outcome = CASES[name]()
        print(
            f"| {name} | {time.process_time() - begin:.1f} | {time.perf_counter() - wall:.1f} | {outcome} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
