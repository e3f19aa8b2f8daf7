"""Releases of noisy measurements: the tables of a model's cliques, or answers to queries of any kind."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesprivmrf.checks import truth
from bayesprivmrf.errors import ModelError, PrivacyError
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.privacy import NoiseLaw, PrivacyGuarantee
from bayesprivmrf.queries import BoundQuery, Query
from bayesprivmrf.release.base import RELEASE_KINDS, Provenance, Released
from bayesprivmrf.release.codec import Fields
from bayesprivmrf.release.file import FACTS_VERSION, TIED_VERSION
from bayesprivmrf.release.measurement import (
    Measurement,
    informative_numbers,
    measured_on,
    measurements_of_cliques,
    pooled_total,
    stacked,
    told_totals,
)
from bayesprivmrf.release.person_rows import PersonRows
from bayesprivmrf.release.promises import (
    check_promise,
    dearer_than_promised,
    facts_of,
    told_promise,
    whole_total,
)
from bayesprivmrf.release.written_statistics import (
    MEASUREMENTS,
    MEASUREMENTS_VERSION,
    restored_fields,
    statistics_content,
)

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# Mechanism named in the provenance of tables that somebody else published; it stands in files
_PUBLISHED = "tables published elsewhere"


class _NoTablesError(ModelError, AttributeError):
    """The release has no `tables`; an `AttributeError`, so that ``hasattr`` says so."""


@dataclass(frozen=True, eq=False, repr=False, init=False)
class NoisyStatistics(Released):
    """Noisy answers to queries, with the distribution of their noise.

    Where the queries are the table of each clique, `has_tables` is True, and `tables` shows the answers.

    Parameters
    ----------
    specification
        The declared model.
    guarantee
        The promise; None where there is none (exact or foreign tables).
    provenance
        How it was made.
    measurements
        Everything that was measured. Answers to rows all of whose cells are impossible are set to 0.
    tables, noise
        In place of `measurements`: the noisy counts of each clique's table, and each table's distribution of noise.
    total
        The public number of records N under replace-one neighbors, otherwise None.
    person_rows
        Rule for counting rows of one person, where one may have several; otherwise None.
    bound
        The measurements' queries on the model, if the caller has bound them already.

    Raises
    ------
    ModelError
        Measurements, tables or noise do not fit the model.
    ArgumentError
        The total is no number of records, or the measurements are of another type.
    PrivacyError
        A guarantee stands beside an answer without noise, or beside a total that it says is protected.
    """

    specification: ModelSpecification
    measurements: tuple[Measurement, ...]
    guarantee: PrivacyGuarantee | None
    provenance: Provenance
    total: int | None = None
    person_rows: PersonRows | None = None
    has_tables: bool = field(init=False)
    """Whether the measurements are the whole table of each clique, in the order of the cliques."""
    flat: np.ndarray = field(init=False)
    """y, all noisy numbers one measurement after the other."""

    kind = "noisy-statistics"
    format_version = 1
    may_promise_nothing = True

    def __init__(
        self,
        *,
        specification: ModelSpecification,
        guarantee: PrivacyGuarantee | None,
        provenance: Provenance,
        measurements: Sequence[Measurement] | None = None,
        tables: CliqueTables | None = None,
        noise: Sequence[NoiseLaw] = (),
        total: int | None = None,
        person_rows: PersonRows | None = None,
        bound: Sequence[BoundQuery] | None = None,
    ) -> None:
        if measurements is None:
            measurements = measurements_of_cliques(specification, tables, noise)
        given, flat, bound = measured_on(specification, measurements, bound)
        total = None if total is None else whole_total(total)
        check_promise(guarantee, ((f"answers to {each.query!r}", each.noise) for each in given), total)
        fields: dict[str, Any] = {
            "specification": specification,
            "measurements": tuple(given),
            "guarantee": guarantee,
            "provenance": provenance,
            "total": total,
            "person_rows": person_rows,
            "has_tables": bound is None,
            "flat": flat,
        }
        if bound is not None:  # files of such releases have a kind and a version of their own
            fields |= {"bound": bound, "kind": MEASUREMENTS, "format_version": MEASUREMENTS_VERSION}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def _version(self) -> int:
        least = TIED_VERSION if any(self.specification.sharing) else 0
        stated = FACTS_VERSION if PersonRows.content(self.person_rows, self.provenance.settings) else 0
        return max(self.format_version, least, stated)

    @classmethod
    def from_tables(
        cls,
        network: DiscreteMarkovNetwork | ModelSpecification,
        tables: Mapping[Any, Any] | Sequence[tuple[Any, Any]],
        *,
        noise: NoiseLaw | Mapping[Any, Any] | Sequence[Any] | np.ndarray,
        guarantee: PrivacyGuarantee | None = None,
        total: int | None = None,
    ) -> NoisyStatistics:
        """Release of noisy tables that somebody else published.

        Parameters
        ----------
        network
            The declared model; each table lies inside one of its cliques, and each variable in a table.
        tables
            Noisy counts by scope: arrays whose axes are the variables of the key, in its order; or labeled tables, as
            ``pandas.crosstab`` gives them, which are aligned by names and labels, an axis without a name standing in
            the key's order. Proportions, as ``solution.marginal`` gives them, are refused. Tables may nest and
            overlap. A list of pairs ``(scope, table)`` may have a scope several times, for separate measurements.
        noise
            The law of the noise in every table; or what each table has, by scope, or as a list in the tables' order.
            A table may have one law; or one for each cell, as an array of laws or as a mapping from the cell's
            states; or an array of variances, for normal noise, in which 0 is an exact number. Axes are in the order
            of the key that they have in `noise`, if that is a mapping; labels are aligned as in `tables`.
        guarantee
            The publisher's promise, if there is one.
        total
            The number of records, where it is public.

        Returns
        -------
        NoisyStatistics
            One that `has_tables` where they are one table for each clique, each with one law. Otherwise its numbers
            are in `measurements` alone.

        Examples
        --------
        >>> import bayesprivmrf as bpm
        >>> from bayesprivmrf.privacy import Laplace
        >>> network = bpm.declare({"smokes": ["no", "yes"], "ill": ["no", "yes"]}, [("smokes", "ill")])
        >>> release = bpm.NoisyStatistics.from_tables(
        ...     network,
        ...     {"ill": [81.0, 17.5], ("smokes", "ill"): [[52.5, 9.0], [30.0, 8.5]]},
        ...     noise={"ill": Laplace(1.0), ("smokes", "ill"): [[32.0, 32.0], [8.0, 8.0]]},  # the second: variances
        ... )
        >>> [len(each.values) for each in release.measurements]
        [2, 2, 2]
        """
        from bayesprivmrf.release.given import measurements_of_tables

        model = ModelSpecification.from_pgmpy(network)
        measured = measurements_of_tables(model, tables, noise)
        return cls.from_measurements(model, measured, guarantee=guarantee, total=total)

    @classmethod
    def from_measurements(
        cls,
        network: DiscreteMarkovNetwork | ModelSpecification,
        measurements: Sequence[Measurement],
        *,
        guarantee: PrivacyGuarantee | None = None,
        total: int | None = None,
    ) -> NoisyStatistics:
        """Release of noisy answers to queries that somebody else published.

        Parameters
        ----------
        network
            The declared model; each query reads scopes inside its cliques.
        measurements
            The measurements, in any order and number; the same query may be there several times.
        guarantee, total
            The publisher's promise, and the number of records, as for `from_tables`.

        Returns
        -------
        NoisyStatistics
            The release that `from_tables` makes where the measurements are one whole table for each clique, in the
            cliques' order and with their axes. Otherwise its numbers are in `measurements` alone.

        Examples
        --------
        >>> import bayesprivmrf as bpm
        >>> from bayesprivmrf.privacy import Laplace
        >>> from bayesprivmrf.queries import parities, table
        >>> from bayesprivmrf.release import Measurement, NoisyStatistics
        >>> network = bpm.declare({"smokes": ["no", "yes"], "ill": ["no", "yes"]}, [("smokes", "ill")])
        >>> release = NoisyStatistics.from_measurements(
        ...     network,
        ...     [Measurement(table("ill"), [81.0, 17.5], Laplace(2)),
        ...      Measurement(parities(2), [99.0, -20.5, -62.0, 30.0], Laplace(4))],
        ... )
        >>> round(release.estimated_total, 2)
        98.67
        """
        return cls(
            specification=ModelSpecification.from_pgmpy(network),
            measurements=measurements,
            guarantee=guarantee,
            provenance=Provenance(mechanism=_PUBLISHED),
            total=total,
        )

    @cached_property
    def tables(self) -> CliqueTables:
        """Noisy counts y as the tables of the cliques, where `has_tables`; a ModelError where it is not."""
        if not self.has_tables:
            raise _NoTablesError(
                "this release holds answers to queries, and not a table of each clique; read `measurements`."
            )
        return self.specification.tables(self.flat)

    @property
    def queries(self) -> tuple[Query, ...]:
        """The queries that were measured, in the order of `measurements`."""
        return tuple(each.query for each in self.measurements)

    @property
    def noise(self) -> tuple[NoiseLaw, ...]:
        """The distribution of each measurement's noise."""
        return tuple(each.noise for each in self.measurements)

    @property
    def answers(self) -> np.ndarray:
        """Noisy answers; the same as `flat`."""
        return self.flat

    @cached_property
    def bound(self) -> tuple[BoundQuery, ...]:
        """The queries of `measurements` on the declared model."""
        return tuple(query.bind(self.specification) for query in self.queries)

    @property
    def matrix(self) -> Any | None:
        """Matrix A, sparse, shape (noisy numbers, cells of the model); None for the identity."""
        return None if self.has_tables else stacked(self.bound, self.specification.size)

    @property
    def estimated_total(self) -> float:
        r"""Number of records: the public one, or the best linear combination of the tables' sums.

        The sum of table C is N plus noise of variance :math:`K_C σ_C^2` (:math:`K_C` possible cells), so the
        unbiased combination of least variance weights it by :math:`1 / (K_C σ_C^2)`. It may be negative.
        NaN for a model without variables.
        """
        return pooled_total(*self._sums_and_precisions) if self.total is None else float(self.total)

    @property
    def total_standard_error(self) -> float:
        """Standard error of `estimated_total`, records; 0 where the number is public or exact."""
        if self.total is not None:
            return 0.0
        precisions = self._sums_and_precisions[1]
        return float(1 / math.sqrt(precisions.sum())) if len(precisions) else math.inf

    @cached_property
    def _sums_and_precisions(self) -> tuple[np.ndarray, np.ndarray]:
        bound = None if self.has_tables else self.bound
        return told_totals(self.measurements, bound, informative_numbers(self.specification, bound))

    def cell_variances(self) -> np.ndarray:
        """Noise variance of every number, the square of its unit, shape (size,)."""
        variances = [np.full(each.values.size, each.noise.variance) for each in self.measurements]
        return np.concatenate([np.zeros(0), *variances])

    @property
    def statistics(self) -> NoisyStatistics:  # type: ignore[override]
        """The release itself, which is what estimators read."""
        return self

    def summary(self) -> dict[str, Any]:
        """Return what was measured, and the number of records if the release determines it."""
        cliques = {"tables": [list(clique) for clique in self.specification.cliques]}
        return (cliques if self.has_tables else {"queries": list(map(repr, self.queries))}) | {
            "estimated_total": self.estimated_total,
            "total_standard_error": self.total_standard_error,
        }

    @property
    def is_exact(self) -> bool:
        """True if some answer was released without noise."""
        return any(not law.hides for law in self.noise)

    def privacy_statement(self) -> str:
        """Sentence about privacy that can be pasted into a paper."""
        if self.is_exact and self.provenance.mechanism != _PUBLISHED:
            return (
                "No privacy guarantee: these tables hold exact counts, which are as sensitive as the records and "
                "not for publication."
            )
        return super().privacy_statement()

    def _promise(self, guarantee: PrivacyGuarantee | None) -> str:
        return told_promise(guarantee, self.person_rows)

    def _doubt(self) -> str | None:
        asked = () if self.has_tables else self.queries
        return dearer_than_promised(self.guarantee, self.noise, self.specification, asked)

    def save(
        self, path: str | os.PathLike[str], *, allow_unprotected: bool = False, overwrite: bool = False
    ) -> None:
        """Write the release to one file: JSON and an array, a format version and a checksum, no pickle.

        Parameters
        ----------
        path, overwrite
            The path, and whether another release may be replaced. An existing file is replaced in one step, so that
            none is ever half written; a release is kept by default, as making it again would spend budget.
        allow_unprotected
            Exact tables are refused unless this says otherwise; their file is readable by its owner alone.

        Raises
        ------
        PrivacyError
            The tables are exact and `allow_unprotected` is False.
        ReleaseFileError
            The path cannot be written, or holds another release and `overwrite` is False.
        """
        if not truth("allow_unprotected", allow_unprotected) and self.is_exact:
            raise PrivacyError(
                "exact tables have no guarantee and are not saved; "
                "pass `allow_unprotected=True` if the file stays where the data may be."
            )
        super().save(path, overwrite=overwrite)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NoisyStatistics):
            return NotImplemented
        return self._identity == other._identity

    __hash__ = None  # type: ignore[assignment]

    @property
    def _identity(self) -> tuple[Any, ...]:
        made = self.provenance.mechanism, self.provenance.simulated
        stated = self.noise, self.guarantee, self.total, self.person_rows
        return self.specification, self.queries, self.flat.tolist(), *stated, *made

    def _facts(self) -> list[tuple[str, str]]:
        return facts_of(self)

    @classmethod
    def _most_numbers(cls, model: ModelSpecification) -> int:
        return model.size

    def _content(self) -> dict[str, Any]:
        return statistics_content(self)

    def _array(self) -> np.ndarray:
        return self.flat

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        return cls(**restored_fields(content, array, stamp["provenance"]), **stamp)


RELEASE_KINDS.add(MEASUREMENTS, NoisyStatistics)
