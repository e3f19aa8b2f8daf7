from .datasets import NetworkData, icpsr_22140, political_blogs, simulated_blogs
from .estimate import NetworkEstimate
from .estimate_law import EstimateLaw
from .intervals import BetaInterval
from .ising import IsingNetwork
from .pseudo_likelihood import PseudoLikelihood

__all__ = [
    "BetaInterval",
    "EstimateLaw",
    "IsingNetwork",
    "NetworkData",
    "NetworkEstimate",
    "PseudoLikelihood",
    "icpsr_22140",
    "political_blogs",
    "simulated_blogs",
]
