"""Suppressed cells among exact totals of rows and columns: time, status and coverage of the posterior counts.

Tables have 4 x 4 gamma-Poisson cells of shape 1 with a mean of 8 records. Counts of 1 to 4 are suppressed, and all
totals of rows and columns are exact, so that no step of one cell or of two keeps them. Tables without a suppressed
cell are left out.

    python -m benchmarks.published.suppressed --tables 5 > benchmarks/results/published-suppressed.csv

Columns: seed; suppressed cells; cells that the numbers do not determine; status; processor seconds of the fit; and
the number of undetermined cells whose 90 % interval holds the count.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import warnings

import numpy as np

import bayesprivmrf as bpm
from bayesprivmrf.noise import NoNoise, Suppressed

FIRST_SEED = 81_000
STATES = 4
MEAN = 8


def figures(seed: int) -> list[object] | None:
    """Return the figures of one table; None if no cell of it is suppressed."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.gamma(1, MEAN, size=(STATES, STATES)))
    rule = Suppressed(1, 5)
    shown = rule.draw_given(counts, rng)
    if not (shown < 0).any():
        return None
    states = list(range(STATES))
    network = bpm.declare(states={"a": states, "b": states}, cliques=[("a", "b")])
    tables = {("a", "b"): shown, "a": counts.sum(axis=1), "b": counts.sum(axis=0)}
    noise = {("a", "b"): rule, "a": NoNoise(), "b": NoNoise()}
    release = bpm.NoisyStatistics.from_tables(network, tables, noise=noise)
    begin = time.process_time()
    with warnings.catch_warnings(action="ignore"):
        posterior = bpm.LatentCounts().fit(release, rng=seed, progress_bar=False)
    seconds = time.process_time() - begin
    frame = posterior.interval(["a", "b"], of="records")
    is_open = frame.upper.to_numpy() > frame.lower.to_numpy()
    truth = counts.ravel()
    is_held = (frame.lower.to_numpy() <= truth) & (truth <= frame.upper.to_numpy())
    hidden = int((shown < 0).sum())
    held = int(is_held[is_open].sum())
    return [seed, hidden, int(is_open.sum()), posterior.status, f"{seconds:.1f}", held]


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tables", type=int, default=5)
    given = arguments.parse_args()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["seed", "suppressed", "undetermined", "status", "seconds", "held"])
    for seed in range(FIRST_SEED, FIRST_SEED + given.tables):
        row = figures(seed)
        if row is not None:
            writer.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
