"""Means and covariance of a log-linear model by Gibbs sampling, for graphs too wide for exact inference."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bayesprivmrf.chains.gibbs import Chains, mixing_of
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray

type Scope = tuple[int, ...]
"""Positions of variables, ascending."""

# Gibbs sweeps kept for one estimate by each chain, and those dropped before, as the coordinates have just moved
_SWEEPS = 256
_WARM_UP = 10

# Sweeps dropped before means over every sweep, for coordinates that hardly moved since the last ones
_SHORT_WARM_UP = 5


class Fixed(NamedTuple):
    """Potentials that a fit keeps fixed: cliques, and their tables one after another, each in C order."""

    scopes: tuple[Scope, ...]
    potentials: FloatArray


# No fixed potentials: all of the model is fitted
NOTHING_FIXED = Fixed((), np.zeros(0))


def features_of(effects: Effects) -> Callable[[np.ndarray], np.ndarray]:
    """Return the map from codes (rows, p) to φ, float32 of shape (rows, d)."""
    cards = effects.cardinalities
    first = np.cumsum([0, *(k - 1 for k in cards)])
    width = int(effects.orders.max(initial=1))
    # the columns of single variables whose product is each coordinate's feature; a later column repeats the first
    columns = [np.zeros((width, 0), dtype=np.int64)]
    for subset in effects.subsets:
        own = (
            np.array(list(np.ndindex(*(cards[v] - 1 for v in subset)))).T
            + first[list(subset)][:, None]
        )
        columns.append(np.concatenate([own, np.tile(own[:1], (width - len(subset), 1))]))
    factors = np.concatenate(columns, axis=1)
    bases = [contrasts(k).astype(np.float32) for k in cards]

    def phi(codes: np.ndarray) -> np.ndarray:
        single = np.concatenate([basis[codes[:, v]] for v, basis in enumerate(bases)], axis=1)
        result = single[:, factors[0]]
        for place in range(1, width):
            is_longer = effects.orders > place
            result[:, is_longer] *= single[:, factors[place, is_longer]]
        return result

    return phi


def drawn_covariance(features: np.ndarray) -> FloatArray:
    """Return the covariance of rows of features, with a ridge smaller than the contribution of one draw."""
    centred = features - features.mean(axis=0, dtype=float).astype(features.dtype)
    found = (centred.T @ centred).astype(float) / len(features)
    found[np.diag_indices_from(found)] += (found.diagonal() + 1e-9) / len(features)
    return found


class GibbsMoments:
    """Moments by Gibbs sampling, from chains that follow the coordinates: even means are drawn.

    Parameters
    ----------
    effects, generator, fixed
        Coordinates, generator of the draws, and further potentials, which are known.
    """

    has_means = False
    has_covariance = False

    def __init__(
        self, effects: Effects, generator: np.random.Generator, fixed: Fixed = NOTHING_FIXED
    ) -> None:
        self.chains = Chains(effects.cardinalities, (*fixed.scopes, *effects.scopes), generator)
        self._features = features_of(effects)
        self._effects = effects
        self._fixed = fixed

    def potentials(self, beta: FloatArray) -> FloatArray:
        """Return log potentials of the chains' cliques."""
        return np.concatenate([self._fixed.potentials, self._effects.potentials(beta)])

    def features(self, beta: FloatArray, sweeps: int = _SWEEPS) -> np.ndarray:
        """Return φ of records drawn in some sweeps after a short warm-up, float32 of shape (rows, d)."""
        codes = self.chains.advance(self.potentials(beta), sweeps + _WARM_UP)[_WARM_UP:]
        return self._features(codes.transpose(0, 2, 1).reshape(-1, codes.shape[1]))

    def means(self, beta: FloatArray) -> tuple[float, FloatArray]:
        """Return means of draws, without a log partition."""
        return math.nan, self.features(beta).mean(axis=0, dtype=float)

    def swept_means(self, beta: FloatArray, sweeps: int) -> FloatArray:
        """Return means over every sweep, from the frequencies of the cliques' cells."""
        potentials = self.potentials(beta)
        self.chains.advance(potentials, 1, _SHORT_WARM_UP)
        frequencies = self.chains.marginals(potentials, sweeps)
        return self._effects.pull_back(frequencies[self._fixed.potentials.size :])

    def expanded(self, beta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means and covariance of the same draws."""
        drawn = self.features(beta)
        return drawn.mean(axis=0, dtype=float), drawn_covariance(drawn)

    def is_mixed(self, beta: FloatArray) -> bool:
        """Return True if the chains have mixed well enough at a point to be trusted."""
        potentials = self.potentials(beta)
        chains = self.chains
        codes = chains.advance(potentials, _SWEEPS + _WARM_UP)[_WARM_UP:]
        return mixing_of(codes, chains.cards, chains.scopes, potentials).trusted
