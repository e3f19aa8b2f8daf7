"""Coverage of 90 % intervals in cells that may be empty or nearly full, compared with equal tails.

Run: python benchmarks/empty_cells.py [--seeds 4] [--sets biofam bfi] [--estimators map posterior] [--keep FILE]

Populations are real tables: variables x, y, z with the shares p(x, y) p(y, z) / p(y) of the data, so that both
cliques have the tables of the data, empty cells included. N records are drawn from them, and their two tables get
discrete Laplace noise of scale 2 / epsilon, N private. Each fit answers for all cells of both cliques and of each
variable, of the population and of the records; cells are grouped by the population's probability. The same draws, or
errors, also give the limits of equal tails. The output is Markdown: coverage, the number of cells, and the mean width
divided by that of equal tails. With `--keep` the cells of earlier runs in that file are included. The data are in
../shared/data beside the repository, or in the folder given by --data.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf.inference import limits
from bayesprivmrf.noise import DiscreteLaplace
from bayesprivmrf.release import NoisyStatistics

LEVEL = 0.9
SETS = {
    "biofam": ("biofam_states.csv", ["a15", "a18", "a21"]),
    "biofam, young": ("biofam_states.csv", ["a15", "a16", "a17"]),
    "adult": ("adult.csv", ["education-num", "occupation", "race"]),
    "adult, countries": ("adult.csv", ["native-country", "race", "capital-gain"]),
    "bfi": ("bfi.csv", ["A1", "A2", "A3"]),
    "nltcs": ("nltcs.csv", ["0", "5", "9"]),
    "adult, work": ("adult.csv", ["race", "workclass", "sex"]),
    "adult, marriage": ("adult.csv", ["marital-status", "relationship", "race"]),
}
SETTINGS = [(1_000, 1.0), (10_000, 0.3), (10_000, 3.0)]
EDGES = [0.0, 1e-12, *np.geomspace(1e-5, 5e-3, 6), 0.9, 1.01]
NAMES = [
    "0",
    "below 1e-5",
    *(f"{a:.1e} to {b:.1e}" for a, b in pairwise(EDGES[2:8])),
    "to 0.9",
    "above 0.9",
]


def population(path: Path, variables: list[str]) -> np.ndarray:
    """Shares of x, y and z, shape (K_x, K_y, K_z)."""
    data = pd.read_csv(path, usecols=variables)[variables].astype(object).fillna("missing")
    codes = [pd.factorize(data[v], sort=False)[0] for v in variables]
    first, second = (
        pd.crosstab(codes[k], codes[k + 1]).to_numpy(dtype=float) / len(data) for k in range(2)
    )
    return first[:, :, np.newaxis] * (second / second.sum(axis=1, keepdims=True))[np.newaxis]


@contextmanager
def equal_tails() -> Iterator[None]:
    """Give every interval the limits that it would have far from the ends of its range."""
    kept = limits._weights, limits._normal_weights
    limits._weights = lambda distance, tail: np.zeros(distance.shape[1])
    limits._normal_weights = lambda distance, tail: 0 * np.minimum(distance, 1.0)
    try:
        yield
    finally:
        limits._weights, limits._normal_weights = kept


def rows(fit: Any, law: np.ndarray, counts: np.ndarray, name: str) -> list[dict[str, Any]]:
    """A row for each cell and kind of answer."""
    found = []
    for axes in ((0, 1), (1, 2), (0,), (1,), (2,)):
        others = tuple({0, 1, 2} - set(axes))
        share = law.sum(axis=others).ravel()
        own = counts.sum(axis=others).ravel()
        for of, truth in (("population", share), ("records", own)):
            asked = ["xyz"[a] for a in axes]
            frame = fit.interval(asked, LEVEL, of=of)
            with equal_tails():
                before = fit.interval(asked, LEVEL, of=of)
            for label, one in (("now", frame), ("equal", before)):
                lower = one["lower"].to_numpy()
                upper = one["upper"].to_numpy()
                found += [
                    {
                        "estimator": name,
                        "of": of,
                        "tails": label,
                        "p": p,
                        "held": held,
                        "width": width,
                    }
                    for p, held, width in zip(
                        share, (lower <= truth) & (truth <= upper), upper - lower, strict=True
                    )
                ]
    return found


def main() -> None:
    """Fit, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--estimators", nargs="+", default=["map", "posterior"])
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    for place, (name, (file, variables)) in enumerate(SETS.items()):
        if name not in options.sets:
            continue
        law = population(options.data / name.partition(",")[0] / file, variables)
        states = {v: list(range(k)) for v, k in zip("xyz", law.shape, strict=True)}
        network = bpm.declare(states, [("x", "y"), ("y", "z")])
        for records, epsilon in SETTINGS:
            for seed in range(options.seeds):
                rng = np.random.default_rng([seed, place, records, int(10 * epsilon)])
                counts = rng.multinomial(records, law.ravel()).reshape(law.shape)
                noise = DiscreteLaplace(2 / epsilon)
                tables = {
                    (a, b): counts.sum(axis=axis) + noise.draw(counts.sum(axis=axis).shape, rng)
                    for a, b, axis in (("x", "y", 2), ("y", "z", 0))
                }
                release = NoisyStatistics.from_tables(network, tables, noise=noise)
                for estimator in options.estimators:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        if estimator == "map":
                            fit: Any = bpm.NoiseAwareMAP().fit(release)
                        else:
                            fit = bpm.LatentCounts().fit(
                                release, rng=seed, draws=500, tune=500, chains=2
                            )
                    own = f"{name}, {records}, {epsilon}, {seed}, {estimator}"
                    found += [
                        {**row, "fit": own, "status": fit.status.value}
                        for row in rows(fit, law, counts, estimator)
                    ]
    table = pd.DataFrame(found)
    if options.keep is not None:
        if options.keep.exists():
            table = pd.concat([pd.read_csv(options.keep), table])
        table.to_csv(options.keep, index=False)
    print(
        table.drop_duplicates("fit").groupby(["estimator", "status"]).size().to_string(), flush=True
    )
    table["size"] = pd.cut(table["p"], EDGES, right=False, labels=NAMES)
    for (estimator, of), part in table.groupby(["estimator", "of"]):
        print(f"\n{estimator}, of the {of}\n")
        print("| probability | cells | equal tails | now | width |\n|---|---|---|---|---|")
        for size, own in part.groupby("size", observed=True):
            now, equal = (own[own["tails"] == label] for label in ("now", "equal"))
            print(
                f"| {size} | {len(now):,} | {equal['held'].mean():.3f} | {now['held'].mean():.3f} "
                f"| {now['width'].sum() / max(equal['width'].sum(), 1e-300):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
