"""Counts of people from noisy census measurements: the posterior, least squares, and a flat prior above zero.

Run: python benchmarks/rhode_island.py [--level Tract|Block_Group] [--draws 10] [--first 1] [--keep FOLDER]
Truth: ../shared/data/pl94_ri beside the repository (or its path by --data): 29,225 people of Rhode Island by area,
voting age (2), Hispanic (2) and race (63). Noise: normal, rounded, with the published variance of each query;
`detailed` is summed over eight kinds of quarters. At the level of block groups those of their tracts are measured
too. Every draw of the noise, with the seeds `first`, `first` + 1, ..., is fitted by

- `LatentCounts().fit(release, rng=seed, draws=400)`: 90 % intervals of the true counts (`of="records"`),
- generalised least squares written afresh with SciPy's sparse solvers (`sparse_least_squares.py`), all areas of all
  levels together, and its normal interval,
- the normal law of least squares cut off at zero, cell by cell: a flat prior on counts that cannot be negative.

Intervals are widened to whole counts. Cells are grouped by the size of the true count, and by that of each method's
own estimate. Errors are root mean squares, widths medians. Writes Markdown to stdout.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import itertools
import json
import resource
import time
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import vstack
from scipy.stats import norm
from sparse_least_squares import SparseLeastSquares, margins, nested_rows

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
LEVELS = {"Block": "block", "Block_Group": "block_group", "Tract": "tract"}
STATES = {"age": ["<18", "18+"], "hispanic": ["no", "yes"], "race": [str(r) for r in range(1, 64)]}
CELLS = 252
SIZES_OF = {name: len(states) for name, states in STATES.items()}
SIZES = [
    ("0", 0, 0.5),
    ("1 to 9", 0.5, 9.5),
    ("10 to 49", 9.5, 49.5),
    ("1 to 49", 0.5, 49.5),
    ("50 or more", 49.5, np.inf),
]
ENDS = ("estimate", "lower", "upper")


class Truth:
    """True counts at one level, and what is measured of them there and at the levels above.

    Parameters
    ----------
    data
        Folder of the counts.
    level
        One of `LEVELS`.
    tracts
        Those that are kept; all where empty.
    nested
        Whether the model has the larger areas as levels of the areas.
    """

    def __init__(
        self, data: Path, level: str, tracts: Sequence[str] = (), *, nested: bool = False
    ) -> None:
        people = pd.read_csv(data / "blocks.csv", dtype=str).astype({"count": int})
        if tracts:
            people = people[people["tract"].isin(tracts)]
        budget = pd.read_csv(data / "budget.csv")
        self.variances = {(b.level, b.query): b.variance for b in budget.itertuples()}
        self.levels = list(LEVELS)[list(LEVELS).index(level) :]
        area, *larger = (LEVELS[each] for each in self.levels)
        ages = sorted(people["voting_age"].unique(), key=lambda label: label == "18+")
        self.areas = sorted(people[area].unique())
        index = pd.MultiIndex.from_product([self.areas, ages, STATES["hispanic"], STATES["race"]])
        sums = people.groupby([area, "voting_age", "hispanic", "race"])["count"].sum()
        self.counts = sums.reindex(index, fill_value=0).to_numpy(float)
        self.groups = {}
        for name, column in zip(self.levels[1:], larger, strict=True):
            holder = people.groupby(area)[column].first()
            self.groups[name] = {
                one: [each for each in self.areas if holder[each] == one]
                for one in sorted(set(holder))
            }
        coarse = {name: groups for name, groups in reversed(self.groups.items()) if len(groups) > 1}
        levels = {"area": coarse} if nested else None
        self.network = bpm.declare(
            {"area": self.areas, **STATES}, [("area", *STATES)], levels=levels
        )

    def variance(self, level: str, query: str) -> float:
        """Variance of each number of a query."""
        return self.variances[level, query] * (8 if query == "detailed" else 1)

    def release(self, seed: int) -> NoisyStatistics:
        """One draw of the noise."""
        rng = np.random.default_rng(seed)
        measurements = []
        for level in self.levels:
            for name, scope in SCOPES.items():
                deviation = self.variance(level, name) ** 0.5
                if level in self.groups:
                    query = q.coarsened("area", *scope, area=self.groups[level])
                else:
                    query = q.table("area", *scope)
                exact = query.bind(self.network).in_cliques @ self.counts
                noisy = exact + np.rint(rng.normal(0, deviation, exact.size))
                measurements.append(Measurement(query, noisy, Gaussian(deviation)))
        return NoisyStatistics.from_measurements(self.network, measurements)

    @cached_property
    def parents(self) -> list[np.ndarray]:
        """Place of the next larger area of each area, level by level."""
        inside = [
            [{each} for each in self.areas],
            *([set(own) for own in g.values()] for g in self.groups.values()),
        ]
        return [
            np.array([next(k for k, whole in enumerate(after) if own <= whole) for own in before])
            for before, after in itertools.pairwise(inside)
        ]

    @cached_property
    def least_squares_problem(self) -> SparseLeastSquares:
        """All areas of a level together, and those above; the same for every draw of the noise."""
        table = vstack([margins(SIZES_OF, scope) for scope in SCOPES.values()], format="csr")
        counts = [len(self.areas), *map(len, self.groups.values())]
        rows = nested_rows([table] * len(counts), self.parents, counts[-1])
        sizes = [margins(SIZES_OF, scope).shape[0] for scope in SCOPES.values()]
        variances = [
            np.tile(np.repeat([self.variance(level, name) for name in SCOPES], sizes), count)
            for level, count in zip(self.levels, counts, strict=True)
        ]
        exact = np.zeros(rows.shape[0] - sum(map(len, variances)))
        return SparseLeastSquares(rows, np.concatenate([*variances, exact]))

    @cached_property
    def deviations(self) -> np.ndarray:
        """Standard deviation of the estimate of each cell, shape (cells,).

        A query is a whole table with one variance, so that cells of an area are alike, and so are areas inside the
        same area: one cell is solved for of each.
        """
        if self.parents:
            holders = self.parents[0]
        else:
            holders = np.zeros(len(self.areas), int)
        _, first, place = np.unique(holders, return_index=True, return_inverse=True)
        return np.repeat(np.sqrt(self.least_squares_problem.variances(CELLS * first))[place], CELLS)

    def least_squares(self, release: NoisyStatistics) -> np.ndarray:
        """Estimate of each cell, shape (cells,)."""
        assert release.measurements is not None
        counts = [len(self.areas), *map(len, self.groups.values())]
        values = []
        for k, count in enumerate(counts):
            own = release.measurements[k * len(SCOPES) : (k + 1) * len(SCOPES)]
            values.append(np.hstack([m.values.reshape(count, -1) for m in own]).ravel())
        problem = self.least_squares_problem
        known = np.concatenate(values)
        return problem.estimate(np.append(known, np.zeros(problem.numbers - len(known))))[
            : len(self.counts)
        ]


def cut_off(mean: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and 90 % interval of a normal law above zero."""
    below = norm.sf(mean / deviation)
    lower, upper = (mean - deviation * norm.ppf((1 - below) * (1 - p)) for p in (0.05, 0.95))
    return (
        mean + deviation * np.exp(norm.logpdf(mean / deviation) - norm.logcdf(mean / deviation)),
        lower,
        upper,
    )


def fitted(truth: Truth, seed: int, kept: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """(estimate, lower, upper) by method, and how the posterior ended."""
    release = truth.release(seed)
    if kept:
        file = kept / f"{truth.levels[0]}_{seed}.npz"
    else:
        file = None
    if file and file.exists():
        with np.load(file) as saved:
            how = json.loads(str(saved["how"]))
            table = {name: saved[name] for name in ENDS}
    else:
        how, table = sampled(release, seed)
    if file and not file.exists():
        np.savez(file, how=json.dumps(how), **table)
    mean = truth.least_squares(release)
    deviation = truth.deviations
    half = norm.ppf(0.95) * deviation
    return {
        "posterior": tuple(table[name] for name in ENDS),
        "least squares": (mean, mean - half, mean + half),
        "cut off at zero": cut_off(mean, deviation),
    }, how


def sampled(release: NoisyStatistics, seed: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """How the posterior ended, and its estimate, lower and upper ends of counts."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = bpm.LatentCounts().fit(release, rng=seed, draws=400)
    seconds = time.perf_counter() - begin
    table = posterior.interval(["area", *STATES], prob=0.9, of="records")
    numbers = {
        name: float(posterior.stats[name]) for name in ("r_hat", "total", "total_standard_error")
    }
    how = {"status": str(posterior.status), "seconds": seconds, **numbers}
    return how, {name: table[name].to_numpy() for name in ENDS}


def rows_of(counts: np.ndarray, fits: list[dict[str, Any]], *, by_truth: bool) -> list[str]:
    """One row a size: cells a draw, then coverage, error and width by method."""
    rows = []
    for label, low, high in SIZES:
        row = [label]
        for method in fits[0]:
            held = []
            errors = []
            widths = []
            for fit in fits:
                estimate, lower, upper = fit[method]
                size = counts if by_truth else estimate
                if low == 0:
                    inside = size < high
                else:
                    inside = (size >= low) & (size < high)
                held.append(
                    (np.floor(lower) <= counts)[inside] & (counts <= np.ceil(upper))[inside]
                )
                errors.append((estimate - counts)[inside])
                widths.append((upper - lower)[inside])
            held, errors, widths = (np.concatenate(parts) for parts in (held, errors, widths))
            if not len(held):
                row += ["0", "", "", ""]
                continue
            row += [f"{len(held) / len(fits):,.0f}", f"{held.mean():.3f}"]
            row += [f"{np.sqrt(np.mean(errors**2)):.2f}", f"{np.median(widths):.1f}"]
        rows.append("| " + " | ".join(row) + " |")
    return rows


def print_tables(counts: np.ndarray, fits: list[dict[str, Any]], level: str) -> None:
    """By the size of each method's estimate, and of the truth."""
    for by_truth in (False, True):
        print(f"\nBy the size of the {'true count' if by_truth else 'estimate'}, {level}:\n")
        print("| size |" + "".join(f" cells, {m} | hold | error | width |" for m in fits[0]))
        print("|---|" + "---|" * 4 * len(fits[0]))
        print("\n".join(rows_of(counts, fits, by_truth=by_truth)))


def folder_of_data() -> Path:
    """Where the counts lie beside the repository."""
    return Path(__file__).parents[2] / "shared" / "data" / "pl94_ri"


def main() -> None:
    """Fit all draws and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--level", choices=["Tract", "Block_Group"], default="Tract")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument(
        "--keep", type=Path, help="folder of fits, which are read where they are there"
    )
    parser.add_argument("--data", type=Path, default=folder_of_data())
    arguments = parser.parse_args()
    truth = Truth(arguments.data, arguments.level)
    if arguments.keep:
        arguments.keep.mkdir(exist_ok=True)
    seeds = range(arguments.first, arguments.first + arguments.draws)
    fits, ends = zip(*(fitted(truth, seed, arguments.keep) for seed in seeds), strict=True)
    print_tables(truth.counts, list(fits), arguments.level)
    seconds = [end["seconds"] for end in ends]
    print(
        f"\nSeconds a fit: {np.median(seconds):.0f} (at most {max(seconds):.0f}); status:", end=" "
    )
    print(", ".join(f"{end['status']} (R-hat {end['r_hat']:.2f})" for end in ends))
    errors = [(end["total"] - truth.counts.sum()) / end["total_standard_error"] for end in ends]
    print(
        f"N less the truth, in standard errors of the release's own estimate: {np.round(errors, 2).tolist()}"
    )
    print(f"Peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


if __name__ == "__main__":
    main()
