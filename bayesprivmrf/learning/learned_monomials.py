"""A learnt t-wise model: the coefficients of products of two-state variables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.learning.learned import LearnedNetwork
from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

__all__ = ["LearnedMonomials", "by_monomial", "effect_scales"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnedMonomials(LearnedNetwork):
    r"""A learnt binary t-wise model, :math:`P(x) \propto \exp \sum_I h_I \prod_{i \in I} x_i`.

    A variable's first declared state is -1, its second +1. Single variables are fields, pairs are couplings.

    Parameters
    ----------
    sets
        The sets I, closed under subsets.
    coefficients
        h, nats, shape (K,), the empty set's first, which changes nothing and is 0.

    Raises
    ------
    ModelError
        A variable has not two states, or the coefficients do not fit the sets or are not finite.
    """

    sets: Monomials
    coefficients: FloatArray

    kind = "learned-monomials"
    parameters = ("coefficients",)

    def __post_init__(self) -> None:
        h = np.array(self.coefficients, dtype=float)
        if any(states != 2 for states in self.domain.cardinalities):
            raise ModelError(
                "a model of monomials must have two states a variable; use a pairwise model for more."
            )
        if self.sets.variables != len(self.domain.variables) or h.shape != (len(self.sets),):
            raise ModelError(
                f"`coefficients` must hold one number for each of {len(self.sets)} sets, got {h.shape}."
            )
        if not np.isfinite(h).all():
            raise ModelError("`coefficients` must be finite, got NaN or infinity in some entry.")
        h[0] = 0.0
        h.flags.writeable = False
        object.__setattr__(self, "coefficients", h)

    @property
    def order(self) -> int:
        """Size t of the largest sets."""
        return self.sets.order

    @cached_property
    def monomials(self) -> pd.Series:
        """Coefficients h by tuples of variables in declared order, by size; the empty set is left out."""
        return by_monomial(self.domain.variables, self.sets, self.coefficients, "coefficient").iloc[1:]

    @property
    def width(self) -> float:
        r"""The largest :math:`\sum_{I \ni i} |h_I|` of a variable, nats."""
        size = np.abs(self.coefficients)
        sums = np.zeros(self.sets.variables)
        for k, level in enumerate(self.sets.levels):
            start, stop = self.sets.offsets[k : k + 2]
            for column in level.T:
                np.add.at(sums, column, size[start:stop])
        return float(sums.max())

    @property
    def specification(self) -> ModelSpecification:
        """The model: one clique for each largest set whose coefficient is not zero, one for each lonely variable."""
        names = self.domain.variables
        used = np.flatnonzero(self.coefficients)[::-1]  # larger sets first
        members = list(self.sets)
        cliques = [tuple(names[v] for v in members[place]) for place in used]
        return ModelSpecification(domain=self.domain, cliques=(*cliques, *((name,) for name in names)))

    @property
    def potentials(self) -> CliqueTables:
        """Log potentials, nats; each monomial is in the first table that holds its variables."""
        model = self.specification
        effects = Effects.of(model.cardinalities, model.scopes)
        places = [self.sets.positions[subset] for subset in effects.subsets]
        return model.tables(effects.potentials(self.coefficients[places] * effect_scales(effects)))

    def graph(self, threshold: float = 0.0) -> nx.Graph:
        """Return the graph of variables that share a monomial above a threshold in size.

        The ``weight`` of an edge is the coefficient that is largest in size among the monomials with both variables.
        """
        import networkx as nx

        names = self.domain.variables
        graph = nx.Graph()
        graph.add_nodes_from(names)
        heavy = np.flatnonzero((np.abs(self.coefficients) > threshold) & (self.sets.orders >= 2))
        members = list(self.sets)
        for place in heavy[np.argsort(np.abs(self.coefficients[heavy]), kind="stable")]:
            weight = float(self.coefficients[place])
            graph.add_edges_from(
                ((names[i], names[j]) for i, j in combinations(members[place], 2)), weight=weight
            )
        return graph


def by_monomial(variables: tuple, sets: Monomials, numbers: FloatArray, name: str) -> pd.Series:
    """Return numbers by tuples of variables; the index holds the tuples themselves."""
    import pandas as pd

    keys = np.empty(len(sets), dtype=object)
    keys[:] = [tuple(variables[v] for v in members) for members in sets]
    return pd.Series(np.array(numbers), index=pd.Index(keys, tupleize_cols=False, name="monomial"), name=name)


def effect_scales(effects: Effects) -> FloatArray:
    r"""Coordinates :math:`\beta_S = 2^{|S|/2} h_S`: the zero-sum basis of two states is :math:`(-1, 1)/\sqrt 2`."""
    return 2.0 ** (effects.orders / 2)
