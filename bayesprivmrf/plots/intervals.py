"""Picture of any frame of intervals: odds ratios, standardized risks, coefficients of a regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.checks import one_of, require
from bayesprivmrf.escapes import printable
from bayesprivmrf.plots.style import (
    COLORS,
    GRAY,
    HAIRLINE,
    LETTER,
    PAGE_WIDTH,
    SMALL,
    new_figure,
    tidy,
)

if TYPE_CHECKING:
    from collections.abc import Hashable
    from typing import Literal

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bayesprivmrf.model.tables import FloatArray

# Columns that are drawn
_NUMBERS = ("estimate", "lower", "upper")
# Statuses of rows with full points
_TRUSTED = ("ok", "model")
# Rows that can still be read in one figure
_MOST_ROWS = 300
# Inches: height of a row, of everything above and below the rows, beside the labels, and least width of the panel
_ROW = 0.24
_BESIDE_ROWS = 0.9
_MARGIN = 0.4
_LEAST_WIDTH = 3.0
# Width of the bars and of the border of points, points, and area of the points, square points
_BAR = 4.0
_BORDER = 1.2
_AREA = 26.0
# Factor, or difference in units of the range of the estimates, by which the axis reaches beyond the estimates at most
_FACTOR = 20.0
_RANGES = 2.0
# Margin within the axis, as a share of its length
_INSIDE = 0.04
# Ticks below which an axis of ratios gets others than 1, 2 and 5
_FEW_TICKS = 3
# Number of these others
_SOME_TICKS = 6
# Steps between them, times a power of ten
_STEPS = [1, 2, 5, 10]
# Least length of the axis, where all numbers are equal
_LEAST = 1e-9


def interval_forest(
    intervals: pd.DataFrame,
    *,
    scale: Literal["linear", "log"] = "linear",
    reference: float | None = None,
    label: str = "estimate with interval",
) -> Figure:
    """Draw the rows of a frame as points with their intervals.

    Parameters
    ----------
    intervals
        A frame of intervals, such as those of `bayesprivmrf.analysis` and of `interval`.
    scale
        Scale of the axis; ``"log"`` for ratios.
    reference
        Number at which a line is drawn, such as 1 for odds ratios.
    label
        Label of the axis.

    Returns
    -------
    matplotlib.figure.Figure
        One row for each row of the frame. Points of rows with the status "prior", "doubtful" or "not trusted" are
        hollow. A triangle at the border means that an interval goes on beyond it. Rows without a number have no
        point.

    Raises
    ------
    ArgumentError
        The frame has no such columns, no rows or more than 300; or `scale` is another word.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = {"estimate": [1.3], "lower": [1.1], "upper": [1.5], "status": ["ok"]}
    >>> figure = interval_forest(pd.DataFrame(rows, index=["yes vs no"]), scale="log", reference=1)
    >>> [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    ['yes vs no']
    """
    one_of("scale", scale, ("linear", "log"))
    names = [*_NUMBERS, "status"]
    is_frame = set(names) <= set(getattr(intervals, "columns", ()))
    must = "have the columns estimate, lower, upper and status"
    require(is_frame, "intervals", must, type(intervals).__name__, "give what `interval` returned")
    must = f"have 1 to {_MOST_ROWS} rows"
    require(
        0 < len(intervals) <= _MOST_ROWS, "intervals", must, len(intervals), "draw a part of them"
    )
    numbers = intervals[list(_NUMBERS)].to_numpy(dtype=float)
    is_log = scale == "log"
    if is_log:
        with np.errstate(divide="ignore", invalid="ignore"):
            numbers = np.log(numbers)
    labels = [row_label(row) for row in intervals.index]
    beside = _MARGIN + SMALL * LETTER * max(map(len, labels))
    width = max(PAGE_WIDTH, beside + _LEAST_WIDTH)
    figure = new_figure(width, _BESIDE_ROWS + _ROW * len(labels))
    panel = figure.subplots()
    limits = _limits(numbers, reference, is_log=is_log)
    _draw(panel, numbers, limits, intervals["status"].isin(_TRUSTED).to_numpy())
    if reference is not None:
        place = np.log(reference) if is_log else reference
        panel.axvline(place, color=GRAY, linewidth=HAIRLINE, linestyle="dashed", zorder=1)
    panel.set_ylim(len(labels) - 0.5, -0.5)  # the first row at the top
    panel.set_yticks(range(len(labels)), labels, parse_math=False)
    panel.set_xlabel(label, parse_math=False)
    tidy(panel)
    panel.grid(visible=False, axis="y")
    if is_log:
        _log_ticks(panel, limits)
    panel.set_xlim(*limits)
    return figure


def row_label(row: Hashable | tuple[Hashable, ...]) -> str:
    """Return the text of one entry of an index, of one level or several."""
    if isinstance(row, tuple):
        return ", ".join(printable(str(part)) for part in row)
    return printable(str(row))


def _limits(numbers: FloatArray, reference: float | None, *, is_log: bool) -> tuple[float, float]:
    """Return the ends of the axis: all intervals, unless one would dwarf the others."""
    estimates = numbers[np.isfinite(numbers[:, 0]), 0]
    ends = numbers[np.isfinite(numbers)]
    places = list(estimates)
    if reference is not None:
        places.append(np.log(reference) if is_log else reference)
    if not places:
        return (0.0, 1.0)
    low = min(places)
    high = max(places)
    if is_log:
        reach = np.log(_FACTOR)
    else:
        reach = max(_RANGES * (high - low), _LEAST)
        if len(estimates) == 1:
            reach = np.inf
    low = min(low, max(low - reach, float(ends.min())))
    high = max(high, min(high + reach, float(ends.max())))
    inside = max(_INSIDE * (high - low), _LEAST)
    return (low - inside, high + inside)


def _draw(
    panel: Axes, numbers: FloatArray, limits: tuple[float, float], is_trusted: np.ndarray
) -> None:
    """Draw bars, points, and triangles where a bar goes on beyond the border."""
    rows = np.arange(len(numbers))
    low, high = limits
    color = COLORS[0]
    has_bar = ~np.isnan(numbers).any(axis=1)
    bars = np.clip(numbers[:, 1:], low, high)
    panel.hlines(
        rows[has_bar],
        bars[has_bar, 0],
        bars[has_bar, 1],
        color=color,
        alpha=0.45,
        linewidth=_BAR,
        capstyle="butt",
    )
    for chosen, fill in ((is_trusted, color), (~is_trusted, "white")):
        panel.scatter(
            numbers[chosen, 0],
            rows[chosen],
            s=_AREA,
            facecolors=fill,
            edgecolors=color,
            linewidths=_BORDER,
            zorder=3,
        )
    for border, is_beyond, marker in (
        (low, numbers[:, 1] < low, "<"),
        (high, numbers[:, 2] > high, ">"),
    ):
        beyond = rows[has_bar & is_beyond]
        panel.scatter(
            np.full(len(beyond), border),
            beyond,
            s=_AREA,
            color=color,
            marker=marker,
            zorder=3,
            clip_on=False,
        )


def _log_ticks(panel: Axes, limits: tuple[float, float]) -> None:
    """Write the ticks of an axis of logarithms as ratios, at 1, 2 and 5 times powers of ten."""
    low, high = limits
    exponents = np.arange(np.floor(low / np.log(10)), np.ceil(high / np.log(10)) + 1)
    ratios = np.sort(np.multiply.outer([1.0, 2.0, 5.0], 10.0**exponents).ravel())
    shown = ratios[(np.log(ratios) >= low) & (np.log(ratios) <= high)]
    if len(shown) < _FEW_TICKS:
        from matplotlib.ticker import MaxNLocator

        locator = MaxNLocator(_SOME_TICKS, steps=_STEPS)
        round_ratios = np.asarray(locator.tick_values(np.exp(low), np.exp(high)))
        shown = round_ratios[round_ratios > 0]
    panel.set_xticks(np.log(shown), [f"{ratio:g}" for ratio in shown])
