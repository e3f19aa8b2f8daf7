"""Intervals of joint states, and of the answers to queries, read off a posterior's draws."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from bayesprivmrf.errors import ModelError, SamplingWarning
from bayesprivmrf.inference.asked_queries import answer_index, bound_for_interval, rests_on_of
from bayesprivmrf.inference.marked_rows import mark_rows
from bayesprivmrf.inference.posterior.diagnostics import is_mixed, mixing_of
from bayesprivmrf.inference.posterior.draws import Draws
from bayesprivmrf.inference.posterior.quantities import interval_frame, interval_of_rows
from bayesprivmrf.inference.posterior.sensitivity import is_decided_by_prior
from bayesprivmrf.model.conditions import conditions
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.independences import assumptions, mark_rests_on
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.queries import Query

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["THINNED", "interval_of_query", "interval_of_variables", "refuse_sums_alone"]

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


def interval_of_variables(
    draws: Draws,
    variables: Variable | Sequence[Variable],
    prob: float,
    of: Whose,
    given: Mapping[Variable, Label] | None,
) -> pd.DataFrame:
    """Intervals of each joint state: see `Posterior.interval`."""
    model = draws.model
    names, query = model.positions_of(variables)
    condition = conditions(model.domain, given, query)
    if of == "population":
        drawn = draws.joint(query, THINNED, condition)
    else:
        drawn = draws.records(query, condition)
        _warn_of_slow_counts(draws, drawn)
    is_whole = of == "records" and not condition
    frame = interval_frame(model.domain, names, drawn, prob, is_whole=is_whole)
    return _marked(draws, frame, drawn, assumptions(model, [*query, *condition]))


def interval_of_query(draws: Draws, query: Query, prob: float, of: Whose) -> pd.DataFrame:
    """Intervals of a query's answers, a row for each: of the records, or per record of the population."""
    bound = bound_for_interval(query, draws.model, ", and `quantity` any function of a draw")
    if of == "population":
        drawn = bound.answers(draws.finished.marginals)
    else:
        drawn = np.rint(bound.answers(draws.finished.counts))
        if (bound.matrix.data >= 0).all():
            drawn = np.maximum(drawn, 0.0)  # relaxed counts may lie a little below
        _warn_of_slow_counts(draws, drawn)
    frame = interval_of_rows(answer_index(bound), drawn, prob, is_whole=of == "records")
    return _marked(draws, frame, drawn, rests_on_of(bound))


def _warn_of_slow_counts(draws: Draws, drawn: FloatArray) -> None:
    if draws.model.shares_transitions and not is_mixed(mixing_of([drawn]), len(drawn)):
        warnings.warn(_SLOW_COUNTS, SamplingWarning, stacklevel=4)


def _marked(draws: Draws, frame: pd.DataFrame, drawn: FloatArray, rests_on: tuple[str, ...]) -> pd.DataFrame:
    """The table with what it rests on, and with the rows that the prior decides."""
    is_decided = is_decided_by_prior(drawn, draws.log_prior(drawn.shape[1]))
    return mark_rows(mark_rests_on(frame, rests_on), is_decided, "prior_decides", "prior decides")
