"""Graph of a declared network, or of any fitted model: the interactions that are believed."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from bayesprivmrf.escapes import printable
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.plots.learned import NODE, circle_panel, write_names
from bayesprivmrf.plots.style import GRAY

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pgmpy.models import DiscreteMarkovNetwork

    from bayesprivmrf.inference import Posterior, Solution

# Width of an edge, points
_EDGE = 1.2


def declared_graph(
    model: DiscreteMarkovNetwork | ModelSpecification | Solution | Posterior,
) -> Figure:
    """Draw the graph of a declared or fitted model: an edge for each pair of variables in one clique.

    The edges are what was declared, whatever the data say. Two variables without an edge are taken to be independent
    given any variables that separate them.

    Parameters
    ----------
    model
        A declared network, or a fit, whose model is drawn.

    Returns
    -------
    matplotlib.figure.Figure
        Variables on a circle, in declared order.

    Raises
    ------
    ModelError
        `model` is no network.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> states = {"age": ["<30", ">30"], "smokes": ["no", "yes"], "ill": ["no", "yes"]}
    >>> network = bpm.declare(states=states, cliques=[("age", "smokes"), ("smokes", "ill")])
    >>> figure = declared_graph(network)
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['age', 'smokes', 'ill']
    """
    declared: Any = getattr(model, "specification", model)
    specification = ModelSpecification.from_pgmpy(declared).believed
    names = [printable(str(variable)) for variable in specification.domain.variables]
    step = 2 * math.pi / len(names)
    angles = [math.pi / 2 - step * place for place in range(len(names))]
    figure, panel = circle_panel(names)
    pairs = {
        pair for scope in specification.scopes for pair in itertools.combinations(sorted(scope), 2)
    }
    across = [math.cos(angle) for angle in angles]
    up = [math.sin(angle) for angle in angles]
    for one, other in sorted(pairs):
        ends = [one, other]
        panel.plot(
            [across[end] for end in ends],
            [up[end] for end in ends],
            color=GRAY,
            linewidth=_EDGE,
            zorder=1,
        )
    panel.scatter(across, up, color="black", **NODE)
    write_names(panel, names, angles)
    return figure
