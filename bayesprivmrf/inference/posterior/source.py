"""Source of a posterior: estimator and releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bayesprivmrf.inference.evidence import Population
from bayesprivmrf.release.base import Released


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """Estimator and releases of a posterior, as they were given to `fit`; a file of the posterior stores them.

    The estimator is a `LatentCounts`, of which only the settings are read here.
    """

    estimator: Any
    releases: tuple[Released, ...]
    population: Population
