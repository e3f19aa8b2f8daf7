r"""First-order intervals of couplings that `SelectMeasure` learned with a degree.

**Pairs in the model.** In the coordinates of `bayesprivmrf.model.effects` the fit solves
:math:`\mu(\hat\beta) + \Lambda \hat\beta = t`, where t are the noisy mean effects. Let :math:`\Sigma` be the
covariance of one record's effects and :math:`M = (\Sigma + \Lambda)^{-1}`. The penalty shifts :math:`\hat\beta` by
:math:`-M \Lambda \beta` to first order. The interval corrects this shift; the remaining error is
:math:`K (t - \mu)` with :math:`K = M + M \Lambda M` and

.. math:: \operatorname{Cov} t = \Sigma / N + \operatorname{diag}(v) + \frac{v_N}{N^2} \mu \mu^\top .

The terms are sampling, the noise on sums or tables with variance :math:`v_s` on the mean of effect s, and the noise
on a purchased number of records. Intervals are normal. :math:`\Sigma` is estimated from records drawn from the
released model, and :math:`\Lambda` is diagonal, :math:`(v_s / F_s + 1/N) / \tau^2`, where :math:`F_s` is the variance
of the effect under independence. Measured tables also carry information about N and, by the margins of pairs that
were not kept, about single variables. Both are ignored here, so the interval is slightly wide, and that of a field
corrects slightly more than the true shift.

If the release says that its fit was reweighted by the curvature at the estimate, :math:`\Lambda` is
:math:`(I / N + \operatorname{diag}(v) \Sigma^{-1}) / \tau^2`. Then :math:`\Sigma`, computed exactly where that is
cheap, may be singular, because some event is so rare that no record shows it. With
:math:`W = (\Sigma / N + \operatorname{diag}(v))^{-1}` and :math:`H = \Sigma W \Sigma + I / \tau^2`,
:math:`M = H^{-1} \Sigma W` and :math:`M \Lambda = H^{-1} / \tau^2` need no inverse of :math:`\Sigma`. Without the
prior, the errors of the coordinates would have covariance :math:`(\Sigma W \Sigma)^{-1}`. An entry of a table with
weights a of the coordinates has infinite limits if :math:`z^2 a^\top (\Sigma W \Sigma)^{-1} a > a^\top a`: to first
order the probability of a rare event could be 0, and the coupling of any size. This rule is a heuristic of the normal
approximation.

**Pairs left out** have the limits of `bayesprivmrf.learning.select_measure.left_out`.

All intervals take the released graph as true: if a coupling is missing, others may be off by its product with the
couplings on the path around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.learning.models.solution import FALLBACK, warn_of_chains
from bayesprivmrf.learning.select_measure.left_out import left_out_limits
from bayesprivmrf.learning.select_measure.refit_model import Noise, RefitModel
from bayesprivmrf.model.effects import contrasts
from bayesprivmrf.model.tables import FloatArray

if TYPE_CHECKING:
    from bayesprivmrf.learning.models.pairs import LearnedPairs

type CouplingLimits = tuple[FloatArray, FloatArray]


def linearised_limits(
    learned: LearnedPairs, noise: Noise, prob: float, total: float, generator: np.random.Generator
) -> CouplingLimits:
    """Return lower and upper limits of all couplings and fields, each in the order of the release's vector.

    Parameters
    ----------
    learned
        A model that was learned by one choice of pairs.
    noise
        The noise of its measurement.
    prob, total, generator
        As for `CouplingsByMeasurement.linearised`, which states the errors too.
    """
    from scipy.stats import norm

    if (said := learned.details.get(FALLBACK)) is not None:  # a smaller model has no limits
        raise ModelError(
            "`couplings_interval` needs a model of all chosen pairs, got a smaller one, because the fit fell "
            f"back ({said}); take `learned.interval(variables)` for tables, or learn by SelectMeasure(rho)."
        )
    model = RefitModel(learned, noise, total, generator)
    if not model.has_mixed:
        warn_of_chains()
    z = float(norm.isf((1 - prob) / 2))
    centre, covariance, free = model.normal_approximation()
    W = left_out_limits(model, (1 - prob) / 2)
    theta = np.zeros(model.width), np.zeros(model.width)
    for subset, start, stop in model.blocks():
        basis = contrasts(model.cards[subset[0]])
        if len(subset) == 2:
            basis = np.kron(basis, contrasts(model.cards[subset[1]]))
        middle = basis @ centre[start:stop]
        spread = ((basis @ covariance[start:stop, start:stop]) * basis).sum(axis=1)
        unlimited = z**2 * ((basis @ free[start:stop]) ** 2).sum(axis=1) > (basis**2).sum(axis=1)
        half = np.where(unlimited, np.inf, z * np.sqrt(np.maximum(spread, 0.0)))
        rows = slice(model.first[subset[0]], model.first[subset[0] + 1])
        if len(subset) == 1:
            theta[0][rows] = middle - half
            theta[1][rows] = middle + half
            continue
        columns = slice(model.first[subset[1]], model.first[subset[1] + 1])
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        for matrix, values in zip(W, (middle - half, middle + half), strict=True):
            matrix[rows, columns] = values.reshape(shape)
            matrix[columns, rows] = values.reshape(shape).T
    own = learned.own_states  # the second states where all variables have two, else all
    low, high = (learned.flat(W[end][np.ix_(own, own)], theta[end][own]) for end in (0, 1))
    return low, high
