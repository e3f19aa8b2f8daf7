"""What `SelectMeasure` measured, as noisy statistics on the network whose cliques are the chosen pairs."""

from __future__ import annotations

from itertools import chain

import numpy as np

from bayesprivmrf.learning.select_measure.measurement import Measured, MeasurementPlan
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import DiscreteGaussian, PrivacyGuarantee
from bayesprivmrf.queries import parities, table, weighted
from bayesprivmrf.release import Measurement, NoisyStatistics
from bayesprivmrf.release.base import Provenance


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
