"""Empirical lower bounds on the privacy loss, by statistical tests of mechanisms."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
