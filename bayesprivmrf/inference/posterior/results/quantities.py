r"""Credible intervals from posterior draws: joint states, answers to queries, and functions of the model.

**Rows that the prior decides.** Raise the prior of one part of the model, the rows of a clique or one effect, to the
power λ. At λ = 1, to first order in log λ, the posterior mean of a quantity q moves by cov(q, log prior). In
posterior standard deviations of q this is

.. math:: s = \frac{|\operatorname{cov}(q, \log p)|}{\operatorname{sd}(q)},

which is computed from the draws without another fit. The density of a Dirichlet row is that of its log ratios,
:math:`\prod_i r_i^{α_i}`, whose power λ has λα prior counts, so the prior of a uniform row can be made stronger too.
The prior decides a quantity if s is above 1 for some part. Doubling the prior counts of that part, or the precision
of the effect, would then move the quantity by about 0.7 standard deviations or more. ``arviz.psense(posterior.tree)``
computes the same sensitivity for finite steps of λ and for all parts at once.

References
----------
Kallioinen, Paananen, Bürkner, Vehtari (2024). Detecting and diagnosing prior and likelihood sensitivity with
power-scaling. Statistics and Computing 34, 57.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import require, whole_number
from bayesprivmrf.errors import ArgumentError, ModelError, SamplingWarning
from bayesprivmrf.inference.asked import Asked, Whose
from bayesprivmrf.inference.criticism.assumptions import variable_marks
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Mark, RowStatus, interval_frame
from bayesprivmrf.inference.limits import Ends, limits_of_draws
from bayesprivmrf.inference.posterior.results.diagnostics import is_mixed, mixing_of
from bayesprivmrf.inference.posterior.results.draws import Draws
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.inference.transitions.bounds import Bounds, ChainFunction
from bayesprivmrf.inference.transitions.solution import Bounds, ChainFunction
from bayesprivmrf.model.domain import Given, Label, Variable, coded_states, conditions
from bayesprivmrf.model.tables import FloatArray, parent

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

# Number of draws, in all chains together, for answers that need inference in each draw
THINNED = 1000
# Largest sensitivity s of a quantity that the prior does not decide; the module's docstring defines it
LARGEST_SENSITIVITY = 1.0
# range of a quantity without bounds
_NO_ENDS: Ends = (-np.inf, np.inf)


@dataclass(frozen=True, eq=False, kw_only=True)
class Quantity:
    """Posterior draws of a function of the model, with its intervals.

    Parameters
    ----------
    draws
        Value of the function in each draw, with the dims chain and draw, then those of the value.
    estimate
        Mean over the draws.
    lower, upper
        Limits of the interval; its tails are equal, except for a probability near 0 or 1
        (`bayesprivmrf.inference.limits`).
    prob
        Posterior probability of the interval.
    frame
        The same numbers with the columns of `Posterior.interval`, one row for each entry in C order, labeled by the
        coordinates of the draws.
    """

    draws: xr.DataArray
    estimate: xr.DataArray
    lower: xr.DataArray
    upper: xr.DataArray
    prob: float
    frame: pd.DataFrame

    @property
    def status(self) -> str:
        """Worst `RowStatus` of the rows of `frame`."""
        return max(self.frame["status"], key=list(RowStatus).index, default=RowStatus.OK.value)

    @property
    def note(self) -> str:
        """Note of the first row that has this status."""
        return next(iter(self.frame.loc[(self.frame["status"] == self.status).to_numpy(), "note"]), "")

    def __repr__(self) -> str:
        if self.estimate.ndim == 0:
            return (
                f"Quantity({float(self.estimate):.4g}, {self.prob:.0%} interval "
                f"{float(self.lower):.4g} to {float(self.upper):.4g}; {self.status}: {self.note})"
            )
        return f"Quantity(shape {self.estimate.shape}, {self.prob:.0%} interval; {self.status}: {self.note})"


def draws_of(draws: Draws, function: Callable[[Solution], Any], most: int) -> xr.DataArray:
    """Return the values of a function at each thinned draw, dims chain and draw first."""
    import xarray as xr

    require(callable(function), "function", "be callable", type(function).__name__, "see `quantity`")
    most = whole_number("draws", most, 1)
    values, template = [], None
    for chain, draw in draws.pairs(most):
        value = function(draws.solution(chain, draw))
        template = value if isinstance(value, xr.DataArray) else template
        values.append(_as_numbers(value))
        shapes = values[0].shape, values[-1].shape
        require(
            shapes[0] == shapes[1], "function", "give one shape in every draw", f"{shapes[0]} and {shapes[1]}"
        )
    kept = draws.thinned(most)
    undefined = sum(not np.isfinite(value).all() for value in values)
    require(
        not undefined,
        "function",
        "give finite numbers in every draw",
        f"NaN or infinity in {undefined} of {len(values)}, as 0 / 0 or 1 / 0 does",
        "let it return a value for this case",
    )
    array = np.array(values).reshape(draws.shape[0], len(kept), *values[0].shape)
    own = [f"value_{axis}" for axis in range(array.ndim - 2)] if template is None else list(template.dims)
    coords: dict[Hashable, Any] = {"chain": np.arange(draws.shape[0]), "draw": kept}
    if template is not None:
        coords |= {name: template.coords[name] for name in template.coords if name not in coords}
    return xr.DataArray(array, dims=("chain", "draw", *own), coords=coords)


def _as_numbers(value: Any) -> FloatArray:
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"`function` must give a number or an array of numbers, got {type(value).__name__}."
        ) from error


def interval_of_draws(
    draws: FloatArray, prob: float, ends: Ends = _NO_ENDS, *, is_whole: bool = False
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean over the first two axes, and the limits of `limits_of_draws`."""
    return draws.mean(axis=(0, 1)), *limits_of_draws(draws, prob, ends, is_whole=is_whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class PosteriorIntervals:
    """Credible intervals from the draws of a posterior.

    Parameters
    ----------
    evidence
        The measurements.
    draws
        Draws of the posterior.
    """

    evidence: Evidence
    draws: Draws

    def of(self, asked: Asked) -> pd.DataFrame:
        """Return intervals of joint states or of the answers to a query; see `Posterior.interval`."""
        draws, bound, is_of_records = self.draws, asked.bound, asked.of == "records"
        if bound is None and is_of_records:
            drawn = draws.records(asked.variables, asked.given)
        elif bound is None:
            drawn = draws.joint(asked.variables, THINNED, asked.given)
        elif is_of_records:
            drawn = np.rint(bound.answers(draws.finished.counts))
            if (bound.matrix.data >= 0).all():
                drawn = np.maximum(drawn, 0.0)  # relaxed counts may lie slightly below 0
        else:
            drawn = bound.answers(draws.finished.marginals)
        if is_of_records:
            _warn_of_slow_counts(draws, drawn)
        is_whole = is_of_records and not asked.given
        return self._framed(drawn, asked.index, asked.prob, asked.marks, asked.ends, is_whole=is_whole)

    def of_event(self, states: Mapping[Variable, Label], prob: float, given: Given | None) -> Quantity:
        """Return the probability that some variables have given states; see `Posterior.probability`."""
        import xarray as xr

        draws, model = self.draws, self.draws.model
        event = coded_states(model.domain, "states", states)
        condition = conditions(model.domain, given, [*event])
        require(event, "states", "name at least one variable", "none", error=ModelError)
        if parent(model.scopes, [*event, *condition]) is None:
            drawn = draws_of(draws, lambda draw: draw.probability(states, given=given), THINNED)
        else:
            cell = draws.joint([*event], THINNED, condition)[(..., *event.values())]
            drawn = xr.DataArray(cell, dims=("chain", "draw"))
        marks = variable_marks(self.evidence, [*event, *condition])
        return self.of_draws(drawn, prob, marks, (0.0, 1.0))

    def of_draws(
        self, drawn: xr.DataArray, prob: float, marks: Sequence[Mark], ends: Ends = _NO_ENDS
    ) -> Quantity:
        """Return draws of numbers (dims chain and draw first) with intervals; `ends` are their natural limits."""
        middle = drawn.mean(("chain", "draw"))
        frame = self._framed(drawn.values, _index_of(drawn), prob, marks, ends, is_whole=False)
        lower, upper = (frame[name].to_numpy().reshape(middle.shape) for name in ("lower", "upper"))
        return Quantity(
            draws=drawn,
            estimate=middle,
            lower=middle.copy(data=lower),
            upper=middle.copy(data=upper),
            prob=prob,
            frame=frame,
        )

    def of_chain(self, asked: ChainFunction, prob: float) -> Bounds:
        """Return a function of a Markov chain, with limits from the quantiles of its draws."""
        draws, flat = self.draws, self.draws.finished.marginals
        parts = asked.part(flat)
        drawn = asked.function(parts)
        shared = draws.model.shares_transitions
        center = parts.mean(axis=(0, 1)) if shared else asked.part(flat.mean(axis=(0, 1)))
        limits = limits_of_draws(drawn, prob, (0.0, 1.0) if asked.is_share else _NO_ENDS)
        return Bounds(asked.function(center), *limits, (prior_mark(draws, drawn),))

    def _framed(
        self,
        drawn: FloatArray,
        index: pd.Index,
        prob: float,
        marks: Sequence[Mark],
        ends: Ends,
        *,
        is_whole: bool,
    ) -> pd.DataFrame:
        """Return the interval frame of drawn numbers; `ends` are the limits of the answer for one record."""
        draws, (least, most) = self.draws, ends
        if is_whole and self.evidence.total_standard_error > 0:  # with a private N no limit but 0 is known
            least, most = np.where(np.equal(least, 0), 0.0, -np.inf), np.inf
        elif is_whole:
            least, most = (np.multiply(end, self.evidence.total) for end in ends)
        return interval_frame(
            *interval_of_draws(drawn, prob, (least, most), is_whole=is_whole),
            index,
            status=draws.status,
            marks=[prior_mark(draws, drawn), *marks],
            is_simulated=draws.is_simulated,
        )


def refuse_sums_alone(draws: Draws, of: Whose, formulation: str) -> None:
    """Raise an error for counts of records if the posterior has only sums of tables, as with tied potentials."""
    if of == "records" and draws.model.is_restricted and formulation == "log-linear":
        raise ModelError(
            "`of='records'` needs the counts of each table, and with tied potentials this posterior has only sums of "
            "tables; ask for of='population', or fit LatentCounts(formulation='exact')."
        )


def _index_of(drawn: xr.DataArray) -> pd.Index:
    """Return the labels of the entries of one draw, in C order; those of a single number are "value"."""
    import pandas as pd

    names = list(drawn.dims[2:])
    if len(names) > 1:
        return pd.MultiIndex.from_product([drawn.get_index(name) for name in names], names=names)
    return pd.Index(drawn.get_index(names[0]), name=names[0]) if names else pd.Index(["value"])


def prior_mark(draws: Draws, drawn: FloatArray) -> Mark:
    """Return the mark of the quantities that the prior decides."""
    is_decided = is_decided_by_prior(drawn, draws.log_prior(drawn.shape[1]))
    return Mark(RowStatus.PRIOR, "the prior decides", np.ravel(is_decided))


def _warn_of_slow_counts(draws: Draws, drawn: FloatArray) -> None:
    """Warn if the counts of single steps have not mixed, although the sums over the steps have."""
    if draws.model.shares_transitions and not is_mixed(mixing_of([drawn]), len(drawn)):
        message = (
            "these counts have not mixed; no probability depends on them, since convergence is judged on sums over "
            "the steps. Raise `draws`, `tune` and `time_limit`, or measure the tables of these counts."
        )
        warnings.warn(message, SamplingWarning, stacklevel=4)


def prior_sensitivity(drawn: FloatArray, log_prior: Mapping[str, FloatArray]) -> FloatArray:
    """Return the largest sensitivity s over the parts of the prior, minus its Monte Carlo error.

    Parameters
    ----------
    drawn
        Draws of the quantities, shape (chain, draw, ...).
    log_prior
        Log density of each part of the prior, nats, shape (chain, draw) each.

    Returns
    -------
    ndarray
        Sensitivities, with the shape of one draw; 0 for a quantity that does not vary.
    """
    size = math.prod(drawn.shape[:2])
    values = drawn.reshape(size, math.prod(drawn.shape[2:]))
    parts = np.array([part.reshape(size) for part in log_prior.values()]).reshape(len(log_prior), size)
    values, parts = values - values.mean(axis=0), parts - parts.mean(axis=1, keepdims=True)
    spread = values.std(axis=0)
    moves = np.abs(parts @ values) / size / np.where(spread > 0, spread, np.inf)
    # three standard errors of independent draws, which one in a thousand exceeds
    error = 3.0 * parts.std(axis=1) / math.sqrt(size)
    largest = np.maximum(moves - error[:, np.newaxis], 0.0).max(axis=0, initial=0.0)
    return largest.reshape(drawn.shape[2:])


def is_decided_by_prior(drawn: FloatArray, log_prior: Mapping[str, FloatArray]) -> np.ndarray:
    """Return the mask of the quantities whose sensitivity is above 1."""
    return prior_sensitivity(drawn, log_prior) > LARGEST_SENSITIVITY
