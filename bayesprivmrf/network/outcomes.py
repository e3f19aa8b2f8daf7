"""Conversion of a network's outcomes to spins -1 and +1, for declared states."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bayesprivmrf.checks import require, sides_of
from bayesprivmrf.errors import ArgumentError, DataError, UndeclaredStateError
from bayesprivmrf.model.domain import label_key

_require = partial(require, error=DataError)

# remedy for nodes without an outcome, in two messages
_WITHOUT_OUTCOME = (
    "the library never infers from the data which nodes lack an outcome. If that is public, pass the outcomes of "
    "`network.subnetwork(nodes)`, with the nodes that have one; if not, give the others one of the two states by "
    "a rule that is fixed beforehand"
)


def read_spins(
    outcomes: Any, nodes: Sequence[Hashable], positive: Any, negative: Any
) -> np.ndarray:
    """Return the outcomes as an int8 array of -1 and +1 in the order of the nodes.

    Raises
    ------
    ArgumentError
        Only one state is declared, or both are the same.
    DataError
        A node has no outcome, or a name is not a node of the network.
    UndeclaredStateError
        An outcome is missing, or is not one of the two states.
    """
    spin_of = _states(positive, negative)
    values = _in_node_order(outcomes, nodes)
    spins = np.fromiter(
        (_spin(spin_of, value) for value in values), dtype=np.int8, count=len(values)
    )
    if not spins.all():
        kinds = sorted({type(label).__name__ for _, label in spin_of})
        states = " and ".join(repr(label) for _, label in spin_of)
        raise UndeclaredStateError(
            f"`outcomes` must be in the two declared states, {states} (of type {' and '.join(kinds)}), but some "
            "are missing or in neither; recode them, or declare the states by `positive` and `negative`. If some "
            f"are missing, {_WITHOUT_OUTCOME}."
        )
    return spins


def _states(positive: Any, negative: Any) -> dict[tuple[bool, Any], int]:
    """Return the spin of each declared state."""
    if positive is None and negative is None:
        return {label_key(1): 1, label_key(-1): -1}
    both = "`positive` and `negative`"
    got = "only one"
    remedy = "name both states, because the other is never inferred from the data"
    require(
        positive is not None and negative is not None, both, "be declared together", got, remedy
    )
    try:
        spin_of = {label_key(positive): 1, label_key(negative): -1}
        is_missing = bool(positive != positive or negative != negative)
    except (TypeError, ValueError):
        kinds = f"{type(positive).__name__} and {type(negative).__name__}"
        raise ArgumentError(
            f"{both} must be states, text or numbers, got {kinds}; declare two values."
        ) from None
    require(not is_missing, both, "be states", "a missing value", "name the state")
    require(len(spin_of) >= 2, both, "be two different states", "one state twice")
    return spin_of


def _spin(spin_of: Mapping[tuple[bool, Any], int], value: Any) -> int:
    """Return the spin of a value, or 0 if it is not a declared state."""
    try:
        return spin_of.get(label_key(value), 0)
    except TypeError:  # not hashable, so not a declared state
        return 0


def _in_node_order(outcomes: Any, nodes: Sequence[Hashable]) -> list[Any]:
    """Return the outcomes in the order of the nodes."""
    form = "be a mapping, a series or an array with one entry per node"
    _require(not isinstance(outcomes, str | bytes), "outcomes", form, "text")
    sides = sides_of(outcomes)
    if sides is not None:
        _require(
            len(sides) == 1,
            "outcomes",
            "be one column",
            "a whole table",
            "select the outcome's column",
        )
        levels = [labels for _, labels in sides[0]]
        if hasattr(outcomes, "tolist"):
            values = outcomes.tolist()
        else:
            values = outcomes.values.tolist()
        outcomes = values
        if levels != [None]:  # all but a DataArray without coordinates
            if len(levels) == 1:
                names = levels[0]
            else:
                names = zip(*levels, strict=True)
            outcomes = dict(zip(names, values, strict=True))
            once = len(outcomes) == len(values)
            _require(
                once,
                "outcomes",
                "have one entry per node",
                "several where some nodes repeat",
                "keep one row",
            )
    if isinstance(outcomes, Mapping):
        keyed = {label_key(name): outcome for name, outcome in outcomes.items()}
        wanted = [label_key(node) for node in nodes]
        got = "entries of which some names are not nodes (text and numbers are different names)"
        remedy = "drop them, or add them to the network by `nodes=`"
        _require(
            keyed.keys() <= set(wanted), "outcomes", "be for nodes of the network", got, remedy
        )
        complete = len(keyed) == len(nodes)
        _require(
            complete, "outcomes", "have an entry for every node", "none for some", _WITHOUT_OUTCOME
        )
        return [keyed[key] for key in wanted]
    dimensions = getattr(outcomes, "ndim", 1)
    _require(dimensions == 1, "outcomes", "be one-dimensional", f"{dimensions} dimensions")
    to_list = getattr(outcomes, "to_list", None) or getattr(outcomes, "tolist", None)
    try:
        if to_list:
            values = to_list()
        else:
            values = list(outcomes)
    except TypeError:
        raise DataError(f"`outcomes` must {form}, got {type(outcomes).__name__}.") from None
    must = f"have one entry for each of the {len(nodes)} nodes, in their order"
    remedy = "pass a mapping from node to outcome if the order differs from the network's"
    _require(len(values) == len(nodes), "outcomes", must, "another number", remedy)
    return values


def checked_spins(spins: Any, size: int) -> np.ndarray:
    """Return spins as int8, shape (n,) or (k, n).

    Raises
    ------
    DataError
        The last dimension is not `size`, or an entry is neither -1 nor +1.
    """
    try:
        array: Any = np.empty((), object) if sides_of(spins) is not None else np.asarray(spins)
    except ValueError:  # rows differ in length
        array = np.empty((), object)
    plain = array.dtype.kind in "iuf" and array.ndim in (1, 2) and array.shape[-1] == size
    must = f"be -1 and +1 in a plain array of shape (n,) or (k, n), n = {size}"
    got = f"a {type(spins).__name__}{f' of shape {array.shape}' * bool(array.shape)}"
    _require(plain, "spins", must, got, "make it with `spins(outcomes)`")
    units = ((array == 1) | (array == -1)).all()
    _require(units, "spins", "be -1 or +1 in every entry", "others", "use `spins(outcomes)`")
    return array.astype(np.int8, copy=False)
