r"""Bounds on tables that were not measured: the total variation between a pair in the records and in the model.

It is computed from noisy answers, choices and noisy tables, which the release has paid for, and from public
settings. It is therefore post-processing. Let :math:`u_c` be the misfit of a candidate c: its L1
distance to the model of that round, in records. A round bounds it in one of two cases.

1. **Nothing was chosen.** The largest of :math:`u_c - a_c` over all candidates, :math:`a_c` being the public
   allowance, was released as y with Gaussian noise of standard deviation s. So :math:`u_c \le a_c + y + 1.28 s` for
   all candidates, with a probability of 90 %.
2. **Tables were chosen.** The exponential mechanism of scale b picks j among the candidates E that are left, with a
   probability proportional to :math:`\exp((u_j - a_j) / b)`. So with a probability of at least :math:`1 - δ`, for all
   c in E, :math:`u_c - a_c \le u_j - a_j + b \log (|E| / δ)`. Table j was measured as y, with noise of scale σ. With
   the signs ς of its distance to the model, :math:`u_j = ς^\top (n_j - e_j) \le \lVert y - e_j \rVert_1 - ς^\top (y -
   n_j)`. Of k cells the last sum is sub-Gaussian with variance :math:`k σ^2`: below :math:`-σ \sqrt{2 k \log (1 /
   δ)}` with a probability of δ at most. Both δ are 5 %. The last choice of a round
   gives the smallest bound, and is used.

Later fits move the model by a known total variation, and the number of records N is known to a standard error e:

.. math:: \mathrm{TV}_c \le \frac{u_c + 1.645 e}{2 N} + \mathrm{TV}(\text{model then, model now}).

The bound of a pair is that of the last round in which it was a candidate. A pair that was too large for the model, or
that would have closed a cycle across parts of the model when the last table was chosen, has no bound from that round;
nor have pairs in models of many columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bayesprivmrf.inference.loglinear_fit.moments import Scope
from bayesprivmrf.learning.select_measure.measured_tables import MeasuredTable
from bayesprivmrf.learning.select_measure.round_fit import RoundFit
from bayesprivmrf.model.tables import FloatArray, IntArray

# Standard normal quantiles at 90 % and 95 %
ONE_SIDED, _ERROR = 1.2816, 1.6449

# δ of each of the two inequalities of a choice
_TAIL = 0.05


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """Bounds on the misfits of unmeasured pairs, records, with the model's table in the round of each bound.

    Parameters
    ----------
    groups
        For each variable the group of each declared state in these rounds.
    found
        Bound on the misfit of each pair, records, and the model's table in the round of that bound.
    """

    groups: Sequence[IntArray] = ()
    found: dict[Scope, tuple[float, FloatArray]] = field(default_factory=dict)

    def by_choice(
        self,
        fit: RoundFit,
        scopes: Sequence[Scope],
        allowances: FloatArray,
        chosen: int,
        measured: MeasuredTable,
        scale: float,
    ) -> Unmeasured:
        """Return these bounds with those that a choice implies for the remaining candidates.

        Parameters
        ----------
        fit
            The model of that round.
        scopes, allowances
            Candidates when the last table was chosen, and the allowance of each, in records.
        chosen
            Position of that table among the candidates.
        measured
            The noisy table.
        scale
            Scale of the choice, records.
        """
        (table,) = fit.probabilities([scopes[chosen]])
        noisy = float(np.abs(measured.values - fit.total * table.ravel()).sum())
        own = noisy + measured.law.scale * math.sqrt(2 * table.size * math.log(1 / _TAIL))
        beyond = own - allowances[chosen] + scale * math.log(len(scopes) / _TAIL)
        return self.bounded(fit, scopes, allowances + beyond)

    def bounded(self, fit: RoundFit, scopes: Sequence[Scope], misfits: FloatArray) -> Unmeasured:
        """Return these bounds with those on the misfits of some candidates to the model of a round, records."""
        places = [place for place, scope in enumerate(scopes) if len(scope) == 2]
        tables = fit.probabilities([scopes[place] for place in places])
        newest = {
            scopes[place]: (max(float(misfits[place]), 0.0), table)
            for place, table in zip(places, tables, strict=True)
        }
        return replace(self, found=self.found | newest)

    def at_most(self, fit: RoundFit, groups: Sequence[IntArray], error: float) -> list[list[float]]:
        """Return the pairs outside all tables of the last model: two positions and the bound, rounded up.

        Parameters
        ----------
        fit, groups
            The last model, and the groups of its states.
        error
            Standard error of the number of records; 0 where it is public.
        """
        held = set(fit.effects.subsets)
        pairs = [
            pair
            for pair in self.found
            if pair not in held and all(np.array_equal(self.groups[v], groups[v]) for v in pair)
        ]
        found: list[list[float]] = []
        for pair, now in zip(pairs, fit.probabilities(pairs), strict=True):
            misfit, then = self.found[pair]
            bound = (misfit + _ERROR * error) / (2 * fit.total) + 0.5 * float(
                np.abs(now - then).sum()
            )
            if bound < 1:  # 1 bounds the total variation of any table
                found.append([*pair, math.ceil(1e4 * bound) / 1e4])
        return found
