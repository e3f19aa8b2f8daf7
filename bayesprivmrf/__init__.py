"""Markov random fields from sensitive data: declare, release once, infer with honest uncertainty.

Only the public side is here. The code that sees data is reached by writing
``from bayesprivmrf.mechanisms import ...``.
"""

import sys

import lazy_loader

# at once, not when first used: importing a submodule would put the module in place of its function of the same name
from bayesprivmrf.citation import citation as citation
from bayesprivmrf.files import ensure_cache_folder, ensure_compiler
from bayesprivmrf.module_pickling import pickle_by_name

ensure_cache_folder()
ensure_compiler()

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
# a function of a script may use `bpm`, imported at its head
pickle_by_name(sys.modules[__name__])

__version__ = "0.2.0"
