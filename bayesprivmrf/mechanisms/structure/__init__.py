"""StableStructure: a graph that no few records could change, and the scores of pairs that decide it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
