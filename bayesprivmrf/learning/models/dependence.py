r"""How two variables of a model depend on each other given all the others.

The conditional mutual information of two variables given all others,

.. math:: I_{ij} = E_{x} \sum_{a, b} p(a, b \mid x_{-ij}) \log \frac{p(a, b \mid x_{-ij})}
    {p(a \mid x_{-ij})\, p(b \mid x_{-ij})},

is 0 where the model lets the two be independent given the others, and there alone. As a number from 0 to 1 it is
:math:`\sqrt{1 - e^{-2 I}}`, the size of the partial correlation where variables are normal. The entries of a
coupling's table weigh all states alike; that of a state, or of two states together, which hardly anybody has is
decided by noise and may be any number of nats. Here such states weigh as often as they occur. State by state,

.. math:: \log \frac{E_x\, p(a, b \mid x_{-ij})}{E_x\, p(a \mid x_{-ij})\, p(b \mid x_{-ij})}

says how often two states come together, beside how often they would if the two variables were independent given the
others.

Means over x are exact where there are at most 4,096 different records, else over 1,000 records that the model draws,
with a seed of their own, so that equal models have equal numbers; the tables of two variables given the rest of a
record are always exact. All is post-processing.

References
----------
E. H. Linfoot, "An informational measure of correlation", Information and Control 1, 1957, 85-89.
H. Joe, "Relative entropy measures of multivariate dependence", Journal of the American Statistical Association 84,
1989, 157-164 (given other variables).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from bayesprivmrf.model import CliqueTables
from bayesprivmrf.model.tables import FloatArray, IntArray, parent

# joint states up to which means are exact, and records where there are more; arbitrary, a second of work
_MOST_CONFIGURATIONS, _DRAWS = 1 << 12, 1_000
_SEED = 19570901  # arbitrary, and fixed: equal models have equal records and numbers
_BLOCK = 1 << 21  # numbers held at once, 16 MiB


@dataclass(frozen=True, kw_only=True, eq=False)
class Dependence:
    """Records of a model with their weights, and its tables of two variables given the rest of each record.

    Parameters
    ----------
    scopes
        Variable positions of each clique, in its axis order.
    potentials
        Log potentials, nats.
    codes
        States of the records, shape (r, p).
    weights
        Their probabilities, shape (r,), of sum 1.
    """

    scopes: tuple[tuple[int, ...], ...]
    potentials: CliqueTables
    codes: IntArray
    weights: FloatArray

    @classmethod
    def of(
        cls,
        cardinalities: tuple[int, ...],
        scopes: tuple[tuple[int, ...], ...],
        potentials: CliqueTables,
        draw: Callable[[int, np.random.Generator], IntArray],
    ) -> Dependence:
        """Return all records with their probabilities, or equally many of each that `draw` gives."""
        if math.prod(cardinalities) > _MOST_CONFIGURATIONS:
            codes = np.asarray(draw(_DRAWS, np.random.default_rng(_SEED)), dtype=np.int64)
            weights = np.full(len(codes), 1 / len(codes))
        else:
            codes = np.indices(cardinalities).reshape(len(cardinalities), -1).T
            logs = sum(potentials.table(c)[tuple(codes[:, scope].T)] for c, scope in enumerate(scopes))
            weights = np.exp(logs - np.max(logs))
            codes, weights = codes[weights > 0], weights[weights > 0] / weights.sum()
        return cls(scopes=scopes, potentials=potentials, codes=codes, weights=weights)

    def information(self, first: int, second: int) -> float:
        """Return the conditional mutual information of two variables given all others, nats."""
        found = 0.0
        for weights, joint in self._joints(first, second):
            sums = [
                xlogy(p, p).reshape(len(p), -1).sum(axis=1)
                for p in (joint, joint.sum(axis=2), joint.sum(axis=1))
            ]
            found += float(weights @ (sums[0] - sums[1] - sums[2]))
        return max(found, 0.0)

    def association(self, first: int, second: int) -> FloatArray:
        """Return the log ratio to independence given the others, state by state, nats; 0 where neither can occur."""
        together, apart = 0.0, 0.0
        for weights, joint in self._joints(first, second):
            together = together + np.einsum("r,rab->ab", weights, joint)
            apart = apart + np.einsum("r,ra,rb->ab", weights, joint.sum(axis=2), joint.sum(axis=1))
        tiny = np.finfo(float).tiny
        return np.log(np.maximum(together, tiny)) - np.log(np.maximum(apart, tiny))

    def _joints(self, first: int, second: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield weights of records, and the tables of two variables given the rest of each, shape (r, K, K)."""
        homes = [c for c, scope in enumerate(self.scopes) if first in scope or second in scope]
        shape = [self._states(v) for v in (first, second)]
        step = max(_BLOCK // math.prod(shape), 1)
        for start in range(0, len(self.codes), step):
            codes, weights = self.codes[start : start + step], self.weights[start : start + step]
            logs = np.zeros((len(codes), *shape))
            for home in homes:
                logs += self._given(home, codes, (first, second))
            joint = np.exp(logs - logs.max(axis=(1, 2), keepdims=True))
            yield weights, joint / joint.sum(axis=(1, 2), keepdims=True)

    def _given(self, home: int, codes: IntArray, pair: tuple[int, int]) -> FloatArray:
        """Return a clique's log potentials at the rest of each record, with an axis for each of the pair."""
        scope = self.scopes[home]
        rest, own = [v for v in scope if v not in pair], [v for v in pair if v in scope]
        table = self.potentials.table(home).transpose([scope.index(v) for v in (*rest, *own)])
        found = table[tuple(codes[:, v] for v in rest)] if rest else table[None]
        return found if len(own) == 2 else np.expand_dims(found, 2 if own[0] == pair[0] else 1)

    def _states(self, variable: int) -> int:
        home = parent(self.scopes, (variable,))
        assert home is not None  # each variable is in a clique
        return self.potentials.table(home).shape[self.scopes[home].index(variable)]
