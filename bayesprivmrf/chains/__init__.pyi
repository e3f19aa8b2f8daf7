from .gibbs import Chains, gibbs_draws, mixing_of
from .heat_bath import ChainSchedule, Mixing, Moves, simulate

__all__ = ["ChainSchedule", "Chains", "Mixing", "Moves", "gibbs_draws", "mixing_of", "simulate"]
