"""Markov chains: Gibbs sampling of pairwise models, heat bath and Swendsen-Wang moves on networks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
