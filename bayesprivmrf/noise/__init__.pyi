from .base import NoiseLaw
from .continuous import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoiseDistribution,
    NoNoise,
    Within,
    noise_from_dict,
)
from .source import NoiseSource, SecureNoise, SimulatedNoise, noise_source

__all__ = [
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "Laplace",
    "NoNoise",
    "NoiseDistribution",
    "NoiseLaw",
    "NoiseSource",
    "SecureNoise",
    "SimulatedNoise",
    "Within",
    "noise_from_dict",
    "noise_source",
]
