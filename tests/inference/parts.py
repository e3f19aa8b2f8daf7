"""Inner names of inference that several tests use, in one place: a move changes this file alone."""

from bayesprivmrf.inference.mean_counts import MeanCounts, NoiseLikelihood

__all__ = ["MeanCounts", "NoiseLikelihood"]
