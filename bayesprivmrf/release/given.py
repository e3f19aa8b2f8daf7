"""Measurements of tables that somebody else published.

Tables may nest or repeat, and each table or each cell may have its own noise distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayesprivmrf.checks import instance_of, refuse_masked, require, sides_of
from bayesprivmrf.errors import ArgumentError, ConsistencyWarning, ModelError, warn_caller
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.labels import aligned, cells_in_order, is_fully_labeled
from bayesprivmrf.noise.likelihood import Likelihood
from bayesprivmrf.noise.rule_checks import check_identity
from bayesprivmrf.privacy import Gaussian, NoiseDistribution, NoNoise
from bayesprivmrf.queries import Query, table, weighted
from bayesprivmrf.queries.query import measured_model
from bayesprivmrf.release.measurement import Measurement


def as_scope(key: Any) -> tuple[Any, ...]:
    """Return the variables of a table's key, which may be a single variable."""
    return key if isinstance(key, tuple) else (key,)


def holding(model: ModelSpecification, tables: Any) -> ModelSpecification:
    """Return a declared model over the tables that hold its cliques and all given scopes of its variables."""
    scopes = [scope for scope, _ in _pairs(tables)]
    beyond = [
        table(*scope)
        for scope in scopes
        if scope and all(v in model.domain for v in scope) and len(set(scope)) == len(scope)
    ]
    return measured_model(model, beyond)


def measurements_of_tables(
    model: ModelSpecification, tables: Any, noise: Any, total: int | None = None
) -> list[Measurement]:
    """Return the measurements of tables inside the cliques, in the given order.

    A mapping with one table for each clique, each with one noise distribution, is read in the order of the cliques
    and of their axes. The empty scope is the number of all records. `total` is the public one.
    """
    pairs = _pairs(tables)
    scopes = [scope for scope, _ in pairs]
    # Raise an error if a key lies in no clique, or a variable is in no key
    for scope in scopes:
        is_inside = any(set(scope) <= set(clique) for clique in model.cliques)
        must = "hold tables of measured cliques of the network, or inside one"
        remedy = f"the cliques are {', '.join(map(repr, model.cliques))}"
        require(is_inside, "tables", must, scope, remedy, error=ModelError)
    covered = {variable for scope in scopes for variable in scope}
    for clique in model.cliques:
        must = f"have an entry for the clique {clique!r}, or tables inside it of all its variables"
        remedy = "`from_measurements` accepts tables that leave out variables"
        require(set(clique) <= covered, "tables", must, "none", remedy, error=ModelError)
    parts = []
    for (scope, values), (key, given) in zip(pairs, _table_noise(noise, scopes), strict=True):
        array = aligned(
            f"the table of {scope!r}", values, scope, [*map(model.domain.states_of, scope)]
        )
        cells = _cell_noise(model, scope, values, key, given)
        parts.append((scope, array, _shown_exactly(cells, array.ravel())))
    refuse_proportions([array for _, array, _ in parts], total)
    place = {frozenset(scope): position for position, scope in enumerate(scopes)}
    is_one_each = len(place) == len(scopes) and place.keys() == set(map(frozenset, model.cliques))
    if (
        isinstance(tables, Mapping)
        and is_one_each
        and not any(isinstance(each, list) for *_, each in parts)
    ):
        ordered = [(clique, *parts[place[frozenset(clique)]]) for clique in model.cliques]
        parts = [
            (c, array.transpose([scope.index(v) for v in c]), each)
            for c, scope, array, each in ordered
        ]
    return [
        one
        for scope, array, each in parts
        for one in measurements_by_noise(model, _query_of(model, scope), array.ravel(), each)
    ]


def _query_of(model: ModelSpecification, scope: tuple[Any, ...]) -> Query:
    """Return the query of a table; that of the empty scope counts all records."""
    if scope:
        return table(*scope)
    first = model.domain.variables[0]
    states = model.domain.states_of(first)
    return weighted(first, matrix=np.ones((1, len(states)), dtype=np.int64), labels=["all"])


def _shown_exactly(
    noise: Likelihood | list[Likelihood], published: np.ndarray
) -> Likelihood | list[Likelihood]:
    """Return the likelihood of each cell of a table where a rule, such as suppression, shows some cells exactly."""
    if not isinstance(noise, list):
        return noise.of_cells(published) or noise
    cells = []
    for law, number in zip(noise, published, strict=True):
        cells += law.of_cells(np.array([number])) or [law]
    return cells


def refuse_proportions(tables: Sequence[np.ndarray], total: int | None) -> None:
    """Raise an error if the tables are proportions of the records, and warn if they look like percentages.

    Proportions add up to one in each table that has several cells. Noisy counts do so only by chance, and only if
    there is about one record. Percentages add up to 100. So may noisy counts of about 100 records, for which this
    is a warning; it is silent if the public number of records is 100.

    Warns
    -----
    ConsistencyWarning
        The tables look like percentages.
    """
    several = [table for table in tables if table.size > 1]
    # two hundredths: four cells that were rounded to two decimals
    is_shares = several and all(_adds_up_to(1.0, table, 0.02) for table in several)
    must = "hold counts"
    seen = "proportions, which add up to one in each table"
    remedy = "multiply the tables, and the scales of the noise, by the number of records"
    require(not is_shares, "the tables", must, seen, remedy, error=ModelError)
    # the same for four cells that were rounded to one decimal
    if (
        several
        and not (isinstance(total, int) and total == 100)
        and all(_adds_up_to(100.0, table, 0.2) for table in several)
    ):
        warn_caller(
            "the tables look like percentages, because each adds up to 100 with cells that are not whole, and they "
            "are read as counts of about 100 records. If they are percentages, multiply the tables and the scales of "
            "the noise by the number of records over 100; if there are 100 records, state total=100.",
            ConsistencyWarning,
        )


def _adds_up_to(whole: float, table: np.ndarray, rounding: float) -> bool:
    """Return True if the cells are shares of a whole, up to the rounding of their sum, and not all integers."""
    is_inside = ((table >= 0) & (table <= whole)).all()
    return bool(is_inside and (table % 1 != 0).any() and abs(table.sum() - whole) <= rounding)


def measurements_by_noise(
    model: ModelSpecification,
    query: Query,
    values: np.ndarray,
    noise: Likelihood | list[Likelihood],
) -> list[Measurement]:
    """Return one measurement for each noise distribution among the rows of a query.

    Parameters
    ----------
    model
        The declared model.
    query
        A query of one scope.
    values
        The noisy answers, shape (rows,).
    noise
        The noise distribution, or likelihood, of all rows; or a list with that of each row.
    """
    if not isinstance(noise, list):
        return [Measurement(query, values, noise)]
    rows: dict[Likelihood, list[int]] = {}
    for row, distribution in enumerate(noise):
        rows.setdefault(distribution, []).append(row)
    if len(rows) == 1:
        return [Measurement(query, values, next(iter(rows)))]
    bound = query.bind(model)
    (scope,) = bound.scopes
    return [
        Measurement(
            weighted(
                *scope, matrix=bound.matrix[chosen], labels=[bound.labels[row] for row in chosen]
            ),
            values[chosen],
            distribution,
        )
        for distribution, chosen in rows.items()
    ]


def noise_of_variance(family: type[NoiseDistribution], variance: float) -> NoiseDistribution:
    """Return the distribution of a family that has a variance; a variance of zero stands for an exact number."""
    if variance == 0:
        return NoNoise()
    return family.of_variance(variance)


def _pairs(tables: Any) -> list[tuple[tuple[Any, ...], Any]]:
    if isinstance(tables, Mapping):
        return [(as_scope(key), array) for key, array in tables.items()]
    example = "write {('a', 'b'): table} or [(('a', 'b'), table), ...]"
    is_list = isinstance(tables, Sequence) and not isinstance(tables, str | bytes)
    require(is_list, "tables", "map scopes to arrays", f"a {type(tables).__name__}", example)
    for pair in tables:
        is_pair = isinstance(pair, tuple) and len(pair) == 2
        require(
            is_pair,
            "tables",
            "hold pairs of a scope and its table",
            f"a {type(pair).__name__}",
            example,
        )
    return [(as_scope(key), array) for key, array in tables]  # type: ignore[misc]


def _table_noise(
    noise: Any, scopes: Sequence[tuple[Any, ...]]
) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the given noise of each table, with the scope that defines the order of its axes."""
    if isinstance(noise, list | tuple):
        must = f"hold one distribution for each of the {len(scopes)} tables"
        remedy = "give one distribution for all tables, or map each scope to its own"
        require(len(noise) == len(scopes), "noise", must, len(noise), remedy)
        return list(zip(scopes, noise, strict=True))
    if not isinstance(noise, Mapping):
        return [(scope, noise) for scope in scopes]
    found = []
    for scope in scopes:
        same = [key for key in noise if set(as_scope(key)) == set(scope)]
        keys = [key for key in same if len(as_scope(key)) == len(scope)]
        must = f"have an entry for the table of {scope!r}"
        require(keys, "noise", must, "none", error=ModelError)
        # a key in the order of the scope comes first
        key = min(keys, key=lambda each: as_scope(each) != scope)
        found.append((as_scope(key), noise[key]))
    return found


def _cell_noise(
    model: ModelSpecification, scope: tuple[Any, ...], values: Any, key: tuple[Any, ...], given: Any
) -> Likelihood | list[Likelihood]:
    """Return the noise distribution of a table, or a list of those of its cells, in C order of its scope.

    The axes of the given noise are in the order of `key`. An array without labels beside a labeled table could be in
    declared order or in the order of the table. It is refused unless these are the same, or all cells have the same
    noise.
    """
    if isinstance(given, Likelihood):
        return given
    array = aligned(
        f"the distributions or variances of {scope!r}",
        given,
        key,
        [*map(model.domain.states_of, key)],
        _array,
    )
    for each in array.flat:
        if isinstance(each, Likelihood):
            check_identity(each)
    is_alike = (array == array.flat[0]).all()
    is_clear = (
        is_alike or is_fully_labeled(given) or not _is_moved(model, scope, values, key, given)
    )
    must = "be labeled as its table is, because the labels of the table are in another order than declared"
    remedy = "give it the labels of the table, or give both as arrays in declared order"
    seen = "an array without labels"
    require(is_clear, f"the noise of {scope!r}", must, seen, remedy, error=ModelError)
    cells = array.transpose([key.index(v) for v in scope]).ravel()
    if cells.dtype.kind == "O":
        must = "be a noise distribution, such as Laplace(scale=2.0)"
        return [instance_of("noise", each, Likelihood, must) for each in cells]
    variances = cells.astype(float)
    is_right = (np.isfinite(variances) & (variances >= 0)).all()
    remedy = "0 stands for an exact number"
    require(
        is_right, f"the variances of {scope!r}", "be finite and not negative", "another", remedy
    )
    known = {
        variance: noise_of_variance(Gaussian, variance) for variance in set(variances.tolist())
    }
    return [known[variance] for variance in variances.tolist()]


def _is_moved(
    model: ModelSpecification, scope: tuple[Any, ...], values: Any, key: tuple[Any, ...], given: Any
) -> bool:
    """Return True if a table has labels and its cells are in another order than those of its noise.

    Axes may be in another order if the noise states theirs, by a key in another order or by names.
    """
    if not isinstance(values, Mapping) and sides_of(values) is None:
        return False
    what = f"the table of {scope!r}"
    states = model.domain.states_of
    own = cells_in_order(what, values, scope, [*map(states, scope)])
    own = own.transpose([scope.index(v) for v in key])
    noise = cells_in_order(what, given, key, [*map(states, key)])
    named = {str(name) for side in sides_of(given) or () for name, _ in side}
    if key == scope and named.isdisjoint(map(str, key)):
        return not np.array_equal(own, noise)
    # the positions of cells grow along an axis in the order of its labels
    return any(
        not np.array_equal(own.argsort(axis), noise.argsort(axis)) for axis in range(own.ndim)
    )


def _array(what: str, noise: Any) -> np.ndarray:
    """Return an array of noise distributions or of variances."""
    refuse_masked(what, noise)
    first = noise
    while isinstance(first, list | tuple) or (isinstance(first, np.ndarray) and first.ndim):
        first = first[0] if len(first) else None
    must = "be a noise distribution, such as Laplace(scale=2.0), or an array of distributions or of variances"
    try:
        given = np.asarray(noise, dtype=object if isinstance(first, Likelihood) else None)
    except ValueError:
        raise ArgumentError(f"`noise` must {must}, got lists of unequal lengths.") from None
    is_array = given.dtype.kind in "iufO" and given.ndim
    require(is_array, "noise", must, type(noise).__name__)
    return given
