"""Summaries of a posterior: one screen of its state and scalar parameters, and edges by their probability."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.cards import Card
from bayesprivmrf.checks import at_least
from bayesprivmrf.inference.asked import coverage
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.measured import has_zeros
from bayesprivmrf.inference.posterior.results.quantities import interval_of_draws
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

# Largest number of entries of effect tables in memory at once: 80 MB; it changes no result
_HELD = 10_000_000
# Entries of `Posterior.stats` that the summary shows
_IN_SUMMARY = ("concentration", "prior_scale", "smoothing", "r_hat", "ess_bulk", "ess_tail", "seconds")


class PosteriorSummary(Card, dict[str, Any]):
    """Values that JSON can hold, shown as a card: `Posterior.summary` names them."""

    def _facts(self) -> list[tuple[str, str]]:
        return [(name.replace("_", " "), _shown(value)) for name, value in self.items()]


def summary_of(
    sampled: xr.Dataset,
    finished: Finished,
    prob: float,
    *,
    status: str,
    is_simulated: bool,
    formulation: str,
    stats: Mapping[str, Any],
) -> PosteriorSummary:
    """Return what `Posterior.summary` does."""
    chains, draws = finished.total.shape
    found = sampled_numbers(sampled, prob)
    return PosteriorSummary(
        {
            **({"simulated": "the noise was seeded and protects nobody"} if is_simulated else {}),
            "status": status,
            "problems": list(stats.get("problems", ())),
            "prob": prob,
            "records": found.pop("total", None) or float(finished.total.mean()),
            "formulation": formulation,
            **found,
            "chains": chains,
            "draws": draws,
            **{name: stats[name] for name in _IN_SUMMARY if name in stats},
        }
    )


def sampled_numbers(posterior: xr.Dataset, prob: float) -> dict[str, dict[str, float]]:
    """Mean and equal-tailed interval of every sampled number that is in no table: N, and what the prior learned."""
    found = {}
    for name, array in posterior.data_vars.items():
        if "[" in str(name):  # a table
            continue
        numbers = interval_of_draws(array.values, prob)
        for cell in np.ndindex(array.shape[2:]):
            of = "".join(f"_of_{d}_{array[d].values[c]}" for d, c in zip(array.dims[2:], cell, strict=True))
            own = [float(number[cell]) for number in numbers]
            found[f"{name}{of}"] = dict(zip(("estimate", "lower", "upper"), own, strict=True))
    return found


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        estimate, lower, upper = map(_shown, value.values())
        return f"{estimate} ({lower} to {upper})"
    if isinstance(value, list):
        return "; ".join(value) or "none"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def edge_presence(evidence: Evidence, finished: Finished, threshold: float, prob: float) -> pd.DataFrame:
    """Return the edges of the model by the posterior probability that they are stronger than a threshold."""
    import pandas as pd

    threshold = at_least("threshold", threshold, 0)
    prob = coverage(prob)
    model = evidence.specification
    effects = Effects.of(model.cardinalities, model.scopes)
    largest = _largest_entries(effects, finished.effects)
    rows, index = [], []
    for pair in [subset for subset in effects.subsets if len(subset) == 2]:
        held = [place for place, subset in enumerate(effects.subsets) if set(pair) <= set(subset)]
        strength: FloatArray = largest[..., held].max(axis=-1)
        is_known = not has_zeros(evidence, pair)
        estimate, lower, upper = interval_of_draws(strength, prob) if is_known else (np.nan,) * 3
        rows.append(
            {
                "estimate": float(estimate),
                "lower": float(lower),
                "upper": float(upper),
                "probability": float((strength > threshold).mean()) if is_known else np.nan,
            }
        )
        index.append(tuple(model.domain.variables[v] for v in pair))
    frame = pd.DataFrame(
        rows,
        columns=pd.Index(["estimate", "lower", "upper", "probability"]),
        index=pd.MultiIndex.from_tuples(index, names=["first", "second"]) if index else None,
    )
    return frame.sort_values("probability", ascending=False, kind="stable")


def effect_cells(effects: Effects) -> list[int]:
    """Return the number of cells of each effect's table; over a clique they add up to many times its own."""
    return [math.prod(effects.cardinalities[v] for v in subset) for subset in effects.subsets]


def _largest_entries(effects: Effects, coordinates: FloatArray) -> FloatArray:
    """Return the largest absolute entry of each effect's table, shape (chain, draw, effects)."""
    flat = coordinates.reshape(-1, effects.size)
    result = np.empty((len(flat), len(effects.subsets)))
    step = max(1, _HELD // max(1, sum(effect_cells(effects))))
    for start in range(0, len(flat), step):
        for place, table in enumerate(effects.tables(flat[start : start + step])):
            result[start : start + step, place] = np.abs(table).max(axis=tuple(range(1, table.ndim)))
    return result.reshape(*coordinates.shape[:-1], -1)
