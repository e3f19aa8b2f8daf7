"""Counts of people from noisy census measurements: the posterior, least squares, and a flat prior above zero.

Run: python benchmarks/rhode_island.py [--level Tract|Block_Group] [--draws 10] [--first 1]
Truth: ../shared/data/pl94_ri beside the repository (or its path by --data): 29,225 people of Rhode Island by area,
voting age (2), Hispanic (2) and race (63). Noise: normal, rounded, with the published variance of each query;
`detailed` is summed over eight kinds of quarters. At the level of block groups those of their tracts are measured
too. Every draw of the noise, with the seeds `first`, `first` + 1, ..., is fitted by

- `LatentCounts().fit(release, rng=seed, draws=400)`: 90 % intervals of the true counts (`of="records"`),
- generalised least squares written afresh, tract by tract with dense solves, and its normal interval,
- the normal law of least squares cut off at zero, cell by cell: a flat prior on counts that cannot be negative.

Intervals are widened to whole counts. Cells are grouped by the size of the true count, and by that of each method's
own estimate. Errors are root mean squares, widths medians. Writes Markdown to stdout.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.privacy import Gaussian
from bayesprivmrf.release import Measurement, NoisyStatistics

SCOPES = {
    "total": (),
    "cenrace": ("race",),
    "hispanic": ("hispanic",),
    "votingage": ("age",),
    "hispanic * cenrace": ("hispanic", "race"),
    "votingage * cenrace": ("age", "race"),
    "votingage * hispanic": ("age", "hispanic"),
    "votingage * hispanic * cenrace": ("age", "hispanic", "race"),
    "detailed": ("age", "hispanic", "race"),
}
STATES = {"age": ["<18", "18+"], "hispanic": ["no", "yes"], "race": [str(r) for r in range(1, 64)]}
CELLS = 252
SIZES = [
    ("0", 0, 0.5),
    ("1 to 9", 0.5, 9.5),
    ("10 to 49", 9.5, 49.5),
    ("1 to 49", 0.5, 49.5),
    ("50 or more", 49.5, np.inf),
]
METHODS = ["posterior", "least squares", "cut off at zero"]


class Truth:
    """True counts at one level, and what is measured of them."""

    def __init__(self, data: Path, level: str) -> None:
        people = pd.read_csv(data / "blocks.csv", dtype=str).astype({"count": int})
        budget = pd.read_csv(data / "budget.csv")
        self.variances = {(b.level, b.query): b.variance for b in budget.itertuples()}
        area = "tract" if level == "Tract" else "block_group"
        ages = sorted(people["voting_age"].unique(), key=lambda label: label == "18+")
        self.areas = sorted(people[area].unique())
        self.tract = people.groupby(area)["tract"].first().to_dict()
        index = pd.MultiIndex.from_product([self.areas, ages, STATES["hispanic"], STATES["race"]])
        sums = people.groupby([area, "voting_age", "hispanic", "race"])["count"].sum()
        self.counts = sums.reindex(index, fill_value=0).to_numpy(float)
        self.network = bpm.declare({"area": self.areas, **STATES}, [("area", *STATES)])
        self.levels = ["Tract"] if level == "Tract" else ["Block_Group", "Tract"]
        tracts = sorted(set(self.tract.values()))
        self.blocks = np.repeat([tracts.index(self.tract[name]) for name in self.areas], CELLS)
        self.groups = {t: [name for name in self.areas if self.tract[name] == t] for t in tracts}

    def release(self, seed: int) -> NoisyStatistics:
        """One draw of the noise."""
        rng, measurements = np.random.default_rng(seed), []
        for level in self.levels:
            for name, scope in SCOPES.items():
                variance = self.variances[level, name] * (8 if name == "detailed" else 1)
                is_coarse = level == "Tract" and len(self.levels) > 1
                query = (
                    q.coarsened("area", *scope, area=self.groups) if is_coarse else q.table("area", *scope)
                )
                exact = query.bind(self.network).in_cliques @ self.counts
                noisy = exact + np.rint(rng.normal(0, variance**0.5, exact.size))
                measurements.append(Measurement(query, noisy, Gaussian(variance**0.5)))
        return NoisyStatistics.from_measurements(self.network, measurements)

    def least_squares(self, release: NoisyStatistics) -> tuple[np.ndarray, np.ndarray]:
        """Counts and standard deviations; tracts share no measured number."""
        from scipy.sparse import vstack

        assert release.measurements is not None
        rows = vstack([m.query.bind(self.network).in_cliques for m in release.measurements]).tocsr()
        variances = np.concatenate([np.full(len(m.values), m.noise.variance) for m in release.measurements])
        values = np.concatenate([m.values for m in release.measurements])
        weighted = rows.multiply(1 / variances[:, np.newaxis]).tocsr()
        information, score = (rows.T @ weighted).tocsr(), weighted.T @ values
        counts, deviations = np.zeros(len(score)), np.zeros(len(score))
        for block in np.unique(self.blocks):
            inside = np.flatnonzero(self.blocks == block)
            inverse = np.linalg.inv(information[inside][:, inside].toarray())
            counts[inside], deviations[inside] = inverse @ score[inside], np.sqrt(np.diag(inverse))
        return counts, deviations


def cut_off(mean: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and 90 % interval of a normal law above zero."""
    below = norm.sf(mean / deviation)
    lower, upper = (mean - deviation * norm.ppf((1 - below) * (1 - p)) for p in (0.05, 0.95))
    return (
        mean + deviation * np.exp(norm.logpdf(mean / deviation) - norm.logcdf(mean / deviation)),
        lower,
        upper,
    )


def fitted(truth: Truth, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(estimate, lower, upper) by method, and how the posterior ended."""
    release = truth.release(seed)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = bpm.LatentCounts().fit(release, rng=seed, draws=400)
    seconds = time.perf_counter() - begin
    table = posterior.interval(["area", *STATES], prob=0.9, of="records")
    mean, deviation = truth.least_squares(release)
    half = norm.ppf(0.95) * deviation
    how = {"status": str(posterior.status), "seconds": seconds, **posterior.stats}
    return {
        "posterior": tuple(table[name].to_numpy() for name in ("estimate", "lower", "upper")),
        "least squares": (mean, mean - half, mean + half),
        "cut off at zero": cut_off(mean, deviation),
    }, how


def rows_of(counts: np.ndarray, fits: list[dict[str, Any]], *, by_truth: bool) -> list[str]:
    """One row a size: cells, then coverage, error and width by method."""
    rows = []
    for label, low, high in SIZES:
        row = [label]
        for method in METHODS:
            held, errors, widths = [], [], []
            for fit in fits:
                estimate, lower, upper = fit[method]
                size = counts if by_truth else estimate
                inside = (size < high) if low == 0 else (size >= low) & (size < high)
                held.append((np.floor(lower) <= counts)[inside] & (counts <= np.ceil(upper))[inside])
                errors.append((estimate - counts)[inside])
                widths.append((upper - lower)[inside])
            held, errors, widths = (np.concatenate(parts) for parts in (held, errors, widths))
            row += [f"{len(held) / len(fits):,.0f}", f"{held.mean():.3f}"]
            row += [f"{np.sqrt(np.mean(errors**2)):.2f}", f"{np.median(widths):.1f}"]
        rows.append("| " + " | ".join(row) + " |")
    return rows


def main() -> None:
    """Fit all draws and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--level", choices=["Tract", "Block_Group"], default="Tract")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data" / "pl94_ri"
    )
    arguments = parser.parse_args()
    truth = Truth(arguments.data, arguments.level)
    fits, ends = zip(
        *(fitted(truth, seed) for seed in range(arguments.first, arguments.first + arguments.draws)),
        strict=True,
    )
    for by_truth in (False, True):
        print(f"\nBy the size of the {'true count' if by_truth else 'estimate'}, {arguments.level}:\n")
        print("| size |" + "".join(f" cells, {m} | hold | error | width |" for m in METHODS))
        print("|---|" + "---|" * 12)
        print("\n".join(rows_of(truth.counts, list(fits), by_truth=by_truth)))
    seconds = [end["seconds"] for end in ends]
    print(f"\nSeconds a fit: {np.median(seconds):.0f} (at most {max(seconds):.0f}); status:", end=" ")
    print(", ".join(f"{end['status']} (R-hat {end['r_hat']:.2f})" for end in ends))
    errors = [(end["total"] - truth.counts.sum()) / end["total_standard_error"] for end in ends]
    print(
        f"N less the truth, in standard errors of the release's own estimate: {np.round(errors, 2).tolist()}"
    )
    print(f"Peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


if __name__ == "__main__":
    main()
