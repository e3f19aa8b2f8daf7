"""Exact marginals against mbi's oracles, one thread, fresh random parameters.

    OMP_NUM_THREADS=1 python benchmarks/marginals.py [--seed 11] [--only NAME] [--skip-mbi] [--timeout 120]

Each model runs in a process of its own, pinned to one core, first ours and then mbi's, so that planning and
the first call are those of a cold process with numba's cache warm. mbi runs in float64 and is compiled by
`jax.jit`; its steady time is the best of its oracles, compilation not counted. Prints a table and writes
benchmarks/results/marginals.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from models import models

ORACLES = ("message_passing_hugin", "message_passing_shafer_shenoy", "message_passing_implicit")
ROOT = Path(__file__).resolve().parent.parent


def steady(call: Callable[[], object], seconds: float = 1.0) -> dict[str, float]:
    """Median and minimum milliseconds."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (len(times) < 5 or time.perf_counter() < end) and len(times) < 5000:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return {"median_ms": 1e3 * float(np.median(times)), "min_ms": 1e3 * min(times)}


def milliseconds(call: Callable[[], object]) -> tuple[float, object]:
    """Wall time of one call, and its result."""
    start = time.perf_counter()
    result = call()
    return 1e3 * (time.perf_counter() - start), result


def potentials(size: int, seed: int) -> np.ndarray:
    """Standard normal log-potentials."""
    return np.random.default_rng([seed, size]).normal(size=size)


def run_ours(name: str, seed: int) -> dict[str, object]:
    """Plan, first call, steady calls and memory of this library."""
    load, _ = milliseconds(lambda: __import__("bayesprivmrf.marginals.exact"))
    from bayesprivmrf.marginals import forecast, marginal_engine

    cards, scopes = models(seed)[name]
    rest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plan, engine = milliseconds(lambda: marginal_engine(cards, scopes))
    theta = potentials(engine.size, seed)
    first, (_, mu) = milliseconds(lambda: engine.marginals(theta))
    direction = potentials(engine.size, seed + 1)
    both = steady(lambda: engine.linearize(theta)[2](direction))
    product = engine.linearize(theta)[2]
    result = {
        "load_ms": load,
        "plan_ms": plan,
        "first_ms": first,
        "marginals": steady(lambda: engine.marginals(theta)),
        "linearize_and_product": both,
        "product": steady(lambda: product(direction)),
        "peak_memory_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rest) / 1024,
        "forecast_memory_mib": forecast(cards, scopes).memory_bytes / 2**20,
        "cells": engine.size,
    }
    np.save(ROOT / "benchmarks" / "results" / "_marginals.npy", mu)
    return result


def run_mbi(name: str, seed: int) -> None:
    """First and steady calls of each oracle; a line of JSON for each as it is done."""
    import warnings

    warnings.simplefilter("ignore")
    import jax

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    import mbi
    from mbi import marginal_oracles

    cards, scopes = models(seed)[name]
    domain = mbi.Domain([str(i) for i in range(len(cards))], cards)
    sizes = [int(np.prod([cards[v] for v in scope])) for scope in scopes]
    theta = potentials(sum(sizes), seed)
    cliques = [tuple(str(v) for v in scope) for scope in scopes]
    tables = {
        clique: mbi.Factor(
            domain.project(clique), jax.numpy.asarray(part.reshape([cards[v] for v in scope]))
        )
        for clique, scope, part in zip(
            cliques, scopes, np.split(theta, np.cumsum(sizes)[:-1]), strict=True
        )
    }
    vector = mbi.CliqueVector(domain, cliques, tables)
    ours = np.load(ROOT / "benchmarks" / "results" / "_marginals.npy")
    for oracle in ORACLES:
        call = jax.jit(getattr(marginal_oracles, oracle))
        first, result = milliseconds(lambda call=call: jax.block_until_ready(call(vector)))
        theirs = np.concatenate([np.asarray(result.tables[c].values).ravel() for c in cliques])
        timing = steady(lambda call=call: jax.block_until_ready(call(vector)))
        print(
            json.dumps(
                {
                    "oracle": oracle,
                    "first_ms": first,
                    **timing,
                    "largest_difference": float(np.abs(theirs - ours).max()),
                    "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                }
            ),
            flush=True,
        )


def worker(which: str, name: str, seed: int, timeout: float) -> list[dict[str, object]]:
    """Run one side of one model in its own process; what it had printed when the time ran out counts."""
    command = [sys.executable, __file__, "--worker", which, "--only", name, "--seed", str(seed)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        "PYTHONPATH": str(ROOT),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )
    try:
        output, errors = process.communicate(timeout=timeout)
        if process.returncode:
            print(errors[-2000:], file=sys.stderr)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def machine() -> dict[str, object]:
    """What was measured on."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip()
            for line in info.read_text().splitlines()
            if "model name" in line
        ]
        model = names[0] if names else model
    return {
        "cores": os.cpu_count(),
        "cpu": model,
        "python": platform.python_version(),
        "load_average_at_start": os.getloadavg()[0],
    }


def main() -> None:
    """Run all models and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--only")
    parser.add_argument("--skip-mbi", action="store_true")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a model for mbi")
    parser.add_argument("--worker", choices=("ours", "mbi"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        if options.worker == "ours":
            print(json.dumps(run_ours(options.only, options.seed)))
        else:
            run_mbi(options.only, options.seed)
        return
    folder = ROOT / "benchmarks" / "results"
    folder.mkdir(exist_ok=True)
    report = {"machine": machine(), "seed": options.seed, "models": {}}
    names = [n for n in models(options.seed) if options.only in (None, n)]
    worker("ours", names[0], options.seed, 600)  # fills numba's cache
    print(
        f"{'model':27s} {'plan':>6s} {'first':>6s} {'steady':>8s} {'lin+Σv':>8s} {'MiB':>6s} "
        f"{'mbi':>8s} {'first':>8s} ratio"
    )
    for name in names:
        ours = worker("ours", name, options.seed, 600)[0]
        if options.skip_mbi:
            theirs = []
        else:
            theirs = worker("mbi", name, options.seed, options.timeout)
        report["models"][name] = {"ours": ours, "mbi": theirs}  # no mbi: none answered in the time
        best = min((t["median_ms"] for t in theirs), default=None)
        print(
            f"{name:27s} {ours['plan_ms']:6.1f} {ours['first_ms']:6.1f} {ours['marginals']['median_ms']:8.3f} "
            f"{ours['linearize_and_product']['median_ms']:8.3f} {ours['peak_memory_mib']:6.1f} "
            + (
                f"{best:8.3f} {min(t['first_ms'] for t in theirs):8.0f} "
                f"{best / ours['marginals']['median_ms']:5.1f}"
                if best
                else "      no answer in time" * (not options.skip_mbi)
            ),
            flush=True,
        )
    (folder / "_marginals.npy").unlink(missing_ok=True)
    if options.only is None:
        report["command"] = (
            f"python benchmarks/marginals.py --seed {options.seed} --timeout {options.timeout:g}"
        )
        (folder / "marginals.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
