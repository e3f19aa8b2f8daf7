"""Risks under each state of one variable, standardized to the distribution of others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.analysis._tables import (
    AskedTable,
    asked_table,
    product_index,
    require_contrasts,
)
from bayesprivmrf.checks import require
from bayesprivmrf.inference import Result, TableFunction
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd


def standardize(
    solution: Result,
    outcome: Hashable,
    *,
    on: Hashable,
    over: Sequence[Hashable],
    prob: float = 0.9,
) -> pd.DataFrame:
    r"""Return the risk of each outcome under each state of an exposure, with the distribution of others held.

    With the outcome y, the exposure x and the joint states z of the variables in `over`, the standardized risk is

    .. math:: R_x(y) = \sum_z P(z) \, P(y \mid x, z) .

    Parameters
    ----------
    solution
        A fit with intervals, such as that of `NoiseAwareMAP` or `LatentCounts`.
    outcome
        The variable whose risks are asked for.
    on
        The exposure. Differences and ratios are against its first state.
    over
        One or more variables whose distribution is held as it is in the population.
    prob
        Probability of each interval, between 0 and 1.

    Returns
    -------
    pandas.DataFrame
        Columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``. The index has the quantity (``"risk"``,
        ``"difference"`` or ``"ratio"``), the state of the exposure, and the state of the outcome.
        ``attrs["assumptions"]`` has the assumptions under which the numbers are effects of the exposure; in text the
        frame is a table of standardized probabilities.

    Raises
    ------
    ArgumentError
        `over` is empty or no list.
    ModelError
        A variable is unknown or repeated, or has one state.
    NoIntervalError
        The fit has no measure of its error.

    Notes
    -----
    The numbers are causal effects only if the variables in `over` are all common causes of exposure and outcome, none
    of them is affected by the exposure, and every exposure occurs among all of their states. The release cannot check
    this.

    References
    ----------
    Robins (1986). A new approach to causal inference in mortality studies with a sustained exposure period.
    Mathematical Modelling 7, 1393-1512.

    Examples
    --------
    >>> analysis.standardize(solution, "ill", on="smokes", over=["age"])  # doctest: +SKIP
    """
    remedy = "write over=['age']; without other variables, ask `risk_differences`"
    is_list = isinstance(over, list | tuple) and bool(over)
    require(is_list, "over", "list one or more variables", over, remedy)
    require_contrasts(solution, [outcome, on])
    # the strata are one block of axes, and then the exposure and the outcome
    table = asked_table(solution, [on, outcome], list(over))
    frames = [_part(table, quantity, prob) for quantity in ("risk", "difference", "ratio")]
    return _joined(frames, table, (outcome, on, tuple(over)))


def _part(table: AskedTable, quantity: str, prob: float) -> pd.DataFrame:
    """Return the rows of one quantity."""

    def values(tables: FloatArray) -> FloatArray:
        risks = standardized_risks(table.blocked(tables))
        if quantity == "difference":
            risks = risks[..., 1:, :] - risks[..., :1, :]
        if quantity == "ratio":
            risks = risks[..., 1:, :] / risks[..., :1, :]
        return risks.reshape(*risks.shape[:-2], -1)

    exposures, outcomes = table.joint.states[table.in_turn :]
    if quantity == "risk":
        function = TableFunction(values=values, scale="log odds", ends=(0.0, 1.0))
    else:
        exposures = exposures[1:]
        if quantity == "difference":
            function = TableFunction(values=values, ends=(-1.0, 1.0))
        else:
            function = TableFunction(values=values, scale="log", ends=(0.0, np.inf))
    names = ["quantity", *table.joint.variables[table.in_turn :]]
    index = product_index([[quantity], exposures, outcomes], names)
    return table.joint.interval(function, index, prob)


def standardized_risks(blocks: FloatArray) -> FloatArray:
    """Return standardized risks, shape (..., exposures, outcomes), of tables (..., strata, exposures, outcomes)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        risks = blocks / blocks.sum(axis=-1, keepdims=True)
    strata = blocks.sum(axis=(-2, -1))
    # strata that cannot occur have no weight
    weighted = np.where((strata > 0)[..., np.newaxis, np.newaxis], risks, 0.0)
    weighted = weighted * strata[..., np.newaxis, np.newaxis]
    return weighted.sum(axis=-3) / strata.sum(axis=-1)[..., np.newaxis, np.newaxis]


def _joined(
    frames: Sequence[pd.DataFrame],
    table: AskedTable,
    roles: tuple[Hashable, Hashable, tuple[Hashable, ...]],
) -> pd.DataFrame:
    """Return the rows of all quantities, with the assumptions in `attrs`."""
    import pandas as pd

    outcome, exposure, others = roles
    listed = ", ".join(map(str, others))
    whole = pd.concat([pd.DataFrame(frame) for frame in frames])
    whole.attrs |= frames[0].attrs  # the probability of the intervals, which `concat` drops
    whole.attrs["assumptions"] = (
        f"As effects of {exposure}, the numbers assume no common cause of it and {outcome} besides {listed}.",
        f"{exposure} does not affect {listed}.",
        f"Every state of {exposure} occurs among all joint states of {listed}.",
    )
    return whole
