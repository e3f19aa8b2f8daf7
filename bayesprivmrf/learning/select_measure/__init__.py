"""SelectMeasure after its noise is given: choice, measurement, fit and interval."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
