"""The graph of a learned model, with edges by the strength of the couplings and variables by community."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bayesprivmrf.checks import one_of, probability, require
from bayesprivmrf.plots.style import COLORS, GRAY, LETTER, PAGE_WIDTH, look, new_figure

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.figure import Figure

    from bayesprivmrf.learning import LearnedNetwork

# Variables whose names fit around the circle, legibly in a picture of 800 pixels
_MOST_NAMES = 80
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
    groups = _communities(graph) if order == "communities" else [list(graph)]
    # even steps along the circle, and a gap of one step between two groups
    step = 2 * math.pi / max(len(graph) + (len(groups) if len(groups) > 1 else 0), 1)
    angles: dict[Any, float] = {}
    colors = []
    for number, group in enumerate(groups):
        start = len(angles) + number
        angles |= {variable: math.pi / 2 - step * (start + place) for place, variable in enumerate(group)}
        is_community = order == "communities" and graph.degree(group[0]) > 0
        colors += [look(number)["color"] if is_community else "black"] * len(group)
    names = {v: f"{v}*" if "merged" in graph.nodes[v] else str(v) for v in graph}
    is_named, is_radial = len(graph) <= _MOST_NAMES, len(graph) > 16
    # inches: a margin for the names around the circle
    letters = 9 * LETTER * max(map(len, names.values()), default=0) + 0.2 if is_named else 0.2
    width = 6.4 if len(graph) <= 16 and letters < 0.8 else PAGE_WIDTH
    radius = max(width / 2 - letters, 1.5)
    across, up = radius + letters, radius + (letters if is_radial else 0.3)
    figure = new_figure(2 * across, 2 * up + 0.3)
    panel = figure.subplots()
    panel.set_axis_off()
    panel.set_aspect("equal")
    panel.set_xlim(-across / radius, across / radius)
    panel.set_ylim(-up / radius, up / radius)
    places = {v: (math.cos(angle), math.sin(angle)) for v, angle in angles.items()}
    _draw_edges(panel, graph, places, kind)
    x, y = np.array(list(places.values())).T
    panel.scatter(x, y, s=40, color=colors, edgecolors="black", linewidths=0.6, zorder=3)
    if is_named:
        for variable, angle in angles.items():
            _name(panel, names[variable], angle, is_radial)
    if any("merged" in graph.nodes[variable] for variable in graph):
        star: Any = {"linestyle": "none", "marker": "$*$", "color": "black"}
        panel.plot([], [], **star, label="rare states merged in the fit")
    if panel.get_legend_handles_labels()[0]:
        figure.legend(frameon=False, fontsize=9, loc="outside upper left", ncols=2)
    return figure


def weighted_graph(learned: Any, threshold: float | None, weight: str | None) -> tuple[nx.Graph, str]:
    """Return the graph of a learned model, and the meaning of its weights: one of the keys of `MEANING`."""
    kind = type(learned).__name__
    require(hasattr(learned, "has_signs"), "learned", "be a learned model with its couplings", kind)
    if weight is None:
        weight = "largest" if learned.has_signs else "dependence"
    graph = learned.graph(threshold, weight=weight)
    return graph, "coupling" if learned.has_signs and weight == "largest" else weight


def _significant(learned: Any, prob: float, rng: Any) -> set[frozenset[Any]]:
    """Return the pairs of variables with at least one interval that excludes zero."""
    frame = learned.couplings_interval(prob, rng)
    labels = frame.index[(frame["lower"] > 0) | (frame["upper"] < 0)]
    if "other" in labels.names:
        first, second = labels.get_level_values("variable"), labels.get_level_values("other")
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
    found = nx.community.greedy_modularity_communities(sizes, weight="weight") if sizes.size() else []
    groups = sorted(sorted(group) for group in found)
    groups.append([number for number in range(len(variables)) if number not in sizes])
    return [[variables[number] for number in group] for group in groups if group]


def _name(panel: Any, name: str, angle: float, is_radial: bool) -> None:
    """Write a variable's name outside the circle: along the radius where there are many, else horizontally."""
    x, y = math.cos(angle), math.sin(angle)
    if is_radial:
        turn = math.degrees(angle) if x >= 0 else math.degrees(angle) + 180
        side = "left" if x >= 0 else "right"
        style = {"rotation": turn, "rotation_mode": "anchor", "ha": side, "va": "center"}
    else:
        # near the top and the bottom a name stands above or below its node
        is_upright = abs(x) < 0.08
        side = "center" if is_upright else "left" if x > 0 else "right"
        style = {"ha": side, "va": ("bottom" if y > 0 else "top") if is_upright else "center"}
    panel.text(1.05 * x, 1.05 * y, name, fontsize=9, **style)


def _draw_edges(panel: Any, graph: Any, places: Any, kind: str) -> None:
    """Draw positive and negative couplings, as wide as they are strong, with the strength in the legend."""
    import networkx as nx

    weights = nx.get_edge_attributes(graph, "weight")
    largest = max(map(abs, weights.values()), default=0.0)
    positive = COLORS[0] if kind == "coupling" else GRAY
    for sign, color, style in ((1, positive, "solid"), (-1, COLORS[2], "dashed")):
        # the strongest are drawn last, and are 5 points wide
        own = sorted(
            (edge for edge in weights if sign * weights[edge] > 0), key=lambda edge: abs(weights[edge])
        )
        if own:
            shown = {"edge_color": color, "style": style, "alpha": 0.8}
            widths = [0.4 + 4.6 * abs(weights[edge]) / largest for edge in own]
            nx.draw_networkx_edges(graph, places, ax=panel, edgelist=own, width=widths, **shown)
            words = ("positive" if sign > 0 else "negative") if kind == "coupling" else MEANING[kind]
            unit = "" if kind == "dependence" else " nats"
            label = f"{words}, up to {abs(weights[own[-1]]):.2f}{unit}"
            panel.plot([], [], color=color, linestyle=style, label=label)
    # twenty weights are still legible beside each other, and most diagonals cross at their centers
    if 0 < len(weights) <= 20:
        texts = {edge: f"{weight:.2f}" for edge, weight in weights.items()}
        nx.draw_networkx_edge_labels(
            graph, places, texts, label_pos=0.35, ax=panel, font_size=8, rotate=False
        )
