"""The common part of releases of learned couplings: the model, what was promised, how it was made."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from bayesprivmrf.cards import marked
from bayesprivmrf.checks import at_least, generator, one_of
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference.asked import Whose
from bayesprivmrf.inference.noise_aware.estimator import NoiseAwareMAP
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.learning.models.advice import NO_COUNTS, told_status
from bayesprivmrf.learning.models.parameters import LearnedParameters, LearningMap
from bayesprivmrf.learning.models.solution import Dependence, LearnedSolution, warn_of_chains
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.model.conditions import Given
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.tables import FloatArray, labelled, parent
from bayesprivmrf.privacy import NoiseLaw, PrivacyGuarantee
from bayesprivmrf.queries import Query
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.release.base import Provenance, Released

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    import xarray as xr
    from pgmpy.models import DiscreteMarkovNetwork

type Weight = Literal["largest", "dependence"]

_SHOWN = 5  # variables whose states without support are printed


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedNetwork(Released, LearnedParameters):
    """Abstract release of a model whose couplings were learned.

    Parameters
    ----------
    domain
        Variables and states, as declared.
    guarantee
        The promise of the release.
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
        How records became parameters, as public settings: see `LearningMap`. ``None`` where that is not known, as for
        a release read from a file of another version.
    statistics
        The statistics that the parameters were fitted to, for the estimators of `bayesprivmrf`, where the mechanism
        measured tables or sums.
    unsupported
        For each variable the positions of its states whose released count is within noise of 0 (`Told`); ``None``
        where no released number counts states.
    """

    domain: Domain
    guarantee: PrivacyGuarantee
    provenance: Provenance
    total: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    total_noise: NoiseLaw | None = None
    map: LearningMap | None = None
    statistics: NoisyStatistics | None = None
    unsupported: tuple[tuple[int, ...], ...] | None = None

    format_version = 3
    _without_tables = "it is a model already, as its `solution`"
    graph_heading: ClassVar[str] = "Pairs with the largest effects"
    """Heading of a list of the graph's edges by weight."""
    has_signs: ClassVar[bool] = False
    """Whether the largest weights of `graph` are numbers with a sign, not sizes of tables."""

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

    def graph(self, threshold: float | None = None, *, weight: Weight = "largest") -> nx.Graph:
        """Return the graph of couplings that stand out, or are above a threshold in size, as ``weight`` on its edges.

        The largest weight is the coupling for an Ising model, the largest entry of a coupling's table for a pairwise
        one, the coefficient largest in size of the monomials that hold both variables, and for learned potentials the
        largest entry of an effect of both variables: a table of sum zero along each of its axes. The dependence is a
        number from 0 to 1 that says how much two variables tell of each other given all others, the size of a partial
        correlation by their conditional mutual information (`bayesprivmrf.learning.models.solution`). States weigh
        as often as they occur, while the largest entry of a table is mostly a rare state's, and noise decides it.

        Parameters
        ----------
        threshold
            At least 0, nats or a dependence; 0 keeps every coupling that is not zero. By default pairs below their
            noise are left out: after `SelectMeasure` those whose measured dependence noise and sampling alone could
            explain, and after every learner those with a variable of which only one state has records. The other
            couplings of the other learners are kept, because their noise is known only by simulation
            (`couplings_interval`).
        weight
            ``"largest"`` or ``"dependence"``.

        Raises
        ------
        ArgumentError
            The threshold is negative or not a finite number, or `weight` is another word.
        """
        import networkx as nx

        least = 0.0 if threshold is None else threshold
        least = at_least("threshold", least, 0)
        one_of("weight", weight, ("largest", "dependence"))
        names = self.domain.variables
        weights = {
            (i, j): largest
            for i, j, largest in self._weighted_pairs()
            if threshold is not None or self._stands_out(i, j)
        }
        if weight == "dependence":
            # of the information of each pair, the correlation of a normal pair that has it
            told = {pair: self._dependence.information(*pair) for pair in weights}
            weights = {pair: math.sqrt(-math.expm1(-2 * nats)) for pair, nats in told.items()}
        graph = nx.Graph()
        graph.add_nodes_from(names)
        graph.add_weighted_edges_from(
            (names[i], names[j], size) for (i, j), size in weights.items() if abs(size) > least
        )
        return marked(graph, self.provenance.simulated)

    def _stands_out(self, first: int, second: int) -> bool:
        """Return True if a pair is in the graph by default: neither variable has only one state with records."""
        lacking, states = self.unsupported or ((),) * len(self.domain.variables), self.domain.cardinalities
        return all(len(lacking[v]) < max(states[v] - 1, 1) for v in (first, second))

    def association(self, first: Variable, second: Variable) -> xr.DataArray:
        """Return how two variables depend on each other given all others, state by state, nats.

        An entry is the log of how often two states come together, beside how often they would if the two variables
        were independent given the others (`bayesprivmrf.learning.models.solution`): log 2 is twice as often.

        Parameters
        ----------
        first, second
            Two declared variables.

        Raises
        ------
        ModelError
            A variable is unknown, or the two are one.
        """
        names, (i, j) = self.specification.positions_of([first, second])
        table = labelled(self.domain, names, self._dependence.association(i, j), "association")
        return marked(table, self.provenance.simulated)

    @cached_property
    def _dependence(self) -> Dependence:
        model = self.specification

        def draw(size: int, generator: np.random.Generator) -> np.ndarray:
            codes, is_trusted = self.solution.codes(size, generator)
            if not is_trusted:
                warn_of_chains()
            return codes

        return Dependence.of(model.cardinalities, model.scopes, self.potentials, draw)

    def _pair_errors(self) -> Mapping[tuple[int, int], float | None]:
        """Return standard deviations of what `_weighted_pairs` yields, where they cost nothing to know."""
        return {}

    def summary(self) -> dict[str, Any]:
        """Return status, details, and couplings, the largest in size first; of tables, their largest entry in size.

        ``"error"`` of a coupling is the standard deviation of noise and sampling, nats, to first order; ``None``
        where `couplings_interval` has to simulate to know it.
        """
        names, errors = self.domain.variables, self._pair_errors()
        couplings = [
            {"variables": [names[i], names[j]], "coupling": weight, "error": errors.get((i, j))}
            for i, j, weight in sorted(self._weighted_pairs(), key=lambda pair: -abs(pair[2]))
            if weight
        ]
        return {
            "status": self.status,
            "details": dict(self.details),
            "couplings": couplings,
            "unsupported": None if self.unsupported is None else self._listed(self.unsupported_states),
        }

    @property
    def unsupported_states(self) -> Mapping[Variable, tuple[Label, ...]]:
        """States whose released count is within noise of 0, by variable; their parameters are not determined.

        Empty where no released number counts states: `interval` then says so in every row.
        """
        named = zip(self.domain.variables, self.domain.states, self.unsupported or (), strict=False)
        return {variable: tuple(states[s] for s in own) for variable, states, own in named if own}

    @staticmethod
    def _listed(states: Mapping[Variable, tuple[Label, ...]]) -> dict[str, list[str]]:
        return {str(variable): list(map(str, own)) for variable, own in states.items()}

    def _support_content(self) -> dict[str, Any]:
        """Return the entry of the release's file that lists the states without support."""
        return {} if self.unsupported is None else {"unsupported": list(map(list, self.unsupported))}

    @property
    def network(self) -> DiscreteMarkovNetwork:
        """The model as a pgmpy network, one factor a clique."""
        return marked(self.specification.to_pgmpy(self.potentials), self.provenance.simulated)

    @property
    def _version(self) -> int:
        return max(self.format_version, 0 if self.statistics is None else self.statistics._version)

    @property
    def _measured_numbers(self) -> FloatArray:
        """The noisy numbers that its file holds besides the parameters."""
        return np.zeros(0) if self.statistics is None else self.statistics.flat

    @cached_property
    def solution(self) -> LearnedSolution:
        """The model as a `bayesprivmrf.Solution`, for marginals, and for whatever takes the result of an estimator.

        A model too wide for exact inference has one as well: its marginals are refused, its records are not. The
        solution is not trusted where the measurements that it was fitted to contradict it.
        """
        return self._unjudged().judged(self.statistics)

    def _unjudged(self) -> LearnedSolution:
        told = told_status(self._stated_status, self.details)
        return LearnedSolution(
            specification=self.specification,
            potentials=self.potentials,
            method=self.provenance.mechanism,
            status=self._stated_status,
            stats={name: value for name, value in self.details.items() if name != "status"},
            is_simulated=self.provenance.simulated,
            problems=() if told == self._stated_status.value else (f"The fit is {told}.",),
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of the fit, one sentence each; empty where none is known."""
        return self.solution.problems

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions that answers rest on whatever was measured, one sentence each, in a fixed order."""
        return self.solution.assumptions

    @property
    def status(self) -> Status:
        """How the fit ended; not trusted where the measurements contradict it."""
        return self.solution.status

    @property
    def _stated_status(self) -> Status:
        """How the fit ended by its details; approximate where the mechanism, as Frank-Wolfe, checks no optimum."""
        stated = self.details.get("status")
        return Status(stated) if isinstance(stated, str) and stated in Status else Status.APPROXIMATE

    def interval(
        self,
        variables: Variable | Sequence[Variable] | Query | None = None,
        prob: float = 0.9,
        *,
        of: Whose = "population",
        given: Given | None = None,
        **old: Any,
    ) -> pd.DataFrame:
        """Return intervals of the joint states of some variables; they spend no budget.

        After ``SelectMeasure(rho)`` they are those of `solution`. Of any other model, each clique of which lies in a
        table that was measured (`statistics`), they are those of ``NoiseAwareMAP().fit(learned.statistics)``, and so
        is the estimate in each row. `couplings_interval` has intervals of couplings and fields.

        Parameters
        ----------
        variables
            One or more declared variables; or a query, where `NoiseAwareMAP` answers.
        prob
            Probability that each interval should hold, between 0 and 1.
        of
            ``"population"`` for probabilities, ``"records"`` for numbers of these records.
        given
            States of other variables, where `NoiseAwareMAP` answers.
        **old
            Settings of intervals of couplings, which earlier versions took here; refused.

        Returns
        -------
        pandas.DataFrame
            Columns ``estimate``, ``lower``, ``upper``, ``status``, ``note``; one row a joint state in C order.

        Raises
        ------
        ArgumentError
            No variables were named, or settings of `couplings_interval` were given.
        NoIntervalError
            The cliques were not measured, as by Frank-Wolfe.
        """
        if variables is None or isinstance(variables, float) or old:
            raise ArgumentError(
                "`variables` must name variables of the model, such as ['a', 'b'], to have intervals of their joint "
                "states; those of couplings and fields are `couplings_interval(prob, rng, ...)`."
            )
        return self._with_intervals.interval(variables, prob, of=of, given=given)

    @cached_property
    def _with_intervals(self) -> Any:
        """The fit that answers `interval`: the solution, or the noise-aware estimate if each clique was measured."""
        solution, statistics = self.solution, self.statistics
        if (
            hasattr(solution, "interval")
            or statistics is None
            or statistics.specification.domain != self.domain
        ):
            return solution
        measured = statistics.specification.scopes
        # Frank-Wolfe measures single variables: their fit would call independent what was learned to depend
        if any(parent(measured, scope) is None for scope in self.specification.scopes):
            return solution
        return NoiseAwareMAP().fit(statistics)

    def sample(
        self,
        size: int,
        *,
        rng: int | np.random.Generator | None = None,
        method: Literal["independent", "balanced"] = "independent",
    ) -> pd.DataFrame:
        """Draw records from the model: exactly where it is narrow enough, else by Gibbs sampling.

        Parameters
        ----------
        size
            Number of records, at least 0.
        rng
            Seed or generator.
        method
            ``"independent"``, or ``"balanced"``, with little sampling noise: see `bayesprivmrf.Solution.sample`.
            A model too wide for exact draws has no balanced ones.

        Returns
        -------
        pandas.DataFrame
            One column a variable, in declared order; declared labels. A `SamplingWarning` says if chains did not mix.
        """
        return self.solution.sample(size, rng=generator(rng), method=method)

    def _facts(self) -> list[tuple[str, str]]:
        coupled = self.graph(0.0).number_of_edges()
        found = [
            ("mechanism", self.provenance.mechanism),
            ("variables", f"{len(self.domain.variables)}"),
            ("couplings", f"{coupled:,} pair{'' if coupled == 1 else 's'}"),
        ]
        if self.total is not None:
            found.append(("records", f"about {self.total:,.0f}"))
        if "status" in self.details:
            found.append(("status", told_status(self.status, self.details)))
        if self.unsupported is None:
            found.append(("support", NO_COUNTS))
        elif lacking := self._listed(self.unsupported_states):
            named = [f"{variable} = {', '.join(own)}" for variable, own in lacking.items()]
            more = f" and of {len(named) - _SHOWN} more variables" if len(named) > _SHOWN else ""
            found.append(
                ("support", f"none for {'; '.join(named[:_SHOWN])}{more}: their effects are not determined")
            )
        return [*found, ("privacy", self.privacy_statement())]
