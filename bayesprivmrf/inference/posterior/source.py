"""What a posterior was made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bayesprivmrf.inference.evidence import Population
from bayesprivmrf.release.base import Released

if TYPE_CHECKING:
    from bayesprivmrf.inference.posterior.latent_counts import LatentCounts

__all__ = ["Source"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """The estimator, the releases as they were given, and whose they are: what a file needs to say it all again."""

    estimator: LatentCounts
    releases: tuple[Released, ...]
    population: Population
