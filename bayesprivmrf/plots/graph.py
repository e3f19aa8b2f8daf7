"""The graph of a learned model, its edges by the strength of the couplings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from bayesprivmrf.checks import require
from bayesprivmrf.plots.style import COLOURS, new_figure

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.figure import Figure

    from bayesprivmrf.learning import LearnedNetwork

# Variables whose names fit around the circle
_MOST_NAMES = 80
# Edges whose weights can be read beside each other
_MOST_WEIGHTS = 20
_THINNEST, _WIDEST = 0.4, 5.0  # points
# What the weights of a graph's edges are
MEANING = {
    "coupling": "coupling",
    "largest": "largest entry of a coupling",
    "dependence": "dependence given all others",
}
# Words of the legend
_SIGNS = {1: "positive", -1: "negative"}
# Box behind a weight
_LABEL = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.9}
_UPRIGHT = 0.2  # of the radius, within which a name is centred above or below its node


def learned_graph(
    learned: LearnedNetwork,
    *,
    threshold: float | None = None,
    weight: Literal["largest", "dependence"] | None = None,
) -> Figure:
    """Draw the graph of a learned model: the wider an edge, the stronger the coupling.

    Parameters
    ----------
    learned
        A learned model.
    threshold
        At least 0: weaker couplings are left out. By default couplings below their noise are left out, as the method
        `graph` of the model explains. All variables stay.
    weight
        The meaning of an edge's width, as `graph` of the model explains: by default the coupling, nats, where it is
        one number; else ``"dependence"``, from 0 to 1, since the ``"largest"`` entry of a table is mostly that of a
        rare state.

    Returns
    -------
    matplotlib.figure.Figure
        Variables in a circle, in declared order, so that the graphs of two releases can be compared. Where couplings
        are numbers, positive ones are solid lines, negative ones dashed; up to twenty edges carry their weight, and
        up to eighty variables their names. A star marks variables with rare states that are merged in the fit.

    Raises
    ------
    ArgumentError
        `learned` has no couplings, `threshold` is negative or not a finite number, or `weight` is another word.
    """
    import networkx as nx

    graph, kind = weighted_graph(learned, threshold, weight)
    places = nx.circular_layout(graph)
    side = min(4.5 + 0.12 * len(graph), 12.0)
    figure = new_figure(side, side)
    panel = figure.subplots()
    panel.set_axis_off()
    panel.set_aspect("equal")
    panel.margins(0.15)
    _draw_edges(panel, graph, places, kind)
    nx.draw_networkx_nodes(graph, places, ax=panel, node_size=25, node_color="black")
    if len(graph) <= _MOST_NAMES:
        for variable, (x, y) in places.items():
            side_of_it = "left" if x > _UPRIGHT else "right" if x < -_UPRIGHT else "center"
            name = f"{variable}*" if "merged" in graph.nodes[variable] else str(variable)
            panel.text(1.06 * x, 1.06 * y, name, fontsize=9, ha=side_of_it, va="center")
    if any("merged" in graph.nodes[variable] for variable in graph):
        panel.plot(
            [], [], linestyle="none", marker="$*$", color="black", label="rare states are merged in the fit"
        )
    if panel.get_legend_handles_labels()[0]:
        figure.legend(frameon=False, fontsize=9, loc="outside upper left", ncols=2)
    return figure


def weighted_graph(learned: Any, threshold: float | None, weight: str | None) -> tuple[nx.Graph, str]:
    """Return the graph of a learned model, and what its weights are: one of the keys of `MEANING`."""
    kind = type(learned).__name__
    require(hasattr(learned, "has_signs"), "learned", "be a learned model with its couplings", kind)
    if weight is None:
        weight = "largest" if learned.has_signs else "dependence"
    graph = learned.graph(threshold, weight=weight)
    return graph, "coupling" if learned.has_signs and weight == "largest" else weight


def _draw_edges(panel: Any, graph: Any, places: Any, kind: str) -> None:
    """Draw positive and negative couplings, as wide as they are strong, with the strength in the legend."""
    import networkx as nx

    edges = list(graph.edges(data="weight"))
    largest = max((abs(weight) for *_, weight in edges), default=0.0)
    for sign, colour, style in ((1, COLOURS[0], "solid"), (-1, COLOURS[1], "dashed")):
        own = {(a, b): abs(weight) for a, b, weight in edges if sign * weight > 0}
        if own:
            widths = [_THINNEST + (_WIDEST - _THINNEST) * size / largest for size in own.values()]
            nx.draw_networkx_edges(
                graph,
                places,
                ax=panel,
                edgelist=[*own],
                width=widths,
                edge_color=colour,
                style=style,
                alpha=0.8,
            )
            words = _SIGNS[sign] if kind == "coupling" else MEANING[kind]
            label = f"{words}, up to {max(own.values()):.3g}{'' if kind == 'dependence' else ' nats'}"
            panel.plot([], [], color=colour, linestyle=style, label=label)
    if 0 < len(edges) <= _MOST_WEIGHTS:
        weights = {(a, b): f"{weight:.2g}" for a, b, weight in edges}
        nx.draw_networkx_edge_labels(
            graph, places, weights, ax=panel, font_size=8, rotate=False, label_pos=0.4, bbox=_LABEL
        )
