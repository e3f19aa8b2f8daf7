"""Releases learned from simulated records, by the map that made a given one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.checks import positive_finite
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise.source import SimulatedNoise

if TYPE_CHECKING:
    from bayesprivmrf.learning.models.parameters import LearnedParameters

_DISTINCT_SHARE = 0.3  # rows are merged below it: those that stand for several take longer


def size_of(learned: LearnedParameters, total: float | None) -> float:
    """Return how many records to simulate: what is given, else the release's number.

    Raises
    ------
    ModelError
        The release does not know its map, or no number of records.
    """
    total = learned.total if total is None else positive_finite("total", total)
    if learned.map is None:
        raise ModelError(learned._without_map)
    if total is None:
        raise ModelError(
            "`total` must be given where the release knows no number of records; state about how many there were."
        )
    return total


def replicates_of[Learned: LearnedParameters](
    learned: Learned, replicates: int, generator: np.random.Generator, total: float | None = None
) -> list[Learned]:
    """Return releases learned from simulated records, each of the class of the given one.

    Parameters
    ----------
    learned
        The release.
    replicates
        Number of simulated releases.
    generator
        Generator that draws the records and the noise.
    total
        Number of records to simulate; by default that of the release.

    Raises
    ------
    ModelError
        The release does not know its map, or no number of records.
    """
    size = max(round(size_of(learned, total)), 1)
    assert learned.map is not None
    result = []
    for stream in generator.spawn(replicates):
        codes, _ = learned.solution.codes(size, stream)
        source, law = SimulatedNoise(stream), learned.total_noise
        seen = size if law is None else max(int(source.add(np.array([size]), law)[0]), 1)
        parts = learned.map.learn(*_merged(codes), float(seen), source)
        result.append(learned.with_parameters(parts))
    return result


def _merged(codes: np.ndarray) -> tuple[np.ndarray, IntArray]:
    """Return the different rows and how often each occurs, where these are few; sums over them are the same."""
    rows = np.ascontiguousarray(codes)
    if rows.dtype == np.uint8:
        keys = rows.view([("", f"V{rows.shape[1]}")]).ravel()
        _, first, counts = np.unique(keys, return_index=True, return_counts=True)
        if len(first) < _DISTINCT_SHARE * len(rows):
            return rows[first], counts.astype(np.int64)
    return rows, np.ones(len(rows), dtype=np.int64)
