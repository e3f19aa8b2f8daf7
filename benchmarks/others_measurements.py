"""Others' measurements: their estimate and this library's from the same noisy numbers, and the intervals.

`rivals_theirs.py`, run by dpsynth's Python, writes what its MST, AIM and SWIFT chose and measured, and their
estimates of 300 triples. Here the same noisy tables are read by `readers.from_mbi` and fitted by `NoiseAwareMAP`, on
the states as the rival merged them. A row a file:

- the error of each triple's table, total variation from the records', mean over triples, of both, and of
  `NoiseAwareMAP(scale=3.0)`, whose prior hardly counts;
- its 90 % intervals of the records' answers (of="records") for tables of up to 1,500 cells, 40 random triples inside
  a measured table (where none is, pairs) and 40 others, which rest on the independences of what was measured: share
  that holds the truth, over all cells and over those of 10 records or more, and the median width of the latter,
  records.

    OMP_NUM_THREADS=1 uv run python benchmarks/others_measurements.py --data adult/adult.csv THEIRS/adult_*.npz ...
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import itertools
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
class Weights:
    """As mbi's `WeightedQuery`."""

    weights: np.ndarray

    def __call__(self, factor: Any) -> np.ndarray:
        return factor.datavector() * self.weights


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
    given = []
    for k in range(count):
        weights = found[f"weights_{k}"]
        deviation = float(found[f"stddev_{k}"])
        if (weights == 1).all():
            query = None
        else:
            query = Weights(weights)
        given.append(
            Measured(
                tuple(found[f"clique_{k}"].tolist()), found[f"values_{k}"].ravel(), deviation, query
            )
        )
    return given


def table(data: pd.DataFrame, shape: dict[str, int], names: list[str]) -> np.ndarray:
    """The records' shares, cell by cell."""
    cells = np.ravel_multi_index([data[v].to_numpy() for v in names], [shape[v] for v in names])
    return np.bincount(cells, minlength=int(np.prod([shape[v] for v in names]))) / len(data)


def held(fit: Any, names: list[str], share: np.ndarray, records: int) -> tuple[float, float, float]:
    """Share of 90 % intervals that hold the records' answers: all cells, larger ones, and median width of these."""
    bounds = fit.interval(names, prob=0.9, of="records")[["lower", "upper"]] / records
    low = bounds["lower"].to_numpy()
    high = bounds["upper"].to_numpy()
    inside = (low <= share) & (share <= high)
    large = share * records >= SMALL
    if not large.any():
        return float(inside.mean()), np.nan, np.nan
    return (
        float(inside.mean()),
        float(inside[large].mean()),
        float(np.median((high - low)[large]) * records),
    )


def row(path: Path, data: pd.DataFrame) -> dict[str, Any]:
    """Errors and coverage of one file."""
    found = np.load(path)
    given = measurements(found)
    names = found["names"].tolist()
    places = {v: found[f"place_{v}"] for v in names}
    shape = {v: int(place.max()) + 1 for v, place in places.items()}
    merged = pd.DataFrame({v: places[v][data[v].to_numpy()] for v in names})
    scopes = {frozenset(one.clique) for one in given} | {frozenset([v]) for v in names}
    cliques = [
        tuple(v for v in names if v in s) for s in scopes if not any(s < other for other in scopes)
    ]
    network = bpm.declare({v: range(size) for v, size in shape.items()}, sorted(cliques))
    begin = time.process_time()
    release = readers.from_mbi(network, given)
    fit = bpm.NoiseAwareMAP().fit(release)
    seconds = time.process_time() - begin
    free = bpm.NoiseAwareMAP(scale=3.0).fit(release)
    triples = [
        name.removeprefix("table_").split("|") for name in found.files if name.count("|") == 2
    ]
    errors = []
    for triple in triples:
        truth = table(merged, shape, triple)
        tables = [
            found["table_" + "|".join(triple)],
            *(each.marginal(triple).values for each in (fit, free)),
        ]
        errors.append([0.5 * np.abs(truth - each.ravel()).sum() for each in tables])
    theirs, ours, unshrunk = np.array(errors).T

    def is_measured(scope: list[str]) -> bool:
        return any(set(scope) <= set(clique) for clique in cliques)

    def some(scopes: list[list[str]]) -> np.ndarray:
        small = [s for s in scopes if np.prod([shape[v] for v in s]) <= MOST_CELLS]
        chosen = np.random.default_rng(0).permutation(len(small))[:INTERVALS]
        told = [held(fit, small[k], table(merged, shape, small[k]), len(data)) for k in chosen]
        if told:
            return np.nanmean(told, axis=0)
        return np.full(3, np.nan)

    inside = [t for t in triples if is_measured(t)]
    known = inside or [
        list(pair) for pair in itertools.combinations(names, 2) if is_measured(list(pair))
    ]
    return {
        "file": path.stem,
        "tables": len(given),
        "measured triples": f"{len(inside)} of {len(triples)}",
        "their error": theirs.mean(),
        "here": ours.mean(),
        "here over theirs": ours.mean() / theirs.mean(),
        "scale 3 over theirs": unshrunk.mean() / theirs.mean(),
        "their s": float(found["seconds"]),
        "s here": seconds,
        "status": str(fit.status),
        **dict(zip(["measured held", "10+", "width"], some(known), strict=True)),
        **dict(
            zip(
                ["others held", "10+ ", "width "],
                some([t for t in triples if t not in inside]),
                strict=True,
            )
        ),
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
    for path in arguments.files:
        print(pd.Series(row(path, data)).to_string(), flush=True)


if __name__ == "__main__":
    main()
