"""Released noisy counts against the posterior of the true counts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import probability
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.posterior.measured import dimension_names
from bayesprivmrf.model.domain import asked_positions
from bayesprivmrf.plots.style import COLORS, LETTER, PAGE_WIDTH, new_figure, plot_collection, share, tidy

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesprivmrf.inference import Posterior

# Colors of the true counts, of the released ones, and of the replicated ones behind these two
_LATENT, _OBSERVED, _REPLICATED = COLORS[0], COLORS[2], "#bdbdbd"


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
        A posterior of noisy tables, as `LatentCounts` gives. Its tree holds ``counts[...]``, and observed as well as
        predicted ``noisy_counts[...]``.
    cliques
        Measured cliques to draw, each a sequence of variables; all by default.
    prob
        Probability of the equal-tailed intervals, between 0 and 1.
    is_centred
        Whether to subtract the posterior mean of the true count from every cell, so that noise shows beside large
        counts. Otherwise the counts themselves are drawn.

    Returns
    -------
    matplotlib.figure.Figure
        A panel a table, with a column a cell (C order) and records up. A wide gray bar is the interval of a noisy
        count replicated by the posterior, a narrow bar with a point that of the true count, and a cross the count
        as released. The title says how many released counts lie outside the gray bars. If the model fits, this is
        less than the share ``1 - prob``, because the posterior was fitted to these counts. Structural zeros are left
        out. Tables above each other with the same cells have the names of the cells below the lowest one.

    Raises
    ------
    ArgumentError
        `posterior` is not a posterior, `cliques` is not a list, a clique was not measured, `prob` is not between 0
        and 1, or there are more than 1,000 cells.
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
    # a structural zero is 0 without noise in every draw
    for name in names:
        observed[name] = observed[name].where((replicated[name].values != 0).any(axis=0))
    latent = {name: _flat(_true_counts(posterior, tree["observed_data"][name].dims)) for name in names}
    figure, axes, columns = _grid(list(observed.values()))
    first_column = axes[::columns]
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
        cells = int(np.isfinite(observed[name]).sum())
        title = name.removeprefix("noisy_counts").translate(str.maketrans({",": " × ", "[": None, "]": None}))
        panel.set_title(f"{title}\n{outside[name]} of {cells} outside", fontsize=9, loc="left")
        panel.set_xlim(-0.7, observed[name].size - 0.3)
        if panel in first_column:
            panel.set_ylabel("records minus\nposterior mean" if is_centred else "records", fontsize=9)
        tidy(panel)
        panel.grid(visible=False, axis="x")
    figure.legend(handles=_handles(prob), loc="outside upper left", frameon=False, fontsize=9, ncols=2)
    return figure


def _grid(tables: list[xr.DataArray]) -> tuple[Figure, list[Axes], int]:
    """Return a figure of page width, a panel a table with names of cells, and the number of panels side by side."""
    largest = max(table.size for table in tables)
    # at most four columns, and at least 0.15 inches a cell where that is possible
    columns = max(1, min(4, math.ceil(math.sqrt(len(tables))), int(PAGE_WIDTH / (0.15 * largest + 0.6))))
    columns = min(columns, len(tables))
    rows = math.ceil(len(tables) / columns)
    width = PAGE_WIDTH / columns - 0.6
    labels = [list(table.coords["label"].values) if table.size <= width / 0.11 else None for table in tables]
    # the names stand below the lowest of several panels with the same cells
    last = columns * (rows - 1)
    named = [n >= last or labels[min(n + columns, len(labels) - 1)] != own for n, own in enumerate(labels)]
    lengths = [
        9 * LETTER * max(map(len, own)) if own and is_named else 0.0
        for own, is_named in zip(labels, named, strict=True)
    ]
    height = 2.2 if len(tables) <= 4 else 0.9
    below = sum(max(lengths[columns * r : columns * (r + 1)], default=0.0) for r in range(rows))
    figure = new_figure(PAGE_WIDTH, rows * (height + 0.55) + below + 0.6)
    axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for panel, own, is_named in zip(axes, labels, named, strict=False):
        if own is None:
            panel.set_xticks([])
            panel.set_xlabel("cells in C order", fontsize=9)
        else:
            panel.set_xticks(range(len(own)), own if is_named else [""] * len(own), rotation=90)
    for unused in axes[len(tables) :]:
        unused.set_visible(False)
    return figure, axes[: len(tables)], columns


def _draw(
    axes: dict[str, Axes],
    observed: dict[str, xr.DataArray],
    latent: dict[str, xr.DataArray],
    replicated: dict[str, xr.DataArray],
    prob: float,
) -> dict[str, int]:
    """Draw the three layers, and return by table the number of released counts outside the replicated interval."""
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
    for label, bars, color, line in (
        ("replicated", noisy_bars, _REPLICATED, 5.0),
        ("latent", true_bars, _LATENT, 1.8),
    ):
        data = xr.Dataset(bars, coords=axis)
        collection.map(ci_line_y, label, data=data, color=color, width=line, solid_capstyle="butt")
    collection.map(
        point_y, "mean", data=xr.Dataset(means), x=places, color=_LATENT, marker="o", size=12, zorder=3
    )
    collection.map(point_y, "released", x=places, color=_OBSERVED, marker="x", size=22, width=1.2, zorder=4)
    return outside


def _handles(prob: float) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], color=_OBSERVED, marker="x", linestyle="none", label="noisy count as released"),
        Line2D([], [], color=_LATENT, marker="o", markersize=4, label=f"true count, {share(prob)} interval"),
        Line2D(
            [], [], color=_REPLICATED, linewidth=5, label=f"replicated noisy count, {share(prob)} interval"
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
    """Return draws of the true counts of some variables, summed from the counts of a clique that contains them."""
    drawn: Any = posterior.tree["posterior"]
    table = next(
        drawn[name]
        for name in drawn.data_vars
        if str(name).startswith("counts[") and set(dims) <= set(drawn[name].dims)
    )
    outside = [dim for dim in table.dims if dim not in ("chain", "draw", *dims)]
    return table.sum(outside).transpose("chain", "draw", *dims)


def _flat(table: xr.DataArray) -> xr.DataArray:
    """Return a table with its cells in C order along ``cell`` and its draws, if there are any, along ``sample``."""
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
    most, cells = 1000, sum(table.size for table in observed.values())
    if cells > most:
        raise ArgumentError(
            f"the figure must have at most {most:,} cells to be read, got {cells:,}; choose some `cliques`."
        )
