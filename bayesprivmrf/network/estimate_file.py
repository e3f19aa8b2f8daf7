"""A network's estimate as the plain values and the one array of a release file."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from scipy import sparse

from bayesprivmrf.network.estimate import NetworkEstimate
from bayesprivmrf.network.ising import IsingNetwork
from bayesprivmrf.privacy import PrivacyGuarantee, noise_from_dict
from bayesprivmrf.privacy.score_lattice import PerturbationConstants
from bayesprivmrf.release import Provenance

__all__ = ["array_of", "content_of", "restored"]


def content_of(estimate: NetworkEstimate) -> dict[str, Any]:
    """Return everything but the couplings, the nodes and the stamp, as values that JSON can hold."""
    return {
        "inverse_temperature": estimate.inverse_temperature,
        "bounds": None if estimate.bounds is None else list(estimate.bounds),
        "constants": estimate.constants.as_dict(),
    }


def array_of(estimate: NetworkEstimate) -> np.ndarray:
    """Return the couplings above the diagonal, shape (3, edges): row, column, value."""
    upper = sparse.coo_array(sparse.triu(estimate.network.coupling, k=1))
    return np.stack([upper.coords[0].astype(float), upper.coords[1].astype(float), upper.data])


def restored(
    content: dict[str, Any],
    array: np.ndarray,
    *,
    nodes: tuple[Hashable, ...],
    guarantee: PrivacyGuarantee,
    provenance: Provenance,
) -> NetworkEstimate:
    """Return the estimate that `content_of` and `array_of` described."""
    rows, columns = array[:2].astype(np.int64)
    upper = sparse.coo_array((array[2], (rows, columns)), shape=(len(nodes), len(nodes)))
    constants = content["constants"]
    bounds = content["bounds"]
    return NetworkEstimate(
        inverse_temperature=content["inverse_temperature"],
        network=IsingNetwork.from_matrix(upper + upper.T, nodes),
        bounds=None if bounds is None else (bounds[0], bounds[1]),
        constants=PerturbationConstants(**constants | {"noise": noise_from_dict(constants["noise"])}),
        guarantee=guarantee,
        provenance=provenance,
    )
