"""Log-partition function, marginals and their derivatives, as pure functions of the potentials.

Two engines have one interface, `MarginalEngine`: exact elimination, and loopy belief propagation, an approximation.
Engines know neither labels nor data. Variables are numbered from 0, and
potentials are one flat vector: the tables of all factors one after the other, each in C order.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Literal, get_args

import numpy as np

from bayesprivmrf.checks import (
    at_least,
    bare_array,
    generator,
    one_of,
    require,
    truth,
    whole_number,
)
from bayesprivmrf.errors import ModelError, ModelTooLargeError
from bayesprivmrf.marginals.arrays import array_engine, draw
from bayesprivmrf.marginals.joint import Elimination, Factor, between
from bayesprivmrf.marginals.layout import (
    MEMORY_LIMIT,
    Forecast,
    Layout,
    MarginalEngine,
    require_inference_memory,
    whole_numbers,
)
from bayesprivmrf.marginals.lowering import forecast, plan
from bayesprivmrf.marginals.planning import BucketTree
from bayesprivmrf.model.tables import DOUBLE, FloatArray, IntArray, parent, project

__all__ = [
    "DEFAULT_MEMORY_LIMIT",
    "Elimination",
    "Factor",
    "Forecast",
    "Layout",
    "MarginalEngine",
    "array_engine",
    "between",
    "clamped",
    "forecast",
    "marginal_engine",
    "marginal_of",
    "sample",
]

#: Default memory limit of inference, in bytes: 4 GiB.
DEFAULT_MEMORY_LIMIT = MEMORY_LIMIT

Kind = Literal["exact", "loopy"]


def marginal_engine(
    cardinalities: Iterable[int],
    scopes: Iterable[Iterable[int]],
    *,
    kind: Kind = "exact",
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
) -> MarginalEngine:
    """Return an engine for one model; equal models share one engine.

    Parameters
    ----------
    cardinalities : iterable of int
        Number of states of each variable, at least 1.
    scopes : iterable of iterable of int
        Variables of each factor, in the axis order of its table. Nested, repeated and empty scopes are allowed.
    kind : {"exact", "loopy"}
        ``"exact"``: elimination of variables. ``"loopy"``: belief propagation, an approximation for models that are
        too large for exact inference.
    memory_limit : int
        Largest memory of the engine, in bytes.

    Returns
    -------
    MarginalEngine
        An engine that several threads may use at once.

    Raises
    ------
    ModelError
        If a scope repeats a variable or names one that does not exist.
    ModelTooLargeError
        If the memory forecast exceeds the limit.
    ArgumentError
        If `kind` is not known, or `memory_limit` is not a number.

    Examples
    --------
    >>> engine = marginal_engine([2, 2], [(0, 1)])
    >>> log_partition, mu = engine.marginals(np.zeros(4))
    >>> mu
    array([0.25, 0.25, 0.25, 0.25])
    """
    one_of("kind", kind, get_args(Kind))
    at_least("memory_limit", memory_limit, 0, finite=False)
    asked = (Layout.build(cardinalities, scopes), kind, memory_limit)
    with _LOCK:
        if asked in _RECENT:
            _RECENT.move_to_end(asked)
            return _RECENT[asked][0]
    planned = _planned(*asked)
    with _LOCK:
        _RECENT[asked] = planned
        while len(_RECENT) > 1 and (
            len(_RECENT) > _MOST or sum(size for _, size in _RECENT.values()) > KEPT
        ):
            _RECENT.popitem(last=False)
    return planned[0]


# Largest memory of all engines that are kept for reuse together, in bytes. A larger engine is kept until the next one
# is made, because a fit asks for the same engine many times.
KEPT = 2**28
# Largest number of joint states of the variables that are fixed in turn: each takes one pass
_FIXED_STATES = 4096
# Largest number of these engines, which bounds the memory of their plans
_MOST = 32
# The engines with their memory forecasts, by their arguments; the one that was used last is at the end
_RECENT: OrderedDict[tuple[Layout, Kind, int], tuple[MarginalEngine, int]] = OrderedDict()
# Threads may ask for engines at the same time
_LOCK = Lock()


def _planned(layout: Layout, kind: Kind, memory_limit: int) -> tuple[MarginalEngine, int]:
    """Return a new engine, and the forecast of its memory in bytes."""
    if kind == "exact":
        tree = BucketTree.build(layout)
        steps, expected = plan(tree, memory_limit)
        try:
            from bayesprivmrf.marginals.exact import CompiledEngine
        except (ImportError, RuntimeError):
            # without numba, or a folder for its cache, each process would compile for minutes
            return array_engine(layout, memory_limit), expected.memory_bytes
        return CompiledEngine(tree, steps), expected.memory_bytes
    from bayesprivmrf.marginals.loopy import LoopyEngine, loopy_forecast

    expected = loopy_forecast(layout)
    require_inference_memory(expected, memory_limit)
    return LoopyEngine(layout), expected.memory_bytes


def marginal_of(
    cardinalities: Iterable[int],
    scopes: Iterable[Iterable[int]],
    potentials: FloatArray,
    query: Iterable[int],
    *,
    given: Mapping[int, int | Sequence[int]] | None = None,
    kind: Kind = "exact",
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
) -> FloatArray:
    """Return the joint marginal of any set of variables, if wanted given states of other variables.

    The variables need not lie in one factor, except under loopy belief propagation, which has joint tables of factors
    alone.

    Parameters
    ----------
    cardinalities, scopes
        The model, as for `marginal_engine`.
    potentials : FloatArray
        Shape (size,), nats.
    query : iterable of int
        Variables, each at most once.
    given : mapping of int to int or sequence of int
        State, or possible states, of each variable to condition on. Each of these variables must be in some factor.
    kind, memory_limit
        Kind of engine and memory limit, as for `marginal_engine`.

    Raises
    ------
    ImpossibleError
        The given states have probability zero.
    ModelTooLargeError
        The model or the joint table exceeds the limit. A clique with the whole query may exceed it, if it fits once
        some variables of the query, with at most 4,096 joint states, are fixed at one joint state after another.
    ModelError, ArgumentError
        An argument does not fit the model, or has the wrong type; or `kind` is ``"loopy"``, and several variables are
        asked for that no factor contains together.

    Returns
    -------
    FloatArray
        Probabilities, with one axis per variable in the order of `query`.

    Examples
    --------
    >>> marginal_of([2, 3], [(0,)], np.log([0.25, 0.75]), (1, 0)).shape
    (3, 2)
    """
    layout = Layout.build(cardinalities, scopes)
    wanted = whole_numbers("`query`", query)
    theta = _flat(layout, potentials)
    if given is not None:
        theta = clamped(layout.cardinalities, layout.scopes, theta, given)
    try:
        return _joint(layout, theta, wanted, kind, memory_limit)
    except ModelTooLargeError:
        cards = layout.cardinalities
        factors = {v for scope in layout.scopes for v in scope}
        if kind != "exact" or DOUBLE * math.prod(cards[v] for v in wanted) > memory_limit:
            raise
        # fix variables of the query, with few joint states, until its clique fits in memory
        candidates = sorted(factors.intersection(wanted), key=lambda v: cards[v])
        for count in range(1, min(len(candidates), len(wanted) - 1) + 1):
            fixed = candidates[:count]
            rest = tuple(v for v in wanted if v not in candidates[:count])
            if math.prod(cards[v] for v in fixed) > _FIXED_STATES:
                break
            if forecast(cards, (*layout.scopes, rest)).memory_bytes <= memory_limit:
                return _joint_by_states(layout, theta, wanted, fixed, memory_limit)
        raise


def _joint(
    layout: Layout, theta: FloatArray, query: tuple[int, ...], kind: Kind, memory_limit: int
) -> FloatArray:
    """Return a joint marginal by adding its variables to the model as a clique."""
    scopes = (*layout.scopes, query)
    # loopy belief propagation would answer with the product of the margins: read the belief of a factor instead
    if kind == "loopy" and len(query) > 1:
        # refuses variables that are repeated or do not exist
        Layout.build(layout.cardinalities, scopes)
        home = parent(layout.scopes, query)
        if home is None:
            raise ModelError(
                "`query` must be variables of one factor under loopy belief propagation, got variables that no "
                'factor contains together; use kind="exact".'
            )
        engine = marginal_engine(
            layout.cardinalities, layout.scopes, kind=kind, memory_limit=memory_limit
        )
        beliefs = layout.tables(engine.marginals(theta)[1])
        return project(beliefs[home], layout.scopes[home], query)
    engine = marginal_engine(layout.cardinalities, scopes, kind=kind, memory_limit=memory_limit)
    _, mu = engine.marginals(np.concatenate([theta, np.zeros(engine.size - layout.size)]))
    return mu[layout.size :].reshape([engine.cardinalities[v] for v in query])


def _joint_by_states(
    layout: Layout,
    theta: FloatArray,
    query: tuple[int, ...],
    fixed: Sequence[int],
    memory_limit: int,
) -> FloatArray:
    """Return a joint marginal as p(x_v) p(rest | x_v), one state of each fixed variable v after another."""
    if not fixed:
        return _joint(layout, theta, query, "exact", memory_limit)
    cards = layout.cardinalities
    (v, *later) = fixed
    axis = query.index(v)
    rest = query[:axis] + query[axis + 1 :]
    found = np.zeros([cards[w] for w in query])
    for state, share in enumerate(_joint(layout, theta, (v,), "exact", memory_limit)):
        if share > 0:
            given = clamped(cards, layout.scopes, theta, {v: state})
            part = _joint_by_states(layout, given, rest, later, memory_limit)
            found[(slice(None),) * axis + (state,)] = share * part
    return found


def clamped(
    cardinalities: Sequence[int],
    scopes: Sequence[Sequence[int]],
    potentials: FloatArray,
    states: Mapping[int, int | Sequence[int]],
) -> FloatArray:
    """Return potentials that condition on states of some variables.

    The potentials of all cells with other states become minus infinity.

    Parameters
    ----------
    cardinalities, scopes, potentials
        The model, as for `marginal_of`.
    states : mapping of int to int or sequence of int
        State, or possible states, of each variable to condition on. Each of these variables must be in some factor.

    Raises
    ------
    ModelError, ArgumentError
        An argument does not fit the model, or has the wrong type.

    Examples
    --------
    >>> clamped([2, 2], [(0, 1)], np.zeros(4), {1: 0})
    array([  0., -inf,   0., -inf])
    """
    layout = Layout.build(cardinalities, scopes)
    # The states of each variable as whole numbers, after checks
    if not isinstance(states, Mapping):
        raise ModelError(
            f"states must be a mapping from variables to states, got a {type(states).__name__}."
        )
    in_factors = {variable for scope in layout.scopes for variable in scope}
    checked: dict[int, tuple[int, ...]] = {}
    for variable, own in zip(whole_numbers("variables", states), states.values(), strict=True):
        if variable not in in_factors:
            raise ModelError(f"states must be for variables in some factor, got {variable}.")
        checked[variable] = whole_numbers("states", own if isinstance(own, list | tuple) else [own])
        wrong = [
            code for code in checked[variable] if not 0 <= code < layout.cardinalities[variable]
        ]
        must = f"be from 0 to {layout.cardinalities[variable] - 1}"
        require(
            not wrong,
            f"states of variable {variable}",
            must,
            str(wrong[:1])[1:-1],
            error=ModelError,
        )
    theta = _flat(layout, potentials)
    states = checked
    kept = []
    for scope in layout.scopes:
        mask = np.ones(layout.shape(scope), dtype=bool)
        for axis, variable in enumerate(scope):
            if variable in states:
                others = ~np.isin(np.arange(layout.cardinalities[variable]), states[variable])
                mask[(slice(None),) * axis + (others,)] = False
        kept.append(mask.ravel())
    return np.where(np.concatenate([np.ones(0, dtype=bool), *kept]), theta, -np.inf)


def _flat(layout: Layout, potentials: Any) -> FloatArray:
    """Return checked potentials as a flat vector."""
    return layout.flat(bare_array("potentials", potentials))


def sample(
    cardinalities: Iterable[int],
    scopes: Iterable[Iterable[int]],
    potentials: FloatArray,
    size: int,
    rng: np.random.Generator,
    *,
    is_balanced: bool = False,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
) -> IntArray:
    """Draw records from the model exactly, independent or balanced.

    Parameters
    ----------
    cardinalities, scopes
        The model, as for `marginal_engine`.
    potentials : FloatArray
        Shape (number of cells,), nats.
    size : int
        Number of draws.
    rng : numpy.random.Generator
        Source of randomness.
    is_balanced : bool
        True to draw records whose tables are close to their expectations. Among the records with one state of a
        separator, each state of the next variable then occurs as often as expected, up to unbiased rounding. Each
        record still has the distribution of the model, but the records are dependent. The absolute errors of a
        factor's table add up to less than one record for each cell of the elimination tree between the factor and
        the root, whatever the size.
    memory_limit : int
        Largest memory of the conditional tables, in bytes.

    Returns
    -------
    IntArray
        Shape (size, number of variables), states as numbers from 0.

    Raises
    ------
    ModelError, ArgumentError
        An argument does not fit the model, or has the wrong type.
    ModelTooLargeError
        If the memory forecast exceeds the limit.

    Examples
    --------
    >>> potentials = np.log([0.5, 0.0001, 0.0001, 0.5])
    >>> records = sample([2, 2], [(0, 1)], potentials, 1000, np.random.default_rng(1))
    >>> records.shape, bool(np.mean(records[:, 0] == records[:, 1]) > 0.99)
    ((1000, 2), True)
    """
    layout = Layout.build(cardinalities, scopes)
    at_least("memory_limit", memory_limit, 0, finite=False)
    given = {"size": whole_number("size", size), "is_balanced": truth("is_balanced", is_balanced)}
    return draw(
        array_engine(layout, memory_limit), _flat(layout, potentials), rng=generator(rng), **given
    )
