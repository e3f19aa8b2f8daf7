"""Privacy guarantees and the calibrations of noise that keep them; no data and no sampling."""

from bayesprivmrf.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoiseDistribution,
    NoiseLaw,
    NoNoise,
    Within,
    noise_from_dict,
)
from bayesprivmrf.privacy.external_field import ExternalField
from bayesprivmrf.privacy.guarantee import Adjacency, PrivacyGuarantee, compose
from bayesprivmrf.privacy.largest_sum import parity_l2_sensitivity, squared_l2_sensitivity
from bayesprivmrf.privacy.objective_perturbation import CouplingNorms
from bayesprivmrf.privacy.score_lattice import PerturbationConstants, perturbation_constants
from bayesprivmrf.privacy.selection import (
    Exposure,
    selection_rho,
    selection_scale,
    step_rho,
    step_scale,
)
from bayesprivmrf.privacy.subsampled_gaussian import (
    CalibratedNoise,
    Schedule,
    calibrated_noise,
    promised_epsilon,
    require_fine_lattice,
    spent_epsilon,
)

__all__ = [
    "Adjacency",
    "CalibratedNoise",
    "CouplingNorms",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exposure",
    "ExternalField",
    "Gaussian",
    "Laplace",
    "NoNoise",
    "NoiseDistribution",
    "NoiseLaw",
    "PerturbationConstants",
    "PrivacyGuarantee",
    "Schedule",
    "Within",
    "calibrated_noise",
    "compose",
    "noise_from_dict",
    "parity_l2_sensitivity",
    "perturbation_constants",
    "promised_epsilon",
    "require_fine_lattice",
    "selection_rho",
    "selection_scale",
    "spent_epsilon",
    "squared_l2_sensitivity",
    "step_rho",
    "step_scale",
]
