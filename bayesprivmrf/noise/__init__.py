"""Noise laws, where noise comes from, and private choices. No data here."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
