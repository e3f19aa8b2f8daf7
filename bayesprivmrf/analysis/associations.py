"""Measures of association of two variables, and residuals from independence, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayesprivmrf.analysis._tables import GivenStates, asked_table, flattened
from bayesprivmrf.checks import one_of
from bayesprivmrf.inference import Result, TableFunction
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd

type AssociationMeasure = Literal["cramer", "mutual information", "gamma"]

# Axes of a table of two variables, the last of an array
_AXES = (-2, -1)


def association(
    solution: Result,
    a: Hashable,
    b: Hashable,
    *,
    method: AssociationMeasure = "cramer",
    prob: float = 0.9,
    given: GivenStates | None = None,
) -> pd.DataFrame:
    r"""Return a measure of the association of two variables with an interval.

    With the joint probabilities :math:`p_{ij}`, their margins, and
    :math:`\phi^2 = \sum_{ij} (p_{ij} - p_{i+} p_{+j})^2 / (p_{i+} p_{+j})`,

    - ``"cramer"`` is :math:`V = \sqrt{\phi^2 / (\min(K_a, K_b) - 1)}`, from 0 to 1;
    - ``"mutual information"`` is :math:`\sum_{ij} p_{ij} \log \frac{p_{ij}}{p_{i+} p_{+j}}`, nats;
    - ``"gamma"`` is :math:`(C - D) / (C + D)`, from -1 to 1, for variables with ordered states: C and D are the
      probabilities that two people are concordant, or discordant.

    Parameters
    ----------
    solution
        A fit with intervals, such as that of `NoiseAwareMAP` or `LatentCounts`.
    a, b
        Two variables with at least two states each.
    method
        The measure.
    prob
        Probability of the interval, between 0 and 1.
    given
        A state or a set of states of each of some other variables; or a list of variables, each of whose joint states
        is taken in turn.

    Returns
    -------
    pandas.DataFrame
        Columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``; one row, or one for each of the states taken
        in turn.

    Raises
    ------
    ArgumentError
        An argument is out of range.
    ModelError
        A variable is unknown, repeated, or has one state; or the given states cannot occur.
    NoIntervalError
        The fit has no measure of its error.

    Notes
    -----
    Cramér's V and the mutual information are never negative, and noise and sampling push their estimates up. The
    intervals of independent variables may exclude 0; their lower limits are no test of independence.

    References
    ----------
    Cramér (1946). Mathematical Methods of Statistics, chapter 21. Princeton University Press.
    Goodman, Kruskal (1954). Measures of association for cross classifications. Journal of the American Statistical
    Association 49, 732-764.

    Examples
    --------
    >>> analysis.association(solution, "income", "satisfaction", method="gamma")  # doctest: +SKIP
    """
    one_of("method", method, tuple(_MEASURES))
    table = asked_table(solution, [a, b], given)
    measure = _MEASURES[method]

    def measures(tables: FloatArray) -> FloatArray:
        blocks = table.blocked(tables)
        return measure(blocks / blocks.sum(axis=_AXES, keepdims=True))

    function = TableFunction(values=measures, ends=_ENDS[method])
    return table.joint.interval(function, table.index([method], names=["quantity"]), prob)


def _cramer(shares: FloatArray) -> FloatArray:
    independent = _independent(shares)
    distance = np.divide(
        np.square(shares - independent),
        independent,
        out=np.zeros_like(shares),
        where=independent > 0,
    )
    smaller = min(shares.shape[-2:])
    return np.sqrt(distance.sum(axis=_AXES) / (smaller - 1))


def _mutual_information(shares: FloatArray) -> FloatArray:
    independent = _independent(shares)
    is_possible = shares > 0
    ratio = np.divide(shares, independent, out=np.ones_like(shares), where=is_possible)
    return np.maximum((shares * np.log(ratio)).sum(axis=_AXES), 0.0)


def _gamma(shares: FloatArray) -> FloatArray:
    # probability of states above in both variables, and of states above in one and below in the other
    above = np.flip(np.cumsum(np.flip(shares, axis=-2), axis=-2), axis=-2)[..., 1:, :]
    right = np.flip(np.cumsum(np.flip(above, axis=-1), axis=-1), axis=-1)[..., 1:]
    left = np.cumsum(above, axis=-1)[..., :-1]
    concordant = (shares[..., :-1, :-1] * right).sum(axis=_AXES)
    discordant = (shares[..., :-1, 1:] * left).sum(axis=_AXES)
    return (concordant - discordant) / (concordant + discordant)


def _independent(shares: FloatArray) -> FloatArray:
    """Return the products of the margins of tables."""
    return shares.sum(axis=-1, keepdims=True) * shares.sum(axis=-2, keepdims=True)


_MEASURES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "cramer": _cramer,
    "mutual information": _mutual_information,
    "gamma": _gamma,
}
"""The measures, of shares of shape (..., K_a, K_b)."""

_ENDS = {"cramer": (0.0, 1.0), "mutual information": (0.0, np.inf), "gamma": (-1.0, 1.0)}
"""Smallest and largest value of each measure."""


def residuals(
    solution: Result,
    a: Hashable,
    b: Hashable,
    *,
    kind: Literal["standardized", "ratio"] = "standardized",
    prob: float = 0.9,
    given: GivenStates | None = None,
) -> pd.DataFrame:
    r"""Return the departure of each joint state of two variables from independence, with intervals.

    - ``"standardized"`` is the residual of one record, :math:`\frac{p_{ij} - p_{i+} p_{+j}}
      {\sqrt{p_{i+} p_{+j} (1 - p_{i+}) (1 - p_{+j})}}`, the correlation of the two indicators, from -1 to 1. Times
      :math:`\sqrt N` it is the standardized residual of N records.
    - ``"ratio"`` is :math:`p_{ij} / (p_{i+} p_{+j})`: how many times as frequent the joint state is as it would be
      under independence.

    Parameters
    ----------
    solution, a, b, prob, given
        As `odds_ratios` has them.
    kind
        The residual.

    Returns
    -------
    pandas.DataFrame
        Columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``; one row for each joint state.

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
    Haberman (1973). The analysis of residuals in cross-classified tables. Biometrics 29, 205-220.

    Examples
    --------
    >>> analysis.residuals(solution, "smokes", "ill")  # doctest: +SKIP
    """
    is_standardized = one_of("kind", kind, ("standardized", "ratio")) == "standardized"
    table = asked_table(solution, [a, b], given)

    def departures(tables: FloatArray) -> FloatArray:
        blocks = table.blocked(tables)
        shares = blocks / blocks.sum(axis=_AXES, keepdims=True)
        independent = _independent(shares)
        if not is_standardized:
            return flattened(shares / independent, 3)
        rows = shares.sum(axis=-1, keepdims=True)
        columns = shares.sum(axis=-2, keepdims=True)
        spread = np.sqrt(independent * (1 - rows) * (1 - columns))
        return flattened((shares - independent) / spread, 3)

    if is_standardized:
        function = TableFunction(values=departures, ends=(-1.0, 1.0))
    else:
        function = TableFunction(values=departures, scale="log", ends=(0.0, np.inf))
    index = table.index(*table.joint.states[table.in_turn :], names=[a, b])
    return table.joint.interval(function, index, prob)
