"""Released counts against those of the posterior."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import probability
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.measured import dimension_names
from bayesprivmrf.model.domain import asked_positions
from bayesprivmrf.plots.style import COLOURS, panels, plot_collection, share, tidy

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesprivmrf.inference import Posterior

# Colors of the true counts and of the released ones.
_LATENT, _OBSERVED = COLOURS[0], COLOURS[1]
# A light grey, behind the other two
_REPLICATED = "#bdbdbd"
# Clique in a variable's name to a heading
_HEADING = str.maketrans({",": " × ", "[": None, "]": None})
# Cells whose labels can be read side by side
_MOST_LABELS = 30
# Cells of a figure that can be read
_MOST_CELLS = 1000
_FEW = 4  # tables whose panels are large
_WIDEST = 14.0  # inches
# Inches a cell
_CELL = 0.16
# Panels side by side
_MOST_COLUMNS = 4


def noisy_against_posterior(
    posterior: Posterior,
    cliques: Sequence[Any] | None = None,
    *,
    prob: float = 0.9,
    is_centred: bool = True,
) -> Figure:
    """Draw released noisy counts against the posterior of the true counts and against replicated noisy counts.

    Parameters
    ----------
    posterior
        Its tree holds ``counts[...]``, and ``noisy_counts[...]`` both observed and predicted.
    cliques
        Measured cliques to draw, each a sequence of variables; all by default.
    prob
        Probability of the equal-tailed intervals.
    is_centred
        Whether the posterior mean of the true count is taken off every cell, so that noise shows beside large
        counts; otherwise the counts themselves are drawn.

    Returns
    -------
    matplotlib.figure.Figure
        A panel a table, in a grid about as wide as high; a column a cell (C order), records up: a wide grey bar for
        a replicated noisy count, a narrow one with a point for the latent true count, a cross for the count as
        released. The title says how many released counts lie outside the grey bars: fewer than one minus `prob` of
        them where the model fits, for the posterior has seen them. Cells declared impossible are left out.

    Raises
    ------
    ArgumentError
        `cliques` is no list, a clique was not measured, `prob` is no probability between 0 and 1, or there are
        more than 1,000 cells.
    ModelError
        A variable is unknown.
    """
    prob = probability("prob", prob, zero=False, remedy="0.9 asks for 90 % intervals")
    if not hasattr(posterior, "tree"):
        raise ArgumentError(
            f"`posterior` must be a Posterior, as LatentCounts().fit gives, got {type(posterior).__name__}."
        )
    names = _chosen(posterior, cliques)
    tree: Any = posterior.tree
    observed = {name: _flat(tree["observed_data"][name]) for name in names}
    _refuse_too_many(observed)
    replicated = {name: _flat(tree["posterior_predictive"][name]) for name in names}
    for name in names:  # a cell that cannot occur is 0 without noise
        observed[name] = observed[name].where((replicated[name].values != 0).any(axis=0))
    latent = {name: _flat(_true_counts(posterior, tree["observed_data"][name].dims)) for name in names}
    figure, axes, width = _grid(len(names), max(table.size for table in observed.values()))
    by_name = dict(zip(names, axes, strict=True))
    centres = {name: latent[name].mean("sample") * float(is_centred) for name in names}
    outside = _draw(
        by_name,
        {name: observed[name] - centres[name] for name in names},
        {name: latent[name] - centres[name] for name in names},
        {name: replicated[name] - centres[name] for name in names},
        prob,
    )
    for name, panel in by_name.items():
        _label_cells(panel, observed[name], min(_MOST_LABELS, (width - 0.8) / _CELL))
        cells = int(np.isfinite(observed[name]).sum())
        title = name.removeprefix("noisy_counts").translate(_HEADING)
        panel.set_title(f"{title}\n{outside[name]} of {cells} outside", fontsize=10, loc="left")
        tidy(panel)
        panel.grid(visible=False, axis="x")
    figure.supylabel("records less posterior mean" if is_centred else "records", fontsize=10)
    figure.legend(handles=_handles(prob), loc="outside upper left", frameon=False, fontsize=9, ncols=3)
    return figure


def _grid(tables: int, widest: int) -> tuple[Figure, list[Axes], float]:
    """Return panels and their width: as large as a few tables need, or a grid of many that fits a screen."""
    columns = min(math.ceil(math.sqrt(tables)), _MOST_COLUMNS)
    width, height = max(4.5, _CELL * widest + 1.2), 3.2
    if tables > _FEW:
        width, height = max(3.4, width - 1.1), 2.6
    elif width > _WIDEST / 2:
        columns = 1
    width = min(width, _WIDEST / columns)
    figure, axes = panels(tables, width=width, height=height, columns=columns, is_shared=False)
    return figure, axes, width


def _draw(
    axes: dict[str, Axes],
    observed: dict[str, xr.DataArray],
    latent: dict[str, xr.DataArray],
    replicated: dict[str, xr.DataArray],
    prob: float,
) -> dict[str, int]:
    """Draw the three layers; by table, the number of released counts outside their replicated interval."""
    import xarray as xr
    from arviz_plots.visuals import ci_line_y, point_y

    tails = [(1 - prob) / 2, (1 + prob) / 2]
    points, means, true_bars, noisy_bars, outside = {}, {}, {}, {}, {}
    for position, (name, released) in enumerate(observed.items()):
        dim = f"cell {position}"  # tables have different numbers of cells
        kept = np.flatnonzero(np.isfinite(released.values))
        of_true = latent[name].quantile(tails, "sample").values[:, kept]
        of_noisy = replicated[name].quantile(tails, "sample").values[:, kept]
        counts = released.values[kept]
        points[name] = ((dim,), counts)
        means[name] = ((dim,), latent[name].mean("sample").values[kept])
        true_bars[name] = (("plot_axis", dim), np.vstack([kept, of_true]))
        noisy_bars[name] = (("plot_axis", dim), np.vstack([kept, of_noisy]))
        outside[name] = int(np.sum((counts < of_noisy[0]) | (counts > of_noisy[1])))
    axis = {"plot_axis": ["x", "y_bottom", "y_top"]}
    places = xr.Dataset({name: (bar[0][1:], bar[1][0]) for name, bar in true_bars.items()})
    released = xr.Dataset(points)
    collection = plot_collection(released, axes)
    for label, bars, colour, line in (
        ("replicated", noisy_bars, _REPLICATED, 5.0),
        ("latent", true_bars, _LATENT, 1.8),
    ):
        data = xr.Dataset(bars, coords=axis)
        collection.map(ci_line_y, label, data=data, color=colour, width=line, solid_capstyle="butt")
    collection.map(
        point_y, "mean", data=xr.Dataset(means), x=places, color=_LATENT, marker="o", size=12, zorder=3
    )
    collection.map(point_y, "released", x=places, color=_OBSERVED, marker="x", size=22, width=1.2, zorder=4)
    return outside


def _label_cells(panel: Axes, table: xr.DataArray, room: float) -> None:
    if table.size <= room:
        panel.set_xticks(range(table.size), table.coords["label"].values.tolist(), rotation=90)
    else:
        panel.set_xlabel("cell, C order")
    panel.set_xlim(-0.7, table.size - 0.3)


def _handles(prob: float) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=_OBSERVED, marker="x", linestyle="none", label="noisy count as released"),
        Line2D([], [], color=_LATENT, marker="o", markersize=4, label=f"true count, {share(prob)} interval"),
        Line2D(
            [], [], color=_REPLICATED, linewidth=5, label=f"noisy count drawn anew, {share(prob)} interval"
        ),
    ]


def _chosen(posterior: Posterior, cliques: Sequence[Any] | None) -> list[str]:
    """Return the names of the tables to draw; a clique that was measured several times has several."""
    observed: Any = posterior.tree["observed_data"].data_vars
    dims = dimension_names(posterior.specification.domain)
    members = {
        str(name): frozenset(observed[name].dims)
        for name in observed
        if set(observed[name].dims) <= set(dims)
    }
    if cliques is None:
        if not members:
            raise ArgumentError("`posterior` must hold at least one measured table to draw, and holds none.")
        return list(members)
    if isinstance(cliques, str) or not isinstance(cliques, Sequence) or not len(cliques):
        raise ArgumentError(f"`cliques` must be a list of measured cliques, got {cliques!r}.")
    domain = posterior.specification.domain
    chosen: list[str] = []
    for clique in cliques:
        asked = frozenset(dims[position] for position in asked_positions(domain, clique))
        found = [name for name, own in members.items() if own == asked]
        if not found:
            raise ArgumentError(
                f"`cliques` must hold measured cliques, got {clique!r}; the measured ones are "
                f"{', '.join(name.removeprefix('noisy_counts') for name in members)}."
            )
        chosen += [name for name in found if name not in chosen]
    return chosen


def _true_counts(posterior: Posterior, dims: Sequence[Hashable]) -> xr.DataArray:
    """Return draws of the true counts of variables that one clique holds, perhaps together with others."""
    drawn: Any = posterior.tree["posterior"]
    table = next(
        drawn[name]
        for name in drawn.data_vars
        if str(name).startswith("counts[") and set(dims) <= set(drawn[name].dims)
    )
    outside = [dim for dim in table.dims if dim not in ("chain", "draw", *dims)]
    return table.sum(outside).transpose("chain", "draw", *dims)


def _flat(table: xr.DataArray) -> xr.DataArray:
    """Return the cells in C order along ``cell``, and draws, if there are any, along ``sample``."""
    import xarray as xr

    over = [dim for dim in table.dims if dim in ("chain", "draw")]
    own = [dim for dim in table.dims if dim not in over]
    cells = list(np.ndindex(*(table.sizes[dim] for dim in own)))
    labels = np.empty(len(cells), dtype=object)
    for position, cell in enumerate(cells):
        states = [str(table.coords[dim].values[code]) for dim, code in zip(own, cell, strict=True)]
        labels[position] = ", ".join(states)
    shape, dims = ((-1, len(cells)), ("sample", "cell")) if over else ((len(cells),), ("cell",))
    values = table.transpose(*over, *own).values.reshape(shape)
    return xr.DataArray(values, dims=dims, coords={"label": ("cell", labels)})


def _refuse_too_many(observed: dict[str, xr.DataArray]) -> None:
    cells = sum(table.size for table in observed.values())
    if cells > _MOST_CELLS:
        raise ArgumentError(
            f"the figure must have at most {_MOST_CELLS:,} cells to be read, got {cells:,}; choose some `cliques`."
        )
