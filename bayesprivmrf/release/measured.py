"""Noisy answers to queries of any kind: the release of tables, for what is no table of each clique."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np

from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.domain import listed
from bayesprivmrf.privacy import noise_from_dict
from bayesprivmrf.queries import BoundQuery, Query, table
from bayesprivmrf.release.codec import Fields, numbers, restored_domain, restored_model
from bayesprivmrf.release.measurement import Measurement
from bayesprivmrf.release.person_rows import PersonRows
from bayesprivmrf.release.promises import dearer_than_promised
from bayesprivmrf.release.statistics import NoisyStatistics
from bayesprivmrf.release.written_queries import query_content, restored_query


class _NoTablesError(ModelError, AttributeError):
    """The release has no `tables`, which ``hasattr`` must be able to ask."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NoisyMeasurements(NoisyStatistics):
    """Noisy answers to queries, which are read by the estimators that read noisy tables.

    `NoisyStatistics.from_measurements` makes one. It has no ``tables``: what it holds is in `measurements`.

    Parameters
    ----------
    queries
        The queries that were asked.
    answers
        The noisy answers, one query after the other. Those to rows all of whose cells are impossible are set to 0.
    noise
        The noise law of each query's answers.
    """

    tables: CliqueTables = field(init=False)
    queries: tuple[Query, ...]
    answers: np.ndarray

    kind = "noisy-measurements"
    format_version = 4

    def __post_init__(self) -> None:
        self._check_promises([f"answers to {query!r}" for query in self.queries])
        answers = np.where(self.informative, self.answers, 0)
        answers.flags.writeable = False
        object.__setattr__(self, "answers", answers)

    def __getattr__(self, name: str) -> Any:
        if name == "tables":
            raise _NoTablesError(
                "this release holds answers to queries, and not a table of each clique; read `measurements`."
            )
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def _doubt(self) -> str | None:
        return dearer_than_promised(self.guarantee, self.noise, self.specification, self.queries)

    @cached_property
    def bound(self) -> tuple[BoundQuery, ...]:
        """The queries on the declared model."""
        return tuple(query.bind(self.specification) for query in self.queries)

    @cached_property
    def informative(self) -> np.ndarray:
        """Whether each answer counts some possible cell; one that does not is 0, whoever the records are."""
        possible = self.specification.possible
        if possible is not None:
            return abs(self.matrix) @ possible > 0
        sums = [np.ravel(abs(query.matrix).sum(axis=1)) for query in self.bound]
        return np.concatenate([np.zeros(0), *sums]) > 0

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Everything that was measured."""
        parts = np.split(self.answers, self._offsets[1:-1])
        return tuple(map(Measurement, self.queries, parts, self.noise))

    @property
    def flat(self) -> np.ndarray:
        """y, all noisy answers one query after the other."""
        return self.answers

    @property
    def matrix(self) -> Any:
        """A, sparse, a row for each answer and a column for each cell of the model's cliques."""
        return stacked(self.bound, self.specification.size)

    def cell_variances(self) -> np.ndarray:
        """Noise variance of every answer, squares of its unit, shape (rows,)."""
        return np.repeat([law.variance for law in self.noise], np.diff(self._offsets))

    @cached_property
    def _offsets(self) -> list[int]:
        return np.cumsum([0, *map(len, self.bound)]).tolist()

    @cached_property
    def _sums_and_precisions(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each measurement's own estimate of the number of records, of those that tell it."""
        sums, precisions = [], []
        parts: dict[Any, list[int]] = {}
        is_within = [law.kernel == "within" for law in self.noise]  # a midpoint is no estimate
        for position, query in enumerate(self.bound):
            if is_within[position]:
                continue
            if query.total_weights is None and len(query.scopes) == 1:
                parts.setdefault(query.scopes[0], []).append(position)
        for together in parts.values():
            if (found := self._total_of(together)) is not None:
                sums.append(found[0])
                precisions.append(found[1])
        for query, law, (start, stop) in zip(self.bound, self.noise, pairwise(self._offsets), strict=True):
            if (weights := query.total_weights) is None or law.kernel == "within":
                continue
            squares = float(weights[self.informative[start:stop]] @ weights[self.informative[start:stop]])
            total = float(weights @ self.answers[start:stop])
            sums.append(total if law.variance > 0 else round(total, 6))
            precisions.append(1 / (squares * law.variance) if squares * law.variance > 0 else math.inf)
        return np.array(sums), np.array(precisions)

    def _total_of(self, positions: Sequence[int]) -> tuple[float, float] | None:
        r"""Return what rows of one scope, none of whose queries does alone, tell of the number of records.

        Among the sums :math:`w'y` with :math:`A'w = 1` the one of least variance :math:`\sum_i w_i^2 σ_i^2` has
        :math:`w = V^{-1/2} z` with z of least norm in :math:`A' V^{-1/2} z = 1`. An exact row counts as one of a
        hundred-millionth of the largest variance.
        """
        from scipy.sparse import diags_array, vstack
        from scipy.sparse.linalg import lsqr

        places = np.concatenate([np.arange(*self._offsets[k : k + 2]) for k in positions])
        variances = self.cell_variances()[places]
        widths = np.sqrt(np.maximum(variances, 1e-8 * variances.max() or 1.0))
        columns = vstack([self.bound[k].matrix for k in positions]).T.tocsr().astype(float)
        scaled = columns @ diags_array(1 / widths)
        weights = lsqr(scaled, np.ones(columns.shape[0]), atol=1e-14, btol=1e-14)[0] / widths
        if np.abs(columns @ weights - 1).max() > 1e-9:
            return None
        variance = float(np.square(weights[self.informative[places]]) @ variances[self.informative[places]])
        total = float(weights @ self.answers[places])
        return (total, 1 / variance) if variance > 0 else (round(total, 6), math.inf)

    def summary(self) -> dict[str, Any]:
        """Return the queries, and the number of records as far as the release tells it."""
        return {
            "queries": list(map(repr, self.queries)),
            "estimated_total": self.estimated_total,
            "total_standard_error": self.total_standard_error,
        }

    @property
    def _answered(self) -> tuple[Any, ...]:
        return self.queries, self.answers.tolist()

    def _measured_fact(self) -> tuple[str, str]:
        return "queries", f"{len(self.queries)} ({len(self.answers):,} numbers)"

    def _content(self) -> dict[str, Any]:
        domain = self.specification.domain
        return super()._content() | {"queries": [query_content(query, domain) for query in self.queries]}

    def _array(self) -> np.ndarray:
        return self.answers

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        declared = content.truth("cliques_declared")
        domain = restored_domain(content)
        model = restored_model(content, domain, cliques_declared=declared)
        queries = [restored_query(Fields(written), domain) for written in content.items("queries")]
        offsets = np.cumsum([0, *(len(query.bind(model)) for query in queries)])
        parts = np.split(numbers(array, (int(offsets[-1]),)), offsets[1:-1])
        laws = [noise_from_dict(law) for law in content.items("noise")]
        if len(laws) != len(queries):
            raise ModelError(f"`noise` must hold one law for each of {len(queries)} queries, got {len(laws)}")
        return cls(
            specification=model,
            total=content["total"],
            person_rows=PersonRows.restored(content, stamp["provenance"].settings),
            **_fields(list(map(Measurement, queries, parts, laws))),
            **stamp,
        )


def of_measurements(
    model: ModelSpecification,
    measurements: Sequence[Measurement],
    bound: Sequence[BoundQuery] | None = None,
    **stamp: Any,
) -> NoisyStatistics:
    """Return the release of measurements: that of tables, where they are the whole table of each clique.

    Queries that were bound to the model before are given with their matrices.
    """
    given = [each.aligned(model) for each in _checked(measurements)]
    sizes = np.diff(model.offsets).tolist()
    is_plain = [each.query for each in given] == [table(*clique) for clique in model.cliques]
    if not is_plain:  # plain tables need no matrices
        bound = tuple(each.query.bind(model) for each in given) if bound is None else tuple(bound)
        sizes = [*map(len, bound)]
        is_plain = tuple(query.scopes[0] if query.is_table else None for query in bound) == model.cliques
    for size, each in zip(sizes, given, strict=True):
        if size != len(each.values):
            raise ModelError(
                f"the values of {each.query!r} must be {size} numbers, one for each of its rows, got "
                f"{len(each.values)}."
            )
    if is_plain:
        arrays = [each.values.reshape(shape) for each, shape in zip(given, model.shapes, strict=True)]
        tables = CliqueTables.from_arrays(model.domain, model.cliques, arrays)
        laws = tuple(each.noise for each in given)
        return NoisyStatistics(specification=model, tables=tables, noise=laws, **stamp)
    release = object.__new__(NoisyMeasurements)
    release.__dict__["bound"] = bound  # before its checks, which would bind the queries once more
    release.__init__(specification=model, **_fields(given), **stamp)
    return release


def stacked(bound: Sequence[BoundQuery], size: int) -> Any:
    """Return the matrices of queries on the cells of all the model's tables, one below the other."""
    from scipy.sparse import csr_array, vstack

    blocks = [query.in_cliques for query in bound]
    return vstack(blocks, format="csr").astype(float) if blocks else csr_array((0, size))


def _checked(measurements: Any) -> list[Measurement]:
    if isinstance(measurements, Measurement) or not isinstance(measurements, Iterable):
        raise ArgumentError(
            f"`measurements` must be a list of measurements, got a {type(measurements).__name__}; write [...]."
        )
    given = listed("`measurements`", measurements)
    for each in given:
        if not isinstance(each, Measurement):
            raise ArgumentError(
                f"`measurements` must hold measurements, got a {type(each).__name__}; write "
                "Measurement(query, values, noise)."
            )
    return given


def _fields(given: Sequence[Measurement]) -> dict[str, Any]:
    return {
        "queries": tuple(each.query for each in given),
        "answers": np.concatenate([np.zeros(0), *(each.values for each in given)]),
        "noise": tuple(each.noise for each in given),
    }
