"""What is promised: guarantees and noise laws. No data and no sampling here."""

from bayesprivmrf.noise.laws import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoiseLaw,
    NoNoise,
    noise_from_dict,
)
from bayesprivmrf.privacy.guarantee import Adjacency, PrivacyGuarantee, compose

__all__ = [
    "Adjacency",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "Laplace",
    "NoNoise",
    "NoiseLaw",
    "PrivacyGuarantee",
    "compose",
    "noise_from_dict",
]
