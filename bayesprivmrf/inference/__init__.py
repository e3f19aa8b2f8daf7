"""Estimators: they take releases only, and so cannot weaken what was promised."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
