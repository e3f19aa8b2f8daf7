"""Another library's measurements: its estimate and this one's from the same noisy numbers, and the intervals.

`others_measurements_rival.py`, run by mbi's Python, writes what its MST chose and measured and its estimates of 300
triples. Here the same noisy tables are read by `readers.from_mbi` and fitted by `NoiseAwareMAP`. A row a file:

- the error of each triple's table, total variation from the data's, mean over triples, of both;
- 90 % intervals of `NoiseAwareMAP` for the measured tables and for triples (which rest on the independences of the
  measured tree), of up to 1,500 cells: share that holds the data's own answers, over all cells and over those of 10
  records or more.

    OMP_NUM_THREADS=1 uv run python benchmarks/others_measurements.py --data adult.csv adult.npz ...
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bayesprivmrf as bpm
from bayesprivmrf import readers

SMALL, INTERVALS, MOST_CELLS = 10, 40, 1500


@dataclass
class Measured:
    """As mbi's `LinearMeasurement`."""

    clique: tuple[str, ...]
    noisy_measurement: np.ndarray
    stddev: float
    query: Any = None


def measurements(found: Any) -> list[Measured]:
    """What the rival measured."""
    count = sum(name.startswith("clique_") for name in found.files)
    return [
        Measured(
            tuple(found[f"clique_{k}"].tolist()), found[f"values_{k}"].ravel(), float(found[f"stddev_{k}"])
        )
        for k in range(count)
    ]


def table(data: pd.DataFrame, shape: dict[str, int], names: list[str]) -> np.ndarray:
    """The data's shares, cell by cell."""
    cells = np.ravel_multi_index([data[v].to_numpy() for v in names], [shape[v] for v in names])
    return np.bincount(cells, minlength=int(np.prod([shape[v] for v in names]))) / len(data)


def held(fit: Any, names: list[str], share: np.ndarray, records: int) -> tuple[float, float, float]:
    """Share of the 90 % intervals that hold the data's answers: all cells, larger ones, and median width of these."""
    bounds = fit.interval(names, prob=0.9)
    low, high = bounds["lower"].to_numpy(), bounds["upper"].to_numpy()
    inside, large = (low <= share) & (share <= high), share * records >= SMALL
    if not large.any():
        return float(inside.mean()), np.nan, np.nan
    return float(inside.mean()), float(inside[large].mean()), float(np.median((high - low)[large]) * records)


def row(path: Path, data: pd.DataFrame) -> dict[str, Any]:
    """Errors and coverage of one file."""
    found = np.load(path)
    given = measurements(found)
    shape = dict(zip(found["names"].tolist(), found["shape"].tolist(), strict=True))
    pairs = [one.clique for one in given if len(one.clique) > 1]
    alone = [(name,) for name in shape if not any(name in pair for pair in pairs)]
    network = bpm.declare({name: range(size) for name, size in shape.items()}, [*pairs, *alone])
    begin = time.perf_counter()
    fit = bpm.NoiseAwareMAP().fit(readers.from_mbi(network, given))
    seconds = time.perf_counter() - begin
    triples = [list(triple) for triple in found["triples"].tolist()]
    errors = []
    for place, triple in enumerate(triples):
        truth = table(data, shape, triple)
        theirs = found[f"triple_{place}"]
        ours = fit.marginal(triple).values.ravel()
        errors.append([0.5 * np.abs(t - truth).sum() for t in (theirs / theirs.sum(), ours)])
    theirs, ours = np.array(errors).T
    pairs = [list(pair) for pair in pairs if np.prod([shape[v] for v in pair]) <= MOST_CELLS]
    triples = [triple for triple in triples if np.prod([shape[v] for v in triple]) <= MOST_CELLS]
    some = [triples[k] for k in np.random.default_rng(0).permutation(len(triples))[:INTERVALS]]
    known = [held(fit, pair, table(data, shape, pair), len(data)) for pair in pairs]
    other = [held(fit, triple, table(data, shape, triple), len(data)) for triple in some]
    return {
        "file": path.stem,
        "error of mbi": theirs.mean(),
        "here": ours.mean(),
        "here over mbi": ours.mean() / theirs.mean(),
        "s of mbi": float(found["seconds"][1]),
        "s here": seconds,
        "status": str(fit.status),
        **dict(zip(["pairs held", "10+", "width"], np.nanmean(known, axis=0), strict=True)),
        **dict(zip(["triples held", "10+ ", "width "], np.nanmean(other, axis=0), strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    data = pd.read_csv(arguments.data)
    data.columns = [str(name) for name in data.columns]
    print(pd.DataFrame([row(path, data) for path in arguments.files]).round(4).T.to_string())


if __name__ == "__main__":
    main()
