"""Noisy contingency tables: the base of every mechanism that measures the declared tables."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from bayesprivmrf.errors import (
    ArgumentError,
    DataError,
    DeclarationWarning,
    ModelError,
    NoiseWarning,
    PrivacyError,
)
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT, forecast
from bayesprivmrf.mechanisms.base import Mechanism, Stamp
from bayesprivmrf.mechanisms.noise_warning import warn_without_raising
from bayesprivmrf.mechanisms.reading.counting import ExactCounts, count_tables
from bayesprivmrf.mechanisms.settings import checked_redirect, redirect_codes
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.noise import NoiseSource
from bayesprivmrf.noise.secure import require_releasable
from bayesprivmrf.planning import drowned_tables, noise_preview
from bayesprivmrf.privacy import Adjacency, NoiseLaw, PrivacyGuarantee
from bayesprivmrf.release import NoisyStatistics

if TYPE_CHECKING:
    import pandas as pd
    from pgmpy.models import DiscreteMarkovNetwork

__all__ = ["StatisticsMechanism", "StatisticsPlan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsPlan:
    """Everything public about a release of tables: model, noise laws, codes of redirected values."""

    specification: ModelSpecification
    noise: tuple[NoiseLaw, ...]
    missing: Mapping[Variable, int]
    other: Mapping[Variable, int]


@dataclass(frozen=True, kw_only=True)
class StatisticsMechanism(
    Mechanism["DiscreteMarkovNetwork | ModelSpecification", StatisticsPlan, ExactCounts, NoisyStatistics]
):
    r"""Abstract mechanism that adds independent integer noise to each measured table.

    A subclass supplies ``_noise(specification)``, one law a table, and ``_promise(specification)``.

    Its sensitivity: every record lies in exactly one cell of each of the m tables. Adding or removing it
    moves one cell of each table by one: L1 distance 1 and L2 distance 1 a table, m and :math:`\sqrt m`
    jointly. Replacing it moves it, in each table, from one cell to another or not at all: L1 distance 2 and L2
    distance :math:`\sqrt 2` a table at most, 2m and :math:`\sqrt{2m}` jointly, attained by two records that
    differ in every table. `l1_sensitivity` and `l2_sensitivity` hold the numbers for one table.

    Cells declared impossible are public zeros: their noise is dropped after it was drawn. Under
    add-or-remove-one the number of records is protected and no release holds it; under replace-one it is
    public and the release states it.

    Parameters
    ----------
    adjacency
        The neighbouring relation, `Adjacency` or its name.
    missing, other
        Declared state that takes missing values, or undeclared ones: a label, for the variables that have
        that state, or a mapping from variable to label. By default either is an error.
    """

    runs_from_file: ClassVar[bool] = True
    releases = (NoisyStatistics,)

    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE
    missing: Label | Mapping[Variable, Label] | None = None
    other: Label | Mapping[Variable, Label] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "adjacency", Adjacency.checked(self.adjacency))
        for name in ("missing", "other"):
            object.__setattr__(self, name, checked_redirect(name, getattr(self, name)))

    @abstractmethod
    def _noise(self, specification: ModelSpecification) -> tuple[NoiseLaw, ...]:
        """Return the integer noise law of each measured table."""

    @abstractmethod
    def _promise(self, specification: ModelSpecification) -> PrivacyGuarantee | None:
        """Return the joint guarantee of those laws, for neighbours as `adjacency` says."""

    @property
    @final
    def l1_sensitivity(self) -> int:
        """How far one neighbour moves one table in L1, records: 1, or 2 under replace-one."""
        return 1 if self.adjacency is Adjacency.ADD_OR_REMOVE_ONE else 2

    @property
    @final
    def l2_sensitivity(self) -> float:
        """How far one neighbour moves one table in L2, records: 1, or sqrt(2), rounded up, under replace-one."""
        return math.nextafter(math.sqrt(self.l1_sensitivity), math.inf) if self.l1_sensitivity > 1 else 1.0

    def preview(
        self, network: DiscreteMarkovNetwork | ModelSpecification, total: float | None = None
    ) -> pd.DataFrame:
        """Tell what the noise will be, before any data is read or budget spent.

        Parameters
        ----------
        network
            The declared model.
        total
            A public guess of the number of records, to compare the noise with; a `NoiseWarning` says which
            tables the noise would drown.

        Returns
        -------
        DataFrame
            One row a table; see `bayesprivmrf.planning.noise_preview`.
        """
        plan = self._prepare(network)
        frame = noise_preview(plan.specification, plan.noise, total)
        if total is not None:
            message = _drowned(plan, float(total), f"about {total:,.0f} records")
            if message is not None:
                warnings.warn(message, NoiseWarning, stacklevel=2)
        return frame

    @final
    def _prepare(self, network: DiscreteMarkovNetwork | ModelSpecification) -> StatisticsPlan:
        specification = ModelSpecification.from_pgmpy(network)
        if not specification.cliques_declared:
            raise ModelError(
                f"{type(self).__name__} must know which tables to measure, but the network declares no cliques; "
                "declare `cliques`, or learn the pairs by SelectMeasure (`select-measure` on the command line)."
            )
        if not specification.cliques:
            raise ModelError("the network must have at least one variable, got none; declare one.")
        _warn_of_width(specification)
        noise = tuple(self._noise(specification))
        if len(noise) != len(specification.cliques):
            raise ArgumentError(
                f"{type(self).__name__} must give one noise law for each of the {len(specification.cliques)} "
                f"tables, got {len(noise)}; correct its `_noise`."
            )
        for law in noise:
            require_releasable(law)
        bare = [
            clique for clique, law in zip(specification.cliques, noise, strict=True) if not law.variance > 0
        ]
        if bare and self._promise(specification) is not None:
            raise PrivacyError(
                f"{type(self).__name__} must add noise to every table under a guarantee, got none (or less than a "
                f"float can tell from none) for {bare[0]!r}; ask for a smaller budget, or promise nothing."
            )
        return StatisticsPlan(
            specification=specification,
            noise=noise,
            missing=redirect_codes("missing", self.missing, specification),
            other=redirect_codes("other", self.other, specification),
        )

    @final
    def _guarantee(self, plan: StatisticsPlan) -> PrivacyGuarantee | None:
        promised = self._promise(plan.specification)
        if isinstance(promised, PrivacyGuarantee) and promised.adjacency is not self.adjacency:
            raise PrivacyError(
                f"{type(self).__name__} must promise for {self.adjacency.value} neighbours, as its `adjacency` says, "
                f"got a guarantee for {promised.adjacency.value}; correct its `_promise`."
            )
        return promised

    @final
    def _read(self, plan: StatisticsPlan, data: Any) -> ExactCounts:
        counts = count_tables(plan.specification, data, missing=plan.missing, other=plan.other)
        if self.adjacency is Adjacency.REPLACE_ONE and counts.records == 0:
            raise DataError(
                "`data` must hold at least one record under replace-one neighbours, where their number is "
                "public, got none; use add-or-remove-one to protect the number as well."
            )
        return counts

    @final
    def _randomise(
        self, plan: StatisticsPlan, exact: ExactCounts, source: NoiseSource, stamp: Stamp
    ) -> NoisyStatistics:
        model = plan.specification
        tables_of: dict[str, tuple[NoiseLaw, list[int]]] = {}  # by all that a law is, whatever it calls equal
        for table, law in enumerate(plan.noise):
            tables_of.setdefault(repr(law.as_dict()), (law, []))[1].append(table)
        noisy = np.zeros_like(exact.flat)  # so that what no noise was drawn for could never be exact
        for law, tables in tables_of.values():
            cells = np.concatenate([np.arange(*model.offsets[table : table + 2]) for table in tables])
            noisy[cells] = source.add(exact.flat[cells], law)
        if model.possible is not None:
            noisy[~model.possible] = 0
        release = NoisyStatistics(
            specification=model,
            tables=model.tables(noisy),
            noise=plan.noise,
            guarantee=stamp.guarantee,
            provenance=stamp.provenance,
            total=exact.records if self.adjacency is Adjacency.REPLACE_ONE else None,
        )
        # from here on, only the release is looked at
        about = release.estimated_total
        if math.isfinite(about) and any(law.variance > 0 for law in plan.noise):
            message = _drowned(plan, about, "the number of records that the release itself suggests")
            if message is not None:
                warn_without_raising(message, stacklevel=4)
        return release


def _drowned(plan: StatisticsPlan, total: float, what: str) -> str | None:
    """Return what a warning says, if the noise would drown a table at this number of records."""
    drowned = drowned_tables(plan.specification, plan.noise, total)
    if not drowned:
        return None
    shown = ", ".join(map(repr, drowned[:3])) + (", ..." if len(drowned) > 3 else "")
    return (
        f"at {what} the noise is larger than an even cell in {len(drowned)} of {len(plan.noise)} tables "
        f"({shown}); declare fewer or smaller tables, or spend more."
    )


def _warn_of_width(specification: ModelSpecification) -> None:
    """Say before anything is spent that exact inference from the release will not fit."""
    cost = forecast(specification.cardinalities, specification.scopes)
    if cost.memory_bytes > DEFAULT_MEMORY_LIMIT:
        warnings.warn(
            f"exact inference in this model will not fit (cliques of {cost.treewidth + 1} variables once "
            "triangulated): its release can be fitted with inference='loopy' only, an approximation; declare "
            "fewer or smaller cliques for exact answers.",
            DeclarationWarning,
            stacklevel=4,
        )
