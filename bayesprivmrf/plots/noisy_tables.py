"""Released noisy counts against the posterior of the true counts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import probability, require
from bayesprivmrf.inference.posterior.measured import dimension_names
from bayesprivmrf.model.domain import asked_positions
from bayesprivmrf.plots.style import COLORS, LETTER, PAGE_WIDTH, panels, share, tidy

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesprivmrf.inference import Posterior
    from bayesprivmrf.model.tables import FloatArray

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
        out.

    Raises
    ------
    ArgumentError
        `posterior` is not a posterior, `cliques` is not a list, a clique was not measured, `prob` is not between 0
        and 1, or there are more than 1,000 cells.
    ModelError
        A variable is unknown.
    """
    prob = probability("prob", prob, zero=False, remedy="0.9 asks for 90 % intervals")
    kind = type(posterior).__name__
    require(hasattr(posterior, "tree"), "posterior", "be a Posterior, as LatentCounts().fit gives", kind)
    tree: Any = posterior.tree
    names = _chosen(posterior, cliques)
    tables = [tree["observed_data"][name] for name in names]
    cells = sum(table.size for table in tables)
    require(
        cells <= 1000, "the figure", "have at most 1,000 cells to be read", cells, "choose some `cliques`"
    )
    labels = [
        [", ".join(map(str, cell)) for cell in product(*(table.coords[dim].values for dim in table.dims))]
        for table in tables
    ]
    # at most four columns, and at least 0.15 inches a cell where that is possible
    largest = max(map(len, labels))
    columns = max(1, min(4, math.ceil(math.sqrt(len(tables))), int(PAGE_WIDTH / (0.15 * largest + 0.6))))
    # cells are named where the names do not touch
    is_named = [len(own) <= (PAGE_WIDTH / columns - 0.6) / 0.11 for own in labels]
    below = (
        9
        * LETTER
        * max(len(text) for own, fits in zip(labels, is_named, strict=True) for text in own if fits)
    )
    height = (2.8 if len(tables) <= 4 else 1.45) + below
    figure, axes = panels(
        len(names), width=PAGE_WIDTH / columns, height=height, columns=columns, is_shared=False
    )
    for panel, name, table, own, fits in zip(axes, names, tables, labels, is_named, strict=True):
        replicated = tree["posterior_predictive"][name].transpose("chain", "draw", *table.dims)
        true = _true_counts(posterior, table.dims)
        drawn = (each.values.reshape(-1, table.size) for each in (replicated, true))
        what = name.removeprefix("noisy_counts").translate(str.maketrans({",": " × ", "[": None, "]": None}))
        outside = _draw(panel, table.values.ravel(), *drawn, prob=prob, is_centred=is_centred)
        panel.set_title(f"{what}\n{outside} outside", fontsize=9, loc="left")
        panel.set_xlim(-0.7, table.size - 0.3)
        panel.set_xticks(*([range(len(own)), own] if fits else [[]]), rotation=90)
        if not fits:
            panel.set_xlabel("cells in C order", fontsize=9)
        tidy(panel)
        panel.grid(visible=False, axis="x")
    for panel in axes[::columns]:
        panel.set_ylabel("records minus\nposterior mean" if is_centred else "records", fontsize=9)
    handles, _ = axes[0].get_legend_handles_labels()
    figure.legend(handles=handles, loc="outside upper left", frameon=False, fontsize=9, ncols=2)
    return figure


def _draw(
    panel: Axes,
    released: FloatArray,
    replicated: FloatArray,
    true: FloatArray,
    *,
    prob: float,
    is_centred: bool,
) -> str:
    """Draw one table, and say how many of its released counts are outside the intervals of replicated ones."""
    # a structural zero is 0 without noise in every draw
    places = np.flatnonzero((replicated != 0).any(axis=0))
    released, replicated, true = released[places], replicated[:, places], true[:, places]
    mean = true.mean(axis=0)
    centre = mean * float(is_centred)
    tails = [(1 - prob) / 2, (1 + prob) / 2]
    low, high = np.quantile(replicated, tails, axis=0)
    interval = f"count, {share(prob)} interval"
    bars = {"color": _REPLICATED, "linewidth": 5, "capstyle": "butt", "label": f"replicated noisy {interval}"}
    panel.vlines(places, low - centre, high - centre, **bars)
    bars = {"color": _LATENT, "linewidth": 1.8, "capstyle": "butt", "label": f"true {interval}"}
    panel.vlines(places, *(np.quantile(true, tails, axis=0) - centre), **bars)
    panel.scatter(places, mean - centre, color=_LATENT, marker="o", s=12, zorder=3)
    cross = {"color": _OBSERVED, "marker": "x", "s": 22, "linewidth": 1.2, "label": "noisy count as released"}
    panel.scatter(places, released - centre, zorder=4, **cross)
    return f"{np.sum((released < low) | (released > high))} of {len(places)}"


def _chosen(posterior: Posterior, cliques: Sequence[Any] | None) -> list[str]:
    """Return the names of the tables to draw; a clique that was measured several times has several."""
    observed: Any = posterior.tree["observed_data"].data_vars
    domain = posterior.specification.domain
    dims = dimension_names(domain)
    members = {str(name): {*own.dims} for name, own in observed.items() if {*own.dims} <= {*dims}}
    require(members, "posterior", "hold at least one measured table to draw", "none")
    if cliques is None:
        return list(members)
    is_list = isinstance(cliques, Sequence) and not isinstance(cliques, str) and len(cliques) > 0
    require(is_list, "cliques", "be a list of measured cliques", repr(cliques))
    chosen: list[str] = []
    for clique in cliques:
        asked = {dims[position] for position in asked_positions(domain, clique)}
        found = [name for name, own in members.items() if own == asked]
        known = ", ".join(name.removeprefix("noisy_counts") for name in members)
        require(found, "cliques", "hold measured cliques", repr(clique), f"the measured ones are {known}")
        chosen += found
    return list(dict.fromkeys(chosen))


def _true_counts(posterior: Posterior, dims: Sequence[Hashable]) -> xr.DataArray:
    """Return draws of the true counts of some variables, summed from the counts of a clique that contains them."""
    drawn: Any = posterior.tree["posterior"].data_vars
    tables = [own for name, own in drawn.items() if str(name).startswith("counts[")]
    table = next(own for own in tables if {*dims} <= {*own.dims})
    outside = [dim for dim in table.dims if dim not in ("chain", "draw", *dims)]
    return table.sum(outside).transpose("chain", "draw", *dims)
