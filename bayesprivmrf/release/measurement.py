"""Measurements: what was asked, what was answered with noise, and the distribution of that noise.

The number of records that noisy measurements tell.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesprivmrf.checks import instance_of, is_labeled, number_array, require, sides_of
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.domain import listed
from bayesprivmrf.model.labeled import aligned
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import NoiseLaw
from bayesprivmrf.queries import BoundQuery, Query, table


@dataclass(frozen=True, eq=False, kw_only=False)
class Measurement:
    """The noisy answers to one query.

    Parameters
    ----------
    query
        The query that was measured, such as ``bayesprivmrf.queries.table("age")``.
    values
        The noisy answers, one for each row of the query, in the order of its labels; shape (rows,). A DataFrame,
        Series, DataArray or mapping with labels may have another order: either the query's variables and their
        states, or the labels of its rows. It is aligned with the model when a release is made of it.
    noise
        The law of their noise; the rows' noise is independent.

    Raises
    ------
    ArgumentError
        An argument is of another type.
    ModelError
        The values are no finite numbers in one row, or not whole under a law of whole numbers.
    """

    query: Query
    values: np.ndarray
    noise: NoiseLaw

    def __post_init__(self) -> None:
        for name, kind in (("query", Query), ("noise", NoiseLaw)):
            if not isinstance(getattr(self, name), kind):
                raise ArgumentError(
                    f"`{name}` of a measurement must be a {kind.__name__}, got a "
                    f"{type(getattr(self, name)).__name__}; write Measurement(table('age'), values, Laplace(2.0))."
                )
        if is_labeled(self.values) or sides_of(self.values) is not None:
            object.__setattr__(self, "values", copy.deepcopy(self.values))
            return
        values = np.array(number_array("values", self.values), copy=True)
        if values.ndim != 1 or values.dtype.kind not in "iuf":
            raise ModelError(
                f"the values of {self.query!r} must be numbers in one row, got shape {values.shape} of "
                f"{values.dtype}; give a table as `table.ravel()`, axes as the query writes them."
            )
        check_answers(f"the values of {self.query!r}", values, self.noise)
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    def aligned(self, model: ModelSpecification) -> Measurement:
        """Return the measurement with its values as an array in the order of the query's rows.

        Raises
        ------
        ModelError
            The labels of the values are neither those of the query's axes nor those of its rows.
        """
        if isinstance(self.values, np.ndarray):
            return self
        what, (names, states) = f"the values of {self.query!r}", self.query._axes(model)
        try:
            return replace(self, values=aligned(what, self.values, names, states).ravel())
        except ModelError:
            if len(states) == 1 and not is_labeled(self.values):
                raise
            with suppress(ModelError):
                rows = self.query.bind(model).labels
                return replace(self, values=aligned(what, self.values, None, [rows]))
            raise


def check_answers(name: str, values: np.ndarray, noise: NoiseLaw) -> None:
    """Raise a `ModelError` where noisy numbers are not finite, or not whole under a law of whole numbers."""
    if not np.isfinite(values).all():
        raise ModelError(f"{name} must be finite, got NaN or infinity; leave out what was not answered.")
    if noise.is_discrete and not np.array_equal(values, np.rint(values)):
        if noise.name == "none":
            raise ModelError(
                f"{name} must be whole numbers, being exact counts; state the noise if there is some."
            )
        raise ModelError(
            f"{name} must be whole numbers under {noise.name} noise; state the continuous law if that is what "
            "was added."
        )


def measurements_of_cliques(
    model: ModelSpecification, tables: CliqueTables | None, noise: Sequence[NoiseLaw]
) -> list[Measurement]:
    """Return the measurements of one table for each clique.

    Raises
    ------
    ModelError
        The tables are those of another model, or there are more or fewer noise distributions than tables.
    """
    if tables is None or tables.cliques != model.cliques or tables.domain != model.domain:
        raise ModelError("`tables` must be those of `specification`; make them with `specification.tables`.")
    require(
        len(noise) == len(model.cliques),
        "noise",
        f"hold one law for each of the {len(model.cliques)} tables",
        str(len(noise)),
        error=ModelError,
    )
    parts = np.split(tables.flat, model.offsets[1:-1]) if model.cliques else []
    queries = [table(*clique) for clique in model.cliques]
    return [Measurement(*each) for each in zip(queries, parts, noise, strict=True)]


def measured_on(
    model: ModelSpecification, measurements: Any, bound: Sequence[BoundQuery] | None = None
) -> tuple[list[Measurement], np.ndarray, tuple[BoundQuery, ...] | None]:
    """Return measurements as they stand on a model, all their numbers, and their queries on the model.

    Where the measurements are the whole table of each clique, they are returned as such, and None in place of bound
    queries: nothing needs the matrices of whole tables. Numbers that count impossible cells alone are set to 0.

    Raises
    ------
    ArgumentError
        Something other than measurements is given.
    ModelError
        A query does not fit the model, or has another number of rows than there are values.
    """
    if isinstance(measurements, Measurement) or not isinstance(measurements, Iterable):
        raise ArgumentError(
            f"`measurements` must be a list of measurements, got a {type(measurements).__name__}; write [...]."
        )
    given = []
    for each in listed("`measurements`", measurements):
        remedy = "write Measurement(query, values, noise)"
        one = instance_of("measurements", each, Measurement, "hold measurements", remedy)
        given.append(one.aligned(model))
    sizes = np.diff(model.offsets).tolist()
    whole = [table(*clique) for clique in model.cliques]
    is_whole = [each.query for each in given] == whole
    if not is_whole:  # nor need whole tables be bound to learn that they are whole
        bound = tuple(each.query.bind(model) for each in given) if bound is None else tuple(bound)
        sizes = [*map(len, bound)]
        is_whole = tuple(query.scopes[0] if query.is_table else None for query in bound) == model.cliques
    for size, each in zip(sizes, given, strict=True):
        if size != len(each.values):
            raise ModelError(
                f"the values of {each.query!r} must be {size} numbers, one for each of its rows, got "
                f"{len(each.values)}."
            )
    if is_whole:
        given, bound = [replace(each, query=query) for each, query in zip(given, whole, strict=True)], None
    values = [each.values for each in given]
    flat = np.concatenate(values) if bound is None and values else np.concatenate([np.zeros(0), *values])
    informative = informative_numbers(model, bound)
    if flat[~informative].any():
        flat = np.where(informative, flat, 0)
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        given = [replace(each, values=part) for each, part in zip(given, parts, strict=True)]
    flat.flags.writeable = False
    return given, flat, None if bound is None else tuple(bound)


def informative_numbers(model: ModelSpecification, bound: Sequence[BoundQuery] | None) -> np.ndarray:
    """Return a mask of the numbers that count some possible cell; any other is 0, whoever the records are.

    Parameters
    ----------
    model
        The declared model.
    bound
        The queries on it; None for the table of each clique.
    """
    possible = model.possible
    if bound is None:
        return np.ones(model.size, bool) if possible is None else possible
    if possible is not None:
        return abs(stacked(bound, model.size)) @ possible > 0
    sums = [np.ravel(abs(query.matrix).sum(axis=1)) for query in bound]
    return np.concatenate([np.zeros(0), *sums]) > 0


def stacked(bound: Sequence[BoundQuery], size: int) -> Any:
    """Return the matrices of queries on the cells of all the model's tables, one below the other."""
    from scipy.sparse import csr_array, vstack

    blocks = [query.in_cliques for query in bound]
    return vstack(blocks, format="csr").astype(float) if blocks else csr_array((0, size))


def told_totals(
    measurements: Sequence[Measurement], bound: Sequence[BoundQuery] | None, informative: np.ndarray
) -> tuple[FloatArray, FloatArray]:
    """Return the number of records by each measurement that tells it, and its precision; infinite for an exact one.

    Queries of one scope, none of which tells the number by itself, may tell it together; these come first. A count
    within bounds tells nothing, as its midpoint is no estimate.

    Parameters
    ----------
    measurements
        What was measured.
    bound
        The queries on the model; None where each is a whole table.
    informative
        The numbers that count some possible cell: others have no noise.
    """
    masks = np.split(informative, np.cumsum([each.values.size for each in measurements]))[:-1]
    alone, scopes = [], {}
    for position, (one, mask) in enumerate(zip(measurements, masks, strict=True)):
        if one.noise.kernel == "within":
            continue
        if bound is None:
            alone.append(_estimate(float(one.values.sum()), float(mask.sum()) * one.noise.variance, one))
        elif (weights := bound[position].total_weights) is not None:
            squares = float(weights[mask] @ weights[mask])
            alone.append(_estimate(float(weights @ one.values), squares * one.noise.variance, one))
        elif len(bound[position].scopes) == 1:
            scopes.setdefault(bound[position].scopes[0], []).append((one, mask, bound[position].matrix))
    together = [found for rows in scopes.values() if (found := _of_one_scope(rows)) is not None]
    found = np.array(together + alone, dtype=float).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _estimate(total: float, variance: float, one: Measurement) -> tuple[float, float]:
    """Return an estimate and its precision; an exact number of records is whole but for rounding."""
    is_exact = not one.noise.variance > 0
    return round(total, 6) if is_exact else total, 1 / variance if variance > 0 else math.inf


def _of_one_scope(rows: Sequence[tuple[Measurement, np.ndarray, Any]]) -> tuple[float, float] | None:
    r"""Return what rows of one scope, none of whose queries does alone, tell of the number of records.

    Among the sums :math:`w'y` with :math:`A'w = 1` the one of least variance :math:`\sum_i w_i^2 σ_i^2` has
    :math:`w = V^{-1/2} z` with z of least norm in :math:`A' V^{-1/2} z = 1`. An exact row counts as one of a
    hundred-millionth of the largest variance.
    """
    from scipy.sparse import diags_array, vstack
    from scipy.sparse.linalg import lsqr

    values = np.concatenate([one.values.astype(float) for one, _, _ in rows])
    mask = np.concatenate([mask for _, mask, _ in rows])
    variances = np.concatenate([np.full(one.values.size, one.noise.variance) for one, _, _ in rows])
    widths = np.sqrt(np.maximum(variances, 1e-8 * variances.max() or 1.0))
    columns = vstack([matrix for _, _, matrix in rows]).T.tocsr().astype(float)
    scaled = columns @ diags_array(1 / widths)
    weights = lsqr(scaled, np.ones(columns.shape[0]), atol=1e-14, btol=1e-14)[0] / widths
    # the rows tell the number of records only if each record counts once in their weighted sum
    if np.abs(columns @ weights - 1).max() > 1e-9:
        return None
    variance = float(np.square(weights[mask]) @ variances[mask])
    total = float(weights @ values)
    return (total, 1 / variance) if variance > 0 else (round(total, 6), math.inf)


def pooled_total(sums: FloatArray, precisions: FloatArray) -> float:
    """Return the unbiased combination of least variance; the first exact one where there is one, NaN for none."""
    if not len(sums):
        return math.nan
    if np.isinf(precisions).any():
        return float(sums[np.isinf(precisions)][0])
    return float(sums @ precisions / precisions.sum())
