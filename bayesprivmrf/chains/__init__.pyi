from .gibbs import Chains, gibbs_draws, mixing_of
from .heat_bath import Mixing, Moves, simulate

__all__ = ["Chains", "Mixing", "Moves", "gibbs_draws", "mixing_of", "simulate"]
