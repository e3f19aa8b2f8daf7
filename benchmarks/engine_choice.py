"""Time per 400 effective draws of both engines of a decomposable model, and the choice of `auto`.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/engine_choice.py [--seed 91] [model ...]

Each model has records from Dirichlet rows, N private, and continuous Laplace noise. Two chains of 300 draws after 200
of tuning, seed 1. Processor seconds of all threads, and in parentheses operations in units of 10^9, are scaled to 400
effective draws in the bulk and in the tails of the worst count; constant counts are taken as mixed. More than 10^5
whole records of several cliques are not moved ("-"). The last two columns are the seconds and operations of the
engine that `auto` takes, over those of the better one.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from typing import Any

import numpy as np
from arviz_stats.base import array_stats

from bayesprivmrf.inference import LatentCounts
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.given_releases import gather
from bayesprivmrf.inference.posterior.formulation import Run
from bayesprivmrf.inference.posterior.relaxed_counts.hyper_dirichlet import HyperDirichlet
from bayesprivmrf.inference.posterior.sampling import draw_posterior
from bayesprivmrf.inference.posterior.whole_records.engine import RecordEngine, Rows
from bayesprivmrf.inference.posterior.whole_records.table import TableEngine
from bayesprivmrf.model import declare
from bayesprivmrf.noise import Laplace
from bayesprivmrf.release import NoisyStatistics

MODELS = {
    "pairs": ({"a": 2, "b": 3, "c": 2}, (("a", "b"), ("b", "c"))),
    "table": ({"a": 3, "b": 4}, (("a", "b"),)),
    "chain": (dict.fromkeys("abcde", 4), (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"))),
    "path": (
        dict.fromkeys("abcdef", 3),
        (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f")),
    ),
    "star": ({"a": 4, "b": 2, "c": 3, "d": 5}, (("a", "b"), ("a", "c"), ("a", "d"))),
    "line": ({"a": 5, "b": 2, "c": 4, "d": 3}, (("a", "b"), ("b", "c"), ("c", "d"))),
    "steps": (
        {"a": 2, "b": 5, "c": 3, "d": 2, "e": 4},
        (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")),
    ),
    "tree": (
        {"a": 3, "b": 2, "c": 4, "d": 3, "e": 2},
        (("a", "b"), ("a", "c"), ("c", "d"), ("c", "e")),
    ),
    "triples": (dict.fromkeys("abcd", 2), (("a", "b", "c"), ("b", "c", "d"))),
}
RECORDS = (10**2, 10**3, 10**4, 10**5, 10**6, 10**7, 10**8, 10**9)
SCALES = (0.1, 1.0, 10.0, 100.0)
EFFECTIVE, MOST = 400, 10**5
METHODS: tuple[dict[str, Any], ...] = ({"method": "bulk"}, {"method": "tail", "prob": (0.05, 0.95)})


def evidence(model: str, records: int, scale: float, seed: int) -> Evidence:
    """Return a release of records from the Markov random field whose conditional rows are uniform on the simplex."""
    states, cliques = MODELS[model]
    rng = np.random.default_rng(seed)
    names = list(states)
    law = np.ones(tuple(states.values()))
    known: set[str] = set()
    for clique in cliques:
        # the conditional law of the clique's new variables, given those that an earlier clique has
        given = [name for name in clique if name in known]
        new = [name for name in clique if name not in known]
        rows = rng.dirichlet(
            np.ones(math.prod(states[v] for v in new)), size=[states[v] for v in given]
        )
        own = rows.reshape([states[v] for v in (*given, *new)])
        order = sorted((*given, *new), key=names.index)
        own = np.transpose(own, [(*given, *new).index(v) for v in order])
        law = law * own.reshape([size if v in clique else 1 for v, size in states.items()])
        known.update(clique)
    joint = rng.multinomial(records, law.ravel()).reshape(law.shape)
    tables = {
        clique: joint.sum(axis=tuple(k for k, name in enumerate(states) if name not in clique))
        for clique in cliques
    }
    network = declare({name: list(range(size)) for name, size in states.items()}, list(cliques))
    noisy = {clique: table + rng.laplace(0, scale, table.shape) for clique, table in tables.items()}
    return gather(NoisyStatistics.from_tables(network, noisy, noise=Laplace(scale)))


def effort_of(formulation: RecordEngine | HyperDirichlet) -> tuple[float, float]:
    """Return processor seconds, and operations in units of 10^9, per `EFFECTIVE` effective draws."""
    begin = time.process_time()
    sampled = draw_posterior(
        formulation,
        Run(draws=300, tune=200, chains=2, seed=1),
        sampler="nutpie",
        settings={},
        time_limit=1e-9,
    )
    spent = time.process_time() - begin
    work = sampled.work
    if isinstance(formulation, RecordEngine):
        work = 2 * (200 + 300) * formulation.operations_a_sweep
    numbers = np.concatenate(
        [np.reshape(sampled.draws[name], (2, 300, -1)) for name in formulation.judged], axis=-1
    )
    ess: Any = array_stats.ess
    fewest = min(
        (
            float(ess(column, chain_axis=0, draw_axis=1, **method))
            for column in np.moveaxis(numbers.astype(float), 2, 0)
            if np.ptp(column) > 0
            for method in METHODS
        ),
        default=EFFECTIVE,
    )
    return spent * EFFECTIVE / fewest, work / 1e9 * EFFECTIVE / fewest


def main() -> None:
    """Print a line for each model, number of records and scale of the noise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=["pairs", "table", "steps"])
    parser.add_argument("--seed", type=int, default=91)
    parser.add_argument("--records", type=float, nargs="+", default=RECORDS)
    parser.add_argument("--scales", type=float, nargs="+", default=SCALES)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    pairs = evidence("pairs", 100, 1.0, 0)
    table = evidence("table", 100, 1.0, 0)
    for engine in (  # load what is compiled
        Rows(evidence=pairs),
        HyperDirichlet(evidence=pairs),
        TableEngine(evidence=table),
    ):
        effort_of(engine)
    for model in options.models:
        if len(MODELS[model][1]) == 1:
            whole = TableEngine
        else:
            whole = Rows
        for records in map(int, options.records):
            for scale in options.scales:
                found = evidence(model, records, scale, options.seed)
                engines = {
                    "exact": whole(evidence=found),
                    "hyper-Dirichlet": HyperDirichlet(evidence=found),
                }
                efforts = dict.fromkeys(engines, (math.inf, math.inf))
                for name, engine in engines.items():
                    if name != "exact" or whole is TableEngine or records <= MOST:
                        efforts[name] = effort_of(engine)
                taken = LatentCounts()._formulation(found, 600).name
                ratios = [
                    efforts[taken][k] / min(each[k] for each in efforts.values()) for k in (0, 1)
                ]
                shown = " | ".join(
                    f"{t:.2f} ({w:.1f})" if t < math.inf else "-" for t, w in efforts.values()
                )
                print(
                    f"| {model} | {records:.0e} | {scale:g} | {shown} | {taken} "
                    f"| {ratios[0]:.1f} | {ratios[1]:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
