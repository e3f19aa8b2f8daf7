r"""Interactions of a model, weighed by how often its states occur.

With the model's own margins q of single variables, the log probabilities have one expansion

.. math:: \log p(x) = c + \sum_S g_S(x_S), \qquad \sum_{x_v} q_v(x_v)\, g_S(x_S) = 0 \text{ for each } v \in S,

over the subsets S of its cliques: an analysis of variance for variables that were drawn independently of these
margins. Its parts are orthogonal, so that

.. math:: \sigma_{ij} = \Bigl( \sum_{S \ni i, j} \sum_{x_S} g_S(x_S)^2 \prod_{v \in S} q_v(x_v) \Bigr)^{1/2}

is the root mean square, in nats, of all that log p holds of i and j together. It is 0 where the model lets the two be
independent given the others, and there alone. The zero-sum effects of `bayesprivmrf.model.effects` weigh all states
alike, so that their largest entry is often that of a state which hardly anybody has, and noise decides it; here such
a state weighs next to nothing.

References
----------
W. Hoeffding, "A class of statistics with asymptotically normal distribution", Annals of Mathematical Statistics 19,
1948 (the expansion).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from bayesprivmrf.model import CliqueTables, ModelSpecification
from bayesprivmrf.model.tables import FloatArray

__all__ = ["Interactions", "fill_impossible"]


@dataclass(frozen=True, kw_only=True)
class Interactions:
    """The parts g of two variables and more.

    Parameters
    ----------
    parts
        Table of each subset, variable positions and axes ascending, nats.
    margins
        q, one array a variable.
    """

    parts: dict[tuple[int, ...], FloatArray]
    margins: tuple[FloatArray, ...]

    @classmethod
    def of(
        cls, model: ModelSpecification, potentials: CliqueTables, margins: Sequence[FloatArray]
    ) -> Interactions:
        """Return the expansion of a model's log potentials; impossible cells are filled."""
        parts: dict[tuple[int, ...], FloatArray] = {}
        for position, scope in enumerate(model.scopes):
            table = np.transpose(fill_impossible(potentials.table(position)), np.argsort(scope))
            ascending = sorted(scope)
            for size in range(2, len(scope) + 1):
                for subset in combinations(ascending, size):
                    part = _part(table, ascending, subset, margins)
                    parts[subset] = parts[subset] + part if subset in parts else part
        return cls(parts=parts, margins=tuple(margins))

    @cached_property
    def strengths(self) -> dict[tuple[int, int], float]:
        """Return σ of each pair that a clique holds, nats."""
        squares: dict[tuple[int, int], float] = {}
        for subset, part in self.parts.items():
            square = part**2
            for v in subset:  # each contraction takes the first axis off
                square = np.tensordot(self.margins[v], square, axes=(0, 0))
            for pair in combinations(subset, 2):
                squares[pair] = squares.get(pair, 0.0) + float(square)
        return {pair: square**0.5 for pair, square in squares.items()}


def fill_impossible(table: np.ndarray) -> np.ndarray:
    """Return a table whose impossible cells have the mean of the others."""
    finite = np.isfinite(table)
    return np.where(finite, table, table[finite].mean())


def _part(
    table: FloatArray, scope: Sequence[int], subset: Sequence[int], margins: Sequence[FloatArray]
) -> FloatArray:
    """Return what a table holds of a subset: centred along its axes, averaged along the others."""
    for axis, v in enumerate(scope):
        weights = margins[v].reshape([-1 if a == axis else 1 for a in range(len(scope))])
        mean = (table * weights).sum(axis=axis, keepdims=True)
        table = table - mean if v in subset else mean
    return table.squeeze(tuple(axis for axis, v in enumerate(scope) if v not in subset))
