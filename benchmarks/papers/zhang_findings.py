"""Findings about the tables of Zhang et al. 2020: measured slopes beside the theorems', pictures, and a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.plots.style import GRAY, panels, tidy

from .drawing import marked, on_log_axes
from .lower_bounds import Task
from .theorems import Slopes, for_algorithm
from .zhang_cells import ALGORITHMS, CERTIFICATES, SIZE
from .zhang_learners import EXACT

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

QUANTITIES = {"p": "variables", "1/error": "inverse_error", "rho": "rho"}
"""Against what records are counted, and its exponent in `Slopes`."""

_REGRESSION = Slopes(variables=0, inverse_error=1.5, rho=-0.5)
"""Theorem 1.3, n sqrt(rho) = width^2 log(n p)^1.5 / risk^1.5."""

_TINY_BUDGET = 1e-100  # at which the theorem's other term is nothing beside that with the budget


def predicted(algorithm: int) -> Slopes:
    """Return the exponents of the theorem's term with the budget; logarithms left out."""
    if algorithm == 1:
        return _REGRESSION
    bound = for_algorithm(algorithm)
    assert bound.private is not None
    return bound.private


def _with_logarithms(algorithm: int, own: Any) -> float:
    """Return the slope against p of that term with its logarithms, over the same p."""
    common = _middle(own)[1]
    sizes = sorted(set(own.loc[own["rho"] == common, "variables"]))
    if algorithm == 1:
        total = float(np.exp(np.log(own["total"]).mean()))
        needed = [np.log(total * p) ** 1.5 for p in sizes]
    else:
        order = 3 if algorithm > 3 else 2
        states = 3 if algorithm == 3 else 2
        tasks = [
            Task(variables=int(p), size=0.1, order=order, states=states, width=SIZE) for p in sizes
        ]
        needed = [for_algorithm(algorithm).needed(task, _TINY_BUDGET) for task in tasks]
    return _slope(list(zip(np.log(sizes), np.log(needed), strict=True)))


def slopes(table: Any) -> pd.DataFrame:
    r"""Return the slopes of log-records, one row an algorithm and quantity.

    At each p and budget a line is fitted through the logarithms of errors against those of n. Where it crosses the
    geometric mean of all errors of the algorithm is the number of records needed there; its slope s against n gives
    -1/s, at the middle p and its budget, for 1/error. Slopes are those of every repetition, on average, with the
    standard error of that average.
    """
    import pandas as pd

    rows = []
    for algorithm, own in table.groupby("algorithm"):
        found: Any = pd.DataFrame([_slopes(one) for _, one in own.groupby("repetition")])
        stated = predicted(int(algorithm))
        rows += [
            {
                "algorithm": ALGORITHMS[int(algorithm)],
                "against": quantity,
                "measured": found[quantity].mean(),
                "standard_error": found[quantity].std() / np.sqrt(len(found)),
                "predicted": getattr(stated, field),
                "with_logarithms": _with_logarithms(int(algorithm), own)
                if quantity == "p"
                else getattr(stated, field),
                "repetitions": len(found),
            }
            for quantity, field in QUANTITIES.items()
        ]
    return pd.DataFrame(rows + _structure_slopes(table))


def _structure(table: Any) -> Any:
    """Return the rows of graphs that were released, by certificate."""
    if "certificate" in table:
        return table[table["certificate"].notna()].groupby("certificate")
    return []


def _structure_slopes(table: Any) -> list[dict[str, Any]]:
    """Return the slopes of log-records against the logarithm of log p, of which Corollary 6.3 has 1."""
    rows = []
    for certificate, own in _structure(table):
        by_repetition = own.groupby("repetition")
        found = [
            _slope(list(zip(np.log(np.log(part["variables"])), np.log(part["total"]), strict=True)))
            for _, part in by_repetition
        ]
        rows.append(
            {
                "algorithm": CERTIFICATES[certificate],
                "against": "log p",
                "measured": np.mean(found),
                "standard_error": np.std(found, ddof=1) / np.sqrt(len(found)),
                "predicted": 1.0,
                "with_logarithms": 1.0,
                "repetitions": len(found),
            }
        )
    return rows


def _slopes(own: Any) -> dict[str, float]:
    goal = np.log(own["error"]).mean()
    lines = {
        setting: np.polyfit(np.log(part["total"]), np.log(part["error"]), 1)
        for setting, part in own.groupby(["variables", "rho"])
    }
    needed = {setting: (goal - line[1]) / line[0] for setting, line in lines.items()}
    middle, common = _middle(own)
    by_p = [(np.log(p), needed[p, rho]) for p, rho in needed if rho == common]
    by_rho = [(np.log(rho), needed[p, rho]) for p, rho in needed if p == middle]
    return {"p": _slope(by_p), "1/error": -1 / lines[middle, common][0], "rho": _slope(by_rho)}


def _middle(own: Any) -> tuple[Any, Any]:
    """Return the p at which the budget varies, and the budget at which p does."""
    middle = own.groupby("variables")["rho"].nunique().idxmax()
    return middle, own.groupby("rho")["variables"].nunique().idxmax()


def _slope(points: list[tuple[float, float]]) -> float:
    x, y = np.array(points, dtype=float).T
    return float(np.polyfit(x, y, 1)[0])


def finding(name: str, table: Any) -> str:
    """Return what the table says of the paper's statements.

    Parameters
    ----------
    name
        The figure's name in the registry.
    table
        Its rows.
    """
    if name == "zhang-table1":
        return _growth(table)
    return _bounds(table)


def _growth(table: Any) -> str:
    found: Any = slopes(table)
    said = []
    for algorithm, own in found.groupby("algorithm", sort=False):
        parts = [
            f"{row['against']} {row['measured']:.2f} ± {row['standard_error']:.2f} ({row['predicted']:g}"
            + (f", {row['with_logarithms']:.2f})" if row["against"] == "p" else ")")
            for _, row in own.iterrows()
        ]
        said.append(f"{str(algorithm).partition(':')[0]}: {', '.join(parts)}")
    grows = found[found["against"] != "rho"]
    least = grows["measured"] - 2 * grows["standard_error"]
    return (
        "Slopes of log-records, measured and, in brackets, of the theorem's term with the budget: its power, "
        f"and for p with its logarithms at these p. {'; '.join(said)}. The theorems are upper bounds: the measured "
        "growth in p and in 1/error is at most theirs, within two standard errors, in "
        f"{int((least <= grows['with_logarithms']).sum())} of {len(grows)} slopes. The paper has no experiments; "
        "these are its algorithms with this library's tight noise." + _graphs_let_out(table)
    )


def _graphs_let_out(table: Any) -> str:
    parts = []
    for certificate, own in _structure(table):
        means = np.exp(np.log(own["total"]).groupby(own["variables"]).mean())
        needed = ", ".join(f"{total:,.0f} for p = {p}" for p, total in means.items())
        parts.append(f"{CERTIFICATES[certificate]}, {needed}")
    if not parts:
        return ""
    return (
        " Records at which the true graph was let out under (1, 10^-6)-privacy, geometric means over models: "
        f"{'; '.join(parts)}. Corollary 6.3 has log p for blocks."
    )


def _bounds(table: Any) -> str:
    parts = dict(iter(table.groupby("goal")))
    cells = _rms(parts["parameters"])
    private = cells[cells["method"] != EXACT]
    open_ = cells[cells["method"] == EXACT]
    ratio = private["rms"] / private["bound"]
    nearest = private.loc[ratio.idxmin()]
    graphs = parts["structure"]
    at_most = graphs[graphs["total"] <= graphs["bound"]]
    rates = at_most.groupby(["method", "variables", "total", "edges"])["value"].mean()
    worst = rates.groupby(["method", "variables", "total"]).min().reset_index()
    beaten = worst[(worst["method"] != EXACT) & (worst["value"] > 2 / 3)]
    return (
        f"Couplings: the root mean square error of private learners is above the bound in "
        f"{int((ratio > 1).sum())} of {len(private)} cells, nearest {nearest['method']} with {ratio.min():.2f} times "
        f"it (p = {nearest['variables']}, n = {nearest['total']:,}); without privacy it is below in "
        f"{int((open_['rms'] < open_['bound']).sum())} of {len(open_)}. Graphs, with at most as many records as the "
        f"packing bound asks for: private learners find more than 2/3 of every packing in {len(beaten)} of "
        f"{int((worst['method'] != EXACT).sum())} cells, without privacy in "
        f"{int(((worst['method'] == EXACT) & (worst['value'] > 2 / 3)).sum())} of "
        f"{int((worst['method'] == EXACT).sum())}. All under zero-concentrated privacy and replace-one neighbours; "
        "constants are those of docs/explanation/lower-bounds.md, for the paper states none."
    )


def _rms(rows: Any) -> Any:
    grouped = rows.groupby(["variables", "method", "total", "bound"], sort=False)["value"]
    return np.sqrt(grouped.mean()).rename("rms").reset_index()


def draw(name: str, table: Any) -> Figure:
    """Return the picture of a figure's table.

    Parameters
    ----------
    name
        The figure's name in the registry.
    table
        Its rows.
    """
    if name == "zhang-table1":
        return _algorithms(table)
    return _instances(table)


def _algorithms(table: Any) -> Figure:
    """Mean errors against n, a line a setting; dashed, the theorem's slope through the middle one; and graphs."""
    figure, axes = panels(len(ALGORITHMS) + 1, is_shared=False, columns=3)
    _draw_graphs(axes[-1], table)
    for axis, (algorithm, own) in zip(axes[:-1], table.groupby("algorithm"), strict=True):
        for place, ((p, rho), part) in enumerate(own.groupby(["variables", "rho"])):
            means = part.groupby("total")["error"].mean()
            axis.plot(means.index, means.to_numpy(), label=f"p = {p}, ρ = {rho:g}", **marked(place))
        middle, common = _middle(own)
        part = own[(own["variables"] == middle) & (own["rho"] == common)]
        means = part.groupby("total")["error"].mean()
        falling = (means.index / means.index[0]) ** (-1 / predicted(int(algorithm)).inverse_error)
        axis.plot(
            means.index,
            means.iloc[0] * falling,
            color=GRAY,
            linestyle="--",
            linewidth=1,
            label="theorem",
        )
        on_log_axes(axis, own["total"])
        axis.set_xlabel("n")
        axis.set_title(ALGORITHMS[int(algorithm)], fontsize=9, loc="left")
        axis.legend(frameon=False, fontsize=7)
        tidy(axis)
    axes[0].set_ylabel("error")
    return figure


def _draw_graphs(axis: Any, table: Any) -> None:
    """Draw the records at which the true graph was released against p; dashed, log p through the first."""
    for place, (certificate, own) in enumerate(_structure(table)):
        means = np.exp(np.log(own["total"]).groupby(own["variables"]).mean())
        axis.plot(means.index, means.to_numpy(), label=CERTIFICATES[certificate], **marked(place))
        grown = means.iloc[0] * np.log(means.index) / np.log(means.index[0])
        axis.plot(means.index, grown, color=GRAY, linestyle="--", linewidth=1)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("p")
    axis.set_ylabel("records")
    axis.set_title("Graphs; dashed, log p", fontsize=9, loc="left")
    axis.legend(frameon=False, fontsize=7)
    tidy(axis)


def _instances(table: Any) -> Figure:
    """Root mean square error against n with its bound, and the rate of graphs found, a panel for each p."""
    parts = dict(iter(table.groupby("goal")))
    errors = _rms(parts["parameters"])
    graphs = parts["structure"]
    sizes = [("parameters", p) for p in sorted(set(errors["variables"]))]
    sizes += [("structure", p) for p in sorted(set(graphs["variables"]))]
    figure, axes = panels(len(sizes), is_shared=False, columns=len(set(errors["variables"])))
    for axis, (goal, p) in zip(axes, sizes, strict=True):
        is_graph = goal == "structure"
        rows = graphs if is_graph else errors
        rows = rows[rows["variables"] == p]
        if is_graph:
            rate = rows.groupby(["method", "total", "edges"], sort=False)["value"].mean()
            rows = rate.groupby(["method", "total"], sort=False).min().rename("rms").reset_index()
            axis.axvline(
                float(graphs[graphs["variables"] == p]["bound"].iloc[0]), color=GRAY, linestyle="--"
            )
            axis.axhline(2 / 3, color=GRAY, linestyle=":")
        else:
            bound = rows.groupby("total")["bound"].first()
            axis.plot(
                bound.index, bound.to_numpy(), color=GRAY, linestyle="--", label="lower bound"
            )
        for place, (method, own) in enumerate(rows.groupby("method", sort=False)):
            axis.plot(own["total"], own["rms"], label=method, **marked(place))
        on_log_axes(axis, rows["total"])
        axis.set_yscale("linear" if is_graph else "log")
        axis.set_xlabel("n")
        axis.set_title(f"{goal}, p = {p}", fontsize=10, loc="left")
        axis.set_ylabel(
            "graphs found, worst packing" if is_graph else "root mean square error of a coupling"
        )
        axis.legend(frameon=False, fontsize=7)
        tidy(axis)
    return figure
