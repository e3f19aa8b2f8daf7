r"""Answers from posterior draws: credible intervals of joint states, queries and functions; a summary; the edges.

**Estimates.** The estimate of an interval is the mean over the draws whose quantiles are its limits. It is therefore
the number that `Posterior.marginal` gives for the same variables. For counts of the records it is the mean of the
latent counts, each rounded to whole records. A function of a chain is taken at the mean of what it depends on
(`chain_limits`).

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
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.cards import Card, card_html, escaped
from bayesprivmrf.checks import at_least, require, whole_number
from bayesprivmrf.errors import (
    ArgumentError,
    ModelError,
    PriorWarning,
    SamplingWarning,
    warn_caller,
)
from bayesprivmrf.inference.asked import Asked, asked_marks, coverage
from bayesprivmrf.inference.criticism.assumptions import variable_marks
from bayesprivmrf.inference.interval_frame import Mark, RowStatus, interval_frame, with_level
from bayesprivmrf.inference.limits import ChainFunction, Ends, Limits, limits_of_draws
from bayesprivmrf.inference.posterior.noisy_tables import has_zeros
from bayesprivmrf.inference.posterior.results.diagnostics import is_mixed, mixing_of
from bayesprivmrf.inference.posterior.results.draws import THINNED, Draws
from bayesprivmrf.inference.posterior.results.empty_cells import (
    EndsExcluded,
    answers_exclude,
    ends_excluded,
)
from bayesprivmrf.inference.solution import Solution
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Domain, Given, Label, Variable, coded_states, conditions
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray, free_names, parent

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

# Largest sensitivity s of a quantity that the prior does not decide; the module's docstring defines it
LARGEST_SENSITIVITY = 1.0
# Largest number of rows that a quantity prints, as pandas does by default
_SHOWN_ROWS = 60
# range of a quantity without bounds
_NO_ENDS: Ends = (-np.inf, np.inf)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
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
        return next(
            iter(self.frame.loc[(self.frame["status"] == self.status).to_numpy(), "note"]), ""
        )

    def __round__(self, digits: int = 0) -> Quantity:
        """Return the quantity with rounded estimates and limits, and with its draws as they are."""
        digits = whole_number("digits", digits, 0)
        numbers: Any = {
            name: getattr(self, name).round(digits) for name in ("estimate", "lower", "upper")
        }
        return replace(self, frame=self.frame.round(digits), **numbers)

    def round(self, digits: int = 0) -> Quantity:
        """Return the quantity rounded to a number of decimals, as `round` does; its draws stay as they are."""
        return self.__round__(digits)

    def __repr__(self) -> str:
        interval = f"{self.prob:.0%} interval"
        if self.estimate.ndim:
            return f"Quantity(shape {self.estimate.shape}, {interval})\n{self.frame.to_string(max_rows=_SHOWN_ROWS)}"
        numbers = f"{float(self.estimate):.4g}, {interval} {float(self.lower):.4g} to {float(self.upper):.4g}"
        return f"Quantity({numbers}; {self.status}: {self.note})"

    def _repr_html_(self) -> str:
        interval = f"{100 * self.prob:.4g} % interval"
        if self.estimate.ndim:
            rows: Any = self.frame
            return card_html("Quantity", "", [("limits", interval)], folded=rows._repr_html_())
        facts = [
            ("estimate", f"{float(self.estimate):.4g}"),
            (interval, f"{float(self.lower):.4g} to {float(self.upper):.4g}"),
            ("status", f"{self.status}: {self.note}"),
        ]
        return card_html("Quantity", "", facts)


def draws_of(draws: Draws, function: Callable[[Solution], Any], most: int) -> xr.DataArray:
    """Return the values of a function at each thinned draw, dims chain and draw first."""
    import xarray as xr

    require(
        callable(function), "function", "be callable", type(function).__name__, "see `quantity`"
    )
    most = whole_number("draws", most, 1)
    values = []
    arrays = []
    for chain, draw in draws.pairs(most):
        values.append(function(draws.solution(chain, draw)))
        try:
            arrays.append(np.asarray(values[-1], dtype=float))
        except (TypeError, ValueError) as error:
            kind = type(values[-1]).__name__
            raise ArgumentError(
                f"`function` must give a number or an array of numbers, got {kind}."
            ) from error
        first = arrays[0].shape
        last = arrays[-1].shape
        require(first == last, "function", "give one shape in every draw", f"{first} and {last}")
    undefined = sum(not np.isfinite(array).all() for array in arrays)
    seen = f"NaN or infinity in {undefined} of {len(values)}, as 0 / 0 or 1 / 0 does"
    remedy = "let it return a value for this case"
    require(not undefined, "function", "give finite numbers in every draw", seen, remedy)
    kept = draws.thinned(most)
    array = np.array(arrays).reshape(draws.shape[0], len(kept), *arrays[0].shape)
    own: list[Hashable] = [f"value_{axis}" for axis in range(array.ndim - 2)]
    coords: dict[Hashable, Any] = {"chain": np.arange(draws.shape[0]), "draw": kept}
    template = next((value for value in reversed(values) if isinstance(value, xr.DataArray)), None)
    if template is not None:
        # a variable may be called like the axes of draws
        renamed = dict(
            zip(template.dims, free_names(template.dims, {"chain", "draw"}), strict=True)
        )
        template = template.rename(renamed)
        own = list(renamed.values())
        coords |= {name: template.coords[name] for name in template.coords if name not in coords}
    return xr.DataArray(array, dims=("chain", "draw", *own), coords=coords)


def of_margin(
    domain: Domain, variables: Sequence[Variable], function: Callable[[Solution], Any]
) -> Callable[[Solution], Any]:
    """Return a function of a whole draw that passes on only the margin of some variables.

    What the function answers can then depend on nothing else, so its rows may be marked as those of the margin.
    """
    margin = ModelSpecification(
        domain=Domain.from_states({name: domain.states_of(name) for name in variables}),
        cliques=(tuple(variables),),
    )

    def of_draw(draw: Solution) -> Any:
        with np.errstate(divide="ignore"):  # impossible states have the potential minus infinity
            potentials = np.log(draw.marginal(variables).to_numpy().ravel())
        own = replace(draw, specification=margin, potentials=margin.tables(potentials))
        try:
            return function(own)
        except ModelError as error:
            # the draw lacks the other variables, so that its message calls them undeclared
            used = [name for name in domain.variables if name not in margin.domain]
            lacking = [name for name in used if f"variable {name!r} is not declared" in str(error)]
            if not lacking:
                raise
        must = f"name all variables on which the function depends, got {', '.join(map(repr, variables))}"
        raise ModelError(f"`variables` must {must}; add {lacking[0]!r}.")

    return of_draw


def interval_of_draws(
    draws: FloatArray, prob: float, ends: Ends = _NO_ENDS, *, is_whole: bool = False
) -> Limits:
    """Return the mean over the first two axes, and the limits of `limits_of_draws`."""
    lower, upper = limits_of_draws(draws, prob, ends, is_whole=is_whole)
    return Limits(draws.mean(axis=(0, 1)), lower, upper)


def limits_of(draws: Draws, asked: Asked) -> Limits:
    """Return limits of joint states or of the answers to a query."""
    evidence = draws.evidence
    bound = asked.bound
    is_of_records = asked.of == "records"
    if bound is None:
        drawn = draws.joint(asked.variables, asked.given, of_records=is_of_records)
        if np.isnan(drawn).any():
            return _limits_of_shares(draws, asked, drawn)
    elif asked.apart:
        drawn = _answers_apart(draws, asked)
    elif is_of_records:
        drawn = np.rint(bound.answers(draws.finished.counts))
        if (bound.matrix.data >= 0).all():
            drawn = np.maximum(drawn, 0.0)  # relaxed counts may lie slightly below 0
    else:
        drawn = bound.answers(draws.finished.marginals)
    # counts of single steps may not have mixed, although the sums over the steps have
    is_shared = is_of_records and draws.model.shares_transitions
    if is_shared and not is_mixed(mixing_of([drawn]), len(drawn)):
        message = (
            "these counts have not mixed; no probability depends on them, since convergence is judged on sums over "
            "the steps. Raise `draws`, `tune` and `time_limit`, or measure the tables of these counts."
        )
        warn_caller(message, SamplingWarning)
    (least, most) = asked.ends
    is_whole = is_of_records and not asked.given
    if is_whole and evidence.total_standard_error > 0:  # with a private N no limit but 0 is known
        least = np.where(np.equal(least, 0), 0.0, -np.inf)
        most = np.inf
    elif is_whole:
        least, most = (np.multiply(end, evidence.total) for end in (least, most))
    limits = interval_of_draws(drawn, asked.prob, (least, most), is_whole=is_whole)
    if not is_of_records:
        limits = _moved_to_ends(draws, asked, limits)
    ending = draws.ending(drawn)
    marks = (prior_mark(draws, drawn), *ending.marks, *asked_marks(evidence, asked))
    return limits._replace(marks=marks, status=ending.status)


def _moved_to_ends(draws: Draws, asked: Asked, limits: Limits) -> Limits:
    """Return limits of probabilities of the population, moved to the ends that no measurement excludes."""
    if asked.bound is None:
        exclusion = ends_excluded(draws, asked.variables, asked.given, asked.prob)
    else:
        exclusion = answers_exclude(draws, asked.bound, asked.prob)
    if exclusion is None:
        return limits
    return exclusion.moved(limits)


def _limits_of_shares(draws: Draws, asked: Asked, drawn: FloatArray) -> Limits:
    """Return limits of shares of the records given states that no record has in some draws.

    A share of no records does not exist, so that the limits are those given that some record has the states. If no
    draw has such a record, the estimate is NaN and the interval holds every share.

    Parameters
    ----------
    draws, asked
        The draws and the question.
    drawn
        Shares, shape (chain, draw, ...), NaN in draws without such a record.
    """
    shares = drawn.reshape(*drawn.shape[:2], -1)
    cells = shares.shape[-1]
    has_records = ~np.isnan(shares).any(axis=-1)
    marks = asked_marks(draws.evidence, asked)
    if not has_records.any():
        nobody = Mark(RowStatus.NOT_TRUSTED, f"no record has {asked.given_states}")
        unknown = np.full(cells, np.nan)
        return Limits(unknown, np.zeros(cells), np.ones(cells), (nobody, *marks), draws.status)
    limits = interval_of_draws(shares[has_records][np.newaxis], asked.prob, asked.ends)
    absent = 1 - has_records.mean()
    # a fact about fewer draws than an interval may miss needs no warning
    if absent > 1 - asked.prob:
        status = RowStatus.DOUBTFUL
    else:
        status = RowStatus.OK
    few = Mark(status, f"in {100 * absent:.2g} % of draws no record has {asked.given_states}")
    # the mean stands where a draw has no share, because it says nothing about the prior's influence
    filled = np.where(has_records[..., np.newaxis], shares, limits.estimates)
    ending = draws.ending(filled)
    every = (few, prior_mark(draws, filled), *ending.marks, *marks)
    return limits._replace(marks=every, status=ending.status)


def _answers_apart(draws: Draws, asked: Asked) -> FloatArray:
    """Return draws of the answers per record to a query with scopes that no clique holds, shape (chain, draw, rows).

    Raises
    ------
    ModelError
        Answers on the records were asked for; the latent counts are those of the cliques.
    """
    bound = asked.bound
    assert bound is not None  # a question about variables has its own path
    found: Any = 0.0
    for block, scope in zip(bound.blocks, bound.positions, strict=True):
        # scopes that a clique holds are taken at the same thinned draws
        joint = draws.joint(scope, of_records=asked.of == "records")
        if parent(draws.model.scopes, scope) is not None:
            joint = joint[:, draws.thinned(THINNED)]
        cells = joint.reshape(*joint.shape[:2], -1)
        found = found + (block @ cells.reshape(-1, cells.shape[-1]).T).T.reshape(
            *cells.shape[:2], -1
        )
    return found


def probability_of(
    draws: Draws, states: Mapping[Variable, Label], prob: float, given: Given | None
) -> Quantity:
    """Return the probability that some variables have given states; see `Posterior.probability`."""
    import xarray as xr

    model = draws.model
    event = coded_states(model.domain, "states", states)
    condition = conditions(model.domain, given, [*event])
    require(event, "states", "name at least one variable", "none", error=ModelError)
    if parent(model.scopes, [*event, *condition]) is None:
        drawn = draws_of(draws, lambda draw: draw.probability(states, given=given), THINNED)
    else:
        cell = draws.joint([*event], condition)[(..., *event.values())]
        drawn = xr.DataArray(cell, dims=("chain", "draw"))
    marks = variable_marks(draws.evidence, [*event, *condition])
    exclusion = ends_excluded(draws, tuple(event), condition, prob)
    if exclusion is not None:
        own = tuple(event.values())
        exclusion = EndsExcluded(exclusion.zero[own], exclusion.one[own])
    return quantity_of(draws, drawn, prob, marks, (0.0, 1.0), exclusion)


def quantity_of(
    draws: Draws,
    drawn: xr.DataArray,
    prob: float,
    marks: Sequence[Mark],
    ends: Ends = _NO_ENDS,
    exclusion: EndsExcluded | None = None,
) -> Quantity:
    """Return draws of numbers (dims chain and draw first) with intervals.

    `ends` are the smallest and largest number, and `exclusion` the degrees to which a probability excludes them.
    """
    import pandas as pd

    from bayesprivmrf.inference.posterior.results.numbers import that_rounds

    # labels of the entries of one draw, in C order
    names = list(drawn.dims[2:])
    if names:
        index = pd.Index(drawn.get_index(names[0]), name=names[0])
    else:
        index = pd.Index(["value"])
    if len(names) > 1:
        index = pd.MultiIndex.from_product([drawn.get_index(name) for name in names], names=names)
    limits = interval_of_draws(drawn.values, prob, ends)
    if exclusion is not None:
        limits = exclusion.moved(limits)
    ending = draws.ending(drawn.values)
    frame = interval_frame(
        limits.estimates,
        limits.lower,
        limits.upper,
        index,
        status=ending.status,
        marks=[prior_mark(draws, drawn.values), *ending.marks, *marks],
        is_simulated=draws.evidence.is_simulated,
    )
    frame = with_level(frame, prob)
    middle = that_rounds(drawn.mean(("chain", "draw")))
    lower, upper = (
        middle.copy(data=frame[name].to_numpy().reshape(middle.shape))
        for name in ("lower", "upper")
    )
    return Quantity(draws=drawn, estimate=middle, lower=lower, upper=upper, prob=prob, frame=frame)


def chain_limits(draws: Draws, asked: ChainFunction, prob: float) -> Limits:
    """Return a function of a Markov chain at its posterior mean, with limits from the quantiles of its draws.

    The mean is over the draws of the part, such as a step's matrix. It is thus the estimate of `Posterior.interval`
    for the states after a step given those before it. Stationary distributions and times are
    those of that mean: they fit the matrix that is printed, and a time may have an infinite mean over the draws.
    """
    parts = asked.part(draws.finished.marginals)
    drawn = asked.function(parts)
    center = parts.mean(axis=(0, 1))
    lower, upper = limits_of_draws(drawn, prob, (0.0, 1.0) if asked.is_share else _NO_ENDS)
    ending = draws.ending(drawn)
    marks = (prior_mark(draws, drawn), *ending.marks)
    return Limits(asked.function(center), lower, upper, marks, ending.status)


def prior_mark(draws: Draws, drawn: FloatArray) -> Mark:
    """Return the mark of the quantities that the prior decides."""
    is_decided = prior_sensitivity(drawn, draws.log_prior(drawn.shape[1])) > LARGEST_SENSITIVITY
    return Mark(RowStatus.PRIOR, "the prior decides", np.ravel(is_decided))


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
    parts = np.array([part.reshape(size) for part in log_prior.values()]).reshape(
        len(log_prior), size
    )
    values = values - values.mean(axis=0)
    parts = parts - parts.mean(axis=1, keepdims=True)
    spread = values.std(axis=0)
    moves = np.abs(parts @ values) / size / np.where(spread > 0, spread, np.inf)
    # three standard errors of independent draws, which one in a thousand exceeds
    error = 3.0 * parts.std(axis=1) / math.sqrt(size)
    largest = np.maximum(moves - error[:, np.newaxis], 0.0).max(axis=0, initial=0.0)
    return largest.reshape(drawn.shape[2:])


class PosteriorSummary(Card, dict[str, Any]):
    """Summary of a posterior, whose values are plain numbers and text; notebooks display it as a card."""

    def _facts(self) -> list[tuple[str, str]]:
        return [(name.replace("_", " "), _shown(value)) for name, value in self.items()]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        estimate, lower, upper = map(_shown, value.values())
        return f"{estimate} ({lower} to {upper})"
    if isinstance(value, list):
        return "; ".join(value) or "none"
    if isinstance(value, float):
        if abs(value) >= 1000:
            return f"{value:,.0f}"
        return f"{value:.4g}"
    return str(value)


def summary_of(
    draws: Draws, parameters: xr.Dataset, stats: Mapping[str, Any], formulation: str, prob: float
) -> PosteriorSummary:
    """Return the summary that `Posterior.summary` describes.

    Parameters
    ----------
    draws, stats, formulation
        The draws, the numbers of the fit, and the name of the formulation.
    parameters
        Group `posterior` of the tree: tables, and scalar parameters of the prior.
    """
    # mean and interval of every scalar parameter: N, and learned parameters of the prior
    found: dict[str, dict[str, float]] = {}
    for name, array in parameters.data_vars.items():
        if "[" in str(name):  # a table
            continue
        numbers = interval_of_draws(array.values, prob)
        for cell in np.ndindex(array.shape[2:]):
            of = "".join(
                f"_of_{d}_{array[d].values[c]}" for d, c in zip(array.dims[2:], cell, strict=True)
            )
            own = [float(number[cell]) for number in numbers[:3]]
            found[f"{name}{of}"] = dict(zip(("estimate", "lower", "upper"), own, strict=True))
    shown = (
        "concentration",
        "prior_scale",
        "smoothing",
        "r_hat",
        "ess_bulk",
        "ess_tail",
        "seconds",
    )
    is_simulated = draws.evidence.is_simulated
    (chains, number) = draws.shape
    return PosteriorSummary(
        {
            **({"simulated": "the noise was seeded and protects nobody"} if is_simulated else {}),
            "status": draws.status.value,
            "problems": list(stats.get("problems", ())),
            "prob": prob,
            "records": found.pop("total", None) or float(draws.finished.total.mean()),
            "formulation": formulation,
            **found,
            "chains": chains,
            "draws": number,
            **{name: stats[name] for name in shown if name in stats},
        }
    )


def edge_presence(draws: Draws, threshold: float, prob: float) -> pd.DataFrame:
    """Return the edges of the model, ordered by the posterior probability that they exceed a threshold."""
    import pandas as pd

    threshold = at_least("threshold", threshold, 0)
    prob = coverage(prob)
    model = draws.model
    effects = Effects.of(model.cardinalities, model.scopes)
    pairs = [subset for subset in effects.subsets if len(subset) == 2]
    # largest absolute entry of the tables of effects on both variables; one chain at a time, which limits the memory
    strength = np.zeros((*draws.shape, len(pairs)))
    for own, effect in zip(strength, np.nan_to_num(draws.finished.effects), strict=True):
        for subset, table in zip(effects.subsets, effects.tables(effect), strict=True):
            largest = np.abs(table).max(axis=tuple(range(1, table.ndim)))
            for place in [k for k, pair in enumerate(pairs) if set(pair) <= set(subset)]:
                own[:, place] = np.maximum(own[:, place], largest)
    estimate, lower, upper = interval_of_draws(strength, prob)[:3]
    names = [tuple(model.domain.variables[v] for v in pair) for pair in pairs]
    frame = pd.DataFrame(
        {
            "estimate": estimate,
            "lower": lower,
            "upper": upper,
            "probability": (strength > threshold).mean(axis=(0, 1)),
        },
        index=pd.MultiIndex.from_tuples(names, names=["first", "second"]) if names else None,
    )
    is_undefined = np.array([has_zeros(draws.evidence, pair) for pair in pairs], bool)
    frame.loc[is_undefined] = np.nan
    # a Dirichlet row leaves a nearly empty cell free to be much smaller, which makes the effects of its edge large
    log_prior = draws.log_prior(draws.shape[1])
    has_rows = any(name.startswith("rows[") for name in log_prior)
    is_decided = ~is_undefined & (prior_sensitivity(strength, log_prior) > LARGEST_SENSITIVITY)
    if has_rows and is_decided.any():
        message = (
            f"the prior decides the strength of {is_decided.sum()} of {len(pairs)} edges, whose tables have nearly "
            "empty cells; fit LatentCounts(formulation='log-linear'), which shrinks effects that have no support."
        )
        warn_caller(message, PriorWarning)
    ordered = frame.sort_values("probability", ascending=False, kind="stable")
    return escaped(ordered, model.domain.variables)
