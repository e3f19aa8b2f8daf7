r"""Private multiplicative weights: a distribution that is corrected where it is most wrong.

Each round chooses the parity whose sum :math:`S_I` is furthest from its
expectation under the current distribution, by the exponential mechanism, and measures it with integer noise. It then
updates the distribution for every parity measured so far by
:math:`q(x) \leftarrow q(x)\, e^{\chi_I(x) (m_I - E_q \chi_I) / 2} / Z`. The distribution is therefore a t-wise model
itself, :math:`q \propto \exp \sum_I h_I \chi_I`.

**Privacy.** The score :math:`u_I = |S_I - \lfloor N E_q \chi_I \rceil|` moves by at most D in either direction, where
D is the change of a sum by one record: 1 for add-or-remove, 2 for replacement. A choice then has range 2 D and a
measurement sensitivity D. The costs of all rounds add up (`bayesprivmrf.privacy.selection`). N must be public, or
noisy with a budget of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayesprivmrf.interruption import remember
from bayesprivmrf.learning.parities.mode import walsh_hadamard
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import NoiseDistribution

# Updates of the distribution in a round: ten passes over all measured parities, or this many updates if that is fewer
_PASSES = 10
_UPDATES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Public number and noise of the rounds.

    Parameters
    ----------
    rounds
        Number of rounds T.
    choice_scale
        Scale of the exponential mechanism, records.
    measurement
        Noise on a measured sum.
    """

    rounds: int
    choice_scale: float
    measurement: NoiseDistribution


def multiplicative_weights(
    sums: IntArray,
    monomials: Monomials,
    total: float,
    source: NoiseSource,
    steps: Steps,
) -> FloatArray:
    """Return the expectation of each parity under the last distribution, shape (K,), 1 for the empty set.

    Parameters
    ----------
    sums
        Exact sums, shape (K,). Sensitive: only private choices and the noisy sums of chosen parities use them.
    monomials
        The sets; p is at most 62, and the distribution has 2^p numbers.
    total
        Public or noisy number of records N, positive.
    source
        Source of the choices and of the noise.
    steps
        Public number and noise of the rounds.
    """
    masks = monomials.masks
    weights = np.full(2**monomials.variables, 0.5**monomials.variables)
    means = np.zeros(len(monomials))
    means[0] = 1.0
    signs: list[np.ndarray] = []
    targets: list[float] = []
    try:
        for _ in range(steps.rounds):
            scores = np.abs(sums[1:] - np.rint(total * means[1:]).astype(np.int64))
            chosen = 1 + int(source.choose(scores[None], steps.choice_scale)[0])
            noisy = int(source.add(sums[chosen : chosen + 1], steps.measurement)[0])
            signs.append(_signs(int(masks[chosen]), monomials.variables))
            targets.append(min(max(noisy / total, -1.0), 1.0))
            passes = max(1, min(_PASSES, _UPDATES // len(signs)))
            weights = _updated(weights, signs, targets, passes)
            means = walsh_hadamard(weights)[masks]
    except BaseException as error:
        remember(error)  # keep the expectations of the last round
    return means


def _signs(mask: int, variables: int) -> np.ndarray:
    """Return the parity of every joint state, int8 of shape (2^p,)."""
    result = np.ones(1, dtype=np.int8)
    for variable in range(variables):
        result = np.concatenate([result, -result if mask >> variable & 1 else result])
    return result


def _updated(
    weights: FloatArray, signs: list[np.ndarray], targets: list[float], passes: int
) -> FloatArray:
    """Return the distribution after multiplicative updates, for the newest parity and then for all in turn."""
    weights = weights.copy()
    order = [len(signs) - 1, *list(range(len(signs))) * passes]
    for place in order:
        step = 0.5 * (targets[place] - float(weights @ signs[place]))
        # exp(c s) = cosh c + s sinh c for a sign s
        weights *= np.cosh(step) + np.sinh(step) * signs[place]
        weights /= weights.sum()
    return weights
