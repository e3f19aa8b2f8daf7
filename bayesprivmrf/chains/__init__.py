"""Markov chains: Gibbs sampling of Markov random fields, and heat-bath and Swendsen-Wang moves on Ising networks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
