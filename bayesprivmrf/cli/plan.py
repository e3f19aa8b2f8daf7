"""``bayesprivmrf plan``: what a budget buys and what inference costs, before anything is spent."""

from __future__ import annotations

import argparse
import math

from bayesprivmrf.cli.mechanism import chosen_mechanism
from bayesprivmrf.cli.output import json_text, number
from bayesprivmrf.marginals import forecast
from bayesprivmrf.model.declaration_file import read_declaration

__all__ = ["run"]


def run(options: argparse.Namespace) -> None:
    """Print the preview of the mechanism and the forecast of exact inference."""
    specification = read_declaration(options.model).specification
    mechanism = chosen_mechanism(options)
    preview = mechanism.preview(specification, total=options.total)
    cost = forecast(specification.cardinalities, specification.scopes)
    if options.json:
        rows = preview.to_dict(orient="records")
        costs = {name: getattr(cost, name) for name in ("treewidth", "largest_table", "memory_bytes")}
        print(json_text({"mechanism": type(mechanism).__name__, "tables": rows, "forecast": costs}))
        return
    print(preview.to_string(index=False, float_format=lambda value: number(float(value))))
    print(
        f"\nExact inference: treewidth {cost.treewidth}, largest table {cost.largest_table:,} cells, "
        f"at most {math.ceil(cost.memory_bytes / 1e6):,} MB."
    )
