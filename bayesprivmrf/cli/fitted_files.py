"""Files of a point estimate that a statistician can read anywhere: JSON for the model, one CSV a marginal table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.cli.output import json_text
from bayesprivmrf.inference.interval_frame import POINT, interval_frame, joint_index, point_status

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from bayesprivmrf.inference import Solution
    from bayesprivmrf.model.domain import Variable
FILES = ("solution.json", "network.json", "marginals/[0-9][0-9]*_*.csv")
"""Patterns of all that `write_folder` writes."""


def write_folder(
    folder: Path, summary: dict[str, Any], solution: Solution, prob: float | None = None
) -> None:
    """Write the summary, the network and the marginal tables of the measured cliques, with intervals if `prob`."""
    (folder / "solution.json").write_text(json_text(summary) + "\n", encoding="utf-8")
    (folder / "network.json").write_text(json_text(_network(solution)) + "\n", encoding="utf-8")
    (folder / "marginals").mkdir(exist_ok=True)
    for position, clique in enumerate(solution.specification.cliques, start=1):
        name = re.sub(r"[^A-Za-z0-9]+", "_", "_".join(map(str, clique)))[:80]
        table = marginal_table(solution, clique, prob).assign(simulated=solution.is_simulated)
        table.to_csv(folder / "marginals" / f"{position:02d}_{name}.csv")


def marginal_table(estimate: Any, variables: Sequence[Variable], prob: float | None) -> pd.DataFrame:
    """Return the probabilities of a marginal with statuses and notes; if `prob` is given, also with limits."""
    if prob is not None:
        return estimate.interval(list(variables), prob=prob).rename(columns={"estimate": "probability"})
    frame = interval_frame(
        estimate.marginal(list(variables)).to_numpy(),
        *(np.nan, np.nan),
        joint_index(estimate.specification.domain, variables),
        status=point_status(estimate.status),
        marks=[POINT],
        is_simulated=estimate.is_simulated,
    )
    return frame.drop(columns=["lower", "upper"]).rename(columns={"estimate": "probability"})


def variables_of(solution: Solution) -> list[dict[str, Any]]:
    """Names and states as JSON holds them."""
    domain = solution.specification.domain
    return [
        {"name": variable, "states": list(states)}
        for variable, states in zip(domain.variables, domain.states, strict=True)
    ]


def _network(solution: Solution) -> dict[str, Any]:
    """The fitted field: P(x) is proportional to exp of the sum of the log-potentials; null is minus infinity."""
    return {
        "simulated": solution.is_simulated,
        "variables": variables_of(solution),
        "factors": [
            {"variables": list(clique), "log_potential": solution.potentials[clique]}
            for clique in solution.specification.cliques
        ],
        "log_partition": solution.log_partition,
    }
