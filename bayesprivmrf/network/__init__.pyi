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
    "NetworkEstimate",
    "PerturbedEstimator",
    "PseudoLikelihood",
    "Simulation",
    "quantile_curves",
]
