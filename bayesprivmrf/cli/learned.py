"""Couplings of a learned model, as the command line prints them."""

from __future__ import annotations

from typing import Any

from bayesprivmrf.cli.output import aligned

__all__ = ["strongest"]

_SHOWN = 10


def strongest(couplings: list[dict[str, Any]], heading: str) -> str:
    """Return a table of the ten largest couplings of a release's `summary`."""
    if not couplings:
        return "No pair is coupled."
    rows = [[*map(str, each["variables"]), f"{each['coupling']:.3f}"] for each in couplings[:_SHOWN]]
    return f"{heading}, nats:\n{aligned(['variable', 'other', 'coupling'], rows, left=2)}"
