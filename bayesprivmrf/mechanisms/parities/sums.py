"""Sums of parities over records, exact and with noise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bayesprivmrf.learning.parities.mode import parity_rows
from bayesprivmrf.model.monomials import Monomials
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.noise.source import NoiseSource
from bayesprivmrf.privacy import NoiseDistribution

# Numbers in the products of a block of records: 16 MiB in single precision
_BLOCK = 1 << 22

# Whole numbers up to this one are exact in single precision
_EXACT_IN_SINGLE = 2**24


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

    Notes
    -----
    A matrix product of the parities of k - 1 variables with the records has :math:`S_{J \cup \{i\}}` as
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


def _blocks(
    spins: np.ndarray, counts: IntArray, monomials: Monomials
) -> Iterator[tuple[list[np.ndarray], np.ndarray, IntArray]]:
    """Yield parities of up to t - 1 variables, records and counts of each block, in the narrowest exact type."""
    width = monomials.offsets[max(monomials.order, 1)]
    rows = max(_BLOCK // max(width, monomials.variables), 1)
    for start in range(0, len(spins), rows):
        weights = counts[start : start + rows]
        if int(weights.sum()) <= _EXACT_IN_SINGLE:
            kind = np.float32
        else:
            kind = np.float64
        block = np.ascontiguousarray(spins[start : start + rows].T, dtype=kind)
        yield parity_rows(block, monomials, monomials.order - 1), block, weights


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
