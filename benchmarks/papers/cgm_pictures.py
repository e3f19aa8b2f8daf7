"""Pictures of Bernstein et al. 2017 from the tables: medians over trials, with logarithmic axes of errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bayesprivmrf.plots.accuracy import draw_cells
from bayesprivmrf.plots.style import COLORS, GRAY, panels, tidy

from .cgm_cells import COMPARED, NON_PRIVATE, PSGD, PSGD_FREE, RANDOM, RAW
from .drawing import marked

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINEAR = 0.01
"""Nats a person around 0 within which the axis of losses is linear."""

_REFERENCES = {NON_PRIVATE: "--", RANDOM: ":"}
_COLORS = dict(zip((*COMPARED, PSGD), COLORS, strict=True)) | {PSGD_FREE: COLORS[-1]}


def draw(name: str, table: pd.DataFrame) -> Figure:
    """Return the picture of a figure's table.

    Parameters
    ----------
    name
        The figure's name in the registry.
    table
        Its rows.
    """
    match name:
        case "cgm-fig1":
            return _pathologies(table)
        case "cgm-fig2":
            return _grid(table)
        case "cgm-fig3a":
            return _edges(table)
        case _:
            return _held_out(table)


def _pathologies(table: Any) -> Figure:
    figure, axes = panels(3, is_shared=False)
    for axis, panel, y, title in zip(
        axes,
        "abc",
        ("mse", "kl", "kl"),
        ("error of the marginals", "projection", "ridge"),
        strict=True,
    ):
        rows = table[table["panel"] == panel]
        where = (
            f"{rows['graph'].iloc[0]}, {rows['nodes'].iloc[0]} × {rows['states'].iloc[0]} states"
        )
        x = "records"
        if panel == "c":
            split = rows["method"].str.split(", ridge ", expand=True)
            rows = rows.assign(method=split[0], ridge=split[1].astype(float))
            x = "ridge"
        _lines(axis, rows, x, y)
        axis.set_xlabel("N" if x == "records" else "λ")
        axis.set_ylabel("mean squared error" if y == "mse" else "KL divergence, nats")
        axis.set_title(
            f"({panel}) {title}\n{where}, ε = {rows['epsilon'].max():g}", fontsize=10, loc="left"
        )
        axis.legend(frameon=False, fontsize=8)
    return figure


def _lines(axis: Axes, rows: Any, x: str, y: str, *, linear_within: float | None = None) -> None:
    """Draw medians over trials by method, on logarithmic axes; linear around 0 where values may be below."""
    for position, (method, own) in enumerate(rows.groupby("method", sort=False)):
        medians = own.groupby(x)[y].median()
        style = marked(position)
        if method in _REFERENCES:
            style["color"] = GRAY
        else:
            style["color"] = _COLORS.get(str(method), style["color"])
        style["linestyle"] = _REFERENCES.get(
            str(method), ":" if method in (RAW, PSGD_FREE) else "-"
        )
        axis.plot(medians.index, medians.to_numpy(), label=method, **style)
    axis.set_xscale("log")
    if linear_within is None:
        axis.set_yscale("log", nonpositive="mask")
    else:
        axis.set_yscale("symlog", linthresh=linear_within)
    tidy(axis)


def _grid(table: Any) -> Figure:
    """Draw divergence against N, one row per graph and one column per budget; each panel has the references."""
    graphs = list(dict.fromkeys(table["graph"]))
    epsilons = sorted(set(table["epsilon"].dropna()))
    figure, axes = panels(len(graphs) * len(epsilons), height=3.2, columns=len(epsilons))
    for number, axis in enumerate(axes):
        graph = graphs[number // len(epsilons)]
        epsilon = epsilons[number % len(epsilons)]
        here = (table["graph"] == graph) & (table["epsilon"].isna() | (table["epsilon"] == epsilon))
        _lines(axis, table[here], "records", "kl")
        axis.set_title(f"{graph}, ε = {epsilon:g}", fontsize=10, loc="left")
        axis.set_xlabel("N")
    axes[0].set_ylabel("KL divergence, nats")
    lines, labels = axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return figure


def _edges(table: Any) -> Figure:
    methods = dict(iter(table.groupby("method", sort=False)))
    first = next(iter(methods.values()))
    inferred = {
        f"{name} (KL {own['kl'].iloc[0]:.3g})": own["inferred"].to_numpy()
        for name, own in methods.items()
    }
    figure, axes = panels(len(inferred))
    draw_cells(axes, first["true"].to_numpy(), inferred)
    axes[0].set_ylabel("estimated probability")
    return figure


def _held_out(table: Any) -> Figure:
    """Draw the nats per person lost against the fit without privacy, one panel for each set of people."""
    names = list(dict.fromkeys(table["data"]))
    figure, axes = panels(len(names), is_shared=False)
    for axis, name in zip(axes, names, strict=True):
        rows = table[table["data"] == name]
        level = float(rows.loc[rows["method"] == NON_PRIVATE, "holdout_log_likelihood"].iloc[0])
        rows = rows[rows["method"] != NON_PRIVATE]
        lost = level - rows["holdout_log_likelihood"]
        # some do better than without noise, or all
        _lines(axis, rows.assign(lost=lost), "epsilon", "lost", linear_within=_LINEAR)
        axis.set_xlabel("ε")
        axis.set_title(
            f"{name}\n{rows['people'].iloc[0]:,} people, {rows['length'].iloc[0]} times",
            fontsize=10,
        )
    axes[0].set_ylabel("held-out nats a person lost\nagainst non-private MLE")
    axes[0].legend(frameon=False, fontsize=8)
    return figure
