"""Measured tables of an evidence: their names, their cells with noise, their densities and their replicates.

Trees and PyMC models name a dimension for each variable and a variable for each table; all names are different texts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from bayesprivmrf.escapes import printable
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.loglinear_fit.scale_prior import EffectsPrior
from bayesprivmrf.model import Domain
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.likelihood import Likelihood

# names that trees and PyMC models use for something else
_TAKEN = frozenset(
    ("chain", "draw", "sample", "cell", "noisy_cell", "effect", "order", "table", "total", "scale")
)


def dimension_names(domain: Domain, *, is_escaped: bool = True) -> tuple[str, ...]:
    """Return the name of each variable's dimension: ``str(variable)``, changed only if that would not work.

    Commas, slashes and brackets are replaced, and control characters escaped. A name that is empty or in use gets an
    underscore. Files of earlier versions have control characters in their names: read them with ``is_escaped=False``.

    Examples
    --------
    >>> dimension_names(Domain.from_states({"smokes": [0, 1], 7: [0, 1], "draw": [0, 1], "a/b": [0, 1]}))
    ('smokes', '7', 'draw_', 'a|b')
    """
    # names such as ``marginal[a,b]`` consist of these characters, and names in files cannot contain a slash
    replaced = str.maketrans({",": ";", "/": "|", "[": "(", "]": ")"})
    declared = {str(variable) for variable in domain.variables}
    names: list[str] = []
    for own in map(str, domain.variables):
        name = own.translate(replaced)
        name = printable(name) if is_escaped else name
        while not name or name in _TAKEN or name in names or (name != own and name in declared):
            name += "_"
        names.append(name)
    return tuple(names)


def state_labels(domain: Domain, position: int) -> np.ndarray:
    """Return the states of a variable as text, in declared order."""
    return np.array([printable(str(state)) for state in domain.states[position]], dtype=object)


def table_name(kind: str, names: Sequence[str], scope: Sequence[int]) -> str:
    """Return the name of a table in a tree.

    Examples
    --------
    >>> table_name("marginal", ("a", "b", "c"), (2, 0))
    'marginal[c,a]'
    """
    return f"{kind}[{','.join(names[v] for v in scope)}]"


def scaled_effects(prior: EffectsPrior, names: Sequence[str]) -> list[str]:
    """Return different labels for the learned scales: an effect such as ``a,b``, a part of one, or an order."""
    found: list[str] = []
    for order, scope in zip(prior.orders, prior.scopes, strict=True):
        _, _, part = str(order).partition(", ")
        effect = ",".join(names[v] for v in scope)
        if scope:
            label = effect + (f" ({part})" if part else "")
        else:
            label = f"order {order}"
        while label in found:
            label += "_"
        found.append(label)
    return found


def table_labels(evidence: Evidence, kind: str = "noisy_counts") -> list[str]:
    """Return the name of each measured table or query; repeated measurements are numbered from the second on."""
    names = dimension_names(evidence.specification.domain)
    labels: list[str] = []
    seen: dict[object, int] = {}
    for position, scope in enumerate(evidence.measured_scopes):
        if evidence.queries is not None:
            query = repr(evidence.queries[position].query)
        else:
            query = ""
        if scope is None:
            key = query
        else:
            key = frozenset(scope)
        if scope is None:
            name = f"{kind}[{query.replace('/', '|')}]"
        else:
            name = table_name(kind, names, scope)
        count = seen[key] = seen.get(key, 0) + 1
        labels.append(name + (f" {count}" if count > 1 else ""))
    return labels


def replicated_tables(
    evidence: Evidence, counts: FloatArray, rng: np.random.Generator
) -> list[FloatArray]:
    """Return replicated tables: numbers that the same likelihoods draw, given the counts.

    Under integer noise the counts are rounded first. Impossible cells are 0.
    """
    replicated = []
    for position, table in enumerate(evidence.answers(counts)):
        whole = answers_before_noise(evidence, position, table)
        noisy = drawn_numbers(evidence.noise[position], whole, rng)
        replicated.append(np.where(possible_cells(evidence, position), noisy, 0.0))
    return replicated


def log_likelihoods(evidence: Evidence, counts: FloatArray) -> dict[str, FloatArray]:
    """Return the log density of each noisy table given its latent counts, nats, shape (chain, draw).

    Under integer noise the counts are rounded first.
    """
    found = {}
    tables = zip(table_labels(evidence), evidence.answers(counts), strict=True)
    for position, (label, table) in enumerate(tables):
        mask = possible_cells(evidence, position)
        whole = answers_before_noise(evidence, position, table)[..., mask]
        numbers = published_table(evidence, position)[mask]
        density = evidence.noise[position].log_probability(numbers, whole)
        found[label] = density.sum(axis=-1)
    return found


def answers_before_noise(evidence: Evidence, position: int, counts: FloatArray) -> FloatArray:
    """Return the answers to which noise is added: rounded under integer noise, and unchanged otherwise."""
    if not evidence.noise[position].is_discrete:
        return counts
    if evidence.measured_scopes[position] is None:
        least = -np.inf
    else:
        least = 0.0
    return np.maximum(np.rint(counts), least)


def drawn_numbers(
    likelihood: Likelihood, counts: FloatArray, rng: np.random.Generator
) -> np.ndarray:
    """Draw published numbers given counts, one entry of the first axis at a time, which limits the memory."""
    drawn = np.empty(counts.shape)
    for first in range(len(counts)):
        drawn[first] = likelihood.draw_given(counts[first], rng)
    return drawn


def possible_cells(evidence: Evidence, position: int) -> np.ndarray:
    """Return the mask of the possible cells of a measured table, in the shape of the table."""
    start, stop = evidence.offsets[position : position + 2]
    return evidence.possible[start:stop].reshape(evidence.shapes[position])


def is_noisy(evidence: Evidence, position: int) -> bool:
    """Return True if a measurement has noise with mean 0, and is neither exact nor known within bounds."""
    likelihood = evidence.noise[position]
    return not (likelihood.is_exact or likelihood.is_bounded)


def published_table(evidence: Evidence, position: int) -> FloatArray:
    """Return one measured table with its published values."""
    start, stop = evidence.offsets[position : position + 2]
    return evidence.published[start:stop].reshape(evidence.shapes[position])


def has_zeros(evidence: Evidence, variables: Collection[int]) -> bool:
    """Return True if some clique that contains these variables has structural zeros.

    The distribution then determines only the possible cells, and not the zero-sum effects.
    """
    model = evidence.specification
    supported = evidence.supported
    if supported is None:
        return False
    return any(
        set(variables) <= set(scope) and not supported[start:stop].all()
        for scope, start, stop in zip(model.scopes, model.offsets, model.offsets[1:], strict=False)
    )
