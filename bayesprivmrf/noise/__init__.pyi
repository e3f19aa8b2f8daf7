from .base import NoiseLaw
from .continuous import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoiseDistribution,
    NoNoise,
    SummedNoise,
    Within,
    noise_from_dict,
)
from .likelihood import CountTable, Likelihood
from .source import NoiseSource, SecureNoise, SimulatedNoise, noise_source

__all__ = [
    "CountTable",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "Laplace",
    "Likelihood",
    "NoNoise",
    "NoiseDistribution",
    "NoiseLaw",
    "NoiseSource",
    "SecureNoise",
    "SimulatedNoise",
    "SummedNoise",
    "Within",
    "noise_from_dict",
    "noise_source",
]
