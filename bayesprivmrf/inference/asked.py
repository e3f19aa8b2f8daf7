"""Arguments of `interval` and `marginal`, checked and labeled in the same way for every result over variables.

A list in `given` asks for a whole conditional table. It becomes one question for each joint state of the listed
variables, so that its answers are those of the separate questions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import one_of, probability, require
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.criticism.assumptions import Whose, query_marks, variable_marks
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Mark, joint_index
from bayesprivmrf.inference.limits import Ends
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Condition, Domain, Given, Variable, conditions, require_fit
from bayesprivmrf.model.specification import NotTogetherError
from bayesprivmrf.model.tables import cells_within, parent
from bayesprivmrf.queries import BoundQuery, Query

if TYPE_CHECKING:
    import pandas as pd

type GivenOrEach = Given | list[Variable]
"""Conditions, or a list of variables whose states are taken in turn."""

# Most conditions that a list in `given` may ask for. Each is a question of its own, of some milliseconds, so that the
# longest answer takes some minutes.
_MOST_CONDITIONS = 10_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """One question to a result: joint states of some variables, or the answers to a query.

    Parameters
    ----------
    model
        The model of the result.
    prob
        Probability of each interval.
    of
        Target of the intervals: ``"population"`` or ``"records"``.
    bound
        The query on the model; None where variables were asked for.
    variables
        Positions of the variables; empty for a query.
    given
        States of other variables, by position.
    """

    model: ModelSpecification
    prob: float
    of: Whose
    bound: BoundQuery | None
    variables: tuple[int, ...] = ()
    given: Condition

    @cached_property
    def index(self) -> pd.Index:
        """Labels of the rows: joint states in C order, or the answers of the query."""
        import pandas as pd

        if self.bound is not None:
            return pd.Index(self.bound.labels, name="answer")
        domain = self.model.domain
        return joint_index(domain, [domain.variables[v] for v in self.variables])

    @property
    def given_states(self) -> str:
        """Text of the given states, such as ``"age=<30, ill=no or unknown"``."""
        domain = self.model.domain
        return ", ".join(
            f"{domain.variables[v]}={' or '.join(str(domain.states[v][code]) for code in codes)}"
            for v, codes in self.given.items()
        )

    def on(self, model: ModelSpecification) -> Asked:
        """Return the question to another model over the same variables, such as that of the measured tables."""
        if model is self.model:
            return self
        bound = self.bound
        if bound is not None:
            bound = replace(bound, model=model, asked_of=bound.asked_of or bound.model)
        return replace(self, model=model, bound=bound)

    @property
    def ends(self) -> Ends:
        """Smallest and largest answer of one record."""
        if self.bound is None:
            return (0.0, 1.0)
        return self.bound.ends

    @property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """Variables whose joint distributions the answer needs, those given included, by position."""
        if self.bound is not None:
            return self.bound.positions
        return ((*self.variables, *self.given),)

    @cached_property
    def apart(self) -> tuple[tuple[int, ...], ...]:
        """The scopes among `scopes` that no clique holds; their joint distributions follow from the model."""
        held = self.model.scopes
        return tuple(dict.fromkeys(scope for scope in self.scopes if parent(held, scope) is None))


@dataclass(frozen=True, kw_only=True, eq=False)
class Questions:
    """Questions that one call asks: a single one, or one for each joint state of the variables taken in turn.

    Parameters
    ----------
    each
        The questions, in C order of those joint states.
    in_turn
        Positions of the variables whose states are taken in turn; empty for a single question.
    """

    each: tuple[Asked, ...]
    in_turn: tuple[int, ...] = ()

    @property
    def index(self) -> pd.Index:
        """Labels of all rows: the states taken in turn, followed by those of the variables asked for."""
        first = self.each[0]
        if not self.in_turn:
            return first.index
        domain = first.model.domain
        return joint_index(domain, [domain.variables[v] for v in (*self.in_turn, *first.variables)])


def asked_of(
    model: ModelSpecification,
    variables: Variable | Sequence[Variable] | Query,
    prob: float,
    of: Whose = "population",
    given: GivenOrEach | None = None,
) -> Questions:
    """Check the arguments of `interval`, and return its questions.

    Parameters
    ----------
    model
        The model of the result.
    variables, prob, of, given
        As `interval` has them.

    Raises
    ------
    ArgumentError
        An argument is out of range, or `given` comes with a query.
    ModelError
        A variable or a state is not declared, or a variable is repeated.
    """
    one_of("of", of, ("population", "records"))
    prob = coverage(prob)
    if isinstance(variables, Query):
        remedy = (
            "ask for the variables with `given`, or give a posterior's `quantity` a function that divides the two "
            "within a draw"
        )
        require(not given, "given", "be for variables", "a query", remedy)
        bound = bound_query(variables, model)
        return Questions(each=(Asked(model=model, prob=prob, of=of, bound=bound, given={}),))
    _, query = model.positions_of(variables)
    in_turn, conditions_asked = conditions_in_turn(model.domain, given, query)
    each = tuple(
        Asked(model=model, prob=prob, of=of, bound=None, variables=tuple(query), given=condition)
        for condition in conditions_asked
    )
    return Questions(each=each, in_turn=in_turn)


def conditions_in_turn(
    domain: Domain, given: GivenOrEach | None, asked: Sequence[int]
) -> tuple[tuple[int, ...], list[Condition]]:
    """Return the variables whose states are taken in turn, by position, and the conditions, one for each answer.

    Parameters
    ----------
    domain
        Variables and states.
    given
        A mapping, which is one condition; or a list of variables, whose joint states in C order are the conditions.
    asked
        Positions of the variables that were asked for, which cannot be given as well.

    Raises
    ------
    ArgumentError
        `given` is neither a mapping nor a list, or the listed variables have more than 10,000 joint states.
    ModelError
        A variable or a state is not declared; a variable is repeated, or was asked for; or a list is empty.

    Examples
    --------
    >>> domain = Domain.from_states({"a": ["x", "y"], "b": ["s", "t"]})
    >>> conditions_in_turn(domain, ["b"], [0])
    ((1,), [{1: (0,)}, {1: (1,)}])
    >>> conditions_in_turn(domain, {"b": {"s", "t"}}, [0])
    ((), [{1: (0, 1)}])
    """
    if given is None or isinstance(given, Mapping):
        return (), [conditions(domain, given, asked)]
    if not isinstance(given, list):
        raise ArgumentError(
            "`given` must map variables to states, or list variables whose states are taken in turn, got a "
            f"{type(given).__name__}; write {{variable: state}} or [variable]."
        )
    require_fit(given, "given", "name at least one variable", "an empty list")
    in_turn = tuple(domain.index(variable) for variable in given)
    require_fit(len(set(in_turn)) == len(in_turn), "given", "name each variable once", given)
    for position in in_turn:
        must = "name other variables than those asked for"
        seen = f"{domain.variables[position]!r} in both"
        require_fit(position not in asked, "given", must, seen)
    states = [range(domain.cardinalities[v]) for v in in_turn]
    count = math.prod(map(len, states))
    must = f"have at most {_MOST_CONDITIONS:,} joint states"
    remedy = "list fewer variables, and condition on states of the others in separate calls"
    require(count <= _MOST_CONDITIONS, "given", must, f"{count:,}", remedy)
    joint = itertools.product(*states)
    return in_turn, [
        {v: (code,) for v, code in zip(in_turn, codes, strict=True)} for codes in joint
    ]


def coverage(prob: float) -> float:
    """Return the probability of an interval as a number in (0, 1)."""
    return probability("prob", prob, zero=False, remedy="0.9 is for 90 %")


def bound_query(query: Query, model: ModelSpecification) -> BoundQuery:
    """Return the query on the model, whether a clique holds each of its scopes or not.

    A scope that no clique holds is bound as in a model without declared cliques, which takes any.
    """
    try:
        return query.bind(model)
    except NotTogetherError:
        free = ModelSpecification(
            domain=model.domain, cliques=model.cliques, cliques_declared=False
        )
        return query.bind(free)


def weights_on_tables(bound: BoundQuery, scopes: Sequence[Sequence[int]]) -> Any:
    """Return a query as a sparse matrix on tables of some scopes, shape (rows, cells of all the tables).

    Parameters
    ----------
    bound
        The query.
    scopes
        Variables of each table, by position. The first that holds a scope of the query is read.
    """
    from scipy.sparse import csr_array

    cards = bound.model.cardinalities
    sizes = [math.prod(cards[v] for v in scope) for scope in scopes]
    begins = list(itertools.accumulate(sizes, initial=0))
    weights: Any = 0
    for block, scope in zip(bound.blocks, bound.positions, strict=True):
        home = parent(scopes, scope)
        assert home is not None  # the caller adds the scopes that no clique holds
        rows = cells_within(cards, scope, scopes[home])
        columns = begins[home] + np.arange(sizes[home])
        placed = csr_array(
            (np.ones(rows.size), (rows, columns)), shape=(block.shape[1], begins[-1])
        )
        weights = weights + block @ placed
    return weights.tocsr()


def asked_marks(evidence: Evidence, asked: Asked) -> list[Mark]:
    """Return marks for the rows of the answer to a question, by the assumptions that they rest on."""
    if asked.bound is not None:
        return query_marks(evidence, asked.bound, of=asked.of)
    return variable_marks(evidence, [*asked.variables, *asked.given], of=asked.of)
