"""How large a coupling must be to be seen, from public settings and a number of records: for previews.

What `SelectMeasure` measured, as noisy statistics on the network whose cliques are the chosen pairs.
"""

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


def pair_statistics(
    domain: Domain,
    plan: MeasurementPlan,
    measured: Measured,
    total: float,
    total_noise: DiscreteGaussian | None,
    guarantee: PrivacyGuarantee | None,
    provenance: Provenance,
) -> NoisyStatistics:
    """Return the measurements of the chosen pairs and of single variables as a release of their own.

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
