r"""Intervals for learnt couplings, by simulation from the release: post-processing, which spends no budget.

What varies among simulated releases is what varied in the release, sampling, choices and noise together: records are
simulated from a model, as many as the release says there were, and learnt from by the very map that made the release,
with noise of the same laws from a seeded generator. Four methods:

- ``"linearised"``, for `SelectMeasure`: the errors of its fit, to first order, and for pairs that were left out what
  would have left them out: `bayesprivmrf.learning.select_measure.interval`. It simulates records once;
- ``"calibrated"``, for all others: from a model whose map gives the estimate back, so that what the map shrinks is
  given back as well: `bayesprivmrf.learning.intervals.calibrated`;
- ``"percentile"`` and ``"basic"``: with quantiles :math:`q_\pm` of parameters learnt from simulations of the release
  itself and the estimate :math:`\hat a`, :math:`[q_-, q_+]` and :math:`[2 \hat a - q_+, 2 \hat a - q_-]`. Either
  takes errors about the learnt model for errors about the truth. That fails where the map shrinks much, and where a
  coupling was not found at all, which has an estimate of 0 and replicates of 0.

docs/learning.md has measured coverage.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import probability
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.learning.intervals import calibrated as calibrated_interval
from bayesprivmrf.learning.intervals.replicates import replicates_of, size_of
from bayesprivmrf.learning.models.ising import LearnedIsing
from bayesprivmrf.learning.models.monomials import LearnedMonomials
from bayesprivmrf.learning.models.pairwise import LearnedPairwise
from bayesprivmrf.learning.models.simulation import warn_of_chains
from bayesprivmrf.learning.select_measure import interval as linear_interval
from bayesprivmrf.learning.select_measure.map import CouplingsByMeasurement
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.learning.models.base import LearnedNetwork

__all__ = ["interval"]

_METHODS = ("linearised", "calibrated", "basic", "percentile")

type Parameters = tuple[FloatArray, ...]


def interval(
    learned: LearnedNetwork,
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
    if isinstance(replicates, bool) or not isinstance(replicates, Integral) or replicates < 2:
        raise ArgumentError(f"`replicates` must be a whole number of at least 2, got {replicates!r}.")
    if of not in {"couplings", "fields"}:
        raise ArgumentError(f"`of` must be 'couplings' or 'fields', got {of!r}.")
    if method not in {None, *_METHODS}:
        raise ArgumentError(f"`method` must be None or one of {', '.join(_METHODS)}, got {method!r}.")
    index, place = _labelled(learned, of)
    size, was_measured = size_of(learned, total), isinstance(learned.map, CouplingsByMeasurement)
    method = method or ("linearised" if was_measured else "calibrated")
    if method == "linearised" and not was_measured:
        raise ArgumentError(
            "`method` must not be 'linearised' for a release of another mechanism than SelectMeasure, whose noise is "
            "not that of measured pairs; leave it out."
        )
    generator, estimate = np.random.default_rng(rng), place(_parameters(learned))
    if method == "linearised":
        lower, upper, has_mixed = linear_interval.limits(learned, prob, size, generator)  # type: ignore[arg-type]
        if not has_mixed:
            warn_of_chains()
        low, high = place(lower), place(upper)
    elif method == "calibrated":
        lower, upper = calibrated_interval.limits(learned, prob, int(replicates), generator, size)
        low, high = place(lower), place(upper)
    else:
        draws = replicates_of(learned, int(replicates), generator, size)
        values = np.array([place(_parameters(draw)) for draw in draws])
        low, high = np.quantile(values, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
        if method == "basic":
            low, high = 2 * estimate - high, 2 * estimate - low
    return pd.DataFrame({"estimate": estimate, "lower": low, "upper": high}, index=index)


def _parameters(learned: LearnedNetwork) -> tuple[FloatArray, ...]:
    return tuple(getattr(learned, name) for name in learned.parameters)


def _labelled(learned: LearnedNetwork, of: str) -> tuple[pd.Index, Callable[[Parameters], FloatArray]]:
    """Return what couplings or fields belong to (variables, and states of tables), and how to take them."""
    names = learned.domain.variables
    if isinstance(learned, LearnedMonomials):
        chosen = (learned.sets.orders >= 2) if of == "couplings" else (learned.sets.orders == 1)
        members = [tuple(names[v] for v in members) for members in learned.sets]
        index = _index({"monomial": [members[k] for k in np.flatnonzero(chosen)]})
        return index, lambda parameters: parameters[0][chosen]
    if isinstance(learned, LearnedIsing):
        if of == "fields":
            return _index({"variable": list(names)}), lambda parameters: parameters[1]
        i, j = np.triu_indices(len(names), 1)
        index = _index({"variable": [names[a] for a in i], "other": [names[b] for b in j]})
        return index, lambda parameters: parameters[0][i, j]
    if isinstance(learned, LearnedPairwise):
        return _labelled_tables(learned, of)
    raise ModelError(f"intervals are for couplings that were learnt, got a {type(learned).__name__}.")


def _labelled_tables(
    learned: LearnedPairwise, of: str
) -> tuple[pd.Index, Callable[[Parameters], FloatArray]]:
    domain = learned.domain
    owner = [v for v, labels in zip(domain.variables, domain.states, strict=True) for _ in labels]
    label = [label for labels in domain.states for label in labels]
    if of == "fields":
        return _index({"variable": owner, "state": label}), lambda parameters: parameters[1]
    place = np.repeat(np.arange(len(domain.variables)), domain.cardinalities)
    rows, columns = np.nonzero(place[:, None] < place)
    levels = {
        "variable": [owner[a] for a in rows],
        "other": [owner[b] for b in columns],
        "state": [label[a] for a in rows],
        "other_state": [label[b] for b in columns],
    }
    return _index(levels), lambda parameters: parameters[0][rows, columns]


def _index(levels: dict[str, list[Any]]) -> pd.Index:
    """Return an index whose entries are as they were declared."""
    import pandas as pd

    if len(levels) == 1:
        ((name, values),) = levels.items()
        return pd.Index(pd.Series(values, dtype=object), name=name, tupleize_cols=False)
    return pd.MultiIndex.from_arrays(
        [pd.Series(v, dtype=object) for v in levels.values()], names=list(levels)
    )
