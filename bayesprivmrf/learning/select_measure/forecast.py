"""Smallest couplings that a release detects, for previews, and its measurements as `NoisyStatistics`."""

from __future__ import annotations

import math
from itertools import chain

import numpy as np

from bayesprivmrf.learning.select_measure.measurement import STEPS, Measured, MeasurementPlan
from bayesprivmrf.learning.select_measure.targets import least_statistic
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.tables import FloatArray
from bayesprivmrf.privacy import DiscreteGaussian, PrivacyGuarantee
from bayesprivmrf.queries import parities, table, weighted
from bayesprivmrf.release import Measurement, NoisyStatistics
from bayesprivmrf.release.base import Provenance


def smallest_chosen(plan: MeasurementPlan, total: float) -> float:
    r"""Return the approximate smallest coupling that the private choice finds in N records, nats.

    The m-th largest of P Gumbel numbers of scale b is about :math:`b \log(P/m)`. The score of a coupling w of
    variables with k and k' equally frequent states is about :math:`N w / (4 (1 - 1/k) (1 - 1/k'))` records. If
    numbers of states differ, the result is the median over all candidates.
    """
    if plan.selection_scale is None:
        return 0.0
    first, second = np.array(plan.cardinalities)[plan.candidates.T]
    noise = plan.selection_scale / STEPS * math.log(len(plan.candidates) / plan.count)
    return float(np.median(noise * 4 * (1 - 1 / first) * (1 - 1 / second))) / max(total, 1.0)


def smallest_measured(plan: MeasurementPlan, total: float) -> float:
    r"""Return the approximate smallest coupling that stands out from its measurement noise, nats.

    With noise of standard deviation s, the standard error of a coupling of variables with two equally frequent states
    is :math:`s / N` for measured sums. That of an entry of a coupling's table is
    :math:`s \sqrt{k k' (k - 1) (k' - 1)} / N` for measured tables. The rule of
    `bayesprivmrf.learning.select_measure.targets` says how many standard errors a single pair needs to stand out.
    """
    needed = least_statistic(
        np.zeros(1), np.ones(1, dtype=np.int64), kept=0, measured=plan.count, candidates=len(plan.candidates)
    )
    return float(np.sqrt(needed[0])) * plan.two_way.standard_deviation * _spread(plan) / max(total, 1.0)


def noise_share(plan: MeasurementPlan, total: float) -> float:
    """Return the share of noise, rather than sampling, in the variance of a zero coupling between even states."""
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


def pair_statistics(
    domain: Domain,
    plan: MeasurementPlan,
    measured: Measured,
    total: float,
    total_noise: DiscreteGaussian | None,
    guarantee: PrivacyGuarantee | None,
    provenance: Provenance,
) -> NoisyStatistics:
    """Return the measurements of the chosen pairs and of single variables as `NoisyStatistics`.

    A variable in no chosen pair is a clique by itself, measured by step 1. Tables are those of the pairs and of the
    variables in none; of moments there is everything that was measured.

    Parameters
    ----------
    domain
        Variables and states, as declared.
    plan, measured
        The plan of the measurement, and the noisy numbers.
    total
        Number of records, public or noisy.
    total_noise
        Law of the noise on it, ``None`` where it is public.
    guarantee, provenance
        Those of the whole release.
    """
    names, pairs = domain.variables, measured.pairs.tolist()
    lonely = sorted(set(range(len(names))).difference(*pairs))
    cliques = (*((names[i], names[j]) for i, j in pairs), *((names[v],) for v in lonely))
    model = ModelSpecification(domain=domain, cliques=cliques)
    if plan.form == "tables":
        found = _tables(model, plan, measured, lonely)
    else:
        found = _moments(plan, measured)
        if total_noise is not None:
            records = weighted(names[0], matrix=[[1, 1]], labels=["records"])
            found.append(Measurement(records, np.array([round(total)]), total_noise))
    known = round(total) if total_noise is None else None
    return NoisyStatistics(
        specification=model, measurements=found, guarantee=guarantee, provenance=provenance, total=known
    )


def _tables(
    model: ModelSpecification, plan: MeasurementPlan, measured: Measured, lonely: list[int]
) -> list[Measurement]:
    """Return the table of each clique of the model."""
    one_way = np.split(measured.one_way, np.cumsum(plan.cardinalities)[:-1])
    sizes = [plan.cardinalities[i] * plan.cardinalities[j] for i, j in measured.pairs.tolist()]
    two_way = np.split(measured.two_way, np.cumsum(sizes)[:-1]) if sizes else []
    laws = [plan.two_way] * len(sizes) + [plan.one_way] * len(lonely)
    tables = chain(two_way, (one_way[v] for v in lonely))
    return [
        Measurement(table(*clique), values, law)
        for clique, values, law in zip(model.cliques, tables, laws, strict=True)
    ]


def _moments(plan: MeasurementPlan, measured: Measured) -> list[Measurement]:
    """Return the sums of spins of all variables, and the sums of products of the chosen pairs, if any."""
    singles = Measurement(parities(1, with_empty=False), measured.one_way, plan.one_way)
    if not len(measured.pairs):
        return [singles]
    order = np.lexsort(measured.pairs.T[::-1])
    return [
        singles,
        Measurement(parities(2, with_empty=False, least=2), measured.two_way[order], plan.two_way),
    ]
