"""The posterior of a release: over marginals, potentials and the latent true counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayesprivmrf.inference.posterior.latent_counts import LatentCounts
    from bayesprivmrf.inference.posterior.posterior import Posterior
    from bayesprivmrf.inference.posterior.synthetic import CombinedEstimate, combine_estimates

__all__ = ["CombinedEstimate", "LatentCounts", "Posterior", "combine_estimates"]

_HOMES = {
    "CombinedEstimate": "synthetic",
    "LatentCounts": "latent_counts",
    "Posterior": "posterior",
    "combine_estimates": "synthetic",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"bayesprivmrf.inference.posterior.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
