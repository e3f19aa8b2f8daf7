from .latent_counts import LatentCounts
from .posterior import Posterior
from .source import Source
from .synthetic import CombinedEstimate, combine_estimates

__all__ = ["CombinedEstimate", "LatentCounts", "Posterior", "Source", "combine_estimates"]
