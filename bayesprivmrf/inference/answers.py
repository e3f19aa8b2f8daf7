"""Answers per record at a fit, with their derivatives: the probabilities or numbers that an interval speaks of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesprivmrf.checks import require_memory
from bayesprivmrf.inference.asked import Asked, weights_on_tables
from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.result import require_joint_tables
from bayesprivmrf.inference.solution import clique_of
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT, MarginalEngine, clamped, marginal_engine
from bayesprivmrf.marginals.arrays import ImpossibleError
from bayesprivmrf.model.domain import given_error
from bayesprivmrf.model.tables import FloatArray, cells_within, parent


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AnswersPerRecord:
    """Answers per record at the estimate, with their derivatives.

    Parameters
    ----------
    values
        Probabilities of cells, or what a record adds to a query's answers on average, shape (rows,).
    rows
        Their derivatives by the coordinates, shape (rows, d).
    single
        Variance of one record's over the probability of what is given, shape (rows,): sampling errors are of so many
        of the people.
    given_share
        Probability of what is given; 1 if nothing is.
    """

    values: FloatArray
    rows: FloatArray
    single: FloatArray
    given_share: float = 1.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedPotentials:
    """Potentials of a fit to the evidence.

    Parameters
    ----------
    evidence
        The measurements of the fit.
    potentials
        θ of the cliques, shape (model size,).
    inference
        Kind of marginals.
    """

    evidence: Evidence
    potentials: FloatArray
    inference: Inference

    @property
    def engine(self) -> MarginalEngine:
        """Engine of the model's cliques."""
        return self.evidence.engine(self.inference)


def answers_per_record(
    asked: Asked, fit: FittedPotentials, by_coordinates: Callable[[FloatArray], FloatArray]
) -> AnswersPerRecord:
    """Return the probabilities of the joint states that were asked for, in C order, or a query's answers per record.

    **Variables that share no clique** become one more clique, of zero potentials. The derivative of their joint
    table is that of this clique's marginals, by elimination in the enlarged junction tree.

    Parameters
    ----------
    asked
        The variables, with states of others that are given, or the query.
    fit
        The potentials of the cliques.
    by_coordinates
        Maps a derivative by the potentials to that by the coordinates of the fit.
    """
    model = asked.model
    if fit.inference != "exact" and (asked.bound is None or asked.apart):
        return _by_beliefs(asked, fit, by_coordinates)
    table = _asked_tables(asked, fit)
    inner = np.zeros(table.engine.size - model.size)
    whole = np.append(fit.potentials, inner)
    held = whole
    if asked.given:
        held = np.append(
            clamped(model.cardinalities, model.scopes, fit.potentials, asked.given), inner
        )
    weights = table.weights
    size = weights.shape[0]
    _require_memory_of_derivatives(size, model.size)
    try:
        log_partition, marginals, product = table.engine.linearize(held)
    except ImpossibleError:
        raise given_error(model.domain, asked.given) from None
    rows = []
    single = np.empty(size)
    for position in range(size):
        weight = weights[[position]].toarray()[0]
        change = product(weight)
        rows.append(by_coordinates(change[: model.size]))
        single[position] = weight @ change
    values = weights @ marginals
    if asked.bound is None:
        single = values * (1 - values)
    share = 1.0
    if asked.given:
        share = float(np.exp(log_partition - table.engine.log_partition(whole)))
    return AnswersPerRecord(
        values=values,
        rows=np.array(rows),
        single=np.maximum(single / share, 0.0),
        given_share=share,
    )


def possible_answers(asked: Asked, fit: FittedPotentials) -> FloatArray:
    """Return answers per record if all joint states but the impossible ones are equally probable, shape (rows,).

    An answer lies at its end only if the declared model puts it there.
    """
    even = replace(fit, potentials=fit.evidence.family.base)
    return answers_per_record(asked, even, lambda change: change[:0]).values


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _AskedTables:
    """The asked numbers as weighted sums over the cells of an engine's tables.

    Parameters
    ----------
    engine
        Engine of the model's cliques, followed by the tables that were added for the question.
    weights
        Sparse, shape (rows, cells of the engine).
    """

    engine: MarginalEngine
    weights: Any


def _asked_tables(asked: Asked, fit: FittedPotentials) -> _AskedTables:
    """Return an engine whose tables hold the asked numbers, and the weights of these on its cells."""
    from scipy.sparse import eye_array

    model = asked.model
    if asked.bound is not None and not asked.apart:
        return _AskedTables(engine=fit.engine, weights=asked.bound.in_cliques)
    if asked.bound is None:
        added = (asked.variables,)
    else:
        added = asked.apart
    require_joint_tables(model, [scope for scope in added if parent(model.scopes, scope) is None])
    scopes = (*model.scopes, *added)
    engine = marginal_engine(model.cardinalities, scopes, kind=fit.inference)
    if asked.bound is not None:
        return _AskedTables(engine=engine, weights=weights_on_tables(asked.bound, scopes))
    cells: Any = eye_array(engine.size, format="csr")
    return _AskedTables(engine=engine, weights=cells[model.size :])


def _require_memory_of_derivatives(answers: int, cells: int) -> None:
    """Raise an error if the derivatives of so many answers by the potentials would not fit in memory."""
    remedy = "ask for fewer answers at a time"
    require_memory(
        f"derivatives of {answers:,} answers", 8.0 * answers * cells, remedy, DEFAULT_MEMORY_LIMIT
    )


def _by_beliefs(
    asked: Asked, fit: FittedPotentials, by_coordinates: Callable[[FloatArray], FloatArray]
) -> AnswersPerRecord:
    """Return the probabilities of the joint states that were asked for from the beliefs of a clique that holds them.

    A table that is added to the factors is no substitute: its belief under loopy inference is the product of its
    margins, because no message carries the dependence of two variables.
    """
    from scipy.sparse import csr_array

    model = asked.model
    if asked.apart:
        clique_of(model, asked.apart[0])  # raises: beliefs are of cliques alone
    home = clique_of(model, [*asked.variables, *asked.given])
    scope = model.scopes[home]
    start = model.offsets[home]
    # the row of each cell of the clique, and whether it has the states given
    row_of = cells_within(model.cardinalities, asked.variables, scope)
    is_given = np.ones(row_of.size, dtype=bool)
    for variable, codes in asked.given.items():
        is_given &= np.isin(cells_within(model.cardinalities, (variable,), scope), codes)
    columns = start + np.flatnonzero(is_given)
    size = len(asked.index)
    weights = csr_array(
        (np.ones(columns.size), (row_of[is_given], columns)), shape=(size, model.size)
    )
    _require_memory_of_derivatives(size, model.size)
    _, beliefs, product = fit.engine.linearize(fit.potentials)
    joint = weights @ beliefs
    mass = float(joint.sum())
    if not mass > 0:
        raise given_error(model.domain, asked.given)
    values = joint / mass
    changes = np.array([product(weights[[row]].toarray()[0]) for row in range(size)])
    # derivative of a ratio: (joint' - p mass') / mass, where mass' is 0 if nothing is given
    if asked.given:
        changes = (changes - np.outer(values, changes.sum(axis=0))) / mass
    rows = np.array([by_coordinates(change) for change in changes])
    return AnswersPerRecord(
        values=values, rows=rows, single=values * (1 - values) / mass, given_share=mass
    )
