r"""Contradictions between a posterior and its release; the module `diagnostics` judges mixing.

Let T(y, n) be a discrepancy that has mean 0 and variance 1 given the true tables n, whatever they are. The
distribution of the noise ensures this. If model and prior are right, truth and release are one draw from their joint
distribution, so that

.. math:: E\,E[T \mid y] = 0, \qquad \operatorname{var} E[T \mid y] = 1 - E \operatorname{var}(T \mid y),

by the law of total variance. Hence

.. math:: z = \frac{E[T \mid y]}{\sqrt{\max(1 - \operatorname{var}(T \mid y),\, 1/4) + e^2}},

where e is the Monte Carlo error of the numerator, is nearly standard normal, or smaller where the floor of 1/4
applies. Cells are selected by the latent table n of each draw, so no selection by y biases z. The same holds for a
discrepancy between parameters and their prior, which has mean 0 and variance 1 under the prior. Three are judged, at
3.3: a normal score passes it once in a thousand, or in two thousand for one sign.

- The number of records: :math:`T = (\hat N - N) / s`, s being the standard error of the release's own estimate, with
  half a record added in squares. This is Hausman's test of an efficient estimate against an unbiased one.
- Cells that are pressed against zero: T is the sum of (y - n) / sd over the cells of which n is below three standard
  deviations of the noise, over the root of their number. If a prior expects people in every cell, positive
  noise is mistaken for people, and T is far below zero. A relaxed count that ends at l above -1/2
  gives zero, which owns [-1/2, 1/2), no more than [l, 1/2): it would lie above the truth in every cell that is
  empty, under the right prior too, by up to 1/2 + l records. So whole numbers are judged, and draws below 1/2
  weigh as much as the whole of zero's share would, :math:`1 / (1/2 - l)` to 1, cell by cell.
- The prior itself: T is the log density of the rows, or of the effects, given what the prior has learned, less
  its mean and over its standard deviation. It is the score of the prior's strength, and so the most powerful of
  the three against a wrong `concentration`. The floor is 1/10, as little is known where noise is large. No alarm
  is raised where the release determines T, because a wrong prior then does no harm. None is raised for fewer than
  twenty cells, because one rare cell then gives T a long tail. None is raised where the strength was learned, which
  corrects what this check finds: sticky chains contradict the learned prior's shape, and their intervals still cover.

References
----------
Hausman (1978). Specification tests in econometrics. Econometrica 46, 1251-1271.
Yuan and Johnson (2012). Goodness-of-fit diagnostics for Bayesian hierarchical models. Biometrics 68, 156-164.
Evans and Moshonov (2006). Checking for prior-data conflict. Bayesian Analysis 1, 893-914.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from bayesprivmrf.inference.criticism.verdict import contradictions, mean_contradictions
from bayesprivmrf.inference.evidence import Evidence
from bayesprivmrf.inference.interval_frame import Status
from bayesprivmrf.inference.posterior.formulation import Finished
from bayesprivmrf.inference.posterior.noisy_tables import is_noisy
from bayesprivmrf.inference.posterior.results.diagnostics import FEWEST, Diagnosis
from bayesprivmrf.inference.posterior.results.draws import Draws
from bayesprivmrf.inference.posterior.results.quantities import (
    LARGEST_SENSITIVITY,
    prior_sensitivity,
)
from bayesprivmrf.model.tables import FloatArray

# Standard normal score beyond which posterior and release contradict each other
LARGEST_SCORE = 3.3
# Smallest variance of a mean discrepancy, in the denominator of z; the module says when each acts
_FLOOR = 0.25
# The same for the prior's own score: less is known where noise is large
_PRIOR_FLOOR = 0.1
# Latent count, in standard deviations of its noise, below which it may be pressed against zero
_SMALL = 3.0
# Mean number of small cells from which their surplus is judged: the sum over fewer is not nearly normal
_FEWEST_SMALL = 5
# Number of cells from which the prior's own score is judged: with fewer, one rare cell gives it a long tail
_FEWEST_CELLS = 20
# Share of the prior variance that the release must leave open for a wrong prior to matter
_OPEN = 0.25
# Two-sided tail probability, over all learned numbers, at which one is far out in its prior
_FAR_OUT = 1e-3
# Estimated number of records, in its standard errors, from which its truncation at zero looks like no surplus
_TOLD = 3.0
# What to do about a posterior whose mean is far from the release
_REMEDY = "leave `concentration` and `scale` to be learned, or take another formulation"
# Variance of a discrepancy up to which its draws count as equal
_CONSTANT = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarms:
    """Findings about one posterior.

    Parameters
    ----------
    numbers
        For `Posterior.stats`: ``total_score``, ``pressed_score`` and ``prior_fit_score``, z of the module's formula,
        where they exist; ``prior_fit_open``, what var(T | y) of the last is; ``learned_score``, the learned number of
        the prior that is farthest out, in its prior standard deviations; ``prior_decides``, the share of the cliques'
        cells whose probability the prior decides (`sensitivity`); and the results of `contradictions`.
    of_release
        Contradictions of the release with itself or with the model, with the remedy.
    contradictions
        Contradictions of the posterior with the release or its prior, each with its remedy, after those of the
        release.
    cautions
        Each thing besides that a reader must know, with its remedy.
    """

    numbers: Mapping[str, float]
    of_release: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    def added_to(self, diagnosis: Diagnosis) -> Diagnosis:
        """Return the diagnosis with these problems added; a contradicted posterior is not trusted."""
        return replace(
            diagnosis,
            problems=(*diagnosis.problems, *self.contradictions, *self.cautions),
            status=Status.NOT_TRUSTED if self.contradictions else diagnosis.status,
        )


def raise_alarms(evidence: Evidence, finished: Finished) -> Alarms:
    """Compare a posterior with its release and with its prior; draws that cannot be judged raise no alarm."""
    if finished.total.shape[1] < FEWEST or not np.isfinite(finished.counts).all():
        return Alarms(numbers={})
    draws = Draws(evidence=evidence, finished=finished)
    # free potentials of the mean take long where the model is not decomposable; their marginals are known
    if draws.model.is_restricted:
        potentials = draws.mean_potentials()[0]
    else:
        potentials = np.zeros(draws.model.size)
    if draws.model.is_restricted:
        marginals = None
    else:
        marginals = finished.marginals.mean(axis=(0, 1))
    of_release, numbers = contradictions(evidence, potentials, marginals=marginals)
    if not of_release:
        mean = finished.marginals.mean(axis=(0, 1))
        of_release, of_mean = mean_contradictions(evidence, mean, _REMEDY)
        numbers |= of_mean
    found = [
        *of_release,
        *_total(evidence, finished, numbers),
        *_pressed(evidence, finished, numbers),
        *_prior_fit(finished, numbers),
    ]
    cautions = tuple(_learned(finished, numbers))
    return Alarms(
        numbers=numbers, of_release=of_release, contradictions=tuple(found), cautions=cautions
    )


def _total(evidence: Evidence, finished: Finished, numbers: dict[str, float]) -> list[str]:
    error = evidence.total_standard_error
    estimate = evidence.estimated_total
    # middles of wide ranges are no estimate of N: they are too large where most hidden counts are small
    if error == 0 or evidence.is_coarse or not _is_told(evidence):
        return []
    # half a record is no contradiction, however little the noise: between draws N need not be whole
    score = numbers["total_score"] = _score((estimate - finished.total) / math.hypot(error, 0.5))
    if abs(score) <= LARGEST_SCORE:
        return []
    remedy = _remedy(evidence, finished)
    return [
        f"the posterior's number of records, {finished.total.mean():,.0f} ± {finished.total.std():,.0f}, contradicts "
        f"the release's own estimate, {estimate:,.0f} ± {error:,.0f} (score {-score:.1f}, wanted: within "
        f"{LARGEST_SCORE}): the prior does not fit these tables; {remedy}"
    ]


def _pressed(evidence: Evidence, finished: Finished, numbers: dict[str, float]) -> list[str]:
    if not (evidence.total_standard_error == 0 or _is_told(evidence)):
        return []
    surplus = np.zeros(finished.total.shape)
    cells = np.zeros(finished.total.shape)
    if finished.least is None:
        least = None
    else:
        least = evidence.answers(finished.least)
    for position, latent in enumerate(evidence.answers(finished.counts)):
        if not is_noisy(evidence, position):
            continue
        start, stop = evidence.offsets[position : position + 2]
        deviation = evidence.noise_deviation[start:stop]
        counts = latent.reshape(*cells.shape, stop - start)
        is_small = (counts < _SMALL * deviation) & (evidence.possible & evidence.is_count)[
            start:stop
        ]
        if least is None:
            whole = counts
            weight = 1.0
        else:
            whole, weight = _whole(counts, least[position].ravel())
        residuals = weight * (evidence.noisy_counts[start:stop] - whole) / deviation
        surplus += np.where(is_small, residuals, 0.0).sum(axis=-1)
        cells += is_small.sum(axis=-1)
    if cells.mean() < _FEWEST_SMALL:
        return []
    score = numbers["pressed_score"] = _score(surplus / np.sqrt(np.maximum(cells, 1.0)))
    if score >= -LARGEST_SCORE:
        return []
    each = -float(surplus.sum() / cells.sum())
    remedy = _remedy(evidence, finished)
    return [
        f"small cells hold more records in the posterior than were released, by {each:.2f} noise standard "
        f"deviations in each of {cells.mean():.0f} (score {-score:.1f}, wanted: at most {LARGEST_SCORE}): noise is "
        f"taken for people, as a prior does that expects some in every cell; {remedy}, or merge states"
    ]


def _remedy(evidence: Evidence, finished: Finished) -> str:
    """Return the remedy for a prior that does not fit: learn its settings, unless they were learned."""
    if not finished.learned:
        return "leave `concentration` and `scale` to be learned, or take another formulation"
    if evidence.specification.shares_transitions:
        return "set `concentration=1` if every move can occur, or let each step have its own table"
    return "take another formulation"


def _whole(counts: FloatArray, least: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return whole numbers for relaxed counts, and weights of mean 1 that give zero its full share."""
    # answers that are no counts may have a least value above zero
    share = np.clip(0.5 - least, 0.5, 1.0)
    weight = np.where(counts < 0.5, 1.0 / share, 1.0)
    return np.maximum(np.rint(counts), 0.0), weight / weight.mean(axis=(0, 1))


def _prior_fit(finished: Finished, numbers: dict[str, float]) -> list[str]:
    if finished.prior_fit is None or not finished.prior_fit.any():
        return []
    score = numbers["prior_fit_score"] = _score(finished.prior_fit, _PRIOR_FLOOR)
    is_open = numbers["prior_fit_open"] = min(float(finished.prior_fit.var()), 1.0)
    is_few = finished.marginals.shape[-1] < _FEWEST_CELLS
    is_harmless = abs(score) <= LARGEST_SCORE or is_open < _OPEN
    if finished.learned or is_few or is_harmless:
        return []
    return [
        f"the population is more {'even' if score > 0 else 'uneven'} than the prior has it (score {score:.1f}, "
        f"wanted: within {LARGEST_SCORE}), and the release leaves much to the prior; leave `concentration` and "
        "`scale` to be learned, or take another formulation"
    ]


def _learned(finished: Finished, numbers: dict[str, float]) -> list[str]:
    if finished.log_prior:
        decided = prior_sensitivity(finished.marginals, finished.log_prior) > LARGEST_SENSITIVITY
        if decided.size:
            numbers["prior_decides"] = float(decided.mean())
        else:
            numbers["prior_decides"] = 0.0
    scores = {name: float(values.mean()) for name, values in finished.learned.items()}
    if not scores:
        return []
    farthest = max(scores, key=lambda name: abs(scores[name]))
    score = numbers["learned_score"] = scores[farthest]
    share = numbers.get("prior_decides", 0.0)
    if share == 0 or abs(score) <= -ndtri(0.5 * _FAR_OUT / len(scores)):
        return []
    return [
        f"the prior's {farthest} was learned to be {abs(score):.1f} of its standard deviations "
        f"{'above' if score > 0 else 'below'} what is expected of it, and the prior decides {share:.0%} of the "
        "probabilities; compare with another formulation before you rely on them"
    ]


def _is_told(evidence: Evidence) -> bool:
    least = _TOLD * evidence.total_standard_error
    return evidence.has_total and evidence.estimated_total >= least


def _score(discrepancy: FloatArray, floor: float = _FLOOR) -> float:
    """Return the score of the module's formula, from draws of T, shape (chain, draw)."""
    import arviz as az

    variance = float(discrepancy.var())
    if variance > _CONSTANT:
        size = float(az.ess(discrepancy))
    else:
        size = math.inf
    own = max(1 - variance, floor) + (variance / size if math.isfinite(size) else 0.0)
    return float(discrepancy.mean()) / math.sqrt(own)
