from .formulation import Source
from .latent_counts import LatentCounts
from .results.posterior import Posterior
from .results.synthetic import CombinedEstimate, combine_estimates

__all__ = ["CombinedEstimate", "LatentCounts", "Posterior", "Source", "combine_estimates"]
