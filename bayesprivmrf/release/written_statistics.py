"""Conversion between noisy statistics and the content of their files.

The content is the model, the noise distributions, and the queries unless they are the table of each clique.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import ModelError
from bayesprivmrf.privacy import noise_from_dict
from bayesprivmrf.release.base import Provenance
from bayesprivmrf.release.codec import (
    Fields,
    domain_content,
    model_content,
    numbers,
    query_content,
    restored_domain,
    restored_model,
    restored_query,
)
from bayesprivmrf.release.measurement import Measurement
from bayesprivmrf.release.person_rows import PersonRows

# Kind of the files that hold answers to queries. Files contain it.
MEASUREMENTS = "noisy-measurements"
# First version of the file format with answers to queries
MEASUREMENTS_VERSION = 4


def statistics_content(release: Any) -> dict[str, Any]:
    """Return a `NoisyStatistics` without its numbers, guarantee and provenance, as JSON values."""
    model = release.specification
    content = {
        "kind": release.kind,  # only this kind has it first, with the guarantee before the total
        **domain_content(model.domain),
        **model_content(model),
        "cliques_declared": model.cliques_declared,
        "noise": [noise.as_dict() for noise in release.noise],
        "guarantee": None,
        "total": release.total,
        **PersonRows.content(release.person_rows, release.provenance.settings),
    }
    if not release.has_tables:
        content["queries"] = [query_content(query, model.domain) for query in release.queries]
    return content


def restored_fields(content: Fields, array: np.ndarray, provenance: Provenance) -> dict[str, Any]:
    """Return the arguments of the release that `statistics_content` described."""
    domain = restored_domain(content)
    model = restored_model(content, domain, cliques_declared=content.truth("cliques_declared"))
    noise = [noise_from_dict(written) for written in content.items("noise")]
    found = {
        "specification": model,
        "total": content["total"],
        "person_rows": PersonRows.restored(content, provenance.settings),
    }
    # the file of a learned model holds measurements without their kind
    has_queries = content["kind"] == MEASUREMENTS if "kind" in content else "queries" in content
    if not has_queries:
        return found | {"tables": model.tables(numbers(array, (model.size,))), "noise": noise}
    queries = [restored_query(Fields(written), domain) for written in content.items("queries")]
    must = f"hold one distribution for each of {len(queries)} queries"
    require(len(noise) == len(queries), "noise", must, len(noise), error=ModelError)
    bound = [query.bind(model) for query in queries]
    offsets = np.cumsum([0, *map(len, bound)])
    parts = np.split(numbers(array, (int(offsets[-1]),)), offsets[1:-1])
    return found | {"measurements": list(map(Measurement, queries, parts, noise)), "bound": bound}
