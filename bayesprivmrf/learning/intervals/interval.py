r"""Intervals for learned couplings, by simulation from the release: post-processing, which spends no budget.

Simulated releases vary as the release did, by sampling, choices and noise together: a model yields as many records
as the release says there were, and the map that made the release learns from them, with noise of the same laws from a
seeded generator. There are two methods:

- ``"linearised"``, for `SelectMeasure`: the errors of its fit, to first order; for pairs that were left out, the
  couplings that could have been left out: `bayesprivmrf.learning.select_measure.interval`. It simulates records once;
- ``"calibrated"``, for all others: a bootstrap from a model that the map turns into the estimate, which corrects
  the map's shrinkage: `bayesprivmrf.learning.intervals.calibrated`.

docs/learning.md has measured coverage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.checks import generator, one_of, probability, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning.intervals import calibrated
from bayesprivmrf.learning.intervals.replicates import size_of
from bayesprivmrf.learning.models.parameters import LearnedParameters

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["interval"]


def interval(
    learned: LearnedParameters,
    prob: float,
    rng: int | np.random.Generator | None,
    replicates: int,
    *,
    of: str,
    method: str | None,
    total: float | None = None,
) -> pd.DataFrame:
    """Return intervals for couplings or fields: see `LearnedNetwork.interval`."""
    import pandas as pd

    prob = probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
    replicates = whole_number("replicates", replicates, 2)
    one_of("of", of, ("couplings", "fields"))
    if method is not None:
        one_of("method", method, ("linearised", "calibrated"), remedy="None takes the better one")
    index, places = learned.labels(of), learned.places(of)
    size, linearised = size_of(learned, total), getattr(learned.map, "linearised", None)
    if method == "linearised" and linearised is None:
        raise ArgumentError(
            "`method` must not be 'linearised' for a release of another mechanism than SelectMeasure, whose noise is "
            "not that of measured pairs; leave it out."
        )
    random = generator(rng)
    if linearised is not None and method != "calibrated":
        low, high = linearised(learned, prob, size, random)
    else:
        low, high = calibrated.limits(learned, prob, replicates, random, size)
    columns = {"estimate": learned.vector()[places], "lower": low[places], "upper": high[places]}
    return pd.DataFrame(columns, index=index)
