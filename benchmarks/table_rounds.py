"""Effective draws of small tables, by rounds over their cells between two draws.

    OMP_NUM_THREADS=1 uv run --group benchmarks python benchmarks/table_rounds.py

Tables of whole counts (`TableEngine`) of 4, 9, 36 cells, 200 or 500 records of a Dirichlet law, N private; seed 0.
Two chains of 1,000 draws after 300 of tuning, each sweep as installed (`thin` 1) and four sweeps a draw; the fewest
effective draws are over counts, N and the logarithms of the population's probabilities. Seconds of one processor.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from arviz_stats.base import array_stats

from bayesprivmrf.inference.given_releases import gather
from bayesprivmrf.inference.posterior.whole_records.table import TableEngine, rounds_of
from bayesprivmrf.model import declare
from bayesprivmrf.noise import DiscreteLaplace
from bayesprivmrf.release import NoisyStatistics

CASES = ((2, 200, 1.0, 1.0), (2, 200, 1.0, 20.0), (3, 500, 0.5, 5.0), (6, 500, 0.2, 5.0))
"""States of each of two variables, records, concentration of the table, scale of the noise."""


def formulation(
    states: int, records: int, concentration: float, scale: float, rng: np.random.Generator
) -> TableEngine:
    """The posterior of a release of one table."""
    network = declare(
        states={"a": list(range(states)), "b": list(range(states))}, cliques=[("a", "b")]
    )
    law = DiscreteLaplace(scale)
    counts = rng.multinomial(records, rng.dirichlet(np.full(states * states, concentration)))
    noisy = (counts + law.draw(counts.shape, rng)).reshape(states, states)
    return TableEngine(
        evidence=gather(NoisyStatistics.from_tables(network, {("a", "b"): noisy}, noise=law))
    )


def main() -> None:
    """Print a line for each table and number of sweeps."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    formulation(*CASES[0], np.random.default_rng(0)).chain(rng).run(1, 1)  # loads the compiled code
    for case in CASES:
        table = formulation(*case, rng)
        for thin in (1, 4):
            begin = time.process_time()
            kept = []
            for seed in range(2):
                chain = table.chain(np.random.default_rng(seed))
                chain.run(300, thin)
                kept.append(chain.run(1000, thin))
            spent = time.process_time() - begin
            fewest = min(
                float(array_stats.ess(column, chain_axis=0, draw_axis=1, method="bulk"))
                for name in ("counts", "total", "log_rows")
                for column in np.moveaxis(
                    np.stack([one[name].reshape(1000, -1) for one in kept]).astype(float), 2, 0
                )
                if np.ptp(column) > 0
            )
            rounds = thin * int(rounds_of(case[0] ** 2))
            print(
                f"{case[0] ** 2} cells, scale {case[3]:g}, {rounds} rounds: {spent:.2f} s, {fewest:.0f} effective"
            )


if __name__ == "__main__":
    main()
