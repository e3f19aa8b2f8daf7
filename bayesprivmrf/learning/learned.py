"""What every release of learnt couplings has: the model, what was promised, how it was made."""

from __future__ import annotations

import html
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import Provenance

if TYPE_CHECKING:
    import networkx as nx
    from pgmpy.models import DiscreteMarkovNetwork

__all__ = ["LearnedNetwork"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedNetwork(ABC):
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
    details
        Public numbers about the release, such as steps and noise scales.
    """

    domain: Domain
    guarantee: PrivacyGuarantee
    provenance: Provenance
    total: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    @abstractmethod
    def specification(self) -> ModelSpecification:
        """The model: one clique for each coupling that is not zero, one for each variable without."""

    @property
    @abstractmethod
    def potentials(self) -> CliqueTables:
        """Log potentials, nats, one table a clique of `specification`."""

    @abstractmethod
    def graph(self, threshold: float = 0.0) -> nx.Graph:
        """Return the graph of couplings above a threshold in size, weights on its edges."""

    @property
    def network(self) -> DiscreteMarkovNetwork:
        """The model as a pgmpy network, one factor a clique."""
        return self.specification.to_pgmpy(self.potentials)

    @property
    def is_exact(self) -> bool:
        """False: everything here is private."""
        return False

    def privacy_statement(self) -> str:
        """Sentence about privacy that can be pasted into a paper."""
        if self.provenance.simulated:
            return (
                "The noise of this release was drawn from a seeded generator for a simulation: "
                "it protects nobody and must not be published as a private release."
            )
        return self.guarantee.sentence()

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the release to one file, which `bayesprivmrf.load_release` reads.

        Raises
        ------
        ReleaseFileError
            The path cannot be written, or holds another release and `overwrite` is False.
        """
        from bayesprivmrf.release_file import write_release

        write_release(self, path, overwrite=overwrite)

    def _facts(self) -> list[tuple[str, str]]:
        found = [
            ("mechanism", self.provenance.mechanism),
            ("variables", f"{len(self.domain.variables)}"),
            ("couplings", f"{self.graph().number_of_edges():,} pairs"),
        ]
        if self.total is not None:
            found.append(("records", f"about {self.total:,.0f}"))
        return [*found, ("privacy", self.privacy_statement())]

    def __repr__(self) -> str:
        mark = " (SIMULATED: protects nobody)" if self.provenance.simulated else ""
        return "\n".join([f"{type(self).__name__}{mark}", *(f"  {n:<10} {v}" for n, v in self._facts())])

    def _repr_html_(self) -> str:
        mark = " <strong>(simulated: protects nobody)</strong>" if self.provenance.simulated else ""
        rows = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._facts()
        )
        return f"<div><strong>{type(self).__name__}</strong>{mark}<table>{rows}</table></div>"
