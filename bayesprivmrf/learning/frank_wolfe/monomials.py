r"""Learning maps of binary t-wise models by node-wise regressions on monomials.

With :math:`P(x) \propto \exp h(x)`, :math:`h(x) = \sum_I h_I \chi_I(x)`, and :math:`\partial_i h` the sum of
:math:`h_{J \cup i}\, \chi_J` over J without i,

.. math:: P(x_i = 1 \mid x_{-i}) = \sigma(2\, \partial_i h(x)).

Node i therefore has coefficients :math:`2 h_{J \cup i}` on the monomials J of up to t - 1 other variables, in the
:math:`\ell_1` ball of radius :math:`2 \lambda`, where the width :math:`\lambda` bounds :math:`\|\partial_i h\|_1`
including the field. Each feature is -1 or +1, so the sensitivity is that of the couplings of an Ising model.

There are two estimates from the coefficients :math:`v_i(J)`, half those of node i:

- ``"l1"``, Algorithm 4: the mean of :math:`v_i(I \setminus i)` over all i in I.
- ``"linf"``, Algorithm 5: the mean over i of :math:`E[\partial_{I \setminus i} v_i(x)] =
  \sum_{J \supseteq I \setminus i} v_i(J)\, E \chi_{J \setminus (I \setminus i)}`, with noisy parities as
  expectations. It estimates :math:`h_I` for the maximal monomials only, those whose supersets all have coefficient 0,
  because it collects the weight that a regression wrongly put on the supersets of I. For other monomials it estimates
  the mean of :math:`\partial_I h` instead.

Both estimates average over the nodes, which costs no budget; the paper uses one node each. For ``"linf"`` the paper
splits the records into halves and spends half the budget on each. Here both parts use all records and half the budget
each, which has the smaller error: relative noise :math:`\sqrt 2 / n` instead of :math:`2 / n`, and the sampling error
of all records instead of half of them. Parities of up to t - 1 variables suffice.

References
----------
Zhang, Kamath, Kulkarni, Wu 2020, Lemma 4.1, Algorithms 4 and 5. Klivans, Meka 2017, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, Self

import numpy as np

from bayesprivmrf.files import Json
from bayesprivmrf.inference.loglinear_fit.sampled import Fixed
from bayesprivmrf.learning.frank_wolfe.by_regressions import ByRegressions, FittedFields
from bayesprivmrf.learning.frank_wolfe.node_regressions import (
    Design,
    LogisticRegressions,
    NodeRegressions,
)
from bayesprivmrf.learning.models.monomials import effect_scales
from bayesprivmrf.learning.parities.mode import parity_rows
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.privacy import NoiseDistribution
from bayesprivmrf.privacy.selection import Exposure
from bayesprivmrf.release.codec import Fields

type Target = Literal["l1", "linf"]

_KEPT = 1 << 29  # bytes of features kept in memory; larger ones are computed anew in each step


@dataclass(frozen=True, eq=False, kw_only=True)
class MonomialsByRegressions(ByRegressions):
    r"""Learning map of a t-wise model by one private logistic regression for each node.

    Parameters
    ----------
    sets
        The sets I whose coefficients are learned, closed under subsets.
    width
        Bound :math:`\lambda` on :math:`\max_i \sum_{I \ni i} |h_I|`.
    parity_law
        Noise of the sums of parities of up to t - 1 variables for ``"linf"``, with a budget of its own; ``None`` for
        ``"l1"``.
    rho, adjacency, steps, singles
        See `ByRegressions`.
    """

    sets: Monomials
    parity_law: NoiseDistribution | None = None

    kind = "regressions"
    learns = ("coefficients",)

    @property
    def exposure(self) -> Exposure:
        """Exposure of the choices to one record."""
        return Exposure.of_logistic(self.sets.variables)

    @property
    def atoms(self) -> int:
        """Number of atoms of a choice: both signs of each feature."""
        return 2 * len(self.features)

    @property
    def reference(self) -> float:
        """Return the reference 1: the first score of a coefficient w is n w times the largest residual."""
        return 1.0

    @cached_property
    def features(self) -> Monomials:
        """Monomials that serve as features: all sets but the largest."""
        return Monomials(variables=self.sets.variables, levels=self.sets.levels[:-1])

    @cached_property
    def places(self) -> IntArray:
        r"""Position of :math:`J \cup i` among the sets, -1 if there is none or J contains i: shape (p, features)."""
        found = np.full((self.sets.variables, len(self.features)), -1, dtype=np.int64)
        for place, members in enumerate(self.sets):
            for i in members:
                found[i, self.features.positions[tuple(v for v in members if v != i)]] = place
        return found

    @property
    def states(self) -> tuple[int, ...]:
        """Number of states of each variable: two."""
        return (2,) * self.sets.variables

    def _parts(self, regressed: FloatArray, fitted: FittedFields | None) -> tuple[FloatArray]:
        """Return the coefficients h, shape (K,), with 0 for the empty set."""
        if fitted is not None:
            regressed[self.sets.orders == 1] = fitted.fields[1::2]
        return (regressed,)

    def couplings_of(self, regressed: FloatArray) -> Fixed:
        """Return the coefficients of two or more variables as potentials of the maximal sets."""
        effects = Effects.of(self.states, self.sets.largest())
        places = [self.sets.positions[subset] for subset in effects.subsets]
        known = np.where(effects.orders > 1, regressed[places], 0.0)
        return Fixed(effects.scopes, effects.potentials(known * effect_scales(effects)))

    def regressions(self, codes: np.ndarray, counts: IntArray) -> NodeRegressions:
        """Return one logistic regression for each variable, on the monomials."""
        lazy: Any = ParityCodes(codes, self.features)
        columns = lazy
        if len(codes) * len(self.features) <= _KEPT:
            columns = lazy[:]
        design = Design(codes=columns, cardinalities=(2,) * len(self.features))
        nodes = np.arange(self.sets.variables)
        return LogisticRegressions(design, codes, counts, self.radius, nodes)

    def eligible_groups(self, regressions: NodeRegressions) -> np.ndarray:
        """Return the mask of the features that make one of the sets with the node."""
        return self.places >= 0

    def model_of(self, coefficients: FloatArray) -> FloatArray:
        """Return the coefficients h, shape (K,), averaged over the nodes of each set."""
        return self._averaged(0.5 * coefficients)

    def model_with_parities(self, coefficients: FloatArray, parities: FloatArray) -> FloatArray:
        """Return the coefficients of maximal monomials by Algorithm 5, with noisy means of parities (features,)."""
        return self._averaged(self._gathered(0.5 * coefficients, parities))

    def _averaged(self, halves: FloatArray) -> FloatArray:
        """Return the mean over the nodes of each set, shape (K,)."""
        coefficients = np.zeros(len(self.sets))
        eligible = self.places >= 0
        np.add.at(coefficients, self.places[eligible], halves[eligible])
        return coefficients / np.maximum(self.sets.orders, 1)

    def _gathered(self, halves: FloatArray, parities: FloatArray) -> FloatArray:
        r"""Return :math:`\sum_{J \supseteq I} v_i(J) E \chi_{J \setminus I}` for each node and I, (p, features)."""
        whole = []
        inner = []
        outer = []
        for place, members in enumerate(self.features):
            for size in range(len(members) + 1):
                for chosen in combinations(members, size):
                    whole.append(place)
                    inner.append(self.features.positions[chosen])
                    outer.append(
                        self.features.positions[tuple(v for v in members if v not in chosen)]
                    )
        weights = halves[:, whole] * parities[outer]
        gathered = np.zeros_like(halves)
        np.add.at(gathered.T, inner, weights.T)
        return gathered

    def as_dict(self) -> dict[str, Json]:
        """Return the settings as JSON values, without the sets, which the model's file contains."""
        if self.parity_law is None:
            law = None
        else:
            law = self.parity_law.as_dict()
        return super().as_dict() | {"parity_law": law} | self._written_singles()

    @classmethod
    def from_dict(cls, content: Fields, basis: Monomials) -> Self:
        """Return the map with settings from a file."""
        law = content.law("parity_law", optional=True)
        return cls(sets=basis, parity_law=law, **cls._common(content))


class ParityCodes:
    """Codes 0 and 1 of the parities of records, computed for each slice on demand.

    The class behaves like an array that supports slices only.
    """

    def __init__(self, codes: np.ndarray, features: Monomials) -> None:
        self._codes = codes
        self._features = features

    def __getitem__(self, rows: slice) -> np.ndarray:
        spins = np.ascontiguousarray(self._codes[rows].T).astype(np.int8) * np.int8(2) - np.int8(1)
        products = np.concatenate(parity_rows(spins, self._features))
        return np.ascontiguousarray((products > 0).T).view(np.uint8)
