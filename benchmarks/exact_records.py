"""Seconds of a sweep of whole records, and how it mixes: twelve two-state variables on a cycle.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/exact_records.py

Potentials are normal with standard deviation 0.5, seed 1; the twelve tables of neighbours get discrete Laplace noise
of scale 12, as at epsilon 1 under add-or-remove-one neighbours; N is private. One chain on one core, seconds of its
thread: 300 sweeps of tuning, then 1,000; the smallest effective number of draws is over all tables, coordinates,
scales and N. A short chain before it loads the compiled code.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.given_releases import gather
from bayesprivmrf.inference.posterior.whole_records.effects import NormalEffects
from bayesprivmrf.marginals.arrays import draw_tables
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import DiscreteLaplace
from bayesprivmrf.release import NoisyStatistics

SIZES = (500, 20_000, 100_000)
NOISE = 12.0
TUNE, DRAWS = 300, 1000


def evidence_of(records: int) -> Evidence:
    """A release of that many records."""
    domain = Domain.from_states({v: [0, 1] for v in range(12)})
    model = ModelSpecification(domain=domain, cliques=tuple((v, (v + 1) % 12) for v in range(12)))
    rng = np.random.default_rng(1)
    counts = draw_tables(
        model.cardinalities, model.scopes, 0.5 * rng.standard_normal(model.size), records, rng
    )
    law = DiscreteLaplace(NOISE)
    tables = model.tables(counts + law.draw(counts.shape, rng))
    return gather(NoisyStatistics.from_tables(model, dict(tables), noise=law))


def effective_draws(numbers: np.ndarray) -> float:
    """The smallest effective number of draws of the columns."""
    import arviz as az
    import xarray as xr

    varying = numbers[:, np.ptp(numbers, axis=0) > 0]
    data = xr.Dataset({"x": (("chain", "draw", "number"), varying[np.newaxis])})
    return float(az.ess(data, method="bulk")["x"].min())


def main() -> None:
    """Print a row for each number of records."""
    warnings.simplefilter("ignore")
    NormalEffects(evidence=evidence_of(50)).sample(draws=5, tune=5, chains=1, seed=1, cores=1)
    for records in SIZES:
        formulation = NormalEffects(evidence=evidence_of(records))
        chain = formulation.chain(np.random.default_rng(1))
        chain.run(TUNE, 1)
        chain.is_tuning = False
        begin = time.thread_time()
        kept = chain.run(DRAWS, 1)
        seconds = (time.thread_time() - begin) / DRAWS
        worst = effective_draws(
            np.concatenate([values.reshape(DRAWS, -1) for values in kept.values()], axis=1)
        )
        print(
            f"{records:>8,} records: {1e3 * seconds:.1f} ms a sweep, effective draws {worst:.0f} of {DRAWS}"
        )


if __name__ == "__main__":
    main()
