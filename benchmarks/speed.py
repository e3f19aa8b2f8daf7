"""Speed and peak memory of this checkout beside those of another one, task by task.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/speed.py ../other [--repeats 5] [--only fit]

Each task runs in a process of its own that takes the package of one checkout. The checkouts take turns, so that a
change in the machine's speed meets both. A process runs its task once to load what is compiled, and then times it by
its processor time. Tasks use public names only and are the same in both checkouts, which must share an environment.

A row gives the median of the processor seconds (of draws: effective draws a second) in each checkout, the median of
the paired ratios (this to other; above 1 is slower), and the peak memory of both.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
SEED = 2026
STATES = 3  # of each variable of the chain of ten
RECORDS = 20_000

type Task = Callable[[], object]


def marginals_of(name: str) -> Task:
    """Return a task that computes marginals of a model of `benchmarks/models.py`."""
    from models import models

    from bayesprivmrf.marginals import marginal_engine

    cardinalities, scopes = models(0)[name]
    engine = marginal_engine(cardinalities, scopes)
    size = sum(int(np.prod([cardinalities[v] for v in scope])) for scope in scopes)
    potentials = np.random.default_rng(SEED).normal(size=size)

    def task() -> None:
        for _ in range(max(1, 5_000_000 // size)):
            engine.marginals(potentials)

    return task


def survey_release() -> Any:
    """Release Fair's survey at epsilon 1."""
    from bayesprivmrf.mechanisms import LaplaceStatistics
    from bayesprivmrf.survey import load_fair_survey

    return LaplaceStatistics(epsilon=1.0).release(*load_fair_survey(), rng=SEED)


def chain_release() -> Any:
    """Release tables of three neighboring variables of a chain of ten."""
    import pandas as pd

    import bayesprivmrf as bpm
    from bayesprivmrf.mechanisms import GaussianStatistics

    names = [f"v{i}" for i in range(10)]
    network = bpm.declare(
        states={name: list(range(STATES)) for name in names},
        cliques=[tuple(names[i : i + 3]) for i in range(8)],
    )
    rng = np.random.default_rng(SEED)
    columns = [rng.integers(STATES, size=RECORDS)]
    for _ in names[1:]:
        stays = rng.random(RECORDS) < 0.6
        columns.append(np.where(stays, columns[-1], rng.integers(STATES, size=RECORDS)))
    return GaussianStatistics(rho=0.5).release(
        network, pd.DataFrame(dict(zip(names, columns, strict=True))), rng=SEED
    )


def fit_of(method: str, release: Callable[[], Any]) -> Task:
    """Return a task that fits a release by an estimator, and asks for an interval where it has one."""
    import bayesprivmrf as bpm

    given = release()
    variable = given.specification.domain.variables[0]

    def task() -> None:
        solution = getattr(bpm, method)().fit(given)
        if method == "NoiseAwareMAP":
            solution.interval([variable])

    return task


def draws_of(formulation: str) -> Task:
    """Return a task that samples the posterior of the survey; it returns effective draws a processor second."""
    import bayesprivmrf as bpm

    given = survey_release()

    def task() -> float:
        begin = time.process_time()
        posterior = bpm.LatentCounts(formulation=formulation).fit(
            given, draws=500, tune=500, chains=2, rng=SEED
        )
        return posterior.stats["ess_bulk"] / (time.process_time() - begin)

    return task


def learning_of(mechanism: str, **settings: object) -> Task:
    """Return a task that learns a model of 20 binary variables, or of the survey's nine."""
    import pandas as pd

    import bayesprivmrf as bpm
    from bayesprivmrf import mechanisms
    from bayesprivmrf.model import ModelSpecification
    from bayesprivmrf.survey import load_fair_survey

    if mechanism == "SelectMeasure":
        network, data = load_fair_survey()
        domain = ModelSpecification.from_pgmpy(network).domain
        states = dict(zip(domain.variables, map(list, domain.states), strict=True))
        declared = bpm.declare(states=states)
    else:
        rng = np.random.default_rng(SEED)
        shared = rng.random(RECORDS)
        data = pd.DataFrame({f"v{i}": (shared + rng.random(RECORDS) > 1).astype(int) for i in range(20)})
        declared = bpm.declare(states={name: [0, 1] for name in data})
    made = getattr(mechanisms, mechanism)(**settings)

    def task() -> None:
        made.release(declared, data, rng=SEED)

    return task


TASKS: dict[str, Callable[[], Task]] = {
    "marginals, chain T10 K10": lambda: marginals_of("chain T10 K10"),
    "marginals, third-order chain T10 K10": lambda: marginals_of("third-order chain T10 K10"),
    "marginals, grid 10x10 K2": lambda: marginals_of("grid 10x10 K2"),
    "marginals, families, 37 variables": lambda: marginals_of("families, 37 variables"),
    "marginals, chain T1000 K50": lambda: marginals_of("chain T1000 K50"),
    "fit NaiveMLE, survey": lambda: fit_of("NaiveMLE", survey_release),
    "fit CGM, survey": lambda: fit_of("CGM", survey_release),
    "fit NoiseAwareMAP, survey": lambda: fit_of("NoiseAwareMAP", survey_release),
    "fit NoiseAwareMAP, chain of triples": lambda: fit_of("NoiseAwareMAP", chain_release),
    "draws exact": lambda: draws_of("exact"),
    "draws hyper-dirichlet": lambda: draws_of("hyper-dirichlet"),
    "draws log-linear": lambda: draws_of("log-linear"),
    "learn SelectMeasure, survey": lambda: learning_of("SelectMeasure", rho=0.1),
    "learn PrivateFrankWolfe, 20 variables": lambda: learning_of("PrivateFrankWolfe", epsilon=2.0, width=1.0),
}


def worker(name: str) -> None:
    """Run one task twice in this process, and print its processor seconds, its value and the peak memory."""
    warnings.simplefilter("ignore")
    task = TASKS[name]()
    task()
    begin = time.process_time()
    value = task()
    seconds = time.process_time() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "value": value, "MiB": memory}))


def run(root: Path, name: str) -> dict[str, Any]:
    """Run a task with the package of a checkout; an error is returned as text."""
    flags = {"PYTHONPATH": f"{root}:{root / 'benchmarks'}", "OMP_NUM_THREADS": "1"}
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | flags
    command = [sys.executable, "-P", __file__, str(root), "--worker", name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def import_seconds(root: Path) -> dict[str, Any]:
    """Processor seconds of a new process that imports the package alone."""
    flags = {"PYTHONPATH": str(root)}
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | flags
    program = (
        "import time, resource; begin = time.process_time(); import bayesprivmrf; import json;"
        "print(json.dumps({'seconds': time.process_time() - begin, 'value': None,"
        "'MiB': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))"
    )
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, cwd=root)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="root of the other checkout")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="run the tasks whose name contains this text")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    other = options.other.resolve()
    print("task,this,other,ratio,this MiB,other MiB,unit", flush=True)
    for name in ["import", *TASKS]:
        if options.only in name:
            print(compared(name, ROOT, other, options.repeats), flush=True)


def compared(name: str, root: Path, other: Path, repeats: int) -> str:
    """Run a task in both checkouts in turn, and return its row."""
    ours, theirs = [], []
    for _ in range(repeats):
        for checkout, found in ((root, ours), (other, theirs)):
            found.append(import_seconds(checkout) if name == "import" else run(checkout, name))
            if "error" in found[-1]:
                return f'"{name}",,,,,,"{checkout}: {found[-1]["error"]}"'
    is_rate = ours[0]["value"] is not None
    what = "value" if is_rate else "seconds"
    slowdowns = [a[what] / b[what] for a, b in zip(ours, theirs, strict=True)]
    ratio = 1 / median(slowdowns) if is_rate else median(slowdowns)
    numbers = [f"{median(each[what] for each in side):.4g}" for side in (ours, theirs)]
    memory = [f"{median(each['MiB'] for each in side):.0f}" for side in (ours, theirs)]
    return ",".join([f'"{name}"', *numbers, f"{ratio:.3f}", *memory, "draws/s" if is_rate else "s"])


if __name__ == "__main__":
    main()
