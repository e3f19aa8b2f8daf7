"""Colors, markers, sizes and small helpers that all figures share."""

from __future__ import annotations

import functools
import html
import io
import math
import re
from typing import TYPE_CHECKING, Any, cast

from bayesprivmrf.checks import kind_of, require
from bayesprivmrf.release.base import Released

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesprivmrf.inference.solution import Solution

# Colors of Okabe and Ito (2008), which color-blind readers tell apart. The order alternates dark and light, so that
# the first three differ by at least 32 of 255 levels of gray when a figure is printed without color.
COLORS = ("#0072B2", "#E69F00", "#D55E00", "#CC79A7", "#009E73", "#56B4E9")
# Markers in the order of the colors, for readers who see no colors at all
MARKS = ("o", "s", "^", "D", "v", "P")
# Color of reference lines
GRAY = "#666666"
# Width of a figure at most, inches: in a picture of 800 pixels a letter of 8 points is 11 pixels high
PAGE_WIDTH = 8.0
# Width of an average letter, inches a point of the font size: 0.6 times the font size
LETTER = 0.6 / 72
# Font sizes, points: of names within a panel, of legends and ticks, and of titles and labels
TINY = 8
SMALL = 9
MEDIUM = 10
# Width of reference lines, points
HAIRLINE = 0.8
# Size of a panel, inches, and panels side by side, unless a figure says otherwise
_PANEL_WIDTH = 3.4
_PANEL_HEIGHT = 4.0
_COLUMNS = 4
# Pixels an inch of a figure in a notebook
_DPI = 110
# Grid lines behind the data: color, and width in points
_GRID = {"color": "#e6e6e6", "linewidth": 0.6}
# Steps between ticks that are read without effort, times a power of ten
_STEPS = [1, 2, 2.5, 5, 10]


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of the given size, inches, that pyplot does not keep in its list of open figures."""
    return _figure_class()(figsize=(width, height), layout="constrained")


def panels(
    number: int,
    *,
    width: float = _PANEL_WIDTH,
    height: float = _PANEL_HEIGHT,
    columns: int = _COLUMNS,
    is_shared: bool = True,
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, row by row.

    Parameters
    ----------
    number
        Number of panels.
    width, height
        Size of one panel, inches.
    columns
        Number of panels side by side, at most.
    is_shared
        Whether all panels have the same axes.
    """
    columns = min(number, columns)
    rows = math.ceil(number / columns)
    figure = new_figure(width * columns, height * rows)
    axes = list(
        figure.subplots(rows, columns, sharex=is_shared, sharey=is_shared, squeeze=False).ravel()
    )
    for unused in axes[number:]:
        unused.set_visible(False)
    return figure, axes[:number]


@functools.cache
def _figure_class() -> type[Figure]:
    """Return a Figure class that notebooks display, which they otherwise do for figures of pyplot only."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=_DPI)
            return buffer.getvalue()

    return ShownFigure


def look(number: int) -> dict[str, Any]:
    """Return the color and the marker of a method by its number."""
    return {"color": COLORS[number % len(COLORS)], "marker": MARKS[number % len(MARKS)]}


def is_release(made: Any) -> bool:
    """Return True for a release, such as a learned model, which is drawn by its own fit."""
    return isinstance(made, Released)


def point_estimate(estimate: Any) -> Solution:
    """Return the solution of a fit: a Solution itself, a posterior's mean marginals, a learned model's own fit."""
    if isinstance(estimate, type):
        found = estimate
    else:
        found = getattr(estimate, "solution", estimate)
    is_fit = not isinstance(found, type) and hasattr(found, "specification")
    is_fit = is_fit and not is_release(found)
    require(
        is_fit,
        "an estimate",
        "be a fitted or learned model",
        kind_of(estimate),
        "fit a release first",
    )
    return cast("Solution", found)


def tidy(panel: Axes) -> None:
    """Remove the upper and right border of a panel, and add a faint grid behind the data."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=SMALL)
    panel.grid(visible=True, **_GRID)
    panel.set_axisbelow(True)


def share(prob: float) -> str:
    """Return a probability as a percentage, such as "90 %"."""
    return f"{100 * prob:.4g} %"


def plain_ticks(panel: Axes, most: int) -> None:
    """Put at most `most` ticks on the horizontal axis, with equally many decimals and without an offset."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    panel.xaxis.set_major_locator(MaxNLocator(most - 1, steps=_STEPS))
    panel.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))


def svg_text(figure: Figure, name: str) -> str:
    """Return a figure as the text of one SVG element, to be placed inside a page.

    Letters remain text, the background is transparent, and what is black takes the color of the page's text, so that
    the figure can be read on a dark page. The page may set the first color of the data as ``--accent``.

    Parameters
    ----------
    figure
        The figure.
    name
        Description for readers who do not see the figure. Equal names and figures give equal text.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> from bayesprivmrf.plots import declared_graph
    >>> figure = declared_graph(bpm.declare({"a": [0, 1], "b": [0, 1]}, [("a", "b")]))
    >>> svg_text(figure, "graph").startswith('<svg role="img" aria-label="graph"')
    True
    """
    from matplotlib import rc_context

    buffer = io.StringIO()
    # the salt of the names of paths, which are random otherwise, and equal in two figures of one page
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            bbox_inches="tight",
            metadata={"Date": None, "Creator": None},
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :].rstrip()
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # names of groups are equal in two figures, and nothing refers to them
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"(stroke|fill): #000000", r"\1: currentColor", text)
    text = text.replace(f"stroke: {_GRID['color']}", "stroke: currentColor; stroke-opacity: 0.12")
    first = COLORS[0].lower()
    text = text.replace(f": {first}", f": var(--accent, {first})")
    label = html.escape(name)
    return f'<svg role="img" aria-label="{label}" fill="currentColor"{text[len("<svg") :]}'
