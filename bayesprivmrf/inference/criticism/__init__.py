"""Model criticism: tests of a fit against its release, and the assumptions that no release can test."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
