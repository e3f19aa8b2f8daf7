"""Speeds of two checkouts side by side: two live processes do a task in turn, and the ratio of each pair counts.

    OMP_NUM_THREADS=1 uv run --no-sync python benchmarks/speed_pairs.py --other ../other --repeats 16

The other checkout has an environment of its own in `.venv`. Both do the tasks of this checkout, which must run there.
A process does each task twice before it is timed, and processor seconds are taken, so that other work on the machine
moves both alike. Columns: task, old and new (median milliseconds), pair (median of the ratios new to old of the
pairs), quarter and least (ratios of the lower quartiles and of the smallest). To see the spread, compare a checkout
with itself: `--this ../other --other ../other`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

HERE = Path(__file__).resolve()
RELEASE_SEED = 1
DRAWS = 20
GRID = "grid 10x10 K2"
# cells whose marginals are computed in one task, so that it takes some tens of milliseconds
CELLS = 200_000


def fitting(method: str, release: str) -> Callable[[], Any]:
    """Fit a release by an estimator, and read an interval where there is one."""
    import speed_tasks

    import bayesprivmrf as bpm

    given = getattr(speed_tasks, release)()
    variable = given.specification.domain.variables[0]

    def task() -> Any:
        fit = getattr(bpm, method)().fit(given)
        if method == "NoiseAwareMAP":
            fit.interval([variable])

    return task


def posterior() -> Callable[[], Any]:
    """Sample a short chain of the survey's posterior."""
    import speed_tasks

    import bayesprivmrf as bpm

    given = speed_tasks.survey_release(1.0, RELEASE_SEED)
    short = {"draws": DRAWS, "tune": DRAWS, "chains": 1, "cores": 1, "progress_bar": False}
    return lambda: bpm.LatentCounts().fit(given, rng=RELEASE_SEED, **short)


def learning() -> Callable[[], Any]:
    """Learn a model of the survey."""
    import bayesprivmrf as bpm
    from bayesprivmrf import mechanisms
    from bayesprivmrf.model import ModelSpecification
    from bayesprivmrf.survey import load_fair_survey

    network, data = load_fair_survey()
    domain = ModelSpecification.from_pgmpy(network).domain
    states = dict(zip(domain.variables, map(list, domain.states), strict=True))
    declared = bpm.declare(states=states)
    return lambda: mechanisms.SelectMeasure(rho=0.1).release(declared, data, rng=RELEASE_SEED)


def marginals() -> Callable[[], Any]:
    """Compute the marginals of a grid."""
    from models import models

    from bayesprivmrf.marginals import marginal_engine

    cardinalities, scopes = models(0)[GRID]
    engine = marginal_engine(cardinalities, scopes)
    size = sum(int(np.prod([cardinalities[v] for v in scope])) for scope in scopes)
    potentials = np.random.default_rng(RELEASE_SEED).normal(size=size)
    times = max(1, CELLS // size)
    return lambda: [engine.marginals(potentials) for _ in range(times)]


TASKS: dict[str, Callable[[], Callable[[], Any]]] = {
    "CGM, survey": lambda: fitting("CGM", "survey_release"),
    "NaiveMLE, survey": lambda: fitting("NaiveMLE", "survey_release"),
    "NoiseAwareMAP, survey": lambda: fitting("NoiseAwareMAP", "survey_release"),
    "NoiseAwareMAP, chain of triples": lambda: fitting("NoiseAwareMAP", "chain_release"),
    "marginals, grid": marginals,
    "posterior, survey": posterior,
    "SelectMeasure, survey": learning,
}


def work(name: str) -> None:
    """Do a task whenever a line is read, and print its processor seconds."""
    warnings.simplefilter("ignore")
    task = TASKS[name]()
    task()
    task()
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.process_time()
        task()
        print(time.process_time() - begin, flush=True)


class Worker:
    """A live process of a checkout that does one task."""

    def __init__(self, root: Path, name: str) -> None:
        self.process = subprocess.Popen(
            [str(root / ".venv/bin/python"), str(HERE), "--work", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": str(root)},
            cwd=root,
        )
        while (said := self._line()) != "ready\n":
            if not said:
                raise SystemExit(f"the task {name!r} does not run in {root}")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def seconds(self) -> float:
        """Do the task once."""
        assert self.process.stdin is not None
        self.process.stdin.write("again\n")
        self.process.stdin.flush()
        return float(self._line())


def row(name: str, this: Path, other: Path, repeats: int) -> str:
    """Return the line of one task."""
    new_worker = Worker(this, name)
    old_worker = Worker(other, name)
    new = []
    old = []
    for turn in range(repeats):
        if turn % 2:
            new.append(new_worker.seconds())
        old.append(old_worker.seconds())
        if not turn % 2:
            new.append(new_worker.seconds())
    for worker in (new_worker, old_worker):
        worker.process.kill()
    pair = statistics.median(a / b for a, b in zip(new, old, strict=True))
    quarter = float(np.quantile(new, 0.25) / np.quantile(old, 0.25))
    least = min(new) / min(old)
    middles = (1e3 * statistics.median(old), 1e3 * statistics.median(new))
    return f"{name},{middles[0]:.1f},{middles[1]:.1f},{pair:.3f},{quarter:.3f},{least:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--this", type=Path, default=HERE.parents[1])
    parser.add_argument("--other", type=Path)
    parser.add_argument("--repeats", type=int, default=16)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--work", help="name of a task; used by the program itself")
    given = parser.parse_args()
    if given.work:
        work(given.work)
        return
    print("task,old,new,pair,quarter,least", flush=True)
    for name in given.tasks:
        print(row(name, given.this.resolve(), given.other.resolve(), given.repeats), flush=True)


if __name__ == "__main__":
    main()
