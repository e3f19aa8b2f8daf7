"""Queries whose answers an interval is asked of: bound to the model, and labelled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.queries import BoundQuery, Query

if TYPE_CHECKING:
    import pandas as pd


def bound_for_interval(query: Query, model: ModelSpecification, beside: str = "") -> BoundQuery:
    """The query on the model; a ModelError names what is asked instead of variables that no clique holds."""
    try:
        return query.bind(model)
    except ModelError as error:
        if "together in no clique" not in str(error):
            raise
        raise ModelError(
            f"{error} Of variables that no clique holds together, `interval` takes the variables{beside}."
        ) from None


def answer_index(bound: BoundQuery) -> pd.Index:
    """Labels of the answers."""
    import pandas as pd

    return pd.Index(bound.labels, name="answer")


def refuse_given(given: Mapping[Variable, Label] | None) -> None:
    """Raise where a query is asked for given some states."""
    if given:
        raise ArgumentError(
            "`given` is for variables, and a query was asked for; ask for the variables with `given`, or give a "
            "posterior's `quantity` a function that divides the two within a draw."
        )
