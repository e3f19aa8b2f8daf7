"""Frozen releases: what left the protected side, and everything inference may know of how it was made."""

from bayesprivmrf.release.base import RELEASE_KINDS, Provenance, Released, load_release
from bayesprivmrf.release.measured import NoisyMeasurements
from bayesprivmrf.release.measurement import Measurement
from bayesprivmrf.release.person_rows import PersonRows
from bayesprivmrf.release.statistics import NoisyStatistics

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
