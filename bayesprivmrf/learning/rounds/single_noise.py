r"""How much noise is left on single variables: what it makes of the misfits of tables, and whose tables to repeat.

All of it is computed from noisy tables and the laws of their noise. A variable v has groups g of states
(`bayesprivmrf.learning.rounds.tables`), whose counts are known by its own tables and by margins of others, with the
variance :math:`\tau_v(g)^2` of all that measured them, pooled by precision.

**Misfits.** Of variables that are independent in the model the mean count of a cell x is :math:`N \prod_v p_v(x_v)`,
and noise moves it, to first order, by :math:`\sum_v \delta_v(x_v) \prod_{w \ne v} p_w(x_w)`. The mean size of a
normal number is its deviation times :math:`\sqrt{2/\pi}`, so that a table c of the model is off in :math:`L_1` by

.. math:: \sqrt{2/\pi} \sum_x \sqrt{\sum_{v \in c} \tau_v(x_v)^2 \prod_{w \ne v} p_w(x_w)^2}
    \;\ge\; \sqrt{\sum_{v \in c} L_v^2}, \qquad L_v = \sqrt{2/\pi} \sum_g \tau_v(g),

by Minkowski's inequality, though the variables depend on each other in nothing. So much of a misfit tells of no
dependence, and what takes it away is to measure the variables themselves.

**Merged states** have shares by their own noisy counts, of deviation :math:`\sigma_v`. Those shares are off by
:math:`\sqrt{2/\pi}\, \sigma_v` a state, by twice the count of all of them at most. No table of groups shows it, and
none of several variables takes it away; it is added to :math:`L_v`. So a variable that is nearly all noise is
measured by itself before tables of it are.

**Which to repeat.** Beside m tables those variables are measured once more whose states have a noise of at least
:math:`1.5^2` times the variance that it would have, which grows with the number of tables that share the budget. The
factor is that at which a table stands out as well (`bayesprivmrf.mechanisms.select_measure.rounds`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bayesprivmrf.inference.effects_fit.moments import Scope
from bayesprivmrf.learning.rounds.tables import MeasuredTable, Merging, single_counts
from bayesprivmrf.model.tables import FloatArray

# Deviations that the noise on a variable's states has at least, by the one that it would have if repeated
WORTH = 1.5

# mean absolute value of a standard normal variable
_MEAN_SIZE = math.sqrt(2 / math.pi)


@dataclass(frozen=True, kw_only=True)
class SingleNoise:
    """The noise that is left on single variables.

    Parameters
    ----------
    errors
        How far each variable's counts are off in L1, records, shape (p,): :math:`L_v` of the module.
    variances
        Noise variance of the count of a state, records squared, its mean over the variable's states, shape (p,).
    """

    errors: FloatArray
    variances: FloatArray

    @classmethod
    def left(cls, declared: Sequence[int], merging: Merging, tables: Sequence[MeasuredTable]) -> SingleNoise:
        """Return what the noise of all tables that were measured leaves.

        Parameters
        ----------
        declared
            Number of declared states of each variable.
        merging
            Which of them are one.
        tables
            All that was measured: each variable of several states by itself at least.
        """
        counts, deviations = single_counts(declared, tables)
        cards, margins = merging.cardinalities, np.zeros(len(declared))
        for each in tables:
            cells = math.prod(cards[v] for v in each.scope)
            for v in each.scope if len(each.scope) > 1 else ():
                margins[v] += cards[v] / (cells * each.law.variance)
        errors, variances = np.zeros(len(declared)), np.zeros(len(declared))
        for v, (y, deviation) in enumerate(zip(counts, deviations, strict=True)):
            if y.size == 1:
                continue
            group = merging.groups[v]
            sizes = np.bincount(group)
            is_merged = sizes[group] > 1
            shares = _MEAN_SIZE * deviation * int(is_merged.sum())
            of_groups = _MEAN_SIZE * (1 / np.sqrt(1 / (sizes * deviation**2) + margins[v])).sum()
            errors[v] = of_groups + min(shares, 2 * max(float(y[is_merged].sum()), 0.0))
            alone = 1 / (1 / deviation**2 + margins[v])
            variances[v] = np.where(is_merged, deviation**2, alone).mean()
        return cls(errors=errors, variances=variances)

    def misfits(self, scopes: Sequence[Scope]) -> FloatArray:
        """Return what the noise makes of the misfits of tables, records."""
        squared = (self.errors**2).tolist()
        return np.array([math.sqrt(sum(squared[v] for v in scope)) for scope in scopes])

    def worth_repeating(self, number: int, variance: float) -> list[Scope]:
        """Return the variables that are worth measuring again beside so many tables.

        Parameters
        ----------
        number
            How many other tables are measured.
        variance
            Noise variance of one table if it were measured alone: of m together it is m times this.
        """
        order = np.argsort(-self.variances, kind="stable")
        together = WORTH**2 * variance * (number + 1 + np.arange(order.size))
        worth = np.flatnonzero((self.variances[order] >= together) & (self.variances[order] > 0))
        most = int(worth[-1]) + 1 if worth.size else 0
        return [(int(v),) for v in np.sort(order[:most])]
