"""Frozen releases: noisy statistics with their noise distribution, privacy guarantee and provenance."""

from bayesprivmrf.release.base import RELEASE_KINDS, Provenance, Released, load_release
from bayesprivmrf.release.codec import PersonRows
from bayesprivmrf.release.measurement import Measurement
from bayesprivmrf.release.statistics import NoisyStatistics

NoisyMeasurements = NoisyStatistics
"""Former name of the class of releases of answers to queries, which is the same class now."""

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
