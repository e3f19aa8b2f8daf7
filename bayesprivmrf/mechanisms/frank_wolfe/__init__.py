"""Private Frank-Wolfe: couplings of all variables, or one logistic regression, under a zCDP budget."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
