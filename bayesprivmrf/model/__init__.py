"""Public knowledge, before any data: variables, states, cliques and the tables they index."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
