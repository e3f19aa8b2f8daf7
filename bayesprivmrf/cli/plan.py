"""Command ``bayesprivmrf plan``: forecast the accuracy of a budget and the cost of inference."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from bayesprivmrf.cli.mechanism import chosen_mechanism
from bayesprivmrf.cli.output import NO_KERNEL, aligned, column, json_text, memory
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT, forecast
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.planning import records_needed
from bayesprivmrf.privacy import PrivacyGuarantee

if TYPE_CHECKING:
    import pandas as pd

    from bayesprivmrf.marginals import Forecast


def run(options: argparse.Namespace) -> None:
    """Print a preview of the mechanism with a forecast of exact inference, or the records that learning needs."""
    if options.learn is not None:
        _learn(options)
        return
    specification = read_declaration(options.model).specification
    mechanism = chosen_mechanism(options)
    # the preview warns if the noise is large or exact inference does not fit in memory
    preview = mechanism.preview(specification, total=options.total)
    if "step" in preview:
        _print_steps(preview, mechanism, specification, as_json=options.json)
        return
    cost = forecast(specification.cardinalities, specification.scopes)
    is_exact = cost.memory_bytes <= DEFAULT_MEMORY_LIMIT
    if options.json:
        rows = preview.to_dict(orient="records")
        costs = {name: getattr(cost, name) for name in ("treewidth", "largest_table", "memory_bytes")}
        costs |= {"memory_limit": DEFAULT_MEMORY_LIMIT, "is_exact_possible": is_exact}
        takers = {name: value for name, value in preview.attrs.items() if name == "estimators"}
        print(json_text({"mechanism": type(mechanism).__name__, "tables": rows, "forecast": costs, **takers}))
    else:
        print(_table(preview))
        if "estimators" in preview.attrs:
            print(f"\n{NO_KERNEL}")
        print(f"\nExact inference {'fits' if is_exact else 'does not fit'}: {_cost(cost)}.")


def _learn(options: argparse.Namespace) -> None:
    """Print the number of records that it takes to learn a model."""
    variables, states = options.variables, options.states or 2
    if options.model is not None:
        sizes = read_declaration(options.model).specification.cardinalities
        variables, states = len(sizes), options.states or max(2, *sizes)
    guarantee = PrivacyGuarantee(
        epsilon=options.epsilon, delta=options.delta or 0.0, rho=options.rho, adjacency=options.adjacency
    )
    table = records_needed(
        variables,
        options.error,
        guarantee,
        goal=options.learn,
        states=states,
        order=options.order or 2,
        width=1.0 if options.width is None else options.width,
    )
    if options.json:
        rows = table.to_dict(orient="records")
        print(json_text({"learn": options.learn, "guarantee": guarantee.as_dict(), "answers": rows}))
        return
    names = ["kind", "records", "constant", "source"]
    cells = [table["kind"], [_count(*row) for row in table[["records", "low", "high"]].to_numpy()]]
    cells += [table["constant"], table["source"] + ": " + table["says"]]
    print(aligned(names, [list(row) for row in zip(*cells, strict=True)]))


def _count(records: float, low: float, high: float) -> str:
    """Return a number of records as text, with its range if there is one."""
    if math.isnan(records):
        return "-"
    shown = [f"{value:,.0f}" if value < 1e7 else f"{value:.1e}" for value in (records, low, high)]
    return shown[0] if low == high else f"{shown[0]} ({shown[1]} to {shown[2]})"


def _print_steps(preview: pd.DataFrame, mechanism: Any, specification: Any, *, as_json: bool) -> None:
    """Print the steps and the promise of a mechanism that does not release the declared tables."""
    guarantee = mechanism.promise(specification)
    if as_json:
        rows = preview.to_dict(orient="records")
        stated = None if guarantee is None else guarantee.as_dict()
        print(json_text({"mechanism": type(mechanism).__name__, "steps": rows, "guarantee": stated}))
        return
    print(_table(preview, "step"))
    if "seconds" in preview:
        seconds, most = preview["seconds"].sum(), max(preview["memory_bytes"].tolist())
        print(
            f"\nAbout {seconds:,.0f} seconds of one processor core, and at most {memory(most)} beside the data."
        )
    print(f"\nPromise: {'none.' if guarantee is None else guarantee.sentence()}")


def _table(preview: pd.DataFrame, last: str = "clique") -> str:
    """Return a preview as a plain table; the subject of each row comes last, because it may be long."""
    names = [name for name in preview.columns if name != last]
    columns = [
        column([math.nan if value is None else float(value) for value in preview[name]]) for name in names
    ]
    words = [text if isinstance(text, str) else ", ".join(map(str, text)) for text in preview[last]]
    return aligned([*names, last], [list(row) for row in zip(*columns, words, strict=True)], left=0)


def _cost(cost: Forecast) -> str:
    """Return the forecast of exact inference as a text."""
    cells = f"{cost.largest_table:,}" if cost.largest_table < 10**15 else f"{cost.largest_table:.0e}"
    return (
        f"treewidth {cost.treewidth}, largest table {cells} cells, at most {memory(cost.memory_bytes)} of the "
        f"{memory(DEFAULT_MEMORY_LIMIT)} that inference may use"
    )
