"""The graph under approximate privacy: released where no few records could change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from bayesprivmrf.audit import StableAnswers, Sums
from bayesprivmrf.checks import positive_finite, probability
from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.learning.structure.released import ReleasedGraph
from bayesprivmrf.learning.structure.spanning_tree import release_threshold, stable_tree
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT
from bayesprivmrf.mechanisms.base import Mechanism, Stamp
from bayesprivmrf.mechanisms.calibration import discrete_laplace_laws
from bayesprivmrf.mechanisms.reading.coded_records import read_records
from bayesprivmrf.mechanisms.settings import checked_redirect, redirect_codes
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.noise import DiscreteLaplace, NoiseSource
from bayesprivmrf.planning import Outlay, checked_total, outlay_preview
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee

if TYPE_CHECKING:
    import pandas as pd
    from pgmpy.models import DiscreteMarkovNetwork

__all__ = ["StableStructure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StructurePlan:
    """What is public about a release: the variables, the noise on the distance, and the threshold."""

    specification: ModelSpecification
    law: DiscreteLaplace
    threshold: int
    missing: Mapping[Variable, int]
    other: Mapping[Variable, int]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StableTree:
    """The exact tree and its distance from another: sensitive, and printed as such."""

    pairs: tuple[tuple[int, int], ...]
    distance: int

    def __repr__(self) -> str:
        return "StableTree(sensitive)"


@final
@dataclass(frozen=True, kw_only=True)
class StableStructure(
    Mechanism["DiscreteMarkovNetwork | ModelSpecification", StructurePlan, StableTree, ReleasedGraph]
):
    r"""Release the spanning tree of largest dependence, or refuse, under :math:`(\epsilon, \delta)`.

    The tree is let out as it is if a noisy distance says that no few records could change it.
    `bayesprivmrf.learning.structure.spanning_tree` has the scores, the distance and the proof. The graph is a tree
    over all variables: where the dependence has loops, the tree is its strongest part. A variable that depends on
    nothing, or a copy of another, makes ties, which end in a refusal. Declared cliques are not used.

    Parameters
    ----------
    epsilon
        Budget, nats, positive.
    delta
        Probability, above 0: that a graph which one record could change is let out.
    certificate
        ``"margins"``. Stability over blocks is not built.
    adjacency
        The neighbouring relation, `Adjacency` or its name.
    missing, other
        See `LearningMechanism`.

    Raises
    ------
    ArgumentError
        A setting is out of range.

    References
    ----------
    Dwork, Lei 2009 (propose, test, release). Chow, Liu 1968.

    Examples
    --------
    >>> StableStructure(epsilon=1.0, delta=1e-6).certificate
    'margins'
    """

    runs_from_file: ClassVar[bool] = True
    releases = (ReleasedGraph,)

    epsilon: float
    delta: float
    certificate: str = "margins"
    adjacency: Adjacency = Adjacency.ADD_OR_REMOVE_ONE
    missing: Label | Mapping[Variable, Label] | None = None
    other: Label | Mapping[Variable, Label] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive_finite("epsilon", self.epsilon))
        object.__setattr__(self, "delta", probability("delta", self.delta, zero=False))
        if self.certificate != "margins":
            raise ArgumentError(
                f"`certificate` must be 'margins', got {self.certificate!r}; no other is built, leave it out."
            )
        object.__setattr__(self, "adjacency", Adjacency.checked(self.adjacency))
        for name in ("missing", "other"):
            object.__setattr__(self, name, checked_redirect(name, getattr(self, name)))

    def _prepare(self, network: DiscreteMarkovNetwork | ModelSpecification) -> StructurePlan:
        specification = ModelSpecification.from_pgmpy(network)
        if len(specification.domain.variables) < 2:
            raise ModelError("`network` must have at least two variables for a graph, got one; declare more.")
        if specification.impossible or any(specification.sharing):
            raise ModelError(
                "`network` must have no impossible cells, ties, scores or levels, of which a graph says nothing; "
                "declare the variables without them."
            )
        needed = 7 * 8 * sum(k - 1 for k in specification.cardinalities) ** 2  # arrays of all pairs of states
        if needed > DEFAULT_MEMORY_LIMIT:
            raise ModelTooLargeError(
                f"counting all pairs of states would need about {needed / 2**30:.1f} GiB, more than "
                f"{DEFAULT_MEMORY_LIMIT / 2**30:.0f} GiB; merge states, or declare fewer variables."
            )
        (law,) = discrete_laplace_laws([1.0], self.epsilon, 1)
        return StructurePlan(
            specification=specification,
            law=law,
            threshold=release_threshold(law, self.delta),
            missing=redirect_codes("missing", self.missing, specification),
            other=redirect_codes("other", self.other, specification),
        )

    def _guarantee(self, plan: StructurePlan) -> PrivacyGuarantee:
        return PrivacyGuarantee(epsilon=self.epsilon, delta=self.delta, adjacency=self.adjacency)

    def preview(
        self, network: DiscreteMarkovNetwork | ModelSpecification, total: float | None = None
    ) -> pd.DataFrame:
        """Tell the two steps of a release, before any data is read; see `Mechanism.preview`."""
        known = None if total is None else checked_total(total)
        return outlay_preview(self.outlays(network), known)

    def outlays(
        self, network: DiscreteMarkovNetwork | ModelSpecification, total: float | None = None
    ) -> list[Outlay]:
        """Return the steps of a release as values, with what is drawn.

        Parameters
        ----------
        network, total
            As for `preview`.
        """
        plan = self._prepare(network)
        return [
            Outlay(
                step="noisy distance",
                epsilon=self.epsilon,
                count=1,
                noise_sd=plan.law.standard_deviation,
                draws=(Sums(law=plan.law, copies=1),),
            ),
            Outlay(
                step="a graph that one record changes",
                draws=(StableAnswers(law=plan.law, threshold=plan.threshold),),
            ),
        ]

    def _read(self, plan: StructurePlan, data: Any) -> StableTree:
        domain = plan.specification.domain
        exact = read_records(domain, data, missing=plan.missing, other=plan.other)
        pairs, distance = stable_tree(exact.codes, exact.counts, domain.cardinalities, self.adjacency)
        return StableTree(pairs=pairs, distance=distance)

    def _randomise(
        self, plan: StructurePlan, exact: StableTree, source: NoiseSource, stamp: Stamp
    ) -> ReleasedGraph:
        noisy = int(source.add(np.array([exact.distance - 1], dtype=np.int64), plan.law)[0])
        assert stamp.guarantee is not None
        return ReleasedGraph(
            domain=plan.specification.domain,
            pairs=exact.pairs if noisy >= plan.threshold else None,
            details={"structure": "tree", "noisy_distance": noisy, "needed": plan.threshold},
            guarantee=stamp.guarantee,
            provenance=stamp.provenance,
        )
