"""Markov random fields from sensitive data: declare, release once, infer with honest uncertainty.

Only the public side is here. The code that sees data is reached by writing
``from bayesprivmrf.mechanisms import ...``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# at once, not when first used: importing a submodule would put the module in place of its function of the same name
from bayesprivmrf.citation import citation

if TYPE_CHECKING:
    from bayesprivmrf import network
    from bayesprivmrf.evaluation import compare, holdout_log_likelihood, kl_divergence
    from bayesprivmrf.inference import (
        CGM,
        LatentCounts,
        NaiveMLE,
        NoiseAwareMAP,
        Posterior,
        Solution,
        Status,
        combine_estimates,
        uniform_solution,
    )
    from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification, declare
    from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee, compose
    from bayesprivmrf.release import NoisyStatistics, load_release

__all__ = [
    "CGM",
    "Adjacency",
    "CliqueTables",
    "Domain",
    "LatentCounts",
    "ModelSpecification",
    "NaiveMLE",
    "NoiseAwareMAP",
    "NoisyStatistics",
    "Posterior",
    "PrivacyGuarantee",
    "Solution",
    "Status",
    "citation",
    "combine_estimates",
    "compare",
    "compose",
    "declare",
    "holdout_log_likelihood",
    "kl_divergence",
    "load_release",
    "network",
    "uniform_solution",
]

__version__ = "0.1.0"

# Loaded when first used: importing the package takes a fraction of a second.
_HOMES = {
    "evaluation": ("compare", "holdout_log_likelihood", "kl_divergence"),
    "inference": (
        "CGM",
        "LatentCounts",
        "NaiveMLE",
        "NoiseAwareMAP",
        "Posterior",
        "Solution",
        "Status",
        "combine_estimates",
        "uniform_solution",
    ),
    "model": ("CliqueTables", "Domain", "ModelSpecification", "declare"),
    "privacy": ("Adjacency", "PrivacyGuarantee", "compose"),
    "release": ("NoisyStatistics", "load_release"),
}
_PACKAGES = ("network",)
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _HOME_OF:
        return getattr(import_module(f"bayesprivmrf.{_HOME_OF[name]}"), name)
    if name in _PACKAGES:
        return import_module(f"bayesprivmrf.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
