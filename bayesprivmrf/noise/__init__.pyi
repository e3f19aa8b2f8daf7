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
from .published import CellKey, Coarsened, RandomRounding, Rounded, Suppressed
from .source import NoiseSource, SecureNoise, SimulatedNoise, noise_source

__all__ = [
    "CellKey",
    "Coarsened",
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
    "RandomRounding",
    "Rounded",
    "SecureNoise",
    "SimulatedNoise",
    "SummedNoise",
    "Suppressed",
    "Within",
    "noise_from_dict",
    "noise_source",
]
