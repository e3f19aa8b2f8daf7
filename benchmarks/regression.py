"""Times of two checkouts side by side, run in turn: has a change made anything slower?

    OMP_NUM_THREADS=1 uv run python benchmarks/regression.py OLD NEW

OLD and NEW are folders with a checkout and its environment (``.venv``). Each task runs in a process of its own, in
the old checkout, then in the new one, and so on; a process repeats its task and reports the fastest repetition. The
figure is the median over the processes, and the ratio that of pairs. Only public names are used, that both
checkouts have. Writes benchmarks/results/regression.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "regression.json"

PRELUDE = """
import json, sys, time, warnings
import numpy as np, pandas as pd
import bayesprivmrf as bpm
from bayesprivmrf import mechanisms
warnings.simplefilter("ignore")
def best(task, times):
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        task()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps(min(seconds)))
def table(p, n, k, seed):
    rng = np.random.default_rng(seed)
    common = rng.random((n, 1)) < .5
    codes = np.where(rng.random((n, p)) < .3, common * (k - 1), rng.integers(0, k, (n, p)))
    return pd.DataFrame({f"v{i}": codes[:, i] for i in range(p)})
def chain_release(T, K, order, n):
    data = table(T, n, K, 3)
    names = list(data)
    cliques = [tuple(names[i:i + order + 1]) for i in range(T - order)]
    network = bpm.declare(states={v: list(range(K)) for v in names}, cliques=cliques)
    return mechanisms.LaplaceStatistics(epsilon=1.0).release(network, data, rng=1)
"""

ENGINE = """
from bayesprivmrf.marginals import marginal_engine
def engine(cards, scopes, times, inner):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=sum(int(np.prod([cards[v] for v in s])) for s in scopes))
    e = marginal_engine(cards, scopes)
    e.marginals(theta)
    best(lambda: [e.marginals(theta) for _ in range(inner)], times)
"""

TASKS: dict[str, str] = {
    "import of the package": "",
    "marginals, chain T40 K4": ENGINE + "engine((4,)*40, [(i, i+1) for i in range(39)], 30, 50)",
    "marginals, third-order chain T10 K10": ENGINE
    + "engine((10,)*10, [(i, j) for i in range(10) for j in range(i+1, min(i+4, 10))], 30, 3)",
    "marginals, grid 10x10 K2": ENGINE
    + "engine((2,)*100, [(10*i+j, 10*i+j+1) for i in range(10) for j in range(9)]"
    " + [(10*i+j, 10*i+10+j) for i in range(9) for j in range(10)], 30, 5)",
    "NaiveMLE, chain T10 K10, N 1e5": "r = chain_release(10, 10, 1, 100_000); bpm.NaiveMLE().fit(r);"
    " best(lambda: bpm.NaiveMLE().fit(r), 10)",
    "CGM, chain T10 K10, N 1e5": "r = chain_release(10, 10, 1, 100_000); bpm.CGM().fit(r);"
    " best(lambda: bpm.CGM().fit(r), 5)",
    "NoiseAwareMAP, chain T10 K10, N 1e5": "r = chain_release(10, 10, 1, 100_000); bpm.NoiseAwareMAP().fit(r);"
    " best(lambda: bpm.NoiseAwareMAP().fit(r), 5)",
    "LaplaceStatistics, 1e6 records of 10 columns": "d = table(10, 1_000_000, 5, 2)\n"
    "n = bpm.declare(states={v: list(range(5)) for v in d}, cliques=[('v0', 'v1'), ('v2', 'v3', 'v4'),"
    " ('v5', 'v6'), ('v7', 'v8', 'v9')])\n"
    "best(lambda: mechanisms.LaplaceStatistics(epsilon=1.0).release(n, d), 5)",
    "SelectMeasure, p 50, n 1e4": "d = table(50, 10_000, 2, 5)\n"
    "n = bpm.declare(states={v: [0, 1] for v in d})\n"
    "best(lambda: mechanisms.SelectMeasure(rho=1.0, degree=3).release(n, d, rng=1), 3)",
    "PrivateFrankWolfe, p 50, n 1e4": "d = table(50, 10_000, 2, 5)\n"
    "n = bpm.declare(states={v: [0, 1] for v in d})\n"
    "best(lambda: mechanisms.PrivateFrankWolfe(rho=1.0, width=2.0, single_share=0).release(n, d, rng=1), 3)",
    "ParityQueries and its fit, p 12, triples": "d = table(12, 10_000, 2, 5)\n"
    "n = bpm.declare(states={v: [0, 1] for v in d})\n"
    "best(lambda: mechanisms.ParityQueries(rho=1.0, order=3).release(n, d, rng=1).fit(), 3)",
    "posterior, first fit of a network": "r = chain_release(4, 3, 1, 2_000);"
    " best(lambda: bpm.LatentCounts().fit(r, rng=1), 1)",
    "posterior, later fits, chain T4 K3": "r = chain_release(4, 3, 1, 2_000); bpm.LatentCounts().fit(r, rng=1);"
    " best(lambda: bpm.LatentCounts().fit(r, rng=2), 3)",
    "posterior, later fits, 3x3 grid": "d = table(9, 2_000, 2, 7)\n"
    "pairs = [(i, i+1) for i in (0, 1, 3, 4, 6, 7)] + [(i, i+3) for i in range(6)]\n"
    "n = bpm.declare(states={v: [0, 1] for v in d}, cliques=[(f'v{i}', f'v{j}') for i, j in pairs])\n"
    "r = mechanisms.LaplaceStatistics(epsilon=1.0).release(n, d, rng=1); bpm.LatentCounts().fit(r, rng=1)\n"
    "best(lambda: bpm.LatentCounts().fit(r, rng=2), 2)",
    "IsingNetwork, 200 draws of 5,000 nodes": "import networkx as nx\n"
    "g = bpm.network.IsingNetwork.from_graph(nx.random_regular_graph(6, 5000, seed=1))\n"
    "g.sample(beta=.8, size=8, rng=1); best(lambda: g.sample(beta=.8, size=200, rng=2), 3)",
}
IMPORT = """
import json, time
begin = time.perf_counter()
import bayesprivmrf
print(json.dumps(time.perf_counter() - begin))
"""


def seconds(checkout: Path, code: str) -> float:
    """Fastest repetition of one process of a checkout."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"OMP_NUM_THREADS": "1"}
    command = [str(checkout / ".venv" / "bin" / "python"), "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=checkout, env=environment, check=False
    )
    if done.returncode:
        sys.exit(f"{checkout}: {done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rows = {}
    print("| task | before, s | after, s | ratio |\n|---|---|---|---|")
    for name, task in TASKS.items():
        if options.only not in name:
            continue
        code = PRELUDE + task if task else IMPORT
        for checkout in (options.old, options.new):  # caches on disk
            seconds(checkout, code)
        pairs = [
            (seconds(options.old, code), seconds(options.new, code)) for _ in range(options.pairs)
        ]
        before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in pairs)
        rows[name] = {"before": before, "after": after, "ratio": ratio, "pairs": pairs}
        print(f"| {name} | {before:.3g} | {after:.3g} | {ratio:.2f} |", flush=True)
    RESULTS.write_text(json.dumps({"machine": platform.processor(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
