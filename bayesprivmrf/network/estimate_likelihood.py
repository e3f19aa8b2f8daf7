r"""The likelihood of beta given a released estimate, from the simulated law.

A released value is one of the two ends with a positive probability each, or lies between them:

.. math:: p(t \mid \beta) = a_-(\beta) \ \text{at the first},\quad a_+(\beta) \ \text{at the last},\quad
    (1 - a_-(\beta) - a_+(\beta))\, f_\beta(t) \ \text{between}.

Between grid points the probabilities of the ends are straight lines, and so are the quantiles of :math:`f_\beta`:
a density that moves and widens with beta is followed, where a straight line between two densities would make it
bimodal. :math:`f_\beta(t)` is a Gaussian kernel density, mirrored at finite ends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    from bayesprivmrf.network.estimate_law import EstimateLaw

_LEVELS = 1000  # quantiles that stand for a law between the ends
_FEWEST = 20  # estimates between the ends from which a law's quantiles are taken
_QUARTILES = 1.349  # distance of a normal law's quartiles, in standard deviations


def likelihood(law: EstimateLaw, value: float, betas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the likelihood of each beta, and how many independent simulations it rests on.

    Parameters
    ----------
    law
        Simulated estimates.
    value
        The released number.
    betas
        Within the law's span, shape (K,).

    Returns
    -------
    likelihoods, simulations
        Shape (K,). A likelihood is a probability where the value is an end of the range, else a density. For an end,
        simulations are the effective number of those that are that end; for a density, the effective number under the
        kernel.

    Raises
    ------
    ArgumentError
        No beta was simulated with enough estimates between the ends.
    """
    half = law.spacing / 2
    low = (law.sorted_rows < law.ends[0] + half).mean(axis=1)
    high = (law.sorted_rows > law.ends[1] - half).mean(axis=1)
    size = np.interp(betas, law.betas, law.effective_size)
    for is_end, share in zip(law.at_end(value), (low, high), strict=True):
        if is_end:
            probability = np.interp(betas, law.betas, share)
            return probability, probability * size
    between = np.interp(betas, law.betas, 1 - low - high)
    rows = _quantiles_between(law)
    density, share = _kernel_density(law, rows, value, betas, np.maximum(size * between, 2.0))
    return between * density, size * between * share


def _quantiles_between(law: EstimateLaw) -> FloatArray:
    """Return quantiles of the estimates strictly between the ends, shape (B, _LEVELS)."""
    half = law.spacing / 2
    levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
    rows = np.full((law.betas.size, _LEVELS), np.nan)
    for place, row in enumerate(law.sorted_rows):
        kept = row[(row >= law.ends[0] + half) & (row <= law.ends[1] - half)]
        if kept.size >= _FEWEST:
            rows[place] = np.interp(levels * (kept.size - 1), np.arange(kept.size), kept)  # it is sorted
    known = np.flatnonzero(np.isfinite(rows[:, 0]))
    if not known.size:
        raise ArgumentError(
            "`law` must have estimates between the ends of the range at some beta, but almost none was simulated; "
            "raise `configurations`."
        )
    nearest = known[np.abs(np.arange(law.betas.size)[:, None] - known).argmin(axis=1)]
    return rows[nearest]


def _kernel_density(
    law: EstimateLaw, rows: FloatArray, value: float, betas: FloatArray, size: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the density at one value for each beta, and the share of the simulations under its kernel."""
    after = np.clip(np.searchsorted(law.betas, betas), 1, law.betas.size - 1)
    share = ((betas - law.betas[after - 1]) / (law.betas[after] - law.betas[after - 1]))[:, None]
    points = (1 - share) * rows[after - 1] + share * rows[after]
    quarter = _LEVELS // 4
    spread = np.minimum((points[:, -quarter] - points[:, quarter - 1]) / _QUARTILES, points.std(axis=1))
    # Silverman's rule, no narrower than the grid of released values
    width = np.maximum(0.9 * spread * size**-0.2, law.spacing)[:, None]
    kernel = np.exp(-0.5 * ((value - points) / width) ** 2)
    # mirrored at the ends, so that no mass is lost beyond them
    mirrored = kernel.copy()
    for end in law.ends:
        if math.isfinite(end):
            mirrored += np.exp(-0.5 * ((2 * end - value - points) / width) ** 2)
    density = mirrored.mean(axis=1) / (math.sqrt(2 * math.pi) * width[:, 0])
    squares = (kernel**2).sum(axis=1)
    return density, np.divide(
        kernel.sum(axis=1) ** 2, squares, out=np.zeros_like(squares), where=squares > 0
    ) / (_LEVELS)
