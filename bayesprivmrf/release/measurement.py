"""Measurements: a query, its noisy answers and the distribution of the noise.

The module also checks the measurements of a release against its model, estimates the number of records from them, and
converts them to the content of files: the model, the noise distributions, and the queries unless they are the table
of each clique.
"""

from __future__ import annotations

import copy
import math
import reprlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bayesprivmrf.checks import instance_of, is_labeled, number_array, require, sides_of
from bayesprivmrf.errors import ModelError, PrivacyError
from bayesprivmrf.files import Json
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.domain import label_key, listed
from bayesprivmrf.model.labels import aligned
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.noise.base import check_variance
from bayesprivmrf.noise.likelihood import Likelihood
from bayesprivmrf.noise.rule_checks import check_identity, check_rule
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee, noise_from_dict
from bayesprivmrf.queries import BoundQuery, Query, table
from bayesprivmrf.release.base import Provenance
from bayesprivmrf.release.codec import (
    Fields,
    PersonRows,
    domain_content,
    model_content,
    numbers,
    query_content,
    restored_domain,
    restored_model,
    restored_query,
)


class NoTablesError(ModelError, AttributeError):
    """Error for the `tables` of a release without tables; ``hasattr`` returns False, as for any missing attribute."""


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """The release from which measurements were taken: its promise, and what the promise rests on."""

    guarantee: PrivacyGuarantee | None
    provenance: Provenance
    person_rows: PersonRows | None
    model: ModelSpecification
    """The declared model: the guarantee is for records of its domain that respect its structural zeros."""


@dataclass(frozen=True, eq=False, kw_only=False)
class Measurement:
    """Noisy answers to one query.

    Parameters
    ----------
    query
        The query that was measured, such as ``bayesprivmrf.queries.table("age")``.
    values
        The noisy answers, one for each row of the query, in the order of its labels; shape (rows,). A DataFrame,
        Series, DataArray or mapping has labels: either the variables of the query and their states, or the labels of
        its rows. It may be in any order, and is aligned with the model when a release is made of the measurement.
    noise
        The distribution of the noise, or another likelihood of the values given the counts
        (`bayesprivmrf.noise.Likelihood`). Different rows are independent given the counts.

    Raises
    ------
    ArgumentError
        An argument has another type.
    ModelError
        The values are not finite numbers in one row, are not whole although the noise is, or no count allows them;
        or a method of your own likelihood returns something impossible, such as NaN.

    Examples
    --------
    >>> import bayesprivmrf as bpm
    >>> from bayesprivmrf.privacy import Laplace
    >>> from bayesprivmrf.queries import parities, table
    >>> network = bpm.declare({"smokes": ["no", "yes"], "ill": ["no", "yes"]}, [("smokes", "ill")])
    >>> release = bpm.NoisyStatistics.from_measurements(
    ...     network,
    ...     [bpm.Measurement(table("ill"), [81.0, 17.5], Laplace(2)),
    ...      bpm.Measurement(parities(2), [99.0, -20.5, -62.0, 30.0], Laplace(4))],
    ... )
    >>> round(release.estimated_total, 2)
    98.67
    """

    query: Query
    values: np.ndarray
    noise: Likelihood
    # The release that holds the measurement. It is no field, because `replace` may change the numbers.
    _origin = None  # type: Origin | None

    def __post_init__(self) -> None:
        remedy = "write Measurement(table('age'), values, Laplace(2.0))"
        instance_of("`query` of a measurement", self.query, Query, "be a Query", remedy)
        must = "be a NoiseDistribution"  # or a rule, which the remedy need not teach
        instance_of("`noise` of a measurement", self.noise, Likelihood, must, remedy)  # type: ignore[type-abstract]
        check_identity(self.noise)
        if is_labeled(self.values) or sides_of(self.values) is not None:
            _require_some(self.query, self.values)
            object.__setattr__(self, "values", _copied(self.query, self.values))
            return
        values = np.array(number_array("values", self.values), copy=True)
        must = "be numbers in one row"
        seen = f"shape {values.shape} of {values.dtype}"
        remedy = "give a table as `table.ravel()`, with its axes in the order of the query"
        is_row = values.ndim == 1 and values.dtype.kind in "iuf"
        require(is_row, f"the values of {self.query!r}", must, seen, remedy, error=ModelError)
        _require_some(self.query, values)
        check_answers(f"the values of {self.query!r}", values, self.noise)
        values.flags.writeable = False
        object.__setattr__(self, "values", values)

    def _of(self, origin: Origin) -> Measurement:
        """Return the measurement as one of a release."""
        stamped = copy.copy(self)
        object.__setattr__(stamped, "_origin", origin)
        return stamped

    def aligned(self, model: ModelSpecification) -> Measurement:
        """Return the measurement with its values as an array in the order of the query's rows.

        Raises
        ------
        ModelError
            The labels of the values are neither those of the query's axes nor those of its rows.
        """
        instance_of(
            "model", model, ModelSpecification, "be a ModelSpecification", "see its `from_pgmpy`"
        )
        if isinstance(self.values, np.ndarray):
            return self
        what = f"the values of {self.query!r}"
        (names, states) = self.query._axes(self.query._asked_of(model))
        try:
            return replace(self, values=aligned(what, self.values, names, states).ravel())
        except ModelError:
            if len(states) == 1 and not is_labeled(self.values):
                raise
            with suppress(ModelError):
                rows = self.query.bind(model).labels
                return replace(self, values=aligned(what, self.values, None, [rows]))
            raise


def require_same_rows(measurements: Iterable[Measurement], model: ModelSpecification) -> None:
    """Raise a `ModelError` if the answers of another release would count other states in a model.

    The answers are numbers in the order of the states that the release declares.
    """
    for each in measurements:
        if each._origin is None:
            old = None
        else:
            old = each._origin.model
        if old is None or old is model or not isinstance(each.values, np.ndarray):
            continue
        what = f"the measurement {each.query!r} of another release"
        remedy = "declare the same"
        scope = getattr(each.query, "scope", None)
        if scope is None:  # such as all pairs, which depend on the model
            asked = each.query.bind(model)
            must = "have the rows that it has there"
            is_same = asked.labels == each.query.bind(old).labels
            require(is_same, what, must, "others in this model", remedy, error=ModelError)
            scope = dict.fromkeys(v for one in asked.scopes for v in one)
        for variable in scope:
            own = old.domain.states_of(variable)
            new = model.domain.states_of(variable)
            must = f"have the states of {variable!r} that are declared there, {reprlib.repr(list(own))}"
            is_same = [*map(label_key, own)] == [*map(label_key, new)]
            seen = reprlib.repr(list(new))
            require(is_same, what, must, seen, f"{remedy}, in this order", error=ModelError)


def _require_some(query: Query, values: Any) -> None:
    """Raise an error if the answers to a query are empty."""
    remedy = "leave out a query that was not answered"
    require(
        len(values),
        f"the values of {query!r}",
        "be at least one number",
        "none",
        remedy,
        error=ModelError,
    )


def _copied(query: Query, values: Any) -> Any:
    """Return a copy of labeled values, which the caller may change later."""
    try:
        return copy.deepcopy(values)
    except TypeError as error:  # iterators and the like, which are no numbers
        raise ModelError(
            f"the values of {query!r} must be numbers, got labels of others ({error})."
        ) from None


def check_answers(name: str, values: np.ndarray, noise: Likelihood) -> None:
    """Raise a `ModelError` if numbers are not finite, not whole under integer noise, or allowed by no count.

    A rule of another package is refused if its methods cannot be right at these numbers.
    """
    remedy = "leave out what was not answered"
    if noise.name == "suppressed":
        remedy = "write -1 for a count that was suppressed"
    require(
        np.isfinite(values).all(), name, "be finite", "NaN or infinity", remedy, error=ModelError
    )
    if noise.is_discrete:
        must = f"be whole numbers under {noise.name} noise"
        remedy = "state the continuous distribution if its noise was added"
        if noise.name == "none":
            must = "be whole numbers, because they are exact counts"
            remedy = "state the noise if there is any"
        is_whole = np.array_equal(values, np.rint(values))
        require(is_whole, name, must, "others", remedy, error=ModelError)
    if not noise.is_additive:  # added noise allows every count, or the count itself
        check_rule(noise, name, np.asarray(values, dtype=float))


def check_counted(query: Query, matrix: Any, noise: Likelihood) -> None:
    """Raise a `ModelError` unless a query has counts as answers, if the likelihood applies only to counts."""
    if noise.is_additive:
        return
    entries = matrix.tocoo().data
    is_count = bool(((entries >= 0) & (entries == np.rint(entries))).all())
    must = f"count records, because the rule {noise.name!r} applies to counts"
    seen = "one that subtracts records, or counts shares of them"
    remedy = "use the rule for tables and sums of their cells"
    require(is_count, f"the query {query!r}", must, seen, remedy, error=ModelError)


def check_promise(
    guarantee: PrivacyGuarantee | None,
    noise: Iterable[tuple[str, Likelihood]],
    total: int | None,
) -> None:
    """Raise an error if the noise or the public number of records contradicts a guarantee.

    Noise without a finite variance is refused with or without a guarantee.

    Parameters
    ----------
    guarantee
        The privacy guarantee; None if there is none.
    noise
        Pairs of a measurement's name and its noise distribution.
    total
        The public number of records; None if it is not public.
    """
    noise = list(noise)
    for _, distribution in noise:
        if distribution.is_additive:
            check_variance(distribution)  # type: ignore[arg-type]
    if guarantee is None:
        return
    instance_of("guarantee", guarantee, PrivacyGuarantee, "be a PrivacyGuarantee or None")
    for name, distribution in noise:
        must = "be None where a table has no noise"
        seen = f"one beside the exact {name}"
        remedy = "state the noise that was added, or leave the guarantee out"
        if not distribution.is_exact:
            must = "be None where a rule does not hide the count"
            seen = f"one beside the {name} under {distribution.name}"
        require(distribution.hides, "guarantee", must, seen, remedy, error=PrivacyError)
    if total is not None and guarantee.adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        must = "be None beside an add-or-remove-one guarantee, which protects the number of records"
        remedy = "leave it out, or state a replace-one guarantee if that was promised"
        raise PrivacyError(f"`total` must {must}; {remedy}.")


def measurements_of_cliques(
    model: ModelSpecification, tables: CliqueTables | None, noise: Sequence[Likelihood]
) -> list[Measurement]:
    """Return the measurements of one table for each clique.

    Raises
    ------
    ModelError
        The tables are those of another model, or there are more or fewer noise distributions than tables.
    """
    must = "be a ModelSpecification"
    remedy = "see `NoisyStatistics.from_tables`"
    instance_of("specification", model, ModelSpecification, must, remedy, error=ModelError)
    if (
        not isinstance(tables, CliqueTables)
        or tables.cliques != model.cliques
        or tables.domain != model.domain
    ):
        raise ModelError(
            "`tables` must be those of `specification`; make them with `specification.tables`."
        )
    noise = listed("`noise`", noise, "write one distribution for each table")
    must = f"hold one distribution for each of the {len(model.cliques)} tables"
    require(len(noise) == len(model.cliques), "noise", must, len(noise), error=ModelError)
    if model.cliques:
        parts = np.split(tables.flat, model.offsets[1:-1])
    else:
        parts = []
    queries = [table(*clique) for clique in model.cliques]
    return [Measurement(*each) for each in zip(queries, parts, noise, strict=True)]


def listed_measurements(measurements: Any) -> list[Measurement]:
    """Return measurements as a list; anything else raises an ArgumentError."""
    instance_of("measurements", measurements, Iterable, "be a list of measurements", "write [...]")
    remedy = "write Measurement(query, values, noise)"
    given = listed("`measurements`", measurements)
    return [
        instance_of("measurements", each, Measurement, "hold measurements", remedy)
        for each in given
    ]


def measured_on(
    model: ModelSpecification, measurements: Any, bound: Sequence[BoundQuery] | None = None
) -> tuple[list[Measurement], np.ndarray, tuple[BoundQuery, ...] | None]:
    """Return measurements aligned with a model, all their numbers, and their queries bound to the model.

    If the measurements are the whole table of each clique, None stands in place of the bound queries, because no code
    needs the matrices of whole tables. Numbers that only count impossible cells are set to 0.

    Raises
    ------
    ArgumentError
        Something other than measurements is given.
    ModelError
        A query does not fit the model, or has another number of rows than there are values.
    """
    given = [each.aligned(model) for each in listed_measurements(measurements)]
    sizes = np.diff(model.offsets).tolist()
    whole = [table(*clique) for clique in model.cliques]
    is_whole = [each.query for each in given] == whole
    if not is_whole:  # a query may be the whole table under another description
        if bound is None:
            bound = tuple(each.query.bind(model) for each in given)
        else:
            bound = tuple(bound)
        sizes = [*map(len, bound)]
        is_whole = (
            tuple(query.scopes[0] if query.is_table else None for query in bound) == model.cliques
        )
    for size, each in zip(sizes, given, strict=True):
        must = f"be {size} numbers, one for each of its rows"
        seen = len(each.values)
        require(size == seen, f"the values of {each.query!r}", must, seen, error=ModelError)
    if bound is not None:
        for each, one in zip(given, bound, strict=True):
            check_counted(each.query, one.matrix, each.noise)
    if is_whole:
        given = [replace(each, query=query) for each, query in zip(given, whole, strict=True)]
        bound = None
    values = [each.values for each in given]
    # tables of whole numbers stay whole; answers to queries are floats
    flat = np.concatenate(values if bound is None and values else [np.zeros(0), *values])
    informative = informative_numbers(model, bound)
    if flat[~informative].any():
        flat = np.where(informative, flat, 0)
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        given = [replace(each, values=part) for each, part in zip(given, parts, strict=True)]
    flat.flags.writeable = False
    return given, flat, None if bound is None else tuple(bound)


def informative_numbers(
    model: ModelSpecification, bound: Sequence[BoundQuery] | None
) -> np.ndarray:
    """Return a mask of the numbers that count some possible cell; the others are 0 for all possible records.

    Parameters
    ----------
    model
        The declared model.
    bound
        The queries on the model; None for the table of each clique.
    """
    possible = model.possible
    if bound is None:
        if possible is None:
            return np.ones(model.size, bool)
        return possible
    if possible is not None:
        return abs(stacked(bound, model.size)) @ possible > 0
    sums = [np.ravel(abs(query.matrix).sum(axis=1)) for query in bound]
    return np.concatenate([np.zeros(0), *sums]) > 0


def stacked(bound: Sequence[BoundQuery], size: int) -> Any:
    """Return the stacked matrices of queries, whose columns are the cells of all the model's tables."""
    from scipy.sparse import csr_array, vstack

    blocks = [query.in_cliques for query in bound]
    if blocks:
        return vstack(blocks, format="csr").astype(float)
    return csr_array((0, size))


def total_estimates(
    measurements: Sequence[Measurement], bound: Sequence[BoundQuery] | None, informative: np.ndarray
) -> tuple[FloatArray, FloatArray]:
    """Return an estimate of the number of records from each measurement that has one, and its precision.

    The precision of an exact number is infinite. Queries of one scope that determine the number only together give
    one estimate; such estimates come first. A count within bounds gives no estimate, because its midpoint is none.

    Parameters
    ----------
    measurements
        The measurements.
    bound
        Their queries on the model; None if each is a whole table.
    informative
        Mask of the numbers that count some possible cell. The other numbers have no noise.
    """
    masks = np.split(informative, np.cumsum([each.values.size for each in measurements]))[:-1]
    alone = []
    scopes = {}
    for position, (one, mask) in enumerate(zip(measurements, masks, strict=True)):
        if one.noise.is_bounded:
            continue
        numbers = one.noise.estimate(one.values)
        if bound is None:
            variance = _variance_of_sum(one, np.ones(len(numbers)), mask)
            alone.append(_estimate(float(numbers.sum()), variance, one))
        elif (weights := bound[position].total_weights) is not None:
            variance = _variance_of_sum(one, weights, mask)
            alone.append(_estimate(float(weights @ numbers), variance, one))
        elif len(bound[position].scopes) == 1:
            scopes.setdefault(bound[position].scopes[0], []).append(
                (one, mask, bound[position].matrix)
            )
    together = [found for rows in scopes.values() if (found := _of_one_scope(rows)) is not None]
    found = np.array(together + alone, dtype=float).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def number_variances(one: Measurement) -> FloatArray:
    """Return the variance of the count that each number estimates, records squared, shape (rows,).

    Under a rule it is taken one record above the estimate, so that a published zero is not certain.
    """
    return one.noise.error_variance(np.maximum(one.noise.estimate(one.values), 0.0) + 1)


def _variance_of_sum(one: Measurement, weights: FloatArray, mask: np.ndarray) -> float:
    """Return the variance of a weighted sum of the numbers that count some possible cell."""
    variances = number_variances(one)
    if one.noise.is_additive:  # all have the same variance
        return float(weights[mask] @ weights[mask]) * float(variances[0])
    return float(np.square(weights[mask]) @ variances[mask])


def _estimate(total: float, variance: float, one: Measurement) -> tuple[float, float]:
    """Return an estimate and its precision; rounding errors are removed from an exact number of records."""
    return round(
        total, 6
    ) if one.noise.is_exact else total, 1 / variance if variance > 0 else math.inf


def _of_one_scope(
    rows: Sequence[tuple[Measurement, np.ndarray, Any]],
) -> tuple[float, float] | None:
    r"""Return the estimate that queries of one scope give together, with its precision; None if they give none.

    Among the sums :math:`w'y` with :math:`A'w = 1`, the sum of least variance :math:`\sum_i w_i^2 σ_i^2` has
    :math:`w = V^{-1/2} z`, where z has the least norm in :math:`A' V^{-1/2} z = 1`. An exact row is given a
    hundred-millionth of the largest variance.
    """
    from scipy.sparse import diags_array, vstack
    from scipy.sparse.linalg import lsqr

    values = np.concatenate([one.noise.estimate(one.values) for one, _, _ in rows])
    mask = np.concatenate([mask for _, mask, _ in rows])
    variances = np.concatenate([number_variances(one) for one, _, _ in rows])
    widths = np.sqrt(np.maximum(variances, 1e-8 * variances.max() or 1.0))
    columns = vstack([matrix for _, _, matrix in rows]).T.tocsr().astype(float)
    scaled = columns @ diags_array(1 / widths)
    weights = lsqr(scaled, np.ones(columns.shape[0]), atol=1e-14, btol=1e-14)[0] / widths
    # the rows tell the number of records only if each record counts once in their weighted sum
    if np.abs(columns @ weights - 1).max() > 1e-9:
        return None
    variance = float(np.square(weights[mask]) @ variances[mask])
    total = float(weights @ values)
    if variance > 0:
        return (total, 1 / variance)
    return (round(total, 6), math.inf)


# Kind of the files that hold answers to queries. Files contain it.
MEASUREMENTS = "noisy-measurements"
# First version of the file format with answers to queries
MEASUREMENTS_VERSION = 4


def statistics_content(release: Any) -> dict[str, Json]:
    """Return a `NoisyStatistics` without its numbers, guarantee and provenance, as JSON values."""
    model = release.specification
    content = {
        "kind": release.kind,  # only this kind has it first, with the guarantee before the total
        **domain_content(model.domain),
        **model_content(model),
        "cliques_declared": model.cliques_declared,
        "noise": [noise.as_dict() for noise in release.noise],
        "guarantee": None,
        "total": release.total,
        **PersonRows.content(release.person_rows, release.provenance.settings),
    }
    if not release.has_tables:
        content["queries"] = [query_content(query, model.domain) for query in release.queries]
    return content


def restored_arguments(
    content: Fields, array: np.ndarray, provenance: Provenance
) -> dict[str, Any]:
    """Return the arguments of the release that `statistics_content` described."""
    domain = restored_domain(content)
    model = restored_model(content, domain, cliques_declared=content.truth("cliques_declared"))
    noise = [noise_from_dict(written) for written in content.items("noise")]
    found = {
        "specification": model,
        "total": content["total"],
        "person_rows": PersonRows.restored(content, provenance.settings),
    }
    # the file of a learned model holds measurements without their kind
    if "kind" in content:
        has_queries = content["kind"] == MEASUREMENTS
    else:
        has_queries = "queries" in content
    if not has_queries:
        return found | {"tables": model.tables(numbers(array, (model.size,))), "noise": noise}
    queries = [restored_query(Fields(written), domain) for written in content.items("queries")]
    must = f"hold one distribution for each of {len(queries)} queries"
    require(len(noise) == len(queries), "noise", must, len(noise), error=ModelError)
    bound = [query.bind(model) for query in queries]
    offsets = np.cumsum([0, *map(len, bound)])
    parts = np.split(numbers(array, (int(offsets[-1]),)), offsets[1:-1])
    return found | {"measurements": list(map(Measurement, queries, parts, noise)), "bound": bound}
