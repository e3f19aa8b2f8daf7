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
from bayesprivmrf.errors import PrivacyError
from bayesprivmrf.files import Json
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.noise.base import pooled_total
from bayesprivmrf.noise.likelihood import Likelihood
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.queries import BoundQuery, Query
from bayesprivmrf.queries.query import measured_model
from bayesprivmrf.release.base import RELEASE_KINDS, Doubt, Provenance, Released
from bayesprivmrf.release.codec import Fields, PersonRows
from bayesprivmrf.release.copies import refuse_copies, told_by
from bayesprivmrf.release.file import FACTS_VERSION, INTERACTIONS_VERSION, TIED_VERSION
from bayesprivmrf.release.impossible import refuse_impossible
from bayesprivmrf.release.measurement import (
    MEASUREMENTS,
    MEASUREMENTS_VERSION,
    Measurement,
    NoTablesError,
    Origin,
    check_promise,
    informative_numbers,
    listed_measurements,
    measured_on,
    measurements_of_cliques,
    number_variances,
    require_same_rows,
    restored_arguments,
    stacked,
    statistics_content,
    total_estimates,
)
from bayesprivmrf.release.promises import (
    PUBLISHED,
    different,
    doubt_of,
    facts_of,
    inherited,
    promise_sentence,
    whole_total,
)
from bayesprivmrf.release.repeats import without_repeats

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork


@dataclass(frozen=True, eq=False, repr=False, init=False)
class NoisyStatistics(Released):
    """Release of noisy answers to queries, with the distribution of their noise.

    If the queries are the table of each clique, `has_tables` is True and `tables` gives the answers as tables.

    Parameters
    ----------
    specification
        The declared model.
    guarantee
        The privacy guarantee; None if there is none, as for exact tables.
    provenance
        How the release was made.
    measurements
        The measurements. An answer that only counts impossible cells is set to 0.
    tables, noise
        In place of `measurements`: the noisy counts of each clique's table, and the noise distribution of each table.
    total
        The public number of records N under replace-one neighbors; otherwise None.
    person_rows
        The rule for counting rows if one person may have several; otherwise None.
    bound
        The queries of the measurements on the model, if the caller has bound them already.

    Raises
    ------
    ModelError
        The measurements, tables or noise do not fit the model.
    ArgumentError
        The total is not a number of records, or `measurements` holds something else.
    PrivacyError
        A guarantee is given for an answer without noise, or beside a total that the guarantee protects.

    Notes
    -----
    Equal releases give equal files. A file of the kind "noisy-measurements" whose queries are the table of each
    clique is therefore saved again as "noisy-statistics", the kind that every version of this package reads.
    """

    specification: ModelSpecification
    measurements: tuple[Measurement, ...]
    guarantee: PrivacyGuarantee | None
    provenance: Provenance
    total: int | None = None
    person_rows: PersonRows | None = None
    has_tables: bool = field(init=False)
    """True if the measurements are the whole table of each clique, in the order of the cliques."""
    flat: np.ndarray = field(init=False)
    """All noisy numbers y, one measurement after the other, shape (numbers,)."""

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
        noise: Sequence[Likelihood] = (),
        total: int | None = None,
        person_rows: PersonRows | None = None,
        bound: Sequence[BoundQuery] | None = None,
    ) -> None:
        if measurements is None:
            measurements = measurements_of_cliques(specification, tables, noise)
        given, flat, bound = measured_on(specification, measurements, bound)
        if total is None:
            total = None
        else:
            total = whole_total(total)
        check_promise(
            guarantee, ((f"answers to {each.query!r}", each.noise) for each in given), total
        )
        origin = Origin(guarantee, provenance, person_rows, specification)
        fields: dict[str, Any] = {
            "specification": specification,
            "measurements": tuple(each._of(origin) for each in given),
            "guarantee": guarantee,
            "provenance": provenance,
            "total": total,
            "person_rows": person_rows,
            "has_tables": bound is None,
            "flat": flat,
        }
        if bound is not None:  # answers to other queries have their own kind and version of files
            fields |= {"bound": bound, "kind": MEASUREMENTS, "format_version": MEASUREMENTS_VERSION}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def _version(self) -> int:
        if any(self.specification.sharing):
            least = TIED_VERSION
        else:
            least = 0
        if PersonRows.content(self.person_rows, self.provenance.settings):
            stated = FACTS_VERSION
        else:
            stated = 0
        if self.specification.interactions is None:
            beyond = 0
        else:
            beyond = INTERACTIONS_VERSION
        return max(self.format_version, least, stated, beyond)

    @classmethod
    def from_tables(
        cls,
        network: DiscreteMarkovNetwork | ModelSpecification,
        tables: Mapping[Any, Any] | Sequence[tuple[Any, Any]],
        *,
        noise: Likelihood | Mapping[Any, Any] | Sequence[Any] | np.ndarray,
        guarantee: PrivacyGuarantee | None = None,
        total: int | None = None,
    ) -> NoisyStatistics:
        """Return the release of noisy tables that somebody else published.

        Parameters
        ----------
        network
            The declared model. Each variable is in a table. A table need not lie inside a clique; the model that is
            fitted stays the declared one.
        tables
            Noisy counts by scope. A table is an array whose axes are the variables of its key, in that order; or a
            labeled table, such as ``pandas.crosstab`` returns, which is aligned by names and labels. An axis without
            a name takes its place in the order of the key. The numbers by which pandas counts rows are labels; they
            are refused unless they are the declared states. Proportions, such as ``solution.marginal`` returns, are
            refused. Tables may nest and overlap, and the key ``()`` is the number of all records. In a list of pairs
            ``(scope, table)`` a scope may occur several times, for separate measurements.
        noise
            The noise distribution of all tables; or the noise of each table, by scope or as a list in the order of
            the tables. The noise of one table is a distribution; or one distribution for each cell, as an array or as
            a mapping from the cell's states; or an array of variances for normal noise, where 0 marks an exact
            number. The axes follow the key in `noise` if it is a mapping; labels are aligned as in `tables`. An array
            without labels is refused beside a table whose labels are in another order than declared.
        guarantee
            The publisher's privacy guarantee, if there is one.
        total
            The number of records, if it is public.

        Returns
        -------
        NoisyStatistics
            The release. `has_tables` is True if there is one table for each clique, each with one distribution.

        Raises
        ------
        ModelError
            The tables or the noise do not fit the model; or the tables are proportions; or noisy numbers are given
            twice, such as a table and its own margin (`bayesprivmrf.release.copies`); or cells declared impossible
            have numbers that are farther from 0 than their noise explains.

        Warns
        -----
        ConsistencyWarning
            The tables look like percentages.

        Examples
        --------
        >>> import bayesprivmrf as bpm
        >>> from bayesprivmrf.privacy import Laplace
        >>> network = bpm.declare({"smokes": ["no", "yes"], "ill": ["no", "yes"]}, [("smokes", "ill")])
        >>> release = bpm.NoisyStatistics.from_tables(
        ...     network,
        ...     {"ill": [81.0, 17.5], ("smokes", "ill"): [[52.5, 9.0], [30.0, 8.5]]},
        ...     noise={"ill": Laplace(1.0), ("smokes", "ill"): [[32.0, 32.0], [8.0, 8.0]]},  # variances of the cells
        ... )
        >>> [len(each.values) for each in release.measurements]
        [2, 2, 2]
        """
        from bayesprivmrf.release.given import holding, measurements_of_tables

        model = holding(ModelSpecification.from_pgmpy(network), tables)
        measured = measurements_of_tables(model, tables, noise, total)
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
        """Return the release of noisy answers to queries that somebody else published, or that other releases hold.

        A choice among the measurements of a release is post-processing, and keeps its guarantee. Measurements of
        several releases have the sum of their guarantees; if the releases are of disjoint groups, state
        ``guarantee=compose(..., disjoint=True)``. Seeded releases stay marked as simulated, and exact tables as
        unprotected.

        Parameters
        ----------
        network
            The declared model. A query may also read variables that are together in no clique; the model that is
            fitted stays the declared one.
        measurements
            The measurements, in any order and number. A query may occur several times. A number of the same records
            under the same rule is used once where the rule gives it alike in every table, as cell keys do.
        guarantee
            The guarantee, if it is not that of the releases from which all measurements were taken unchanged.
            A measurement that is written anew, ``Measurement(query, values, noise)``, has no guarantee that is known
            here. Then none is stated, as beside a `total` that the guarantee protects.
        total
            The number of records, if it is public.

        Returns
        -------
        NoisyStatistics
            The release. `has_tables` is True if the measurements are the whole table of each clique, in order.

        Raises
        ------
        ModelError
            A query does not fit the model, or a measurement of a release would count other states than it did there;
            or noisy numbers are given twice (`bayesprivmrf.release.copies`), or count no possible record and are
            farther from 0 than their noise explains.
        ModelTooLargeError
            The table of a query's variables has more than 10^8 cells.

        Warns
        -----
        GuaranteeWarning
            The guarantees of the releases cannot be added, or hold for a smaller domain than the declared one. No
            guarantee is stated then.

        Examples
        --------
        >>> import bayesprivmrf as bpm
        >>> from bayesprivmrf.privacy import Laplace
        >>> network = bpm.declare({"ill": ["no", "yes"], "old": ["no", "yes"]}, [("ill",), ("old",)])
        >>> promise = bpm.PrivacyGuarantee(epsilon=1.0, adjacency="add-or-remove-one")
        >>> release = bpm.NoisyStatistics.from_tables(
        ...     network, {"ill": [81.0, 17.5], "old": [60.5, 41.0]}, noise=Laplace(2.0), guarantee=promise
        ... )
        >>> ill = bpm.declare({"ill": ["no", "yes"]})
        >>> part = bpm.NoisyStatistics.from_measurements(ill, release.measurements[:1])
        >>> part.guarantee == promise
        True
        """
        declared = ModelSpecification.from_pgmpy(network)
        given = listed_measurements(measurements)
        model = measured_model(declared, [each.query for each in given])
        require_same_rows(given, model)
        release = cls(
            specification=model,
            measurements=given,
            **inherited(model, given, guarantee, total),
            total=total,
        )
        refuse_copies(told_by(release.bound, release.measurements))
        refuse_impossible([each.aligned(model) for each in given], release._is_informative)
        kept = without_repeats(release.bound, release.measurements)
        if sum(one.values.size for one in kept) < sum(
            one.values.size for one in release.measurements
        ):
            return cls.from_measurements(declared, kept, guarantee=guarantee, total=total)
        return release

    def replicate(self, solution: Any, *, rng: int | np.random.Generator) -> NoisyStatistics:
        """Return a simulated release: new records from a fit, measured and perturbed as these were.

        A replicate repeats the sampling and the perturbation. Fits of many replicates show how an estimate would vary
        if the fit were true, as in a parametric bootstrap.

        Parameters
        ----------
        solution
            The distribution of the new records: a fit of this release, under its model or another one.
        rng
            Seed or generator. Equal seeds give equal replicates.

        Returns
        -------
        NoisyStatistics
            Same model, queries, noise and guarantee, other numbers. It is marked as simulated. It has as many records
            as are public, or as this release estimates.

        Raises
        ------
        ArgumentError
            `solution` cannot be sampled, or a person may have several rows in this release.
        ModelError
            The solution has other variables or states, or the number of records is not known.

        Examples
        --------
        >>> import bayesprivmrf as bpm
        >>> from bayesprivmrf.noise import DiscreteLaplace
        >>> network = bpm.declare({"ill": ["no", "yes"]}, [("ill",)])
        >>> release = bpm.NoisyStatistics.from_tables(
        ...     network, {"ill": [81, 19]}, noise=DiscreteLaplace(2.0), total=100
        ... )  # doctest: +SKIP
        >>> release.replicate(bpm.NoiseAwareMAP().fit(release), rng=1)  # doctest: +SKIP
        """
        from bayesprivmrf.release.replication import replicated_numbers

        measurements, provenance = replicated_numbers(self, solution, rng)
        return type(self)(
            specification=self.specification,
            guarantee=self.guarantee,
            total=self.total,
            measurements=measurements,
            provenance=provenance,
            person_rows=self.person_rows,
        )

    @cached_property
    def tables(self) -> CliqueTables:
        """Noisy counts y as the tables of the cliques; a ModelError if `has_tables` is False."""
        if not self.has_tables:
            raise NoTablesError(
                "this release holds answers to queries and no tables; read `measurements`."
            )
        return self.specification.tables(self.flat)

    @property
    def queries(self) -> tuple[Query, ...]:
        """The queries that were measured, in the order of `measurements`."""
        return tuple(each.query for each in self.measurements)

    @property
    def noise(self) -> tuple[Likelihood, ...]:
        """The distribution of each measurement's noise, or the likelihood of its numbers."""
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
        if self.has_tables:
            return None
        return stacked(self.bound, self.specification.size)

    @property
    def estimated_total(self) -> float:
        r"""Number of records: the public number, or an unbiased estimate from the measurements.

        The sum of table C is N plus noise of variance :math:`K_C σ_C^2`, for :math:`K_C` possible cells. The unbiased
        combination of least variance weights the sum by :math:`1 / (K_C σ_C^2)`. The estimate may be negative. It is
        NaN for a model without variables.
        """
        if self.total is None:
            return pooled_total(*self._sums_and_precisions)
        return float(self.total)

    @property
    def total_standard_error(self) -> float:
        """Standard error of `estimated_total`, in records; 0 if the number is public or exact."""
        if self.total is not None:
            return 0.0
        precisions = self._sums_and_precisions[1]
        if len(precisions):
            return float(1 / math.sqrt(precisions.sum()))
        return math.inf

    @cached_property
    def _sums_and_precisions(self) -> tuple[np.ndarray, np.ndarray]:
        bound = None if self.has_tables else self.bound
        return total_estimates(self.measurements, bound, self._is_informative)

    @cached_property
    def _is_informative(self) -> np.ndarray:
        """Mask of the numbers that count some possible cell, shape (numbers,)."""
        bound = None if self.has_tables else self.bound
        return informative_numbers(self.specification, bound)

    def cell_variances(self) -> np.ndarray:
        """Return the noise variance of every number, in records squared, shape (numbers,).

        Under a rule that depends on the count, it is that of the count that the number estimates.
        """
        variances = [number_variances(each) for each in self.measurements]
        return np.concatenate([np.zeros(0), *variances])

    @property
    def statistics(self) -> NoisyStatistics:  # type: ignore[override]
        """The release itself, from which estimators read the measurements."""
        return self

    def summary(self) -> dict[str, Any]:
        """Return the measured tables or queries, and the estimated number of records with its standard error."""
        cliques = {"tables": [list(clique) for clique in self.specification.cliques]}
        return (cliques if self.has_tables else {"queries": list(map(repr, self.queries))}) | {
            "estimated_total": self.estimated_total,
            "total_standard_error": self.total_standard_error,
        }

    @property
    def is_exact(self) -> bool:
        """True if some answer was released without noise."""
        return any(not noise.hides for noise in self.noise)

    def privacy_statement(self) -> str:
        """Return a sentence about privacy that can be pasted into a paper."""
        if self.is_exact and self.provenance.mechanism != PUBLISHED:
            return (
                "No privacy guarantee: these tables hold exact counts, which are as sensitive as the records and "
                "not for publication."
            )
        return super().privacy_statement()

    def _promise(self, guarantee: PrivacyGuarantee | None) -> str:
        return promise_sentence(guarantee, self.person_rows)

    def _doubt(self) -> Doubt | None:
        measured = different(self.measurements)
        if self.has_tables:
            asked = ()
        else:
            asked = [each.query for each in measured]
        noise = [each.noise for each in measured]
        mechanism = self.provenance.mechanism
        return doubt_of(self.guarantee, noise, self.specification, asked, mechanism)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        allow_unprotected: bool = False,
        overwrite: bool = False,
    ) -> None:
        """Write the release to one file, which `bayesprivmrf.load_release` reads.

        Parameters
        ----------
        path, overwrite
            As for `Released.save`.
        allow_unprotected
            Whether exact tables may be saved. Only the owner can read their file.

        Raises
        ------
        PrivacyError
            The tables are exact and `allow_unprotected` is False.
        ReleaseFileError
            The path cannot be written, or holds another release and `overwrite` is False.
        """
        if not truth("allow_unprotected", allow_unprotected) and self.is_exact:
            what = "tables without privacy noise have no privacy guarantee and are not saved"
            raise PrivacyError(
                f"{what}; pass `allow_unprotected=True` if the file stays with the data."
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

    def _content(self) -> dict[str, Json]:
        return statistics_content(self)

    def _array(self) -> np.ndarray:
        return self.flat

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        return cls(**restored_arguments(content, array, stamp["provenance"]), **stamp)


RELEASE_KINDS.add(MEASUREMENTS, NoisyStatistics)
