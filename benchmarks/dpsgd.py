"""DPSGD against estimates from noisy tables at the same (epsilon, delta): Kullback-Leibler divergence and seconds.

    OMP_NUM_THREADS=1 uv run --extra accounting python benchmarks/dpsgd.py

The third-order chain of benchmarks/quality.py (10 variables of 5 states), N records, delta = 1/N as in Bernstein et
al. (2017). Tables get discrete Laplace noise (pure epsilon) or discrete Gaussian noise of the largest rho whose
guarantee at delta is epsilon. DPSGD runs with its defaults, and as the best of a grid of 16 settings by the truth:
once with each trial at (epsilon, delta), as the paper tunes, where the search spends the larger epsilon of the column
"spent"; once with all trials together at (epsilon, delta). Noise is simulated. Each cell is cached under
benchmarks/results/cache; writes benchmarks/results/dpsgd.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from itertools import product

os.environ.setdefault("OMP_NUM_THREADS", "1")

warnings.filterwarnings("ignore", message=".*noise is larger than an even cell")

import joblib
import numpy as np
import pandas as pd
from papers.dpsgd_search import DPSGDSearch
from quality import RESULTS, Truth, _markdown
from rich.progress import track

from bayesprivmrf.inference import CGM, NaiveMLE, NoiseAwareMAP
from bayesprivmrf.learning import LearnedPotentials
from bayesprivmrf.marginals import marginal_engine, sample
from bayesprivmrf.mechanisms import DPSGD, ExactStatistics, GaussianStatistics, LaplaceStatistics
from bayesprivmrf.privacy import PrivacyGuarantee

CACHE = RESULTS / "cache" / "dpsgd"
RECORDS, EPSILONS, POPULATIONS = (1_000, 10_000, 100_000), (0.1, 0.5, 1.0), 3
CLIQUES, SEED = 24, 16_180_339
GRID = {
    "steps": [100, 400],
    "clip": [0.7 * CLIQUES**0.5, CLIQUES**0.5],
    "learning_rate": [0.01, 0.1, 1.0, 5.0],
}
ESTIMATORS = {"naive": NaiveMLE(), "CGM": CGM(), "noise-aware MAP": NoiseAwareMAP()}


def largest_rho(epsilon: float, delta: float) -> float:
    """The largest rho, to six digits, whose zero-concentrated guarantee is (epsilon, delta)-private."""
    low = 1e-12
    high = epsilon
    while high / low > 1 + 1e-6:
        rho = (low * high) ** 0.5
        guarantee = PrivacyGuarantee(rho=rho, adjacency="add-or-remove-one").to_approximate(delta)
        if guarantee.epsilon <= epsilon:
            low = rho
        else:
            high = rho
    return low


def cell(population: int, records: int, epsilon: float) -> list[dict[str, object]]:
    """All methods on one data set at one budget, read from the cache if they are there."""
    path = CACHE / f"{population}-{records}-{epsilon}.json"
    if path.exists():
        return json.loads(path.read_text())
    truth = Truth("third-order chain", population, SEED)
    model = truth.model
    delta = 1 / records
    engine = marginal_engine(model.cardinalities, model.scopes)
    rng = np.random.default_rng([SEED, population, records])
    codes = sample(model.cardinalities, model.scopes, truth.potentials, records, rng)
    data = pd.DataFrame(codes, columns=list(model.domain.variables))
    seed = np.random.SeedSequence([SEED, population, records, int(1000 * epsilon)])
    noise = np.random.default_rng(seed)
    where = {"population": population, "records": records, "epsilon": epsilon}
    rows: list[dict[str, object]] = []

    def note(method: str, divergence: float, seconds: float, spent: float | None) -> None:
        rows.append(
            {**where, "method": method, "kl": divergence, "seconds": seconds, "spent": spent}
        )

    def divergence_of(release: LearnedPotentials) -> float:
        flat = release.potentials.flat
        return truth.divergence(flat, engine.log_partition(flat))

    tables = {
        "Laplace": LaplaceStatistics(epsilon=epsilon),
        "Gaussian": GaussianStatistics(rho=largest_rho(epsilon, delta)),
    }
    for law, mechanism in tables.items():
        begin = time.perf_counter()
        release = mechanism.release(model, data, rng=noise)
        releasing = time.perf_counter() - begin
        for name, estimator in ESTIMATORS.items():
            begin = time.perf_counter()
            fitted = estimator.fit(release)
            seconds = releasing + time.perf_counter() - begin
            divergence = truth.divergence(fitted.potentials.flat, fitted.log_partition)
            note(f"{name}, {law}", divergence, seconds, epsilon)
    exact = NaiveMLE(ridge=1e-7).fit(ExactStatistics().release(model, data))
    divergence = truth.divergence(exact.potentials.flat, exact.log_partition)
    note("non-private MLE", divergence, exact.stats["seconds"], None)
    begin = time.perf_counter()
    release = DPSGD(epsilon=epsilon, delta=delta).release(model, data, rng=noise)
    note("DPSGD, defaults", divergence_of(release), time.perf_counter() - begin, epsilon)
    for covers, name in (
        ("trial", "DPSGD, best of 16 in hindsight, price ignored"),
        ("search", "DPSGD, best of 16 in hindsight, price paid"),
    ):
        begin = time.perf_counter()
        search = DPSGDSearch(epsilon=epsilon, delta=delta, grid=GRID, covers=covers)
        found = search.release(model, data, rng=noise)
        best = found.best(lambda release: -divergence_of(release))
        note(name, divergence_of(best), time.perf_counter() - begin, found.guarantee.epsilon)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(rows))
    temporary.replace(path)
    return rows


def report(frame: pd.DataFrame) -> str:
    """Markdown tables: median divergence a cell, seconds at the largest size, and what searches spent."""
    order = list(dict.fromkeys(frame["method"]))
    kl = frame.pivot_table(
        index=["records", "epsilon"], columns="method", values="kl", aggfunc="median"
    )[order].T
    kl.columns = [f"{n:,} / {e:g}" for n, e in kl.columns]
    ignored = frame[frame["method"].str.contains("ignored")]
    spent = ignored.groupby(["epsilon"])["spent"].agg(["min", "max"])
    seconds = frame.pivot_table(
        index="method", columns="records", values="seconds", aggfunc="median"
    ).loc[order]
    return "\n\n".join(
        [
            f"### Median KL, columns N / epsilon\n\n{_markdown(kl.map(lambda v: f'{v:.3g}'))}",
            f"### Median seconds, columns N\n\n{_markdown(seconds.map(lambda v: f'{v:.2g}'))}",
            f"### Epsilon that a search spends whose trials each take epsilon\n\n"
            f"{_markdown(spent.map(lambda v: f'{v:.3g}'))}",
        ]
    )


def main() -> None:
    """Run the grid and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one population, two sizes")
    arguments = parser.parse_args()
    if arguments.quick:
        populations = 1
        records = RECORDS[:2]
    else:
        populations = POPULATIONS
        records = RECORDS
    tasks = list(product(range(populations), records, EPSILONS))
    work = joblib.Parallel(n_jobs=arguments.jobs, return_as="generator")(
        joblib.delayed(cell)(*task) for task in tasks
    )
    rows = [row for part in track(work, total=len(tasks), description="cells") for row in part]
    frame = pd.DataFrame(rows)
    if not arguments.quick:
        frame.to_csv(RESULTS / "dpsgd.csv", index=False, float_format="%.6g")
    print(report(frame))


if __name__ == "__main__":
    main()
