"""Empirical lower bounds on the privacy loss: what a statistical test can prove against a mechanism."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
