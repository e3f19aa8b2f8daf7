r"""Goodness of fit of models with free potentials, by the noise alone, and of learned models.

**Free potentials.** A model with free potentials has a parameter for each measured cell, so that it can have the
records' own tables. The noise alone must then explain what is left, :math:`r = y - N A μ`. The statistic is minus
twice the logarithm of its density,

.. math:: T = \sum_i 2 |r_i| / b_i \quad\text{or}\quad T = \sum_i r_i^2 / D_i ,

of (discrete) Laplace and of normal noise. At the records' tables T has the χ² distribution with two or one degrees
of freedom for each number, and the maximum likelihood estimate has no larger T. So the p-value, again of the whole
and of the worst measurement, is an upper bound. A small one means that no distribution has tables near the
released ones, as where three variables with two states would differ pairwise in 90 % of the records. A prior
or an early stop may leave an estimate farther from the release than the noise explains. To test the *model*, T is
therefore minimized by L-BFGS until the noise explains it. T is convex in the mean, so that its slope at the end
bounds the least T from below. Noise below half a record counts as that much, because fits are not exact and counts
are whole.

**Learned models** keep the measurements that they were fitted to, and their cliques are the measured ones.
Here the *estimate* is tested. It is an estimate of the population, which a prior and the tolerance of a search may
move from these records by less than another sample would differ. So what is left is compared with noise and sampling
together: with :math:`S_i` the variance of a number by sampling, :math:`D_i` becomes :math:`D_i + S_i`, and
:math:`b_i` becomes :math:`E|η_i + \sqrt{S_i} Z|` (`expected_residual`). Then each term of T has the same mean as
before and no larger variance. With noise alone, fits at large budgets were rejected whose intervals covered at their
level (`tests/learning/test_merged_states.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from bayesprivmrf.inference.criticism.discrepancy import expected_residual
from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.family import MeanCounts
from bayesprivmrf.inference.optimize import minimize
from bayesprivmrf.model.tables import FloatArray

__all__ = ["SMALLEST_TAIL", "Misfit", "misfit_of_free", "misfit_of_tables"]

# P-value below which a model is contradicted: benchmarks/misfit.py counts false alarms and detections
SMALLEST_TAIL = 0.01
# Records: smallest noise scale that what is left of a free model is compared with
_LEAST_NOISE = 0.5
# Inverse temperature at which log Z stands for the largest sum of slopes over all joint states, N records
_COLD = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Misfit between a model and the measured numbers.

    Parameters
    ----------
    score
        Excess of Q over its mean, in standard deviations of Q.
    tail
        P-value of Q and of the worst measurement together.
    worst
        Position of the measurement that fits worst.
    """

    score: float
    tail: float
    worst: int

    @property
    def is_real(self) -> bool:
        """Return True if noise and sampling do not explain the misfit."""
        return self.tail < SMALLEST_TAIL

    @property
    def stats(self) -> dict[str, float]:
        """Entries of `Solution.stats`."""
        return {"misfit": self.score, "misfit_tail": self.tail}


def misfit_of_tables(
    evidence: Evidence, mean: FloatArray, slack: float = 0.0, *, sampling: FloatArray | None = None
) -> Misfit | None:
    """Return the misfit between expected and released numbers, given the noise and, optionally, sampling.

    Parameters
    ----------
    evidence
        The releases.
    mean
        N A μ of all numbers, shape (size,), records.
    slack
        What is subtracted from T.
    sampling
        Variance of each number by sampling, squared records, shape (size,); None for the noise alone.

    Returns
    -------
    Misfit or None
        None where no number has noise whose density is known.
    """
    is_absolute, width = evidence.is_absolute, np.maximum(evidence.noise_width, _LEAST_NOISE)
    is_tested = evidence.possible & ~evidence.is_exact
    is_tested &= evidence.spread([law.kernel in ("absolute", "square") for law in evidence.noise]) > 0
    if not is_tested.any() or not np.isfinite(mean[is_tested]).all():
        return None
    if sampling is not None:
        width = np.where(
            is_absolute, expected_residual(width, is_absolute, sampling), np.sqrt(width**2 + sampling)
        )
    strain = np.abs(evidence.noisy_counts - mean) / width
    values = np.where(is_tested, np.where(is_absolute, 2 * strain, strain**2), 0.0)
    degrees = np.where(is_tested, 1.0 + is_absolute, 0.0)
    owner = np.searchsorted(evidence.offsets, np.arange(len(values)), side="right") - 1
    value, number = max(values.sum() - slack, 0.0), degrees.sum()
    own, of_own = (np.bincount(owner, each) for each in (values, degrees))
    own = np.maximum(own - slack, 0.0)
    tails = np.where(of_own > 0, chdtrc(np.maximum(of_own, 1.0), own), np.inf)
    tail = float(chdtrc(number, value))
    if (tests := int((of_own > 0).sum())) > 1:
        tail = min(1.0, 2 * min(tail, tests * float(tails.min())))
    score = float((value - number) / np.sqrt(2 * number))
    return Misfit(score=score, tail=tail, worst=int(tails.argmin()))


def misfit_of_free(
    evidence: Evidence, potentials: FloatArray, inference: Inference, marginals: FloatArray | None
) -> Misfit | None:
    """Return the misfit of a model with free potentials; None where the search for the least T does not settle.

    The arguments are those of `bayesprivmrf.inference.criticism.misfit.misfit_of`.
    """
    means = MeanCounts(evidence=evidence, inference=inference)
    if marginals is None:
        marginals = means.engine.marginals(potentials)[1]
    found = misfit_of_tables(evidence, evidence.total * evidence.gathered(marginals))
    if found is None or not found.is_real:
        return found
    seen, is_private = evidence.possible, evidence.total_standard_error > 0
    answers, width = evidence.noisy_counts[seen], np.maximum(evidence.noise_width[seen], _LEAST_NOISE)
    is_square, kink = ~evidence.is_absolute[seen], 0.25  # |x| as a hyperbola, so that it has a derivative
    nearest, pull = found, np.zeros(len(answers))

    def objective(point: FloatArray) -> tuple[float, FloatArray]:
        nonlocal nearest, pull
        linearized = means.at(point)
        now = misfit_of_tables(evidence, _spread(seen, linearized.mean))
        nearest = now if now is not None and now.tail > nearest.tail else nearest
        strain = (linearized.mean - answers) / width
        root = np.sqrt(strain**2 + kink**2)
        value, pull = (
            np.where(is_square, 0.5 * strain**2, root),
            np.where(is_square, strain, strain / root) / width,
        )
        gradient = linearized.backward(pull)
        gradient[-1] *= is_private
        return float(value.sum()), gradient

    # if the search for the best fit of a free model has not ended by then, there is no verdict
    # largest gradient by a potential at which the search for the least T of a free model ends
    ended = minimize(
        objective,
        np.append(np.zeros(means.effects.size), np.log(evidence.total)),
        gradient_tolerance=0.01,
        iterations=500,
        is_enough=lambda *_: not nearest.is_real,
    )
    if not nearest.is_real:
        return nearest
    # T is convex in the mean: no tables have less than T at the end less twice the slope to the farthest record
    objective(ended.point)
    mean, slopes = means.at(ended.point).mean, evidence.scattered(_spread(seen, pull))
    cold = -_COLD * np.exp(ended.point[-1])
    farthest = means.engine.marginals(np.where(evidence.supported_cells, cold * slopes, -np.inf))[0]
    slack = 2 * (float(pull @ mean) + farthest / _COLD)
    surely = misfit_of_tables(evidence, _spread(seen, mean), slack)
    return nearest if surely is not None and surely.is_real else None


def _spread(mask: np.ndarray, values: FloatArray) -> FloatArray:
    """Return an array with the values where the mask is True, and zeros elsewhere."""
    found = np.zeros(len(mask))
    found[mask] = values
    return found
