"""Couplings of a learned model: how strong each pair's is, or the tables of some pairs, state by state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.plots.graph import MEANING, weighted_graph
from bayesprivmrf.plots.style import GREY, new_figure

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesprivmrf.learning import LearnedNetwork

# Variables of a matrix that carries numbers, and names.
_MOST_NUMBERS, _MOST_NAMES = 20, 80
# Tables of a figure, and names along the side of a table.
_MOST_TABLES, _MOST_TICKS = 12, 24
# Doublings from which on an entry of a table has the full colour.
_FULL = 3


def couplings(
    learned: LearnedNetwork,
    pairs: Sequence[Any] | None = None,
    *,
    weight: Literal["largest", "dependence"] | None = None,
) -> Figure:
    """Draw the strength of all couplings as a matrix, or the tables of some pairs, state by state.

    Parameters
    ----------
    learned
        A learned model.
    pairs
        One pair of variables, ``("a", "b")``, or a list of up to twelve. By default the matrix of all variables.
    weight
        The entries of the matrix, as in `learned_graph`; for the matrix only.

    Returns
    -------
    matplotlib.figure.Figure
        The matrix has its variables in declared order; a blank entry is a pair that the model lets be independent
        given all others. Up to twenty variables, numbers stand in the entries. A table has the states of the first
        variable downwards, and the entries of the model's `association` as colours: blue where two states come
        together more often than if the variables were independent given the others, red where less often. From log 8
        on, eight times as often, the colour is the same. Entries of rare states are mostly noise.

    Raises
    ------
    ArgumentError
        `learned` has no couplings, `pairs` are not up to twelve pairs, or `weight` is another word.
    ModelError
        A variable is unknown, or repeated.
    """
    if pairs is None:
        return _matrix(*weighted_graph(learned, 0.0, weight))
    weighted_graph(learned, 0.0, "largest")
    return _tables([learned.association(*pair) for pair in _checked(learned, pairs)])


def _checked(learned: LearnedNetwork, pairs: Any) -> list[tuple[Any, Any]]:
    domain = learned.domain
    if isinstance(pairs, Sequence) and len(pairs) == 2 and all(v in domain for v in pairs):
        pairs = [pairs]
    is_list = isinstance(pairs, Sequence) and not isinstance(pairs, str) and 0 < len(pairs) <= _MOST_TABLES
    if not is_list or not all(
        isinstance(p, Sequence) and not isinstance(p, str) and len(p) == 2 for p in pairs
    ):
        raise ArgumentError(
            f"`pairs` must be a pair of variables or a list of 1 to {_MOST_TABLES} pairs, got {pairs!r}; leave it "
            "out for the matrix of all."
        )
    return [(first, second) for first, second in pairs]


def _matrix(graph: Any, kind: str) -> Figure:
    import networkx as nx
    from matplotlib.colors import PowerNorm, TwoSlopeNorm

    names, size, has_signs = list(graph), len(graph), kind == "coupling"
    values = nx.to_numpy_array(graph, nodelist=names, nonedge=np.nan)
    largest = max(float(np.nanmax(np.abs(values), initial=0.0)), 1e-12)
    norm = TwoSlopeNorm(0.0, -largest, largest) if has_signs else PowerNorm(0.5, 0.0, largest)
    side = min(2.4 + 0.42 * size, 12.0)
    figure = new_figure(side + 0.8, side)
    panel = figure.subplots()
    image = panel.imshow(values, cmap="RdBu" if has_signs else "Blues", norm=norm)
    if size <= _MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                _number(panel, row, column, value, image)
    _axes(panel, names, names, _MOST_NAMES)
    unit = "" if kind == "dependence" else ", nats"
    figure.colorbar(image, ax=panel, label=MEANING[kind] + unit, shrink=0.8)
    return figure


def _number(panel: Axes, row: int, column: int, value: float, image: Any) -> None:
    red, green, blue, _ = image.cmap(image.norm(value))
    is_dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
    text = f"{value:.2f}" if abs(value) < 9.95 else f"{value:.0f}"
    panel.text(column, row, text, ha="center", va="center", fontsize=7, color="white" if is_dark else "black")


def _tables(tables: Sequence[xr.DataArray]) -> Figure:
    columns = min(len(tables), 3)
    rows = -(-len(tables) // columns)
    shapes = np.minimum([table.shape for table in tables], _MOST_TICKS)
    heights = [0.8 + 0.17 * shapes[columns * r : columns * (r + 1), 0].max() for r in range(rows)]
    widths = [1.2 + 0.17 * shapes[c::columns, 1].max() for c in range(columns)]
    figure = new_figure(sum(widths) + 0.6 * columns + 1.0, sum(heights) + 0.9 * rows)
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    axes = figure.subplots(rows, columns, squeeze=False, width_ratios=widths, height_ratios=heights).ravel()
    images = []
    for panel, table in zip(axes, tables, strict=False):
        images.append(
            panel.imshow(table.values / np.log(2), cmap="RdBu", vmin=-_FULL, vmax=_FULL, aspect="auto")
        )
        first, second = table.dims
        _axes(panel, table.coords[first].values, table.coords[second].values, _MOST_TICKS)
        panel.set_title(f"{first} × {second}", fontsize=10, loc="left")
    for unused in axes[len(tables) :]:
        unused.set_visible(False)
    ticks = range(-_FULL, _FULL + 1)
    bar = figure.colorbar(images[0], ax=list(axes), extend="both", aspect=30, ticks=list(ticks))
    bar.set_ticklabels([f"×{2**tick}" if tick >= 0 else f"×1/{2**-tick}" for tick in ticks])
    bar.set_label("as often as if independent given all others")
    return figure


def _axes(panel: Axes, down: Sequence[Any], across: Sequence[Any], most: int) -> None:
    """Name rows and columns, every second or third where there are many, and take off the frame."""
    for names, place in ((down, panel.set_yticks), (across, panel.set_xticks)):
        ticks = range(0, len(names), -(-len(names) // most))
        place(ticks, [str(names[tick]) for tick in ticks], fontsize=8)
    panel.tick_params(axis="x", rotation=90, length=0)
    panel.tick_params(axis="y", length=0)
    panel.set_facecolor("#f4f4f4")
    panel.spines[:].set_color(GREY)
    panel.spines[:].set_linewidth(0.6)
