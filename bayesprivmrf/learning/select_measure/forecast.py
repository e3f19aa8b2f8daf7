"""How large a coupling must be to be seen, from public settings and a number of records: for previews."""

from __future__ import annotations

import math

import numpy as np

from bayesprivmrf.learning.select_measure.couplings import least_statistic
from bayesprivmrf.learning.select_measure.measurement import STEPS, MeasurementPlan
from bayesprivmrf.model.tables import FloatArray


def smallest_chosen(plan: MeasurementPlan, total: float) -> float:
    r"""Return about the smallest coupling that the choice would not lose among N records, nats.

    The m-th largest of P Gumbel numbers of scale b is about :math:`b \log(P/m)`. The score of a coupling w of
    variables with k and k' even states is about :math:`N w / (4 (1 - 1/k) (1 - 1/k'))` records. Where alphabets
    differ it is the middle one of all candidates.
    """
    if plan.selection_scale is None:
        return 0.0
    first, second = np.array(plan.cardinalities)[plan.candidates.T]
    noise = plan.selection_scale / STEPS * math.log(len(plan.candidates) / plan.count)
    return float(np.median(noise * 4 * (1 - 1 / first) * (1 - 1 / second))) / max(total, 1.0)


def smallest_measured(plan: MeasurementPlan, total: float) -> float:
    r"""Return about the smallest coupling that would stand out from the noise on its measurement, nats.

    Noise of deviation s gives a coupling of two even states one of :math:`s / N` where sums are measured, and an
    entry of a coupling's table one of :math:`s \sqrt{k k' (k - 1) (k' - 1)} / N` where tables are. A pair that stands
    out alone is as many deviations from 0 as the rule of `bayesprivmrf.learning.select_measure.couplings` requires.
    """
    needed = least_statistic(
        np.zeros(1), np.ones(1, dtype=np.int64), kept=0, measured=plan.count, candidates=len(plan.candidates)
    )
    return float(np.sqrt(needed[0])) * plan.two_way.standard_deviation * _spread(plan) / max(total, 1.0)


def noise_share(plan: MeasurementPlan, total: float) -> float:
    """Return the share of noise in the variance of a coupling of 0 between even states; the rest is sampling."""
    cells = 1.0 if plan.form == "moments" else float(np.median(_cells(plan)))
    noise = plan.two_way.variance * cells
    return noise / (noise + max(total, 1.0))


def _cells(plan: MeasurementPlan) -> FloatArray:
    return np.prod(np.array(plan.cardinalities, dtype=float)[plan.candidates], axis=1)


def _spread(plan: MeasurementPlan) -> float:
    if plan.form == "moments":
        return 1.0
    free = np.prod(np.array(plan.cardinalities, dtype=float)[plan.candidates] - 1, axis=1)
    return float(np.median(np.sqrt(_cells(plan) * free)))
