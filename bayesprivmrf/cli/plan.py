"""Command ``bayesprivmrf plan``: forecast the accuracy of a budget and the cost of inference."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from bayesprivmrf.cli.output import NO_KERNEL_REMARK, aligned, column, json_text, memory, show
from bayesprivmrf.cli.release import chosen_mechanism
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT, forecast
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.planning import records_needed
from bayesprivmrf.privacy import PrivacyGuarantee

if TYPE_CHECKING:
    import pandas as pd


def run(options: argparse.Namespace) -> None:
    """Print a preview of the mechanism with a forecast of exact inference, or the records that learning needs."""
    if options.learn is not None:
        _learn(options)
        return
    model = read_declaration(options.model).specification
    mechanism = chosen_mechanism(options)
    # the preview warns if the noise is large or exact inference does not fit in memory
    preview = mechanism.preview(model, total=options.total)
    rows = preview.to_dict(orient="records")
    found: dict[str, Any] = {"mechanism": type(mechanism).__name__}
    if "step" in preview:  # of a mechanism that does not release the declared tables
        guarantee = mechanism.promise(model)
        if guarantee is None:
            promise = "none."
        else:
            promise = guarantee.sentence()
        found |= {"steps": rows, "guarantee": None if guarantee is None else guarantee.as_dict()}
        text = _table(preview, "step")
        if "seconds" in preview:
            seconds = preview["seconds"].sum()
            most = max(preview["memory_bytes"].tolist())
            text += f"\n\nAbout {seconds:,.0f} seconds of one processor core, and at most {memory(most)}"
            text += " beside the data."
        text += f"\n\nPromise: {promise}"
    else:
        cost = forecast(model.cardinalities, model.scopes)
        is_exact = cost.memory_bytes <= DEFAULT_MEMORY_LIMIT
        costs = {
            name: getattr(cost, name) for name in ("treewidth", "largest_table", "memory_bytes")
        }
        costs |= {"memory_limit": DEFAULT_MEMORY_LIMIT, "is_exact_possible": is_exact}
        found |= {"tables": rows, "forecast": costs}
        text = _table(preview, "clique")
        if "estimators" in preview.attrs:
            found["estimators"] = preview.attrs["estimators"]
            text += f"\n\n{NO_KERNEL_REMARK}"
        if cost.largest_table < 10**15:
            cells = f"{cost.largest_table:,}"
        else:
            cells = f"{cost.largest_table:.0e}"
        fits = "fits" if is_exact else "does not fit"
        limit = memory(DEFAULT_MEMORY_LIMIT)
        text += (
            f"\n\nExact inference {fits}: treewidth {cost.treewidth}, largest table {cells} cells, at most "
            f"{memory(cost.memory_bytes)} of the {limit} that inference may use."
        )
    show(json_text(found) if options.json else text)


def _learn(options: argparse.Namespace) -> None:
    """Print the number of records that it takes to learn a model."""
    variables = options.variables
    states = options.states or 2
    if options.model is not None:
        sizes = read_declaration(options.model).specification.cardinalities
        variables = len(sizes)
        states = options.states or max(2, *sizes)
    budget = {"epsilon": options.epsilon, "delta": options.delta or 0.0, "rho": options.rho}
    guarantee = PrivacyGuarantee(**budget, adjacency=options.adjacency)
    given = {"goal": options.learn, "states": states, "order": options.order or 2}
    if options.width is None:
        width = 1.0
    else:
        width = options.width
    table = records_needed(variables, options.error, guarantee, width=width, **given)
    if options.json:
        rows = table.to_dict(orient="records")
        show(json_text({"learn": options.learn, "guarantee": guarantee.as_dict(), "answers": rows}))
        return
    names = ["kind", "records", "constant", "source"]
    cells = [table["kind"], [_count(*row) for row in table[["records", "low", "high"]].to_numpy()]]
    cells += [table["constant"], table["source"] + ": " + table["says"]]
    show(aligned(names, [list(row) for row in zip(*cells, strict=True)]))


def _count(records: float, low: float, high: float) -> str:
    """Return a number of records as text, with its range if there is one."""
    if math.isnan(records):
        return "-"
    shown = [f"{value:,.0f}" if value < 1e7 else f"{value:.1e}" for value in (records, low, high)]
    if low == high:
        return shown[0]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def _table(preview: pd.DataFrame, last: str) -> str:
    """Return a preview as a plain table; the subject of each row comes last, because it may be long."""
    numbers = preview.drop(columns=last).astype(float)
    words = [text if isinstance(text, str) else ", ".join(map(str, text)) for text in preview[last]]
    columns = [column(numbers[name].tolist()) for name in numbers]
    return aligned(
        [*numbers, last], [list(row) for row in zip(*columns, words, strict=True)], left=0
    )
