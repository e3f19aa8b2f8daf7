"""Markdown tables of robustness.py: coverage, fits that are wrong, divergences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

__all__ = ["CELL", "WRONG", "panels", "report", "report_priors"]

CELL = ["study", "graph", "law", "records", "epsilon"]
WRONG = 0.75
"""Share of the 90 % intervals below which a fit is called wrong."""


def groups(frame: pd.DataFrame, *columns: str) -> Any:
    return frame.groupby(list(columns), sort=False)


def counted(part: Any) -> Any:
    """The fits that say they have converged; all, where none does."""
    said = part[part["status"] == "converged"]
    return said if len(said) else part


def share(values: Any) -> str:
    """A mean with its standard error over data sets."""
    if len(values) > 1:
        error = values.std() / len(values) ** 0.5
    else:
        error = float("nan")
    return f"{values.mean():.2f} ± {error:.2f}"


def ratio_of(one: Any, other: Any) -> str:
    """Geometric mean of a ratio, with its standard factor."""
    ratio = np.log(one.to_numpy() / other.to_numpy())
    if len(ratio) > 1:
        error = ratio.std(ddof=1) / len(ratio) ** 0.5
    else:
        error = float("nan")
    return f"{np.exp(ratio.mean()):.2f} × {np.exp(error):.2f}"


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def report(frame: pd.DataFrame) -> str:
    """Markdown: coverage of the fits called converged, geometric means of divergences, and a summary by study."""
    heads = [
        "graph",
        "truth",
        "N",
        "ε",
        "fits, converged",
        "μ 90 %",
        "the prior's",
        "counts 90 %",
        "N 90 %",
    ]
    heads += ["KL, posterior mean / MAP", "KL, posterior mean / naive", "seconds"]
    rows = []
    for key, part in groups(frame, *CELL):
        _, graph, law, records, epsilon = key
        said = counted(part)
        rows.append(
            [graph, law, f"{records:,}", f"{epsilon:g}", f"{len(part)}, {_converged(part)}"]
        )
        rows[-1] += [share(said["μ, not the prior's"]), f"{said["the prior's"].mean():.2f}"]
        rows[-1] += [share(said["counts"]), share(said["N"])]
        rows[-1] += [
            ratio_of(part["KL, posterior mean"], part[f"KL, {other}"])
            for other in ("noise-aware MAP", "naive MLE")
        ]
        rows[-1].append(f"{part['seconds'].median():.1f}")
    return "\n".join(
        [*table(heads, rows), "", *summary(frame), "", *wrong(frame), "", *triangulated(frame)]
    )


def _converged(part: Any) -> int:
    return int((part["status"] == "converged").sum())


def summary(frame: pd.DataFrame) -> list[str]:
    """Markdown, a row a study: the least coverage of a cell, how many reach .80 and .86, N over all, divergences."""
    heads = [
        "study",
        "cells",
        "fits, converged",
        "μ 90 %, least",
        "cells of .80",
        "of .86",
        "μ 90 %",
        "N 90 %",
    ]
    rows = []
    for (study,), part in groups(frame, "study"):
        said = counted(part)
        cells = pd.Series(
            [counted(one)["μ, not the prior's"].mean() for _, one in groups(part, *CELL)]
        )
        rows.append(
            [str(study), f"{len(cells)}", f"{len(part)}, {_converged(part)}", f"{cells.min():.2f}"]
        )
        rows[-1] += [f"{(cells >= 0.80).sum()}", f"{(cells >= 0.86).sum()}"]
        rows[-1] += [share(said["μ, not the prior's"]), share(said["N"])]
        rows[-1].append(ratio_of(part["KL, posterior mean"], part["KL, noise-aware MAP"]))
    return table([*heads, "KL, posterior mean / MAP"], rows)


def panels(frame: pd.DataFrame) -> pd.DataFrame:
    """Table of panels.csv: releases by kind of truth, and those of sticky panels by each of their settings."""
    sticky = frame[frame["study"] == "sticky"]
    is_converged = sticky["status"] == "converged"
    parts = {
        "sticky panels, all": sticky,
        "– those `converged`": sticky[is_converged],
        "– the others": sticky[~is_converged],
    }
    for law, part in sticky.groupby("law"):
        parts[f"– {str(law).replace(' .', ' 0.')}"] = part
    for epsilon, part in sticky.groupby("epsilon"):
        parts[f"– ε = {epsilon:g}"] = part
    for records, part in sticky.groupby("records"):
        parts[f"– N = {records:,}"] = part
    for graph, part in sticky.groupby("graph"):
        parts[f"– {graph}"] = part
    parts["uneven panels"] = frame[frame["study"] == "uneven"]
    parts["four cells in five empty"] = frame[frame["study"] == "empty"]
    parts["three-way model"] = frame[frame["study"] == "three-way"]
    for graph, part in groups(frame[frame["study"] == "potentials"], "graph"):
        parts[graph[0]] = part
    parts["all `converged`"] = frame[frame["status"] == "converged"]
    parts["all"] = frame
    return pd.DataFrame([_panel(name, part) for name, part in parts.items() if len(part)])


def _panel(name: str, part: pd.DataFrame) -> dict[str, object]:
    """Return one row of `panels`."""
    held = part["μ, not the prior's"]
    enough = (held >= 0.80).sum()
    more = (held >= 0.86).sum()
    row: dict[str, object] = {"releases": name, "number": len(part)}
    row["marginals"] = share(held)
    row["least"] = f"{held.min():.2f}"
    row["cells of 0.80, of 0.86"] = f"{enough}, {more} of {len(part)}"
    row["counts"] = f"{part['counts'].mean():.2f}"
    row["N"] = share(part["N"])
    row["KL relative to MAP"] = ratio_of(part["KL, posterior mean"], part["KL, noise-aware MAP"])
    row["converged"] = _converged(part)
    row["not trusted"] = int((part["status"] == "not trusted").sum())
    row["wrong"] = int((held < WRONG).sum())
    row["expected"] = f"{part['expected'].sum():.1f}"
    return row


def wrong(frame: pd.DataFrame) -> list[str]:
    """Markdown, a row a graph and a kind of truth: wrong fits of those that converged, and how many were expected."""
    heads = [
        "graph",
        "truth",
        "fits",
        "converged",
        "wrong",
        "expected",
        "all fits: wrong",
        "expected",
    ]
    rows = []
    for (graph, law), part in groups(frame, "graph", "law"):
        rows.append([str(graph), str(law), f"{len(part)}", f"{_converged(part)}"])
        for fits in (part[part["status"] == "converged"], part):
            rows[-1] += [f"{(fits['μ'] < WRONG).sum()}", f"{fits['expected'].sum():.1f}"]
    return table(heads, rows)


def report_priors(frame: pd.DataFrame) -> str:
    """Markdown: coverage at 90 % under each prior, and divergences relative to the first's."""
    first, *others = priors = frame["prior"].unique().tolist()
    heads = [f"{what}, {name}" for what in ("μ", "N") for name in priors] + [
        f"KL, {name}" for name in others
    ]
    rows = []
    for key, part in groups(frame, *CELL[2:]):
        law, records, epsilon = key
        by_prior = {name: one for (name,), one in groups(part, "prior")}
        rows.append([law, f"{records:,}", f"{epsilon:g}"])
        rows[-1] += [f"{by_prior[name][what].mean():.2f}" for what in ("μ", "N") for name in priors]
        mean = "KL, posterior mean"
        rows[-1] += [ratio_of(by_prior[name][mean], by_prior[first][mean]) for name in others]
    return "\n".join(table(["potentials", "N", "ε", *heads], rows))


def triangulated(frame: pd.DataFrame) -> list[str]:
    """Markdown: the two engines on the two-state grid."""
    if "edge KL, triangulated" not in frame:
        return []
    heads = ["potentials", "N", "ε", "edge KL, triangulated / log-linear"]
    heads.append("effective draws a second, log-linear / triangulated")
    rows = []
    for key, part in groups(frame.dropna(subset=["edge KL, triangulated"]), *CELL[2:]):
        law, records, epsilon = key
        ratio = ratio_of(part["edge KL, triangulated"], part["edge KL, log-linear"])
        speed = np.log(part["ESS a second, log-linear"] / part["ESS a second, triangulated"])
        rows.append([law, f"{records:,}", f"{epsilon:g}", ratio, f"{np.exp(speed.mean()):.1f}"])
    return table(heads, rows)
