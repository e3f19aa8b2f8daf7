"""Expectations and covariances of the parities of a t-wise model, in units of parities."""

from __future__ import annotations

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.effects_fit import moments_of
from bayesprivmrf.learning.models.monomials import effect_scales
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray


class ParityMoments:
    r"""Moments of parities :math:`\chi_I = 2^{|I|/2} \phi_I`, with coefficients :math:`h_I = 2^{-|I|/2} \beta_I`.

    Parameters
    ----------
    sets
        The monomials; the empty one is left out of all arrays, which have the shape (d,).
    generator
        Generator of draws for covariances where these are too costly.

    Raises
    ------
    ModelTooLargeError
        Exact inference in the model does not fit; the message has the remedy.
    """

    def __init__(self, sets: Monomials, generator: np.random.Generator) -> None:
        effects = Effects.of([2] * sets.variables, sets.largest())
        self._scales = effect_scales(effects)
        self._places = np.array([sets.positions[subset] for subset in effects.subsets], dtype=np.int64) - 1
        try:
            self._moments = moments_of(effects, generator)
        except ModelTooLargeError:
            p = sets.variables
            raise ModelTooLargeError(
                f"a model of these {len(sets) - 1:,} monomials of {p} variables must sum over up to 2^{p} states, "
                "which does not fit in memory; declare cliques and release anew, fit order=1, or learn from the "
                "records by SelectMeasure or PrivateFrankWolfe, which need no such sums. The released values remain "
                "valid."
            ) from None
        self.is_exact = self._moments.has_covariance

    def means(self, h: FloatArray) -> tuple[float, FloatArray]:
        """Return the log partition, and the mean of each parity."""
        log_partition, found = self._moments.means(h[self._places] * self._scales)
        return log_partition, self._of_parities(found)

    def expanded(self, h: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the means, and the covariance of one record's parities."""
        means, covariance = self._moments.expanded(h[self._places] * self._scales)
        found = np.empty_like(covariance)
        found[np.ix_(self._places, self._places)] = covariance * np.multiply.outer(self._scales, self._scales)
        return self._of_parities(means), found

    def _of_parities(self, means: FloatArray) -> FloatArray:
        found = np.empty_like(means)
        found[self._places] = means * self._scales
        return found
