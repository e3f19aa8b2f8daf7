"""Time of a fit: in a cold process, and CGM against naive MLE in a warm one.

    OMP_NUM_THREADS=1 uv run python benchmarks/fit.py

Cold: a fresh interpreter a run; imports are timed apart; the fit is the first of its process (numba's cache on
disk is warm, as it is after the first run of an installation). Warm: median of five fits after one. Default
settings, epsilon 1, N as stated, discrete Laplace noise, number of records private. Writes
benchmarks/results/fit.json.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

SEED = 4_711
RESULTS = Path(__file__).parent / "results" / "fit.json"

COLD = """
import json, sys, time
begin = time.perf_counter()
import bayesprivmrf
package = time.perf_counter() - begin
from bayesprivmrf.inference import CGM, NaiveMLE
from bayesprivmrf.release import load_release
import scipy.optimize, scipy.special, numba
release = load_release(sys.argv[1])
imports = time.perf_counter() - begin
begin = time.perf_counter()
solution = {"naive": NaiveMLE(), "cgm": CGM()}[sys.argv[2]].fit(release)
fit = time.perf_counter() - begin
print(json.dumps({"package": package, "imports": imports, "fit": fit, "status": solution.status.value}))
"""


def simulated(cardinalities, scopes, records: int):
    """A release of records drawn from random potentials: logs of Dirichlet(1) draws on each table."""
    import numpy as np

    from bayesprivmrf.marginals import sample
    from bayesprivmrf.model import Domain, ModelSpecification
    from bayesprivmrf.privacy import DiscreteLaplace
    from bayesprivmrf.release import NoisyStatistics

    rng = np.random.default_rng([SEED, records])
    states = tuple(tuple(range(k)) for k in cardinalities)
    model = ModelSpecification(
        domain=Domain(variables=tuple(range(len(states))), states=states), cliques=tuple(scopes)
    )
    potentials = np.concatenate(
        [np.log(rng.dirichlet(np.ones(int(np.prod(s))))) for s in model.shapes]
    )
    x = sample(model.cardinalities, model.scopes, potentials, records, rng)
    scale = float(len(model.cliques))
    tables = {}
    for clique, scope, shape in zip(model.cliques, model.scopes, model.shapes, strict=True):
        flat = np.ravel_multi_index(tuple(x[:, v] for v in scope), shape)
        counts = np.bincount(flat, minlength=int(np.prod(shape)))
        stop = 1 - np.exp(-1 / scale)
        noise = rng.geometric(stop, counts.size) - rng.geometric(stop, counts.size)
        tables[clique] = (counts + noise).reshape(shape)
    return NoisyStatistics.from_tables(model, tables, noise=DiscreteLaplace(scale))


def cold(path: Path, method: str, runs: int = 7) -> dict[str, float]:
    """Medians over fresh processes, seconds."""
    found = []
    for _ in range(runs):
        out = subprocess.run(
            [sys.executable, "-c", COLD, str(path), method],
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(json.loads(out.stdout))
    return {
        key: round(statistics.median(f[key] for f in found), 3)
        for key in ("package", "imports", "fit")
    }


def warm(release) -> dict[str, float | str]:
    """Medians of five fits of each default estimator, milliseconds, and their ratio."""
    from bayesprivmrf.inference import CGM, NaiveMLE

    row: dict[str, float | str] = {}
    for name, estimator in (("naive", NaiveMLE()), ("cgm", CGM())):
        solution = estimator.fit(release)
        seconds = []
        for _ in range(5):
            begin = time.perf_counter()
            estimator.fit(release)
            seconds.append(time.perf_counter() - begin)
        row[f"{name} ms"] = round(1e3 * statistics.median(seconds), 1)
        row[f"{name} evaluations"] = solution.stats["evaluations"]
        row[f"{name} status"] = solution.status.value
    row["ratio"] = round(float(row["cgm ms"]) / float(row["naive ms"]), 2)
    return row


def main() -> None:
    """Run, print, and write the results."""
    import tempfile

    from models import chain, erdos_renyi

    chosen = {
        "chain of 40, 4 states": chain(40, 4),
        "third-order chain of 10, 5 states": chain(10, 5, 3),
        "Erdős-Rényi of 10, 5 states": erdos_renyi(10, 5, 0.3, SEED),
    }
    results: dict[str, object] = {
        "command": "OMP_NUM_THREADS=1 python benchmarks/fit.py",
        "machine": {
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "seed": SEED,
        "warm": {},
        "cold": {},
    }
    for name, model in chosen.items():
        for records in (1_000, 10_000, 100_000, 1_000_000):
            row = warm(simulated(*model, records))
            results["warm"][f"{name}, N = {records:,}"] = row  # type: ignore[index]
            print(f"{name}, N = {records:,}: {row}")
    with tempfile.TemporaryDirectory() as folder:
        for records in (10_000, 100_000):
            path = Path(folder) / f"chain-{records}.release"
            simulated(*chosen["chain of 40, 4 states"], records).save(path)
            for method in ("naive", "cgm"):
                row = cold(path, method)
                results["cold"][f"{method}, N = {records:,}"] = row  # type: ignore[index]
                print(f"cold process, chain of 40, {method}, N = {records:,}: {row}")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
