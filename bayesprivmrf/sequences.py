r"""Transitions, stationary distribution, hitting times, sojourn times and lengths of a chain, with intervals.

With P the matrix of transitions between K states:

- the stationary distribution is the π with :math:`π = π P` that sums to one;
- the mean number of steps until state s is first reached is :math:`h = (I - P_{-s})^{-1} 1` from the other states,
  where :math:`P_{-s}` is P without the row and the column of s;
- a stay in state i lasts :math:`1 / (1 - P_{ii})` steps on average, the first one included.

These quantities are those of a chain that continues with the matrix forever. If the steps share transitions, the
matrix is that of the model. If they share potentials, the conditional probabilities change from step to step, and the
caller names the step.

**Unequal lengths** (``markov_chain(..., end=)``). The matrix has the probability to end after each state in the
column of the end state. An absorbing chain has no stationary distribution but its end. Distributions and times are
therefore conditional on going on, :math:`Q_{ij} = P_{ij} / (1 - P_{i,\text{end}})`, as if the chain never ended.
`lengths` has the distribution of the length itself.

**Bounds.** Bounds from a posterior are quantiles of its draws. Bounds from `NoiseAwareMAP` are by the delta method:
normal for probabilities and cut at 0 and 1, and normal on the scale of logarithms for times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.checks import kind_of, require, whole_number
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference import Posterior, Solution
from bayesprivmrf.inference.asked import coverage
from bayesprivmrf.inference.criticism.assumptions import variable_marks
from bayesprivmrf.inference.criticism.order import untested_memory
from bayesprivmrf.inference.interval_frame import (
    Mark,
    RowStatus,
    interval_frame,
    point_status,
    with_level,
)
from bayesprivmrf.inference.limits import ChainFunction, Limits
from bayesprivmrf.inference.transition_rows import TransitionRows
from bayesprivmrf.model.chain import Chain, chain_of
from bayesprivmrf.model.domain import Label
from bayesprivmrf.model.tables import FloatArray, project

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["hitting_times", "lengths", "sojourn_times", "stationary_law", "transition_matrix"]


def transition_matrix(
    fit: Solution | Posterior, prob: float = 0.9, *, step: int | None = None
) -> pd.DataFrame:
    """Return the probabilities of the next state given the states before it.

    Parameters
    ----------
    fit
        The result of an estimator for a chain that `markov_chain` declared.
    prob
        Nominal coverage of each interval, between 0 and 1.
    step
        The step of a chain with shared potentials, counted from 1; step 1 leads from the first state to the second.
        It is left out with shared transitions, where all steps are alike.

    Returns
    -------
    pandas.DataFrame
        Columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``; one row for each ``from`` and ``to``. A
        `NaiveMLE` or `CGM` has no bounds: they are NaN. The status ``"model"`` means that the row rests on shared
        transitions, as its note says. For `NoiseAwareMAP`, rows are ``"doubtful"`` if their interval was cut off at 0
        or 1: the normal approximation is poor there, and the coverage of such intervals is too low. `LatentCounts`
        has intervals without that approximation, and marks rows that the prior decides as `Posterior.interval` does.
        A chain with an end state has rows to it, and none from it.

    Raises
    ------
    ArgumentError
        `fit` is not the result of an estimator, or `step` or `prob` is out of range.
    ModelError
        The model is not a chain.

    Examples
    --------
    ::

        solution = NoiseAwareMAP().fit(release)
        transition_matrix(solution, prob=0.9)
    """
    return _table(fit, prob, step, lambda matrix: matrix, ["from", "to"], is_share=True)


def lengths(fit: Solution | Posterior, prob: float = 0.9) -> pd.DataFrame:
    r"""Return the distribution of the lengths, :math:`P(x_{l+1} = e) - P(x_l = e)` with e the end state.

    Parameters
    ----------
    fit
        The result of an estimator for a chain with an end state.
    prob
        See `transition_matrix`.

    Returns
    -------
    pandas.DataFrame
        One row per length; the last row, of the longest length, also counts all records that were cut there. The
        columns are those of `transition_matrix`.
    """
    import pandas as pd

    chain = _chain(fit)
    model = fit.specification
    if chain.end is None:
        raise ModelError(
            "the chain's records have one length; declare it by markov_chain(..., end='<end>')."
        )
    code = chain.end
    starts = list(model.offsets)

    def shares(flat: FloatArray) -> FloatArray:
        ended = np.zeros((*flat.shape[:-1], len(chain.positions) + 1))
        ended[..., -1] = 1.0
        for t, variable in enumerate(chain.positions):
            clique = chain.cliques[max(t - chain.order, 0)]
            cells = flat[..., starts[clique] : starts[clique + 1]]
            tables = cells.reshape(*flat.shape[:-1], *model.shapes[clique])
            ended[..., t] = project(tables, model.scopes[clique], (variable,))[..., code]
        return np.diff(ended, axis=-1)

    asked = ChainFunction(
        part=lambda flat: flat, part_of_rows=TransitionRows.forward, function=shares, is_share=True
    )
    index = pd.RangeIndex(1, len(chain.positions) + 1, name="length")
    frame = _framed(fit, fit._chain_limits(asked, coverage(prob)), index, range(len(chain.cliques)))
    return with_level(frame, prob)


def stationary_law(
    fit: Solution | Posterior, prob: float = 0.9, *, step: int | None = None
) -> pd.DataFrame:
    """Return the stationary distribution; parameters and columns are those of `transition_matrix`.

    Returns
    -------
    pandas.DataFrame
        One row a state.
    """
    return _table(fit, prob, step, _stationary, ["state"], is_share=True)


def hitting_times(
    fit: Solution | Posterior, target: Label, prob: float = 0.9, *, step: int | None = None
) -> pd.DataFrame:
    """Return the mean number of steps until a state is first reached, from each initial state.

    Parameters
    ----------
    fit
        The fit of a chain of order 1.
    target
        The state.
    prob, step
        See `transition_matrix`.

    Returns
    -------
    pandas.DataFrame
        Steps, one row for each initial state; 0 from the target itself. Rows of a `NoiseAwareMAP` are ``"doubtful"``
        if the normal interval of the reciprocal of the time reaches 0, so that the time has no upper bound.
    """
    chain = _chain(fit, is_first_order=True)
    model = fit.specification
    code = model.domain.code(model.domain.variables[chain.positions[0]], target)
    if code == chain.end:
        raise ArgumentError(
            f"`target` must be a state to go on from, got the end state {target!r}; `lengths` says when records end."
        )
    code -= chain.end is not None and code > chain.end

    def reached(matrix: FloatArray) -> FloatArray:
        others = [state for state in range(matrix.shape[-1]) if state != code]
        rest = np.eye(len(others)) - matrix[..., others, :][..., others]
        times = np.zeros(matrix.shape[:-1])
        ones = np.ones((*rest.shape[:-1], 1))
        times[..., others] = np.linalg.solve(rest, ones)[..., 0]
        return times

    return _table(fit, prob, step, reached, ["from"])


def sojourn_times(
    fit: Solution | Posterior, prob: float = 0.9, *, step: int | None = None
) -> pd.DataFrame:
    """Return the mean length of a stay in each state, steps; parameters are those of `transition_matrix`.

    Returns
    -------
    pandas.DataFrame
        One row a state; of a chain of order 1.
    """
    _chain(fit, is_first_order=True)

    def stay(matrix: FloatArray) -> FloatArray:
        return 1 / (1 - np.diagonal(matrix, axis1=-2, axis2=-1))

    table = _table(fit, prob, step, stay, ["state"])
    table["lower"] = table["lower"].clip(lower=1.0)  # a stay is of one step at least
    return table


def _table(
    fit: Solution | Posterior,
    prob: float,
    step: int | None,
    function: Callable[[FloatArray], FloatArray],
    names: Sequence[str],
    *,
    is_share: bool = False,
) -> pd.DataFrame:
    import pandas as pd

    chain = _chain(fit)
    model = fit.specification
    is_matrix = len(names) > 1
    window = _window(model.shares_transitions, chain, step)
    clique = chain.cliques[window]
    states = model.cardinalities[chain.positions[0]]
    scope = chain.positions[window : window + chain.order + 1]
    codes = np.array([code for code in range(states) if code != chain.end])
    pasts = np.arange(states**chain.order).reshape((states,) * chain.order)
    pasts = pasts[np.ix_(*[codes] * chain.order)].ravel()

    def conditional(flat: FloatArray) -> FloatArray:
        # clique marginals, shape (..., cells), to a step's matrix, shape (..., K^m, K)
        cells = flat[..., slice(*model.offsets[clique : clique + 2])]
        tables = cells.reshape(*flat.shape[:-1], *model.shapes[clique])
        rows = project(tables, model.scopes[clique], scope).reshape(*flat.shape[:-1], -1, states)
        sums = rows.sum(axis=-1, keepdims=True)
        # nobody begins with the end
        return np.divide(rows, sums, out=np.zeros_like(rows), where=sums > 0)

    def of_matrix(matrix: FloatArray) -> FloatArray:
        # rows of the states before the end, conditional on going on unless the matrix itself is asked for
        rows = matrix[..., pasts, :]
        if chain.end is None or is_matrix:
            return function(rows)
        rows = rows[..., codes]
        return function(rows / rows.sum(axis=-1, keepdims=True))

    asked = ChainFunction(
        part=conditional,
        part_of_rows=lambda rows, law, matrix: matrix,
        function=of_matrix,
        is_share=is_share,
    )
    labels = list(model.domain.states[chain.positions[0]])
    order = chain.order if names[0] == "from" else 1
    if order == 1:
        titles = list(names)
    else:
        titles = [*(f"from {k + 1}" for k in range(order)), *names[1:]]
    levels = [[labels[code] for code in codes]] * (len(titles) - is_matrix) + [labels] * is_matrix
    index = pd.MultiIndex.from_product(levels, names=titles)
    if len(titles) == 1:
        index = index.get_level_values(0)
    if model.shares_transitions:
        windows = range(len(chain.cliques))
    else:
        windows = [window]
    limits = fit._chain_limits(asked, coverage(prob))
    if not is_matrix and fit._evidence is not None:
        # times and the stationary distribution follow from many steps
        own = [Mark(RowStatus.MODEL, remark) for remark in untested_memory(fit._evidence)]
        limits = limits._replace(marks=(*limits.marks, *own))
    return with_level(_framed(fit, limits, index, windows), prob)


def _framed(
    fit: Solution | Posterior, limits: Limits, index: pd.Index, windows: Sequence[int]
) -> pd.DataFrame:
    """Return the table of estimates and limits, with assumptions as marks unless all its windows were measured."""
    values, lower, upper, own, _ = limits
    model = fit.specification
    evidence = fit._evidence
    marks = [*own]
    cliques = chain_of(model).cliques
    if evidence is not None:
        marks += [
            mark for w in windows for mark in variable_marks(evidence, model.scopes[cliques[w]])
        ]
    is_point = bool(np.isnan(lower).any())
    if is_point:
        status = point_status(fit.status)
    else:
        status = fit.status
    return interval_frame(
        values,
        lower,
        upper,
        index,
        status=status,
        marks=marks,
        is_simulated=fit.is_simulated,
        is_unprotected=isinstance(fit, Solution) and fit.is_unprotected,
    )


def _chain(fit: Any, *, is_first_order: bool = False) -> Chain:
    """Return the order of time of a fit's chain."""
    is_fit = isinstance(fit, Solution | Posterior)
    remedy = "pass a Solution or a Posterior"
    require(is_fit, "fit", "be what an estimator's fit gave", kind_of(fit), remedy)
    chain = chain_of(fit.specification)
    if is_first_order and chain.order > 1:
        raise ModelError(
            "hitting and sojourn times are of chains of order 1; ask for the transition matrix of this one."
        )
    return chain


def _window(shares_transitions: bool, chain: Chain, step: int | None) -> int:
    """Return the position of the step's window."""
    count = len(chain.cliques)
    if shares_transitions:
        if step is not None:
            raise ArgumentError(
                "`step` must be left out where all steps share one matrix of transitions."
            )
        return 0
    if step is None:
        raise ArgumentError(
            f"`step` must be given, from 1 to {count}: with shared potentials the conditional probabilities change "
            "from step to step; markov_chain(..., share='transitions') has one matrix."
        )
    return whole_number("step", step, 1, count) - 1


def _stationary(matrix: FloatArray) -> FloatArray:
    """Return the stationary distribution of one state; for a higher order, by the chain of the last states."""
    rows, states = matrix.shape[-2:]
    lead = matrix.shape[:-2]
    moves = np.zeros((*lead, rows, rows))
    places = (np.arange(rows)[:, np.newaxis] * states) % rows + np.arange(states)
    moves[..., np.arange(rows)[:, np.newaxis], places] = matrix
    system = np.swapaxes(np.eye(rows) - moves, -1, -2) + 1.0
    law = np.linalg.solve(system, np.ones((*lead, rows, 1)))[..., 0]
    return law.reshape(*lead, -1, states).sum(axis=-2)
