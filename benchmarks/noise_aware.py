"""The noise-aware estimate against its own prior scale, and naive MLE's ridge, both chosen in hindsight.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/noise_aware.py --jobs 2
    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/noise_aware.py --jobs 2 --fresh

The graphs of benchmarks/quality.py, with five laws of the potentials: logs of Dirichlet(1) and Dirichlet(.2)
draws on each edge, N(0, .3), N(0, 2), and a sparse one, N(0, 1.5) on 30 % of the edges and 0 on the rest. N records;
discrete Laplace noise of scale m / epsilon, the number of records private. Kullback-Leibler divergence from the
truth, in bands of signal: the best naive divergence over that of the uniform distribution, below .1, to .5, and
above. Every release's fits are cached under benchmarks/results/cache, so that an interrupted run goes on where it
stopped. Writes benchmarks/results/noise-aware.csv and prints tables. `--fresh` runs the populations kept back while
settings were chosen.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import numpy as np
import pandas as pd
from models import chain, erdos_renyi
from quality import GRAPHS, RECORDS, RESULTS, STATES, Truth
from rich.progress import track

from bayesprivmrf.inference import CGM, NaiveMLE, NoiseAwareMAP
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import DiscreteLaplace
from bayesprivmrf.release import NoisyStatistics

CACHE = RESULTS / "cache" / "noise-aware"
LAWS = ("Dirichlet(1)", "Dirichlet(.2)", "N(0, .3)", "N(0, 2)", "sparse")
EPSILONS = (0.1, 0.5, 1.0)
SCALES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
RIDGES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
POPULATIONS = 3
SEED, FRESH_SEED = 50_607_080, 90_100_110

ESTIMATORS = {
    "noise-aware, learned": NoiseAwareMAP(),
    **{f"noise-aware, scale {s:g}": NoiseAwareMAP(scale=s) for s in SCALES},
    "naive, default ridge": NaiveMLE(),
    **{f"naive, ridge {r:g}": NaiveMLE(ridge=r) for r in RIDGES},
    "CGM": CGM(),
}


class Population(Truth):
    """A population whose potentials follow one of `LAWS`."""

    def __init__(self, graph: str, law: str, index: int, seed: int) -> None:
        rng = np.random.default_rng([seed, GRAPHS.index(graph), LAWS.index(law), index])
        if graph == "third-order chain":
            states, scopes = chain(10, STATES, 3)
        else:
            states, scopes = erdos_renyi(10, STATES, 0.3, int(rng.integers(2**31)))
        domain = Domain(
            variables=tuple(range(len(states))), states=tuple(tuple(range(k)) for k in states)
        )
        self.model = ModelSpecification(domain=domain, cliques=scopes)
        self.potentials = drawn_potentials(law, len(scopes), STATES**2, rng).ravel()
        self.log_partition, self.marginals = marginal_engine(states, scopes).marginals(
            self.potentials
        )


def drawn_potentials(law: str, edges: int, cells: int, rng: np.random.Generator) -> np.ndarray:
    """Potentials of all edges, shape (edges, cells)."""
    if law.startswith("Dirichlet"):
        concentration = float(law.removeprefix("Dirichlet(").rstrip(")"))
        draws = rng.dirichlet(np.full(cells, concentration), size=edges)
        return np.log(np.maximum(draws, 1e-30))
    if law == "sparse":
        table = np.zeros((edges, cells))
        chosen = rng.choice(edges, size=max(1, round(0.3 * edges)), replace=False)
        table[chosen] = 1.5 * rng.standard_normal((len(chosen), cells))
        return table
    return float(law.removeprefix("N(0, ").rstrip(")")) * rng.standard_normal((edges, cells))


def fits(truth: Population, release: NoisyStatistics, known: set[str]) -> list[dict[str, object]]:
    """One row an estimator on one release, those already known left out."""
    rows: list[dict[str, object]] = []
    for name, estimator in ESTIMATORS.items():
        if name in known:
            continue
        begin = time.perf_counter()
        solution = estimator.fit(release)
        seconds = time.perf_counter() - begin
        row = {
            "method": name,
            "kl": truth.divergence(solution.potentials.flat, solution.log_partition),
            "seconds": seconds,
            "status": solution.status.value,
        }
        for key in ("scale_of_order_1", "scale_of_order_2", "trust_in_evidence"):
            row[key] = solution.stats.get(key)
        rows.append(row)
    return rows


def population(graph: str, law: str, index: int, seed: int) -> list[dict[str, object]]:
    """All releases of one population, each read from the cache if it is there."""
    truth = Population(graph, law, index, seed)
    uniform = truth.divergence(np.zeros(truth.model.size), 10 * float(np.log(STATES)))
    rows: list[dict[str, object]] = []
    for records, epsilon in product(RECORDS, EPSILONS):
        path = (
            CACHE
            / f"{seed}-{GRAPHS.index(graph)}-{LAWS.index(law)}-{index}-{records}-{epsilon}.json"
        )
        if path.exists():
            found = json.loads(path.read_text())
        else:
            found = []
        known = {row["method"] for row in found}
        if not known >= set(ESTIMATORS):
            rng = np.random.default_rng(
                [seed, GRAPHS.index(graph), LAWS.index(law), index, records]
            )
            counts = truth.counts(records, rng)
            scale = len(truth.model.cliques) / epsilon
            stop = 1 - np.exp(-1 / scale)
            noise = np.random.default_rng(
                [seed, LAWS.index(law), index, records, int(1e3 * epsilon)]
            )
            noisy = counts + noise.geometric(stop, counts.size) - noise.geometric(stop, counts.size)
            release = NoisyStatistics.from_tables(
                truth.model, dict(truth.model.tables(noisy)), noise=DiscreteLaplace(scale)
            )
            found += fits(truth, release, known)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".part")
            temporary.write_text(json.dumps(found))
            temporary.replace(path)
        cell = {
            "graph": graph,
            "law": law,
            "population": index,
            "records": records,
            "epsilon": epsilon,
        }
        rows += [{**cell, "uniform": uniform, **row} for row in found]
    return rows


def report(frame: pd.DataFrame) -> str:
    """Markdown tables: geometric means relative to the best scale and ridge, by band and by law; times."""
    key = ["graph", "law", "population", "records", "epsilon"]
    wide = frame.pivot_table(index=key, columns="method", values="kl")
    scale = wide[[c for c in wide.columns if "scale" in c]].min(axis=1)
    ridge = wide[[c for c in wide.columns if "naive, ridge" in c]].min(axis=1)
    uniform = frame.groupby(key)["uniform"].first().reindex(wide.index)
    bands = pd.cut(
        ridge / uniform, [0, 0.1, 0.5, np.inf], labels=["high signal", "middle", "low signal"]
    )
    by_law = wide.index.get_level_values("law")
    parts = []
    for title, best in (
        ("the best of ten prior scales", scale),
        ("naive MLE's best of five ridges", ridge),
    ):
        ratio = np.log(wide.div(best, axis=0))
        shown = ratio[
            [
                m
                for m in ESTIMATORS
                if m in ratio.columns and "scale" not in m and "ridge 0" not in m
            ]
        ]
        means = np.exp(shown.groupby(bands, observed=True).mean()).T
        means.columns = [f"{band} ({(bands == band).sum()} releases)" for band in means.columns]
        parts.append(
            f"### Geometric mean of KL relative to {title} in hindsight\n\n{_markdown(means)}"
        )
        default = ratio["noise-aware, learned"].groupby([by_law, bands], observed=True).mean()
        laws = np.exp(default).unstack().reindex(list(LAWS)).rename_axis(None)
        parts.append(f"### The learned scale by law, relative to {title}\n\n{_markdown(laws)}")
    seconds = frame.groupby("method")["seconds"].describe(percentiles=[0.5, 0.95])[["50%", "95%"]]
    parts.append(f"### Seconds a fit\n\n{_markdown(seconds.reindex(list(ESTIMATORS)))}")
    return "\n\n".join(parts)


def _markdown(table: pd.DataFrame) -> str:
    lines = [
        "| | " + " | ".join(map(str, table.columns)) + " |",
        "|---" * (len(table.columns) + 1) + "|",
    ]
    for name, row in zip(table.index, table.to_numpy(), strict=True):
        lines.append(f"| {name} | " + " | ".join(f"{value:.3g}" for value in row) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the grid and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--populations", type=int, default=POPULATIONS)
    parser.add_argument(
        "--fresh", action="store_true", help="the populations kept back until the end"
    )
    arguments = parser.parse_args()
    seed = FRESH_SEED if arguments.fresh else SEED
    tasks = list(product(range(arguments.populations), GRAPHS, LAWS))
    work = joblib.Parallel(n_jobs=arguments.jobs, return_as="generator")(
        joblib.delayed(population)(graph, law, index, seed) for index, graph, law in tasks
    )
    rows = [
        row for part in track(work, total=len(tasks), description="populations") for row in part
    ]
    frame = pd.DataFrame(rows)
    if arguments.fresh:
        name = "noise-aware-fresh.csv"
    else:
        name = "noise-aware.csv"
    frame.to_csv(Path(RESULTS) / name, index=False, float_format="%.6g")
    print(report(frame))


if __name__ == "__main__":
    main()
