"""SelectMeasure: marginals chosen and measured in rounds, or by one choice of pairs, under a zCDP budget."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
