"""Couplings of a learned model: the strength of all pairs as a matrix, or the tables of some pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.plots.graph import MEANING, weighted_graph
from bayesprivmrf.plots.style import GRAY, LETTER, PAGE_WIDTH, new_figure

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesprivmrf.learning import LearnedNetwork

# Tables in one figure: more would be too small to read
_MOST_TABLES = 12


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
        One pair of variables, ``("a", "b")``, or a list of up to twelve. By default the matrix of all variables is
        drawn.
    weight
        The entries of the matrix, as in `learned_graph`. Tables of pairs do not use it.

    Returns
    -------
    matplotlib.figure.Figure
        The matrix has the variables in declared order. A blank entry is a pair that the model takes for independent
        given all other variables. Up to twenty variables, the entries carry their numbers.

        The table of a pair has the states of the first variable as rows and those of the second as columns. Colors
        show the model's `association`: blue where two states occur together more often than they would if the
        variables were independent given all others, red with a dash where less often. From eight times as often on,
        the color stays the same. Entries of rare states are mostly noise.

    Raises
    ------
    ArgumentError
        `learned` has no couplings, `pairs` is not up to twelve pairs, or `weight` is another word.
    ModelError
        A variable is unknown or repeated.

    Examples
    --------
    >>> import pandas as pd
    >>> import bayesprivmrf as bpm
    >>> from bayesprivmrf.mechanisms import SelectMeasure
    >>> records = pd.DataFrame({"a": [0, 1] * 500, "b": [0, 1] * 500, "c": [0] * 500 + [1] * 500})
    >>> network = bpm.declare(states={"a": [0, 1], "b": [0, 1], "c": [0, 1]})
    >>> learned = SelectMeasure(rho=1.0, degree=1).release(network, records, rng=1)
    >>> figure = couplings(learned, ("a", "b"))
    >>> figure.axes[0].get_ylabel(), figure.axes[0].get_xlabel()
    ('a', 'b')
    """
    if pairs is None:
        return _matrix(*weighted_graph(learned, 0.0, weight))
    weighted_graph(learned, 0.0, "largest")
    return _tables([learned.association(*pair) for pair in _checked(learned, pairs)])


def _checked(learned: LearnedNetwork, pairs: Any) -> list[tuple[Any, Any]]:
    is_list = isinstance(pairs, Sequence) and not isinstance(pairs, str)
    if is_list and len(pairs) == 2 and all(v in learned.domain for v in pairs):
        pairs = [pairs]
    is_pairs = is_list and all(
        isinstance(p, Sequence) and not isinstance(p, str) and len(p) == 2 for p in pairs
    )
    must = f"be a pair of variables or a list of 1 to {_MOST_TABLES} pairs"
    holds = is_pairs and 0 < len(pairs) <= _MOST_TABLES
    require(holds, "pairs", must, repr(pairs), "leave it out for the matrix of all")
    return [(first, second) for first, second in pairs]


def _matrix(graph: Any, kind: str) -> Figure:
    import networkx as nx
    from matplotlib.colors import PowerNorm, TwoSlopeNorm

    names, size, has_signs = list(graph), len(graph), kind == "coupling"
    values = nx.to_numpy_array(graph, nodelist=names, nonedge=np.nan)
    largest = max(float(np.nanmax(np.abs(values), initial=0.0)), 1e-12)
    # the square root makes weak dependences visible beside strong ones
    norm = TwoSlopeNorm(0.0, -largest, largest) if has_signs else PowerNorm(0.5, 0.0, largest)
    side = min(2.4 + 0.42 * size, PAGE_WIDTH - 0.8)
    figure = new_figure(side + 0.8, side)
    panel = figure.subplots()
    image = panel.imshow(values, cmap="RdBu" if has_signs else "Blues", norm=norm)
    if size <= 20:
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                red, green, blue, _ = image.cmap(image.norm(value))
                is_dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
                color = "white" if is_dark else "black"
                text = f"{value:z.2f}" if abs(value) < 9.95 else f"{value:.0f}"
                panel.text(column, row, text, ha="center", va="center", fontsize=7, color=color)
    elif has_signs:
        _dashes(panel, values, 0.05 * largest, largest, side - 1.2)
    unit = "" if kind == "dependence" else ", nats" + "\n(dash: negative)" * (has_signs and size > 20)
    _name_entries(panel, names, names, width=side - 1.2, most=40)
    figure.colorbar(image, ax=panel, label=MEANING[kind] + unit, shrink=0.8)
    return figure


def _dashes(panel: Axes, values: np.ndarray, least: float, darkest: float, width: float) -> None:
    """Mark entries below ``-least``: in gray, the red of the color map looks like its blue.

    The color is darkest at ``-darkest``; dashes on dark entries are white. The panel is about `width` inches wide.
    """
    below = np.nan_to_num(values)
    # a third of an entry wide, in points, within limits
    size = float(np.clip(72 * width / values.shape[1] / 3, 3.5, 8))
    rows, columns = np.nonzero(below < -least)
    colors = np.where(below[rows, columns] <= -0.6 * darkest, "white", "black")
    panel.scatter(columns, rows, s=size**2, c=colors, marker="_", linewidths=1.2)


def _tables(tables: Sequence[xr.DataArray]) -> Figure:
    beside, letters = (
        [8 * LETTER * max(len(str(s)) for s in table.coords[table.dims[axis]].values) for table in tables]
        for axis in (0, 1)
    )
    # two tables side by side, if their row names leave at least 1.5 inches for each
    taken = 0.7 + max(beside)
    columns = 2 if len(tables) > 1 and (PAGE_WIDTH - 1.6) / 2 - taken >= 1.5 else 1
    rows = -(-len(tables) // columns)
    shapes = np.array([table.shape for table in tables])
    # inches: 0.3 a state up to eight states, then closer
    sides = np.clip(0.3 * shapes, 0.9, 3.4)
    heights = [sides[columns * r : columns * (r + 1), 0].max() for r in range(rows)]
    width = min(4.8 + max(beside), PAGE_WIDTH) if columns == 1 else PAGE_WIDTH
    across = (width - 1.6) / columns - taken
    labels = sum(max(letters[columns * r : columns * (r + 1)]) + 0.6 for r in range(rows))
    figure = new_figure(width, max(sum(heights) + labels, 3.2))
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    axes = figure.subplots(rows, columns, squeeze=False, height_ratios=heights).ravel()
    full = 3  # doublings from which on an entry has the full color: eight times as often
    images = []
    for panel, table in zip(axes, tables, strict=False):
        doublings = table.values / np.log(2)
        images.append(panel.imshow(doublings, cmap="RdBu", vmin=-full, vmax=full, aspect="auto"))
        # entries below 0.8 times as often, where the red begins to show
        _dashes(panel, doublings, 0.3, full, across)
        first, second = table.dims
        down, right = (table.coords[dim].values for dim in table.dims)
        _name_entries(panel, down, right, width=across, most=24)
        panel.set_ylabel(str(first), fontsize=10)
        panel.set_xlabel(str(second), fontsize=10)
    for unused in axes[len(tables) :]:
        unused.set_visible(False)
    ticks = range(-full, full + 1)
    bar = figure.colorbar(images[0], ax=list(axes), extend="both", aspect=30, ticks=list(ticks))
    bar.set_ticklabels([f"×{2**tick}" if tick >= 0 else f"×1/{2**-tick}" for tick in ticks])
    bar.set_label("frequency relative to\nconditional independence\n(dash: less often)", fontsize=9)
    return figure


def _name_entries(
    panel: Axes, down: Sequence[Any], across: Sequence[Any], *, width: float, most: int
) -> None:
    """Name rows and columns, every second or third where there are more than `most`, upright only where needed.

    The panel is about `width` inches wide.
    """
    for names, place in ((down, panel.set_yticks), (across, panel.set_xticks)):
        ticks = range(0, len(names), -(-len(names) // most))
        place(ticks, [str(names[tick]) for tick in ticks], fontsize=8)
    longest = max(len(str(name)) for name in across)
    fits = (longest + 1.5) * 8 * LETTER <= width / min(len(across), most)
    panel.tick_params(axis="x", rotation=0 if fits else 90, length=0)
    panel.tick_params(axis="y", length=0)
    panel.set_facecolor("white")
    panel.spines[:].set_color(GRAY)
    panel.spines[:].set_linewidth(0.6)
