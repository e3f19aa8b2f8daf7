"""Cells of marginals by method, with the intervals of the methods that have them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf import checks
from bayesprivmrf.checks import object_with, probability, require
from bayesprivmrf.errors import NoIntervalError
from bayesprivmrf.escapes import printable
from bayesprivmrf.evaluation import solution_of
from bayesprivmrf.inference.asked import GivenOrEach, conditions_in_turn
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.domain import Variable, asked_positions, conditions, share_given
from bayesprivmrf.model.labels import aligned
from bayesprivmrf.model.tables import parent
from bayesprivmrf.plots.style import (
    COLORS,
    GRAY,
    LETTER,
    PAGE_WIDTH,
    is_release,
    look,
    new_figure,
    plain_ticks,
    point_estimate,
    share,
    tidy,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from pgmpy.models import DiscreteMarkovNetwork

    from bayesprivmrf.inference import Posterior, Solution
    from bayesprivmrf.model.tables import FloatArray

# Rows that can still be read in one figure, about 60 inches high
_MOST_ROWS = 300
# Rows of a figure that fits on one screen; a higher one has its axis at both ends
_ROWS_OF_A_SCREEN = 30


def marginal_forest(
    methods: Mapping[str, Solution | Posterior],
    variables: Sequence[Any],
    *,
    truth: DiscreteMarkovNetwork | Solution | None = None,
    holdout: Any = None,
    count: Hashable | None = None,
    prob: float = 0.9,
    is_centred: bool = False,
    given: GivenOrEach | None = None,
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
    given
        Conditions on other variables, as `interval` takes them: states, ``{"c": "yes"}``, or a list of variables,
        ``["c"]``, each of whose states is given in turn. The truth and the frequencies are conditional as well.

    Returns
    -------
    matplotlib.figure.Figure
        One row a cell, in C order of each marginal's variables, with probabilities across. Intervals are bars, and
        the points are smaller where the bars are short. A marginal's heading names the methods whose interval has a
        row with the status "not trusted".

        More than six methods, such as fits of many areas, cannot be told apart by color. They have one panel a cell
        and one row a method, in the given order; the truth and the frequencies are lines from top to bottom, and
        points with the status "not trusted" are hollow.

    Raises
    ------
    ArgumentError
        No method or no marginal is given, the methods' variables or states differ, `prob` is not between 0 and 1, or
        there are more than 300 rows.
    ModelError
        A variable is unknown or repeated, `given` names a variable that is asked for or states that cannot occur, or
        `truth` has other states than the methods.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> network = bpm.declare(states={"a": [0, 1], "b": ["x", "y"]}, cliques=[("a", "b")])
    >>> figure = marginal_forest({"uniform": bpm.uniform_solution(network)}, ["a", "b"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a × b', '0, x', '0, y', '1, x', '1, y']
    >>> figure = marginal_forest({"uniform": bpm.uniform_solution(network)}, ["b"], given=["a"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['b given a', '0: x', '0: y', '1: x', '1: y']
    """
    prob = probability("prob", prob, zero=False, remedy="0.9 asks for 90 % intervals")
    checks.truth("is_centred", is_centred)
    domain = _common_domain(methods)
    # The marginals, each a tuple of distinct variables; a name alone is a marginal of one variable
    is_list = isinstance(variables, Sequence) and not isinstance(variables, str)
    require(not is_list or len(variables), "variables", "name at least one variable", "none")
    is_one = variables in domain or not is_list or all(entry in domain for entry in variables)
    asked = [asked_positions(domain, entry) for entry in ([variables] if is_one else variables)]
    marginals = [_Marginal.of(domain, positions, given) for positions in asked]
    cells = sum(len(marginal.cells) for marginal in marginals)
    must = f"have at most {_MOST_ROWS} rows to be read"
    remedy = "ask for fewer or smaller marginals"
    has_panels = len(methods) > len(COLORS)
    height = cells  # in rows
    seen = f"{cells} cells"
    if has_panels:
        height = math.ceil(cells / _panel_columns(cells)) * len(methods)
        seen = f"{len(methods)} methods in {cells} panels"
        remedy += ", or draw fewer methods at a time"
    require(height <= _MOST_ROWS, "a forest", must, seen, remedy)
    found = {name: _cells(method, marginals, prob) for name, method in methods.items()}
    estimates = [
        frame[["estimate", "lower", "upper"]].to_numpy(dtype=float) for frame in found.values()
    ]
    # label, cells and style of each kind of mark
    if truth is None:
        marks = []
    else:
        marks = _true_marks(domain, marginals, truth)
    centre = np.zeros(len(estimates[0]))
    axis = "probability"
    if is_centred and truth is not None:
        # every cell has one kind of mark
        centre = np.nansum([cells for _, cells, _ in marks], axis=0)
        axis = f"{axis} minus truth"
    elif is_centred:
        centre = estimates[0][:, 0]
        axis = f"{axis} minus estimate by {next(iter(methods))}"
    if holdout is not None:
        cells, records = _frequencies(domain, marginals, holdout, count)
        marks.append(
            (f"frequency in {records:,} records", cells, {"marker": "x", "color": GRAY, "s": 30})
        )
    estimates = [numbers - centre[:, None] for numbers in estimates]
    marks = [(name, cells - centre, mark) for name, cells, mark in marks]
    if has_panels:
        titles = [title for marginal in marginals for title in marginal.titles]
        is_exact = all(hasattr(method, "tree") for method in methods.values())
        label = f"estimate, {share(prob)} interval" + ("" if is_exact else " (approximate)")
        return _panel_a_cell(found, estimates, marks, titles, axis, label)
    # a row for each cell, below a row with the heading of its marginal
    labels = []
    rows = []
    for number, marginal in enumerate(marginals):
        labels.append(marginal.heading)
        doubted = [
            name
            for name, own in found.items()
            if (own.loc[number, "status"] == "not trusted").any()
        ]
        if doubted:
            labels[-1] += ", not trusted" + ("" if len(found) == 1 else f": {', '.join(doubted)}")
        for label in marginal.labels:
            rows.append(len(labels))
            labels.append(label)
    row_height = max(0.09 * len(estimates), 0.2)  # inches
    # inches across the panel; very long labels make a wider figure
    beside = 0.4 + 10 * LETTER * max(map(len, labels))
    across = max(PAGE_WIDTH - beside, 3.0)
    figure = new_figure(beside + across, 1.6 + len(labels) * row_height)
    panel = figure.subplots()
    lane = 0.6 / len(estimates)  # height of a method in its row, in rows
    # The area of the points, square points: half as wide as the median interval is long, within limits
    numbers = np.concatenate(estimates)
    extent = max(float(np.nanmax(numbers) - np.nanmin(numbers)), 1e-300)
    lengths = numbers[:, 2] - numbers[:, 1]
    if np.isfinite(lengths).any():
        half = 0.5 * (72 * across) * np.nanmedian(lengths) / extent
    else:
        half = np.inf
    area = float(np.clip(half, 1.6, 4.25)) ** 2
    for number, (name, method, numbers) in enumerate(
        zip(methods, methods.values(), estimates, strict=True)
    ):
        places = np.asarray(rows) + lane * (number + 0.5 - len(estimates) / 2)
        # bars are higher than the smallest points, so that a bar shorter than its point still shows
        bars = {
            "linewidth": min(0.8 * 72 * row_height * lane, 5.0),
            "alpha": 0.5,
            "capstyle": "butt",
        }
        label = str(name)
        line = "none"
        if np.isfinite(numbers[:, 1:]).any():
            panel.hlines(places, numbers[:, 1], numbers[:, 2], color=look(number)["color"], **bars)
            label = f"{name}, {share(prob)} interval" + (
                "" if hasattr(method, "tree") else " (approximate)"
            )
            line = "-"
        panel.scatter(numbers[:, 0], places, s=area, linewidths=0, zorder=3, **look(number))
        panel.plot([], [], label=label, linestyle=line, **look(number))  # for the legend
    for name, cells, mark in marks:
        panel.scatter(cells, rows, linewidths=1.4, zorder=4, label=name, **mark)
    for tick, text in enumerate(panel.set_yticks(range(len(labels)), labels)):
        if tick not in rows:
            text.label1.set_fontweight("bold")
            text.tick1line.set_visible(False)
    panel.set_ylim(len(labels) - 0.3, -0.5)  # the first row at the top
    panel.set_xlabel(axis)
    plain_ticks(panel, int(np.clip(1.3 * across, 4, 8)))
    tidy(panel)
    panel.grid(visible=False, axis="y")
    if len(rows) > _ROWS_OF_A_SCREEN:
        panel.tick_params(axis="x", top=True, labeltop=True)
    # two entries side by side, with 0.6 inches for a mark and the gap, where both labels are short
    longest = max(map(len, panel.get_legend_handles_labels()[1]))
    if 2 * (0.6 + 9 * LETTER * longest) <= PAGE_WIDTH:
        columns = 2
    else:
        columns = 1
    figure.legend(loc="outside upper left", frameon=False, fontsize=9, ncols=columns)
    return figure


def _panel_columns(cells: int) -> int:
    """Return the number of panels side by side, at most 3: rows of equal length where that is possible."""
    if cells == 4:
        return 2
    return min(cells, 3)


def _panel_a_cell(
    found: Mapping[str, pd.DataFrame],
    estimates: Sequence[FloatArray],
    marks: Sequence[tuple[str, FloatArray, dict[str, Any]]],
    titles: Sequence[str],
    axis: str,
    interval_label: str,
) -> Figure:
    """Draw one panel a cell with one row a method, for more methods than there are colors."""
    names = [printable(str(name)) for name in found]
    numbers = np.stack(estimates, axis=1)  # shape (cells, methods, 3)
    is_doubted = np.stack(
        [frame["status"].to_numpy() == "not trusted" for frame in found.values()], axis=1
    )
    # inches: labels on the left, at least 2 across a panel; a legend above, and each row as high as its label
    beside = 10 * LETTER * max(map(len, names))
    columns = _panel_columns(len(titles))
    panel_rows = math.ceil(len(titles) / columns)
    width = max(PAGE_WIDTH, beside + 2.0 * columns)
    # titles are 9 points high and bold, so that their letters are wider; a longer one continues on another line
    letters = int((width - beside) / columns / (1.1 * 9 * LETTER))
    titles = [textwrap.fill(title, letters) for title in titles]
    lines = max(title.count("\n") for title in titles)
    height = 0.8 + 0.25 * len(marks) + panel_rows * (0.8 + 0.15 * lines + 0.18 * len(names))
    figure = new_figure(width, height)
    panels = figure.subplots(panel_rows, columns, sharey=True, squeeze=False).ravel()
    places = np.arange(len(names))
    color = COLORS[0]
    for panel, title, (values, lower, upper), doubted in zip(
        panels, titles, numbers.transpose(0, 2, 1), is_doubted, strict=False
    ):
        panel.barh(
            places[::2],
            1,
            height=1,
            transform=panel.get_yaxis_transform(),
            color="#f3f3f3",
            zorder=0,
        )
        panel.hlines(places, lower, upper, color=color, linewidth=2.2, alpha=0.5, zorder=2)
        panel.scatter(values[~doubted], places[~doubted], s=16, color=color, zorder=3)
        if doubted.any():
            hollow = {"facecolors": "white", "edgecolors": color}
            panel.scatter(values[doubted], places[doubted], s=16, zorder=3, **hollow)
        panel.set_title(title, fontsize=9, fontweight="bold", loc="left")
        panel.set_yticks(places, names)
        panel.tick_params(axis="y", length=0)
        panel.set_ylim(len(names) - 0.5, -0.5)  # the first method at the top
        plain_ticks(panel, 6)
        tidy(panel)
        panel.grid(visible=False, axis="y")
        if len(names) > _ROWS_OF_A_SCREEN:
            panel.tick_params(axis="x", top=True, labeltop=True)
    for unused in panels[len(titles) :]:
        unused.set_visible(False)
    first = panels[0]
    if np.isfinite(numbers[..., 1:]).any():
        first.plot([], [], "o-", color=color, label=interval_label)
    else:
        first.plot([], [], "o", color=color, label="estimate")
    if is_doubted.any():
        first.plot(
            [], [], "o", linestyle="none", markerfacecolor="white", color=color, label="not trusted"
        )
    for name, cells, mark in marks:
        style = {"color": mark["color"], "linestyle": "--" if mark["marker"] == "x" else "-"}
        for panel, place in zip(panels, cells, strict=False):
            if np.isfinite(place):
                panel.axvline(place, linewidth=1.2, zorder=1, **style)
        first.plot([], [], linewidth=1.2, label=name, **style)
    for panel in panels[max(len(titles) - columns, 0) : len(titles)]:
        panel.set_xlabel(axis)
    figure.legend(loc="outside upper left", frameon=False, fontsize=9, ncols=2)
    return figure


def _cells(method: Any, marginals: Sequence[_Marginal], prob: float) -> pd.DataFrame:
    """Return estimates, limits and statuses of the cells of all marginals, by the number of the marginal."""
    import pandas as pd

    if is_release(method):  # a learned model is drawn by its own fit
        method = point_estimate(method)
    tables = [_table(method, marginal, prob) for marginal in marginals]
    columns = ["estimate", "lower", "upper", "status"]
    tables = [table.reset_index(drop=True).reindex(columns=columns) for table in tables]
    return pd.concat(dict(enumerate(tables)))


def _table(method: Any, marginal: _Marginal, prob: float) -> pd.DataFrame:
    """Return the frame of the intervals of one marginal, or of its estimates where the method has no intervals."""
    import pandas as pd

    names = list(marginal.variables)
    try:
        return method.interval(names, prob=prob, **marginal.conditional)
    except NoIntervalError:
        cells = np.asarray(method.marginal(names, **marginal.conditional)).ravel()
        return pd.DataFrame({"estimate": cells})


def _true_marks(
    domain: Domain, marginals: Sequence[_Marginal], truth: Any
) -> list[tuple[str, FloatArray, dict[str, Any]]]:
    """Return label, cells and style of the strokes for the truth.

    A reference has two kinds of strokes: shares in the data for marginals inside a clique, and shares that the
    declared independences imply for the others.
    """
    from bayesprivmrf.mechanisms.noisy_statistics import EXACT, Reference

    solution = solution_of(truth)
    cells = []
    is_data = []
    for one in marginals:
        # the truth's states may have another order
        table = solution.marginal(list(one.variables), **one.conditional)
        own = aligned("`truth`", table, one.axes, [domain.states_of(v) for v in one.axes])
        cells.append(own.ravel())
        model = solution.specification
        scope = model.positions_of([*one.variables, *one.given_variables])[1]
        is_data.append(np.full(own.size, parent(model.scopes, scope) is not None))
    values = np.concatenate(cells)
    inside = np.concatenate(is_data)
    black = {"marker": "|", "color": "black", "s": 70}
    if not isinstance(truth, Reference):
        return [("truth", values, black)]
    marks = [(f"data ({EXACT})", np.where(inside, values, np.nan), black)]
    if not inside.all():
        implied = np.where(inside, np.nan, values)
        marks.append(
            (f"declared independences on the data ({EXACT})", implied, black | {"color": GRAY})
        )
    return marks


def _frequencies(
    domain: Domain, marginals: Sequence[_Marginal], holdout: Any, count: Hashable | None
) -> tuple[FloatArray, int]:
    """Return the shares of the cells among records that were held out, NaN where no record has the states given."""
    from bayesprivmrf.mechanisms.reading.counting import count_tables
    from bayesprivmrf.mechanisms.reading.frame import Counts

    cells = []
    records = 0
    # one by one, because a specification drops a marginal that lies inside another
    for marginal in marginals:
        names = (*marginal.variables, *marginal.given_variables)
        own = Domain(variables=names, states=tuple(domain.states_of(v) for v in names))
        model = ModelSpecification(domain=own, cliques=(names,))
        counts = count_tables(model, holdout, rows=Counts.of(count, domain.variables))
        records = counts.records
        require(records != 0, "holdout", "hold at least one record", "none")
        table = counts.flat.reshape(own.cardinalities) / records
        asked = len(marginal.variables)
        _, each = conditions_in_turn(own, marginal.given, range(asked))
        shape = own.cardinalities[:asked]
        for condition in each:
            shares = share_given(table, asked, condition)
            cells.append(np.full(shape, np.nan).ravel() if shares is None else shares.ravel())
    return np.concatenate(cells), records


@dataclass(frozen=True, kw_only=True)
class _Marginal:
    """One marginal of the figure, with its conditions.

    Parameters
    ----------
    domain
        Variables and states of the methods.
    variables
        The variables that are asked for.
    in_turn
        Variables whose states are given in turn.
    given
        The conditions, as `interval` takes them.
    """

    domain: Domain
    variables: tuple[Variable, ...]
    in_turn: tuple[Variable, ...]
    given: GivenOrEach | None

    @classmethod
    def of(cls, domain: Domain, asked: Sequence[int], given: GivenOrEach | None) -> _Marginal:
        """Return the marginal of variables by position."""
        in_turn, _ = conditions_in_turn(domain, given, asked)
        names = domain.variables
        return cls(
            domain=domain,
            variables=tuple(names[v] for v in asked),
            in_turn=tuple(names[v] for v in in_turn),
            given=given,
        )

    @property
    def conditional(self) -> dict[str, GivenOrEach]:
        """The argument `given` of a method, left out where there is none: a method elsewhere may not take it."""
        return {} if not self.given else {"given": self.given}

    @property
    def given_variables(self) -> tuple[Variable, ...]:
        """All variables that are given."""
        return tuple(self.given or ())

    @property
    def axes(self) -> tuple[Variable, ...]:
        """Variables of the cells, in C order: those given in turn, then those asked for."""
        return (*self.in_turn, *self.variables)

    @property
    def cells(self) -> list[tuple[Any, ...]]:
        """States of each cell."""
        return list(product(*map(self.domain.states_of, self.axes)))

    @property
    def heading(self) -> str:
        """Names of the variables, and what is given."""
        asked = " × ".join(map(str, self.variables))
        if isinstance(self.given, Mapping):
            named = self._stated_conditions
        else:
            named = list(map(str, self.in_turn))
        return f"{asked} given {', '.join(named)}" if named else asked

    @property
    def _stated_conditions(self) -> list[str]:
        """Each variable that is given, with its state or its possible states in declared order."""
        coded = conditions(self.domain, self.given if isinstance(self.given, Mapping) else None, [])
        return [
            _stated(
                self.domain.variables[v],
                " or ".join(str(self.domain.states[v][code]) for code in codes),
            )
            for v, codes in coded.items()
        ]

    @property
    def labels(self) -> list[str]:
        """Label of each row: the states given in turn, and those asked for."""
        first = len(self.in_turn)
        labels = []
        for states in self.cells:
            asked = ", ".join(map(str, states[first:]))
            turn = ", ".join(map(str, states[:first]))
            labels.append(f"{turn}: {asked}" if turn else asked)
        return labels

    @property
    def titles(self) -> list[str]:
        """Title of the panel of each cell."""
        first = len(self.in_turn)
        titles = []
        for states in self.cells:
            named = [_stated(v, state) for v, state in zip(self.axes, states, strict=True)]
            if isinstance(self.given, Mapping):
                stated = self._stated_conditions
            else:
                stated = named[:first]
            asked = ", ".join(named[first:])
            titles.append(f"{asked} given {', '.join(stated)}" if stated else asked)
        return titles


def _stated(variable: Variable, states: Any) -> str:
    """Return a variable with its state."""
    return f"{variable} = {states}"


def _common_domain(methods: Mapping[str, Any]) -> Domain:
    is_given = isinstance(methods, Mapping) and len(methods)
    require(is_given, "methods", "map names to at least one solution or posterior", "none")
    for name, method in methods.items():
        what = f"the method {name!r}"
        object_with("specification", what, method, "be a fit", "fit a release first")
    first, *others = (method.specification.domain for method in methods.values())
    name = next(iter(methods))
    for other, domain in zip(list(methods)[1:], others, strict=True):
        both = f"the methods {name!r} and {other!r}"
        must = "have the same variables and states"
        apart = set(first.variables) ^ set(domain.variables)
        # a model that was given to `fit` may leave variables out
        seen = f"{sorted(map(str, apart))} in only one of them"
        remedy = "draw them apart, or fit models with a clique for each variable"
        require(not apart, both, must, seen, remedy)
        other_states = [
            str(v) for v in first.variables if first.states_of(v) != domain.states_of(v)
        ]
        seen = f"other states of {other_states}, or another order of them"
        remedy = "fit releases of one declared network"
        require(not other_states and domain == first, both, must, seen, remedy)
    return first
