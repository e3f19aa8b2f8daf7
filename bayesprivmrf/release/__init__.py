"""Frozen releases: what left the protected side, and everything inference may know of how it was made."""

from bayesprivmrf.release.base import RELEASE_KINDS, Provenance, Released, load_release
from bayesprivmrf.release.measurement import Measurement
from bayesprivmrf.release.person_rows import PersonRows
from bayesprivmrf.release.statistics import NoisyStatistics

NoisyMeasurements = NoisyStatistics
"""Name of releases of answers to queries, which are of the same class now."""

__all__ = [
    "RELEASE_KINDS",
    "Measurement",
    "NoisyMeasurements",
    "NoisyStatistics",
    "PersonRows",
    "Provenance",
    "Released",
    "load_release",
]
