"""Records needed to learn a model: the lower bounds and the measured laws that answer a question, one a row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning.sample_size.law import LAWS, stretch
from bayesprivmrf.learning.sample_size.lower_bounds import (
    SUCCESS,
    fingerprinting_records,
    for_replacing,
    packing_records,
)
from bayesprivmrf.learning.sample_size.task import Goal, Task
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee

if TYPE_CHECKING:
    import pandas as pd

type Row = dict[str, Any]


def records_needed(
    variables: int,
    size: float,
    guarantee: PrivacyGuarantee | None = None,
    *,
    goal: Goal = "parameters",
    states: int = 2,
    order: int = 2,
    width: float = 1.0,
) -> pd.DataFrame:
    r"""Return how many records it takes to learn a Markov random field, by lower bounds and by measurement.

    Reads no data. docs/lower_bounds.md derives the lower bounds.

    Parameters
    ----------
    variables
        p, at least 2.
    size
        For parameters the error :math:`\alpha` that a coupling may have, nats; for structure the size :math:`\eta`
        of the smallest coupling of an edge.
    guarantee
        The promise to be made, in any form; ``None`` for learning without privacy.
    goal
        ``"parameters"`` or ``"structure"``.
    states, order, width
        k, t and :math:`\lambda` of the models: states of a variable, most variables that interact, and what couplings
        and field of a variable add up to in size, nats.

    Returns
    -------
    DataFrame
        One row an answer: ``kind`` (``"lower"`` or ``"measured"``), ``records`` (NaN where there is no answer),
        ``low`` and ``high`` (two standard deviations of the error about a fitted law; equal otherwise), ``constant``
        (``"proved"``, ``"fitted"`` or ``"extrapolated"``), ``source`` and ``says``.

    Raises
    ------
    ArgumentError
        A number is out of range, `guarantee` is no guarantee, or an order above 2 stands beside more than two states.

    Examples
    --------
    >>> from bayesprivmrf import planning
    >>> from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee
    >>> promise = PrivacyGuarantee(rho=0.1, adjacency="replace-one")
    >>> table = planning.records_needed(50, 0.05, promise)
    >>> table.groupby("kind")["records"].min().round(-2).to_dict()
    {'lower': ..., 'measured': ...}
    """
    import pandas as pd

    if guarantee is not None and not isinstance(guarantee, PrivacyGuarantee):
        raise ArgumentError(
            f"`guarantee` must be a PrivacyGuarantee or None, got {type(guarantee).__name__}; write "
            "PrivacyGuarantee(rho=..., adjacency=...)."
        )
    task = Task(variables=variables, size=size, goal=goal, states=states, order=order, width=width)
    rows = [*_lower(task, for_replacing(guarantee)), *_measured(task, guarantee)]
    filled = [{"low": row["records"], "high": row["records"]} | row for row in rows]
    return pd.DataFrame(filled, columns=["kind", "records", "low", "high", "constant", "source", "says"])


def _lower(task: Task, guarantee: PrivacyGuarantee | None) -> Iterator[Row]:
    for source, records, says in _bounds(task, guarantee):
        said = says if records > 0 else "says nothing at this size, width and number of states"
        yield {"kind": "lower", "records": records, "constant": "proved", "source": source, "says": said}


def _bounds(task: Task, guarantee: PrivacyGuarantee | None) -> Iterator[tuple[str, float, str]]:
    names = "couplings" if task.goal == "parameters" else "graphs"
    said = f"to find all {names} with a probability of {SUCCESS:.3f}"
    yield "packing, no privacy", packing_records(task), said
    if guarantee is None:
        return
    if guarantee.form != "approximate":
        yield f"packing, {guarantee.form} privacy", packing_records(task, guarantee), said
    if task.goal == "parameters":
        source = f"fingerprinting, {guarantee.form} privacy"
        yield source, fingerprinting_records(task, guarantee), "for a root mean square error so small"


def _measured(task: Task, guarantee: PrivacyGuarantee | None) -> Iterator[Row]:
    rho = None if guarantee is None else rho_within(guarantee)
    if task.states > 2 or task.order > 2 or rho is None:
        return
    for law in LAWS:
        error = law.largest_error(task)
        records = law.records_for(task.variables, rho, error)
        outside, is_far = stretch(task, rho, records, error)
        row: Row = {
            "kind": "measured",
            "source": law.mechanism,
            "constant": "extrapolated" if outside else "fitted",
        }
        if is_far:
            yield row | {"records": math.nan, "says": f"too far from what was measured: {outside}"}
            continue
        factor = math.exp(2 * law.spread)
        low, high = (law.records_for(task.variables, rho, error * f) for f in (factor, 1 / factor))
        said = outside or "3-regular graphs and grids, couplings of size .3, two states"
        if task.goal == "structure":
            said += "; edges are couplings above half the size, all right in 19 of 20 models"
        if guarantee is not None and guarantee.adjacency is Adjacency.ADD_OR_REMOVE_ONE:
            said += "; measured for replace-one, whose noise is larger"
        yield row | {"records": records, "low": low, "high": high, "says": said}


def rho_within(guarantee: PrivacyGuarantee) -> float | None:
    """Return the rho that a zero-concentrated learner may spend; ``None`` where none keeps a pure guarantee.

    Under an approximate guarantee it is the largest that implies it, to a millionth.
    """
    if guarantee.rho is not None:
        return guarantee.rho
    if guarantee.form == "pure":
        return None
    allowed = guarantee.epsilon
    assert allowed is not None

    def is_within(log_rho: float) -> bool:
        stated = PrivacyGuarantee(rho=math.exp(log_rho), adjacency=guarantee.adjacency)
        try:
            epsilon = stated.to_approximate(guarantee.delta).epsilon
        except ArgumentError:  # so large a rho that it has no epsilon
            return False
        assert epsilon is not None
        return epsilon <= allowed

    low, high = -60.0, math.log(max(allowed, 1e-20)) + 3
    if not is_within(low):
        return None
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if is_within(middle) else (low, middle)
    return math.exp(low)
