"""Noisy numbers that somebody else released, read into a release that the estimators take. No data here.

This library cannot vouch for a guarantee about noise that somebody else added: it did not see the data, and
it did not draw the noise. A release has one where it is given, as its publisher stated it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
