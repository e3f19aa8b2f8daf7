"""Released graphs, and private refusals to release a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesprivmrf.cards import marked
from bayesprivmrf.errors import ModelError
from bayesprivmrf.files import Json
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release.base import Provenance, Released
from bayesprivmrf.release.codec import (
    Fields,
    details_content,
    domain_content,
    positions,
    restored_domain,
)
from bayesprivmrf.release.file import CLIQUES_VERSION

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReleasedGraph(Released):
    """A released graph of the declared variables, or a refusal.

    A stable graph is released exactly, without noise. A refusal is a private result as well, and costs the budget.

    Parameters
    ----------
    domain
        Variables and states, as declared.
    pairs
        Positions of the two variables of each edge; ``None`` for a refusal.
    details
        Other released values: ``structure`` is the requested kind of graph. ``noisy_distance`` is a noisy version of
        the number of records (or blocks) that must change to change the graph, minus one, and ``needed`` the smallest
        value for a release. Graphs that have them add ``threshold``, ``given`` and ``blocks``.
    order
        Largest number of variables in a clique.
    is_threshold_chosen
        Whether the mechanism chose the threshold privately, as with ``threshold="gap"``.
    guarantee
        Privacy guarantee of the release.
    provenance
        Mechanism, settings and library versions of the release.

    Examples
    --------
    >>> import pandas as pd
    >>> import bayesprivmrf as bpm
    >>> from bayesprivmrf.mechanisms import StableStructure
    >>> data = pd.DataFrame({"a": ["no", "yes"] * 500, "b": ["no", "yes"] * 500})
    >>> network = bpm.declare(states={"a": ["no", "yes"], "b": ["no", "yes"]})
    >>> mechanism = StableStructure(epsilon=1.0, delta=1e-6, structure="graph", threshold=0.1)
    >>> mechanism.release(network, data, rng=1).edges
    (('a', 'b'),)
    """

    domain: Domain
    pairs: tuple[tuple[int, int], ...] | None
    guarantee: PrivacyGuarantee
    provenance: Provenance
    details: Mapping[str, Any] = field(default_factory=dict)
    order: int = 2
    is_threshold_chosen: bool = False

    kind = "released-graph"
    _without_tables = "it is a graph, whose `network` declares tables for a second release"

    @property
    def is_refusal(self) -> bool:
        """True if no graph was released, because the records do not make it stable enough."""
        return self.pairs is None

    @property
    def edges(self) -> tuple[tuple[Any, Any], ...]:
        """Edges of the graph as pairs of variables.

        Raises
        ------
        ModelError
            No graph was released.
        """
        if self.pairs is None:
            raise ModelError(
                f"a graph must have been released, got a refusal; take more records or a larger budget, "
                f"{self._other_graph}, or declare fewer variables."
            )
        names = self.domain.variables
        return tuple((names[i], names[j]) for i, j in self.pairs)

    @property
    def _other_graph(self) -> str:
        """Remedy for a refusal: pairs near the threshold make a graph unstable, and ties make a tree unstable."""
        threshold = self.details.get("threshold")
        if threshold is None:
            return "ask for structure='graph', which has no ties"
        if self.is_threshold_chosen:
            return "a `threshold` far from all scores, by public knowledge"
        return f"another `threshold` than {threshold:g}, or threshold='gap', which looks for a clear one"

    @property
    def cliques(self) -> tuple[tuple[Any, ...], ...]:
        """Maximal cliques of at most `order` variables, the largest first.

        For an order of 2 these are the edges and the isolated variables.

        Raises
        ------
        ModelError
            No graph was released.
        """
        names = self.domain.variables
        joined: list[set[int]] = [set() for _ in names]
        place = {name: v for v, name in enumerate(names)}
        for a, b in self.edges:
            joined[place[a]].add(place[b])
            joined[place[b]].add(place[a])
        found = []
        grown = [(v,) for v in range(len(names))]
        for size in range(1, self.order + 1):
            common = [set.intersection(*(joined[v] for v in clique)) for clique in grown]
            kept = zip(grown, common, strict=True)
            found = [clique for clique, more in kept if size == self.order or not more] + found
            kept = zip(grown, common, strict=True)
            grown = [(*clique, v) for clique, more in kept for v in sorted(more) if v > clique[-1]]
        return tuple(tuple(names[v] for v in clique) for clique in found)

    @property
    def specification(self) -> ModelSpecification:
        """Model with the declared domain and these cliques, for another release."""
        return ModelSpecification(domain=self.domain, cliques=self.cliques)

    @property
    def network(self) -> DiscreteMarkovNetwork:
        """Model with these cliques as a pgmpy network of unit factors."""
        return marked(self.specification.to_pgmpy(), self.provenance.simulated)

    def _facts(self) -> list[tuple[str, str]]:
        return [
            ("mechanism", self.provenance.mechanism),
            ("variables", f"{len(self.domain.variables)}"),
            ("graph", self._shown()),
            ("privacy", self.privacy_statement()),
        ]

    def _shown(self) -> str:
        if self.pairs is None:
            noisy, needed = (self.details.get(name) for name in ("noisy_distance", "needed"))
            is_clear = noisy is not None and needed is not None and noisy >= needed
            if is_clear:
                why = "most blocks have none"
            else:
                why = "few records could change it"
            return f"none: {why}" + (
                "" if noisy is None else f" (noisy distance {noisy}, {needed} needed)"
            )
        if not self.pairs:
            return "no edges"
        # print ten edges at most
        shown = ", ".join(f"{a} - {b}" for a, b in self.edges[:10])
        hidden = len(self.edges) - 10
        if hidden > 0:
            return f"{shown}, and {hidden} more edges"
        return shown

    def _content(self) -> dict[str, Json]:
        if self.pairs is None:
            pairs = None
        else:
            pairs = [list(pair) for pair in self.pairs]
        if self.order > 2:
            order = {"order": self.order}
        else:
            order = {}
        return {
            "pairs": pairs,
            "details": details_content(self.details),
            **order,
            **domain_content(self.domain),
        }

    @property
    def _version(self) -> int:
        if self.order > 2:
            return CLIQUES_VERSION
        return self.format_version

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        domain = restored_domain(content)
        size = len(domain.variables)
        pairs = None
        if content["pairs"] is not None:
            read = [positions(pair, size) for pair in content.items("pairs")]
            pairs = tuple((i, j) for i, j in read)
        if "order" in content:
            order = content.whole("order", 3, 4)
        else:
            order = 2
        # files say so among the settings of the mechanism
        is_chosen = stamp["provenance"].settings.get("threshold") == "gap"
        details = content.mapping("details")
        return cls(
            domain=domain,
            pairs=pairs,
            details=details,
            order=order,
            is_threshold_chosen=is_chosen,
            **stamp,
        )
