"""Frozen releases: what left the protected side, and everything inference may know of how it was made."""

from bayesprivmrf.release.base import RELEASE_KINDS, Provenance, Released, load_release
from bayesprivmrf.release.statistics import NoisyStatistics

__all__ = ["RELEASE_KINDS", "NoisyStatistics", "Provenance", "Released", "load_release"]
