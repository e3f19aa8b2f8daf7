r"""Synthetic records for parities from an optimisation oracle: separator follow-the-perturbed-leader.

A zero-sum game. The query player chooses, by the exponential mechanism, the signed parity :math:`\pm \chi_I` that the
records satisfy most beyond the synthetic ones. The data player answers with records that are best for the parities
chosen so far plus a random linear function,

.. math:: x = \arg\max_x \sum_{\tau < t} \pm \chi_{I_\tau}(x) + \sum_i \eta_i x_i

with Laplace :math:`\eta_i` of scale b, several of them a round, each with its own :math:`\eta`. The single
variables are a separator set for the parities: two different records differ in one of them, which is what the
perturbation needs for a regret bound. The answer is the mean of the parities over the synthetic records of the
later half of the rounds.

Privacy comes from the choices of the query player alone: the score of :math:`\pm \chi_I`, :math:`\pm (S_I - \lfloor
N \bar\chi_I \rceil)` with the synthetic mean :math:`\bar\chi_I`, moves by at most D either way (D = 1 where a
record is added or removed, 2 where it is replaced), so a choice has range 2 D, and T choices add up. The data
player sees the chosen parities only, so its perturbation, its oracle and how well that does are post-processing:
the promise holds for an oracle that stops early or errs. The perturbation is no privacy noise, and is not paid for.

References
----------
Vietri, Tian, Bun, Steinke, Wu 2020, sepFEM. Syrgkanis, Krishnamurthy, Schapire 2016 (separator sets).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from bayesprivmrf.learning.parities import walsh_hadamard
from bayesprivmrf.model import FloatArray, Monomials
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise import NoiseSource

__all__ = ["SeparatorFEM", "best_by_enumeration", "best_by_program"]

type Oracle = Literal["auto", "enumeration", "program"]

_ENUMERATED = 16  # variables up to which all records are looked at, which is quicker than a program


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparatorFEM:
    """Settings of sepFEM, all public.

    Parameters
    ----------
    rounds
        T.
    choice_scale
        Of the exponential mechanism, records.
    samples
        Synthetic records a round.
    perturbation
        b, in the weight of one chosen parity.
    oracle
        ``"program"``: SciPy's HiGHS on a mixed-integer program. ``"enumeration"``: all 2^p records. ``"auto"``:
        enumeration up to 16 variables.
    nodes
        Branching nodes after which a program gives the best record found so far.
    """

    rounds: int
    choice_scale: float
    samples: int = 100
    perturbation: float = 6.0
    oracle: Oracle = "auto"
    nodes: int = 1000

    def expectations(
        self, sums: IntArray, monomials: Monomials, total: float, source: NoiseSource
    ) -> FloatArray:
        """Return the mean of each parity over the synthetic records, shape (K,), the empty set's 1.

        Parameters
        ----------
        sums
            Exact sums, shape (K,). Sensitive: only the choices are used.
        monomials
            Which sets.
        total
            N, public or noisy, positive.
        source
            Of choices and perturbations.
        """
        size = len(monomials)
        weights = np.zeros(size)
        later = np.zeros(size)
        for round_ in range(self.rounds):
            means = self._synthetic_means(weights, monomials, source)
            if round_ >= self.rounds // 2:
                later += means
            gaps = sums[1:] - np.rint(total * means[1:]).astype(np.int64)
            chosen = int(source.choose(np.concatenate([gaps, -gaps])[None], self.choice_scale)[0])
            weights[1 + chosen % (size - 1)] += 1.0 if chosen < size - 1 else -1.0
        return later / (self.rounds - self.rounds // 2)

    @staticmethod
    def memory_bytes(order: int, rounds: int) -> int:
        """Return about how many bytes a program takes: 2^(t - 1) rows of t + 1 numbers for each parity chosen."""
        return 32 * rounds * (order + 1) * 2 ** (order - 1)

    def _synthetic_means(
        self, weights: FloatArray, monomials: Monomials, source: NoiseSource
    ) -> FloatArray:
        eta = self.perturbation * _laplace(source, (self.samples, monomials.variables))
        is_small = monomials.variables <= _ENUMERATED
        if self.oracle == "enumeration" or (self.oracle == "auto" and is_small):
            records = best_by_enumeration(weights, monomials, eta)
        else:
            records = np.array(
                [best_by_program(weights, monomials, each, self.nodes) for each in eta]
            )
        means = [
            records[:, level].prod(axis=2, dtype=np.int64).mean(axis=0)
            for level in monomials.levels
        ]
        return np.concatenate(means)


def best_by_enumeration(
    weights: FloatArray, monomials: Monomials, linear: FloatArray
) -> np.ndarray:
    r"""Return the record that maximises :math:`\sum_I w_I \chi_I(x) + \sum_i \eta_i x_i`, for each row of eta.

    Parameters
    ----------
    weights
        w, shape (K,).
    monomials
        Which sets, in at most about 24 variables.
    linear
        eta, shape (samples, p).

    Returns
    -------
    ndarray
        -1 and +1, int8 of shape (samples, p).
    """
    p = monomials.variables
    spectrum = np.zeros(2**p)
    spectrum[monomials.masks] = weights
    values = walsh_hadamard(spectrum)
    best = np.empty(len(linear), dtype=np.int64)
    for row, eta in enumerate(linear):
        slope = np.zeros(1)
        for each in eta:  # bit i set: x_i = -1
            slope = np.concatenate([slope + each, slope - each])
        best[row] = np.argmax(values + slope)
    return (1 - 2 * (best[:, None] >> np.arange(p) & 1)).astype(np.int8)


def best_by_program(
    weights: FloatArray, monomials: Monomials, linear: FloatArray, nodes: int = 1000
) -> np.ndarray:
    r"""Return the record that maximises :math:`\sum_I w_I \chi_I(x) + \sum_i \eta_i x_i`, by a program.

    With :math:`x_i = 1 - 2 b_i` and :math:`\chi_I = 1 - 2 o_I`, o being the parity of the b in I, the program is to
    minimise :math:`\sum_I w_I o_I + \sum_i \eta_i b_i` over binary b. The convex hull of the even vectors :math:`v
    = (b_I, o_I)` is, beside the box, :math:`\sum_{j \in A} v_j - \sum_{j \notin A} v_j \le |A| - 1` for every odd
    subset A; of these only those that bound o from the side on which w pulls are needed, :math:`2^{|I| - 1}` each,
    and o need not be declared an integer.

    Parameters
    ----------
    weights, monomials
        w, shape (K,), for these sets.
    linear
        eta, shape (p,).
    nodes
        After how many branching nodes to give the best record found so far.

    Returns
    -------
    ndarray
        -1 and +1, int8 of shape (p,); the best one unless the nodes ran out.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    p = monomials.variables
    members = [
        (scope, w) for scope, w in zip(monomials, weights, strict=True) if w and len(scope) > 1
    ]
    cost = np.concatenate([linear, np.array([w for _, w in members])])
    for scope, w in zip(
        monomials.levels[1].tolist(), weights[monomials.offsets[1] :], strict=False
    ):
        cost[scope[0]] += w
    matrix, bounds = _parity_rows(members, p)
    found = milp(
        cost,
        integrality=np.repeat([1, 0], [p, len(members)]),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(matrix, ub=bounds)]  # pyright: ignore[reportArgumentType]
        if len(bounds)
        else None,
        options={"node_limit": nodes, "mip_rel_gap": 0.0},
    )
    if found.x is None:
        negative = cost[:p] < 0
    else:
        negative = found.x[:p] > 0.5
    return (1 - 2 * negative).astype(np.int8)


def _parity_rows(
    members: list[tuple[tuple[int, ...], float]], variables: int
) -> tuple[object, FloatArray]:
    from scipy import sparse

    rows = []
    columns = []
    entries = []
    bounds = []
    for place, (scope, w) in enumerate(members):
        in_a = w < 0  # then o is wanted large, and is bounded from above
        for chosen in product((False, True), repeat=len(scope)):
            if (sum(chosen) + in_a) % 2 == 0:
                continue
            rows += [len(bounds)] * (len(scope) + 1)
            columns += [*scope, variables + place]
            entries += [1.0 if inside else -1.0 for inside in (*chosen, in_a)]
            bounds.append(sum(chosen) + in_a - 1.0)
    shape = (len(bounds), variables + len(members))
    return sparse.csr_array((entries, (rows, columns)), shape=shape), np.array(bounds)


def _laplace(source: NoiseSource, shape: tuple[int, int]) -> FloatArray:
    words = source.words(shape[0] * shape[1]).reshape(shape)
    uniform = ((words >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52
    return np.where(words & np.uint64(1), 1.0, -1.0) * -np.log(uniform)
