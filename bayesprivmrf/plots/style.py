"""The common style of all figures: colours, marks, and figures of one's own that no global list keeps."""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.release.base import Released

if TYPE_CHECKING:
    import xarray as xr
    from arviz_plots.plot_collection import PlotCollection
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesprivmrf.inference.solution import Solution

# Colors of Okabe and Ito (2008), which colour-blind readers tell apart
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# Marks in the order of the colours
MARKS = ("o", "s", "^", "D", "v", "P")
# Color of reference lines
GREY = "#666666"
# Panels side by side, so that a figure is about as wide as a page.
_PANELS_A_ROW = 4


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, inches, made without pyplot so that no global list keeps it."""
    return _figure_class()(figsize=(width, height), layout="constrained")


def panels(
    number: int,
    *,
    width: float = 3.4,
    height: float = 4.0,
    columns: int = _PANELS_A_ROW,
    is_shared: bool = True,
) -> tuple[Figure, list[Axes]]:
    """Return a figure of `number` panels of the given size, inches, so many a row, on shared axes or on their own."""
    columns = min(number, columns)
    rows = math.ceil(number / columns)
    figure = new_figure(width * columns, height * rows)
    axes = list(figure.subplots(rows, columns, sharex=is_shared, sharey=is_shared, squeeze=False).ravel())
    for unused in axes[number:]:
        unused.set_visible(False)
    return figure, axes[:number]


@functools.cache
def _figure_class() -> type[Figure]:
    """Return the class of figures that a notebook shows by itself: without pyplot nothing else would tell it how."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=110)
            return buffer.getvalue()

    return ShownFigure


def plot_collection(plotted: xr.Dataset, axes: Mapping[str, Axes], **aesthetics: Any) -> PlotCollection:
    """Return an arviz-plots collection over panels that exist already: one a variable, or one for all.

    Parameters
    ----------
    plotted
        What is mapped to the aesthetics.
    axes
        Panel of each variable.
    aesthetics
        ``aes``, and the values of each aesthetic, as `arviz_plots.PlotCollection` takes them.
    """
    import xarray as xr
    from arviz_plots.plot_collection import PlotCollection

    def held(thing: Any) -> np.ndarray:
        cell = np.empty((), dtype=object)
        cell[()] = thing
        return cell

    figure = next(iter(axes.values())).figure
    # the tree that arviz-plots makes for a grid, with panels that exist
    leaves = {"plot": lambda _, panel: held(panel), "row_index": lambda n, _: n, "col_index": lambda *_: 0}
    children = {
        leaf: xr.DataTree(
            xr.Dataset({name: ((), value(n, panel)) for n, (name, panel) in enumerate(axes.items())})
        )
        for leaf, value in leaves.items()
    }
    tree = xr.DataTree(xr.Dataset({"figure": ((), held(figure))}), children=children)
    return PlotCollection(plotted, tree, backend="matplotlib", **aesthetics)


def point_estimate(estimate: Any) -> Solution:
    """Return a solution itself, the posterior mean of the marginals as one, or the solution of a learned model."""
    found = getattr(estimate, "solution", estimate)
    if isinstance(found, type | Released) or not hasattr(found, "specification"):
        raise ArgumentError(
            f"an estimate must be a Solution, a Posterior or a learned model, got {type(estimate).__name__}."
        )
    return found


def tidy(panel: Axes) -> None:
    """Take off what a reader does not need, and put a faint grid behind."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=9)
    panel.grid(visible=True, color="#e6e6e6", linewidth=0.6)
    panel.set_axisbelow(True)


def share(prob: float) -> str:
    """Return a probability as a person writes it."""
    return f"{100 * prob:.4g} %"
