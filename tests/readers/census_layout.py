"""Files in the census layout, made from true counts and a budget; the truth is known."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from bayesprivmrf.noise import DiscreteGaussian

AXES = ("hhgq", "votingage", "hispanic", "cenrace")
ORDERED = {"votingage": 2, "hispanic": 2, "cenrace": 63}
PLACES = [folder / "shared/data/pl94_ri" for folder in Path(__file__).resolve().parents]


def rhode_island():
    """Folder of the shared data; None where it is not."""
    return next((place for place in PLACES if (place / "budget.csv").is_file()), None)


def true_counts(folder, level):
    """True tables, voting age x Hispanic x race, by geocode."""
    found = defaultdict(lambda: np.zeros((2, 2, 63), dtype=np.int64))
    with (folder / "blocks.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            cell = (
                int(row["voting_age"] == "18+"),
                int(row["hispanic"] == "yes"),
                int(row["race"]) - 1,
            )
            found[row[level.lower()]][cell] += int(row["count"])
    return dict(found)


def variances(folder, level):
    """Published variance of each query's noise."""
    with (folder / "budget.csv").open(newline="") as file:
        return {
            row["query"]: float(row["variance"])
            for row in csv.DictReader(file)
            if row["level"] == level
        }


def noisy_rows(truth, published, axes, rng):
    """Rows of the files: each query of each area, with discrete Gaussian noise of the published variance.

    Parameters
    ----------
    truth
        Tables by geocode, whose axes are the last of `axes`.
    published
        Variance by query, named by its axes joined with `` * ``; ``total``, ``detailed``.
    axes
        Number of states an axis. Those that the tables lack stand first; all people are in their first state.
    rng
        Generator of the noise.
    """
    names, sizes = list(axes), list(axes.values())
    for code, table in sorted(truth.items()):
        whole = np.zeros(sizes, dtype=np.int64)
        whole[(0,) * (len(sizes) - table.ndim)] = table
        for query, variance in published.items():
            kept = {"total": [], "detailed": names}.get(query, query.split(" * "))
            if not set(kept) <= set(names):
                continue
            summed = tuple(axis for axis, name in enumerate(names) if name not in kept)
            answers = whole.sum(axis=summed)
            law = DiscreteGaussian.of_variance(variance)
            yield {
                "geocode": code,
                "query_name": f"{query}_dpq",
                **{name: name if name in kept else "*" for name in names},
                "query_shape": [s if n in kept else 1 for n, s in axes.items()],
                "value": (answers + law.draw(answers.shape, rng)).ravel().tolist(),
                "variance": variance,
            }


def write_rows(rows, root, level, part="DPQuery", state="44", kind="csv"):
    """Write rows as a partition, in CSV or in parquet."""
    rows = list(rows)
    place = Path(root) / f"{level}.parquet" / part / f"State={state}" / f"part-0.{kind}"
    place.parent.mkdir(parents=True, exist_ok=True)
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = {name: [row[name] for row in rows] for name in rows[0]}
        columns["variance"] = pa.array(columns["variance"], pa.float32())
        columns["value"] = pa.array(columns["value"], pa.list_(pa.int32()))
        pq.write_table(pa.table(columns), place)
        return place
    with place.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {n: json.dumps(v) if isinstance(v, list) else v for n, v in row.items()}
            )
    return place


def small_truth(seed=1):
    """Three areas of voting age x race, in two larger ones."""
    rng = np.random.default_rng(seed)
    return {code: rng.poisson(60, (2, 3)) for code in ("4401", "4402", "4503")}


SMALL_AXES = {"hhgq": 2, "votingage": 2, "cenrace": 3}
SMALL_VARIANCES = {"total": 4.0, "cenrace": 9.0, "votingage * cenrace": 6.25, "detailed": 4.0}


def level_sums(truth, length):
    """Tables of the areas that begin alike."""
    found = {}
    for code, table in truth.items():
        found[code[:length]] = found.get(code[:length], 0) + table
    return found
