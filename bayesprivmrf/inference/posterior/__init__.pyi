from .latent_counts import LatentCounts
from .posterior import Posterior
from .synthetic import CombinedEstimate, combine_estimates

__all__ = ["CombinedEstimate", "LatentCounts", "Posterior", "combine_estimates"]
