r"""The conditional dependence of two variables of a learned model given all others.

The conditional mutual information of two variables given all others,

.. math:: I_{ij} = E_{x} \sum_{a, b} p(a, b \mid x_{-ij}) \log \frac{p(a, b \mid x_{-ij})}
    {p(a \mid x_{-ij})\, p(b \mid x_{-ij})},

is 0 if and only if the two are independent given the others. On the scale from 0 to 1 it is
:math:`\sqrt{1 - e^{-2 I}}`, the absolute partial correlation if variables are normal. The entries of a coupling's
table treat all states alike, so noise decides the entry of a rare state or a rare pair of states, which may be any
number of nats. Mutual information weights states by their frequency. For each pair of states,

.. math:: \log \frac{E_x\, p(a, b \mid x_{-ij})}{E_x\, p(a \mid x_{-ij})\, p(b \mid x_{-ij})}

compares the frequency of the two states together with their frequency under conditional independence.

Means over x are exact if the model has at most 4,096 joint states. Otherwise they are over 1,000 records drawn from
the model with a fixed seed, so equal models give equal numbers. The tables of two variables given the rest of a
record are always exact. All of this is post-processing.

References
----------
E. H. Linfoot, "An informational measure of correlation", Information and Control 1, 1957, 85-89.
H. Joe, "Relative entropy measures of multivariate dependence", Journal of the American Statistical Association 84,
1989, 157-164 (given other variables).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import xlogy

from bayesprivmrf.learning.models.solution import LearnedSolution
from bayesprivmrf.model import CliqueTables
from bayesprivmrf.model.tables import FloatArray, IntArray

# most joint states for exact means, and the number of drawn records otherwise; arbitrary, a second of work
_MOST_CONFIGURATIONS, _DRAWS = 1 << 12, 1_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Dependence:
    """Weighted records of a model, and its tables of two variables given the rest of each record.

    Parameters
    ----------
    cardinalities
        Number of states of each variable.
    scopes
        Variable positions of each clique, in its axis order.
    potentials
        Log potentials, nats.
    codes
        States of the records, shape (r, p).
    weights
        Weights of the records, shape (r,), of sum 1.
    """

    cardinalities: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    potentials: CliqueTables
    codes: IntArray
    weights: FloatArray

    @classmethod
    def of(cls, solution: LearnedSolution) -> Dependence:
        """Return all joint states weighted by their probabilities, or equally weighted draws of a larger model."""
        model = solution.specification
        potentials = solution.potentials
        cardinalities = model.cardinalities
        scopes = model.scopes
        if math.prod(cardinalities) > _MOST_CONFIGURATIONS:
            # an arbitrary, fixed seed: equal models have equal records
            codes = solution._codes(
                _DRAWS, np.random.default_rng(19570901), is_balanced=False
            ).astype(np.int64)
            weights = np.full(len(codes), 1 / len(codes))
        else:
            codes = np.indices(cardinalities).reshape(len(cardinalities), -1).T
            logs = sum(
                potentials.table(c)[tuple(codes[:, scope].T)] for c, scope in enumerate(scopes)
            )
            weights = np.exp(logs - np.max(logs))
            codes = codes[weights > 0]
            weights = weights[weights > 0] / weights.sum()
        return cls(
            cardinalities=cardinalities,
            scopes=scopes,
            potentials=potentials,
            codes=codes,
            weights=weights,
        )

    def information(self, first: int, second: int) -> float:
        """Return the conditional mutual information of two variables given all others, nats; computed once."""
        if (first, second) not in self._known:
            self._known[first, second] = self._computed_information(first, second)
        return self._known[first, second]

    @cached_property
    def _known(self) -> dict[tuple[int, int], float]:
        """The conditional mutual information of the pairs that were asked for."""
        return {}

    def _computed_information(self, first: int, second: int) -> float:
        found = 0.0
        for weights, joint in self._joints(first, second):
            sums = [
                xlogy(p, p).reshape(len(p), -1).sum(axis=1)
                for p in (joint, joint.sum(axis=2), joint.sum(axis=1))
            ]
            found += float(weights @ (sums[0] - sums[1] - sums[2]))
        return max(found, 0.0)

    def association(self, first: int, second: int) -> FloatArray:
        """Return the log ratio to conditional independence for each pair of states, nats; 0 for impossible states."""
        together = 0.0
        apart = 0.0
        for weights, joint in self._joints(first, second):
            together = together + np.einsum("r,rab->ab", weights, joint)
            apart = apart + np.einsum("r,ra,rb->ab", weights, joint.sum(axis=2), joint.sum(axis=1))
        tiny = np.finfo(float).tiny
        return np.log(np.maximum(together, tiny)) - np.log(np.maximum(apart, tiny))

    def _joints(self, first: int, second: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield weights of records, and the tables of two variables given the rest of each, shape (r, K, K)."""
        homes = [c for c, scope in enumerate(self.scopes) if first in scope or second in scope]
        shape = [self.cardinalities[v] for v in (first, second)]
        # 16 MiB of doubles at a time
        step = max((1 << 21) // math.prod(shape), 1)
        for start in range(0, len(self.codes), step):
            codes = self.codes[start : start + step]
            weights = self.weights[start : start + step]
            logs = np.zeros((len(codes), *shape))
            for home in homes:
                logs += self._given(home, codes, (first, second))
            joint = np.exp(logs - logs.max(axis=(1, 2), keepdims=True))
            yield weights, joint / joint.sum(axis=(1, 2), keepdims=True)

    def _given(self, home: int, codes: IntArray, pair: tuple[int, int]) -> FloatArray:
        """Return a clique's log potentials at the rest of each record, with an axis for each of the pair."""
        scope = self.scopes[home]
        rest = [v for v in scope if v not in pair]
        own = [v for v in pair if v in scope]
        table = self.potentials.table(home).transpose([scope.index(v) for v in (*rest, *own)])
        if rest:
            found = table[tuple(codes[:, v] for v in rest)]
        else:
            found = table[None]
        if len(own) == 2:
            return found
        return np.expand_dims(found, 2 if own[0] == pair[0] else 1)
