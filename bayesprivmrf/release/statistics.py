"""Frozen releases: what left the protected side, and everything inference may know of how it was made."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesprivmrf.checks import truth
from bayesprivmrf.errors import ModelError, PrivacyError
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.privacy import NoiseLaw, PrivacyGuarantee, noise_from_dict
from bayesprivmrf.queries import BoundQuery, table
from bayesprivmrf.release.base import Provenance, Released
from bayesprivmrf.release.codec import (
    Fields,
    domain_content,
    model_content,
    numbers,
    restored_domain,
    restored_model,
)
from bayesprivmrf.release.file import FACTS_VERSION, TIED_VERSION
from bayesprivmrf.release.measurement import Measurement, check_answers
from bayesprivmrf.release.person_rows import PersonRows
from bayesprivmrf.release.promises import check_promise, dearer_than_promised, whole_total
from bayesprivmrf.release.total import pooled_total, sums_of_tables
from bayesprivmrf.release.words import told_noise, told_promise, told_records

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

_PUBLISHED = "tables published elsewhere"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NoisyStatistics(Released):
    """Noisy contingency tables, one a clique, with the law of their noise.

    Parameters
    ----------
    specification
        The declared model.
    tables
        Noisy counts y, records; shape and order as declared. Impossible cells are 0.
    noise
        The noise law of each table; cells are independent.
    guarantee
        The promise; None where there is none (exact or foreign tables).
    total
        The public number of records N under replace-one neighbours, otherwise None.
    provenance
        How the release was made.
    person_rows
        Rule for counting rows of one person, where one may have several; otherwise None.

    Raises
    ------
    ModelError
        Tables and noise laws do not fit the model.
    ArgumentError
        The total is no number of records.
    PrivacyError
        A guarantee stands beside a table without noise, or beside a total that it says is protected.
    """

    specification: ModelSpecification
    tables: CliqueTables
    noise: tuple[NoiseLaw, ...]
    guarantee: PrivacyGuarantee | None
    provenance: Provenance
    total: int | None = None
    person_rows: PersonRows | None = None

    kind = "noisy-statistics"
    format_version = 1
    may_promise_nothing = True

    def __post_init__(self) -> None:
        model = self.specification
        if self.tables.cliques != model.cliques or self.tables.domain != model.domain:
            raise ModelError(
                "`tables` must be those of `specification`; make them with `specification.tables`."
            )
        if len(self.noise) != len(model.cliques):
            raise ModelError(
                f"`noise` must hold one law for each of the {len(model.cliques)} tables, got {len(self.noise)}."
            )
        self._check_promises([f"table of {clique!r}" for clique in model.cliques])
        for position, (clique, law) in enumerate(zip(model.cliques, self.noise, strict=True)):
            check_answers(f"the numbers of the table of {clique!r}", self.tables.table(position), law)
        if model.possible is not None and self.tables.flat[~model.possible].any():
            flat = np.where(model.possible, self.tables.flat, 0)
            object.__setattr__(self, "tables", model.tables(flat))

    @property
    def _version(self) -> int:
        least = TIED_VERSION if any(self.specification.sharing) else 0
        stated = FACTS_VERSION if PersonRows.content(self.person_rows, self.provenance.settings) else 0
        return max(self.format_version, least, stated)

    def _check_promises(self, names: Sequence[str]) -> None:
        if self.total is not None:
            object.__setattr__(self, "total", whole_total(self.total))
        check_promise(self.guarantee, zip(names, self.noise, strict=True), self.total)

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
            One with `tables` where they are one table for each clique, each with one law. Otherwise one that has
            `measurements` and no `tables`.

        Raises
        ------
        ModelError
            Tables, noise laws or labels do not fit the model.
        PrivacyError
            The guarantee contradicts the noise or the total.

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
            cliques' order and with their axes. Otherwise one that has `measurements` and no `tables`.

        Raises
        ------
        ArgumentError
            Something other than measurements is given.
        ModelError
            A query does not fit the model, or has another number of rows than there are values.
        PrivacyError
            The guarantee contradicts the noise or the total.

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
        from bayesprivmrf.release.measured import of_measurements

        model = ModelSpecification.from_pgmpy(network)
        provenance = Provenance(mechanism=_PUBLISHED)
        return of_measurements(model, measurements, guarantee=guarantee, total=total, provenance=provenance)

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """Everything that was measured: here the table of each clique."""
        queries = (table(*clique) for clique in self.specification.cliques)
        return tuple(map(Measurement, queries, map(np.ravel, self.tables.values()), self.noise))

    @cached_property
    def bound(self) -> tuple[BoundQuery, ...]:
        """The queries of `measurements` on the declared model."""
        return tuple(each.query.bind(self.specification) for each in self.measurements)

    @property
    def flat(self) -> np.ndarray:
        """y, all noisy numbers one measurement after the other."""
        return self.tables.flat

    @property
    def matrix(self) -> Any | None:
        """A, sparse, a row for each noisy number and a column for each cell of the model; None for the identity."""
        return None

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
        return sums_of_tables(self.specification, self.tables.flat, self.noise)

    def cell_variances(self) -> np.ndarray:
        """Noise variance of every cell, records squared, shape (size,)."""
        return np.repeat([law.variance for law in self.noise], np.diff(self.specification.offsets))

    @property
    def statistics(self) -> NoisyStatistics:  # type: ignore[override]
        """The release itself, which is what estimators read."""
        return self

    def summary(self) -> dict[str, Any]:
        """Return the measured cliques, and the number of records as far as the release tells it."""
        return {
            "tables": [list(clique) for clique in self.specification.cliques],
            "estimated_total": self.estimated_total,
            "total_standard_error": self.total_standard_error,
        }

    @property
    def is_exact(self) -> bool:
        """Whether some table was given without noise."""
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
        return dearer_than_promised(self.guarantee, self.noise, self.specification)

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
        return self.specification, self._answered, *stated, *made

    @property
    def _answered(self) -> tuple[Any, ...]:
        return (self.tables,)

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("mechanism", self.provenance.mechanism),
            ("variables", f"{len(self.specification.domain.variables)}"),
            self._measured_fact(),
            ("noise", told_noise(self.noise)),
            ("records", told_records(self.total, self.estimated_total, self.total_standard_error)),
            ("privacy", self.privacy_statement()),
        ]

    def _measured_fact(self) -> tuple[str, str]:
        return "tables", f"{len(self.specification.cliques)} ({self.specification.size:,} cells)"

    @classmethod
    def _most_numbers(cls, model: ModelSpecification) -> int:
        return model.size

    def _content(self) -> dict[str, Any]:
        return {
            "kind": self.kind,  # of all kinds this one alone has it first, and the guarantee before the total
            **domain_content(self.specification.domain),
            **model_content(self.specification),
            "cliques_declared": self.specification.cliques_declared,
            "noise": [law.as_dict() for law in self.noise],
            "guarantee": None,
            "total": self.total,
            **PersonRows.content(self.person_rows, self.provenance.settings),
        }

    def _array(self) -> np.ndarray:
        return self.tables.flat

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        declared = content.truth("cliques_declared")
        model = restored_model(content, restored_domain(content), cliques_declared=declared)
        return cls(
            specification=model,
            tables=model.tables(numbers(array, (model.size,))),
            noise=tuple(noise_from_dict(law) for law in content.items("noise")),
            total=content["total"],
            person_rows=PersonRows.restored(content, stamp["provenance"].settings),
            **stamp,
        )
