"""Forecasts of a release before its budget is spent, from the declaration and the noise distributions alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import at_least, require
from bayesprivmrf.learning.sample_size import records_needed
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.privacy import NoiseDistribution
from bayesprivmrf.queries import BoundQuery
from bayesprivmrf.queries.forecast import Forecast, forecast

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.audit.worst_case import Draw

__all__ = ["records_needed"]


# Nats: noise that hides a coupling of this size, which multiplies odds by 3.3, hides nearly all there is
LARGEST_HIDDEN = 0.3

# Records; estimators refuse a larger number, and forecasts of much larger ones are no longer finite
_LARGEST_GUESS = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlay:
    """Cost and noise of one step of a release.

    Parameters
    ----------
    step
        The name of the step.
    rho
        Cost, nats, under zero-concentrated privacy.
    epsilon
        Cost, nats, of a mechanism whose promise has an epsilon; ``None`` for a step that has no cost of its own.
    count
        How many numbers are measured, or choices made; ``None`` where that waits for the number of records.
    noise_sd
        Standard deviation of the noise on each, records; ``None`` as above.
    draws
        The draws of the step, by law and worst case, where these are known; `bayesprivmrf.audit` holds it against the
        promise.
    smallest_coupling
        About the smallest coupling of two variables of even states that this noise would not hide, nats; ``None``
        where the number of records is not known, or the step shows no coupling.
    seconds, memory_bytes
        Forecast of the time of one processor core, and of the memory held at most; ``None`` where there is none.
    """

    step: str
    rho: float | None = None
    epsilon: float | None = None
    count: int | None = None
    noise_sd: float | None = None
    smallest_coupling: float | None = None
    seconds: float | None = None
    memory_bytes: int | None = None
    draws: tuple[Draw, ...] = ()


def outlay_preview(outlays: Sequence[Outlay], total: float | None = None) -> pd.DataFrame:
    """Return a table with a row for each step: ``step``, ``rho`` or ``epsilon``, ``count``, ``noise_sd``.

    With `total`, a public guess of the number of records, also ``relative_noise`` (noise over that number) and
    ``smallest_coupling``; NaN where a step has none. Costs in rho add up to the guarantee's. A mechanism that
    forecasts time and memory has ``seconds`` and ``memory_bytes`` too.
    """
    import pandas as pd

    frame = pd.DataFrame([asdict(outlay) for outlay in outlays]).drop(columns="draws")
    numbers = ["rho", "epsilon", "noise_sd", "smallest_coupling"]
    frame = frame.astype(dict.fromkeys(numbers, float))
    optional = ("rho", "epsilon", "seconds", "memory_bytes")
    frame = frame.drop(columns=[name for name in optional if frame[name].isna().to_numpy().all()])
    if total is None:
        return frame.drop(columns="smallest_coupling")
    frame.insert(
        list(frame).index("noise_sd") + 1, "relative_noise", frame["noise_sd"] / max(total, 1.0)
    )
    return frame


def hidden_couplings(outlays: Sequence[Outlay]) -> float:
    """Return the size, nats, below which the noise of some step hides couplings; 0 if it is not known."""
    return max((outlay.smallest_coupling or 0.0 for outlay in outlays), default=0.0)


def about(total: float) -> str:
    """Return a number of records in words, for a warning."""
    shown = f"{total:,.0f}"
    return f"about {shown} record{'' if shown == '1' else 's'}"


def checked_total(total: Any) -> float:
    """Return a guess of the number of records.

    Raises
    ------
    ArgumentError
        It is less than one record, or more than `_LARGEST_GUESS`.
    """
    guess = at_least("total", total, 1)
    require(guess <= _LARGEST_GUESS, "total", f"be at most {_LARGEST_GUESS:g} records", guess)
    return guess


def _possible_cells(specification: ModelSpecification) -> np.ndarray:
    """Return the number of cells of each measured table that may occur, shape (tables,)."""
    offsets = np.asarray(specification.offsets)
    if specification.possible is None:
        return np.diff(offsets)
    occupied = np.concatenate([[0], np.cumsum(specification.possible)])
    return np.diff(occupied[offsets])


def noise_preview(
    specification: ModelSpecification,
    noise: Sequence[NoiseDistribution],
    total: float | None = None,
) -> pd.DataFrame:
    r"""Return the noise of each table, and the number of records that would exceed it.

    An even cell of a table of K possible cells holds N / K records. Noise of standard deviation s is one tenth of
    it at :math:`N = 10 K s`.

    Parameters
    ----------
    specification
        The declared model.
    noise
        The noise law of each table.
    total
        A public guess of the number of records; never the exact number where that is private.

    Returns
    -------
    DataFrame
        One row a table: ``clique``, ``cells`` (possible ones), ``noise_sd`` (records a cell),
        ``records_needed`` (N at which the noise is one tenth of an even cell); with `total` also
        ``even_cell`` (records) and ``relative_noise`` (noise over even cell).

    Raises
    ------
    ArgumentError
        ``total`` is negative or not a finite number.
    """
    import pandas as pd

    cells = _possible_cells(specification)
    deviations = np.array([law.standard_deviation for law in noise], dtype=float)
    frame = pd.DataFrame(
        {"clique": pd.Series(list(specification.cliques), dtype=object), "cells": cells}
    )
    # the noise is to be at most a tenth of the count of an even cell
    frame = frame.assign(noise_sd=deviations, records_needed=np.ceil(cells * deviations / 0.1))
    if total is not None:
        total = checked_total(total)
        frame["even_cell"] = total / cells
        with np.errstate(divide="ignore", invalid="ignore"):
            frame["relative_noise"] = np.where(deviations > 0, deviations * cells / total, 0.0)
    return frame


def drowned_tables(
    specification: ModelSpecification, noise: Sequence[NoiseDistribution], total: float
) -> tuple[tuple[object, ...], ...]:
    """Return the cliques whose noise has a standard deviation above an even cell at this number of records."""
    cells = _possible_cells(specification)
    return tuple(
        clique
        for clique, states, law in zip(specification.cliques, cells, noise, strict=True)
        if law.standard_deviation > max(total, 0.0) / states
    )


def query_preview(
    queries: Sequence[BoundQuery],
    noise: Sequence[NoiseDistribution],
    shares: Sequence[float] | None,
    even_noise: Sequence[NoiseDistribution],
    *,
    knows_total: bool,
    total: float | None = None,
) -> pd.DataFrame:
    """Return the noise of each query, and the forecast accuracy of its answers from all queries together.

    Parameters
    ----------
    queries
        The queries, on the declared model.
    noise
        The noise law of each query's answers.
    shares
        The part of the budget that each has; ``None`` where there is no budget.
    even_noise
        The laws that an even split of the budget would give.
    knows_total
        Whether the number of records is public.
    total
        A public guess of the number of records; never the exact number where that is private.

    Returns
    -------
    DataFrame
        One row a query: ``query``, ``numbers`` (how many), ``share``, ``noise_sd`` (of one number),
        ``forecast_sd`` (root mean square error of one number once consistent tables are fitted by generalised least
        squares), and ``even_noise_sd`` and ``even_forecast_sd``, the same for an even split; NaN where the model is
        too large for a forecast. With `total` also ``even_answer`` (records; NaN for a query with negative weights)
        and ``relative_noise``. ``attrs`` has ``forecast_variance`` and ``even_forecast_variance``, those of all cells
        of the model's tables together, records squared.
    """
    import pandas as pd

    asked = [query.query for query in queries]
    told = forecast(queries[0].model, asked, knows_total=knows_total)
    rows = [len(query) for query in queries]
    whole, fitted = _forecast(told, noise, rows)
    even_whole, even_fitted = _forecast(told, even_noise, rows)
    frame = pd.DataFrame(
        {
            "query": [repr(query.query) for query in queries],
            "numbers": rows,
            "share": np.full(len(rows), np.nan) if shares is None else list(shares),
            "noise_sd": [law.standard_deviation for law in noise],
            "forecast_sd": fitted,
            "even_noise_sd": [law.standard_deviation for law in even_noise],
            "even_forecast_sd": even_fitted,
        }
    )
    if total is not None:
        frame["even_answer"] = [even_answer(query, checked_total(total)) for query in queries]
        with np.errstate(divide="ignore", invalid="ignore"):
            frame["relative_noise"] = frame["noise_sd"] / frame["even_answer"]
    frame.attrs |= {"forecast_variance": whole, "even_forecast_variance": even_whole}
    return frame


def _forecast(
    told: Forecast | None, noise: Sequence[NoiseDistribution], rows: Sequence[int]
) -> tuple[float, np.ndarray]:
    """Return the variance of the model's tables, and the root mean variance of the fitted answers to each query."""
    variances = np.array([law.variance for law in noise])
    if told is None or not variances.min() > 0:
        value = np.nan if told is None else 0.0
        return value, np.full(len(rows), value)
    whole, _, answers = told.variance(1 / variances)
    return whole, np.sqrt(answers / np.maximum(rows, 1))


def even_answer(query: BoundQuery, total: float) -> float:
    """Return the mean answer of a query to evenly spread records; NaN for a query with negative weights."""
    if query.matrix.data.min(initial=0) < 0:
        return float("nan")
    return (
        total
        * sum(float(block.sum()) / block.shape[1] for block in query.blocks)
        / max(len(query), 1)
    )


def drowned_queries(
    queries: Sequence[BoundQuery], deviations: Sequence[float], total: float
) -> tuple[object, ...]:
    """Return the queries whose answers are less precise than their mean is large, at this number of records.

    Parameters
    ----------
    queries
        The queries, on the declared model.
    deviations
        Standard deviation of one answer to each query, records: of its noise, or as forecast from all answers.
    total
        Number of records.
    """
    return tuple(
        query.query
        for query, deviation in zip(queries, deviations, strict=True)
        if deviation > even_answer(query, max(total, 0.0))
    )
