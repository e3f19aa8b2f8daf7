"""Learned potentials of a declared model, or of a model whose tables were selected in rounds.

The `solution` of a model that was learned in rounds is a `RoundsSolution`. Its intervals are those of
`bayesprivmrf.learning.select_measure.rounds_solution`, and the errors of its cells those of
`bayesprivmrf.learning.select_measure.cell_errors`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bayesprivmrf.errors import ModelError, ReleaseFileError
from bayesprivmrf.files import Json
from bayesprivmrf.learning.models.graph import Weight
from bayesprivmrf.learning.models.maps import common_content, restored_fields, statistics_size
from bayesprivmrf.learning.models.pairwise import AsPairs
from bayesprivmrf.learning.models.solution import LearnedSolution, merging_text
from bayesprivmrf.learning.select_measure.rounds_solution import TABLES_BY_ROUND, RoundsSolution
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.release.codec import (
    Fields,
    domain_content,
    model_content,
    numbers,
    restored_domain,
    restored_model,
)

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedPotentials(AsPairs):
    r"""Learned potentials of cliques, :math:`p(x) \propto \exp \sum_C \theta_C(x_C)`.

    `DPSGD` learns potentials of declared cliques, ``SelectMeasure(rho)`` selects the cliques itself. The parameters
    of `LearnedNetwork` come first.

    Parameters
    ----------
    model
        Domain and cliques of the model.
    tables
        Potentials θ, nats; minus infinity at impossible cells only.
    groups
        For each variable, the group of each declared state; the states of a group are merged in the fit. ``None`` if
        no states were merged, and for older files.

    Raises
    ------
    ModelError
        The tables do not belong to the model, or are not finite at a possible cell.

    Examples
    --------
    >>> from bayesprivmrf.learning import LearnedPotentials
    >>> from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification
    >>> from bayesprivmrf.privacy import PrivacyGuarantee
    >>> from bayesprivmrf.release import Provenance
    >>> domain = Domain.from_states({"a": ["no", "yes"], "b": ["no", "yes"]})
    >>> model = ModelSpecification(domain=domain, cliques=(("a", "b"),))
    >>> learned = LearnedPotentials(
    ...     domain=domain,
    ...     guarantee=PrivacyGuarantee(rho=1.0, adjacency="replace-one"),
    ...     provenance=Provenance(mechanism="example"),
    ...     model=model,
    ...     tables=model.tables([0.5, 0.0, 0.0, 0.5]),
    ... )
    >>> round(float(learned.solution.marginal(["b"], given={"a": "yes"}).sel(b="yes")), 3)
    0.622
    """

    model: ModelSpecification
    tables: CliqueTables
    groups: tuple[tuple[int, ...], ...] | None = None

    kind = "learned-potentials"
    parameters = ("tables",)

    def __post_init__(self) -> None:
        model = self.model
        if (
            not self.domain == self.tables.domain == model.domain
            or self.tables.cliques != model.cliques
        ):
            raise ModelError(
                "`domain` and `tables` must be the model's; make tables with `model.tables`."
            )
        flat = self.tables.flat
        if model.possible is None:
            impossible = np.zeros(model.size, dtype=bool)
        else:
            impossible = ~model.possible
        if not (np.isneginf(flat) == impossible).all() or not np.isfinite(flat[~impossible]).all():
            raise ModelError(
                "`tables` must be finite at possible cells and minus infinity at the others."
            )

    @property
    def specification(self) -> ModelSpecification:
        """The model of the release."""
        return self.model

    @property
    def potentials(self) -> CliqueTables:
        """Log potentials, nats, one table for each clique."""
        return self.tables

    def _unjudged(self) -> LearnedSolution:
        """Return the solution without a check of its measurements, with intervals if it was learned in rounds."""
        model = super()._unjudged()
        statistics = self.statistics
        total = self.total
        if statistics is None or total is None or TABLES_BY_ROUND not in model.stats:
            return model
        known = {each.name: getattr(model, each.name) for each in fields(model) if each.init}
        return RoundsSolution(**known, statistics=statistics, total=total, groups=self.groups)

    @property
    def merged_states(self) -> Mapping[Variable, tuple[tuple[Label, ...], ...]]:
        """Declared states that the fit merges, by variable; merged states depend on other variables alike."""
        return self.solution.merged_states

    def graph(self, threshold: float | None = None, *, weight: Weight = "largest") -> nx.Graph:
        """Return the graph of `LearnedNetwork.graph`, with merged states as the node attribute ``merged``."""
        graph = super().graph(threshold, weight=weight)
        for variable, parts in self.merged_states.items():
            graph.nodes[variable]["merged"] = parts
        return graph

    def _stands_out(self, first: int, second: int) -> bool:
        return self.solution.stands_out(first, second) and super()._stands_out(first, second)

    def _facts(self) -> list[tuple[str, str]]:
        found = super()._facts()
        if merged := self.merged_states:
            found.insert(-1, ("merged", merging_text(merged)))
        return found

    @property
    def _without_map(self) -> str:
        return (
            "a model of learned potentials has no intervals of couplings; after SelectMeasure(rho) use those of "
            "marginals, `learned.interval([...])`, or make a separate release with SelectMeasure(rho, degree=...); "
            "after DPSGD measure its cliques by LaplaceStatistics or GaussianStatistics, and fit NoiseAwareMAP."
        )

    def vector(self) -> FloatArray:
        """Return the log potentials, one table after the other."""
        return np.array(self.tables.flat)

    def with_vector(self, values: FloatArray) -> Self:
        """Return the same release with the potentials that a vector holds."""
        return replace(self, tables=self.model.tables(values))

    def _weighted_pairs(self) -> Iterator[tuple[int, int, float]]:
        """Yield positions of variables with a joint effect, and the largest absolute entry of that effect.

        Impossible cells take the mean of their table.
        """
        return ((i, j, size) for (i, j), (size, _, _) in self._largest_entries.items())

    def _pair_errors(self) -> Mapping[tuple[int, int], float | None]:
        entries = self._largest_entries.items()
        error = self.solution.effect_error
        return {pair: error(scope, states) for pair, (_, scope, states) in entries}

    @cached_property
    def _largest_entries(
        self,
    ) -> Mapping[tuple[int, int], tuple[float, tuple[int, ...], tuple[int, ...]]]:
        """Largest absolute entry of all effects of two variables, with the variables of its table and its states."""
        effects = Effects.of(self.model.cardinalities, self.model.scopes)
        filled = np.array(self.tables.flat)
        # an impossible cell has the mean of the others
        for own in np.split(filled, self.model.offsets[1:-1]):
            own[~np.isfinite(own)] = own[np.isfinite(own)].mean()
        found: dict[tuple[int, int], tuple[float, tuple[int, ...], tuple[int, ...]]] = {}
        for subset, table in zip(
            effects.subsets, effects.tables(effects.coordinates(filled)), strict=True
        ):
            if len(subset) < 2:
                continue
            states = np.unravel_index(int(np.abs(table).argmax()), table.shape)
            entry = (float(np.abs(table[states])), subset, tuple(map(int, states)))
            for pair in combinations(subset, 2):
                if pair not in found or entry[0] > found[pair][0]:
                    found[pair] = entry
        return found

    def _content(self) -> dict[str, Json]:
        # the order of the entries in a file
        content = (
            model_content(self.model) | dict.fromkeys(("total", "details")) | common_content(self)
        )
        if self.groups is None:
            groups = {}
        else:
            groups = {"groups": list(map(list, self.groups))}
        return content | groups | domain_content(self.domain)

    def _array(self) -> np.ndarray:
        return np.concatenate([self.tables.flat, self._measured_numbers])

    @classmethod
    def _restored(cls, content: Fields, array: np.ndarray, **stamp: Any) -> Self:
        domain = restored_domain(content)
        model = restored_model(content, domain)
        held = model.size + statistics_size(content, domain)
        tables, measured = np.split(numbers(array, (held,)), [model.size])
        known = restored_fields(content, domain, measured, cls.parameters, None, stamp)
        groups = _restored_groups(content, domain)
        return cls(groups=groups, model=model, tables=model.tables(tables), **known)


def _restored_groups(content: Fields, domain: Domain) -> tuple[tuple[int, ...], ...] | None:
    """Return the groups in a file, where they are numbered from 0 in the order of their first states."""
    if "groups" not in content:
        return None
    written = content.items("groups")
    for own, states in zip(written, domain.cardinalities, strict=True):
        seen = -1
        for group in own if isinstance(own, list) and len(own) == states else [None]:
            if type(group) is not int or not 0 <= group <= seen + 1:
                raise ReleaseFileError(
                    f"`groups` must number the groups of {states} states, got {own!r}"
                )
            seen = max(seen, group)
    return tuple(map(tuple, written))
