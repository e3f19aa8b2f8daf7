r"""Logistic and multinomial regression of one variable on others, as a projection of the fitted distribution.

Let y be the outcome, z the joint states of the predictors, and X the design matrix of the formula, with one row for
each z. The coefficients β of the population are those that maximize the expected log likelihood

.. math:: \sum_{z, y} p(z, y) \log \frac{\exp(x_z' β_y)}{\sum_{y'} \exp(x_z' β_{y'})}, \qquad β_1 = 0,

which is maximum likelihood on the joint table p with its probabilities as weights. Where the formula is true in the
population, β are its coefficients; elsewhere they describe the nearest regression, as a regression on all people of
the population would. Newton's method finds them for all draws at once, with the step halved where the likelihood
would fall.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.analysis._tables import product_index, require_contrasts
from bayesprivmrf.cards import Card
from bayesprivmrf.checks import object_with, require
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference import Result, TableFunction
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import pandas as pd

# Most Newton steps; without separation ten suffice
_STEPS = 40
# Gradient at which a fit has converged, as a share of the population
_GRADIENT = 1e-11
# Most halvings of a step
_HALVINGS = 8
# Numbers in the information matrices of one batch of draws: 64 MiB
_BATCH = 1 << 23
# Ridge on each coefficient, as much as a share of 1e-12 of the records, so that nearly empty groups have a maximum
_RIDGE = 1e-12
# Distance of a predicted probability from 0 and 1, so that its log odds are finite: the rounding error of 1
_SMALLEST = 2.0**-52
# Share of a log likelihood that is a rounding error
_ROUNDING = 1e-12
# Largest coefficient of a table with zeros, nats; beyond it some group has one outcome only
_LARGEST = 12.0
# Columns of the interval frames that have numbers
_NUMBERS = ["estimate", "lower", "upper"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Regression(Card):
    """Coefficients of a regression with intervals, as `regression` returns them.

    Parameters
    ----------
    formula
        The formula.
    coefficients
        Coefficients on the scale of log odds. The index has the state of the outcome, against its first state, and
        the term.
    odds_ratios
        Their exponentials.
    predictions
        Predicted probabilities of each state of the outcome for each joint state of the predictors.
    excluded
        Interactions that the fitted model excludes by declaration, one sentence each: their coefficients follow from
        the declared independences, not from the data.
    """

    formula: str
    coefficients: pd.DataFrame
    odds_ratios: pd.DataFrame
    predictions: pd.DataFrame
    excluded: tuple[str, ...]

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("formula", self.formula),
            ("excluded", " ".join(self.excluded) or "none"),
            ("see also", "`odds_ratios`, `coefficients`, `predictions`"),
        ]


def regression(solution: Result, formula: str, *, prob: float = 0.9) -> Regression:
    """Regress one variable on others, with intervals that include noise and sampling.

    The outcome has two states (logistic regression) or more (multinomial regression); its first state is the
    reference. Predictors are categorical, with treatment coding against their first state.

    Parameters
    ----------
    solution
        A fit with intervals, such as that of `NoiseAwareMAP` or `LatentCounts`.
    formula
        Formula of the package formulaic, such as ``"ill ~ smokes + age"`` or ``"ill ~ smokes * age"``. Names of
        variables that are no Python names stand in backticks.
    prob
        Probability of each interval, between 0 and 1.

    Returns
    -------
    Regression
        Frames of coefficients, odds ratios and predicted probabilities, with the columns of `interval`.

    Raises
    ------
    ArgumentError
        The formula cannot be read, has no outcome or no predictor, or its terms are collinear.
    ModelError
        A variable is not declared, or has one state; or the outcome is also a predictor.
    ModelTooLargeError
        The joint table of the variables does not fit into memory.
    NoIntervalError
        The fit has no measure of its error.

    Notes
    -----
    A coefficient is NaN, with the status ``"not trusted"``, where some group of the predictors has one outcome only.

    Examples
    --------
    >>> analysis.regression(posterior, "ill ~ smokes + age").odds_ratios  # doctest: +SKIP
    """
    remedy = "fit a release by NoiseAwareMAP() or LatentCounts()"
    object_with("joint_estimate", "solution", solution, "be a result of an estimator", remedy)
    outcome, predictors, design_of = _parsed(solution, formula)
    require_contrasts(solution, [outcome, *predictors])
    joint = solution.joint_estimate([*predictors, outcome])
    *groups, outcomes = joint.states
    design, terms = design_of(groups)
    must = "have linearly independent terms"
    rank = int(np.linalg.matrix_rank(design))
    seen = f"{len(terms)} terms of rank {rank}"
    require(rank == len(terms), "formula", must, seen, "leave out terms that others determine")

    def fitted(tables: FloatArray) -> FloatArray:
        """Return coefficients, and then the log odds of the predicted probabilities."""
        cells = tables.reshape(*tables.shape[: tables.ndim - len(joint.shape)], len(design), -1)
        flat = cells.reshape(-1, *cells.shape[-2:])
        beta = weighted_multinomial(design, flat)
        chances = _softmax(np.einsum("zk,lky->lzy", design, beta))
        chances = np.clip(chances, _SMALLEST, 1 - _SMALLEST)
        log_odds = np.log(chances) - np.log1p(-chances)
        own = np.swapaxes(beta[..., 1:], 1, 2).reshape(len(flat), -1)
        every = np.concatenate([own, log_odds.reshape(len(flat), -1)], axis=1)
        return every.reshape(*cells.shape[:-2], -1)

    labels = product_index([outcomes[1:], terms], [outcome, "term"])
    grid = product_index([*groups, outcomes], [*predictors, outcome])
    import pandas as pd

    rows = pd.RangeIndex(len(labels) + len(grid))
    frame = joint.interval(TableFunction(values=fitted), rows, prob)
    coefficients = frame.iloc[: len(labels)].set_axis(labels)
    predictions = frame.iloc[len(labels) :].set_axis(grid)
    odds_ratios = coefficients.assign(**{name: np.exp(coefficients[name]) for name in _NUMBERS})
    chances = {name: 1 / (1 + np.exp(-predictions[name])) for name in _NUMBERS}
    return Regression(
        formula=formula,
        coefficients=coefficients,
        odds_ratios=odds_ratios,
        predictions=predictions.assign(**chances),
        excluded=_excluded(solution, outcome, predictors),
    )


def _parsed(solution: Result, formula: str) -> tuple[Hashable, list[Hashable], Any]:
    """Return the outcome, the predictors, and the function that builds the design matrix from their states."""
    import formulaic
    from formulaic.errors import FormulaicError

    read: Any = formulaic.Formula
    remedy = "write 'ill ~ smokes + age', with names of several words in backticks"
    require(isinstance(formula, str), "formula", "be text", type(formula).__name__, remedy)
    try:
        parsed = read(formula)
    except (FormulaicError, SyntaxError, ValueError) as error:
        raise ArgumentError(f"`formula` must be readable, got {formula!r}; {remedy}.") from error
    has_sides = hasattr(parsed, "lhs") and hasattr(parsed, "rhs")
    require(has_sides, "formula", "have an outcome before '~'", formula, remedy)
    left = _variables_of(parsed.lhs)
    require(len(left) == 1, "formula", "have one variable before '~'", formula, remedy)
    right = _variables_of(parsed.rhs)
    require(right, "formula", "have a predictor after '~'", formula, remedy)
    by_text = {str(variable): variable for variable in solution.specification.domain.variables}
    unknown = [name for name in (*left, *right) if name not in by_text]
    must = "name declared variables"
    declared = f"; the declared ones are {', '.join(by_text)}"
    require(not unknown, "formula", must, ", ".join(unknown) + declared, error=ModelError)
    must = "have an outcome that is no predictor"
    require(left[0] not in right, "formula", must, left[0], error=ModelError)
    # predictors in the declared order, in which the design has its rows
    predictors = [variable for text, variable in by_text.items() if text in right]

    def design_of(groups: Sequence[Sequence[Hashable]]) -> tuple[FloatArray, list[str]]:
        return _design(parsed.rhs, list(map(str, predictors)), groups)

    return by_text[left[0]], predictors, design_of


def _variables_of(terms: Any) -> list[str]:
    """Return the names of the variables in one side of a formula.

    The property `required_variables` of a whole side cuts a name at its first dot; those of the factors do not.
    """
    names = (factor.required_variables for term in terms for factor in term.factors)
    return sorted({str(name) for each in names for name in each})


def _design(
    terms: Any, names: Sequence[str], groups: Sequence[Sequence[Hashable]]
) -> tuple[FloatArray, list[str]]:
    """Return the design matrix of all joint states of the predictors, and the names of its columns."""
    import pandas as pd
    from formulaic.errors import FormulaicError

    joint = list(itertools.product(*(range(len(states)) for states in groups)))
    columns = {
        name: pd.Categorical.from_codes([codes[axis] for codes in joint], list(map(str, states)))
        for axis, (name, states) in enumerate(zip(names, groups, strict=True))
    }
    try:
        matrix = terms.get_model_matrix(pd.DataFrame(columns), context={})
    except (FormulaicError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"`formula` must have terms of categorical variables, got {str(terms)!r}; write names, '+', ':' and '*'."
        ) from error
    return np.asarray(matrix, dtype=float), [str(name) for name in matrix.columns]


def _excluded(
    solution: Result, outcome: Hashable, predictors: Sequence[Hashable]
) -> tuple[str, ...]:
    """Return the smallest interactions of the outcome with predictors that lie in no clique of the model."""
    model = solution.specification
    cliques = [{model.domain.variables[v] for v in scope} for scope in model.scopes]
    found: list[set[Hashable]] = []
    for size in range(1, len(predictors) + 1):
        for others in map(set, itertools.combinations(predictors, size)):
            is_inside = any({outcome, *others} <= clique for clique in cliques)
            if not is_inside and not any(smaller <= others for smaller in found):
                found.append(others)
    sentences = []
    for others in found:
        listed = ", ".join(str(variable) for variable in predictors if variable in others)
        sentences.append(f"The model excludes the interaction of {outcome} with {listed}.")
    return tuple(sentences)


def weighted_multinomial(design: FloatArray, tables: FloatArray) -> FloatArray:
    """Return coefficients of multinomial regressions by maximum likelihood on weighted tables.

    Parameters
    ----------
    design
        Design matrix, shape (groups, terms).
    tables
        Joint probabilities of groups and outcomes, shape (tables, groups, outcomes).

    Returns
    -------
    ndarray
        Coefficients, shape (tables, terms, outcomes), 0 for the first outcome; NaN where there is no finite maximum.
    """
    parameters = design.shape[1] * (tables.shape[2] - 1)
    batch = max(_BATCH // (parameters**2 + tables[0].size), 1)
    parts = [
        _newton(design, tables[start : start + batch]) for start in range(0, len(tables), batch)
    ]
    return np.concatenate(parts)


def _newton(design: FloatArray, tables: FloatArray) -> FloatArray:
    """Return the coefficients of one batch of tables by Newton's method."""
    count, _, outcomes = tables.shape
    beta = np.zeros((count, design.shape[1], outcomes))
    # tables that have not converged yet
    active = np.arange(count)
    for _ in range(_STEPS):
        own = tables[active]
        weights = own.sum(axis=2)
        chances = _softmax(np.einsum("zk,lky->lzy", design, beta[active]))
        missed = own - weights[..., np.newaxis] * chances
        gradient = (
            np.einsum("zk,lzy->lky", design, missed[..., 1:]) - _RIDGE * beta[active][..., 1:]
        )
        is_active = np.abs(gradient).max(axis=(1, 2)) > _GRADIENT
        if not is_active.any():
            active = active[:0]
            break
        active = active[is_active]
        step = _step(design, weights[is_active], chances[is_active][..., 1:], gradient[is_active])
        beta[active] = _along(design, own[is_active], beta[active], step)
    is_separated = (tables == 0).any(axis=(1, 2)) & (np.abs(beta).max(axis=(1, 2)) > _LARGEST)
    is_finite = ~is_separated
    is_finite[active] = False
    return np.where(is_finite[:, np.newaxis, np.newaxis], beta, np.nan)


def _step(
    design: FloatArray, weights: FloatArray, chances: FloatArray, gradient: FloatArray
) -> FloatArray:
    """Return Newton's step, shape (tables, terms, outcomes), 0 for the first outcome."""
    count, terms, free = gradient.shape
    # the covariance of the outcomes but the first within each group
    spread = -np.einsum("lza,lzb->lzab", chances, chances)
    spread[..., np.arange(free), np.arange(free)] += chances
    weighted = spread * weights[..., np.newaxis, np.newaxis]
    products = np.einsum("zi,zj->zij", design, design).reshape(len(design), -1)
    information = np.einsum("zp,lzq->lpq", products, weighted.reshape(count, len(design), -1))
    information = information.reshape(count, terms, terms, free, free)
    information = information.transpose(0, 1, 3, 2, 4).reshape(count, terms * free, -1)
    information[:, np.arange(terms * free), np.arange(terms * free)] += _RIDGE
    solved = np.linalg.solve(information, gradient.reshape(count, -1, 1))
    step = np.zeros((count, terms, free + 1))
    step[..., 1:] = solved.reshape(count, terms, free)
    return step


def _along(
    design: FloatArray, tables: FloatArray, beta: FloatArray, step: FloatArray
) -> FloatArray:
    """Return coefficients after a step, halved where the likelihood would fall."""
    value = _log_likelihood(design, tables, beta)
    share = np.ones(len(beta))
    for _ in range(_HALVINGS):
        moved = beta + share[:, np.newaxis, np.newaxis] * step
        reached = _log_likelihood(design, tables, moved)
        # rounding errors near the maximum are no fall
        falls = ~(reached >= value - _ROUNDING * np.abs(value))
        if not falls.any():
            break
        share = np.where(falls, share / 2, share)
    return beta + share[:, np.newaxis, np.newaxis] * step


def _log_likelihood(design: FloatArray, tables: FloatArray, beta: FloatArray) -> FloatArray:
    """Return the expected log likelihood of each table with the ridge, nats."""
    scores = np.einsum("zk,lky->lzy", design, beta)
    largest = scores.max(axis=2, keepdims=True)
    logs = scores - largest - np.log(np.exp(scores - largest).sum(axis=2, keepdims=True))
    return (tables * logs).sum(axis=(1, 2)) - _RIDGE / 2 * np.square(beta).sum(axis=(1, 2))


def _softmax(scores: FloatArray) -> FloatArray:
    """Return probabilities from scores along the last axis."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
