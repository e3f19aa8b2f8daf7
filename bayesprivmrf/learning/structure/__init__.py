"""The graph under approximate privacy: scores, their spanning tree, and how far it is from another."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
