"""Cells of marginals by method, with the intervals of the methods that have them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import probability, require
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.evaluation import solution_of
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.domain import asked_positions
from bayesprivmrf.model.labels import aligned
from bayesprivmrf.model.tables import parent
from bayesprivmrf.plots.style import (
    COLORS,
    GRAY,
    LETTER,
    MARKS,
    PAGE_WIDTH,
    new_figure,
    plain_ticks,
    plot_collection,
    point_estimate,
    share,
    tidy,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pgmpy.models import DiscreteMarkovNetwork

    from bayesprivmrf.inference import Posterior, Solution
    from bayesprivmrf.model.domain import Variable
    from bayesprivmrf.model.tables import FloatArray

# Rows that can still be read in one figure, about 60 inches high
_MOST_ROWS = 300
# Share of a row's height between the first and the last method
_SPREAD = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Estimate:
    """Estimates of one method for the cells of all marginals, one after the other.

    Bounds have the shape (cells, 2), and are NaN for a method without intervals.
    """

    label: str
    values: FloatArray
    bounds: FloatArray
    # numbers of the marginals whose intervals have rows with the status "not trusted"
    untrusted: frozenset[int] = frozenset()


def marginal_forest(
    methods: Mapping[str, Solution | Posterior],
    variables: Sequence[Any],
    *,
    truth: DiscreteMarkovNetwork | Solution | None = None,
    holdout: Any = None,
    count: Hashable | None = None,
    prob: float = 0.9,
    is_centred: bool = False,
) -> Figure:
    """Draw the cells of one or several marginals as points by method, with intervals where a method has them.

    Parameters
    ----------
    methods
        Estimates by name, over the same variables and states. A posterior has equal-tailed intervals. A
        `NoiseAwareMAP` solution and a model learned in rounds have normal intervals, which the legend calls
        approximate. Any other estimate is drawn as points alone.
    variables
        The variables of one marginal, ``["a", "b"]``, or several such lists, ``[["a", "b"], ["c"]]``.
    truth
        The true distribution, where it is known, or the result of `mechanisms.reference`, which the legend marks as
        exact and unprotected. It is drawn as an upright stroke in each row.
    holdout
        Records in any data frame that a mechanism takes, such as records that were held out. Their frequencies are
        drawn as crosses. The records are read without protection, so the figure is no private release.
    count
        Column of `holdout` that says how many records each row stands for, as in the mechanisms.
    prob
        Probability of the intervals, between 0 and 1.
    is_centred
        Whether to subtract the truth from every row, or the first method's estimate where no truth is given. Use
        this where the intervals are short beside the probabilities, as after a release of many records.

    Returns
    -------
    matplotlib.figure.Figure
        One row a cell, in C order of each marginal's variables, with probabilities across. Intervals are bars, and
        the points are smaller where the bars are short. A marginal's heading names the methods whose interval has a
        row with the status "not trusted".

    Raises
    ------
    ArgumentError
        No method or no marginal is given, the methods' variables or states differ, `prob` is not between 0 and 1, or
        there are more than 300 cells.
    ModelError
        A variable is unknown or repeated, or `truth` has other states than the methods.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> network = bpm.declare(states={"a": [0, 1], "b": ["x", "y"]}, cliques=[("a", "b")])
    >>> figure = marginal_forest({"uniform": bpm.uniform_solution(network)}, ["a", "b"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a × b', '0, x', '0, y', '1, x', '1, y']
    """
    prob = probability("prob", prob, zero=False, remedy="0.9 asks for 90 % intervals")
    domain = _common_domain(methods)
    marginals = _marginals_asked(domain, variables)
    estimates = [_estimate(name, method, marginals, prob) for name, method in methods.items()]
    marks: list[tuple[str, FloatArray, dict[str, Any]]] = []
    true_cells = None
    if truth is not None:
        true_cells = _true_cells(domain, marginals, truth)
        marks += _true_marks(marginals, truth, true_cells)
    if holdout is not None:
        cells, records = _frequencies(domain, marginals, holdout, count)
        marks.append((f"frequency in {records:,} records", cells, {"marker": "x", "color": GRAY}))
    centre, axis = np.zeros(len(estimates[0].values)), "probability"
    if is_centred:
        centre = estimates[0].values if true_cells is None else true_cells
        axis += f" minus {f'estimate by {next(iter(methods))}' if truth is None else 'truth'}"
    estimates = [replace(e, values=e.values - centre, bounds=e.bounds - centre[:, None]) for e in estimates]
    headings, rows, labels = _rows(domain, marginals, _doubts(dict(zip(methods, estimates, strict=True))))
    row_height = max(0.09 * len(estimates), 0.2)  # inches
    # inches beside the panel and across it; very long labels make a wider figure
    beside = 0.4 + 10 * LETTER * max(map(len, [*labels, *headings.values()]))
    across = max(PAGE_WIDTH - beside, 3.0)
    figure = new_figure(beside + across, 1.6 + (len(rows) + len(headings)) * row_height)
    panel = figure.subplots()
    _draw(panel, estimates, rows, 72 * row_height * _SPREAD / len(estimates), 72 * across)
    for _, cells, mark in marks:
        panel.scatter(
            cells - centre, rows, s=70 if mark["marker"] == "|" else 30, linewidths=1.4, zorder=4, **mark
        )
    _label_rows(panel, headings, dict(zip(rows, labels, strict=True)))
    panel.set_xlabel(axis)
    plain_ticks(panel, int(np.clip(1.3 * across, 4, 8)))
    tidy(panel)
    panel.grid(visible=False, axis="y")
    # the axis is named at both ends of a figure that is too high for one screen
    if len(rows) > 30:
        panel.tick_params(axis="x", top=True, labeltop=True)
    handles = [*_handles(estimates), *(_mark(name, **mark) for name, _, mark in marks)]
    # two entries side by side, with 0.6 inches for a mark and the gap, where both labels are short
    longest = max(len(handle.get_label()) for handle in handles)
    columns = 2 if 2 * (0.6 + 9 * LETTER * longest) <= PAGE_WIDTH else 1
    figure.legend(handles=handles, loc="outside upper left", frameon=False, fontsize=9, ncols=columns)
    return figure


def _draw(
    panel: Axes, estimates: Sequence[_Estimate], rows: Sequence[int], lane: float, across: float
) -> None:
    """Draw bars and points, each method a little beside the others, in its own color and marker.

    Parameters
    ----------
    panel
        Panel to draw on.
    estimates
        Estimates by method.
    rows
        Rows of the cells.
    lane
        Height of one method within a row, points.
    across
        Width of the panel, points.
    """
    import xarray as xr
    from arviz_plots.visuals import line_x, scatter_x

    number = len(estimates)
    aside = _SPREAD * ((np.arange(number) + 0.5) / number - 0.5)
    places = np.asarray(rows) + aside[:, None]
    method = [estimate.label for estimate in estimates]

    def dataset(array: np.ndarray, dim: str) -> xr.Dataset:
        return xr.Dataset({"probability": (("method", dim), array)}, coords={"method": method})

    # an interval is a stroke between its bounds; a NaN separates it from the next
    strokes = np.stack([np.column_stack([e.bounds, np.full(len(rows), np.nan)]).ravel() for e in estimates])
    points = dataset(np.stack([estimate.values for estimate in estimates]), "cell")
    collection = plot_collection(
        points,
        {"probability": panel},
        aes={"color": ["method"], "marker": ["method"]},
        color=[COLORS[n % len(COLORS)] for n in range(number)],
        marker=[MARKS[n % len(MARKS)] for n in range(number)],
    )
    # bars are higher than the smallest points, so that a bar shorter than its point still shows
    collection.map(
        line_x,
        "interval",
        data=dataset(strokes, "stroke"),
        y=dataset(np.repeat(places, 3, axis=1), "stroke"),
        ignore_aes=frozenset({"marker"}),
        width=min(0.8 * lane, 5.0),
        alpha=0.5,
        solid_capstyle="butt",
    )
    collection.map(scatter_x, "estimate", y=dataset(places, "cell"), size=_area(estimates, across), zorder=3)


def _area(estimates: Sequence[_Estimate], across: float) -> float:
    """Return the area of the points, square points: half as wide as the median interval is long, within limits."""
    smallest, largest = 1.6, 4.25  # points, the diameter of a point
    bounds = np.concatenate([estimate.bounds for estimate in estimates])
    lengths = np.diff(bounds[np.isfinite(bounds).all(axis=1)])
    if not lengths.size:
        return largest**2
    drawn = np.concatenate([bounds.ravel(), *(estimate.values for estimate in estimates)])
    extent = max(float(np.nanmax(drawn) - np.nanmin(drawn)), 1e-300)
    return float(np.clip(0.5 * across * float(np.median(lengths)) / extent, smallest, largest)) ** 2


def _label_rows(panel: Axes, headings: Mapping[int, str], labels: Mapping[int, str]) -> None:
    ticks = sorted([*headings, *labels])
    texts = panel.set_yticks(ticks, [headings.get(tick) or labels[tick] for tick in ticks])
    for tick, text in zip(ticks, texts, strict=True):
        if tick in headings:
            text.label1.set_fontweight("bold")
            text.tick1line.set_visible(False)
    panel.set_ylim(max(ticks) + 0.7, min(ticks) - 0.5)  # the first row at the top


def _handles(estimates: Sequence[_Estimate]) -> list[Any]:
    return [
        _mark(
            estimate.label,
            marker=MARKS[n % len(MARKS)],
            color=COLORS[n % len(COLORS)],
            linestyle="-" if np.isfinite(estimate.bounds).any() else "none",
        )
        for n, estimate in enumerate(estimates)
    ]


def _mark(label: str, *, marker: str, color: str, linestyle: Any = "none") -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, marker=marker, color=color, linestyle=linestyle, markersize=6)


def _rows(
    domain: Domain, marginals: Sequence[tuple[Variable, ...]], doubts: Mapping[int, str]
) -> tuple[dict[int, str], list[int], list[str]]:
    """Return the headings by row, the rows of the cells, and the labels of the cells."""
    headings: dict[int, str] = {}
    rows: list[int] = []
    labels: list[str] = []
    row = 0
    for number, marginal in enumerate(marginals):
        headings[row] = " × ".join(map(str, marginal)) + doubts.get(number, "")
        states = [domain.states_of(v) for v in marginal]
        for cell in np.ndindex(*map(len, states)):
            row += 1
            rows.append(row)
            labels.append(", ".join(str(own[code]) for own, code in zip(states, cell, strict=True)))
        row += 1
    return headings, rows, labels


def _estimate(name: str, method: Any, marginals: Sequence[tuple[Variable, ...]], prob: float) -> _Estimate:
    if not hasattr(method, "marginal"):  # a learned model is drawn by its own fit
        method = point_estimate(method)
    if not hasattr(method, "interval"):
        cells = [np.asarray(method.marginal(list(marginal))).ravel() for marginal in marginals]
        values = np.concatenate(cells)
        return _Estimate(label=name, values=values, bounds=np.full((len(values), 2), np.nan))
    tables = [method.interval(list(marginal), prob=prob) for marginal in marginals]
    found = np.concatenate([table[["estimate", "lower", "upper"]].to_numpy(dtype=float) for table in tables])
    kind = "interval" if hasattr(method, "tree") else "interval (approximate)"
    return _Estimate(
        label=f"{name}, {share(prob)} {kind}",
        values=found[:, 0],
        bounds=found[:, 1:],
        untrusted=frozenset(n for n, table in enumerate(tables) if (table["status"] == "not trusted").any()),
    )


def _doubts(estimates: Mapping[str, _Estimate]) -> dict[int, str]:
    """Return what the headings add about marginals that some method does not trust, by number of the marginal."""
    found: dict[int, list[str]] = {}
    for name, estimate in estimates.items():
        for marginal in estimate.untrusted:
            found.setdefault(marginal, []).append(name)
    return {
        marginal: ", not trusted" + ("" if len(estimates) == 1 else f": {', '.join(names)}")
        for marginal, names in found.items()
    }


def _true_marks(
    marginals: Sequence[tuple[Variable, ...]], truth: Any, cells: FloatArray
) -> list[tuple[str, FloatArray, dict[str, Any]]]:
    """Return label, cells and style of the strokes for the truth.

    A reference has two kinds of strokes: shares in the data for marginals inside a clique, and shares that the
    declared independences imply for the others.
    """
    from bayesprivmrf.mechanisms.exact import EXACT, Reference

    black = {"marker": "|", "color": "black"}
    if not isinstance(truth, Reference):
        return [("truth", cells, black)]
    model = truth.specification
    shapes = [model.positions_of(one)[1] for one in marginals]
    is_data = np.concatenate(
        [
            np.full(math.prod(model.cardinalities[v] for v in one), parent(model.scopes, one) is not None)
            for one in shapes
        ]
    )
    marks = [(f"data ({EXACT})", np.where(is_data, cells, np.nan), black)]
    if not is_data.all():
        implied = np.where(is_data, np.nan, cells)
        marks.append((f"declared independences on the data ({EXACT})", implied, black | {"color": GRAY}))
    return marks


def _true_cells(domain: Domain, marginals: Sequence[tuple[Variable, ...]], truth: Any) -> FloatArray:
    """Return the truth's cells in the order of the methods' states, which may differ from the truth's own order."""
    solution = solution_of(truth)
    cells = [
        aligned("`truth`", solution.marginal(list(one)), one, [domain.states_of(v) for v in one]).ravel()
        for one in marginals
    ]
    return np.concatenate(cells)


def _frequencies(
    domain: Domain, marginals: Sequence[tuple[Variable, ...]], holdout: Any, count: Hashable | None
) -> tuple[FloatArray, int]:
    from bayesprivmrf.mechanisms.reading.counting import count_tables
    from bayesprivmrf.mechanisms.reading.row_counts import Counts

    cells, records = [], 0
    # one by one, because a specification drops a marginal that lies inside another
    for marginal in marginals:
        own = Domain(variables=marginal, states=tuple(domain.states_of(v) for v in marginal))
        model = ModelSpecification(domain=own, cliques=(marginal,))
        counts = count_tables(model, holdout, rows=Counts.of(count, domain.variables))
        require(counts.records != 0, "holdout", "hold at least one record", "none")
        records = counts.records
        cells.append(counts.flat / records)
    return np.concatenate(cells), records


def _common_domain(methods: Mapping[str, Any]) -> Domain:
    if not isinstance(methods, Mapping) or not methods:
        raise ArgumentError("`methods` must map names to at least one solution or posterior, got none.")
    for name, method in methods.items():
        instead = f"a {type(method).__name__} for {name!r}"
        require(
            hasattr(method, "specification"), "methods", "map names to fits", instead, "fit a release first"
        )
    domains = {name: method.specification.domain for name, method in methods.items()}
    first, domain = next(iter(domains.items()))
    for name, other in domains.items():
        if other != domain:
            raise ArgumentError(
                f"the methods {first!r} and {name!r} must have the same variables and states; fit releases of "
                "one declared network."
            )
    return domain


def _marginals_asked(domain: Domain, variables: Any) -> list[tuple[Variable, ...]]:
    """Return the marginals, each a tuple of distinct variables; a name alone is a marginal of one variable."""
    is_list = isinstance(variables, Sequence) and not isinstance(variables, str)
    require(not is_list or len(variables), "variables", "name at least one variable", "none")
    is_one = variables in domain or not is_list or all(entry in domain for entry in variables)
    asked = [asked_positions(domain, entry) for entry in ([variables] if is_one else variables)]
    cells = sum(math.prod(domain.cardinalities[v] for v in marginal) for marginal in asked)
    if cells > _MOST_ROWS:
        raise ArgumentError(
            f"a forest must have at most {_MOST_ROWS} rows to be read, got {cells} cells; ask for fewer or smaller "
            "marginals, or use `edge_marginals`."
        )
    return [tuple(domain.variables[v] for v in marginal) for marginal in asked]
