r"""Private multiplicative weights for parities: a distribution over all records, mended where it is most wrong.

Each round chooses the parity whose sum :math:`S_I` is furthest from what the distribution says, by the exponential
mechanism, measures it with integer noise, and mends the distribution at every parity measured so far by :math:`q(x)
\leftarrow q(x)\, e^{\chi_I(x) (m_I - E_q \chi_I) / 2} / Z`. The distribution is thus itself a t-wise model,
:math:`q \propto \exp \sum_I h_I \chi_I`.

Privacy: the score :math:`u_I = |S_I - \lfloor N E_q \chi_I \rceil|` moves by at most D either way, D being how far
one record moves a sum: 1 where it is added or removed, 2 where it is replaced. A choice then has range 2 D and a
measurement sensitivity D; the costs of all rounds add up (`bayesprivmrf.privacy.selection`). N must be public, or
noisy and paid for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesprivmrf.interruption import remember
from bayesprivmrf.learning.parities.sums import walsh_hadamard
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import NoiseLaw

_UPDATES = 200  # of a round, in passes over all measured parities


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiplicativeWeights:
    """Settings of private multiplicative weights, all public.

    Parameters
    ----------
    rounds
        T, the number of rounds.
    choice_scale
        Scale of the exponential mechanism, records.
    measurement
        Law of the noise of a measured sum.
    passes
        How often each round corrects the distribution at all measured parities; fewer times where that would be many
        updates, because many rounds are still to come.
    """

    rounds: int
    choice_scale: float
    measurement: NoiseLaw
    passes: int = 10

    def expectations(
        self, sums: IntArray, monomials: Monomials, total: float, source: NoiseSource
    ) -> FloatArray:
        """Return the expectation of each parity under the last distribution, shape (K,), the empty set's 1.

        Parameters
        ----------
        sums
            Exact sums, shape (K,). Sensitive: only the choices and the noisy sums of those chosen are used.
        monomials
            The sets; p is at most 62, and the state has 2^p numbers.
        total
            N, public or noisy, positive.
        source
            Source of the choices and of the noise.
        """
        masks = monomials.masks
        weights = np.full(2**monomials.variables, 0.5**monomials.variables)
        means = np.zeros(len(monomials))
        means[0] = 1.0
        signs: list[np.ndarray] = []
        targets: list[float] = []
        try:
            for _ in range(self.rounds):
                scores = np.abs(sums[1:] - np.rint(total * means[1:]).astype(np.int64))
                chosen = 1 + int(source.choose(scores[None], self.choice_scale)[0])
                noisy = int(source.add(sums[chosen : chosen + 1], self.measurement)[0])
                signs.append(_signs(int(masks[chosen]), monomials.variables))
                targets.append(min(max(noisy / total, -1.0), 1.0))
                passes = max(1, min(self.passes, _UPDATES // len(signs)))
                weights = _mended(weights, signs, targets, passes)
                means = walsh_hadamard(weights)[masks]
        except BaseException as error:
            remember(error)  # the expectations of the last round are kept
        return means

    @staticmethod
    def memory_bytes(variables: int, rounds: int) -> int:
        """Return about how many bytes the state takes: four arrays of 2^p numbers, and a byte of signs a round."""
        return (32 + rounds) * 2**variables


def _signs(mask: int, variables: int) -> np.ndarray:
    """The parity of every state, int8 of shape (2^p,)."""
    result = np.ones(1, dtype=np.int8)
    for variable in range(variables):
        result = np.concatenate([result, -result if mask >> variable & 1 else result])
    return result


def _mended(weights: FloatArray, signs: list[np.ndarray], targets: list[float], passes: int) -> FloatArray:
    """Multiplicative updates, the newest parity first, then all in turn: exp(c s) is cosh c + s sinh c."""
    weights = weights.copy()
    order = [len(signs) - 1, *list(range(len(signs))) * passes]
    for place in order:
        step = 0.5 * (targets[place] - float(weights @ signs[place]))
        weights *= np.cosh(step) + np.sinh(step) * signs[place]
        weights /= weights.sum()
    return weights
