"""Quick intervals for the records' own answers: coverage and width, by model, noise, size, and who knows N.

Random potentials of standard deviation .7 on three models: a chain of five variables of three states; two triples
that share a variable, of three states; six triples round a cycle of six variables of two states. Each table gets
Laplace noise of scale 8 or discrete Gaussian noise of that variance. A row a setting: the share of 90 % intervals of
`interval(..., of="records")` that hold the records' counts, of rows that are not doubtful and of the others, for
variables inside a clique and for those of no clique; the median width, and that of the population's in records.

    OMP_NUM_THREADS=1 uv run python benchmarks/records_answers.py --replications 25

With --hard: 500 records, potentials of standard deviation 2, so that most cells are nearly empty, noise of scale 25.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import warnings

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf.privacy import DiscreteGaussian, Laplace
from bayesprivmrf.release import NoisyStatistics

NAMES = [f"x{k}" for k in range(6)]
MODELS = {
    "chain": (3, [tuple(NAMES[k : k + 2]) for k in range(4)]),
    "two triples": (3, [tuple(NAMES[:3]), tuple(NAMES[2:5])]),
    "cycle of triples": (2, [tuple(NAMES[(k + j) % 6] for j in range(3)) for k in range(6)]),
}
ASKED = {
    "chain": ([("x0", "x1"), ("x3", "x4"), ("x1",)], [("x0", "x4"), ("x0", "x2", "x4")]),
    "two triples": (
        [("x0", "x1", "x2"), ("x2", "x3", "x4"), ("x1",)],
        [("x0", "x4"), ("x0", "x2", "x4")],
    ),
    "cycle of triples": (
        [("x0", "x1", "x2"), ("x5", "x0", "x1"), ("x1",)],
        [("x0", "x3"), ("x0", "x2", "x4")],
    ),
}
SETTINGS = [(1_000, "public"), (1_000, "private"), (20_000, "private")]
HARD = [(500, "public"), (500, "private")]


def margin(counts, scope):
    """A table of the records, axes as asked."""
    axes = [NAMES.index(v) for v in scope]
    kept = counts.sum(axis=tuple(k for k in range(counts.ndim) if k not in axes))
    return kept.transpose(np.argsort(np.argsort(axes)))


def simulated(rng, model, records, deviation):
    """Counts of records in all joint states, from random potentials."""
    states, cliques = MODELS[model]
    width = 1 + max(NAMES.index(v) for clique in cliques for v in clique)
    log = np.zeros((states,) * width)
    for clique in cliques:
        axes = sorted(NAMES.index(v) for v in clique)
        log += rng.normal(0, deviation, [states if k in axes else 1 for k in range(width)])
    share = np.exp(log - log.max())
    return rng.multinomial(records, (share / share.sum()).ravel()).reshape(log.shape).astype(float)


def one(rng, model, law, records, known, deviation):
    """A row for each cell that is asked."""
    states, cliques = MODELS[model]
    counts = simulated(rng, model, records, deviation)
    network = bpm.declare({v: range(states) for v in NAMES[: counts.ndim]}, cliques)
    tables = {c: margin(counts, c) + law.draw((states,) * len(c), rng) for c in cliques}
    total = records if known == "public" else None
    fit = bpm.NoiseAwareMAP().fit(
        NoisyStatistics.from_tables(network, tables, noise=law, total=total)
    )
    rows = []
    for place, scopes in zip(("a clique", "none"), ASKED[model], strict=True):
        for scope in scopes:
            frame = fit.interval(list(scope), of="records")
            population = fit.interval(list(scope))
            truth = margin(counts, scope).ravel()
            rows += [
                {
                    "inside": place,
                    "rows": "doubtful" if status == "doubtful" else "others",
                    "held": bool(lower - 1e-9 <= count <= upper + 1e-9),
                    "width": upper - lower,
                    "population's": records * (high - low),
                }
                for status, count, lower, upper, low, high in zip(
                    frame["status"],
                    truth,
                    frame["lower"],
                    frame["upper"],
                    population["lower"],
                    population["upper"],
                    strict=True,
                )
            ]
    return rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replications", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hard", action="store_true")
    options = parser.parse_args()
    if options.hard:
        scale = 25.0
        deviation = 2.0
        settings = HARD
    else:
        scale = 8.0
        deviation = 0.7
        settings = SETTINGS
    laws = {"Laplace": Laplace(scale), "Gaussian": DiscreteGaussian.of_variance(2 * scale**2)}
    warnings.simplefilter("ignore")
    for model in MODELS:
        for name, law in laws.items():
            for records, known in settings:
                rngs = np.random.default_rng(options.seed).spawn(options.replications)
                frame = pd.DataFrame(
                    [row for rng in rngs for row in one(rng, model, law, records, known, deviation)]
                )
                groups = frame.groupby(["inside", "rows"])
                found = groups[["width", "population's"]].median().round(1)
                found.insert(0, "held", groups["held"].mean().round(3))
                found.insert(0, "cells", groups.size())
                print(f"{model}, {name}, {records:,} ({known})\n{found.to_string()}\n", flush=True)


if __name__ == "__main__":
    main()
