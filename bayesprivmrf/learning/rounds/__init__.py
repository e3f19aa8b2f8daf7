"""Adaptive rounds of `SelectMeasure`: merged states, candidate tables, and the fit, from noisy answers alone."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
