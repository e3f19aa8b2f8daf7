from .gibbs import Chains, gibbs_draws, mixing_of
from .heat_bath import Mixing, Moves, Schedule, simulate

__all__ = ["Chains", "Mixing", "Moves", "Schedule", "gibbs_draws", "mixing_of", "simulate"]
