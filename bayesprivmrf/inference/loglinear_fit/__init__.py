"""The mode of a log-linear model from noisy means of its effects under a normal prior."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
