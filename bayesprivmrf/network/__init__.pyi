from .datasets import NetworkData, icpsr_22140, political_blogs, simulated_blogs
from .estimate import NetworkEstimate
from .estimate_law import EstimateLaw
from .intervals import BetaInterval
from .ising import IsingNetwork, Mixing, Simulation
from .pseudo_likelihood import PseudoLikelihood

__all__ = [
    "BetaInterval",
    "EstimateLaw",
    "IsingNetwork",
    "Mixing",
    "NetworkData",
    "NetworkEstimate",
    "PseudoLikelihood",
    "Simulation",
    "icpsr_22140",
    "political_blogs",
    "simulated_blogs",
]
