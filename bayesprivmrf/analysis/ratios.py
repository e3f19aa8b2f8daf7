"""Odds ratios, risk differences and risk ratios of two variables, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayesprivmrf.analysis._tables import (
    AskedTable,
    GivenStates,
    against,
    asked_table,
    flattened,
    neighboring_pairs,
    with_first,
)
from bayesprivmrf.checks import one_of, require, truth
from bayesprivmrf.inference import Result, TableFunction
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd

type OddsKind = Literal["local", "reference", "cumulative"]


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """Comparisons of two groups of states of one variable, in order.

    Parameters
    ----------
    upper, lower
        States of the two groups, one row for each comparison, shape (comparisons, K).
    labels
        Text of each comparison.
    """

    upper: FloatArray
    lower: FloatArray
    labels: list[str]

    @classmethod
    def of(cls, states: Sequence[Hashable], kind: str) -> _Comparison:
        """Return the comparisons of a kind of odds ratio."""
        size = len(states)
        if kind == "cumulative":
            is_above = np.arange(size) > np.arange(size - 1)[:, np.newaxis]
            labels = [f"above {state}" for state in states[:-1]]
            return cls(upper=is_above.astype(float), lower=(~is_above).astype(float), labels=labels)
        if kind == "local":
            pairs = neighboring_pairs(size)
        else:
            pairs = with_first(size)
        each = np.eye(size)
        one, other = np.transpose(pairs)
        return cls(upper=each[one], lower=each[other], labels=against(states, pairs))


def odds_ratios(
    solution: Result,
    a: Hashable,
    b: Hashable,
    *,
    prob: float = 0.9,
    given: GivenStates | None = None,
    kind: OddsKind = "local",
    simultaneous: bool = False,
) -> pd.DataFrame:
    r"""Return odds ratios of two variables with intervals.

    With the joint probabilities :math:`p_{ij}` of the states i of `a` and j of `b`, the odds ratio of the states
    i, i' and j, j' is

    .. math:: \frac{p_{ij} \, p_{i'j'}}{p_{ij'} \, p_{i'j}} .

    It is 1 where the two variables are independent.

    Parameters
    ----------
    solution
        A fit with intervals, such as that of `NoiseAwareMAP` or `LatentCounts`.
    a, b
        Two variables with at least two states each.
    prob
        Probability of each interval, between 0 and 1.
    given
        A state or a set of states of each of some other variables: the odds ratios are among the people who have
        them. Or a list of variables, each of whose joint states is taken in turn.
    kind
        ``"local"``: each state and the one before it. ``"reference"``: each state and the first. ``"cumulative"``,
        for ordered states: all states above a cut and all others, for every cut of both variables.
    simultaneous
        Whether the intervals hold for all rows together with the probability `prob`.

    Returns
    -------
    pandas.DataFrame
        Columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``; one row for each comparison of states of
        `a` and of `b`, after the states taken in turn. The estimate of a posterior is the median of its draws. A row
        has the status ``"prior"`` where the prior has more information about the odds ratio than the release.

    Raises
    ------
    ArgumentError
        An argument is out of range.
    ModelError
        A variable is unknown, repeated, or has one state; or the given states cannot occur.
    NoIntervalError
        The fit has no measure of its error.

    References
    ----------
    Agresti (2013). Categorical Data Analysis, 3rd edition, sections 2.2 and 2.3. Wiley.

    Examples
    --------
    >>> analysis.odds_ratios(solution, "smokes", "ill", given=["age"])  # doctest: +SKIP
    """
    one_of("kind", kind, ("local", "reference", "cumulative"))
    table = _pair_table(solution, a, b, given)
    rows, columns = (_Comparison.of(states, kind) for states in table.joint.states[table.in_turn :])

    def ratios(tables: FloatArray) -> FloatArray:
        logs = _log_odds_ratios(table.blocked(tables), rows, columns)
        return np.exp(flattened(logs, 3))

    function = TableFunction(values=ratios, scale="log", ends=(0.0, np.inf))
    index = table.index(rows.labels, columns.labels, names=[a, b])
    return table.joint.interval(
        function, index, prob, simultaneous=truth("simultaneous", simultaneous)
    )


def _log_odds_ratios(tables: FloatArray, rows: _Comparison, columns: _Comparison) -> FloatArray:
    """Return log odds ratios, shape (..., comparisons of a, comparisons of b), of tables (..., K_a, K_b)."""

    def log_sum(left: FloatArray, right: FloatArray) -> FloatArray:
        return np.log(left @ tables @ right.T)

    agree = log_sum(rows.upper, columns.upper) + log_sum(rows.lower, columns.lower)
    differ = log_sum(rows.upper, columns.lower) + log_sum(rows.lower, columns.upper)
    return agree - differ


def risk_differences(
    solution: Result,
    a: Hashable,
    b: Hashable,
    *,
    prob: float = 0.9,
    given: GivenStates | None = None,
    simultaneous: bool = False,
) -> pd.DataFrame:
    """Return differences of the probability of each state of `b` between the states of `a`.

    Every state of `a` is compared with the first. The parameters, the result and the errors are those of
    `odds_ratios`.

    Returns
    -------
    pandas.DataFrame
        Columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``; one row for each state of `a` but the first,
        and each state of `b`.

    Examples
    --------
    >>> analysis.risk_differences(solution, "smokes", "ill")  # doctest: +SKIP
    """
    contrast = _RiskContrast(join=np.subtract, scale="identity", ends=(-1.0, 1.0))
    return contrast.frame(_pair_table(solution, a, b, given), prob, simultaneous)


def risk_ratios(
    solution: Result,
    a: Hashable,
    b: Hashable,
    *,
    prob: float = 0.9,
    given: GivenStates | None = None,
    simultaneous: bool = False,
) -> pd.DataFrame:
    """Return ratios of the probability of each state of `b` between the states of `a`.

    Every state of `a` is compared with the first. The parameters, the result and the errors are those of
    `odds_ratios`.

    Returns
    -------
    pandas.DataFrame
        Columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``; one row for each state of `a` but the first,
        and each state of `b`.

    Examples
    --------
    >>> analysis.risk_ratios(solution, "smokes", "ill")  # doctest: +SKIP
    """
    contrast = _RiskContrast(join=np.divide, scale="log", ends=(0.0, np.inf))
    return contrast.frame(_pair_table(solution, a, b, given), prob, simultaneous)


@dataclass(frozen=True, kw_only=True)
class _RiskContrast:
    """A comparison of conditional probabilities: their difference or ratio, with its scale and its range."""

    join: Callable[[FloatArray, FloatArray], FloatArray]
    scale: Literal["identity", "log"]
    ends: tuple[float, float]

    def frame(self, table: AskedTable, prob: float, simultaneous: bool) -> pd.DataFrame:
        """Return the comparison of each state of the first variable with its first state."""

        def contrasts(tables: FloatArray) -> FloatArray:
            blocks = table.blocked(tables)
            risks = blocks / blocks.sum(axis=-1, keepdims=True)
            return flattened(self.join(risks[..., 1:, :], risks[..., :1, :]), 3)

        function = TableFunction(values=contrasts, scale=self.scale, ends=self.ends)
        a, b = table.joint.variables[table.in_turn :]
        states, outcomes = table.joint.states[table.in_turn :]
        labels = against(states, with_first(len(states)))
        index = table.index(labels, outcomes, names=[a, b])
        is_joint = truth("simultaneous", simultaneous)
        return table.joint.interval(function, index, prob, simultaneous=is_joint)


def pooled_odds_ratio(
    solution: Result,
    a: Hashable,
    b: Hashable,
    *,
    over: Sequence[Hashable],
    prob: float = 0.9,
) -> pd.DataFrame:
    r"""Return the Mantel-Haenszel odds ratio of two variables with two states, pooled over the states of others.

    With the joint probabilities :math:`p_{ijk}` of the two variables and a stratum k with the probability
    :math:`p_k`, it is

    .. math:: \frac{\sum_k p_{11k} p_{00k} / p_k}{\sum_k p_{10k} p_{01k} / p_k} .

    If the odds ratio is the same in all strata, this is that odds ratio; otherwise it is a weighted mean.

    Parameters
    ----------
    solution
        A fit with intervals, such as that of `NoiseAwareMAP` or `LatentCounts`.
    a, b
        Two variables with two states each.
    over
        The variables whose joint states are the strata.
    prob
        Probability of the interval, between 0 and 1.

    Returns
    -------
    pandas.DataFrame
        Columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``; one row.

    Raises
    ------
    ArgumentError
        `a` or `b` has more than two states, or `over` is empty.
    ModelError
        A variable is unknown or repeated, or has one state.
    NoIntervalError
        The fit has no measure of its error.

    References
    ----------
    Mantel, Haenszel (1959). Statistical aspects of the analysis of data from retrospective studies of disease.
    Journal of the National Cancer Institute 22, 719-748.

    Examples
    --------
    >>> analysis.pooled_odds_ratio(solution, "smokes", "ill", over=["age"])  # doctest: +SKIP
    """
    remedy = "write over=['age']; without strata, ask `odds_ratios`"
    require(
        isinstance(over, list | tuple) and over, "over", "list the strata's variables", over, remedy
    )
    table = asked_table(solution, [a, b], list(over))
    for variable, states in zip((a, b), table.shape, strict=True):
        must = "name variables with two states"
        seen = f"{variable!r} with {states}"
        require(states == 2, "`a` and `b`", must, seen, "ask `odds_ratios` with `given`")

    def pooled(tables: FloatArray) -> FloatArray:
        blocks = table.blocked(tables)
        strata = blocks.sum(axis=(-2, -1))
        agree = blocks[..., 0, 0] * blocks[..., 1, 1]
        differ = blocks[..., 0, 1] * blocks[..., 1, 0]
        weights = np.divide(1.0, strata, out=np.zeros_like(strata), where=strata > 0)
        ratio = (agree * weights).sum(axis=-1) / (differ * weights).sum(axis=-1)
        return ratio[..., np.newaxis]

    import pandas as pd

    function = TableFunction(values=pooled, scale="log", ends=(0.0, np.inf))
    return table.joint.interval(function, pd.Index(["pooled odds ratio"], name="quantity"), prob)


def _pair_table(
    solution: Result, a: Hashable, b: Hashable, given: GivenStates | None
) -> AskedTable:
    """Return the joint table of two variables."""
    return asked_table(solution, [a, b], given)
