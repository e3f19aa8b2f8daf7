"""One network, one draw of its outcomes: the Ising model on a public graph.

Nothing here protects anybody: what is computed from outcomes carries no guarantee. A `NetworkEstimate` is the
exception: `bayesprivmrf.mechanisms.ObjectivePerturbation` makes it, and what follows from it keeps its guarantee.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from bayesprivmrf.network.datasets import NetworkData, icpsr_22140, political_blogs, simulated_blogs
from bayesprivmrf.network.ising import IsingNetwork
from bayesprivmrf.network.pseudo_likelihood import PseudoLikelihood

if TYPE_CHECKING:
    from bayesprivmrf.network.estimate import NetworkEstimate
    from bayesprivmrf.network.estimate_law import EstimateLaw
    from bayesprivmrf.network.intervals import BetaInterval

__all__ = [
    "BetaInterval",
    "EstimateLaw",
    "IsingNetwork",
    "NetworkData",
    "NetworkEstimate",
    "PseudoLikelihood",
    "icpsr_22140",
    "political_blogs",
    "simulated_blogs",
]

# Loaded when first used.
_HOMES = {"BetaInterval": "intervals", "EstimateLaw": "estimate_law", "NetworkEstimate": "estimate"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"bayesprivmrf.network.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
