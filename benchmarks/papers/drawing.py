"""Pictures from the tables: paper and tight calibration side by side, on shared axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.plots.style import COLORS, GRAY, MARKS, new_figure, panels, tidy

from .estimators import PRIVATE
from .registry import DataName
from .sources import LABELS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MPLE = "non-private MPLE"
_STATE_COLORS = ("#0072B2", "#D55E00")


def draw(name: str, table: pd.DataFrame, published: Mapping[DataName, Any]) -> Figure:
    """Return the picture of a figure's table.

    Parameters
    ----------
    name
        The figure's name in the registry.
    table
        Its rows.
    published
        The networks at hand, for the edges of a drawn one.
    """
    match name.removeprefix("prising-"):
        case "fig1" | "fig7" | "fig10":
            return _estimates(table)
        case "fig2" | "fig3":
            return _errors(table, "nodes", "n", is_log=True)
        case "fig4" | "fig5":
            return _errors(table, "edge_exponent", "α  (p = n^-α)", is_log=False)
        case "fig6" | "fig9":
            return _drawing(table, published)
        case "fig8" | "fig11":
            return _costs(table)
        case "fig12":
            return _regimes(table)
        case _:
            return _errors(table, "beta", "β", is_log=False)


def _where(table: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Return the rows with the given values."""
    for column, value in values.items():
        table = table.loc[table[column] == value]
    return table


def _setting(table: pd.DataFrame) -> str:
    first = table.iloc[0]
    return (
        f"{LABELS[first['network']]}, n = {first['nodes']:,}, {first['repetitions']:,} repetitions"
    )


def _estimates(table: pd.DataFrame) -> Figure:
    """Draw mean and one standard deviation against the true beta; the first panel is the paper's."""
    figure, axes = panels(len(PRIVATE), width=3.6, height=3.8)
    mple = _where(table, estimator="mple")
    if len(mple) > 1:
        aside = 0.12 * float(np.diff(np.sort(mple["beta"])).min())
    else:
        aside = 0.0
    for number, (axis, private) in enumerate(zip(axes, PRIVATE, strict=True)):
        rows = _where(table, estimator=private.name)
        ends = [min(mple["beta"]), max(mple["beta"])]
        axis.plot(ends, ends, color=GRAY, linestyle=(0, (4, 3)), linewidth=1)
        _bars(axis, mple, -aside, GRAY, "o", _MPLE)
        _bars(axis, rows, aside, COLORS[number], MARKS[number + 1], private.label)
        axis.set_xlabel("true β")
        axis.set_title(f"{private.label}, ε = {rows['epsilon'].iloc[0]:g}", fontsize=10)
        axis.legend(frameon=False, fontsize=8, loc="upper left")
        tidy(axis)
    axes[0].set_ylabel("estimate: mean ± 1 sd")
    figure.suptitle(_setting(table), fontsize=10)
    return figure


def _bars(axis: Axes, rows: pd.DataFrame, aside: float, colour: str, mark: str, label: str) -> None:
    axis.errorbar(
        rows["beta"] + aside,
        rows["mean"],
        yerr=rows["sd"].fillna(0.0),
        color=colour,
        marker=mark,
        markersize=4,
        linewidth=1,
        elinewidth=1,
        capsize=2,
        linestyle="none",
        label=label,
    )


def _errors(table: pd.DataFrame, x: str, label: str, *, is_log: bool) -> Figure:
    """Draw mean squared error against x: a line for each epsilon, a panel for each calibration, a row per network."""
    names = list(dict.fromkeys(table["network"]))
    figure, axes = panels(
        len(PRIVATE) * len(names),
        width=3.6,
        height=3.6,
        columns=len(PRIVATE),
        is_shared=len(names) == 1,
    )
    for number, axis in enumerate(axes):
        network = names[number // len(PRIVATE)]
        private = PRIVATE[number % len(PRIVATE)]
        rows = _where(table, network=network)
        _line(axis, _where(rows, estimator="mple"), x, GRAY, "o", _MPLE)
        own = _where(rows, estimator=private.name)
        for position, epsilon in enumerate(sorted(set(own["epsilon"]))):
            part = _where(own, epsilon=epsilon)
            _line(axis, part, x, COLORS[position], MARKS[position + 1], f"ε = {epsilon:g}")
        on_log_axes(axis, table[x] if is_log else ())
        axis.set_xlabel(label)
        axis.set_title(
            private.label if len(names) == 1 else f"{LABELS[network]}: {private.label}", fontsize=10
        )
        tidy(axis)
    if len(names) > 1:
        _one_scale_a_row(axes)
    axes[0].legend(frameon=False, fontsize=8)
    axes[0].set_ylabel("mean squared error")
    if x == "beta":
        steady = ""
    else:
        steady = f"β = {table['beta'].iloc[0]:g}, "
    if len(names) == 1:
        where = f"{LABELS[names[0]]}, "
    else:
        where = ""
    figure.suptitle(f"{where}{steady}{table['repetitions'].iloc[0]:,} repetitions", fontsize=10)
    return figure


def _one_scale_a_row(axes: list[Axes]) -> None:
    for first in range(0, len(axes), len(PRIVATE)):
        row = axes[first : first + len(PRIVATE)]
        low = min(a.get_ylim()[0] for a in row)
        high = max(a.get_ylim()[1] for a in row)
        for axis in row:
            axis.set_ylim(low, high)


def _line(
    axis: Axes, rows: pd.DataFrame, x: str, colour: str, mark: str, label: str, dash: str = "-"
) -> None:
    rows = rows.sort_values(x)
    axis.errorbar(
        rows[x],
        rows["mse"],
        yerr=rows["mse_error"].fillna(0.0),
        color=colour,
        marker=mark,
        markersize=4,
        linewidth=1.2,
        elinewidth=1,
        linestyle=dash,
        label=label,
    )


def marked(place: int) -> dict[str, Any]:
    """Return the style of the line at a place in a panel: a distinct colour and mark."""
    colour = COLORS[place % len(COLORS)]
    mark = MARKS[place % len(MARKS)]
    return {"color": colour, "marker": mark, "markersize": 4, "linewidth": 1.2}


def on_log_axes(axis: Axes, places: Iterable[float] = ()) -> None:
    """Logarithmic squared errors; on the other axis too, with ticks at given places, where there are any."""
    axis.set_yscale("log", nonpositive="mask")
    at = sorted({float(place) for place in places})
    if at:
        axis.set_xscale("log")
        axis.set_xticks(at, [f"{place:g}" for place in at], rotation=45 if len(at) > 4 else 0)
        axis.minorticks_off()


def _costs(table: pd.DataFrame) -> Figure:
    """Draw the mean squared difference from the estimate without privacy, against epsilon."""
    figure = new_figure(6.0, 4.2)
    axis = figure.subplots()
    for number, private in enumerate(PRIVATE):
        own = _where(table, estimator=private.name)
        for bounds, dash in (("none", "-"), (_last_bounds(table), ":")):
            part = _where(own, bounds=bounds)
            if bounds == "none":
                written = "no bounds"
            else:
                written = f"within {bounds}"
            _line(
                axis,
                part,
                "epsilon",
                COLORS[number],
                MARKS[number + 1],
                f"{private.label}, {written}",
                dash,
            )
    on_log_axes(axis, table["epsilon"])
    axis.set_xlabel("ε")
    axis.set_ylabel("mean squared difference from the MPLE")
    first = table.iloc[0]
    axis.set_title(
        f"{LABELS[first['network']]}, real outcomes, MPLE {first['beta']:.4f}", fontsize=10
    )
    axis.legend(frameon=False, fontsize=8)
    tidy(axis)
    return figure


def _last_bounds(table: pd.DataFrame) -> str:
    return next(bounds for bounds in table["bounds"] if bounds != "none")


def _regimes(table: pd.DataFrame) -> Figure:
    """Draw mean squared error against epsilon on each network, at a beta on either side of one."""
    names = list(dict.fromkeys(table["network"]))
    figure, axes = panels(len(names), width=4.2, height=4.0, columns=3)
    for axis, network in zip(axes, names, strict=True):
        rows = _where(table, network=network)
        for beta, dash in zip(sorted(set(rows["beta"])), ("-", ":"), strict=True):
            here = _where(rows, beta=beta)
            level = float(_where(here, estimator="mple")["mse"].iloc[0])
            axis.axhline(
                level, color=GRAY, linestyle=dash, linewidth=1, label=f"{_MPLE}, β = {beta:g}"
            )
            for number, private in enumerate(PRIVATE):
                part = _where(here, estimator=private.name)
                label = f"{private.label}, β = {beta:g}"
                _line(axis, part, "epsilon", COLORS[number], MARKS[number + 1], label, dash)
        on_log_axes(axis, rows["epsilon"].dropna())
        axis.set_xlabel("ε")
        axis.set_title(_setting(rows), fontsize=9)
        tidy(axis)
    axes[0].set_ylabel("mean squared error")
    lines, labels = axes[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _drawing(table: pd.DataFrame, published: Mapping[DataName, Any]) -> Figure:
    from matplotlib.collections import LineCollection

    figure = new_figure(6.5, 6.5)
    axis = figure.subplots()
    name = table["network"].iloc[0]
    graph = published[name].read().graph
    places = table[["x", "y"]].to_numpy()
    order = {node: position for position, node in enumerate(graph)}
    ends = [(places[order[a]], places[order[b]]) for a, b in graph.edges]
    axis.add_collection(LineCollection(ends, colors="#bbbbbb", linewidths=0.4, zorder=1))
    for state, colour in zip(sorted(set(table["state"])), _STATE_COLORS, strict=False):
        own = _where(table, state=state)
        axis.scatter(
            own["x"], own["y"], s=9, color=colour, zorder=2, label=f"{state} ({len(own):,})"
        )
    axis.set_title(
        f"{LABELS[name]}: {len(graph):,} nodes, {graph.number_of_edges():,} edges", fontsize=10
    )
    axis.legend(frameon=False, fontsize=9)
    axis.set_axis_off()
    return figure
