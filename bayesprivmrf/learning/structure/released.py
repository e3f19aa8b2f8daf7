"""A released graph, or the refusal to release one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesprivmrf.cards import marked
from bayesprivmrf.errors import ModelError
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release.base import Provenance, Released
from bayesprivmrf.release.codec import Fields, details_content, domain_content, positions, restored_domain
from bayesprivmrf.release.file import CLIQUES_VERSION

if TYPE_CHECKING:
    from pgmpy.models import DiscreteMarkovNetwork


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReleasedGraph(Released):
    """A graph of the declared variables that was let out as it is, or none.

    A refusal is a private result like any other: the budget is spent.

    Parameters
    ----------
    domain
        Variables and states, as declared.
    pairs
        Positions of the variables that an edge joins; ``None`` where no graph is released.
    details
        Everything else that was let out: ``structure``, which graph was asked for; ``noisy_distance``, about how many
        records (or blocks) would have to change to change the graph, less one; ``needed``, the least that lets it
        out; and the ``threshold``, ``given`` and ``blocks`` of a graph that has them.
    order
        How many variables a clique has at most.
    guarantee
        The promise of the release.
    provenance
        How the release was made.
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
        """Whether no graph is released, because the records do not make it stable enough."""
        return self.pairs is None

    @property
    def edges(self) -> tuple[tuple[Any, Any], ...]:
        """Pairs of variables that an edge joins.

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
        """A better request: a pair near the threshold makes a graph unstable, and so do ties in a tree."""
        threshold = self.details.get("threshold")
        if threshold is None:
            return "ask for structure='graph', which has no ties"
        if self.is_threshold_chosen:
            return "a `threshold` far from all scores, by public knowledge"
        return f"another `threshold` than {threshold:g}, or threshold='gap', which looks for a clear one"

    @property
    def cliques(self) -> tuple[tuple[Any, ...], ...]:
        """Sets of variables that are all joined, the largest first: of at most `order`, and in no other such set.

        For an order of 2 these are the edges, and variables without one.

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
        found, grown = [], [(v,) for v in range(len(names))]
        for size in range(1, self.order + 1):
            common = [set.intersection(*(joined[v] for v in clique)) for clique in grown]
            kept = zip(grown, common, strict=True)
            found = [clique for clique, more in kept if size == self.order or not more] + found
            kept = zip(grown, common, strict=True)
            grown = [(*clique, v) for clique, more in kept for v in sorted(more) if v > clique[-1]]
        return tuple(tuple(names[v] for v in clique) for clique in found)

    @property
    def specification(self) -> ModelSpecification:
        """The declaration with these cliques, ready for another release."""
        return ModelSpecification(domain=self.domain, cliques=self.cliques)

    @property
    def network(self) -> DiscreteMarkovNetwork:
        """The same as a pgmpy network of unit factors."""
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
            why = "most blocks have none" if is_clear else "few records could change it"
            return f"none: {why}{self._how_far()}"
        if not self.pairs:
            return "no edges"
        # print ten edges at most
        shown, hidden = ", ".join(f"{a} - {b}" for a, b in self.edges[:10]), len(self.edges) - 10
        return f"{shown}, and {hidden} more edges" if hidden > 0 else shown

    def _how_far(self) -> str:
        if "noisy_distance" not in self.details:
            return ""
        return f" (noisy distance {self.details['noisy_distance']}, {self.details['needed']} needed)"

    def _content(self) -> dict[str, Any]:
        pairs = None if self.pairs is None else [list(pair) for pair in self.pairs]
        order = {"order": self.order} if self.order > 2 else {}
        return {
            "pairs": pairs,
            "details": details_content(self.details),
            **order,
            **domain_content(self.domain),
        }

    @property
    def _version(self) -> int:
        return CLIQUES_VERSION if self.order > 2 else self.format_version

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        domain = restored_domain(content)
        size = len(domain.variables)
        pairs = None
        if content["pairs"] is not None:
            read = [positions(pair, size) for pair in content.items("pairs")]
            pairs = tuple((i, j) for i, j in read)
        order = content.whole("order", 3, 4) if "order" in content else 2
        # files say so among the settings of the mechanism
        is_chosen = stamp["provenance"].settings.get("threshold") == "gap"
        details = content.mapping("details")
        return cls(
            domain=domain, pairs=pairs, details=details, order=order, is_threshold_chosen=is_chosen, **stamp
        )
