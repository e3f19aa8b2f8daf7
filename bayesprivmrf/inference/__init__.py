"""Estimators: they take releases only, and so cannot weaken what was promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bayesprivmrf.inference.cgm import CGM
    from bayesprivmrf.inference.naive_mle import NaiveMLE
    from bayesprivmrf.inference.noise_aware_map import NoiseAwareMAP
    from bayesprivmrf.inference.posterior.latent_counts import LatentCounts
    from bayesprivmrf.inference.posterior.posterior import Posterior
    from bayesprivmrf.inference.posterior.synthetic import combine_estimates
    from bayesprivmrf.inference.solution import Solution, Status, uniform_solution

__all__ = [
    "CGM",
    "LatentCounts",
    "NaiveMLE",
    "NoiseAwareMAP",
    "Posterior",
    "Solution",
    "Status",
    "combine_estimates",
    "uniform_solution",
]

_HOMES = {
    "CGM": "cgm",
    "LatentCounts": "posterior.latent_counts",
    "NaiveMLE": "naive_mle",
    "NoiseAwareMAP": "noise_aware_map",
    "Posterior": "posterior.posterior",
    "Solution": "solution",
    "Status": "solution",
    "combine_estimates": "posterior.synthetic",
    "uniform_solution": "solution",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"bayesprivmrf.inference.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
