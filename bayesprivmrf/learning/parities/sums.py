"""Sums of parities over records, Walsh-Hadamard transforms, and moments of parities under a t-wise model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bayesprivmrf.errors import ModelTooLargeError
from bayesprivmrf.inference.effects_fit import moments_of
from bayesprivmrf.learning.models.monomials import effect_scales
from bayesprivmrf.model.effects import Effects
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import NoiseDistribution

# Numbers in the products of a block of records: 16 MiB in single precision
_BLOCK = 1 << 22


def parity_sums(spins: np.ndarray, counts: IntArray, monomials: Monomials) -> IntArray:
    r"""Return the exact sum :math:`S_I = \sum_m c_m \chi_I(x^m)` of each monomial.

    Parameters
    ----------
    spins
        Distinct records as -1 and +1, int8 of shape (rows, p).
    counts
        Number of records :math:`c_m` that each row represents, shape (rows,); their sum is below 2^53.
    monomials
        The sets I.

    Returns
    -------
    ndarray
        Whole numbers, records, shape (K,).

    Notes ----- A matrix product of the parities of k - 1 variables with the records has :math:`S_{J \cup \{i\}}` as
    entry (J, i). All partial sums are whole numbers of at most :math:`\sum_m c_m` over a block of rows, so single
    precision is exact up to 2^24 and double precision below 2^53. The time is n K' p, where K' is the number of sets
    of up to t - 1 variables; memory is bounded by a block.
    """
    sums = np.zeros(len(monomials), dtype=np.int64)
    for products, block, weights in _blocks(spins, counts, monomials):
        sums[0] += int(weights.sum())
        weighted = (block * weights.astype(block.dtype)).T
        for k, level in enumerate(monomials.levels[1:], start=1):
            start, stop = monomials.offsets[k : k + 2]
            if stop > start:
                table = products[k - 1] @ weighted
                sums[start:stop] += table[monomials.parents[k - 1], level[:, -1]].astype(np.int64)
    return sums


def parity_rows(spins: np.ndarray, monomials: Monomials, order: int | None = None) -> list[np.ndarray]:
    r"""Return the parities :math:`\chi_I` of each record, one matrix (K_k, records) for each size of sets.

    Parameters
    ----------
    spins
        Records as -1 and +1, shape (p, records); the result has their type.
    monomials
        The sets.
    order
        Largest size; all by default.
    """
    products = [np.ones((1, spins.shape[1]), dtype=spins.dtype)]
    for k, level in enumerate(monomials.levels[1 : None if order is None else order + 1], start=1):
        products.append(products[-1][monomials.parents[k - 1]] * spins[level[:, -1]])
    return products


def noisy_parity_sums(
    spins: np.ndarray,
    counts: IntArray,
    monomials: Monomials,
    law: NoiseDistribution,
    source: NoiseSource,
    total: IntArray | None = None,
) -> IntArray:
    """Return the sums with independent noise; the first is the number of records.

    Parameters
    ----------
    spins, counts, monomials
        Records and sets, as for `parity_sums`.
    law
        Distribution of the noise on each sum; `bayesprivmrf.privacy.largest_sum` has their joint sensitivity.
    source
        Source of the noise.
    total
        Number of records, shape (1,), if it is public or already measured. It then replaces the sum of the empty set,
        for which no noise is drawn.
    """
    sums = parity_sums(spins, counts, monomials)
    if total is None:
        return source.add(sums, law)
    return np.concatenate([total, source.add(sums[1:], law)])


def walsh_hadamard(values: FloatArray) -> FloatArray:
    r"""Return :math:`\hat f(I) = \sum_s f(s) (-1)^{|I \cap s|}` for a function of p bits, shape (2^p,).

    If bit i of s is set where :math:`x_i = -1`, the transform of a distribution has the expectation of each parity at
    `Monomials.masks`. Applied twice, the transform multiplies the function by 2^p. It takes p 2^p additions.

    Examples
    --------
    >>> walsh_hadamard(np.array([0.5, 0.25, 0.25, 0.0]))  # P(-1) is 1/4 for both, never at once
    array([1. , 0.5, 0.5, 0. ])
    """
    result = np.array(values, dtype=float)
    half = 1
    while half < result.size:
        pairs = result.reshape(-1, 2, half)
        low = pairs[:, 0] + pairs[:, 1]
        pairs[:, 1] = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] = low
        half *= 2
    return result


def _blocks(
    spins: np.ndarray, counts: IntArray, monomials: Monomials
) -> Iterator[tuple[list[np.ndarray], np.ndarray, IntArray]]:
    """Yield parities of up to t - 1 variables, records and counts of each block, in the narrowest exact type."""
    width = monomials.offsets[max(monomials.order, 1)]
    rows = max(_BLOCK // max(width, monomials.variables), 1)
    for start in range(0, len(spins), rows):
        weights = counts[start : start + rows]
        # single precision is exact for whole numbers up to 2^24
        kind = np.float32 if int(weights.sum()) <= 2**24 else np.float64
        block = np.ascontiguousarray(spins[start : start + rows].T, dtype=kind)
        yield parity_rows(block, monomials, monomials.order - 1), block, weights


class ParityMoments:
    r"""Moments of parities :math:`\chi_I = 2^{|I|/2} \phi_I`, with coefficients :math:`h_I = 2^{-|I|/2} \beta_I`.

    Parameters
    ----------
    sets
        The monomials. All arrays exclude the empty one and have shape (d,).
    generator
        Generator for Monte Carlo covariances where exact ones are too costly.

    Raises
    ------
    ModelTooLargeError
        Exact inference in the model does not fit in memory; the message has a remedy.
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
        """Return the log partition function and the mean of each parity."""
        log_partition, found = self._moments.means(h[self._places] * self._scales)
        return log_partition, self._of_parities(found)

    def expanded(self, h: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the means and the covariance of one record's parities."""
        means, covariance = self._moments.expanded(h[self._places] * self._scales)
        found = np.empty_like(covariance)
        found[np.ix_(self._places, self._places)] = covariance * np.multiply.outer(self._scales, self._scales)
        return self._of_parities(means), found

    def _of_parities(self, means: FloatArray) -> FloatArray:
        found = np.empty_like(means)
        found[self._places] = means * self._scales
        return found
