"""Counts of people in blocks, from noisy census measurements: the noise-aware mode beside least squares.

Run: python benchmarks/rhode_island_blocks.py --forecast
     python benchmarks/rhode_island_blocks.py --tract 44007000400 [--levels] [--draws 1] [--rounds 25]
         [--asked 20] [--keep FOLDER]
Truth and noise: those of `rhode_island.py`, at the level of blocks, with their block groups and tracts measured too;
one model of one clique for the blocks of each tract, or of all (`--tract` left out), with blocks as states.

- `NoiseAwareMAP(rounds=...)`: N times the estimated probability of each cell, and 90 % intervals of N times the
  population's probability. As each cell of an interval takes a linear system, `--asked` cells stand for all of their
  sizes of estimate and truth;
- generalised least squares (`sparse_least_squares.py`) of all blocks, block groups and tracts together, and its
  normal law cut off at zero. Tracts share no measured number, so that it is the same for one tract as for all.

Intervals are widened to whole counts. Writes Markdown to stdout.
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

import numpy as np
from rhode_island import SIZES, STATES, Truth, cut_off, folder_of_data
from scipy.sparse import csr_array
from scipy.stats import norm

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ForecastWarning
from bayesprivmrf.release import NoisyStatistics

type Fit = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Estimate, lower and upper end of each cell, and how many cells its interval stands for."""


def forecast(truth: Truth) -> None:
    """What the search says before it begins."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ForecastWarning)
        try:
            bpm.NoiseAwareMAP().fit(truth.release(1))
        except ForecastWarning as said:
            print(f"{len(truth.counts):,} cells: {said}")


def drawn(estimate: np.ndarray, counts: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Cells that are asked, so many at most of each pair of sizes, and how many cells each stands for (others: 0)."""
    ends = [low for label, low, _ in SIZES if label != "1 to 49"]
    by_estimate, by_truth = (
        np.searchsorted(ends, each, side="right") for each in (estimate, counts)
    )
    pairs = by_estimate * len(ends) + by_truth
    rng = np.random.default_rng(1)
    weights = np.zeros(len(estimate))
    for pair in np.unique(pairs):
        inside = np.flatnonzero(pairs == pair)
        chosen = rng.choice(inside, min(most, len(inside)), replace=False)
        weights[chosen] = len(inside) / len(chosen)
    return np.flatnonzero(weights), weights


def mode_of(truth: Truth, release: NoisyStatistics, rounds: int, most: int) -> Fit:
    """Estimates of all cells, with intervals of those asked; prints how the fit ended."""
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForecastWarning)
        solution = bpm.NoiseAwareMAP(rounds=rounds).fit(release)
    seconds = time.process_time() - begin
    begin = time.process_time()
    total = solution.stats["total"]
    estimate = solution.marginal(["area", *STATES]).values.ravel() * total
    asked, weights = drawn(estimate, truth.counts, most)
    matrix = csr_array(
        (np.ones(len(asked)), (np.arange(len(asked)), asked)), (len(asked), len(estimate))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForecastWarning)
        table = solution.interval(q.weighted("area", *STATES, matrix=matrix), prob=0.9)
    lower, upper = np.zeros((2, len(estimate)))
    lower[asked], upper[asked] = (table[end].to_numpy() * total for end in ("lower", "upper"))
    how = {"status": str(solution.status), "seconds": round(seconds), "asked": len(asked)}
    how["doubtful"] = int((table["status"] == "doubtful").sum())
    how |= {
        "seconds of intervals": round(time.process_time() - begin),
        "rounds": solution.stats["rounds"],
    }
    how |= {
        name: round(value, 3) for name, value in solution.stats.items() if name.startswith("scale_")
    }
    print(how, flush=True)
    return estimate, lower, upper, weights


def kept(folder: Path | None, seed: int) -> Fit | None:
    """A fit of before."""
    if folder:
        file = folder / f"{seed}.npz"
    else:
        file = None
    if not file or not file.exists():
        return None
    with np.load(file) as saved:
        return saved["arr_0"], saved["arr_1"], saved["arr_2"], saved["arr_3"]


def least_squares_of(truth: Truth, release: NoisyStatistics) -> dict[str, Fit]:
    """Least squares, and its normal law cut off at zero."""
    mean = truth.least_squares(release)
    all_cells = np.ones(len(truth.counts))
    half = norm.ppf(0.95) * truth.deviations
    return {
        "least squares": (mean, mean - half, mean + half, all_cells),
        "cut off at zero": (*cut_off(mean, truth.deviations), all_cells),
    }


def row_of(
    fits: list[tuple[np.ndarray, Fit]], low: float, high: float, *, by_truth: bool
) -> list[str]:
    """Cells a draw, coverage, error and width of one method."""
    held = []
    errors = []
    widths = []
    weights = []
    for counts, (estimate, lower, upper, weight) in fits:
        size = counts if by_truth else estimate
        if low == 0:
            inside = size < high
        else:
            inside = (size >= low) & (size < high)
        held.append(((np.floor(lower) <= counts) & (counts <= np.ceil(upper)))[inside])
        errors.append((estimate - counts)[inside])
        widths.append((upper - lower)[inside])
        weights.append(weight[inside])
    held, errors, widths, weights = (
        np.concatenate(parts) for parts in (held, errors, widths, weights)
    )
    if not weights.sum():
        return ["0", "", "", ""]
    order = np.argsort(widths)
    middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    hold = f"{weights @ held / weights.sum():.3f}"
    return [
        f"{len(held):,}",
        hold,
        f"{np.sqrt(np.mean(errors**2)):.2f}",
        f"{widths[order[middle]]:.1f}",
    ]


def print_tables(results: list[tuple[np.ndarray, dict[str, Fit]]]) -> None:
    """By the size of each method's estimate, and of the truth; cells are those of all draws."""
    for by_truth in (False, True):
        print(f"\nBy the size of the {'true count' if by_truth else 'estimate'}:\n")
        print("| size |" + "".join(f" cells, {m} | hold | error | width |" for m in results[0][1]))
        print("|---|" + "---|" * 4 * len(results[0][1]))
        for label, low, high in SIZES:
            row = [label]
            for method in results[0][1]:
                row += row_of([(c, f[method]) for c, f in results], low, high, by_truth=by_truth)
            print("| " + " | ".join(row) + " |", flush=True)


def main() -> None:
    """Fit all draws and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--forecast", action="store_true")
    parser.add_argument(
        "--tract", nargs="*", default=[], help="one model for the blocks of these; all by default"
    )
    parser.add_argument(
        "--levels", action="store_true", help="declare block groups as levels of blocks"
    )
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=25, help="0 for least squares alone")
    parser.add_argument("--asked", type=int, default=20)
    parser.add_argument("--keep", type=Path, help="a folder that is there; its fits are read")
    parser.add_argument("--data", type=Path, default=folder_of_data())
    arguments = parser.parse_args()
    truth = Truth(arguments.data, "Block", arguments.tract, nested=arguments.levels)
    if arguments.forecast:
        forecast(truth)
        return
    results = []
    for seed in range(arguments.first, arguments.first + arguments.draws):
        release = truth.release(seed)
        fits = {}
        if arguments.rounds:
            fits["mode"] = kept(arguments.keep, seed) or mode_of(
                truth, release, arguments.rounds, arguments.asked
            )
            if arguments.keep:
                np.savez(arguments.keep / f"{seed}.npz", *fits["mode"])
        begin = time.process_time()
        fits |= least_squares_of(truth, release)
        print(f"least squares: {time.process_time() - begin:.1f} s")
        results.append((truth.counts, fits))
    print_tables(results)
    print(f"\nPeak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


if __name__ == "__main__":
    main()
