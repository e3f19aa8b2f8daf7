"""Accuracy of estimates: cell probabilities against a reference, and held-out score against the budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.plots.style import (
    GRAY,
    HAIRLINE,
    MEDIUM,
    PAGE_WIDTH,
    SMALL,
    look,
    new_figure,
    panels,
    plain_ticks,
    point_estimate,
    tidy,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from bayesprivmrf.inference import Posterior, Solution
    from bayesprivmrf.model.tables import FloatArray

# Panels, and entries of a legend, side by side at most
_COLUMNS = 3
# Inches: the largest side of a panel, the height of its errors with their labels, and that of the errors alone
_WIDEST = 4.2
_BELOW = 2.2
_RESIDUALS = 1.4
# Factors of the largest value that leave room around the points, and the least range where there is no error
_ROOM = 1.1
_ROOM_ABOVE = 1.05
_ROOM_BELOW = 0.02
_ZERO = 1e-12
_TICKS = 5
# Points of the cells; markers of means, and of single runs behind them
_CELLS: Any = {"s": 16, "alpha": 0.6, "linewidths": 0}
_MARKER = 6
_REPEATED = 7
# Inches: a figure of scores against epsilon
_WIDE = 6.8
# Ratio of two ends of the axis where there is one epsilon
_DECADE = 10
# Decades between neighboring methods where there is one epsilon, and where methods are compared with one
_ASIDE_ALONE = 0.15
_ASIDE = 0.03
# Lines of methods without epsilon, and the place of their names beside the left end, points
_DASHED = (0, (4, 3))
_BESIDE = (4, 3)
# Nats up to which differences are hardly more than the sampling error of the held-out records
_SAMPLING_ERROR = 0.01
_MARGINS: Any = {"x": 0.12, "y": 0.1}


def edge_marginals(
    reference: Solution | Posterior, solutions: Mapping[str, Solution | Posterior]
) -> Figure:
    r"""Draw the estimated cell probabilities of the measured cliques, and their errors, against a reference.

    Parameters
    ----------
    reference
        The truth, or a non-private estimate such as `mechanisms.reference` gives.
    solutions
        Estimates by name, of models with the cliques of the reference. A posterior stands for the mean of its
        marginals.

    Returns
    -------
    matplotlib.figure.Figure
        Two panels a method, a point a cell. The upper panel has the reference's probability across and the estimated
        probability up, with the line of equality. The lower panel has the error up, estimate minus reference, which
        shows differences that the upper panel hides. The title states the mean absolute error. Panels of one kind
        share their axes.

    Raises
    ------
    ArgumentError
        No solution is given, or a solution has other cliques than the reference.

    References
    ----------
    Bernstein et al., "Differentially Private Learning of Undirected Graphical Models Using Collective Graphical
    Models", ICML 2017, Figure 3(a), for the upper panels.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> network = bpm.declare(states={"a": [0, 1], "b": [0, 1]}, cliques=[("a", "b")])
    >>> uniform = bpm.uniform_solution(network)
    >>> figure = edge_marginals(uniform, {"uniform": uniform})
    >>> figure.axes[0].get_title(loc="left")
    'uniform\nmean error 0'
    """
    reference = point_estimate(reference)
    instance_of("solutions", solutions, Mapping, "map names to solutions")
    require(solutions, "solutions", "hold at least one solution by name", "none")
    truth = reference.marginals.flat
    model = reference.specification
    estimates = {}
    for name, solution in solutions.items():
        estimate = point_estimate(solution)
        own = estimate.specification
        what = f"the solution {name!r}"
        is_like = own.cliques == model.cliques and own.domain == model.domain
        must = "have the cliques of the reference, in the same order"
        require(is_like, what, must, "others", "fit both on one declared network")
        estimates[name] = estimate.marginals.flat
    columns = min(len(estimates), _COLUMNS)
    rows = math.ceil(len(estimates) / columns)
    width = min(PAGE_WIDTH / columns, _WIDEST)
    figure = new_figure(width * columns, rows * (width + _BELOW))
    # the two panels of a method stand above each other
    ratios = [width, _RESIDUALS] * rows
    grid = figure.subplots(
        2 * rows, columns, sharex=True, sharey="row", squeeze=False, height_ratios=ratios
    )
    upper = list(grid[::2].ravel())
    lower = list(grid[1::2].ravel())
    draw_cells(upper[: len(estimates)], truth, estimates)
    limit = _ROOM * max(
        _ZERO, *(float(np.abs(estimate - truth).max()) for estimate in estimates.values())
    )
    for number, (panel, estimate) in enumerate(zip(lower, estimates.values(), strict=False)):
        panel.axhline(0, color=GRAY, linewidth=HAIRLINE, zorder=1)
        _scatter(panel, truth, estimate - truth, number)
        panel.set_ylim(-limit, limit)
        tidy(panel)
        panel.set_xlabel("reference probability")
        panel.tick_params(labelbottom=True)
        upper[number].set_xlabel("")
    for unused in (*upper[len(estimates) :], *lower[len(estimates) :]):
        unused.set_visible(False)
    for cells, residuals in zip(upper[::columns], lower[::columns], strict=True):
        cells.set_ylabel("estimated probability")
        residuals.set_ylabel("estimate minus\nreference")
    return figure


def draw_cells(axes: Sequence[Any], truth: FloatArray, estimates: Mapping[str, FloatArray]) -> None:
    """Draw each method's estimates against the truth, with the line of equality, on one square panel each."""
    top = _ROOM_ABOVE * max(
        float(truth.max()), *(float(values.max()) for values in estimates.values())
    )
    for number, (panel, name) in enumerate(zip(axes, estimates, strict=True)):
        panel.plot([0, top], [0, top], color=GRAY, linewidth=HAIRLINE, zorder=1)
        _scatter(panel, truth, estimates[name], number)
        error = float(np.abs(estimates[name] - truth).mean())
        panel.set_title(f"{name}\nmean error {error:.2g}", fontsize=MEDIUM, loc="left")
        panel.set_xlim(-_ROOM_BELOW * top, top)
        panel.set_ylim(-_ROOM_BELOW * top, top)
        panel.set_box_aspect(1)
        panel.set_xlabel("reference probability")
        plain_ticks(panel, _TICKS)
        tidy(panel)


def _scatter(panel: Any, across: FloatArray, up: FloatArray, number: int) -> None:
    """Draw the cells of one method, in the color and marker of its number."""
    panel.scatter(across, up, zorder=2, **_CELLS, **look(number))


def holdout_against_epsilon(results: pd.DataFrame, *, reference: str | None = None) -> Figure:
    """Draw the held-out log-likelihood, or its loss against a reference, over epsilon, a line a method.

    Parameters
    ----------
    results
        One row a method and epsilon, with the columns `method`, `epsilon` and `holdout_log_likelihood` (nats per
        record), as `compare` gives them. A method without epsilon (NaN), such as a non-private one, is a dashed
        level. Several rows of one method and epsilon are repetitions: small points, with a line through their means.
    reference
        A method without epsilon, such as the non-private one. The figure then shows how many nats each method loses
        against that method. The vertical axis is logarithmic, and linear below 0.01 nats; other methods without
        epsilon are left out.

    Returns
    -------
    matplotlib.figure.Figure
        Epsilon on a logarithmic axis. Methods are drawn side by side where there is only one epsilon. The legend
        names the lines, and each level has its name on it.

    Raises
    ------
    ArgumentError
        A column is missing, no row has a finite epsilon and score, or the reference has no score.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame(
    ...     {"method": "CGM", "epsilon": [0.1, 1.0], "holdout_log_likelihood": [-4.0, -3.0]}
    ... )
    >>> holdout_against_epsilon(table).axes[0].get_xscale()
    'log'
    """
    # The finite scores with their method and epsilon, which is NaN for methods without one
    import pandas as pd

    needed = ["method", "epsilon", "holdout_log_likelihood"]
    columns = getattr(results, "columns", ())
    if isinstance(columns, Iterable):
        known = columns
    else:
        known = ()
    missing = [column for column in needed if column not in known]
    must = f"be a DataFrame with the columns {needed}"
    require(not missing, "results", must, f"none of the name {', '.join(missing)}")
    method, epsilon, score = (list(results[column]) for column in needed)
    found = pd.DataFrame({"method": list(map(str, method)), "epsilon": epsilon, "score": score})
    found = found.astype({"epsilon": float, "score": float}).replace([np.inf, -np.inf], np.nan)
    scores: Any = found.dropna(subset="score")
    has_epsilon = scores["epsilon"].notna()
    require(
        has_epsilon.any(),
        "results",
        "hold at least one row with an epsilon and a finite score",
        "none",
    )
    levels = scores[~has_epsilon].groupby("method", sort=False)["score"].mean()
    if reference is not None:
        must = f"be a method without epsilon that has a score, one of {sorted(levels.index)}"
        require(
            isinstance(reference, str) and reference in levels, "reference", must, repr(reference)
        )
        scores["score"] = levels[reference] - scores["score"]
        levels = levels[[reference]] * 0
    lines = scores[has_epsilon].groupby("method", sort=False)
    epsilons = sorted(scores["epsilon"].dropna().unique())
    figure, (panel,) = panels(1, width=_WIDE)
    # decades between neighboring methods, so that markers of nearly equal scores do not cover each other
    if len(epsilons) == 1:
        step = _ASIDE_ALONE
    elif reference is None:
        step = 0.0
    else:
        step = _ASIDE
    for number, (name, points) in enumerate(lines):
        aside = _DECADE ** (step * (number - (len(lines) - 1) / 2))
        means = points.groupby("epsilon")["score"].agg(["mean", "size"])
        panel.plot(
            aside * means.index, means["mean"], markersize=_MARKER, label=name, **look(number)
        )
        repeated = points[points["epsilon"].isin(means.index[means["size"] > 1])]
        place = aside * repeated["epsilon"], repeated["score"]
        panel.scatter(*place, s=_REPEATED, color=look(number)["color"], alpha=0.5)
    for name, level in levels.items():
        panel.axhline(level, color=GRAY, linestyle=_DASHED, linewidth=1)
        place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        panel.annotate(name, xy=(0, level), xytext=_BESIDE, color=GRAY, fontsize=SMALL, **place)
    panel.set_xscale("log")
    if len(epsilons) == 1:
        panel.set_xlim(epsilons[0] / _DECADE, epsilons[0] * _DECADE)
    panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    panel.minorticks_off()
    panel.set_xlabel("ε of the release")
    panel.set_ylabel("held-out log-likelihood\n(nats per record)")
    if reference is not None:
        panel.set_yscale("symlog", linthresh=_SAMPLING_ERROR, linscale=0.5)
        panel.set_ylabel(f"loss against {reference}\n(nats per record, lower is better)")
    panel.margins(**_MARGINS)
    figure.legend(frameon=False, fontsize=SMALL, loc="outside upper left", ncols=_COLUMNS)
    tidy(panel)
    return figure
