"""The figures of the papers, made anew: cells of simulation that can be resumed, tables, pictures.

Everything here is an evaluation: it simulates outcomes, or reads real ones unprotected, and says so in what it
writes. `registry` names the figures without loading anything, `run.reproduce` makes one.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
