"""`StableStructure`: a graph under approximate privacy, released if no few records could change it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bayesprivmrf.audit import Choices, StableAnswers, Sums
from bayesprivmrf.checks import one_of, positive_finite, probability, require, require_memory, whole_number
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.learning.structure.dependence_graph import (
    THRESHOLDS,
    graphs_to_choose,
    largest_distance,
    release_threshold,
    stable_graph,
    stable_tree,
)
from bayesprivmrf.learning.structure.packed_records import UNIT
from bayesprivmrf.learning.structure.released import ReleasedGraph
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.calibration import discrete_laplace_laws
from bayesprivmrf.mechanisms.reading.frame import guarded
from bayesprivmrf.mechanisms.settings import RecordMechanism, RecordPlan
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise import DiscreteLaplace, NoiseSource
from bayesprivmrf.planning import Outlay
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.privacy.selection import GUMBEL_DEVIATION, ROUNDING

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork

# Largest difference between the changes of two thresholds' clearness by one neighbor
_MOVED = 2
# Share of epsilon for the choice of a threshold
_CHOOSING = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class StructurePlan(RecordPlan):
    """The public part of a release: the variables, the noise on the distance, and the noisy distance `needed`.

    `choice` is the scale of the noise on the clearness of thresholds, or ``None`` if no threshold is chosen.
    """

    law: DiscreteLaplace
    needed: int
    choice: float | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExactGraph:
    """The exact graph, and its distance from a different graph: sensitive, and printed as such."""

    pairs: tuple[tuple[int, int], ...] | None
    distance: int

    def choose(self, source: NoiseSource, scale: float | None) -> tuple[ExactGraph, float | None]:
        """Return the graph itself, and no threshold: nothing is chosen."""
        return self, None

    def __repr__(self) -> str:
        return "ExactGraph(sensitive)"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExactGraphs:
    """The exact graphs of all thresholds, with the clearness of each threshold: sensitive, and printed as such."""

    clearness: IntArray
    graphs: tuple[ExactGraph, ...]

    def choose(self, source: NoiseSource, scale: float | None) -> tuple[ExactGraph, float | None]:
        """Return the graph of a threshold that is chosen with noise of a given scale, and the threshold."""
        assert scale is not None
        place = int(source.choose(self.clearness[None, :], scale)[0])
        return self.graphs[place], THRESHOLDS[place] / UNIT

    def __repr__(self) -> str:
        return "ExactGraphs(sensitive)"


type Exact = ExactGraph | ExactGraphs


@dataclass(frozen=True, kw_only=True)
class StableStructure(RecordMechanism[StructurePlan, Exact, ReleasedGraph]):
    r"""Release a graph of the variables, or refuse, under :math:`(\epsilon, \delta)`.

    The exact graph is released if a noisy distance shows that no few records could change it.
    `bayesprivmrf.learning.structure.dependence_graph` has the proof and the tree, and
    `bayesprivmrf.learning.structure.dependence_graph` the graph, each with its distance. Declared cliques are not
    used.

    Parameters
    ----------
    epsilon
        Budget, nats, positive.
    delta
        Probability, above 0, that a graph which one record could change is released.
    structure
        ``"tree"``: the spanning tree of largest dependence. An independent variable, or a copy of another variable,
        makes ties, which end in a refusal. ``"graph"``: the pairs that are dependent given any few other variables;
        it may have cycles and variables without an edge.
    threshold
        For a graph: the distance from independence, in (0, 2), above which a pair is an edge; 0.1 by default. The
        distance is the sum of absolute differences of the cells' shares, over all strata of the variables that are
        conditioned on. The threshold is rounded to the nearest 1/1024. For two variables of two equally frequent
        states the distance is the size of their correlation. ``"gap"`` spends a quarter of epsilon on a choice among
        eight thresholds between 0.03 and 0.16, and favors one that is far from all pairs' scores relative to its
        size.
    given
        For a graph: the largest number of other variables that are conditioned on, 0, 1 or 2; 2 by default.
    order
        For a graph: the largest number of variables in a clique, 2, 3 or 4; 2 by default. ``order=3`` finds edges of
        three variables that are only jointly dependent. The release declares edges and cliques of at most this many
        variables for a second release.
    adjacency, missing, other
        See `StatisticsMechanism`.

    Raises
    ------
    ArgumentError
        A setting is out of range.

    References
    ----------
    Dwork, Lei 2009 (propose, test, release). Chow, Liu 1968. Anandkumar, Tan, Huang, Willsky 2012 (graphs).

    Examples
    --------
    >>> StableStructure(epsilon=1.0, delta=1e-6).structure
    'tree'
    """

    releases = (ReleasedGraph,)
    removed_settings: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("certificate", "blocks"),
        "the distance is the smallest move of a score; the distance by blocks, which needs more than ten times the "
        "records, is BlockStructure in benchmarks/papers/block_structure.py of the repository",
    )

    epsilon: float
    delta: float
    structure: str = "tree"
    threshold: float | str | None = None
    given: int | None = None
    order: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(
            epsilon=positive_finite("epsilon", self.epsilon),
            delta=probability("delta", self.delta, zero=False),
        )
        one_of("structure", self.structure, ("tree", "graph"))
        if self.structure == "graph":
            given, order = 2 if self.given is None else self.given, 2 if self.order is None else self.order
            self._keep(
                threshold=_threshold(self.threshold),
                given=whole_number("given", given, 0, 2, remedy="condition on two variables at most"),
                order=whole_number("order", order, 2, 4, remedy="take cliques of four at most"),
            )
        for name in ("threshold", "given", "order") if self.structure == "tree" else ():
            if getattr(self, name) is not None:
                raise ArgumentError(
                    f"`{name}` must be left out for a tree, got {getattr(self, name)!r}; take structure='graph'."
                )

    @property
    def _chooses(self) -> bool:
        """True if a share of the budget chooses a threshold with noise."""
        return self.threshold == "gap"

    def _prepare(self, network: DiscreteMarkovNetwork | ModelSpecification) -> StructurePlan:
        specification = ModelSpecification.from_pgmpy(network)
        if len(specification.domain.variables) < 2:
            raise ModelError("`network` must have at least two variables for a graph, got one; declare more.")
        if specification.impossible or any(specification.sharing):
            raise ModelError(
                "`network` must have no impossible cells, ties, scores or levels, which a graph cannot use; declare "
                "the variables without them."
            )
        # arrays of all pairs of states; for a graph one more for each two states of a pair
        most = max(specification.cardinalities)
        arrays = 7 * 8 if self.order is None else 2 * 4 * most**self.order
        bytes_ = arrays * sum(k - 1 for k in specification.cardinalities) ** 2
        remedy = "merge states, or declare fewer variables"
        require_memory("all pairs of states", bytes_, remedy, DEFAULT_MEMORY_LIMIT)
        (law,) = discrete_laplace_laws([1.0 - _CHOOSING * self._chooses], self.epsilon, 1)
        return StructurePlan(
            **self._declared(specification),
            law=law,
            needed=release_threshold(law, self.delta),
            choice=_choice(self.epsilon) if self._chooses else None,
        )

    def _guarantee(self, plan: StructurePlan) -> PrivacyGuarantee:
        return PrivacyGuarantee(epsilon=self.epsilon, delta=self.delta, adjacency=self.adjacency)

    def _outlays(self, plan: StructurePlan, total: float | None) -> list[Outlay]:
        spent = 0.0 if plan.choice is None else _CHOOSING * self.epsilon
        steps = [
            Outlay(
                step="noisy distance",
                epsilon=self.epsilon - spent,
                count=1,
                noise_sd=plan.law.standard_deviation,
                draws=(Sums(law=plan.law, copies=1),),
            ),
            Outlay(
                step="a graph that one record changes",
                draws=(StableAnswers(law=plan.law, threshold=plan.needed),),
            ),
        ]
        if plan.choice is None:
            return steps
        choosing = Outlay(
            step="choice of a threshold",
            epsilon=spent,
            count=1,
            noise_sd=plan.choice * GUMBEL_DEVIATION,
            # 5 scales behind: a choice of one in 150, whose loss is nearly the largest of any choice
            draws=(Choices(scale=plan.choice, score_range=_MOVED, copies=1, behind=5.0),),
        )
        return [choosing, *steps]

    def _read(self, plan: StructurePlan, data: Any, count: Hashable | None = None) -> Exact:
        exact = self._records(plan, data, count)
        most = largest_distance(plan.law, plan.needed)
        return guarded("learning", lambda: self._answers(plan, exact.codes, exact.counts, most))

    def _answers(
        self, plan: StructurePlan, codes: np.ndarray, counts: IntArray, most: int
    ) -> ExactGraph | ExactGraphs:
        records = (codes, counts, plan.specification.cardinalities, self.adjacency)
        if self.threshold is None or self.given is None or self.order is None:
            pairs, distance = stable_tree(*records)
            return ExactGraph(pairs=pairs, distance=distance)
        settings = {"given": self.given, "order": self.order, "most": most}
        if isinstance(self.threshold, str):
            clearness, answers = graphs_to_choose(*records, **settings)
            graphs = tuple(ExactGraph(pairs=pairs, distance=distance) for pairs, distance in answers)
            return ExactGraphs(clearness=clearness, graphs=graphs)
        pairs, distance = stable_graph(*records, threshold=self.threshold, **settings)
        return ExactGraph(pairs=pairs, distance=distance)

    def _randomise(
        self, plan: StructurePlan, exact: Exact, source: NoiseSource, stamp: Stamp
    ) -> ReleasedGraph:
        graph, chosen = exact.choose(source, plan.choice)
        noisy = int(source.add(np.array([graph.distance - 1], dtype=np.int64), plan.law)[0])
        details = {"structure": self.structure, "noisy_distance": noisy, "needed": plan.needed}
        if self.structure == "graph":
            details |= {"threshold": self.threshold if chosen is None else chosen, "given": self.given}
        return ReleasedGraph(
            domain=plan.specification.domain,
            pairs=graph.pairs if noisy >= plan.needed else None,
            order=self.order or 2,
            is_threshold_chosen=plan.choice is not None,
            details=details,
            **stamp.fields,
        )


def _threshold(given: float | str | None) -> float | str:
    if given is None:
        return 0.1
    if isinstance(given, str):
        if given == "gap":
            return given
        raise ArgumentError(
            f"`threshold` must be a number from 1/{UNIT} to 2, or 'gap', got {given!r}; take 0.1, or 'gap'."
        )
    threshold = positive_finite("threshold", given)
    if not 1 <= round(threshold * UNIT) < 2 * UNIT:
        raise ArgumentError(
            f"`threshold` must be at least 1/{UNIT} and below 2, which no dependence reaches, got {threshold!r}; "
            "take 0.1."
        )
    return threshold


def _choice(epsilon: float) -> float:
    """Return the scale at which the choice of a threshold costs its share, including the rounding of its noise."""
    slack = _CHOOSING * epsilon - 2 * ROUNDING
    require(slack > 0, "epsilon", "leave some budget for the choice of a threshold", epsilon, "take more")
    return _MOVED / slack
