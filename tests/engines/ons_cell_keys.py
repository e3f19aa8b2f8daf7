"""Script that compares `CellKey` with the package by which the Office for National Statistics perturbs tables.

``uv run --isolated --no-project --with cell-key-perturbation==3.1.0 --with . python tests/engines/ons_cell_keys.py``
"""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pandas as pd
from cell_key_perturbation.create_perturbed_table import create_perturbed_table  # pyright: ignore[reportMissingImports]
from cell_key_perturbation.utils.generate_test_ptable import generate_ptable_10_5_rule  # pyright: ignore[reportMissingImports]

import bayesprivmrf as bpm
from bayesprivmrf.noise import CellKey

KEYS = 256
# around the ends of the table, and where its last 250 rows are read a second and a fifth time
COUNTS = [1, 2, 3, 9, 10, 11, 14, 249, 250, 500, 501, 502, 749, 750, 751, 752, 1000, 1001, 1750]


def random_ptable() -> pd.DataFrame:
    """Return changes of -2 to 2 for the counts 1 to 750; a third of the rows are left out, which changes nothing."""
    rng = np.random.default_rng(1)
    full = pd.MultiIndex.from_product([range(1, 751), range(KEYS)], names=["pcv", "ckey"])
    table = full.to_frame(index=False)
    changes = rng.integers(-2, 3, len(table))
    table["pvalue"] = np.maximum(changes, -table["pcv"])
    is_kept = (rng.random(len(table)) > 1 / 3) | (table["ckey"] == KEYS - 1)
    return table.loc[is_kept]


def published(ptable: pd.DataFrame) -> pd.DataFrame:
    """Return what the agency's package publishes for each count and each key of a cell."""
    sizes = np.repeat(COUNTS, KEYS)
    keys = np.tile(np.arange(KEYS), len(COUNTS))
    # the first record of a cell has the cell's key, and the others have key 0
    cell = np.repeat(np.arange(len(sizes)), sizes)
    is_first = np.append(True, np.diff(cell) > 0)
    people = pd.DataFrame({"cell": cell, "record_key": np.where(is_first, keys[cell], 0)})
    with contextlib.redirect_stdout(io.StringIO()):
        table = create_perturbed_table(
            people, ptable, geog=[], tab_vars=["cell"], record_key="record_key", threshold=0
        )
    return table.assign(size=sizes)


def check(name: str, ptable: pd.DataFrame) -> None:
    rule = CellKey(ptable)
    table = published(ptable)
    largest = 0.0
    for size, own in table.groupby("size"):
        values, times = np.unique(own["count"].to_numpy(dtype=float), return_counts=True)
        chances = np.exp(rule.log_probability(values, np.full(len(values), size)))
        assert abs(chances.sum() - 1) < 1e-12, (name, size)
        largest = max(largest, np.abs(chances - times / KEYS).max())
        first, last = rule.allowed(values)
        assert (first <= size).all()
        assert (size <= last).all()
    assert largest < 1e-12, (name, largest)
    print(f"{name}: {len(COUNTS)} counts of {KEYS} keys, largest difference {largest:.1e}")


def check_a_table(ptable: pd.DataFrame) -> None:
    """Check the intervals of a table that the package perturbed, cells and margins by their own keys."""
    rng = np.random.default_rng(2)
    size = 400
    people = pd.DataFrame({"record_key": rng.integers(0, KEYS, size)})
    people["a"] = rng.choice(["x", "y", "z"], size, p=[0.5, 0.3, 0.2])
    people["b"] = rng.choice(["no", "yes"], size, p=[0.8, 0.2])
    tables = {}
    for scope in (["a", "b"], ["a"], ["b"]):
        with contextlib.redirect_stdout(io.StringIO()):
            own = create_perturbed_table(people, ptable, [], scope, "record_key", threshold=0)
        tables[tuple(scope)] = own.set_index(scope)["count"].astype(int)
    network = bpm.declare({"a": ["x", "y", "z"], "b": ["no", "yes"]}, [("a", "b")])
    release = bpm.NoisyStatistics.from_tables(network, tables, noise=CellKey(ptable))
    frame = bpm.NoiseAwareMAP().fit(release).interval(["a", "b"], prob=0.99, of="records")
    truth = people.groupby(["a", "b"]).size().reindex(frame.index)
    assert (frame["lower"].to_numpy() <= truth.to_numpy()).all()
    assert (truth.to_numpy() <= frame["upper"].to_numpy()).all()
    print("a table of 6 cells and its margins: all 99 % intervals hold the count")


if __name__ == "__main__":
    check("10-5 rule", generate_ptable_10_5_rule())
    check("random table", random_ptable())
    check_a_table(random_ptable())
