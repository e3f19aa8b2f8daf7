"""`StableStructure`: a graph under approximate privacy, released if no few records could change it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bayesprivmrf.audit import Choices, StableAnswers, Sums
from bayesprivmrf.checks import (
    one_of,
    positive_finite,
    probability,
    require,
    require_memory,
    whole_number,
)
from bayesprivmrf.learning.structure.released import ReleasedGraph
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT
from bayesprivmrf.mechanisms.base import Stamp
from bayesprivmrf.mechanisms.calibration import discrete_laplace_laws
from bayesprivmrf.mechanisms.reading.frame import guarded
from bayesprivmrf.mechanisms.record_mechanisms import RecordMechanism, RecordPlan
from bayesprivmrf.mechanisms.structure.dependence_graph import (
    THRESHOLDS,
    GraphSearch,
    graphs_to_choose,
    largest_distance,
    release_threshold,
    stable_graph,
    stable_tree,
)
from bayesprivmrf.mechanisms.structure.packed_records import UNIT
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


# Pairs of a graph; None where no graph is the answer
type Pairs = tuple[tuple[int, int], ...] | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExactGraphs:
    """Exact graphs with their distances from a different graph: sensitive, and printed as such.

    There is one graph, or one for each of several thresholds with the `clearness` of each threshold.
    """

    graphs: tuple[tuple[Pairs, int], ...]
    clearness: IntArray | None = None

    def __repr__(self) -> str:
        return "ExactGraphs(sensitive)"


@dataclass(frozen=True, kw_only=True)
class StableStructure(RecordMechanism[StructurePlan, ExactGraphs, ReleasedGraph]):
    r"""Release a graph of the variables, or refuse, under :math:`(\epsilon, \delta)`.

    The exact graph is released if a noisy distance shows that no few records could change it.
    `bayesprivmrf.mechanisms.structure.dependence_graph` has the proof, and the tree and the graph with their
    distances. Declared cliques are not used.

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
        if self.structure == "tree":
            for name in ("threshold", "given", "order"):
                given = getattr(self, name)
                must = "be left out for a tree"
                require(given is None, name, must, given, "take structure='graph'")
            return
        given = 2 if self.given is None else self.given
        order = 2 if self.order is None else self.order
        if self.threshold is None:
            threshold = 0.1
        else:
            threshold = self.threshold
        if isinstance(threshold, str):
            must = f"be a number from 1/{UNIT} to 2, or 'gap'"
            require(threshold == "gap", "threshold", must, repr(threshold), "take 0.1, or 'gap'")
        else:
            threshold = positive_finite("threshold", threshold)
            must = f"be at least 1/{UNIT} and below 2, which no dependence reaches"
            require(
                1 <= round(threshold * UNIT) < 2 * UNIT, "threshold", must, threshold, "take 0.1"
            )
        self._keep(
            threshold=threshold,
            given=whole_number("given", given, 0, 2, remedy="condition on two variables at most"),
            order=whole_number("order", order, 2, 4, remedy="take cliques of four at most"),
        )

    def _prepare(self, network: DiscreteMarkovNetwork | ModelSpecification) -> StructurePlan:
        specification = ModelSpecification.from_pgmpy(network)
        self._require_plain(specification)
        # arrays of all pairs of states; for a graph one more for each two states of a pair
        most = max(specification.cardinalities)
        if self.order is None:
            arrays = 7 * 8
        else:
            arrays = 2 * 4 * most**self.order
        bytes_ = arrays * sum(k - 1 for k in specification.cardinalities) ** 2
        remedy = "merge states, or declare fewer variables"
        require_memory("all pairs of states", bytes_, remedy, DEFAULT_MEMORY_LIMIT)
        chooses = self.threshold == "gap"  # a share of the budget chooses a threshold with noise
        (law,) = discrete_laplace_laws([1.0 - _CHOOSING * chooses], self.epsilon, 1)
        choice = None
        if chooses:
            # the scale at which the choice of a threshold costs its share, including the rounding of its noise
            slack = _CHOOSING * self.epsilon - 2 * ROUNDING
            must = "leave some budget for the choice of a threshold"
            require(slack > 0, "epsilon", must, self.epsilon, "take more")
            choice = _MOVED / slack
        needed = release_threshold(law, self.delta)
        declared = self._declared(specification)
        return StructurePlan(
            specification=specification,
            missing=declared.missing,
            other=declared.other,
            law=law,
            needed=needed,
            choice=choice,
        )

    def _guarantee(self, plan: StructurePlan) -> PrivacyGuarantee:
        return PrivacyGuarantee(epsilon=self.epsilon, delta=self.delta, adjacency=self.adjacency)

    def _outlays(self, plan: StructurePlan, total: float | None) -> list[Outlay]:
        if plan.choice is None:
            spent = 0.0
        else:
            spent = _CHOOSING * self.epsilon
        deviation = plan.law.standard_deviation
        rest = self.epsilon - spent
        noise = (Sums(law=plan.law, copies=1),)
        answers = (StableAnswers(law=plan.law, threshold=plan.needed),)
        steps = [
            Outlay(step="noisy distance", epsilon=rest, count=1, noise_sd=deviation, draws=noise),
            Outlay(step="a graph that one record changes", draws=answers),
        ]
        if plan.choice is None:
            return steps
        # 5 scales behind: a choice of one in 150, whose loss is nearly the largest of any choice
        draws = (Choices(scale=plan.choice, score_range=_MOVED, copies=1, behind=5.0),)
        deviation = plan.choice * GUMBEL_DEVIATION
        step = "choice of a threshold"
        return [Outlay(step=step, epsilon=spent, count=1, noise_sd=deviation, draws=draws), *steps]

    def _read(self, plan: StructurePlan, data: Any, count: Hashable | None = None) -> ExactGraphs:
        exact = self._records(plan, data, count)
        most = largest_distance(plan.law, plan.needed)
        return guarded(
            "learning",
            lambda: self._answers(plan, exact.sensitive_codes, exact.sensitive_counts, most),
        )

    def _answers(
        self, plan: StructurePlan, codes: np.ndarray, counts: IntArray, most: int
    ) -> ExactGraphs:
        records = (codes, counts, plan.specification.cardinalities, self.adjacency)
        if self.threshold is None or self.given is None or self.order is None:
            return ExactGraphs(graphs=(stable_tree(*records),))
        search = GraphSearch(given=self.given, order=self.order, most=most)
        if isinstance(self.threshold, str):
            clearness, answers = graphs_to_choose(*records, search)
            return ExactGraphs(graphs=tuple(answers), clearness=clearness)
        return ExactGraphs(
            graphs=(stable_graph(*records, threshold=self.threshold, search=search),)
        )

    def _randomise(
        self, plan: StructurePlan, exact: ExactGraphs, source: NoiseSource, stamp: Stamp
    ) -> ReleasedGraph:
        place = 0
        threshold = self.threshold
        if plan.choice is not None and exact.clearness is not None:
            place = int(source.choose(exact.clearness[None, :], plan.choice)[0])
            threshold = THRESHOLDS[place] / UNIT
        pairs, distance = exact.graphs[place]
        noisy = int(source.add(np.array([distance - 1], dtype=np.int64), plan.law)[0])
        details = {"structure": self.structure, "noisy_distance": noisy, "needed": plan.needed}
        if self.structure == "graph":
            details |= {"threshold": threshold, "given": self.given}
        return ReleasedGraph(
            domain=plan.specification.domain,
            pairs=pairs if noisy >= plan.needed else None,
            order=self.order or 2,
            is_threshold_chosen=plan.choice is not None,
            details=details,
            **stamp.fields,
        )
