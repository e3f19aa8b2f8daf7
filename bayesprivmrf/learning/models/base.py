"""What every release of learnt couplings has: the model, what was promised, how it was made."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, final

import numpy as np

from bayesprivmrf.errors import ArgumentError, ReleaseFileError
from bayesprivmrf.learning.models.saved_map import map_content, restored_map
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import NoiseLaw, PrivacyGuarantee, noise_from_dict
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.release.base import Provenance, Released
from bayesprivmrf.release.codec import (
    Fields,
    details_content,
    domain_content,
    numbers,
    restored_domain,
    restored_model,
    upper_places,
)

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    from pgmpy.models import DiscreteMarkovNetwork

__all__ = ["LearnedNetwork", "LearningMap"]


class LearningMap(Protocol):
    """How a mechanism turns records into parameters: a frozen object of public settings."""

    def learn(
        self, codes: np.ndarray, counts: IntArray, total: float, source: NoiseSource, /
    ) -> tuple[FloatArray, ...]:
        """Return the parameters, in the order of the release's `parameters`.

        Parameters
        ----------
        codes, counts
            Records as states' codes, shape (rows, p), and how many each row stands for.
        total
            Their number as far as it may be used: public or noisy.
        source
            Of noise.
        """
        ...


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedNetwork(Released, ABC):
    """Abstract release of a model whose couplings were learnt.

    Parameters
    ----------
    domain
        Variables and states, as declared.
    guarantee
        What is promised.
    provenance
        How the release was made.
    total
        Number of records: public under replace-one, noisy under add-or-remove-one where it was paid for, else
        ``None``.
    total_noise
        Law of the noise on it, ``None`` where there is none.
    details
        Public numbers about the release, such as steps and noise scales.
    map
        How records became parameters, as public settings: see `bayesprivmrf.learning.intervals.interval`. ``None``
        where that is not known, as for a release read from a file of another version.
    statistics
        The noisy tables that the parameters were fitted to, for the estimators of `bayesprivmrf`, where the mechanism
        measured tables.
    """

    domain: Domain
    guarantee: PrivacyGuarantee
    provenance: Provenance
    total: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    total_noise: NoiseLaw | None = None
    map: LearningMap | None = None
    statistics: NoisyStatistics | None = None

    format_version = 3
    parameters: ClassVar[tuple[str, ...]] = ("coupling_matrix", "field_vector")
    """Names of the fields that hold what was learnt, in the order in which the map gives them."""

    @property
    @abstractmethod
    def specification(self) -> ModelSpecification:
        """The model: one clique for each coupling that is not zero, one for each variable without."""

    @property
    @abstractmethod
    def potentials(self) -> CliqueTables:
        """Log potentials, nats, one table a clique of `specification`."""

    @abstractmethod
    def _weighted_pairs(self) -> Iterator[tuple[int, int, float]]:
        """Yield positions of coupled variables and what `graph` has as their weight."""

    @final
    def graph(self, threshold: float = 0.0) -> nx.Graph:
        """Return the graph of couplings above a threshold in size, as ``weight`` on its edges.

        The weight is the coupling for an Ising model, the largest entry of a coupling's table for a pairwise one, the
        coefficient largest in size of the monomials that hold both variables, and for learnt potentials the largest
        entry of an effect of both variables: a table of sum zero along each of its axes.

        Parameters
        ----------
        threshold
            Nats, at least 0; by default every coupling that is not zero has an edge.

        Raises
        ------
        ArgumentError
            The threshold is negative or not a finite number.
        """
        import networkx as nx

        if isinstance(threshold, bool) or not isinstance(threshold, Real) or not 0 <= threshold < math.inf:
            raise ArgumentError(
                f"`threshold` must be a finite size of at least 0, got {threshold!r}; 0 keeps all that is not zero."
            )
        names = self.domain.variables
        graph = nx.Graph()
        graph.add_nodes_from(names)
        graph.add_weighted_edges_from(
            (names[i], names[j], weight) for i, j, weight in self._weighted_pairs() if abs(weight) > threshold
        )
        return graph

    @property
    def network(self) -> DiscreteMarkovNetwork:
        """The model as a pgmpy network, one factor a clique."""
        return self.specification.to_pgmpy(self.potentials)

    @property
    def status(self) -> str:
        """How the fit ended, as `bayesprivmrf.Status` has it in words."""
        return str(self.details.get("status", "converged"))

    def sample(self, size: int, rng: int | np.random.Generator | None = None) -> pd.DataFrame:
        """Draw records from the model: exactly where it is narrow enough, else by Gibbs sampling.

        Parameters
        ----------
        size
            Number of records, at least 0.
        rng
            Seed or generator.

        Returns
        -------
        pandas.DataFrame
            One column a variable, in declared order; declared labels. A `SamplingWarning` says if chains did not mix.
        """
        from bayesprivmrf.learning.models.simulation import sample

        return sample(self, size, rng)

    def interval(
        self,
        prob: float = 0.9,
        rng: int | np.random.Generator | None = None,
        replicates: int = 100,
        *,
        of: Literal["couplings", "fields"] = "couplings",
        method: Literal["linearised", "calibrated", "basic", "percentile"] | None = None,
        total: float | None = None,
    ) -> pd.DataFrame:
        """Return intervals for all couplings or fields by simulation from the release; it spends no budget.

        `bayesprivmrf.learning.intervals.interval` has the methods, docs/learning.md how often they hold the truth.

        Parameters
        ----------
        prob
            Coverage of each interval, in (0, 1).
        rng
            Seed or generator.
        replicates
            How often records are simulated and learnt from; ``"calibrated"`` takes a fifth more, ``"linearised"``
            none.
        of
            What the intervals are for.
        method
            ``"linearised"`` by default for `SelectMeasure`, ``"calibrated"`` for other mechanisms.
        total
            How many records to simulate, where the release knows no number; by default the release's.

        Returns
        -------
        pandas.DataFrame
            Columns ``estimate``, ``lower`` and ``upper``, nats; one row a coupling (pair of variables, and of states
            where they have more than two) or a field. Limits are of each by itself, not of all at once.

        Raises
        ------
        ArgumentError
            An argument is out of range.
        ModelError
            The release does not know its map, or no number of records.
        """
        from bayesprivmrf.learning.intervals.interval import interval

        return interval(self, prob, rng, replicates, of=of, method=method, total=total)

    def _facts(self) -> list[tuple[str, str]]:
        coupled = self.graph().number_of_edges()
        found = [
            ("mechanism", self.provenance.mechanism),
            ("variables", f"{len(self.domain.variables)}"),
            ("couplings", f"{coupled:,} pair{'' if coupled == 1 else 's'}"),
        ]
        if self.total is not None:
            found.append(("records", f"about {self.total:,.0f}"))
        return [*found, ("privacy", self.privacy_statement())]

    # The file of a model of pairs. Its array is the fields, then row, column and value of every coupling above the
    # diagonal that is not zero, then the noisy tables.

    def _content(self) -> dict[str, Any]:
        matrix, _ = self._pair_arrays
        tables = self.statistics
        return {
            "total": self.total,
            "total_noise": None if self.total_noise is None else self.total_noise.as_dict(),
            "details": details_content(self.details),
            "couplings": int(np.count_nonzero(np.triu(matrix, k=1))),
            "map": map_content(self.map),
            "statistics": None
            if tables is None
            else {
                "cliques": [list(scope) for scope in tables.specification.scopes],
                "noise": [law.as_dict() for law in tables.noise],
                "total": tables.total,
            },
            **domain_content(self.domain),
        }

    def _array(self) -> np.ndarray:
        matrix, fields = self._pair_arrays
        rows, columns = np.nonzero(np.triu(matrix, k=1))
        tables = np.zeros(0) if self.statistics is None else self.statistics.tables.flat
        return np.concatenate([fields, rows, columns, matrix[rows, columns], tables])

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        domain, count = restored_domain(content), content.whole("couplings", 0)
        measured = None if content["statistics"] is None else Fields(content["statistics"])
        model = None if measured is None else restored_model(measured, domain)
        width = array.size - 3 * count - (0 if model is None else model.size)
        if width not in (len(domain.variables), sum(domain.cardinalities)):
            raise ReleaseFileError(
                f"its array must hold fields, {count} couplings and tables, got {array.size}"
            )
        parts = np.split(numbers(array, (array.size,)), width + np.arange(4) * count)
        matrix = np.zeros((width, width))
        matrix[tuple(upper_places(parts[1:3], width))] = parts[3]
        statistics = None
        if measured is not None and model is not None:
            statistics = NoisyStatistics(
                specification=model,
                tables=model.tables(parts[4]),
                noise=tuple(noise_from_dict(law) for law in measured.items("noise")),
                total=measured["total"],
                **stamp,
            )
        return cls(
            domain=domain,
            total=content.number("total", optional=True),
            total_noise=content.law("total_noise", optional=True),
            details=content.mapping("details"),
            map=restored_map(content["map"], cls.parameters, domain.cardinalities),
            statistics=statistics,
            **dict(zip(cls.parameters, (matrix + matrix.T, parts[0]), strict=True)),
            **stamp,
        )

    @property
    def _pair_arrays(self) -> tuple[FloatArray, FloatArray]:
        matrix, fields = (getattr(self, name) for name in self.parameters)
        return matrix, fields
