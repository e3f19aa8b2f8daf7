"""Source of a posterior: estimator and releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bayesprivmrf.inference.evidence import Population
from bayesprivmrf.release.base import Released

if TYPE_CHECKING:
    from bayesprivmrf.inference.posterior.latent_counts import LatentCounts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """Estimator and releases of a posterior, as they were given to `fit`; a file of the posterior stores them."""

    estimator: LatentCounts
    releases: tuple[Released, ...]
    population: Population
