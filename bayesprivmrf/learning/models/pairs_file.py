"""Learnt Ising and pairwise models as the plain values and the one array of a release file (format version 3).

The array is the fields, then row, column and value of every coupling above the diagonal that is not zero, then the
noisy tables that the release may hold. Of the map everything is written that intervals need; a map without `as_dict`
is left out.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from bayesprivmrf.learning.models.base import LearningMap
from bayesprivmrf.learning.models.ising import LearnedIsing
from bayesprivmrf.learning.models.pairwise import LearnedPairwise
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import PrivacyGuarantee, noise_from_dict
from bayesprivmrf.release import NoisyStatistics, Provenance

__all__ = ["array_of", "content_of", "restored"]

type Learned = LearnedIsing | LearnedPairwise

_MAPS = {
    "couplings-by-measurement": ("bayesprivmrf.learning.select_measure.map", "CouplingsByMeasurement"),
    "softmax-regressions": ("bayesprivmrf.learning.frank_wolfe.pairwise", "PairwiseBySoftmax"),
    "pair-regressions": ("bayesprivmrf.learning.frank_wolfe.pairwise", "PairwiseByPairs"),
    "paper-regressions": ("bayesprivmrf.learning.frank_wolfe.paper", "PaperIsing"),
    "paper-pair-regressions": ("bayesprivmrf.learning.frank_wolfe.paper", "PaperPairs"),
}


def content_of(release: Learned) -> dict[str, Any]:
    """Return everything but the numbers, the variables and the stamp, as values that JSON can hold."""
    as_dict = getattr(release.map, "as_dict", None)
    return {
        "total": release.total,
        "total_noise": None if release.total_noise is None else release.total_noise.as_dict(),
        "details": {k: v.item() if isinstance(v, np.generic) else v for k, v in release.details.items()},
        "couplings": int(np.count_nonzero(np.triu(release.coupling_matrix, k=1))),
        "map": None if as_dict is None else as_dict(),
        "statistics": None if release.statistics is None else _statistics(release.statistics),
    }


def array_of(release: Learned) -> np.ndarray:
    """Return fields, couplings and tables in one row."""
    rows, columns = np.nonzero(np.triu(release.coupling_matrix, k=1))
    values = release.coupling_matrix[rows, columns]
    tables = np.zeros(0) if release.statistics is None else release.statistics.tables.flat
    return np.concatenate([release.field_vector, rows, columns, values, tables])


def restored(
    content: dict[str, Any],
    array: np.ndarray,
    *,
    domain: Domain,
    guarantee: PrivacyGuarantee,
    provenance: Provenance,
) -> Learned:
    """Return the release that `content_of` and `array_of` described."""
    home = LearnedIsing if content["kind"] == LearnedIsing.kind else LearnedPairwise
    width = len(domain.variables) if home is LearnedIsing else sum(domain.cardinalities)
    count = content["couplings"]
    fields, rows, columns, values, tables = np.split(array, width + np.arange(4) * count)
    matrix = np.zeros((width, width))
    place = rows.astype(np.int64), columns.astype(np.int64)
    matrix[place] = values
    common: dict[str, Any] = {
        "domain": domain,
        "guarantee": guarantee,
        "provenance": provenance,
        "total": content["total"],
        "total_noise": None if content["total_noise"] is None else noise_from_dict(content["total_noise"]),
        "details": content["details"],
        "coupling_matrix": matrix + matrix.T,
        "field_vector": fields,
        "map": _map(content["map"]),
    }
    if content["statistics"] is not None:
        common["statistics"] = _restored_statistics(
            content["statistics"], tables, domain, guarantee, provenance
        )
    return home(**common)


def _map(content: dict[str, Any] | None) -> LearningMap | None:
    """Return the map of that kind; ``None`` for one that this version does not know."""
    if content is None or content["kind"] not in _MAPS:
        return None
    module, name = _MAPS[content["kind"]]
    return getattr(import_module(module), name).from_dict(content)


def _statistics(statistics: NoisyStatistics) -> dict[str, Any]:
    return {
        "cliques": [list(scope) for scope in statistics.specification.scopes],
        "noise": [law.as_dict() for law in statistics.noise],
        "total": statistics.total,
    }


def _restored_statistics(
    content: dict[str, Any],
    flat: np.ndarray,
    domain: Domain,
    guarantee: PrivacyGuarantee,
    provenance: Provenance,
) -> NoisyStatistics:
    names = domain.variables
    cliques = tuple(tuple(names[v] for v in scope) for scope in content["cliques"])
    model = ModelSpecification(domain=domain, cliques=cliques)
    return NoisyStatistics(
        specification=model,
        tables=model.tables(flat),
        noise=tuple(noise_from_dict(law) for law in content["noise"]),
        guarantee=guarantee,
        provenance=provenance,
        total=content["total"],
    )
