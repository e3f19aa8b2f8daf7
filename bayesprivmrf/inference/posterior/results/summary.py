"""A posterior in one screen: how it ended, what is wrong with it, the records, and the prior's own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.cards import Card
from bayesprivmrf.inference.posterior.results.quantities import interval_of_draws

if TYPE_CHECKING:
    import xarray as xr

    from bayesprivmrf.inference.posterior.results.posterior import Posterior

_IN_SUMMARY = ("concentration", "prior_scale", "smoothing", "r_hat", "ess_bulk", "ess_tail", "seconds")


class PosteriorSummary(Card, dict[str, Any]):
    """Values that JSON can hold, shown as a card: `Posterior.summary` names them."""

    def _facts(self) -> list[tuple[str, str]]:
        return [(name.replace("_", " "), _shown(value)) for name, value in self.items()]


def summary_of(posterior: Posterior, prob: float) -> PosteriorSummary:
    """Return what `Posterior.summary` does."""
    chains, draws = posterior._draws.shape
    found = sampled_numbers(posterior.tree["posterior"].to_dataset(), prob)
    stats = posterior.stats
    return PosteriorSummary(
        {
            **({"simulated": "the noise was seeded and protects nobody"} if posterior.is_simulated else {}),
            "status": posterior.status.value,
            "problems": list(stats.get("problems", ())),
            "prob": prob,
            "records": found.pop("total", None) or float(posterior._draws.finished.total.mean()),
            "formulation": posterior._formulation.name,
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
