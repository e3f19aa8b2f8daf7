r"""Joint probabilities of some variables with their uncertainty, and intervals of any function of them.

An odds ratio, a standardized risk and a coefficient of a regression are functions f of one joint table p. A result
states the uncertainty of p once, in one of two ways, and every function of p follows.

**Draws.** A posterior has draws of p. The limits of f are quantiles of its draws.

**The delta method.** An estimate from the curvature has the covariance C of :math:`\log p`. With h the scale of f,
the identity, the logarithm or the log odds, and G the derivative of :math:`h(f)` by :math:`\log p`,

.. math:: \operatorname{Var} h(f) = G C G' .

The limits are normal on the scale h. The derivatives are central differences along the principal axes of C, so that
they are small changes in the units of the uncertainty.

**Simultaneous limits** hold for all rows together. Under the delta method the normal quantile is replaced by that of
the largest of the correlated standard normal variables. With draws, the limits are the narrowest order statistics of
equal ranks between which a draw lies in all rows with the wanted probability (Besag, Green, Higdon and Mengersen
1995).

**Rows that the prior decides.** With draws, a row is marked where its sensitivity to a power of the prior, the
correlation of f with the log density of the prior in units of that density, is above 1
(`bayesprivmrf.inference.posterior.results.quantities`). Under the delta method, it is marked where the variance that
the noise leaves is more than half of that under the prior alone: the release then has less information about f than
the prior.

References
----------
Besag, Green, Higdon, Mengersen (1995). Bayesian computation and stochastic systems. Statistical Science 10, 3-41.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bayesprivmrf.checks import probability
from bayesprivmrf.inference.asked import Asked, asked_marks
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import (
    Mark,
    RowStatus,
    Status,
    interval_frame,
    with_level,
)
from bayesprivmrf.inference.limits import Ends, Limits, limits_of_draws
from bayesprivmrf.inference.row_mixing import Ending
from bayesprivmrf.model.domain import Condition, Label, Variable
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd

# Half the distance between the points of a difference, in standard deviations; the error is of its square
_STEP = 1e-3
# Draws of correlated normal variables for a simultaneous quantile, whose standard error is then below one percent
_NORMAL_DRAWS = 20_000
# Variance after the release, as a share of that before it, above which the prior has more information
_PRIOR_SHARE = 0.5
# Sensitivity to the prior above which it decides: doubling its weight moves the row by 0.7 standard deviations
_LARGEST_SENSITIVITY = 1.0
# Standard errors by which a sensitivity must exceed that limit, which one in a thousand independent draws does
_MONTE_CARLO_ERRORS = 3.0
# Share of the draws in which a number must exist; in the others it counts as the median
_DEFINED = 0.99
# Largest absolute log ratio of a draw: the logarithm of the largest number
_LARGEST_LOG = 700.0

# Why a row has no number
UNDEFINED = "a cell of probability 0 leaves it undefined"


@dataclass(frozen=True, kw_only=True, eq=False)
class TableFunction:
    """A function of a joint table, for `JointEstimate.interval`.

    Parameters
    ----------
    values
        Maps tables of shape (..., K_v for each variable) to numbers of shape (..., rows), for any leading axes.
    scale
        Scale on which the numbers are about normal: ``"identity"``, ``"log"`` for positive numbers, or ``"log odds"``
        for numbers between 0 and 1.
    ends
        Smallest and largest possible number.
    """

    values: Callable[[FloatArray], FloatArray]
    scale: Literal["identity", "log", "log odds"] = "identity"
    ends: Ends = (-np.inf, np.inf)

    def scaled(self, tables: FloatArray) -> FloatArray:
        """Return the numbers on their scale; NaN or infinite where they are not defined."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            numbers = self.values(tables)
            if self.scale == "identity":
                return numbers
            logs = np.log(numbers)
            if self.scale == "log odds":
                logs = logs - np.log1p(-numbers)
            return logs

    def unscaled(self, numbers: FloatArray) -> FloatArray:
        """Return numbers from their values on the scale."""
        if self.scale == "identity":
            return np.clip(numbers, *self.ends)
        with np.errstate(over="ignore"):  # limits that a wide prior leaves may be infinite
            if self.scale == "log odds":
                return 1 / (1 + np.exp(-numbers))
            return np.exp(numbers)


class Uncertainty(Protocol):
    """Uncertainty of a joint table: draws, or a covariance."""

    def limits(self, function: TableFunction, prob: float, *, is_simultaneous: bool) -> Limits:
        """Return estimates and limits of a function of the table, one for each of its rows."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnTables:
    """Posterior draws of a joint table.

    Parameters
    ----------
    draws
        Shape (chain, draw, K_v for each variable).
    log_prior
        Log density of each part of the prior at these draws, shape (chain, draw) each.
    ending
        How rows ended, given the draws from which they were computed, shape (chain, draw, rows).
    """

    draws: FloatArray
    log_prior: Mapping[str, FloatArray]
    ending: Callable[[FloatArray], Ending]

    def limits(self, function: TableFunction, prob: float, *, is_simultaneous: bool) -> Limits:
        """Return limits from quantiles of the draws; estimates are medians on scales of logarithms, else means."""
        scaled = function.scaled(self.draws)
        is_number = ~np.isnan(scaled)
        is_defined = (is_number.mean(axis=(0, 1)) >= _DEFINED) & np.isfinite(scaled).any(
            axis=(0, 1)
        )
        # a cell of a draw that underflowed is nearly, not exactly, 0
        drawn = np.where(is_defined, scaled, 0.0)
        if function.scale != "identity":
            drawn = np.clip(drawn, -_LARGEST_LOG, _LARGEST_LOG)
        drawn = np.where(is_number, drawn, np.nanmedian(drawn, axis=(0, 1)))
        flat = drawn.reshape(-1, drawn.shape[-1])
        if function.scale == "identity":
            middle = flat.mean(axis=0)
            ends = function.ends
        else:
            middle = np.median(flat, axis=0)
            ends = (-np.inf, np.inf)
        if is_simultaneous:
            lower, upper = rank_limits(flat, prob)
        else:
            lower, upper = limits_of_draws(drawn, prob, ends)
        is_decided = prior_influence(flat, [part.ravel() for part in self.log_prior.values()])
        decides = Mark(RowStatus.PRIOR, "the prior decides", is_decided > _LARGEST_SENSITIVITY)
        ending = self.ending(drawn)
        found = _limits(function, (middle, lower, upper), is_defined, [decides, *ending.marks])
        return found._replace(status=ending.status)


@dataclass(frozen=True, kw_only=True, eq=False)
class NormalTable:
    """A joint table whose logarithms are about normal.

    Parameters
    ----------
    table
        Estimated probabilities, shape (K_v for each variable).
    covariance
        Covariance of the log probabilities in C order, shape (cells, cells); 0 for cells of probability 0.
    by_noise
        The part of the covariance that the noise leaves, and the covariance under the prior alone; None without a
        prior.
    """

    table: FloatArray
    covariance: FloatArray
    by_noise: tuple[FloatArray, FloatArray] | None = None

    def limits(self, function: TableFunction, prob: float, *, is_simultaneous: bool) -> Limits:
        """Return limits that are normal on the scale of the function."""
        from scipy.special import ndtri

        middle = function.scaled(self.table[np.newaxis])[0]
        slopes = self._slopes(function, self.covariance)
        is_defined = np.isfinite(middle) & np.isfinite(slopes).all(axis=0)
        middle = np.where(is_defined, middle, 0.0)
        slopes = np.where(is_defined, slopes, 0.0)
        errors = np.sqrt(np.square(slopes).sum(axis=0))
        if is_simultaneous:
            reach = simultaneous_quantile(slopes, prob)
        else:
            reach = float(ndtri(0.5 + prob / 2))
        scaled = (middle, middle - reach * errors, middle + reach * errors)
        return _limits(function, scaled, is_defined, self._prior_marks(function))

    def _prior_marks(self, function: TableFunction) -> list[Mark]:
        """Return the mark of rows about which the prior has more information than the release."""
        if self.by_noise is None:
            return []
        left, before = (
            np.sqrt(np.square(np.nan_to_num(self._slopes(function, each))).sum(axis=0))
            for each in self.by_noise
        )
        return [prior_share_mark(left, before)]

    def _slopes(self, function: TableFunction, covariance: FloatArray) -> FloatArray:
        """Return derivatives of the function on its scale along the axes of a covariance, shape (axes, rows)."""
        values, vectors = np.linalg.eigh(covariance)
        deviations = np.sqrt(np.maximum(values, 0.0))
        # an axis of a large variance is followed by at most a step of `_STEP` nats
        steps = _STEP / np.maximum(deviations, 1.0)
        moves = (vectors * (deviations * steps)).T.reshape(-1, *self.table.shape)
        forward = function.scaled(self._moved(moves))
        backward = function.scaled(self._moved(-moves))
        with np.errstate(invalid="ignore"):
            return (forward - backward) / (2 * steps[:, np.newaxis])

    def _moved(self, moves: FloatArray) -> FloatArray:
        """Return tables whose log probabilities are moved, shape (moves, K_v for each variable)."""
        tables = self.table * np.exp(moves)
        return tables / tables.sum(axis=tuple(range(1, tables.ndim)), keepdims=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class JointEstimate:
    """Joint probabilities of some variables with their uncertainty, as `joint_estimate` of a result returns them.

    Parameters
    ----------
    variables
        The variables, in the order of the table's axes.
    states
        States of each variable.
    status
        Status of the fit.
    marks
        Remarks on everything that depends on the table.
    is_simulated
        Whether a release behind the fit had seeded noise.
    uncertainty
        `DrawnTables` of a posterior, `NormalTable` of an estimate.
    """

    variables: tuple[Variable, ...]
    states: tuple[tuple[Label, ...], ...]
    status: Status
    marks: tuple[Mark, ...]
    is_simulated: bool
    uncertainty: Uncertainty

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of states of each variable."""
        return tuple(map(len, self.states))

    def interval(
        self,
        function: TableFunction,
        index: pd.Index,
        prob: float = 0.9,
        *,
        simultaneous: bool = False,
        marks: Sequence[Mark] = (),
    ) -> pd.DataFrame:
        """Return intervals of a function of the table.

        Parameters
        ----------
        function
            The function; its rows are in the order of `index`.
        index
            Labels of the rows.
        prob
            Probability of each interval, between 0 and 1; of all together if they are simultaneous.
        simultaneous
            Whether the limits hold jointly for all rows.
        marks
            Further remarks on the rows.

        Returns
        -------
        pandas.DataFrame
            Columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``, as those of `Result.interval`. Its
            ``attrs`` have `prob` and `simultaneous`.
        """
        prob = probability("prob", prob, zero=False, remedy="0.9 is for 90 %")
        limits = self.uncertainty.limits(function, prob, is_simultaneous=simultaneous)
        frame = interval_frame(
            limits.estimates,
            limits.lower,
            limits.upper,
            index,
            status=limits.status or self.status,
            marks=[*limits.marks, *self.marks, *marks],
            is_simulated=self.is_simulated,
        )
        return with_level(frame, prob, is_joint=simultaneous)


class _Finished(Protocol):
    """Numbers of the draws, as far as they are used here."""

    effects: FloatArray


class _Draws(Protocol):
    """The draws of a posterior, as far as they are used here."""

    evidence: Evidence
    finished: _Finished
    status: Status

    def joint(self, query: Sequence[int], given: Condition | None = None) -> FloatArray:
        """Return draws of the joint table of some variables, shape (chain, draw, K_v)."""
        ...

    def log_prior(self, kept: int) -> Mapping[str, FloatArray]:
        """Return the log density of each part of the prior at `kept` draws of each chain."""
        ...

    def ending(self, drawn: FloatArray) -> Ending:
        """Return how rows ended, by the draws from which they were computed."""
        ...


@runtime_checkable
class HasDraws(Protocol):
    """A result with draws."""

    _draws: _Draws


def drawn_estimate(result: HasDraws, asked: Asked) -> JointEstimate:
    """Return the joint table that was asked for from the draws of a result."""
    draws = result._draws
    tables = draws.joint(asked.variables, asked.given)
    uncertainty = DrawnTables(
        draws=tables, log_prior=draws.log_prior(tables.shape[1]), ending=draws.ending
    )
    return joint_estimate(asked, draws.evidence, uncertainty, draws.status)


def joint_estimate(
    asked: Asked,
    evidence: Evidence,
    uncertainty: Uncertainty,
    status: Status,
    marks: Sequence[Mark] = (),
) -> JointEstimate:
    """Return the answer to a question about a joint table, with the remarks that its intervals have.

    Parameters
    ----------
    asked
        The question.
    evidence
        The measurements of the fit.
    uncertainty
        Draws or covariance of the table.
    status
        Status of the fit.
    marks
        Further remarks on the whole table.
    """
    domain = asked.model.domain
    return JointEstimate(
        variables=tuple(domain.variables[v] for v in asked.variables),
        states=tuple(domain.states[v] for v in asked.variables),
        status=status,
        marks=(*marks, *asked_marks(evidence, asked)),
        is_simulated=evidence.is_simulated,
        uncertainty=uncertainty,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Covariances:
    """Covariances of the probabilities of a table's cells, shape (cells, cells) each.

    Parameters
    ----------
    whole
        From noise and sampling.
    noise
        From the noise alone; None without a prior.
    prior
        Under the prior alone; None without one.
    """

    whole: FloatArray
    noise: FloatArray | None = None
    prior: FloatArray | None = None

    def at_least(self, variances: FloatArray) -> Covariances:
        """Return covariances with independent parts added to cells whose variance is below a given one."""
        missing = np.maximum(variances - np.diag(self.whole), 0.0)
        return replace(self, whole=self.whole + np.diag(missing))


def normal_table(
    probabilities: FloatArray, shape: Sequence[int], covariances: Covariances
) -> NormalTable:
    """Return a table of some shape from the covariances of its probabilities.

    Cells of probability 0 have no logarithm, and do not vary.
    """
    inverse = np.divide(
        1.0, probabilities, out=np.zeros_like(probabilities), where=probabilities > 0
    )
    scaling = np.outer(inverse, inverse)
    by_noise = None
    if covariances.noise is not None and covariances.prior is not None:
        by_noise = (covariances.noise * scaling, covariances.prior * scaling)
    return NormalTable(
        table=probabilities.reshape(shape),
        covariance=covariances.whole * scaling,
        by_noise=by_noise,
    )


def _limits(
    function: TableFunction,
    scaled: tuple[FloatArray, FloatArray, FloatArray],
    is_defined: NDArray[np.bool_],
    marks: Sequence[Mark],
) -> Limits:
    """Return estimates and limits from those on the scale of a function; NaN where it is not defined."""
    estimates, lower, upper = (
        np.where(is_defined, function.unscaled(each), np.nan) for each in scaled
    )
    undefined = Mark(RowStatus.NOT_TRUSTED, UNDEFINED, ~is_defined)
    return Limits(estimates, lower, upper, (*marks, undefined))


def prior_share_mark(errors: FloatArray, before: FloatArray) -> Mark:
    """Return the mark of rows about which the prior has more information than the release.

    Parameters
    ----------
    errors, before
        Standard errors that the noise leaves, and standard deviations under the prior.
    """
    is_decided = np.square(errors) > _PRIOR_SHARE * np.square(before)
    return Mark(RowStatus.PRIOR, "the prior decides", is_decided & (before > 0))


def prior_influence(values: FloatArray, log_prior: Sequence[FloatArray]) -> FloatArray:
    """Return the largest sensitivity of each row to a part of the prior, less its Monte Carlo error.

    Parameters
    ----------
    values
        Draws of the rows, shape (draws, rows).
    log_prior
        Log density of each part of the prior, nats, shape (draws,) each.
    """
    size = len(values)
    centered = values - values.mean(axis=0)
    spread = centered.std(axis=0)
    spread = np.where(spread > 0, spread, np.inf)
    largest = np.zeros(values.shape[1])
    for part in log_prior:
        moved = np.abs((part - part.mean()) @ centered) / size / spread
        error = _MONTE_CARLO_ERRORS * float(part.std()) / math.sqrt(size)
        largest = np.maximum(largest, moved - error)
    return largest


def rank_limits(draws: FloatArray, prob: float) -> tuple[FloatArray, FloatArray]:
    """Return limits of equal ranks between which all rows of a draw lie with some probability.

    Parameters
    ----------
    draws
        Shape (draws, rows).
    prob
        The probability of all rows together.
    """
    size = len(draws)
    ordered = np.sort(draws, axis=0)
    ranks = np.argsort(np.argsort(draws, axis=0), axis=0)
    # the outermost rank of each draw, over its rows and both sides
    outermost = np.maximum(ranks, size - 1 - ranks).max(axis=1)
    place = min(math.ceil(prob * size), size) - 1
    rank = int(np.sort(outermost)[place])
    return ordered[size - 1 - rank], ordered[rank]


def simultaneous_quantile(slopes: FloatArray, prob: float) -> float:
    """Return the quantile of the largest absolute value of correlated standard normal variables.

    Parameters
    ----------
    slopes
        Loadings of the variables on independent standard normal ones, shape (axes, rows); all 0 for a constant.
    prob
        Probability that all variables lie within the quantile.
    """
    lengths = np.sqrt(np.square(slopes).sum(axis=0))
    loadings = slopes[:, lengths > 0] / lengths[lengths > 0]
    if not loadings.size:
        return 0.0
    # the seed is fixed, so that a question has one answer
    normal = np.random.default_rng(0).standard_normal((_NORMAL_DRAWS, len(loadings)))
    return float(np.quantile(np.abs(normal @ loadings).max(axis=1), prob))
