r"""Intervals for learned couplings, by simulation from the release: post-processing, which spends no budget.

Simulated releases vary as the release did, by sampling, choices and noise together: a model yields as many records
as the release says there were, and the map that made the release learns from them, with noise of the same laws from a
seeded generator. There are two methods:

- ``"linearised"``, to first order. For `SelectMeasure` the errors of its fit, and for pairs that were left out the
  couplings that could have been left out: `bayesprivmrf.learning.select_measure.interval`. For Frank-Wolfe with
  enough steps those of its expected path: `bayesprivmrf.learning.frank_wolfe.interval`. It simulates eight releases,
  `SelectMeasure` none;
- ``"calibrated"``, for all others: a bootstrap from a model that the map turns into the estimate, which corrects
  the map's shrinkage: `bayesprivmrf.learning.intervals.calibrated`. It shows a bar with the time that is left, at
  a terminal or in a notebook.

docs/learning.md has measured coverage.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import generator, one_of, probability, whole_number
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning.intervals import calibrated
from bayesprivmrf.learning.intervals.replicates import replicates_of, size_of
from bayesprivmrf.learning.models.parameters import LearnedParameters
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["forecast", "interval"]

_SECOND = 1.0  # about what linearised intervals of measured pairs take
_NOT_VARIABLES = (
    "`interval` of a learned model is for all its couplings, and takes no variables or `given`; probabilities of "
    "some variables are had from `solution.interval(variables)` after SelectMeasure(rho), and with `given` from "
    "NoiseAwareMAP().fit(learned.statistics).interval(variables, given=...), where `statistics` were kept."
)
_NOT_LINEAR = (
    "`method` must not be 'linearised' for this release, whose errors are not known to first order: it was made by "
    "neither SelectMeasure nor Frank-Wolfe with two states, single variables measured and enough steps; leave it out."
)


def interval(
    learned: LearnedParameters,
    prob: float,
    rng: int | np.random.Generator | None,
    replicates: int,
    *,
    of: str,
    method: str | None,
    total: float | None = None,
    given: object = None,
) -> pd.DataFrame:
    """Return intervals for couplings or fields: see `LearnedNetwork.interval`."""
    import pandas as pd

    if given is not None or isinstance(prob, Sequence):
        raise ArgumentError(_NOT_VARIABLES)
    prob = probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
    replicates = whole_number("replicates", replicates, 2)
    one_of("of", of, ("couplings", "fields"))
    if method is not None:
        one_of("method", method, ("linearised", "calibrated"), remedy="None takes the better one")
    index, places = learned.labels(of), learned.places(of)
    size, random = size_of(learned, total), generator(rng)
    limits = None if method == "calibrated" else _linearised(learned, prob, size, random)
    if method == "linearised" and limits is None:
        raise ArgumentError(_NOT_LINEAR)
    taken = "linearised" if limits is not None else "calibrated"
    low, high = limits or calibrated.limits(learned, prob, replicates, random, size)
    columns = {"estimate": learned.vector()[places], "lower": low[places], "upper": high[places]}
    frame = pd.DataFrame(columns, index=index)
    frame.attrs["method"] = taken
    return frame


def forecast(
    learned: LearnedParameters, replicates: int, *, method: str | None, total: float | None
) -> dict[str, Any]:
    """Return what an interval would do, and about how long: see `LearnedNetwork.interval_forecast`."""
    replicates = whole_number("replicates", replicates, 2)
    if method is not None:
        one_of("method", method, ("linearised", "calibrated"), remedy="None takes the better one")
    size, random = size_of(learned, total), generator(None)
    if method != "calibrated" and hasattr(learned.map, "linearised"):
        cost = getattr(learned.map, "linearised_cost", lambda *_: (0, _SECOND))(learned, size, random)
        if cost is not None:
            return {"method": "linearised", "releases": cost[0], "seconds": cost[1]}
    if method == "linearised":
        raise ArgumentError(_NOT_LINEAR)
    replicates_of(learned, 1, random, size)  # the first one compiles and plans
    begin, count = time.perf_counter(), calibrated.releases(replicates)
    replicates_of(learned, 1, random, size)
    return {"method": "calibrated", "releases": count, "seconds": count * (time.perf_counter() - begin)}


def _linearised(
    learned: LearnedParameters, prob: float, size: float, random: np.random.Generator
) -> tuple[FloatArray, FloatArray] | None:
    """Return limits to first order, ``None`` where the map has none for this release."""
    first_order = getattr(learned.map, "linearised", None)
    return None if first_order is None else first_order(learned, prob, size, random)
