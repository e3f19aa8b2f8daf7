"""Intervals and point estimates where the truth is not drawn from the prior.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/robustness.py --jobs 2

Populations on a chain (hyper-Dirichlet engine), a 3 x 3 grid of two-state and one of three-state variables
(log-linear engine), with potentials on every edge that are weak, N(0, .05); strong, N(0, 2); sparse, N(0, 1.5) on
30 % of the edges and 0 on the rest; or logs of Dirichlet(.2) draws, many cells all but empty. N records with discrete
Laplace noise of scale m / epsilon on m tables, N private. For every release: coverage and width of the posterior's
intervals for each marginal probability and each true count, of the interval for N, and the Kullback-Leibler
divergence from the truth of the posterior's mean of μ, of `NoiseAwareMAP` and of naive MLE. On the two-state grid the
same tables are also given to the hyper-Dirichlet engine on the bags of a triangulation, and both engines' mean tables
of the edges are compared with the true ones. Fits are cached under
benchmarks/results/cache, so that an interrupted run goes on; writes benchmarks/results/robustness.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import numpy as np
import pandas as pd
from models import chain, grid
from networkx import Graph, chordal_graph_cliques, complete_to_chordal_graph
from noise_aware import drawn_potentials
from rich.progress import track

from bayesprivmrf.inference import LatentCounts, NaiveMLE, NoiseAwareMAP
from bayesprivmrf.inference.posterior.posterior import Posterior
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import DiscreteLaplace
from bayesprivmrf.release import NoisyStatistics

RESULTS = Path(__file__).parent / "results"
CACHE = RESULTS / "cache" / "robustness"
GRAPHS = {"chain, 3 states": chain(4, 3), "grid, 2 states": grid(3, 2), "grid, 3 states": grid(3, 3)}
LAWS = ("N(0, .05)", "N(0, 2)", "sparse", "Dirichlet(.2)")
SETTINGS = ((1_000, 0.1), (1_000, 1.0), (10_000, 1.0), (10_000, 10.0))
REPLICATIONS, TRIANGULATED = 25, 2
LEVELS = (0.5, 0.9)
SEED = 31_415_926
_NOTHING = 1e7


class Population:
    """A log-linear model with known potentials."""

    def __init__(self, graph: str, law: str, rng: np.random.Generator) -> None:
        states, scopes = GRAPHS[graph]
        domain = Domain(variables=tuple(range(len(states))), states=tuple(tuple(range(k)) for k in states))
        self.model = ModelSpecification(domain=domain, cliques=scopes)
        self.potentials = drawn_potentials(law, len(scopes), states[0] ** 2, rng).ravel()
        self.engine = marginal_engine(states, scopes)
        self.log_partition, self.marginals = self.engine.marginals(self.potentials)

    def counts(self, records: int, rng: np.random.Generator) -> np.ndarray:
        """Tables of N records drawn from the model, flat."""
        states, scopes = self.model.cardinalities, self.model.scopes
        cells = np.indices(states).reshape(len(states), -1)
        log_joint = np.zeros(cells.shape[1])
        flat = [
            np.ravel_multi_index(tuple(cells[v] for v in scope), tuple(states[v] for v in scope))
            for scope in scopes
        ]
        for k, where in enumerate(flat):
            log_joint += self.potentials[self.model.offsets[k] : self.model.offsets[k + 1]][where]
        chosen = rng.multinomial(records, np.exp(log_joint - self.log_partition))
        sizes = np.diff(self.model.offsets)
        return np.concatenate(
            [np.bincount(where, chosen, size) for where, size in zip(flat, sizes, strict=True)]
        )

    def divergence(self, potentials: np.ndarray) -> float:
        """KL divergence of a model's potentials from the truth, nats."""
        log_partition, _ = self.engine.marginals(potentials)
        return float(self.marginals @ (self.potentials - potentials) - self.log_partition + log_partition)


def replicate(graph: str, law: str, records: int, epsilon: float, index: int) -> dict[str, object]:
    """One release of one population, and what the three methods say of it."""
    slug = f"{list(GRAPHS).index(graph)}-{LAWS.index(law)}-{records}-{epsilon:g}-{index}"
    path = CACHE / f"{slug}.json"
    if path.exists():
        return json.loads(path.read_text())
    rng = np.random.default_rng([SEED, *map(ord, slug)])
    truth = Population(graph, law, rng)
    counts = truth.counts(records, rng)
    scale = len(truth.model.cliques) / epsilon
    stop = 1 - np.exp(-1 / scale)
    noisy = counts + rng.geometric(stop, counts.size) - rng.geometric(stop, counts.size)
    release = NoisyStatistics.from_tables(
        truth.model, dict(truth.model.tables(noisy)), noise=DiscreteLaplace(scale)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains, whose status is recorded
        posterior = LatentCounts().fit(
            release, rng=int(rng.integers(2**32)), chains=2, tune=300, draws=400, cores=1
        )
    found = posterior._draws.finished
    row: dict[str, object] = {
        "graph": graph,
        "law": law,
        "records": records,
        "epsilon": epsilon,
        "status": posterior.status.value,
        "r_hat": posterior.stats["r_hat"],
        "KL, posterior mean": truth.divergence(posterior.solution.potentials.flat),
        "KL, noise-aware MAP": truth.divergence(NoiseAwareMAP().fit(release).potentials.flat),
        "KL, naive MLE": truth.divergence(NaiveMLE().fit(release).potentials.flat),
    }
    spoken = {"μ": (found.marginals, truth.marginals), "counts": (found.counts, counts)}
    spoken["N"] = (found.total[..., np.newaxis], np.array([float(records)]))
    for (name, (draws, true)), level in product(spoken.items(), LEVELS):
        ends = np.quantile(draws.reshape(-1, len(true)), [0.5 - level / 2, 0.5 + level / 2], axis=0)
        row[f"{name} at {level:.0%}"] = float(np.mean((ends[0] <= true) & (true <= ends[1])))
    if graph == "grid, 2 states" and records == 1_000 and index < TRIANGULATED:
        row |= edge_divergences(truth, release, posterior, int(rng.integers(2**32)))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(row))
    temporary.replace(path)
    return row


def edge_divergences(
    truth: Population, release: NoisyStatistics, posterior: Posterior, seed: int
) -> dict[str, object]:
    """Mean KL divergence of the edges' mean tables: this posterior's, and that of a triangulated model's."""
    model = truth.model
    chordal, _ = complete_to_chordal_graph(Graph(model.cliques))
    bags = tuple(tuple(sorted(bag)) for bag in chordal_graph_cliques(chordal))
    domain, noise = (
        model.domain,
        DiscreteLaplace(_NOTHING),
    )  # tables that say nothing make the model the bags'
    larger = ModelSpecification(domain=domain, cliques=bags)
    silent = NoisyStatistics.from_tables(
        larger, dict(larger.tables(np.zeros(larger.size, dtype=int))), noise=noise, total=None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        triangulated = LatentCounts().fit([release, silent], rng=seed, chains=2, tune=300, draws=400, cores=1)
    true = np.split(truth.marginals, model.offsets[1:-1])
    found: dict[str, object] = {}
    for name, fitted in (("log-linear", posterior), ("triangulated", triangulated)):
        tables = [np.asarray(fitted.solution.marginal(list(clique))).ravel() for clique in model.cliques]
        parts = [float(t @ np.log(t / q)) for t, q in zip(true, tables, strict=True)]
        found[f"edge KL, {name}"] = float(np.mean(parts))
        found[f"ESS a second, {name}"] = fitted.stats["ess_bulk"] / fitted.stats["sampling_seconds"]
    return found


def report(frame: pd.DataFrame) -> str:
    """Markdown: coverage with standard errors clustered by data set, and geometric means of divergences."""
    lines = [
        "| graph | potentials | N | ε | "
        + " | ".join(f"{name} at 90 %" for name in ("μ", "counts", "N"))
        + " | KL, posterior mean / MAP | KL, posterior mean / naive |",
        "|---" * 9 + "|",
    ]
    for key, part in frame.groupby(["graph", "law", "records", "epsilon"], sort=False):
        cover = [part[f"{name} at 90%"] for name in ("μ", "counts", "N")]
        shown = [f"{c.mean():.3f} ± {c.std(ddof=1) / len(c) ** 0.5:.3f}" for c in cover]
        for other in ("noise-aware MAP", "naive MLE"):
            ratio = np.log(part["KL, posterior mean"] / part[f"KL, {other}"])
            shown.append(f"{np.exp(ratio.mean()):.2f} × {np.exp(ratio.std(ddof=1) / len(ratio) ** 0.5):.2f}")
        lines.append(f"| {key[0]} | {key[1]} | {key[2]:,} | {key[3]:g} | " + " | ".join(shown) + " |")
    return "\n".join([*lines, "", *triangulated(frame)])


def triangulated(frame: pd.DataFrame) -> list[str]:
    """Markdown: the two engines on the two-state grid."""
    lines = [
        "| potentials | N | ε | edge KL, triangulated / log-linear "
        "| effective draws a second, log-linear / triangulated |"
    ]
    lines.append("|---" * 5 + "|")
    part = frame.dropna(subset=["edge KL, triangulated"])
    for key, rows in part.groupby(["law", "records", "epsilon"], sort=False):
        ratio = np.log(rows["edge KL, triangulated"] / rows["edge KL, log-linear"])
        speed = np.log(rows["ESS a second, log-linear"] / rows["ESS a second, triangulated"])
        lines.append(
            f"| {key[0]} | {key[1]:,} | {key[2]:g} | {np.exp(ratio.mean()):.2f} × "
            f"{np.exp(ratio.std(ddof=1) / len(ratio) ** 0.5):.2f} | {np.exp(speed.mean()):.1f} |"
        )
    return lines


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--replications", type=int, default=REPLICATIONS)
    arguments = parser.parse_args()
    tasks = [
        (graph, law, *setting, index)
        for graph, law, setting in product(GRAPHS, LAWS, SETTINGS)
        for index in range(arguments.replications)
    ]
    work = joblib.Parallel(n_jobs=arguments.jobs, return_as="generator", pre_dispatch=arguments.jobs)(
        joblib.delayed(replicate)(*task) for task in tasks
    )
    frame = pd.DataFrame(list(track(work, total=len(tasks), description="fits")))
    frame.to_csv(RESULTS / "robustness.csv", index=False, float_format="%.5g")
    print(report(frame))


if __name__ == "__main__":
    main()
