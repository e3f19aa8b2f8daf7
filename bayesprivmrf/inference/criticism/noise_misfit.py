r"""Residuals beside noise and sampling: tests of models with free potentials, and of learned ones.

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
bounds the least T of N records from below, and that of up to N' records with :math:`N' / N` times the slope to the
farthest record. A private N has as many as ten standard errors more than estimated. Noise below half a record counts
as that much, because fits are not exact and counts are whole.

**Ranges.** A published range says between which ends a count lies. It is compared with the nearest count that it
allows, with noise of half a record. True counts lie in their ranges, so that T is no larger than it is without them,
and the p-value is an upper bound. The middle of a range is no estimate that T could use: where a range is wide, right
counts are far from its middle, and all on one side. An *estimate* may be beyond the ends of a range, because a normal
density stands for the range in a fit. The variance of a uniform count on the range is therefore added to the sampling
variance, so that the test of an estimate has little power where ranges are wide.

**Estimates.** The tests above find the distribution of the model that fits best, so that they say nothing of an
estimate that a setting moved away from it: a strong ridge or prior, a loose tolerance, or loopy marginals. The
*estimate* itself is therefore tested as well, after each fit; and of learned models, which keep the measurements that
they were fitted to, it alone. It is an estimate of the population, which a prior and the tolerance of a search may
move from these records by less than another sample would differ. So what is left is compared with noise and sampling
together: with :math:`S_i` the variance of a number by sampling, :math:`D_i` becomes :math:`D_i + S_i`, and
:math:`b_i` becomes :math:`E|η_i + \sqrt{S_i} Z|` (`noise.kernels`). Then each term of T has the same mean as
before and no larger variance. With noise alone, fits at large budgets were rejected whose intervals covered at their
level (`tests/learning/test_merged_states.py`). The largest residual is judged beside the sum
(`bayesprivmrf.inference.criticism.farthest`), and twice the smaller p-value is that of the estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from bayesprivmrf.inference.criticism.farthest import Expected, farthest_number
from bayesprivmrf.inference.evidence import Evidence, Inference
from bayesprivmrf.inference.mean_counts import MeanCounts
from bayesprivmrf.inference.optimize import minimize
from bayesprivmrf.model.tables import FloatArray, IntArray
from bayesprivmrf.noise.kernels import ABSOLUTE, by_kernel

# P-value below which a model is contradicted: benchmarks/misfit.py counts false alarms and detections. The levels of
# all tests of one fit add up to less than 0.01: docs/explanation/estimators.md has the table.
SMALLEST_MISFIT_TAIL = 0.005
# P-value below which an estimate is contradicted: benchmarks/wrong_releases.py counts both. A right estimate is
# closer to the numbers than noise and sampling, so that its p-value is near one, and any small level serves.
SMALLEST_ESTIMATE_TAIL = 1e-4
# Records: smallest noise scale that what is left of a free model is compared with
_LEAST_NOISE = 0.5
# Inverse temperature at which log Z stands for the largest sum of slopes over all joint states, N records
_COLD = 10.0
# Standard errors above the estimated number of records, to which a private one is bounded: noise hardly goes so far
_FARTHEST_TOTAL = 10.0
# Half width of the hyperbola that stands for |x|, so that it has a derivative, in scales of the noise; arbitrary
_KINK = 0.25
# Largest gradient by a potential at which the search for the least T of a free model ends
_SETTLED = 0.01
# Iterations of that search: if it has not ended by then, there is no verdict
_SEARCHED = 500


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
    gap
        The number that an estimate misses, where it alone shows the misfit: what is expected, and what was released,
        records.
    """

    score: float
    tail: float
    worst: int
    gap: tuple[float, float] | None = None

    @property
    def is_real(self) -> bool:
        """Return True if noise and sampling do not explain the misfit."""
        return self.tail < SMALLEST_MISFIT_TAIL

    @property
    def stats(self) -> dict[str, float]:
        """Entries of `Solution.stats`."""
        return {"misfit": self.score, "misfit_tail": self.tail}

    def explained(self, evidence: Evidence, verb: str = "explains") -> str:
        """Return the end of a sentence about what noise does not explain: how far off it is, and where most."""
        if self.gap is not None:
            expected, released = self.gap
            return (
                f"{verb}: one number of {evidence.name_of(self.worst)}, is {released:,.0f}, and the fit expects "
                f"{expected:,.0f} (tail probability {self.tail:.1g}), and intervals are wrong"
            )
        return (
            f"{verb} (by {self.score:.1f} standard deviations, tail probability {self.tail:.1g}), most of all "
            f"{evidence.name_of(self.worst)}, and intervals are wrong"
        )


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
    numbers = _tested(evidence)
    is_tested = numbers.is_tested
    if not numbers.has_some or not np.isfinite(mean[is_tested]).all():
        return None
    residual = np.where(is_tested, evidence.nearest(mean) - mean, 0.0)
    strains = by_kernel(
        evidence.kernels, lambda kernel, *at: kernel.strain(*at), residual, numbers.width, sampling
    )
    values, degrees = (np.where(is_tested, each, 0.0) for each in strains)
    value = max(values.sum() - slack, 0.0)
    number = degrees.sum()
    own, of_own = (np.bincount(numbers.owner, each) for each in (values, degrees))
    own = np.maximum(own - slack, 0.0)
    tails = np.where(of_own > 0, chdtrc(np.maximum(of_own, 1.0), own), np.inf)
    tail = float(chdtrc(number, value))
    if (tests := int((of_own > 0).sum())) > 1:
        tail = min(1.0, 2 * min(tail, tests * float(tails.min())))
    score = float((value - number) / np.sqrt(2 * number))
    return Misfit(score=score, tail=tail, worst=int(tails.argmin()))


class _Tested(NamedTuple):
    """Numbers that residuals are tested of.

    Parameters
    ----------
    is_tested
        Mask of the numbers whose noise has a density, shape (size,).
    has_some
        Whether there are some.
    width
        Scale of the noise that residuals are compared with, records, shape (size,); that of ranges is the least.
    owner
        Position of the measurement of each number, shape (size,).
    """

    is_tested: np.ndarray
    has_some: bool
    width: FloatArray
    owner: IntArray


@lru_cache(maxsize=4)
def _tested(evidence: Evidence) -> _Tested:
    """Return the numbers of the releases that residuals are tested of."""
    is_tested = evidence.possible & ~evidence.is_exact & (evidence.kernels >= 0)
    width = np.where(evidence.is_range, 0.0, evidence.noise_width)
    positions = np.arange(len(evidence.noise))
    return _Tested(
        is_tested=is_tested,
        has_some=bool(is_tested.any()),
        width=np.maximum(width, _LEAST_NOISE),
        owner=np.repeat(positions, np.diff(evidence.offsets)),
    )


def learned_contradictions(
    evidence: Evidence, marginals: FloatArray
) -> tuple[tuple[str, ...], dict[str, float]]:
    """Describe how a learned fit contradicts its own measurements, and return the test results.

    The estimate itself is judged, because its cliques are those that were measured. It contradicts them where it is
    farther from them than noise and the sampling of N records explain: it is an estimate of the population, so that
    a prior or a tolerance that moves it by less is no contradiction.

    Parameters
    ----------
    evidence
        What was measured.
    marginals
        The fit's probabilities of the cells of the evidence's cliques, shape (model size,).
    """
    misfit = misfit_of_estimate(evidence, marginals)
    if misfit is None:
        return (), {}
    told = (
        "the release contradicts the fit: its numbers are farther from those of the fit than noise and sampling "
        f"{misfit.explained(evidence, 'explain')}; fit `statistics` by NoiseAwareMAP() or LatentCounts()"
    )
    return ((told,) if misfit.is_real else ()), misfit.stats


def misfit_of_estimate(evidence: Evidence, marginals: FloatArray) -> Misfit | None:
    """Return the misfit between an estimate's numbers and the released ones, beside noise and sampling.

    Parameters
    ----------
    evidence
        The releases.
    marginals
        The estimate's probabilities of the cells of the evidence's cliques, shape (model size,).

    Returns
    -------
    Misfit or None
        None where no number has noise whose density is known.
    """
    mean = evidence.gathered(marginals)
    if evidence.matrix is None:
        squares = marginals
        range_of_one = np.ones_like(mean)
    else:
        tables = _tables_of(evidence)
        squares = tables * (evidence.rows.power(2) @ marginals)
        range_of_one = tables * _range_of_weights(evidence)
    variance = np.maximum(squares - mean**2, 0.0)
    # in a fit, a normal density stands for a range: estimates are beyond its ends by a part of its width
    beyond = np.where(evidence.is_range, evidence.noise_variance, 0.0)
    expected = Expected(
        mean=evidence.total * mean,
        sampling=evidence.total * evidence.rows_of_one * variance + beyond,
        reach=evidence.rows_of_one * range_of_one,
    )
    misfit = misfit_of_tables(evidence, expected.mean, sampling=expected.sampling)
    if misfit is None:
        return None
    farthest = farthest_number(evidence, expected, _tested(evidence).is_tested)
    if farthest is None or farthest.tail >= misfit.tail:
        return replace(misfit, tail=min(1.0, 2 * misfit.tail))
    return replace(
        misfit,
        tail=min(1.0, 2 * farthest.tail),
        worst=int(np.searchsorted(evidence.offsets, farthest.place, side="right")) - 1,
        gap=(float(expected.mean[farthest.place]), farthest.nearest),
    )


def _range_of_weights(evidence: Evidence) -> FloatArray:
    """Return the largest weight of a cell of each number less the smallest, or less 0, shape (size,)."""
    rows = evidence.rows
    most = np.maximum(rows.max(axis=1).toarray().ravel(), 0.0)
    least = np.minimum(rows.min(axis=1).toarray().ravel(), 0.0)
    return most - least


def _tables_of(evidence: Evidence) -> FloatArray:
    """Return the number of tables that each number adds up, shape (size,).

    A record adds one cell of each of K tables, such as the steps of a chain, so that the expected square of what it
    adds is at most K times the sum of the cells' expected squares.
    """
    from scipy.sparse import csr_array

    offsets = evidence.specification.offsets
    home = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    shape = (len(home), len(offsets) - 1)
    member = csr_array((np.ones(len(home)), (np.arange(len(home)), home)), shape=shape)
    found = (abs(evidence.rows) @ member) != 0
    return np.asarray(found.sum(axis=1), dtype=float).ravel()


def estimate_contradictions(
    evidence: Evidence, marginals: FloatArray, remedy: str
) -> tuple[tuple[str, ...], dict[str, float]]:
    """Describe how an estimate contradicts the release, and return the test result.

    Parameters
    ----------
    evidence
        The releases.
    marginals
        The estimate's probabilities of the cells of the evidence's cliques, shape (model size,).
    remedy
        What the user can do about an estimate that is far from the release.

    Returns
    -------
    problems, stats
        At most one sentence; and ``estimate_tail``, the p-value, where a number has noise whose density is known.
    """
    misfit = misfit_of_estimate(evidence, marginals)
    if misfit is None:
        return (), {}
    stats = {"estimate_tail": misfit.tail}
    if misfit.tail >= SMALLEST_ESTIMATE_TAIL:
        return (), stats
    told = (
        "the estimate does not fit the release: its numbers are farther from the released ones than noise and "
        f"sampling {misfit.explained(evidence, 'explain')}; {remedy}"
    )
    return (told,), stats


def contradicted(evidence: Evidence, misfit: Misfit, restricted: Mapping[str, str]) -> str:
    """Return the sentence about a model that the release contradicts, given its restrictions with their remedies."""
    if not restricted:
        return (
            "the release contradicts every distribution of these cliques: no counts of records have tables that "
            f"differ from the released ones by no more than noise {misfit.explained(evidence)}; check that all "
            "numbers are of the same records and that their noise is as stated"
        )
    return (
        f"the release contradicts the model ({'; '.join(restricted)}): its numbers are farther from the model's than "
        f"noise and sampling {misfit.explained(evidence, 'explain')}; "
        f"{', or '.join(dict.fromkeys(restricted.values()))}"
    )


def misfit_of_free(
    evidence: Evidence, potentials: FloatArray, inference: Inference, marginals: FloatArray | None
) -> Misfit | None:
    """Return the misfit of a model with free potentials; None where the search for the least T does not settle.

    The arguments are those of `bayesprivmrf.inference.criticism.verdict.contradictions`.
    """
    means = MeanCounts(evidence=evidence, inference=inference)
    if marginals is None:
        marginals = means.engine.marginals(potentials)[1]
    found = misfit_of_tables(evidence, evidence.total * evidence.gathered(marginals))
    if found is None or not found.is_real:
        return found
    seen = evidence.possible
    is_private = evidence.total_standard_error > 0
    width = _tested(evidence).width[seen]
    is_square = evidence.kernels[seen] != ABSOLUTE
    nearest = found
    pull = np.zeros(len(width))

    def objective(point: FloatArray) -> tuple[float, FloatArray]:
        nonlocal nearest, pull
        linearized = means.at(point)
        mean = _spread(seen, linearized.mean)
        now = misfit_of_tables(evidence, mean)
        if now is not None and now.tail > nearest.tail:
            nearest = now
        strain = (mean - evidence.nearest(mean))[seen] / width
        root = np.sqrt(strain**2 + _KINK**2)
        value = np.where(is_square, 0.5 * strain**2, root)
        pull = np.where(is_square, strain, strain / root) / width
        gradient = linearized.backward(pull)
        gradient[-1] *= is_private
        return float(value.sum()), gradient

    ended = minimize(
        objective,
        np.append(np.zeros(means.effects.size), np.log(evidence.total)),
        gradient_tolerance=_SETTLED,
        iterations=_SEARCHED,
        is_enough=lambda *_: not nearest.is_real,
    )
    if not nearest.is_real:
        return nearest
    # T is convex in the mean: no tables have less than T at the end less twice the slope to the farthest record
    objective(ended.point)
    mean = means.at(ended.point).mean
    slopes = evidence.scattered(_spread(seen, pull))
    cold = -_COLD * np.exp(ended.point[-1])
    farthest = means.engine.marginals(np.where(evidence.supported_cells, cold * slopes, -np.inf))[0]
    if is_private:
        # the slope of more records of the same distribution counts too
        most = evidence.total + _FARTHEST_TOTAL * evidence.total_standard_error
        farthest = max(farthest, 0.0) * max(1.0, most / float(np.exp(ended.point[-1])))
    slack = 2 * (float(pull @ mean) + farthest / _COLD)
    surely = misfit_of_tables(evidence, _spread(seen, mean), slack)
    if surely is not None and surely.is_real:
        return nearest
    return None


def _spread(mask: np.ndarray, values: FloatArray) -> FloatArray:
    """Return an array with the values where the mask is True, and zeros elsewhere."""
    found = np.zeros(len(mask))
    found[mask] = values
    return found
