r"""Intervals for learnt couplings by the parametric bootstrap.

Records are simulated from the learnt model, as many as the release says there were, and learnt from by the very map
that made the release, with noise of the same laws from a seeded generator: what varies among the replicates is what
varied in the release, sampling, choices and noise together. It is post-processing of the release.

With quantiles :math:`q_\pm` of the replicates' parameters and the estimate :math:`\hat a`, a percentile interval is
:math:`[q_-, q_+]` and a basic one :math:`[2 \hat a - q_+, 2 \hat a - q_-]`; the basic one corrects the map's bias as
far as the learnt model shows it. Either takes errors about the learnt model for errors about the truth. That fails
where the truth is very different from what was learnt: a coupling that was not found at all has an estimate of 0 and
replicates of 0. docs/select_measure.md has measured coverage.
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.learning.learned_ising import LearnedIsing
from bayesprivmrf.learning.learned_monomials import LearnedMonomials
from bayesprivmrf.learning.learned_pairwise import LearnedPairwise
from bayesprivmrf.learning.simulation import simulated_codes
from bayesprivmrf.maps.noise import SimulatedNoise
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy.checks import positive_finite, probability

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.learning.learned import LearnedNetwork

__all__ = ["interval", "replicates_of"]


def replicates_of(
    learned: LearnedNetwork, replicates: int, generator: np.random.Generator, total: float | None = None
) -> list[Any]:
    """Return releases learnt from simulated records, each of the class of the given one.

    Parameters
    ----------
    learned
        The release.
    replicates
        How many.
    generator
        Of records and of noise.
    total
        How many records to simulate; by default the release's number.

    Raises
    ------
    ModelError
        The release does not know its map, or no number of records.
    """
    total = learned.total if total is None else positive_finite("total", total)
    if learned.map is None:
        raise ModelError(
            "the release must know its map, got none; make it with this version and a map it can save."
        )
    if total is None:
        raise ModelError(
            "`total` must be given where the release knows no number of records; state about how many there were."
        )
    size = max(round(total), 1)
    result = []
    for stream in generator.spawn(replicates):
        codes, _ = simulated_codes(learned, size, stream)
        source, law = SimulatedNoise(stream), learned.total_noise
        seen = size if law is None else max(int(source.add(np.array([size]), law)[0]), 1)
        parts = learned.map.learn(codes, np.ones(size, dtype=np.int64), float(seen), source)
        result.append(replace(learned, **dict(zip(learned.parameters, parts, strict=True))))
    return result


def interval(
    learned: LearnedNetwork,
    prob: float,
    rng: int | np.random.Generator | None,
    replicates: int,
    *,
    of: str,
    method: str,
    total: float | None = None,
) -> pd.DataFrame:
    """Return intervals for couplings or fields: see `LearnedNetwork.interval`."""
    import pandas as pd

    prob = probability("prob", prob, zero=False)
    if isinstance(replicates, bool) or not isinstance(replicates, Integral) or replicates < 2:
        raise ArgumentError(f"`replicates` must be a whole number of at least 2, got {replicates!r}.")
    if of not in {"couplings", "fields"}:
        raise ArgumentError(f"`of` must be 'couplings' or 'fields', got {of!r}.")
    if method not in {"basic", "percentile"}:
        raise ArgumentError(f"`method` must be 'basic' or 'percentile', got {method!r}.")
    index, estimate = labelled_parameters(learned, of)
    draws = replicates_of(learned, int(replicates), np.random.default_rng(rng), total)
    values = np.array([labelled_parameters(draw, of)[1] for draw in draws])
    low, high = np.quantile(values, [(1 - prob) / 2, (1 + prob) / 2], axis=0)
    if method == "basic":
        low, high = 2 * estimate - high, 2 * estimate - low
    return pd.DataFrame({"estimate": estimate, "lower": low, "upper": high}, index=index)


def labelled_parameters(learned: LearnedNetwork, of: str) -> tuple[pd.Index, FloatArray]:
    """Return what couplings or fields belong to (variables, and states where they are tables), and their values."""
    names = learned.domain.variables
    if isinstance(learned, LearnedMonomials):
        chosen = (learned.sets.orders >= 2) if of == "couplings" else (learned.sets.orders == 1)
        members = [tuple(names[v] for v in members) for members in learned.sets]
        return _index({"monomial": [members[k] for k in np.flatnonzero(chosen)]}), learned.coefficients[
            chosen
        ]
    if isinstance(learned, LearnedIsing):
        if of == "fields":
            return _index({"variable": list(names)}), learned.field_vector
        i, j = np.triu_indices(len(names), 1)
        index = _index({"variable": [names[a] for a in i], "other": [names[b] for b in j]})
        return index, learned.coupling_matrix[i, j]
    if isinstance(learned, LearnedPairwise):
        return _labelled_tables(learned, of)
    raise ModelError(f"intervals are for couplings that were learnt, got a {type(learned).__name__}.")


def _labelled_tables(learned: LearnedPairwise, of: str) -> tuple[pd.Index, FloatArray]:
    domain = learned.domain
    owner = [v for v, labels in zip(domain.variables, domain.states, strict=True) for _ in labels]
    label = [label for labels in domain.states for label in labels]
    if of == "fields":
        return _index({"variable": owner, "state": label}), learned.field_vector
    place = np.repeat(np.arange(len(domain.variables)), domain.cardinalities)
    rows, columns = np.nonzero(place[:, None] < place)
    levels = {
        "variable": [owner[a] for a in rows],
        "other": [owner[b] for b in columns],
        "state": [label[a] for a in rows],
        "other_state": [label[b] for b in columns],
    }
    return _index(levels), learned.coupling_matrix[rows, columns]


def _index(levels: dict[str, list[Any]]) -> pd.Index:
    """Return an index whose entries are as they were declared."""
    import pandas as pd

    if len(levels) == 1:
        ((name, values),) = levels.items()
        return pd.Index(pd.Series(values, dtype=object), name=name, tupleize_cols=False)
    return pd.MultiIndex.from_arrays(
        [pd.Series(v, dtype=object) for v in levels.values()], names=list(levels)
    )
