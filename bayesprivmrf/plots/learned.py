"""Learned models: their graph, the strengths of all couplings as a matrix, and the tables of some pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayesprivmrf.checks import object_with, one_of, probability, require
from bayesprivmrf.plots.style import (
    COLORS,
    GRAY,
    LETTER,
    MEDIUM,
    PAGE_WIDTH,
    SMALL,
    TINY,
    look,
    new_figure,
)

if TYPE_CHECKING:
    import networkx as nx
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesprivmrf.learning import LearnedNetwork


# Variables whose names fit around the circle, legibly in a picture of 800 pixels
_MOST_NAMES = 80
# Variables whose names stand beside their nodes; more are written along the radius
_MOST_BESIDE = 16
# Inches: margin beyond the names, their length up to which a small figure has room, its width, the smallest radius,
# and the height of a name above and below
_MARGIN = 0.2
_SHORT = 0.8
_NARROW = 6.4
_LEAST_RADIUS = 1.5
_LINE = 0.3
# Width of edges, points: of the weakest, and by how much the strongest is wider
_THINNEST = 0.4
_WIDER = 4.6
_OPACITY = 0.8
# Weights that are still legible beside each other, in a graph or in a matrix, and their places along the edges: most
# diagonals cross at their centers
_MOST_WEIGHTS = 20
_ALONG = 0.35
NODE: Any = {"s": 40, "edgecolors": "black", "linewidths": 0.6, "zorder": 3}
# Cosine up to which a node counts as near the top or the bottom, and the distance of a name from the center
_UPRIGHT = 0.08
_OUTSIDE = 1.05
# Least range of colors, where all values are zero
_LEAST_RANGE = 1e-12
# Inches: the size of a matrix without entries, of an entry, beside it for the colors, and for its names
_EMPTY = 2.4
_ENTRY = 0.42
_COLORBAR = 0.8
_NAMES = 1.2
# Weights of red, green and blue in the lightness of a color (ITU-R BT.601)
_LIGHTNESS = np.array([0.3, 0.59, 0.11])
# Largest number that is written with two decimals, and the size of such text in points
_TWO_DECIMALS = 9.95
_ENTRY_FONT = 7
# Height of the color bar as a share of the matrix, and the width of its frame in points
_SHRUNK = 0.8
_FRAME = 0.6
# Degrees of names that stand upright
_UPWARD = 90
# Share of the largest coupling below which a negative one gets no dash
_FAINT = 0.05
# Names along one side of a matrix, and of a table
_MATRIX_NAMES = 40
_TABLE_NAMES = 24
# Points in an inch; dashes take a third of an entry, within limits in points
_INCH = 72
_DASH_SHARE = 3
_DASH_LIMITS = (3.5, 8)
_DASH_WIDTH = 1.2
# Share of the darkest color from which on dashes are white
_DARK = 0.6
# Tables, in inches: beside the entries and their names, beside all tables, the least width for two side by side, a
# state, the limits of a table's height, its width alone, its labels, and the least height of a figure
_TABLE_BESIDE = 0.7
_TABLES_BESIDE = 1.6
_TWO_FROM = 1.5
_STATE = 0.3
_TABLE_LIMITS = (0.9, 3.4)
_ONE_TABLE = 4.8
_TABLE_LABELS = 0.6
_LEAST_HEIGHT = 3.2
_PADS = {"w_pad": 0.12, "h_pad": 0.08}
# Doublings from which on an entry has the full color, eight times as often, and from which on the red shows
_FULL = 3
_RED = 0.3
_BAR_ASPECT = 30
# Letters between the names of two columns
_BETWEEN = 1.5
# Meaning of the weights of a graph's edges
MEANING = {
    "coupling": "coupling",
    "largest": "largest entry of a coupling",
    "dependence": "dependence given all others",
}


def learned_graph(
    learned: LearnedNetwork,
    *,
    threshold: float | None = None,
    weight: Literal["largest", "dependence"] | None = None,
    excludes_zero: float | None = None,
    order: Literal["communities", "declared"] = "communities",
    rng: int | np.random.Generator | None = None,
) -> Figure:
    """Draw the graph of a learned model: the wider an edge, the stronger the coupling.

    Parameters
    ----------
    learned
        A learned model.
    threshold
        Smallest weight of an edge, at least 0. By default the couplings that stand out from their noise are drawn, as
        the method `graph` of the model explains. All variables are drawn in any case.
    weight
        Meaning of an edge's width, as the method `graph` of the model explains. The default is ``"largest"``, the
        coupling itself in nats, where a coupling is one number. Elsewhere it is ``"dependence"``, from 0 to 1,
        because the largest entry of a table mostly belongs to a rare state.
    excludes_zero
        Probability of the intervals of `couplings_interval`, between 0 and 1, such as 0.9. Only pairs with an
        interval that excludes zero are drawn; where a pair has several couplings, one such interval suffices. The
        intervals hold one by one: of many pairs without a coupling, about one minus this probability are drawn.
        By default intervals play no part.
    order
        ``"communities"`` puts variables with many strong edges between them side by side, in one color: the
        communities of greatest modularity, found greedily. ``"declared"`` keeps the declared order, so that the
        graphs of two releases can be compared.
    rng
        Seed or generator for the intervals, which simulate records from the model.

    Returns
    -------
    matplotlib.figure.Figure
        Variables on a circle. Where a coupling is one number, positive ones are solid lines and negative ones dashed.
        Up to twenty edges carry their weight, and up to eighty variables their names. A star marks variables with
        rare states that are merged in the fit.

    Raises
    ------
    ArgumentError
        `learned` has no couplings, `threshold` is negative or not a finite number, `excludes_zero` is not between 0
        and 1, or `weight` or `order` is another word.
    ModelError
        `excludes_zero` is given, and the model has no intervals of couplings, as after ``SelectMeasure(rho)``
        without a degree.

    References
    ----------
    Clauset, Newman, Moore, "Finding community structure in very large networks", Physical Review E 70, 2004, for
    the communities.

    Examples
    --------
    >>> import pandas as pd
    >>> import bayesprivmrf as bpm
    >>> from bayesprivmrf.mechanisms import SelectMeasure
    >>> related, other = [0, 1, 0, 1, 0, 1, 1, 0] * 125, [0] * 500 + [1] * 500
    >>> records = pd.DataFrame({"a": [0, 1] * 500, "b": related, "c": other})
    >>> network = bpm.declare(states={"a": [0, 1], "b": [0, 1], "c": [0, 1]})
    >>> learned = SelectMeasure(rho=1.0, degree=1).release(network, records, rng=1)
    >>> figure = learned_graph(learned, excludes_zero=0.9, rng=1)
    >>> [label.get_text() for label in figure.axes[0].texts]  # one edge with its weight, three names
    ['0.55', 'a', 'b', 'c']
    """
    one_of("order", order, ("communities", "declared"))
    graph, kind = weighted_graph(learned, threshold, weight)
    if excludes_zero is not None:
        remedy = "0.9 asks for 90 % intervals"
        excludes_zero = probability("excludes_zero", excludes_zero, zero=False, remedy=remedy)
        kept = _significant(learned, excludes_zero, rng)
        graph.remove_edges_from([(a, b) for a, b in graph.edges if frozenset((a, b)) not in kept])
    if order == "communities":
        groups = _communities(graph)
    else:
        groups = [list(graph)]
    # even steps along the circle, and a gap of one step between two groups
    step = 2 * math.pi / max(len(graph) + (len(groups) if len(groups) > 1 else 0), 1)
    angles: dict[Any, float] = {}
    colors = []
    for number, group in enumerate(groups):
        start = len(angles) + number
        angles |= {
            variable: math.pi / 2 - step * (start + place) for place, variable in enumerate(group)
        }
        is_community = order == "communities" and graph.degree(group[0]) > 0
        colors += [look(number)["color"] if is_community else "black"] * len(group)
    names = {v: f"{v}*" if "merged" in graph.nodes[v] else str(v) for v in graph}
    figure, panel = circle_panel(list(names.values()))
    places = {v: (math.cos(angle), math.sin(angle)) for v, angle in angles.items()}
    # Draw positive and negative couplings, as wide as they are strong, with the strength in the legend
    import networkx as nx

    weights = nx.get_edge_attributes(graph, "weight")
    largest = max(map(abs, weights.values()), default=0.0)
    if kind == "coupling":
        positive = COLORS[0]
    else:
        positive = GRAY
    for sign, color, style in ((1, positive, "solid"), (-1, COLORS[2], "dashed")):
        # the strongest are drawn last
        own = sorted(
            (edge for edge in weights if sign * weights[edge] > 0),
            key=lambda edge: abs(weights[edge]),
        )
        if own:
            shown = {"edge_color": color, "style": style, "alpha": _OPACITY}
            widths = [_THINNEST + _WIDER * abs(weights[edge]) / largest for edge in own]
            nx.draw_networkx_edges(graph, places, ax=panel, edgelist=own, width=widths, **shown)
            if kind == "coupling":
                words = "positive" if sign > 0 else "negative"
            else:
                words = MEANING[kind]
            unit = "" if kind == "dependence" else " nats"
            label = f"{words}, up to {abs(weights[own[-1]]):.2f}{unit}"
            panel.plot([], [], color=color, linestyle=style, label=label)
    if 0 < len(weights) <= _MOST_WEIGHTS:
        texts = {edge: f"{weight:.2f}" for edge, weight in weights.items()}
        nx.draw_networkx_edge_labels(
            graph, places, texts, label_pos=_ALONG, ax=panel, font_size=TINY, rotate=False
        )
    x, y = np.array(list(places.values())).T
    panel.scatter(x, y, color=colors, **NODE)
    write_names(panel, [names[variable] for variable in angles], list(angles.values()))
    if any("merged" in graph.nodes[variable] for variable in graph):
        star: Any = {"linestyle": "none", "marker": "$*$", "color": "black"}
        panel.plot([], [], **star, label="rare states merged in the fit")
    if panel.get_legend_handles_labels()[0]:
        figure.legend(frameon=False, fontsize=SMALL, loc="outside upper left", ncols=2)
    return figure


def circle_panel(names: Sequence[str]) -> tuple[Figure, Axes]:
    """Return a figure for variables on a circle of radius 1, with a margin for their names."""
    is_radial = len(names) > _MOST_BESIDE
    # inches: a margin for the names around the circle
    letters = _MARGIN
    if len(names) <= _MOST_NAMES:
        letters += SMALL * LETTER * max(map(len, names), default=0)
    if not is_radial and letters < _SHORT:
        width = _NARROW
    else:
        width = PAGE_WIDTH
    radius = max(width / 2 - letters, _LEAST_RADIUS)
    across = radius + letters
    up = radius + (letters if is_radial else _LINE)
    figure = new_figure(2 * across, 2 * up + _LINE)
    panel = figure.subplots()
    panel.set_axis_off()
    panel.set_aspect("equal")
    panel.set_xlim(-across / radius, across / radius)
    panel.set_ylim(-up / radius, up / radius)
    return figure, panel


def write_names(panel: Axes, names: Sequence[str], angles: Sequence[float]) -> None:
    """Write the names of variables outside the circle, unless they are too many to be read."""
    if len(names) > _MOST_NAMES:
        return
    for name, angle in zip(names, angles, strict=True):
        _name(panel, name, angle, len(names) > _MOST_BESIDE)


def weighted_graph(
    learned: Any, threshold: float | None, weight: str | None
) -> tuple[nx.Graph, str]:
    """Return the graph of a learned model, and the meaning of its weights: one of the keys of `MEANING`."""
    object_with("has_signs", "learned", learned, "be a learned model with its couplings")
    if weight is None:
        if learned.has_signs:
            weight = "largest"
        else:
            weight = "dependence"
    graph = learned.graph(threshold, weight=weight)
    return graph, "coupling" if learned.has_signs and weight == "largest" else weight


def _significant(learned: Any, prob: float, rng: Any) -> set[frozenset[Any]]:
    """Return the pairs of variables with at least one interval that excludes zero."""
    frame = learned.couplings_interval(prob, rng)
    labels = frame.index[(frame["lower"] > 0) | (frame["upper"] < 0)]
    if "other" in labels.names:
        first = labels.get_level_values("variable")
        second = labels.get_level_values("other")
        return set(map(frozenset, zip(first, second, strict=True)))
    # a model of monomials has a tuple of one or more variables a row
    return {frozenset(pair) for members in labels for pair in combinations(members, 2)}


def _communities(graph: nx.Graph) -> list[list[Any]]:
    """Return the communities, each in declared order, and last the variables without an edge as one group."""
    import networkx as nx

    variables = list(graph)
    position = {variable: number for number, variable in enumerate(variables)}
    # numbers for the variables, because the search compares them; without signs, because modularity has none
    sizes = nx.Graph()
    sizes.add_weighted_edges_from(
        (position[a], position[b], abs(size)) for a, b, size in graph.edges(data="weight") if size
    )
    if sizes.size():
        found = nx.community.greedy_modularity_communities(sizes, weight="weight")
    else:
        found = []
    groups = sorted(sorted(group) for group in found)
    groups.append([number for number in range(len(variables)) if number not in sizes])
    return [[variables[number] for number in group] for group in groups if group]


def _name(panel: Any, name: str, angle: float, is_radial: bool) -> None:
    """Write a variable's name outside the circle: along the radius where there are many, else horizontally."""
    x = math.cos(angle)
    y = math.sin(angle)
    if is_radial:
        if x >= 0:
            turn = math.degrees(angle)
        else:
            turn = math.degrees(angle + math.pi)
        side = "left" if x >= 0 else "right"
        style = {"rotation": turn, "rotation_mode": "anchor", "ha": side, "va": "center"}
    else:
        # near the top and the bottom a name stands above or below its node
        is_upright = abs(x) < _UPRIGHT
        if is_upright:
            side = "center"
        elif x > 0:
            side = "left"
        else:
            side = "right"
        edge = "bottom" if y > 0 else "top"
        style = {"ha": side, "va": edge if is_upright else "center"}
    panel.text(_OUTSIDE * x, _OUTSIDE * y, name, fontsize=SMALL, parse_math=False, **style)


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
    if weight is not None:
        one_of("weight", weight, ("largest", "dependence"))
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

    names = list(graph)
    size = len(graph)
    has_signs = kind == "coupling"
    values = nx.to_numpy_array(graph, nodelist=names, nonedge=np.nan)
    largest = max(float(np.nanmax(np.abs(values), initial=0.0)), _LEAST_RANGE)
    # the square root makes weak dependences visible beside strong ones
    if has_signs:
        norm = TwoSlopeNorm(0.0, -largest, largest)
    else:
        norm = PowerNorm(0.5, 0.0, largest)
    side = min(_EMPTY + _ENTRY * size, PAGE_WIDTH - _COLORBAR)
    figure = new_figure(side + _COLORBAR, side)
    panel = figure.subplots()
    image = panel.imshow(values, cmap="RdBu" if has_signs else "Blues", norm=norm)
    if size <= _MOST_WEIGHTS:
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                lightness = float(_LIGHTNESS @ image.cmap(image.norm(value))[:-1])
                color = "white" if lightness < 0.5 else "black"
                if abs(value) < _TWO_DECIMALS:
                    text = f"{value:z.2f}"
                else:
                    text = f"{value:.0f}"
                panel.text(
                    column, row, text, ha="center", va="center", fontsize=_ENTRY_FONT, color=color
                )
    elif has_signs:
        _dashes(panel, values, _FAINT * largest, largest, side - _NAMES)
    if kind == "dependence":
        unit = ""
    else:
        unit = ", nats" + "\n(dash: negative)" * (has_signs and size > _MOST_WEIGHTS)
    _name_entries(panel, names, names, width=side - _NAMES, most=_MATRIX_NAMES)
    figure.colorbar(image, ax=panel, label=MEANING[kind] + unit, shrink=_SHRUNK)
    return figure


def _dashes(panel: Axes, values: np.ndarray, least: float, darkest: float, width: float) -> None:
    """Mark entries below ``-least``: in gray, the red of the color map looks like its blue.

    The color is darkest at ``-darkest``; dashes on dark entries are white. The panel is about `width` inches wide.
    """
    below = np.nan_to_num(values)
    size = float(np.clip(_INCH * width / values.shape[1] / _DASH_SHARE, *_DASH_LIMITS))
    rows, columns = np.nonzero(below < -least)
    colors = np.where(below[rows, columns] <= -_DARK * darkest, "white", "black")
    panel.scatter(columns, rows, s=size**2, c=colors, marker="_", linewidths=_DASH_WIDTH)


def _tables(tables: Sequence[xr.DataArray]) -> Figure:
    beside, letters = (
        [
            TINY * LETTER * max(len(str(s)) for s in table.coords[table.dims[axis]].values)
            for table in tables
        ]
        for axis in (0, 1)
    )
    # two tables side by side, if their row names leave room for each
    taken = _TABLE_BESIDE + max(beside)
    if len(tables) > 1 and (PAGE_WIDTH - _TABLES_BESIDE) / 2 - taken >= _TWO_FROM:
        columns = 2
    else:
        columns = 1
    rows = -(-len(tables) // columns)
    shapes = np.array([table.shape for table in tables])
    # states stand closer where a table is at its limit
    sides = np.clip(_STATE * shapes, *_TABLE_LIMITS)
    heights = [sides[columns * r : columns * (r + 1), 0].max() for r in range(rows)]
    if columns == 1:
        width = min(_ONE_TABLE + max(beside), PAGE_WIDTH)
    else:
        width = PAGE_WIDTH
    across = (width - _TABLES_BESIDE) / columns - taken
    labels = sum(max(letters[columns * r : columns * (r + 1)]) + _TABLE_LABELS for r in range(rows))
    figure = new_figure(width, max(sum(heights) + labels, _LEAST_HEIGHT))
    figure.get_layout_engine().set(**_PADS)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    axes = figure.subplots(rows, columns, squeeze=False, height_ratios=heights).ravel()
    images = []
    for panel, table in zip(axes, tables, strict=False):
        doublings = table.values / np.log(2)
        images.append(panel.imshow(doublings, cmap="RdBu", vmin=-_FULL, vmax=_FULL, aspect="auto"))
        _dashes(panel, doublings, _RED, _FULL, across)
        first, second = table.dims
        down, right = (table.coords[dim].values for dim in table.dims)
        _name_entries(panel, down, right, width=across, most=_TABLE_NAMES)
        panel.set_ylabel(str(first), fontsize=MEDIUM)
        panel.set_xlabel(str(second), fontsize=MEDIUM)
    for unused in axes[len(tables) :]:
        unused.set_visible(False)
    ticks = range(-_FULL, _FULL + 1)
    bar = figure.colorbar(
        images[0], ax=list(axes), extend="both", aspect=_BAR_ASPECT, ticks=list(ticks)
    )
    bar.set_ticklabels([f"×{2**tick}" if tick >= 0 else f"×1/{2**-tick}" for tick in ticks])
    bar.set_label(
        "frequency relative to\nconditional independence\n(dash: less often)", fontsize=SMALL
    )
    return figure


def _name_entries(
    panel: Axes, down: Sequence[Any], across: Sequence[Any], *, width: float, most: int
) -> None:
    """Name rows and columns, every second or third where there are more than `most`, upright only where needed.

    The panel is about `width` inches wide.
    """
    for names, place in ((down, panel.set_yticks), (across, panel.set_xticks)):
        ticks = range(0, len(names), -(-len(names) // most))
        place(ticks, [str(names[tick]) for tick in ticks], fontsize=TINY)
    longest = max(len(str(name)) for name in across)
    fits = (longest + _BETWEEN) * TINY * LETTER <= width / min(len(across), most)
    panel.tick_params(axis="x", rotation=0 if fits else _UPWARD, length=0)
    panel.tick_params(axis="y", length=0)
    panel.set_facecolor("white")
    panel.spines[:].set_color(GRAY)
    panel.spines[:].set_linewidth(_FRAME)
