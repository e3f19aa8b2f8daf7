"""Summaries of a posterior: status and scalar parameters on one screen, and edges by their probability."""

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


class PosteriorSummary(Card, dict[str, Any]):
    """Summary of a posterior, whose values are plain numbers and text; notebooks display it as a card."""

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
    """Return the summary that `Posterior.summary` describes."""
    chains, draws = finished.total.shape
    found = sampled_numbers(sampled, prob)
    shown = ("concentration", "prior_scale", "smoothing", "r_hat", "ess_bulk", "ess_tail", "seconds")
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
            **{name: stats[name] for name in shown if name in stats},
        }
    )


def sampled_numbers(posterior: xr.Dataset, prob: float) -> dict[str, dict[str, float]]:
    """Return mean and equal-tailed interval of every scalar parameter: N, and learned parameters of the prior."""
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
    """Return the edges of the model, ordered by the posterior probability that they exceed a threshold."""
    import pandas as pd

    threshold = at_least("threshold", threshold, 0)
    prob = coverage(prob)
    model = evidence.specification
    effects = Effects.of(model.cardinalities, model.scopes)
    largest = _largest_entries(effects, finished.effects)
    rows, index = [], []
    for pair in [subset for subset in effects.subsets if len(subset) == 2]:
        containing = [place for place, subset in enumerate(effects.subsets) if set(pair) <= set(subset)]
        strength: FloatArray = largest[..., containing].max(axis=-1)
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
    """Return the number of cells of each effect's table; their sum over a clique can be many times its own cells."""
    return [math.prod(effects.cardinalities[v] for v in subset) for subset in effects.subsets]


def _largest_entries(effects: Effects, coordinates: FloatArray) -> FloatArray:
    """Return the largest absolute entry of each effect's table, shape (chain, draw, effects)."""
    flat = coordinates.reshape(-1, effects.size)
    result = np.empty((len(flat), len(effects.subsets)))
    step = max(1, 10_000_000 // max(1, sum(effect_cells(effects))))  # 80 MB of effect tables at once
    for start in range(0, len(flat), step):
        for place, table in enumerate(effects.tables(flat[start : start + step])):
            result[start : start + step, place] = np.abs(table).max(axis=tuple(range(1, table.ndim)))
    return result.reshape(*coordinates.shape[:-1], -1)
