"""Intervals and point estimates where the truth is not drawn from the prior.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/robustness.py --jobs 2
    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/robustness.py --jobs 2 --priors

Populations on a chain (hyper-Dirichlet engine), a 3 x 3 grid of two-state and one of three-state variables
(log-linear engine), with potentials on every edge that are weak, N(0, .05); strong, N(0, 2); sparse, N(0, 1.5) on
30 % of the edges and 0 on the rest; or logs of Dirichlet(.2) draws, many cells all but empty. N records with discrete
Laplace noise of scale m / epsilon on m tables, N private. For every release: coverage and width of the posterior's
intervals for each marginal probability and each true count, of the interval for N, and the Kullback-Leibler
divergence from the truth of the posterior's mean of μ, of `NoiseAwareMAP` and of naive MLE. On the two-state grid the
same tables are also given to the hyper-Dirichlet engine on the bags of a triangulation, and both engines' mean tables
of the edges are compared with the true ones. `--priors` gives the releases of the chain to the priors that one could
choose there instead. Fits are cached under benchmarks/results/cache, so that an interrupted run goes on: delete the
cache after a change to the library. Writes benchmarks/results/robustness.csv, or robustness-priors.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

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
PRIORS = {
    "hyper-Dirichlet, α = 1": LatentCounts(),
    "hyper-Dirichlet, α = .5": LatentCounts(concentration=0.5),
    "hyper-Dirichlet, α = .2": LatentCounts(concentration=0.2),
    "log-linear": LatentCounts(formulation="log-linear"),
}
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


def slug_of(graph: str, law: str, records: int, epsilon: float, index: int) -> str:
    return f"{list(GRAPHS).index(graph)}-{LAWS.index(law)}-{records}-{epsilon:g}-{index}"


def released(
    graph: str, law: str, records: int, epsilon: float, index: int
) -> tuple[Population, np.ndarray, NoisyStatistics, np.random.Generator]:
    """A truth, its true tables and their release, and the generator that made them."""
    rng = np.random.default_rng([SEED, *map(ord, slug_of(graph, law, records, epsilon, index))])
    truth = Population(graph, law, rng)
    counts = truth.counts(records, rng)
    scale = len(truth.model.cliques) / epsilon
    stop = 1 - np.exp(-1 / scale)
    noisy = counts + rng.geometric(stop, counts.size) - rng.geometric(stop, counts.size)
    tables = dict(truth.model.tables(noisy))
    return truth, counts, NoisyStatistics.from_tables(truth.model, tables, noise=DiscreteLaplace(scale)), rng


def posterior_of(
    estimator: LatentCounts, releases: NoisyStatistics | list[NoisyStatistics], rng: np.random.Generator
) -> Posterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains, whose status is recorded
        return estimator.fit(releases, rng=int(rng.integers(2**32)), chains=2, tune=300, draws=400, cores=1)


def coverage(posterior: Posterior, truth: Population, counts: np.ndarray, records: int) -> dict[str, float]:
    """Share of the intervals that hold what they are for."""
    found = posterior._draws.finished
    spoken = {"μ": (found.marginals, truth.marginals), "counts": (found.counts, counts)}
    spoken["N"] = (found.total[..., np.newaxis], np.array([float(records)]))
    shares = {}
    for (name, (draws, true)), level in product(spoken.items(), LEVELS):
        ends = np.quantile(draws.reshape(-1, len(true)), [0.5 - level / 2, 0.5 + level / 2], axis=0)
        shares[f"{name} at {level:.0%}"] = float(np.mean((ends[0] <= true) & (true <= ends[1])))
    return shares


def kept(name: str, make: Callable[[], Any]) -> Any:
    """What `make` gives, read from the cache if it is there."""
    path = CACHE / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text())
    found = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(found))
    temporary.replace(path)
    return found


def replicate(graph: str, law: str, records: int, epsilon: float, index: int) -> list[dict[str, object]]:
    """One release of one population, and what the three methods say of it."""
    truth, counts, release, rng = released(graph, law, records, epsilon, index)
    posterior = posterior_of(LatentCounts(), release, rng)
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
        **coverage(posterior, truth, counts, records),
    }
    if graph == "grid, 2 states" and records == 1_000 and index < TRIANGULATED:
        row |= edge_divergences(truth, release, posterior, rng)
    return [row]


def replicate_priors(
    graph: str, law: str, records: int, epsilon: float, index: int
) -> list[dict[str, object]]:
    """One release of one population under each of `PRIORS`, all with one seed."""
    truth, counts, release, rng = released(graph, law, records, epsilon, index)
    seed = rng.bit_generator.state
    rows: list[dict[str, object]] = []
    for name, estimator in PRIORS.items():
        rng.bit_generator.state = seed
        posterior = posterior_of(estimator, release, rng)
        rows.append(
            {
                "law": law,
                "records": records,
                "epsilon": epsilon,
                "index": index,
                "prior": name,
                "status": posterior.status.value,
                "r_hat": posterior.stats["r_hat"],
                "KL": truth.divergence(posterior.solution.potentials.flat),
                **coverage(posterior, truth, counts, records),
            }
        )
    return rows


def edge_divergences(
    truth: Population, release: NoisyStatistics, posterior: Posterior, rng: np.random.Generator
) -> dict[str, object]:
    """Mean KL divergence of the edges' mean tables: this posterior's, and that of a triangulated model's."""
    model = truth.model
    edges: Any = model.cliques
    chordal, _ = complete_to_chordal_graph(Graph(edges))
    bags = tuple(tuple(sorted(bag)) for bag in chordal_graph_cliques(chordal))
    larger = ModelSpecification(domain=model.domain, cliques=bags)
    empty = dict(larger.tables(np.zeros(larger.size, dtype=int)))  # under noise that leaves nothing of them
    silent = NoisyStatistics.from_tables(larger, empty, noise=DiscreteLaplace(_NOTHING), total=None)
    triangulated = posterior_of(LatentCounts(), [release, silent], rng)
    true = np.split(truth.marginals, model.offsets[1:-1])
    found: dict[str, object] = {}
    for name, fitted in (("log-linear", posterior), ("triangulated", triangulated)):
        tables = [np.asarray(fitted.solution.marginal(list(clique))).ravel() for clique in model.cliques]
        parts = [float(t @ np.log(t / q)) for t, q in zip(true, tables, strict=True)]
        found[f"edge KL, {name}"] = float(np.mean(parts))
        found[f"ESS a second, {name}"] = fitted.stats["ess_bulk"] / fitted.stats["sampling_seconds"]
    return found


def groups(frame: pd.DataFrame, *columns: str) -> Any:
    return frame.groupby(list(columns), sort=False)


def report(frame: pd.DataFrame) -> str:
    """Markdown: coverage with standard errors clustered by data set, and geometric means of divergences."""
    lines = [
        "| graph | potentials | N | ε | "
        + " | ".join(f"{name} at 90 %" for name in ("μ", "counts", "N"))
        + " | KL, posterior mean / MAP | KL, posterior mean / naive |",
        "|---" * 9 + "|",
    ]
    for key, part in groups(frame, "graph", "law", "records", "epsilon"):
        shown = shares(part)
        for other in ("noise-aware MAP", "naive MLE"):
            shown.append(ratio_of(part["KL, posterior mean"], part[f"KL, {other}"]))
        lines.append(f"| {key[0]} | {key[1]} | {key[2]:,} | {key[3]:g} | " + " | ".join(shown) + " |")
    return "\n".join([*lines, "", *triangulated(frame)])


def shares(part: pd.DataFrame) -> list[str]:
    """Coverage at 90 %, each with its standard error over data sets."""
    cover = [part[f"{name} at 90%"] for name in ("μ", "counts", "N")]
    return [f"{c.mean():.3f} ± {c.std(ddof=1) / len(c) ** 0.5:.3f}" for c in cover]


def ratio_of(one: pd.Series, other: pd.Series) -> str:
    """Geometric mean of a ratio, with its standard factor."""
    ratio = np.log(one.to_numpy() / other.to_numpy())
    return f"{np.exp(ratio.mean()):.2f} × {np.exp(ratio.std(ddof=1) / len(ratio) ** 0.5):.2f}"


def report_priors(frame: pd.DataFrame) -> str:
    """Markdown: coverage under each prior, and the divergence of its posterior mean relative to the first's."""
    lines = [
        "| potentials | N | ε | prior | μ at 90 % | counts at 90 % | N at 90 % | KL / that of α = 1 | not trusted |",
        "|---" * 9 + "|",
    ]
    for key, part in groups(frame, "law", "records", "epsilon"):
        by_prior = {name: rows for (name,), rows in groups(part, "prior")}
        for name, rows in by_prior.items():
            ratio = ratio_of(rows["KL"], by_prior[next(iter(PRIORS))]["KL"])
            doubtful = f"{np.mean(rows['status'] == 'not trusted'):.0%}"
            cells = [key[0], f"{key[1]:,}", f"{key[2]:g}", name, *shares(rows), ratio, doubtful]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def triangulated(frame: pd.DataFrame) -> list[str]:
    """Markdown: the two engines on the two-state grid."""
    lines = [
        "| potentials | N | ε | edge KL, triangulated / log-linear "
        "| effective draws a second, log-linear / triangulated |"
    ]
    lines.append("|---" * 5 + "|")
    part = frame.dropna(subset=["edge KL, triangulated"])
    for key, rows in groups(part, "law", "records", "epsilon"):
        ratio = ratio_of(rows["edge KL, triangulated"], rows["edge KL, log-linear"])
        speed = np.log(rows["ESS a second, log-linear"] / rows["ESS a second, triangulated"])
        lines.append(f"| {key[0]} | {key[1]:,} | {key[2]:g} | {ratio} | {np.exp(speed.mean()):.1f} |")
    return lines


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(description="Intervals where the truth is not drawn from the prior.")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--replications", type=int, default=REPLICATIONS)
    parser.add_argument("--priors", action="store_true", help="the priors of the chain")
    arguments = parser.parse_args()
    graphs = list(GRAPHS)[:1] if arguments.priors else GRAPHS
    one, prefix = (replicate_priors, "priors-") if arguments.priors else (replicate, "")
    tasks = [
        (graph, law, *setting, index)
        for graph, law, setting in product(graphs, LAWS, SETTINGS)
        for index in range(arguments.replications)
    ]
    work: Any = joblib.Parallel(n_jobs=arguments.jobs, return_as="generator", pre_dispatch=arguments.jobs)(
        joblib.delayed(kept)(prefix + slug_of(*task), partial(one, *task)) for task in tasks
    )
    rows = [row for part in track(work, total=len(tasks), description="fits") for row in part]
    frame = pd.DataFrame(rows)
    name = "robustness-priors.csv" if arguments.priors else "robustness.csv"
    frame.to_csv(RESULTS / name, index=False, float_format="%.5g")
    print(report_priors(frame) if arguments.priors else report(frame))


if __name__ == "__main__":
    main()
