"""Processor time per 400 effective draws of both engines of a decomposable model, and the choice of `auto`.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/engine_choice.py [model ...]

Three models, each of records from Dirichlet rows, N private, continuous Laplace noise, seed 0: pairs (2x3, 3x2), a
table (3x4), and a chain of five variables of four states. Two chains of 300 draws after 200 of tuning, seed 1. The
time is of all threads, scaled to 400 effective draws in the bulk and in the tails of the worst count; constant counts
are taken as mixed. An engine whose forecast is more than twelve times the other's is not run ("-").
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from typing import Any

import numpy as np
from arviz_stats.base import array_stats

from bayesprivmrf.inference import LatentCounts
from bayesprivmrf.inference.evidence import Evidence, gather
from bayesprivmrf.inference.posterior.nuts.sampling import draw_posterior
from bayesprivmrf.inference.posterior.records.engine import ExactRecords
from bayesprivmrf.inference.posterior.records.exact_table import ExactTable
from bayesprivmrf.inference.posterior.relaxed.hyper_dirichlet import HyperDirichlet
from bayesprivmrf.model import declare
from bayesprivmrf.noise import Laplace
from bayesprivmrf.release import NoisyStatistics

MODELS = {
    "pairs": ({"a": 2, "b": 3, "c": 2}, (("a", "b"), ("b", "c"))),
    "table": ({"a": 3, "b": 4}, (("a", "b"),)),
    "chain": (dict.fromkeys("abcde", 4), (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"))),
}
RECORDS = (10**2, 10**3, 10**4, 10**5, 10**6, 10**7, 10**8, 10**9)
SCALES = (0.1, 1.0, 10.0, 100.0)
EFFECTIVE, FAR = 400, 12
METHODS: tuple[dict[str, Any], ...] = ({"method": "bulk"}, {"method": "tail", "prob": (0.05, 0.95)})


def evidence(model: str, records: int, scale: float) -> Evidence:
    """Return a release of records whose rows are uniform on the simplex."""
    states, cliques = MODELS[model]
    rng = np.random.default_rng(0)
    law = rng.dirichlet(np.ones(next(iter(states.values()))))
    for before, after in zip(states.values(), list(states.values())[1:], strict=False):
        law = law[..., np.newaxis] * rng.dirichlet(np.ones(after), size=before)
    joint = rng.multinomial(records, law.ravel()).reshape(law.shape)
    tables = {
        clique: joint.sum(axis=tuple(k for k, name in enumerate(states) if name not in clique))
        for clique in cliques
    }
    network = declare({name: list(range(size)) for name, size in states.items()}, list(cliques))
    noisy = {clique: table + rng.laplace(0, scale, table.shape) for clique, table in tables.items()}
    return gather(NoisyStatistics.from_tables(network, noisy, noise=Laplace(scale)))


def seconds(formulation: ExactRecords | HyperDirichlet) -> float:
    """Return the processor seconds per `EFFECTIVE` effective draws."""
    begin = time.process_time()
    sampled = draw_posterior(
        formulation, sampler="nutpie", draws=300, tune=200, chains=2, seed=1, settings={}, time_limit=1e-9
    )
    spent = time.process_time() - begin
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
        default=math.inf,
    )
    return spent if fewest == math.inf else spent * EFFECTIVE / fewest


def main() -> None:
    """Print a line for each model, number of records and scale of the noise."""
    warnings.simplefilter("ignore")
    for model in sys.argv[1:] or MODELS:
        whole = ExactTable if len(MODELS[model][1]) == 1 else ExactRecords
        for records in RECORDS:
            for scale in SCALES:
                found = evidence(model, records, scale)
                engines = {"exact": whole(evidence=found), "hyper-Dirichlet": HyperDirichlet(evidence=found)}
                least = min(engine.work for engine in engines.values())
                times = {
                    name: seconds(engine) if engine.work <= FAR * least else math.inf
                    for name, engine in engines.items()
                }
                taken = LatentCounts()._formulation(found, 600).name
                ratio = times[taken] / min(times.values())
                shown = " | ".join(f"{t:.2f}" if math.isfinite(t) else "-" for t in times.values())
                print(
                    f"| {model} | {records:.0e} | {scale:g} | {shown} | {taken} | {ratio:.1f} |", flush=True
                )


if __name__ == "__main__":
    main()
