"""Couplings of a learned model, as the command line prints them."""

from __future__ import annotations

from typing import Any

from bayesprivmrf.cli.output import aligned
from bayesprivmrf.learning.models.base import LearnedNetwork

__all__ = ["all_couplings", "strongest"]

_SHOWN = 10


def all_couplings(model: LearnedNetwork) -> list[dict[str, Any]]:
    """Couplings that are not 0, the largest in size first; of tables, their largest entry in size."""
    edges = sorted(model.graph().edges(data="weight"), key=lambda edge: -abs(edge[2]))
    return [{"variables": [a, b], "coupling": weight} for a, b, weight in edges]


def strongest(model: LearnedNetwork) -> str:
    """Return a table of the ten largest couplings."""
    found = all_couplings(model)
    if not found:
        return "No pair is coupled."
    rows = [
        [str(each["variables"][0]), str(each["variables"][1]), f"{each['coupling']:.3f}"]
        for each in found[:_SHOWN]
    ]
    return f"{model.graph_heading}, nats:\n{aligned(['variable', 'other', 'coupling'], rows, left=2)}"
