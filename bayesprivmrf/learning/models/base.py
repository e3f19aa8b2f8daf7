"""Base class of releases of learned models: the model, its guarantee, and its provenance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from bayesprivmrf.cards import marked
from bayesprivmrf.checks import generator
from bayesprivmrf.errors import NoIntervalError
from bayesprivmrf.inference.asked import Asked
from bayesprivmrf.inference.effect_table import EffectCoding, EffectTable
from bayesprivmrf.inference.joint_estimate import JointEstimate
from bayesprivmrf.inference.limits import Limits
from bayesprivmrf.inference.noise_aware.estimator import NoiseAwareMAP
from bayesprivmrf.inference.result import Result
from bayesprivmrf.inference.solution import Solution, Status
from bayesprivmrf.learning.models.dependence import Dependence
from bayesprivmrf.learning.models.graph import Weight, coupling_graph
from bayesprivmrf.learning.models.maps import LearningMap
from bayesprivmrf.learning.models.parameters import LearnedParameters
from bayesprivmrf.learning.models.solution import NO_COUNTS, LearnedSolution, status_with_advice
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.model.domain import Condition, Label, Variable
from bayesprivmrf.model.tables import FloatArray, labelled, parent
from bayesprivmrf.privacy import NoiseDistribution, PrivacyGuarantee
from bayesprivmrf.release import NoisyStatistics
from bayesprivmrf.release.base import Provenance, Released

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    import xarray as xr
    from pgmpy.models import DiscreteMarkovNetwork


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedNetwork(Released, Result, LearnedParameters):
    """Abstract release of a model that a mechanism learned from records.

    Parameters
    ----------
    domain
        Variables and states, as declared.
    guarantee
        Privacy guarantee of the release.
    provenance
        Mechanism, settings and library versions of the release.
    total
        Number of records: public under replace-one neighbors, noisy under add-or-remove-one neighbors if the
        mechanism bought it, else ``None``.
    total_noise
        Distribution of the noise on `total`, ``None`` if there is none.
    details
        Public numbers about the release, such as steps and noise scales.
    map
        Public settings that turn records into parameters (`LearningMap`). ``None`` if unknown, as for a release read
        from a file of another version.
    statistics
        Noisy measurements that the parameters were fitted to, which every estimator reads; ``None`` if the mechanism
        measured no tables or sums.
    unsupported
        For each variable, the positions of states whose released count is within noise of 0. ``None`` if no released
        number counts states.
    """

    domain: Domain
    guarantee: PrivacyGuarantee
    provenance: Provenance
    total: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    total_noise: NoiseDistribution | None = None
    map: LearningMap | None = None
    statistics: NoisyStatistics | None = None
    unsupported: tuple[tuple[int, ...], ...] | None = None

    format_version = 3
    _without_tables = "it is a model already, as its `solution`"
    _origin: ClassVar[str] = "Learned"
    graph_heading: ClassVar[str] = "Pairs with the largest effects"
    """Heading of a list of the graph's edges, sorted by weight."""
    has_signs: ClassVar[bool] = False
    """Whether the ``"largest"`` weights of `graph` have a sign; entries of tables have none."""

    @property
    @abstractmethod
    def specification(self) -> ModelSpecification:
        """The model, with a clique for each nonzero coupling and for each variable without a coupling."""

    @property
    @abstractmethod
    def potentials(self) -> CliqueTables:
        """Log potentials, nats, one table for each clique of `specification`."""

    @abstractmethod
    def _weighted_pairs(self) -> Iterator[tuple[int, int, float]]:
        """Yield the positions of coupled variables and their weight in `graph`."""

    def graph(self, threshold: float | None = None, *, weight: Weight = "largest") -> nx.Graph:
        """Return the graph of the couplings, with a ``weight`` on each edge.

        Parameters
        ----------
        threshold
            Edges need a weight above this number in absolute value; at least 0. It is in nats for ``"largest"`` and
            between 0 and 1 for ``"dependence"``; 0 keeps every nonzero coupling. The default omits pairs that noise
            could explain: after `SelectMeasure`, pairs whose measured dependence is within noise and sampling; after
            every learner, pairs with a variable that has records in one state only. Other learners keep all other
            couplings, because only a simulation shows their noise (`couplings_interval`).
        weight
            ``"largest"`` is the size of the coupling, nats: the coupling of an Ising model, the largest entry of the
            table of a pairwise model, the largest coefficient of a monomial that contains both variables, or the
            largest entry of an effect of both variables for learned potentials. Rare states, where noise is large,
            often decide it. ``"dependence"`` is a number from 0 to 1 on the scale of a partial correlation, computed
            from the conditional mutual information of the two variables given all others. It weights states by their
            frequency (`bayesprivmrf.learning.models.dependence`).

        Raises
        ------
        ArgumentError
            The threshold is negative or not a finite number, or `weight` is another word.
        """
        return coupling_graph(self, threshold, weight)

    def _stands_out(self, first: int, second: int) -> bool:
        """Return True if a pair is in the graph by default: neither variable has only one state with records."""
        lacking = self.unsupported or ((),) * len(self.domain.variables)
        states = self.domain.cardinalities
        return all(len(lacking[v]) < max(states[v] - 1, 1) for v in (first, second))

    def association(self, first: Variable, second: Variable) -> xr.DataArray:
        """Return the association of two variables given all others, for each pair of states, nats.

        An entry is the log of a ratio: the frequency of the two states together over their frequency if the two
        variables were independent given the others (`bayesprivmrf.learning.models.dependence`). The entry log 2 means
        twice as often.

        Parameters
        ----------
        first, second
            Two declared variables.

        Raises
        ------
        ModelError
            A variable is not declared, or both are the same.
        """
        names, (i, j) = self.specification.positions_of([first, second])
        table = labelled(self.domain, names, self._dependence.association(i, j), "association")
        return marked(table, self.provenance.simulated)

    @cached_property
    def _dependence(self) -> Dependence:
        return Dependence.of(self._unjudged())

    def _pair_errors(self) -> Mapping[tuple[int, int], float | None]:
        """Return standard errors of the weights of pairs, where no simulation is needed."""
        return {}

    def summary(self) -> dict[str, Any]:
        """Return status, details, and the couplings sorted by size; a table counts by its largest entry.

        The ``"error"`` of a coupling is its first-order standard error from noise and sampling, nats, or ``None``
        where only `couplings_interval` can estimate it.
        """
        names = self.domain.variables
        errors = self._pair_errors()
        couplings = [
            {"variables": [names[i], names[j]], "coupling": weight, "error": errors.get((i, j))}
            for i, j, weight in sorted(self._weighted_pairs(), key=lambda pair: -abs(pair[2]))
            if weight
        ]
        return {
            "status": self.status,
            "details": dict(self.details),
            "couplings": couplings,
            "unsupported": None
            if self.unsupported is None
            else self._listed(self.unsupported_states),
        }

    @property
    def unsupported_states(self) -> Mapping[Variable, tuple[Label, ...]]:
        """States whose released count is within noise of 0, by variable; the data do not determine their parameters.

        The mapping is empty if no released number counts states; every row of `couplings_interval` then says so.
        """
        named = zip(self.domain.variables, self.domain.states, self.unsupported or (), strict=False)
        return {variable: tuple(states[s] for s in own) for variable, states, own in named if own}

    @staticmethod
    def _listed(states: Mapping[Variable, tuple[Label, ...]]) -> dict[str, list[str]]:
        return {str(variable): list(map(str, own)) for variable, own in states.items()}

    @property
    def network(self) -> DiscreteMarkovNetwork:
        """The model as a pgmpy network with one factor for each clique."""
        return marked(self.specification.to_pgmpy(self.potentials), self.provenance.simulated)

    @property
    def _version(self) -> int:
        return max(self.format_version, 0 if self.statistics is None else self.statistics._version)

    @property
    def _measured_numbers(self) -> FloatArray:
        """Noisy measurements that follow the parameters in the release's file."""
        if self.statistics is None:
            return np.zeros(0)
        return self.statistics.flat

    @cached_property
    def solution(self) -> LearnedSolution:
        """The model as a `bayesprivmrf.Solution`, the result type of all estimators.

        A model too wide for exact inference has a solution that draws records and refuses marginals. The solution is
        ``not trusted`` if the measurements behind it contradict the model.
        """
        return self._unjudged().judged(self.statistics)

    def _unjudged(self) -> LearnedSolution:
        stated = status_with_advice(self._stated_status, self.details)
        return LearnedSolution(
            specification=self.specification,
            potentials=self.potentials,
            method=self.provenance.mechanism,
            status=self._stated_status,
            stats={name: value for name, value in self.details.items() if name != "status"},
            is_simulated=self.provenance.simulated,
            problems=() if stated == self._stated_status.value else (f"The fit is {stated}.",),
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems of the fit, one sentence each; empty where none is known."""
        return self.solution.problems

    @property
    def fitted_numbers(self) -> FloatArray | None:
        """Released numbers behind the fit, as they were published, shape (numbers,); None if it keeps none."""
        if self.statistics is None:
            return None
        return self.statistics.flat.copy()

    @property
    def is_simulated(self) -> bool:
        """True if the noise of the release was seeded, and so protects nobody."""
        return self.provenance.simulated

    @property
    def _assumed(self) -> tuple[str, ...]:
        return self.solution._assumed

    @property
    def status(self) -> Status:
        """Status of the fit; ``not trusted`` if the measurements contradict the model."""
        return self.solution.status

    @property
    def _stated_status(self) -> Status:
        """Status in the details; approximate if the mechanism, such as Frank-Wolfe, does not check for an optimum."""
        stated = self.details.get("status")
        if isinstance(stated, str) and stated in Status:
            return Status(stated)
        return Status.APPROXIMATE

    def _limits(self, asked: Asked) -> Limits:
        """Return the limits of the fit that has intervals; they cost no privacy budget.

        After ``SelectMeasure(rho)`` it is `solution`. For other models whose cliques all lie in measured tables
        (`statistics`) it is ``NoiseAwareMAP().fit(learned.statistics)``. `couplings_interval` has intervals of
        couplings and fields.

        Raises
        ------
        NoIntervalError
            Some clique was not measured, as after Frank-Wolfe.
        """
        try:
            return self.solution._limits(asked)
        except NoIntervalError:
            if self._refitted is None:
                raise
            return self._refitted._limits(asked)._replace(status=self._refitted.status)

    def _joint_estimate(self, asked: Asked) -> JointEstimate:
        """Return a joint table of the noise-aware fit of the measured tables, with all remarks on its intervals."""
        remarks = self._limits(asked).marks
        if self._refitted is None:
            return self.solution._joint_estimate(asked)
        found = self._refitted._joint_estimate(asked)
        # a remark on some cells concerns every function of the table
        whole = [
            replace(mark, rows=None) for mark in remarks if mark.rows is None or np.any(mark.rows)
        ]
        return replace(found, marks=(*whole, *found.marks))

    def _effect_limits(self, prob: float, coding: EffectCoding) -> tuple[EffectTable, Limits]:
        """Return the effects of the noise-aware fit of the measured tables, if they hold every clique."""
        if self._refitted is None:
            return super()._effect_limits(prob, coding)
        table, limits = self._refitted._effect_limits(prob, coding)
        return table, limits._replace(status=self._refitted.status)

    @cached_property
    def _refitted(self) -> Solution | None:
        """The noise-aware fit of the measured tables, if they hold every clique; None if they do not."""
        statistics = self.statistics
        if statistics is None or statistics.specification.domain != self.domain:
            return None
        measured = statistics.specification.scopes
        # a fit to single variables, as Frank-Wolfe measures them, would make all variables independent
        if any(parent(measured, scope) is None for scope in self.specification.scopes):
            return None
        return NoiseAwareMAP().fit(statistics)

    def _marginal_table(self, query: Sequence[int], given: Condition) -> FloatArray:
        return self.solution._marginal_table(query, given)

    def _codes(self, size: int, generator: np.random.Generator, is_balanced: bool) -> np.ndarray:
        return self.solution._codes(size, generator, is_balanced)

    def sample(
        self,
        size: int,
        *,
        rng: int | np.random.Generator | None = None,
        method: Literal["independent", "balanced"] = "independent",
    ) -> pd.DataFrame:
        """Draw records from the model, exactly if it is narrow enough, else by Gibbs sampling.

        `bayesprivmrf.Solution.sample` describes the parameters and the result; here `rng` may be left out. A
        `SamplingWarning` says if the chains did not mix. A model too wide for exact draws has no ``"balanced"`` ones.
        """
        return super().sample(size, rng=generator(rng), method=method)

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
            found.append(("status", status_with_advice(self.status, self.details)))
        if self.unsupported is None:
            found.append(("support", NO_COUNTS))
        elif lacking := self._listed(self.unsupported_states):
            named = [f"{variable} = {', '.join(own)}" for variable, own in lacking.items()]
            # print the states of five variables at most
            if len(named) > 5:
                more = f" and of {len(named) - 5} more variables"
            else:
                more = ""
            found.append(
                (
                    "support",
                    f"none for {'; '.join(named[:5])}{more}: their effects are not determined",
                )
            )
        return [*found, ("privacy", self.privacy_statement())]
