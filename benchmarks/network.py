"""Speed of the network side: heat bath on Erdős-Rényi graphs, maximum pseudo-likelihood on a million nodes.

Run: python benchmarks/network.py [--nodes 1000000] [--edges 10000000]
Writes Markdown to stdout. One core: processor time of the one thread is reported beside the clock's, which other
work on the machine can only lengthen.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from bayesprivmrf.network import IsingNetwork

BURN_IN, SWEEPS = 300, 30


def timed(function: Callable[[], Any], repeats: int = 1) -> tuple[Any, float, float]:
    """Result, least seconds of processor time, least seconds by the clock."""
    cpu = []
    clock = []
    result = None
    for _ in range(repeats):
        begin = time.thread_time()
        start = time.perf_counter()
        result = function()
        cpu.append(time.thread_time() - begin)
        clock.append(time.perf_counter() - start)
    return result, min(cpu), min(clock)


def random_edges(nodes: int, edges: int, rng: np.random.Generator) -> sparse.csr_array:
    """Adjacency matrix of about so many random edges."""
    ends = rng.integers(nodes, size=(2, edges))
    u, v = ends[:, ends[0] != ends[1]]
    half = sparse.coo_array((np.ones(u.size), (u, v)), shape=(nodes, nodes)).tocsr()
    matrix = sparse.csr_array(half + half.T)
    matrix.data[:] = 1.0
    return matrix


def heat_bath() -> None:
    n = 2000
    p = n ** (-1 / 3)
    rng = np.random.default_rng(1)
    upper = np.triu(rng.random((n, n)) < p, 1)
    adjacency = (upper + upper.T).astype(float)
    print(f"Heat bath, Erdős-Rényi n = {n}, p = n^(-1/3), {int(upper.sum())} edges\n")
    print(
        "| coupling | chains | beta | million updates/s, processor | by the clock | R-hat of the energy |"
    )
    print("|---|---|---|---|---|---|")
    for coupling in ("mean-degree", "degree-normalised"):
        network = IsingNetwork.from_graph(adjacency, coupling)  # type: ignore[arg-type]
        network.simulate(1.0, 1, 0)  # compiles
        for chains in (1, 8, 32, 64):
            for beta in (0.5, 1.0, 1.5):
                run = lambda c=chains, b=beta, net=network: net.simulate(  # noqa: E731
                    b, c, 0, chains=c, burn_in=BURN_IN, sweeps=SWEEPS
                )
                result, cpu, clock = timed(run, 3)
                updates = n * chains * (BURN_IN + SWEEPS) / 1e6
                rhat = result.mixing.energy_rhat
                print(
                    f"| {coupling} | {chains} | {beta} | {updates / cpu:.1f} | {updates / clock:.1f} | {rhat:.3f} |"
                )


def pseudo_likelihood(nodes: int, edges: int) -> None:
    rng = np.random.default_rng(2)
    adjacency = random_edges(nodes, edges, rng)
    print(
        f"\nMaximum pseudo-likelihood, {nodes} nodes, {adjacency.nnz // 2} edges (processor s / clock s)\n"
    )
    print(
        "| coupling | declare the network | estimate, outcomes at random | estimate, outcomes of 0.5 |"
    )
    print("|---|---|---|---|")
    for coupling in ("mean-degree", "degree-normalised"):
        network, *declare = timed(lambda c=coupling: IsingNetwork.from_graph(adjacency, c))  # type: ignore[arg-type]
        fair = rng.choice(np.array([-1, 1], dtype=np.int8), nodes)
        simulated = network.simulate(0.5, 1, rng, chains=2, burn_in=10, sweeps=1).spins[0]
        cells = [declare]
        for spins in (fair, simulated):
            _, *seconds = timed(lambda net=network, s=spins: net.maximum_pseudo_likelihood(s))
            cells.append(seconds)
        print(
            f"| {coupling} | "
            + " | ".join(f"{cpu:.2f} / {clock:.2f}" for cpu, clock in cells)
            + " |"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    arguments = parser.parse_args()
    heat_bath()
    pseudo_likelihood(arguments.nodes, arguments.edges)
