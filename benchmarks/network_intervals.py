"""Coverage of intervals for peer influence on an Erdős-Rényi network, all from one simulated law.

Run: python benchmarks/network_intervals.py [--nodes 1000] [--epsilon 5] [--replications 500] [--workers 1]
The graph has p = n^(-1/3) and J = A / (n p); outcomes are simulated at each beta, released, and an interval is made
from the law of `EstimateLaw`. Besides the interval's coverage the tables have that of the parametric bootstrap.
Law and releases are cached under benchmarks/results/cache, so that an interrupted run goes on where it stopped:
delete the cache after a change to the mechanism. Writes Markdown to stdout.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import dataclasses
import time
from pathlib import Path

import numpy as np
from scipy import sparse

from bayesprivmrf.network import EstimateLaw, IsingNetwork, PerturbedEstimator
from bayesprivmrf.network.intervals import accepted_values, interval
from bayesprivmrf.network.perturbed_score import public_grid
from bayesprivmrf.privacy import PerturbationConstants, perturbation_constants

CACHE = Path(__file__).parent / "results" / "cache" / "network-intervals"
BETAS = (0.0, 0.5, 1.0, 1.5, 2.0)
BOUNDS = (0.0, 5.0)
GRAPH, LAW, TRUTH = 1, 2, 3  # seeds


def erdos_renyi(nodes: int) -> IsingNetwork:
    rng = np.random.default_rng(GRAPH)
    p = nodes ** (-1 / 3)
    upper = np.triu(rng.random((nodes, nodes)) < p, 1)
    adjacency = sparse.csr_array((upper + upper.T).astype(float))
    return IsingNetwork.from_graph(adjacency, "mean-degree", mean_degree=nodes * p)


def law_of(
    network: IsingNetwork, constants: PerturbationConstants, options: argparse.Namespace, slug: str
) -> EstimateLaw:
    """One table from parts of a few betas, each kept as soon as it is made."""
    grid = public_grid(network.coupling, BOUNDS, options.points)
    parts = [
        EstimateLaw.simulate(
            network,
            constants,
            BOUNDS,
            betas=betas,
            configurations=options.configurations,
            burn_in=200,
            rng=np.random.default_rng([LAW, place]),
            workers=options.workers,
            cache=CACHE / f"{slug}-{options.points}-{options.configurations}-{place}.npz",
        )
        for place, betas in enumerate(np.array_split(grid, options.points // 4))
    ]
    tables = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("estimates", "rhat")
    }
    return dataclasses.replace(parts[0], betas=grid, **tables)


def releases(
    network: IsingNetwork, constants: PerturbationConstants, beta: float, count: int, slug: str
) -> np.ndarray:
    """Estimates at a true beta, one noise for each of independent outcomes: shape (count,)."""
    path = CACHE / f"{slug}-{beta:g}-{count}.npy"
    if path.exists():
        return np.load(path)
    rng = np.random.default_rng([TRUTH, round(1000 * beta)])
    spins = network.sample(beta, count, rng, chains=count)
    noise = constants.noise.draw((count, 1), rng)
    estimator = PerturbedEstimator.of(network.coupling, constants, BOUNDS)
    found = np.array(
        [estimator.score(s).estimates(steps)[0] for s, steps in zip(spins, noise, strict=True)]
    )
    np.save(path, found)
    return found


def bootstrap(law: EstimateLaw, value: float, prob: float) -> tuple[float, float]:
    """The parametric bootstrap's interval 2t - q(t), held to the span.

    It takes the law to be the same at t as at beta. That fails at the transition and near the ends, so the library
    does not offer it.
    """
    low = float(law.betas[0])
    high = float(law.betas[-1])
    row = law.estimates_at(min(max(value, low), high))
    cut = int((1 - prob) / 2 * row.size * (1 + 1e-12))
    ends = 2 * value - row[[-1 - cut, cut]]
    return tuple(np.clip(ends, low, high).tolist())


def main(options: argparse.Namespace) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    network = erdos_renyi(options.nodes)
    constants = perturbation_constants(network.coupling, options.epsilon)
    slug = f"er{options.nodes}-{options.epsilon:g}"
    begin = time.perf_counter()
    law = law_of(network, constants, options, slug)
    seconds = time.perf_counter() - begin
    prob = options.prob
    _, upper = accepted_values(law, prob)
    print(
        f"{network}, epsilon {options.epsilon:g}, nominal {100 * prob:g} %, {options.replications} replications"
    )
    print(f"{law}; R-hat at most {law.rhat.max():.2f}; {seconds:.0f} s, 0 if from the cache")
    print(
        f"upper quantile falls by {max(0.0, float((np.maximum.accumulate(upper) - upper).max())):.2f} at most\n"
    )
    print("| beta | inversion | mean width | empty | bootstrap | worst z of inversion |")
    print("|---|---|---|---|---|---|")
    error = (prob * (1 - prob) / options.replications) ** 0.5
    for beta in BETAS:
        values = releases(network, constants, beta, options.replications, slug)
        inverted = [interval(law, float(value), prob) for value in values]
        bootstrapped = [bootstrap(law, float(value), prob) for value in values]
        held = [
            np.mean([beta in each for each in inverted]),
            np.mean([low <= beta <= high for low, high in bootstrapped]),
        ]
        width = np.nanmean([each.upper - each.lower for each in inverted])
        empty = sum(each.is_empty for each in inverted)
        print(
            f"| {beta:g} | {held[0]:.3f} | {width:.3f} | {empty} | {held[1]:.3f} "
            f"| {(held[0] - prob) / error:+.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--replications", type=int, default=500)
    parser.add_argument("--prob", type=float, default=0.9)
    parser.add_argument("--points", type=int, default=80)
    parser.add_argument("--configurations", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    main(parser.parse_args())
