"""How many records learning needs: lower bounds and their hard instances, the papers' theorems, a fitted law."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
