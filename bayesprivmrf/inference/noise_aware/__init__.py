"""The noise-aware mode: one estimate that knows the law of the noise and learns how much to shrink."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
