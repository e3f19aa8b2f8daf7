"""How near estimates come: edge marginals against a reference, and held-out score against budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import instance_of, require
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.plots.style import COLOURS, GREY, MARKS, panels, point_estimate, tidy

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from bayesprivmrf.inference import Posterior, Solution
    from bayesprivmrf.model.tables import FloatArray

_STEP_ASIDE = 0.15  # decades between the methods at a single epsilon
# The same, where there are several and lines would be hidden by their marks
_SMALL_STEP = 0.03
# Nats around 0 within which a logarithmic axis of losses is linear; less is hardly more than the scoring's
# noise.
_LINEAR = 0.01


def edge_marginals(reference: Solution | Posterior, solutions: Mapping[str, Solution | Posterior]) -> Figure:
    """Draw inferred cell probabilities of the measured cliques against the reference's, a panel a method.

    Parameters
    ----------
    reference
        The truth, or the non-private estimate that stands for it.
    solutions
        Estimates by name, of models with the reference's cliques; of a posterior, the mean of its marginals.

    Returns
    -------
    matplotlib.figure.Figure
        One square panel a method, on shared axes from 0; points on the diagonal are right. The panel states the
        mean absolute error of a cell.

    Raises
    ------
    ArgumentError
        No solution is given, or one has other cliques than the reference.

    References
    ----------
    Bernstein et al., "Differentially Private Learning of Undirected Graphical Models Using Collective Graphical
    Models", ICML 2017, Figure 3(a).
    """
    reference = point_estimate(reference)
    instance_of("solutions", solutions, Mapping, "map names to solutions")
    estimated = {name: point_estimate(solution) for name, solution in solutions.items()}
    names = _checked_names(reference, estimated)
    truth = reference.marginals.flat
    estimates = {name: solution.marginals.flat for name, solution in estimated.items()}
    return draw_edges(truth, {name: estimates[name] for name in names})


def draw_edges(truth: FloatArray, estimates: Mapping[str, FloatArray]) -> Figure:
    """Draw inferred against true cell probabilities, a panel a method, on shared axes from 0."""
    names = list(estimates)
    top = 1.05 * max(float(truth.max()), *(float(values.max()) for values in estimates.values()))
    figure, axes = panels(len(names))
    for position, (panel, name) in enumerate(zip(axes, names, strict=True)):
        panel.plot([0, top], [0, top], color=GREY, linewidth=0.8, zorder=1)
        panel.scatter(
            truth,
            estimates[name],
            s=16,
            marker=MARKS[position % len(MARKS)],
            color=COLOURS[position % len(COLOURS)],
            alpha=0.6,
            linewidths=0,
            zorder=2,
        )
        error = float(np.abs(estimates[name] - truth).mean())
        panel.set_title(f"{name}\nmean error {error:.2g}", fontsize=10, loc="left")
        panel.set_xlim(-0.02 * top, top)
        panel.set_ylim(-0.02 * top, top)
        panel.set_box_aspect(1)
        panel.set_xlabel("reference probability")
        tidy(panel)
    axes[0].set_ylabel("inferred probability")
    return figure


def holdout_against_epsilon(results: pd.DataFrame, *, reference: str | None = None) -> Figure:
    """Draw the held-out log-likelihood, or its loss against a reference, over epsilon, a line a method.

    Parameters
    ----------
    results
        One row a method and epsilon: columns `method`, `epsilon` and `holdout_log_likelihood` (nats a record).
        A method that has no epsilon (NaN), such as a non-private one, is a dashed level. Several rows of one
        method and epsilon are repetitions: their mean is joined, each is dotted in.
    reference
        The method without epsilon, such as the non-private one, whose score the others are taken from. The nats lost
        are on a logarithmic axis, which tells methods apart that are close to it; around 0, where a method does as
        well or better, the axis is linear. Other methods without epsilon are left out.

    Returns
    -------
    matplotlib.figure.Figure
        Logarithmic epsilon; the methods stand side by side where there is one only. A legend names the lines,
        each level is named on itself.

    Raises
    ------
    ArgumentError
        A column is missing, no row has a finite epsilon and score, or the reference has no score.
    """
    lines, levels = _scores(results)
    if reference is not None:
        if not isinstance(reference, str) or reference not in levels:
            raise ArgumentError(
                f"`reference` must be a method without epsilon that has a score, one of {sorted(levels)}, got "
                f"{reference!r}."
            )
        level = float(np.mean(levels[reference]))
        levels = {reference: [0.0]}
        lines = {name: {e: [level - s for s in own] for e, own in at.items()} for name, at in lines.items()}
    epsilons = sorted({epsilon for points in lines.values() for epsilon in points})
    figure, (panel,) = panels(1, width=6.2)
    step = _STEP_ASIDE if len(epsilons) == 1 else 0.0 if reference is None else _SMALL_STEP
    for position, (name, points) in enumerate(lines.items()):
        colour, mark = COLOURS[position % len(COLOURS)], MARKS[position % len(MARKS)]
        means = [float(np.mean(scores)) for _, scores in sorted(points.items())]
        # methods stand side by side on the logarithmic axis
        aside = 10 ** (step * (position - (len(lines) - 1) / 2))
        places = [aside * epsilon for epsilon in sorted(points)]
        panel.plot(places, means, color=colour, marker=mark, markersize=6, label=name)
        for epsilon, scores in points.items():
            if len(scores) > 1:
                panel.scatter([aside * epsilon] * len(scores), scores, s=7, color=colour, alpha=0.5)
    for name, scores in levels.items():
        level = float(np.mean(scores))
        panel.axhline(level, color=GREY, linestyle=(0, (4, 3)), linewidth=1)
        place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        panel.annotate(name, xy=(0, level), xytext=(4, 3), color=GREY, fontsize=9, **place)
    panel.set_xscale("log")
    if len(epsilons) == 1:
        panel.set_xlim(epsilons[0] / 10, epsilons[0] * 10)
    panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    panel.minorticks_off()
    panel.set_xlabel("ε")
    panel.set_ylabel("held-out log-likelihood\n(nats a record)")
    if reference is not None:
        panel.set_yscale("symlog", linthresh=_LINEAR, linscale=0.5)
        panel.set_ylabel(f"nats a record lost against\n{reference} (lower is better)")
    panel.margins(x=0.12, y=0.1)
    panel.legend(frameon=False, fontsize=9, loc="best")
    tidy(panel)
    return figure


def _checked_names(reference: Any, solutions: Mapping[str, Any]) -> list[str]:
    require(solutions, "solutions", "hold at least one solution by name", "none")
    cliques = reference.specification.cliques
    for name, solution in solutions.items():
        if (
            solution.specification.cliques != cliques
            or solution.specification.domain != reference.specification.domain
        ):
            raise ArgumentError(
                f"the solution {name!r} must have the cliques of the reference, in the same order; "
                "fit both on one declared network."
            )
    return list(solutions)


def _scores(results: Any) -> tuple[dict[str, dict[float, list[float]]], dict[str, list[float]]]:
    """Return finite scores by method and epsilon, and those of the methods without epsilon."""
    needed = ["method", "epsilon", "holdout_log_likelihood"]
    columns = getattr(results, "columns", ())
    known = columns if isinstance(columns, Iterable) else ()
    missing = [column for column in needed if column not in known]
    if missing:
        raise ArgumentError(f"`results` must be a DataFrame with the columns {needed}, and lacks {missing}.")
    lines: dict[str, dict[float, list[float]]] = {}
    levels: dict[str, list[float]] = {}
    for name, epsilon, score in zip(*(list(results[column]) for column in needed), strict=True):
        if not math.isfinite(score):
            continue
        if epsilon is None or not math.isfinite(epsilon):
            levels.setdefault(str(name), []).append(float(score))
        else:
            lines.setdefault(str(name), {}).setdefault(float(epsilon), []).append(float(score))
    require(lines, "results", "hold at least one row with an epsilon and a finite score", "none")
    return lines, levels
