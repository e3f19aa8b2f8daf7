"""Declared models: variables, states, cliques and their tables, all fixed before any data is read."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
