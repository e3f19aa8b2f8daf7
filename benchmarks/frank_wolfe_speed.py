"""Time of private Frank-Wolfe: all regressions in lockstep against one after another, growth, and one large release.

Run: python benchmarks/frank_wolfe_speed.py [--quick]
Writes benchmarks/results/frank-wolfe-speed.json. Both ways use the same compiled residuals and exact products in
single precision over blocks of 4,000 records; the loop has its features ready as floats, where lockstep converts
them at each step. Both have one thread, and their steps are interleaved, so that a busy machine slows both; growth
and the release have as many threads as BLAS would take. Records are fair coins: the time does not depend on what
they are, but for equal ones, which are merged.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from pathlib import Path

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf.inference.optimize import one_blas_thread
from bayesprivmrf.learning.frank_wolfe import Design, LogisticRegressions
from bayesprivmrf.mechanisms import PrivateFrankWolfe
from bayesprivmrf.mechanisms.frank_wolfe import choose_atoms
from bayesprivmrf.noise import SecureNoise

WIDTH = 1.0
BLOCK = 4000


def coins(records: int, variables: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 2, (records, variables), dtype=np.uint8)


class Step:
    """One step of all regressions on some nodes, with the choice of atoms."""

    def __init__(self, codes: np.ndarray, nodes: np.ndarray, workers: int = 1) -> None:
        counts = np.ones(len(codes), dtype=np.int64)
        design = Design.with_constant(codes, (2,) * codes.shape[1])
        self.regressions = LogisticRegressions(design, codes, counts, 2 * WIDTH, nodes)
        self.eligible = np.arange(codes.shape[1] + 1) != nodes[:, None]
        self.regressions.workers = workers
        self.source = SecureNoise()

    def sums(self) -> np.ndarray:
        return self.regressions.sums()

    def run(self) -> None:
        scales = np.full(len(self.eligible), 1e6)
        sums = self.sums()
        starts = self.regressions.design.starts
        self.regressions.move(choose_atoms(sums, starts, scales, self.source, self.eligible), 1)


class NodeStep(Step):
    """The same for one node, on features that are ready."""

    def __init__(self, codes: np.ndarray, node: int, blocks: list[np.ndarray]) -> None:
        super().__init__(codes, np.array([node]))
        self.blocks = blocks

    def sums(self) -> np.ndarray:
        regressions = self.regressions
        total = np.zeros((1, self.blocks[0].shape[1]))
        out = np.empty((BLOCK, 1), dtype=np.float32)
        for place, block in enumerate(self.blocks):
            part = out[: len(block)]
            rows = slice(place * BLOCK, place * BLOCK + len(block))
            regressions._residuals(rows, regressions.design.codes[rows], part)
            total += part.T @ block
        return total.astype(np.int64)


def timed(run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def lockstep_against_loop(variables: int, records: int, repeats: int) -> dict[str, float]:
    codes = coins(records, variables)
    features = np.ones((records, variables + 1), dtype=np.float32)
    features[:, :-1] = 2.0 * codes - 1
    blocks = [features[start : start + BLOCK] for start in range(0, records, BLOCK)]
    together = Step(codes, np.arange(variables))
    some = [NodeStep(codes, node, blocks) for node in range(min(variables, 10))]
    np.testing.assert_array_equal(together.sums()[:1], some[0].sums())
    times: dict[str, list[float]] = {"lockstep": [], "loop": []}
    with one_blas_thread():
        for _ in range(repeats):
            times["lockstep"].append(timed(together.run))
            times["loop"].append(
                timed(lambda: [node.run() for node in some]) * variables / len(some)
            )
    best = {name: min(found) for name, found in times.items()}
    return {
        "variables": variables,
        "records": records,
        **{f"{name}_seconds_a_step": seconds for name, seconds in best.items()},
        "ratio": best["loop"] / best["lockstep"],
    }


def growth(variables: int, records: int, repeats: int) -> dict[str, float]:
    with one_blas_thread() as workers:
        step = Step(coins(records, variables), np.arange(variables), workers)
        step.run()
        seconds = min(timed(step.run) for _ in range(repeats))
    return {"variables": variables, "records": records, "seconds_a_step": seconds}


def release(variables: int, records: int, rho: float) -> dict[str, float]:
    data = pd.DataFrame(coins(records, variables), columns=[f"v{i}" for i in range(variables)])
    network = bpm.declare(states={name: [0, 1] for name in data})
    mechanism = PrivateFrankWolfe(rho=rho, width=WIDTH, single_share=0)
    start = time.perf_counter()
    learned = mechanism.release(network, data)
    return {
        "variables": variables,
        "records": records,
        "rho": rho,
        "steps": learned.details["steps"],
        "seconds": time.perf_counter() - start,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    if quick:
        grid = [(50, 10_000)]
    else:
        grid = [(50, 10_000), (50, 100_000), (200, 10_000), (200, 100_000)]
    if quick:
        sizes = [(50, 10_000), (100, 10_000)]
    else:
        sizes = [(p, 20_000) for p in (50, 100, 200, 400, 800)]
    if quick:
        longer = []
    else:
        longer = [(200, n) for n in (10_000, 40_000, 160_000)]
    found = {
        "machine": platform.processor() or platform.machine(),
        "blas_threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "lockstep against loop": [lockstep_against_loop(p, n, 2 if quick else 3) for p, n in grid],
        "growth": [growth(p, n, 3) for p, n in sizes + longer],
        "release": release(100, 10_000, 1.0) if quick else release(1000, 100_000, 1.0),
    }
    text = json.dumps(found, indent=1)
    print(text)
    if not quick:
        target = Path(__file__).parent / "results" / "frank-wolfe-speed.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(text + "\n")


if __name__ == "__main__":
    main()
