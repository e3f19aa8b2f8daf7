"""A declared model whose potentials were learnt from whole records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.learning.learned import LearnedNetwork
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.privacy import PrivacyGuarantee

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["LearnedPotentials", "Trials"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedPotentials(LearnedNetwork):
    r"""Learnt potentials of declared cliques, :math:`p(x) \propto \exp \sum_C \theta_C(x_C)`.

    Parameters
    ----------
    model
        The declared model.
    tables
        θ, nats; minus infinity at impossible cells and nowhere else.

    Raises
    ------
    ModelError
        The tables are not those of the model, or not finite where a cell is possible.
    """

    model: ModelSpecification
    tables: CliqueTables

    kind = "learned-potentials"

    def __post_init__(self) -> None:
        model = self.model
        if self.domain != model.domain or self.tables.domain != model.domain:
            raise ModelError(
                "`domain` and `tables` must be those of `model`; make tables with `model.tables`."
            )
        if self.tables.cliques != model.cliques:
            raise ModelError("`tables` must be those of `model`; make them with `model.tables`.")
        flat = self.tables.flat
        impossible = np.zeros(model.size, dtype=bool) if model.possible is None else ~model.possible
        if not (np.isneginf(flat) == impossible).all() or not np.isfinite(flat[~impossible]).all():
            raise ModelError("`tables` must be finite at possible cells and minus infinity at the others.")

    @property
    def specification(self) -> ModelSpecification:
        """The declared model."""
        return self.model

    @property
    def potentials(self) -> CliqueTables:
        """Log potentials, nats, one table a clique."""
        return self.tables

    def graph(self, threshold: float = 0.0) -> nx.Graph:
        """Return the graph of variables whose joint effects exceed a threshold in size.

        The ``weight`` of an edge is the largest entry, in size, of an effect of both variables: a table of sum zero
        along each of its axes. Impossible cells are filled with the mean of their table.
        """
        import networkx as nx

        model = self.model
        names = model.domain.variables
        graph = nx.Graph()
        graph.add_nodes_from(names)
        effects = Effects.of(model.cardinalities, model.scopes)
        filled = np.concatenate(
            [np.zeros(0), *map(_filled, (self.tables.table(c) for c in range(len(self.tables))))]
        )
        for subset, table in zip(effects.subsets, effects.tables(effects.coordinates(filled)), strict=True):
            size = float(np.abs(table).max())
            for i, j in combinations(subset, 2):
                known = graph.get_edge_data(names[i], names[j], {"weight": threshold})["weight"]
                if size > known:
                    graph.add_edge(names[i], names[j], weight=size)
        return graph


def _filled(table: np.ndarray) -> np.ndarray:
    finite = np.isfinite(table)
    return np.where(finite, table, table[finite].mean()).ravel()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Trials:
    """Every model of a search over settings, released together.

    Parameters
    ----------
    settings
        What was tried, in order.
    releases
        One a trial. Each carries the guarantee of the search as a whole, which holds for any choice among them.
    guarantee
        Of the search as a whole.
    one_alone
        What a single trial, run by itself, would have promised. No choice among several satisfies it.
    """

    settings: tuple[Mapping[str, Any], ...]
    releases: tuple[LearnedPotentials, ...]
    guarantee: PrivacyGuarantee
    one_alone: PrivacyGuarantee

    def best(self, score: Callable[[LearnedPotentials], float]) -> LearnedPotentials:
        """Return the release of the highest score, the first of several.

        A score that looks at protected records spends budget that no guarantee here counts: use one of public
        knowledge, or of records that are not protected.
        """
        return max(self.releases, key=score)

    def __len__(self) -> int:
        return len(self.releases)

    def __repr__(self) -> str:
        simulated = any(release.provenance.simulated for release in self.releases)
        mark = " (SIMULATED: protects nobody)" if simulated else ""
        statement = self.releases[0].privacy_statement() if simulated else self.guarantee.sentence()
        return f"Trials{mark}\n  trials     {len(self)}\n  privacy    {statement}"
