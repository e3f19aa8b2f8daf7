r"""Rows of a posterior whose chains have not all mixed.

A fit is judged by the number that mixes worst, of all that the sampler moves. An interval depends on the draws of its
own quantity, so that each row is judged by these (Vehtari et al. 2021, section 4).

- *Effective draws.* With n of them, the posterior probability below a quantile that is meant for p has a standard
  error of :math:`\sqrt{p (1 - p) / n}`: 0.02 for the ends of a 90 % interval and n = 100.
- *R-hat.* Let W be the variance within the chains, and B that of their means. All draws together have the variance
  :math:`W + B`, and :math:`\hat R^2 \approx 1 + B/W`, so that at 1.05 the chains' means differ by about a third of a
  standard deviation.

So rows with R-hat below 1.05 and at least 100 effective draws, in the bulk and in the tails, have intervals whose
coverage is within about 0.03 of what it would be with longer chains, and the fit's limit of iterations is no reason
to doubt them. Their notes tell it. A low E-BFMI (between 0.1 and 0.3) says that tails are explored slowly, which the
effective draws in a row's own tails measure. A fit is `converged` only at the stricter limits of
`bayesprivmrf.inference.posterior.results.diagnostics`.

References
----------
Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021). Rank-normalization, folding, and localization: an improved
R-hat. Bayesian Analysis 16, 667-718.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bayesprivmrf.inference.convergence import convergence_of
from bayesprivmrf.inference.interval_frame import Mark, RowStatus, Status
from bayesprivmrf.model.tables import FloatArray

# Largest R-hat of a row that the fit's limit of iterations leaves as it is; derived in the module's docstring
LARGEST_ROW_R_HAT = 1.05
# Smallest number of effective draws of such a row, in all chains together, in the bulk and in the tails
SMALLEST_ROW_ESS = 100
# Smallest number of draws per chain by which rows are judged
_FEWEST = 8


class Ending(NamedTuple):
    """Ending of the search of the numbers of some rows.

    Parameters
    ----------
    status
        Status of the fit from which the rows start.
    marks
        Remarks on single rows.
    """

    status: Status
    marks: tuple[Mark, ...] = ()


def ending_of(status: Status, drawn: FloatArray) -> Ending:
    """Return how rows ended, by the draws from which they were computed.

    Parameters
    ----------
    status
        Status of the fit.
    drawn
        The draws, shape (chain, draw, ...). A row with an infinite one, such as a time, is doubtful.
    """
    chains, draws = drawn.shape[:2]
    numbers = drawn.reshape(chains, draws, math.prod(drawn.shape[2:]))
    if status is not Status.ITERATION_LIMIT or draws < _FEWEST or not numbers.size:
        return Ending(status)
    if chains == 1:  # compare the two halves of the chain
        half = draws // 2
        numbers = np.stack([numbers[0, :half], numbers[0, half : 2 * half]])
    is_finite = np.isfinite(numbers).all(axis=(0, 1))
    found = convergence_of(np.where(is_finite, numbers, 0.0))
    least = np.minimum(found.bulk, found.tail)
    # R-hat of a number that never changes is NaN
    has_mixed = is_finite & ~(found.r_hat >= LARGEST_ROW_R_HAT) & (least >= SMALLEST_ROW_ESS)
    cut = Mark(RowStatus.DOUBTFUL, "the fit reached its iteration limit", ~has_mixed)
    told = Mark(RowStatus.OK, "other numbers of the fit have not mixed", has_mixed)
    return Ending(Status.CONVERGED, (cut, told))
