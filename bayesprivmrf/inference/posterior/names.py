"""Names of variables in trees and PyMC models: text, one dimension a variable, no two alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayesprivmrf.inference.noise_aware.effects_prior import EffectsPrior
from bayesprivmrf.model import Domain

_TAKEN = frozenset(
    {"chain", "draw", "sample", "cell", "noisy_cell", "effect", "order", "table", "total", "scale"}
)
_REPLACED = str.maketrans({",": ";", "/": "|", "[": "(", "]": ")"})


def dimension_names(domain: Domain) -> tuple[str, ...]:
    """Name of each variable's dimension: ``str(variable)``, changed only where that would not work.

    Commas, slashes and brackets are replaced, for names such as ``marginal[a,b]`` are made of them and files
    cannot hold a slash; a name that is empty or in use gets an underscore.

    Examples
    --------
    >>> dimension_names(Domain.from_states({"smokes": [0, 1], 7: [0, 1], "draw": [0, 1], "a/b": [0, 1]}))
    ('smokes', '7', 'draw_', 'a|b')
    """
    declared = {str(variable) for variable in domain.variables}
    names: list[str] = []
    for own in map(str, domain.variables):
        name = own.translate(_REPLACED)
        while not name or name in _TAKEN or name in names or (name != own and name in declared):
            name += "_"
        names.append(name)
    return tuple(names)


def state_labels(domain: Domain, position: int) -> np.ndarray:
    """States of a variable as text, in declared order."""
    return np.array([str(state) for state in domain.states[position]], dtype=object)


def table_name(kind: str, names: Sequence[str], scope: Sequence[int]) -> str:
    """Name of a table in a tree.

    Examples
    --------
    >>> table_name("marginal", ("a", "b", "c"), (2, 0))
    'marginal[c,a]'
    """
    return f"{kind}[{','.join(names[v] for v in scope)}]"


def scaled_effects(prior: EffectsPrior, names: Sequence[str]) -> list[str]:
    """What each learned scale is that of: an effect such as ``a,b``, a part of one, or an order; no two alike."""
    found: list[str] = []
    for order, scope in zip(prior.orders, prior.scopes, strict=True):
        _, _, part = str(order).partition(", ")
        effect = ",".join(names[v] for v in scope)
        label = (effect + (f" ({part})" if part else "")) if scope else f"order {order}"
        while label in found:
            label += "_"
        found.append(label)
    return found
