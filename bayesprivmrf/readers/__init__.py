"""Readers of noisy numbers that somebody else released; they read no sensitive data.

Each reader returns a release that the estimators can fit. This library cannot vouch for a privacy guarantee of noise
that somebody else added. The release has a guarantee only if you give the one that the publisher stated.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
