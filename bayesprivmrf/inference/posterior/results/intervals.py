"""Intervals of joint states, and of the answers to queries, read off a posterior's draws."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayesprivmrf.errors import ModelError, SamplingWarning
from bayesprivmrf.inference.asked_queries import answer_index, bound_for_interval
from bayesprivmrf.inference.criticism.assumptions import query_marks, variable_marks
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import (
    Mark,
    RowStatus,
    interval_frame,
    joint_index,
)
from bayesprivmrf.inference.limits import Ends
from bayesprivmrf.inference.posterior.results.diagnostics import is_mixed, mixing_of
from bayesprivmrf.inference.posterior.results.draws import Draws
from bayesprivmrf.inference.posterior.results.quantities import Quantity, interval_of_draws
from bayesprivmrf.inference.posterior.results.sensitivity import is_decided_by_prior
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.model.conditions import conditions
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.queries import Query

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

type Whose = Literal["population", "records"]

THINNED = 1000
"""Draws, over all chains, at which a question that takes inference in each draw is answered."""
_SLOW_COUNTS = (
    "these counts have not mixed, which no probability rests on: the sums over the steps are judged; raise `draws`, "
    "`tune` and `time_limit`, or measure the tables that they are of."
)


def refuse_sums_alone(draws: Draws, of: Whose, formulation: str) -> None:
    """Raise where records are asked for of a posterior that has sums of tables, but no table's own counts."""
    if of == "records" and draws.model.is_restricted and formulation == "log-linear":
        raise ModelError(
            "`of='records'` needs each table's own counts, and with tied potentials this posterior is of sums of "
            "tables; ask of='population', or fit LatentCounts(formulation='exact')."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PosteriorIntervals:
    """Credible intervals of a posterior.

    Parameters
    ----------
    evidence
        The measurements.
    draws
        Draws of the posterior.
    status
        Status of the sampling.
    prob
        Posterior probability of each interval.
    of
        Target of the intervals: ``"population"`` or ``"records"``.
    """

    evidence: Evidence
    draws: Draws
    status: Status
    prob: float
    of: Whose

    def of_variables(
        self, variables: Variable | Sequence[Variable], given: Mapping[Variable, Label] | None
    ) -> pd.DataFrame:
        """Return intervals of each joint state: see `Posterior.interval`."""
        draws, model = self.draws, self.draws.model
        names, query = model.positions_of(variables)
        condition = conditions(model.domain, given, query)
        is_share = self.of == "population" or bool(condition)
        if self.of == "population":
            drawn = draws.joint(query, THINNED, condition)
        else:
            drawn = draws.records(query, condition)
            _warn_of_slow_counts(draws, drawn)
        marks, index = variable_marks(self.evidence, [*query, *condition]), joint_index(model.domain, names)
        return self._framed(drawn, index, marks, (0.0, 1.0), is_whole=not is_share)

    def of_query(self, query: Query) -> pd.DataFrame:
        """Return intervals of a query's answers: of the records, or per record of the population."""
        draws = self.draws
        bound = bound_for_interval(query, draws.model, ", and `quantity` any function of a draw")
        if self.of == "population":
            drawn = bound.answers(draws.finished.marginals)
        else:
            drawn = np.rint(bound.answers(draws.finished.counts))
            if (bound.matrix.data >= 0).all():
                drawn = np.maximum(drawn, 0.0)  # relaxed counts may lie slightly below 0
            _warn_of_slow_counts(draws, drawn)
        marks = query_marks(self.evidence, bound)
        return self._framed(drawn, answer_index(bound), marks, bound.ends, is_whole=self.of == "records")

    def of_draws(
        self, drawn: xr.DataArray, marks: Sequence[Mark], ends: Ends = (-np.inf, np.inf)
    ) -> Quantity:
        """Return draws of numbers, dims chain and draw first, with their intervals; `ends` are natural limits."""
        middle = drawn.mean(("chain", "draw"))
        frame = self._framed(drawn.values, _index_of(drawn), marks, ends, is_whole=False)
        lower, upper = (frame[name].to_numpy().reshape(middle.shape) for name in ("lower", "upper"))
        return Quantity(
            draws=drawn,
            estimate=middle,
            lower=middle.copy(data=lower),
            upper=middle.copy(data=upper),
            prob=self.prob,
            frame=frame,
        )

    def _framed(
        self, drawn: FloatArray, index: pd.Index, marks: Sequence[Mark], ends: Ends, *, is_whole: bool
    ) -> pd.DataFrame:
        """Return the interval frame of drawn numbers; `ends` are the limits of one record's answer."""
        draws, (least, most) = self.draws, ends
        if is_whole and self.evidence.total_standard_error > 0:  # no end but 0 is known
            least, most = np.where(np.equal(least, 0), 0.0, -np.inf), np.inf
        elif is_whole:
            least, most = (np.multiply(end, self.evidence.total) for end in ends)
        return interval_frame(
            *interval_of_draws(drawn, self.prob, (least, most), is_whole=is_whole),
            index,
            status=self.status,
            marks=[prior_mark(draws, drawn), *marks],
            is_simulated=draws.is_simulated,
        )


def _index_of(drawn: xr.DataArray) -> pd.Index:
    """Return the labels of the entries of one draw, in C order; those of a single number are "value"."""
    import pandas as pd

    names = list(drawn.dims[2:])
    if len(names) > 1:
        return pd.MultiIndex.from_product([drawn.get_index(name) for name in names], names=names)
    return pd.Index(drawn.get_index(names[0]), name=names[0]) if names else pd.Index(["value"])


def prior_mark(draws: Draws, drawn: FloatArray) -> Mark:
    """Return the mark of the numbers of a draw that the prior decides."""
    is_decided = is_decided_by_prior(drawn, draws.log_prior(drawn.shape[1]))
    return Mark(RowStatus.PRIOR, "the prior decides", np.ravel(is_decided))


def _warn_of_slow_counts(draws: Draws, drawn: FloatArray) -> None:
    if draws.model.shares_transitions and not is_mixed(mixing_of([drawn]), len(drawn)):
        warnings.warn(_SLOW_COUNTS, SamplingWarning, stacklevel=5)
