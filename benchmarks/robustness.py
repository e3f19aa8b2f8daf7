"""Intervals and point estimates where the truth is not drawn from the prior.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/robustness.py --jobs 2
    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/robustness.py --study sticky --quick --seconds 600
    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/robustness.py --jobs 2 --priors
    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/robustness.py --only "grid.*0.1" --out grid

Populations of robustness_truths.py: random potentials on chains, grids and a three-way model; panels of sticky
states; tables of which four cells in five are empty. N records with discrete Laplace noise of scale m / epsilon on m
tables, N private. A row a release: coverage of the posterior's 90 % intervals for each marginal probability, with
and without those marked as the prior's, for each true count and for N; how the sampling ended and how long it took;
and the Kullback-Leibler divergence from the truth of the posterior's mean of μ, of `NoiseAwareMAP` and of naive MLE.
On the two-state grid the same tables are also given to the hyper-Dirichlet engine on the bags of a triangulation, and
both engines' mean tables of the edges are compared with the true ones. `--priors` gives the releases of the first
chain to the priors that one could choose there instead.

A fit is called wrong where fewer than three quarters of its intervals hold the truth. They depend on each other, so a
right posterior has such fits too: how often, each says itself. With μ⁽ˢ⁾ its draws, *expected* is the share of the
draws for which fewer than three quarters of the intervals hold μ⁽ˢ⁾. Where truths are draws of the prior its mean is
the share of wrong fits. *Tail* is the share of draws of which no more intervals hold than of the truth: uniform, but
for ties, where the prior is right.

Replications come one after the other, each over all cells in a shuffled order, so that `--seconds` leaves a fair
sample behind. Fits are cached under benchmarks/results/cache, and an interrupted run goes on: delete the cache after
a change to the library. `--only` takes the cells whose description, such as "grid, 3 states; N(0, 2); 1000; 0.1", has
the regular expression. Writes benchmarks/results/robustness-learned.csv, or robustness-NAME.csv.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import joblib
import numpy as np
import pandas as pd
from networkx import Graph, chordal_graph_cliques, complete_to_chordal_graph
from rich.progress import track
from robustness_report import CELL, WRONG, panels, report, report_priors
from robustness_truths import STUDIES, Cell, Population

from bayesprivmrf.inference import LatentCounts, NaiveMLE, NoiseAwareMAP
from bayesprivmrf.inference.posterior.results.posterior import Posterior
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.privacy import DiscreteLaplace
from bayesprivmrf.release import NoisyStatistics

RESULTS = Path(__file__).parent / "results"
CACHE = RESULTS / "cache" / "robustness"
PRIORS = {
    "α = 1": LatentCounts(concentration=1.0),
    "α = .5": LatentCounts(concentration=0.5),
    "α = .2": LatentCounts(concentration=0.2),
    "log-linear": LatentCounts(formulation="log-linear"),
    "learned": LatentCounts(),
}
REPLICATIONS, QUICK, TRIANGULATED = 25, 2, 2
FIT_SECONDS = 20.0
LEVEL = 0.9
SCORES = (
    "total_score",
    "pressed_score",
    "prior_fit_score",
    "prior_fit_open",
    "learned_score",
    "half_counts_per_record",
)
_NOTHING = 1e7


def released(
    cell: Cell, index: int
) -> tuple[Population, np.ndarray, NoisyStatistics, np.random.Generator]:
    """A truth, its true tables and their release, and the generator that made them."""
    rng = cell.rng(index)
    truth = Population(cell.graph, cell.law, rng)
    counts = truth.counts(cell.records, rng)
    return truth, counts, truth.release(counts, cell.epsilon, rng), rng


def posterior_of(
    estimator: LatentCounts,
    releases: NoisyStatistics | list[NoisyStatistics],
    rng: np.random.Generator,
    limit: float,
) -> Posterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains, whose status is recorded
        return estimator.fit(
            releases, rng=int(rng.integers(2**32)), chains=2, tune=300, draws=400, time_limit=limit
        )


def coverage(
    posterior: Posterior, truth: Population, counts: np.ndarray, records: int
) -> dict[str, float]:
    """Share of the 90 % intervals that hold what they are for."""
    model = truth.model
    held: list[Any] = []
    for clique, true in zip(model.cliques, truth.tables, strict=True):
        frame = posterior.interval(list(clique), prob=LEVEL)
        frame["prior"] = frame["note"].str.contains("the prior decides")
        frame["holds"] = (frame["lower"] <= true) & (true <= frame["upper"])
        held.append(frame)
    rows: Any = pd.concat(held)
    own = np.asarray(rows["prior"], dtype=bool)
    found = posterior._draws.finished
    ends = [0.5 - LEVEL / 2, 0.5 + LEVEL / 2]
    of_draws = held_of_draws(posterior)
    low, high = np.quantile(found.counts.reshape(-1, counts.size), ends, axis=0)
    few, many = np.quantile(found.total, ends)
    return {
        "μ": float(rows["holds"].mean()),
        "μ, not the prior's": float(rows["holds"][~own].mean()),
        "the prior's": float(own.mean()),
        "expected": float(np.mean(of_draws < WRONG)),
        "tail": float(np.mean(of_draws <= rows["holds"].mean() + 1e-9)),
        "counts": float(np.mean((np.rint(low) <= counts) & (counts <= np.rint(high)))),
        "N": float(np.rint(few) <= records <= np.rint(many)),
    }


def held_of_draws(posterior: Posterior) -> np.ndarray:
    """Share of the marginals' intervals that hold each draw, shape (draws,)."""
    found = posterior._draws.finished.marginals
    marginals = found.reshape(-1, found.shape[-1])
    low, high = np.quantile(marginals, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], axis=0)
    return ((low <= marginals) & (marginals <= high)).mean(axis=1)


def outcome(
    posterior: Posterior, truth: Population, counts: np.ndarray, records: int
) -> dict[str, object]:
    """How the sampling ended, and what it says."""
    return {
        "formulation": posterior.stats["formulation"],
        "status": posterior.status.value,
        "r_hat": posterior.stats["r_hat"],
        "seconds": posterior.stats["seconds"],
        "KL, posterior mean": truth.divergence(posterior.solution.potentials.flat),
        **coverage(posterior, truth, counts, records),
        **{name: posterior.stats.get(name) for name in SCORES},
        "problems": "; ".join(posterior.stats["problems"]),
    }


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


def described(study: str, cell: Cell, index: int) -> dict[str, object]:
    values = (study, cell.graph, cell.law, cell.records, cell.epsilon)
    return {**dict(zip(CELL, values, strict=True)), "index": index}


def replicate(
    study: str, cell: Cell, index: int, limit: float = FIT_SECONDS
) -> list[dict[str, object]]:
    """One release of one population, and what the three methods say of it."""
    truth, counts, release, rng = released(cell, index)
    posterior = posterior_of(LatentCounts(), release, rng, limit)
    row: dict[str, object] = {
        **described(study, cell, index),
        **outcome(posterior, truth, counts, cell.records),
        "KL, noise-aware MAP": truth.divergence(NoiseAwareMAP().fit(release).potentials.flat),
        "KL, naive MLE": truth.divergence(NaiveMLE().fit(release).potentials.flat),
    }
    if cell.graph == "grid, 2 states" and cell.records == 1_000 and index < TRIANGULATED:
        row |= edge_divergences(truth, release, posterior, rng, limit)
    return [row]


def replicate_priors(
    study: str, cell: Cell, index: int, limit: float = FIT_SECONDS
) -> list[dict[str, object]]:
    """One release of one population under each of `PRIORS`, all with one seed."""
    truth, counts, release, rng = released(cell, index)
    seed = rng.bit_generator.state
    rows: list[dict[str, object]] = []
    for name, estimator in PRIORS.items():
        rng.bit_generator.state = seed
        posterior = posterior_of(estimator, release, rng, limit)
        found = outcome(posterior, truth, counts, cell.records)
        rows.append({**described(study, cell, index), "prior": name, **found})
    return rows


def edge_divergences(
    truth: Population,
    release: NoisyStatistics,
    posterior: Posterior,
    rng: np.random.Generator,
    limit: float,
) -> dict[str, object]:
    """Mean KL divergence of the edges' mean tables: this posterior's, and that of a triangulated model's."""
    model = truth.model
    edges: Any = model.cliques
    chordal, _ = complete_to_chordal_graph(Graph(edges))
    bags = tuple(tuple(sorted(bag)) for bag in chordal_graph_cliques(chordal))
    larger = ModelSpecification(domain=model.domain, cliques=bags)
    # under noise that leaves nothing of them
    empty = dict(larger.tables(np.zeros(larger.size, dtype=int)))
    silent = NoisyStatistics.from_tables(larger, empty, noise=DiscreteLaplace(_NOTHING), total=None)
    triangulated = posterior_of(LatentCounts(), [release, silent], rng, limit)
    true = np.split(truth.marginals, model.offsets[1:-1])
    found: dict[str, object] = {}
    for name, fitted in (("log-linear", posterior), ("triangulated", triangulated)):
        tables = [
            np.asarray(fitted.solution.marginal(list(clique))).ravel() for clique in model.cliques
        ]
        parts = [float(t @ np.log(t / q)) for t, q in zip(true, tables, strict=True)]
        found[f"edge KL, {name}"] = float(np.mean(parts))
        found[f"ESS a second, {name}"] = fitted.stats["ess_bulk"] / fitted.stats["sampling_seconds"]
    return found


def tasks_of(arguments: argparse.Namespace) -> list[tuple[str, Cell, int]]:
    """What is to be fitted, a replication of every cell before the next."""
    studies = {study: STUDIES[study] for study in arguments.study}
    if arguments.priors:
        studies = {
            "potentials": [
                cell for cell in STUDIES["potentials"] if cell.graph == "chain, 3 states"
            ]
        }
    if arguments.quick:
        replications = QUICK
    else:
        replications = arguments.replications
    cells = [
        (study, cell)
        for study, its in studies.items()
        for cell in its
        if re.search(arguments.only, "; ".join(map(str, described(study, cell, 0).values())))
    ]
    return [
        (*cells[k], index) for index in range(replications) for k in _shuffled(len(cells), index)
    ]


def _shuffled(size: int, index: int) -> list[int]:
    """An order in which the cells of one replication are fitted: any beginning of it is a fair sample."""
    return np.random.default_rng(index).permutation(size).tolist()


def main() -> None:
    """Run the study and print its table."""
    parser = argparse.ArgumentParser(
        description="Intervals where the truth is not drawn from the prior."
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--study", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--replications", type=int, default=REPLICATIONS)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} replications of every cell")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no fit after this time"
    )
    parser.add_argument(
        "--limit", type=float, default=FIT_SECONDS, help="`time_limit` of each fit, seconds"
    )
    parser.add_argument(
        "--only", default="", help="a regular expression: the cells whose description has it"
    )
    parser.add_argument("--out", help="the end of the file's name")
    parser.add_argument(
        "--panels", type=Path, help="a CSV file for the table of all kinds of truth"
    )
    parser.add_argument("--priors", action="store_true", help="the priors of the chain")
    arguments = parser.parse_args()
    if arguments.priors:
        one = replicate_priors
        prefix = "priors-"
    else:
        one = replicate
        prefix = ""
    tasks = tasks_of(arguments)
    stop = time.monotonic() + arguments.seconds

    def begun() -> Iterator[Any]:
        for task in tasks:
            if time.monotonic() > stop:
                return
            yield joblib.delayed(kept)(
                prefix + task[1].slug(task[2]), partial(one, *task, limit=arguments.limit)
            )

    work: Any = joblib.Parallel(
        n_jobs=arguments.jobs, return_as="generator", pre_dispatch=arguments.jobs
    )(begun())
    frame = pd.DataFrame(
        [row for part in track(work, total=len(tasks), description="fits") for row in part]
    )
    name = arguments.out or ("priors" if arguments.priors else "learned")
    frame.to_csv(RESULTS / f"robustness-{name}.csv", index=False, float_format="%.5g")
    if arguments.panels is not None:
        panels(frame).to_csv(arguments.panels, index=False)
    print(report_priors(frame) if arguments.priors else report(frame))


if __name__ == "__main__":
    main()
