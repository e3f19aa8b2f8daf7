"""Frozen releases: what left the protected side, and everything inference may know of how it was made."""

from bayesprivmrf.release.base import Provenance, Released, load_release
from bayesprivmrf.release.statistics import NoisyStatistics

__all__ = ["NoisyStatistics", "Provenance", "Released", "load_release"]
