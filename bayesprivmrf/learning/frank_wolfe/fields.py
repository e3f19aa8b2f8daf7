r"""Fields refitted to measured single variables, given the couplings: what private Frank-Wolfe does not learn well.

A regression's ball is spent on couplings and field alike, and where states are rare a field is large and its
direction is nearly that of every feature. So a part of the budget measures each variable by itself, once, and
the fields are those of greatest likelihood for the noisy means t of single variables under the learned couplings W:

.. math:: \hat\beta = \arg\min_\beta \; \log Z(W, \beta) - t^\top \beta + \frac{1}{2 N \tau^2} \|\beta\|^2,

:math:`\beta` being the fields' coordinates (`bayesprivmrf.model.effects`) and :math:`\tau` 2 nats. The problem is
convex, and the model's margins are the measured ones but for about a record. A share of a state that noise puts below
half a record's is taken as that. Fields and couplings together no longer keep within the width. Means are exact
where the model is narrow enough (`is_narrow`), else from Gibbs sampling. All of it is post-processing of what was
released.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesprivmrf.inference.effects_fit.fit import PRIOR_DEVIATION, fit_means
from bayesprivmrf.inference.effects_fit.sampled import Fixed
from bayesprivmrf.inference.solution import Status
from bayesprivmrf.learning.select_measure.couplings import PairTargets
from bayesprivmrf.learning.select_measure.measurement import Measured, MeasurementPlan
from bayesprivmrf.model.effects import Effects, contrasts
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import DiscreteGaussian

# of the draws that a fit of couplings would make: errors of draws are half of those of sampling
_DRAWN = 0.25
_TAIL = 1e-3  # chance that all margins agree and one seems not to


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFields:
    """Fields of all variables' states, and how the model's margins compare with the measured ones.

    Parameters
    ----------
    fields
        States of all variables after another, each variable's adding to 0, nats: shape (K,).
    agrees
        Whether the model's margins are the measured ones but for noise and sampling.
    details
        Public numbers: how means were found, and the largest gap of a margin, a probability.
    """

    fields: FloatArray
    agrees: bool
    details: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrankWolfeFit:
    """The result of a map by Frank-Wolfe on records.

    Parameters
    ----------
    parts
        Parameters of the release, in its class's order.
    measured
        The noisy sums or tables of single variables; ``None`` where none were bought.
    fields
        How the fields were refitted to them; ``None`` as well.
    """

    parts: tuple[FloatArray, ...]
    measured: Measured | None = None
    fields: FittedFields | None = None


def singles_plan(cardinalities: tuple[int, ...], law: DiscreteGaussian) -> MeasurementPlan:
    """Return the plan that measures every variable by itself and no pair; two states everywhere have one sum each."""
    return MeasurementPlan(
        cardinalities=cardinalities,
        form="moments" if set(cardinalities) == {2} else "tables",
        candidates=np.zeros((0, 2), dtype=np.int64),
        count=0,
        one_way=law,
        two_way=law,
        selection_scale=None,
    )


def fit_fields(
    measured: Measured,
    plan: MeasurementPlan,
    total: float,
    couplings: Fixed,
    begin: FloatArray | None = None,
) -> FittedFields:
    """Return the fields that give the model its measured margins.

    Parameters
    ----------
    measured, plan
        The noisy sums or tables, and what is public about them.
    total
        Number of records, public or noisy, at least 1.
    couplings
        Cliques and potentials of all that is no field.
    begin
        Fields to begin at, shape (K,); by default those of independent variables.
    """
    cards = plan.cardinalities
    targets = PairTargets.of(measured, plan, total, 0.0)
    effects = Effects.of(cards, [(v,) for v in range(len(cards))])
    free = [v for (v,) in effects.subsets]
    if not free:
        return FittedFields(fields=np.zeros(sum(cards)), agrees=True, details={})
    shares = targets.shares()
    wanted = np.concatenate([contrasts(cards[v]).T @ shares[v] for v in free])
    ridges = np.full(effects.size, 1 / (targets.total * PRIOR_DEVIATION**2))
    near = np.concatenate([np.log(share) for share in shares]) if begin is None else begin
    start = effects.coordinates(near)
    measured_means = np.concatenate([targets.single[v] for v in free])
    spread = np.concatenate([targets.single_variances()[v] for v in free])
    noise = np.concatenate([np.full(cards[v] - 1, targets.single_noise[v]) for v in free])
    worth = _DRAWN * float(np.median(1 / (noise / spread + 1 / targets.total)))
    seed = zlib.crc32(measured.one_way.tobytes())  # so that the same release gives the same fields
    fit = fit_means(effects, wanted, ridges, worth, seed, start=start, fixed=couplings)
    assert fit.means is not None
    gap = fit.means - measured_means
    largest = float(np.sqrt(2 * np.log(2 * effects.size / _TAIL)))  # no normal number of so many is beyond
    is_close = np.abs(gap) <= largest * np.sqrt(noise + spread / targets.total)
    agrees = fit.status != Status.NOT_TRUSTED and bool(is_close.all())
    tables = effects.tables(fit.coordinates)
    fields = [np.zeros(k) for k in cards]
    for v, table in zip(free, tables, strict=True):
        fields[v] = table
    largest_gap = max(float(np.abs(table).max()) for table in effects.tables(gap))
    details = {"inference": fit.inference, "margin_gap": largest_gap}
    return FittedFields(fields=np.concatenate(fields), agrees=agrees, details=details)
