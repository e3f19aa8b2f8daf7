"""Private Frank-Wolfe: regressions of each variable on the others within an L1 ball."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
