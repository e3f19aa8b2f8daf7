"""Tables that somebody else published, as measurements: nested or repeated ones, and a law for each table or cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesprivmrf.checks import instance_of, refuse_masked, require
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.labeled import aligned
from bayesprivmrf.privacy import Gaussian, NoiseLaw, NoNoise
from bayesprivmrf.queries import Query, table, weighted
from bayesprivmrf.release.measurement import Measurement

# Largest distance from one of a sum of proportions that were rounded to two decimals, for up to four cells
_ROUNDED = 0.02


def as_scope(key: Any) -> tuple[Any, ...]:
    """Return the variables of a table's key: one variable stands for itself."""
    return key if isinstance(key, tuple) else (key,)


def measurements_of_tables(model: ModelSpecification, tables: Any, noise: Any) -> list[Measurement]:
    """Return the measurements of tables inside the cliques, in the order in which they were given.

    A mapping of one table for each clique, each with one law, is read in the order of the cliques and of their axes.
    """
    pairs = _pairs(tables)
    scopes = [scope for scope, _ in pairs]
    _refuse_uncovered(model, scopes)
    parts = []
    for (scope, values), (key, law) in zip(pairs, _laws(noise, scopes), strict=True):
        array = aligned(f"the table of {scope!r}", values, scope, _states(model, scope))
        parts.append((scope, array, _cell_laws(model, scope, key, law)))
    refuse_proportions([array for _, array, _ in parts])
    place = {frozenset(scope): position for position, scope in enumerate(scopes)}
    is_one_each = len(place) == len(scopes) and place.keys() == set(map(frozenset, model.cliques))
    if isinstance(tables, Mapping) and is_one_each and all(isinstance(law, NoiseLaw) for *_, law in parts):
        given = [(clique, *parts[place[frozenset(clique)]]) for clique in model.cliques]
        parts = [(c, array.transpose([scope.index(v) for v in c]), law) for c, scope, array, law in given]
    return [one for scope, array, law in parts for one in by_law(model, table(*scope), array.ravel(), law)]


def refuse_proportions(tables: Sequence[np.ndarray]) -> None:
    """Raise if the tables are proportions of the records: each has several cells from 0 to 1 that add up to one.

    Noisy counts look like that only by chance, and only where there is about one record.
    """
    several = [table for table in tables if table.size > 1]
    if several and all(
        ((table >= 0) & (table <= 1)).all() and (table % 1 != 0).any() and abs(table.sum() - 1) <= _ROUNDED
        for table in several
    ):
        raise ModelError(
            "the tables must hold counts, got proportions, which add up to one in each table; multiply the tables, "
            "and the scales of the noise, by the number of records."
        )


def _states(model: ModelSpecification, scope: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [model.domain.states_of(v) for v in scope]


def by_law(
    model: ModelSpecification, query: Query, values: np.ndarray, laws: NoiseLaw | Sequence[NoiseLaw]
) -> list[Measurement]:
    """Return measurements of a query whose rows may have laws of their own: one for each law.

    Parameters
    ----------
    model
        The declared model.
    query
        A query of one scope.
    values
        The noisy answers, shape (rows,).
    laws
        One law, or one a row.
    """
    if isinstance(laws, NoiseLaw):
        return [Measurement(query, values, laws)]
    rows: dict[NoiseLaw, list[int]] = {}
    for row, law in enumerate(laws):
        rows.setdefault(law, []).append(row)
    if len(rows) == 1:
        return [Measurement(query, values, next(iter(rows)))]
    bound = query.bind(model)
    (scope,) = bound.scopes
    return [
        Measurement(
            weighted(*scope, matrix=bound.matrix[held], labels=[bound.labels[row] for row in held]),
            values[held],
            law,
        )
        for law, held in rows.items()
    ]


def law_of_variance(family: type[NoiseLaw], variance: float) -> NoiseLaw:
    """Return a family's law of a variance; for a variance of zero, that of an exact number."""
    return NoNoise() if variance == 0 else family.of_variance(variance)


def _pairs(tables: Any) -> list[tuple[tuple[Any, ...], Any]]:
    if isinstance(tables, Mapping):
        return [(as_scope(key), array) for key, array in tables.items()]
    example = "write {('a', 'b'): table} or [(('a', 'b'), table), ...]"
    if isinstance(tables, str | bytes) or not isinstance(tables, Sequence):
        raise ArgumentError(f"`tables` must map scopes to arrays, got a {type(tables).__name__}; {example}.")
    for pair in tables:
        is_pair = isinstance(pair, tuple) and len(pair) == 2
        require(is_pair, "tables", "hold pairs of a scope and its table", f"a {type(pair).__name__}", example)
    return [(as_scope(key), array) for key, array in tables]


def _refuse_uncovered(model: ModelSpecification, scopes: Sequence[tuple[Any, ...]]) -> None:
    """Raise where a key lies in no clique, or a variable in no key."""
    for scope in scopes:
        if not any(set(scope) <= set(clique) for clique in model.cliques) or not scope:
            raise ModelError(
                f"`tables` holds {scope!r}, which is not a measured clique of the network, nor inside one; "
                f"those are {', '.join(map(repr, model.cliques))}."
            )
    told = {variable for scope in scopes for variable in scope}
    for clique in model.cliques:
        if not set(clique) <= told:
            raise ModelError(
                f"`tables` must have an entry for the clique {clique!r}, or tables inside it of all its variables, "
                "got none; `from_measurements` takes what tells nothing of some variables."
            )


def _laws(noise: Any, scopes: Sequence[tuple[Any, ...]]) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the given noise of each table, with the scope that defines the order of its axes."""
    if isinstance(noise, Mapping):
        return [_entry(noise, scope) for scope in scopes]
    if isinstance(noise, list | tuple):
        must = f"hold one law for each of the {len(scopes)} tables"
        remedy = "write one law for all tables, or map each scope to its own"
        require(len(noise) == len(scopes), "noise", must, len(noise), remedy)
        return list(zip(scopes, noise, strict=True))
    return [(scope, noise) for scope in scopes]


def _entry(noise: Mapping[Any, Any], scope: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    held = {key: law for key, law in noise.items() if set(as_scope(key)) == set(scope)}
    for key, law in sorted(held.items(), key=lambda item: as_scope(item[0]) != scope):
        if len(as_scope(key)) == len(scope):
            return as_scope(key), law
    raise ModelError(f"`noise` must have an entry for the table of {scope!r}, got none.")


def _cell_laws(
    model: ModelSpecification, scope: tuple[Any, ...], key: tuple[Any, ...], law: Any
) -> NoiseLaw | list[NoiseLaw]:
    """Return a table's law, or its cells' in C order of its scope; `law` has its axes in the order of `key`."""
    if isinstance(law, NoiseLaw):
        return law
    found = aligned(f"the laws or variances of {scope!r}", law, key, _states(model, key), _array)
    given = found.transpose([key.index(v) for v in scope]).ravel()
    if given.dtype.kind == "O":
        return [_checked_law(each) for each in given]
    variances = given.astype(float)
    if not (np.isfinite(variances) & (variances >= 0)).all():
        raise ArgumentError(
            f"the variances of {scope!r} must be finite and not negative, got another; 0 stands for an exact number."
        )
    laws = {variance: law_of_variance(Gaussian, variance) for variance in set(variances.tolist())}
    return [laws[variance] for variance in variances.tolist()]


def _array(what: str, laws: Any) -> np.ndarray:
    """Return an array of laws or of variances."""
    refuse_masked(what, laws)
    first = laws
    while isinstance(first, list | tuple) or (isinstance(first, np.ndarray) and first.ndim):
        first = first[0] if len(first) else None
    try:
        given = np.asarray(laws, dtype=object if isinstance(first, NoiseLaw) else None)
    except ValueError:
        raise ArgumentError(
            "`noise` must be a noise law, or an array of laws or of variances, got lists of unequal lengths."
        ) from None
    if given.dtype.kind not in "iufO" or given.ndim == 0:
        raise ArgumentError(
            f"`noise` must be a noise law, such as Laplace(scale=2.0), or an array of laws or of variances, got "
            f"{type(laws).__name__}."
        )
    return given


def _checked_law(law: Any) -> NoiseLaw:
    return instance_of("noise", law, NoiseLaw, "be a noise law, such as Laplace(scale=2.0)")
