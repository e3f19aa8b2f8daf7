"""Peer effects on a network: the Ising model on a public graph, with one outcome per node.

Nothing in this package adds noise, so results computed from outcomes have no privacy guarantee. The exception is a
`NetworkEstimate`. `bayesprivmrf.mechanisms.ObjectivePerturbation` makes it, and everything computed from it keeps its
guarantee.
"""

from typing import Any

import lazy_loader

from bayesprivmrf.errors import removed

# present place of the readers of the data of the papers
_DATA = "benchmarks/papers/network_data.py of the repository"
_removed: dict[str, str] = dict.fromkeys(
    ("NetworkData", "icpsr_22140", "political_blogs", "simulated_blogs"), _DATA
)
_attribute, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    return (removed(__name__, _removed) if name in _removed else _attribute)(name)
