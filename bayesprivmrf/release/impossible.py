"""Given numbers that count no possible record, and are not 0 but for noise.

A release sets the numbers of cells declared `impossible` to 0, as post-processing of its own noise. If a table of
somebody else has records there, the declaration or the labels are wrong, and the numbers must not be lost silently.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.noise.tails import SMALLEST_IMPOSSIBLE_TAIL, combined, log_tails_of_zeros
from bayesprivmrf.release.measurement import Measurement


def refuse_impossible(measurements: Sequence[Measurement], is_informative: np.ndarray) -> None:
    """Raise a `ModelError` if numbers that count no possible record are farther from 0 than noise explains.

    Parameters
    ----------
    measurements
        The measurements as given, aligned with the model.
    is_informative
        Mask of the numbers that count some possible cell, of all measurements one after the other, shape (numbers,).
    """
    if is_informative.all():
        return
    ends = np.cumsum([len(one.values) for one in measurements])
    for one, mask in zip(measurements, np.split(is_informative, ends[:-1]), strict=True):
        numbers = np.asarray(one.values, dtype=float)[~mask]
        tail = 1.0
        if numbers.any():
            tail = float(combined(log_tails_of_zeros(one.noise, numbers)))
        require(
            tail * len(measurements) >= SMALLEST_IMPOSSIBLE_TAIL,
            f"the values of {one.query!r}",
            "be 0 but for noise where they count no possible record",
            "some that are farther from 0",
            "declare fewer `impossible` cells, or check the labels of the table and the weights of the query",
            error=ModelError,
        )
