"""What a release says against a fit, and what the fit's answers rest on that no release can say."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
