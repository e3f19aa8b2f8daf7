from .datasets import NetworkData, icpsr_22140, political_blogs, simulated_blogs
from .estimate import EstimateStatus, NetworkEstimate
from .estimate_law import EstimateLaw
from .intervals import quantile_curves
from .ising import ExternalField, IsingNetwork, Mixing, Simulation
from .perturbed_score import PerturbedEstimator
from .pseudo_likelihood import PseudoLikelihood

__all__ = [
    "EstimateLaw",
    "EstimateStatus",
    "ExternalField",
    "IsingNetwork",
    "Mixing",
    "NetworkData",
    "NetworkEstimate",
    "PerturbedEstimator",
    "PseudoLikelihood",
    "Simulation",
    "icpsr_22140",
    "political_blogs",
    "quantile_curves",
    "simulated_blogs",
]
