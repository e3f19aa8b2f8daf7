"""Log-partition, marginals and their derivatives, as pure functions of the potentials.

One interface, `MarginalEngine`, and three engines: exact, loopy belief propagation, and brute force, the
reference of the other two. No labels, no data: variables are numbered from 0 and potentials are one flat
vector, the tables one after the other in C order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from bayesprivmrf.checks import at_least, bare_array, generator, one_of, truth, whole_number
from bayesprivmrf.errors import ModelError, ModelTooLargeError
from bayesprivmrf.marginals import sampling
from bayesprivmrf.marginals.arrays import BruteForceEngine, array_engine, joint_forecast
from bayesprivmrf.marginals.forecast import (
    MEMORY_LIMIT,
    Forecast,
    array_forecast,
    forecast,
    plan,
    require_memory,
)
from bayesprivmrf.marginals.layout import Layout, MarginalEngine, whole_numbers
from bayesprivmrf.model.tables import FloatArray, IntArray

__all__ = [
    "DEFAULT_MEMORY_LIMIT",
    "Forecast",
    "Layout",
    "MarginalEngine",
    "array_engine",
    "array_forecast",
    "clamped",
    "forecast",
    "marginal_engine",
    "marginal_of",
    "sample",
]

#: Bytes that inference may take unless another limit is given: 4 GiB.
DEFAULT_MEMORY_LIMIT = MEMORY_LIMIT

#: Joint states of some variables at each of which inference is run, where a clique with them is beyond memory.
MOST_PASSES = 1 << 12

Kind = Literal["exact", "loopy", "brute-force"]


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
        States of each variable, at least 1.
    scopes : iterable of iterable of int
        Variables of each factor, in the axis order of its table; nested, repeated and empty ones are
        allowed.
    kind : {"exact", "loopy", "brute-force"}
        Exact elimination; loopy belief propagation, an approximation for models too large for it; or
        enumeration of all configurations, for tests.
    memory_limit : int
        Bytes that the engine may take.

    Returns
    -------
    MarginalEngine
        Safe to share between threads.

    Raises
    ------
    ModelError
        If a scope repeats a variable or names one that does not exist.
    ModelTooLargeError
        If the forecast of the memory exceeds the limit.
    ArgumentError
        If there is no such kind, or the limit is no number.

    Examples
    --------
    >>> engine = marginal_engine([2, 2], [(0, 1)])
    >>> log_partition, mu = engine.marginals(np.zeros(4))
    >>> mu
    array([0.25, 0.25, 0.25, 0.25])
    """
    one_of("kind", kind, ("exact", "loopy", "brute-force"))
    at_least("memory_limit", memory_limit, 0, finite=False)
    return _planned(Layout.build(cardinalities, scopes), kind, memory_limit)


@lru_cache(maxsize=32)
def _planned(layout: Layout, kind: Kind, memory_limit: int) -> MarginalEngine:
    if kind == "exact":
        return _exact(layout, memory_limit)
    if kind == "brute-force":
        require_memory(joint_forecast(layout), memory_limit)
        return BruteForceEngine(layout=layout)
    from bayesprivmrf.marginals.loopy import LoopyEngine, loopy_forecast

    require_memory(loopy_forecast(layout), memory_limit)
    return LoopyEngine(layout)


def _exact(layout: Layout, memory_limit: int) -> MarginalEngine:
    """Return the compiled engine, or the one in plain NumPy where numba cannot keep compiled code."""
    planned = plan(layout, memory_limit=memory_limit)
    try:
        from bayesprivmrf.marginals.exact import CompiledEngine
    except (ImportError, RuntimeError):  # no numba, or no directory for its cache: minutes of compiling else
        return array_engine(layout, memory_limit)
    return CompiledEngine(planned.tree, planned.steps)


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
    """Return the marginal of any set of variables, inside a factor or not, or given states of others.

    Parameters
    ----------
    cardinalities, scopes
        The model, as for `marginal_engine`.
    potentials : FloatArray
        Shape (size,), nats.
    query : iterable of int
        Variables, each once.
    given : mapping of int to int or sequence of int
        State, or possible states, of each variable that is given; each variable is in some factor.
    kind, memory_limit
        Kind of engine and memory limit, as for `marginal_engine`.

    Raises
    ------
    ImpossibleError
        The states given have probability zero.
    ModelTooLargeError
        The model, or the joint table, is beyond the limit; or a clique with the query is, and would be even if some
        variables of at most 4,096 joint states were held one joint state after another.
    ModelError, ArgumentError
        An argument does not fit the model, or is of another type.

    Returns
    -------
    FloatArray
        Probabilities, one axis a variable in the order of `query`.

    Examples
    --------
    >>> marginal_of([2, 3], [(0,)], np.log([0.25, 0.75]), (1, 0)).shape
    (3, 2)
    """
    layout, wanted = Layout.build(cardinalities, scopes), whole_numbers("`query`", query)
    theta = _flat(layout, potentials)
    if given is not None:
        theta = clamped(layout.cardinalities, layout.scopes, theta, given)
    try:
        return _joint(layout, theta, wanted, kind, memory_limit)
    except ModelTooLargeError:
        if kind != "exact" or not (held := _held_to_fit(layout, wanted, memory_limit)):
            raise
        return _joint_by_states(layout, theta, wanted, held, memory_limit)


def _joint(
    layout: Layout, theta: FloatArray, query: tuple[int, ...], kind: Kind, memory_limit: int
) -> FloatArray:
    """Return a joint marginal, of a model in which its variables are a clique."""
    scopes = (*layout.scopes, query)
    engine = marginal_engine(layout.cardinalities, scopes, kind=kind, memory_limit=memory_limit)
    _, mu = engine.marginals(np.concatenate([theta, np.zeros(engine.size - layout.size)]))
    return mu[layout.size :].reshape([engine.cardinalities[v] for v in query])


def _held_to_fit(layout: Layout, query: tuple[int, ...], memory_limit: int) -> list[int]:
    """Return variables of a query without which its clique fits; none where that is of no use.

    It is not where the joint table is itself beyond the limit, or the variables have more than `MOST_PASSES` states
    together. A variable in no factor cannot be held.
    """
    cards, factors = layout.cardinalities, {v for scope in layout.scopes for v in scope}
    held: list[int] = []
    if 8 * math.prod(cards[v] for v in query) > memory_limit:
        return held
    for v in sorted(factors.intersection(query), key=lambda v: cards[v]):
        held.append(v)
        rest = tuple(w for w in query if w not in held)
        if not rest or math.prod(cards[w] for w in held) > MOST_PASSES:
            break
        if forecast(cards, (*layout.scopes, rest)).memory_bytes <= memory_limit:
            return held
    return []


def _joint_by_states(
    layout: Layout, theta: FloatArray, query: tuple[int, ...], held: Sequence[int], memory_limit: int
) -> FloatArray:
    """Return the same, one state of a variable after another: p(x_v) p(rest | x_v), whose cliques are without v."""
    if not held:
        return _joint(layout, theta, query, "exact", memory_limit)
    cards, (v, *later) = layout.cardinalities, held
    axis = query.index(v)
    rest, found = query[:axis] + query[axis + 1 :], np.zeros([cards[w] for w in query])
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
    """Return potentials that condition on states of some variables: their other states become impossible.

    A variable with several states is in one of them.

    Raises
    ------
    ModelError, ArgumentError
        An argument does not fit the model, or is of another type.

    Examples
    --------
    >>> clamped([2, 2], [(0, 1)], np.zeros(4), {1: 0})
    array([  0., -inf,   0., -inf])
    """
    layout = Layout.build(cardinalities, scopes)
    theta, states = _flat(layout, potentials), _checked_states(layout, states)
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
    return layout.flat(bare_array("potentials", potentials))


def _checked_states(layout: Layout, states: Any) -> dict[int, tuple[int, ...]]:
    """Return the states of variables, each of which is in some factor."""
    if not isinstance(states, Mapping):
        raise ModelError(f"states must be a mapping from variables, got a {type(states).__name__}.")
    variables = whole_numbers("variables", states)
    held = {variable for scope in layout.scopes for variable in scope}
    checked: dict[int, tuple[int, ...]] = {}
    for variable, own in zip(variables, states.values(), strict=True):
        if variable not in held:
            raise ModelError(f"states must be given of variables that a factor holds, got {variable}.")
        checked[variable] = whole_numbers("states", own if isinstance(own, list | tuple) else [own])
        for code in checked[variable]:
            if not 0 <= code < layout.cardinalities[variable]:
                raise ModelError(
                    f"states of variable {variable} must be from 0 to {layout.cardinalities[variable] - 1}, "
                    f"got {code}."
                )
    return checked


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
    """Draw exact records, independent or balanced.

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
        Whether the records of each separator's state are dealt to the states of the next variable as its
        probabilities say, up to unbiased rounding to whole records. Each record is still drawn from the model,
        but they are not independent: a factor's table is off by less than one record for each cell of the
        elimination tree between it and the root, all its cells together, whatever the size.
    memory_limit : int
        Bytes that the conditional tables may take.

    Returns
    -------
    IntArray
        Shape (size, number of variables), states as numbers from 0.

    Raises
    ------
    ModelError, ArgumentError
        An argument does not fit the model, or is of another type.
    ModelTooLargeError
        If the forecast of the memory exceeds the limit.
    """
    layout = Layout.build(cardinalities, scopes)
    at_least("memory_limit", memory_limit, 0, finite=False)
    given = {"size": whole_number("size", size), "is_balanced": truth("is_balanced", is_balanced)}
    return sampling.draw(
        array_engine(layout, memory_limit), _flat(layout, potentials), rng=generator(rng), **given
    )
