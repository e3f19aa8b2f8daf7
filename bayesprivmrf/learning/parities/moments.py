r"""Expectations and covariances of the parities of a t-wise model, by Walsh-Hadamard transforms or by elimination.

With bit i of a state set where :math:`x_i = -1`, the transform of a distribution over all :math:`2^p` states holds
the expectation of every parity, and as :math:`\chi_I \chi_J = \chi_{I \triangle J}` their covariances as well,

.. math:: \Sigma_{IJ} = E \chi_{I \triangle J} - E \chi_I\, E \chi_J ,

so that one transform for the energies and one for the probabilities, :math:`2 p\, 2^p` additions, give everything.
Models of more variables have exact expectations by elimination, and covariances of exact draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.learning.models.monomials import effect_scales
from bayesprivmrf.learning.parities.sums import parity_rows, walsh_hadamard
from bayesprivmrf.marginals import forecast, marginal_engine, sample
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray, IntArray

ALWAYS_LISTED, _LARGEST = 18, 24  # variables whose states are listed: always; where elimination is no cheaper
_FEWEST, _MOST, _EACH = 2000, 20_000, 20  # draws, and for each coefficient


class Point(ABC):
    """A model at some coefficients.

    Parameters
    ----------
    log_partition
        A, nats, up to a constant that does not depend on the coefficients.
    means
        Mean of each parity but the empty one, shape (d,).
    """

    def __init__(self, log_partition: float, means: FloatArray) -> None:
        self.log_partition, self.means = log_partition, means

    @abstractmethod
    def covariance(self) -> FloatArray:
        """Return Σ of one record's parities, shape (d, d)."""

    def positive_covariance(self) -> FloatArray:
        """Return Σ, kept positive definite against rounding."""
        found = self.covariance()
        found[np.diag_indices_from(found)] += 1e-12
        return found


class ParityMoments(ABC):
    """Abstract map from the coefficients of a family's sets, the empty one left out, to moments."""

    is_exact: bool
    """Whether covariances are exact as well, not those of draws."""

    @abstractmethod
    def at(self, h: FloatArray) -> Point:
        """Return the model with the coefficients h, nats, shape (d,)."""


class Spectrum(ParityMoments):
    """Moments by listing all states of at most 24 variables.

    Parameters
    ----------
    masks
        Bit mask of each set but the empty one, bit i for variable i, shape (d,).
    variables
        p, the number of variables.
    """

    is_exact = True

    def __init__(self, masks: IntArray, variables: int) -> None:
        self.masks, self.states = masks, 1 << variables

    def at(self, h: FloatArray) -> Point:
        """Return the model with the coefficients h."""
        energies = np.zeros(self.states)
        energies[self.masks] = h
        energies = walsh_hadamard(energies)
        largest = energies.max()
        weights = np.exp(energies - largest)
        total = float(weights.sum())
        expectations = walsh_hadamard(weights / total)
        return _Transformed(float(largest) + float(np.log(total)), expectations, self.masks)


class _Transformed(Point):
    def __init__(self, log_partition: float, expectations: FloatArray, masks: np.ndarray) -> None:
        super().__init__(log_partition, expectations[masks])
        self._expectations, self._masks = expectations, masks

    def covariance(self) -> FloatArray:
        found = self._expectations[self._masks[:, None] ^ self._masks]
        found -= np.multiply.outer(self.means, self.means)
        return found


class Elimination(ParityMoments):
    """Moments by exact elimination; covariances of exact draws.

    Parameters
    ----------
    sets
        The monomials.
    generator
        Generator of the draws.

    Raises
    ------
    ModelTooLargeError
        Exact inference in the model does not fit.
    """

    is_exact = False

    def __init__(self, sets: Monomials, generator: np.random.Generator) -> None:
        self.sets, self.generator = sets, generator
        cards, scopes = [2] * sets.variables, sets.largest()
        self.engine = marginal_engine(cards, scopes)
        self.effects = Effects.of(cards, scopes)
        self.scales = effect_scales(self.effects)
        self.places = np.array([sets.positions[subset] for subset in self.effects.subsets]) - 1

    def at(self, h: FloatArray) -> Point:
        """Return the model with the coefficients h."""
        potentials = self.effects.potentials(h[self.places] * self.scales)
        log_partition, marginals = self.engine.marginals(potentials)
        means = np.empty(len(self.sets) - 1)
        means[self.places] = self.scales * self.effects.pull_back(marginals)
        return _Eliminated(float(log_partition), means, potentials, self)

    def drawn_covariance(self, potentials: FloatArray) -> FloatArray:
        """Return the covariance of draws; what fewer than one of them could tell from none is taken for that."""
        draws = min(max(_EACH * len(self.sets), _FEWEST), _MOST)
        effects = self.effects
        codes = sample(effects.cardinalities, effects.scopes, potentials, draws, self.generator)
        spins = (2 * codes.T - 1).astype(np.float32)
        drawn = np.concatenate(parity_rows(spins, self.sets)[1:])
        drawn -= drawn.mean(axis=1, keepdims=True)
        found = (drawn @ drawn.T).astype(float) / draws
        found[np.diag_indices_from(found)] += (found.diagonal() + 1e-9) / draws
        return found


@dataclass
class _Eliminated(Point):
    log_partition: float
    means: FloatArray
    potentials: FloatArray
    home: Elimination

    def covariance(self) -> FloatArray:
        return self.home.drawn_covariance(self.potentials)


def parity_moments(sets: Monomials, generator: np.random.Generator) -> ParityMoments:
    """Return what is cheaper: a list of all states, or elimination.

    Raises
    ------
    ModelTooLargeError
        Neither fits in memory: with the remedy.
    """
    p = sets.variables
    if p <= ALWAYS_LISTED:
        return Spectrum(sets.masks[1:], p)
    try:
        work = forecast([2] * p, sets.largest()).multiplications
        if p <= _LARGEST and work >= 1 << p:
            return Spectrum(sets.masks[1:], p)
        return Elimination(sets, generator)
    except ModelTooLargeError:
        if p <= _LARGEST:
            return Spectrum(sets.masks[1:], p)
        raise ModelTooLargeError(
            f"a model of these {len(sets) - 1:,} monomials of {p} variables must sum over up to 2^{p} states, which "
            "does not fit in memory; declare cliques and release anew, fit order=1, or learn from the records by "
            "SelectMeasure or PrivateFrankWolfe, which need no such sums. The released values hold all the same."
        ) from None
