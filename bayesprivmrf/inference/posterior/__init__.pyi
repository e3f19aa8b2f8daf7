from .formulation import Source
from .latent_counts import LatentCounts
from .results.draws import CombinedEstimate, combine_estimates
from .results.posterior import Posterior

__all__ = ["CombinedEstimate", "LatentCounts", "Posterior", "Source", "combine_estimates"]
