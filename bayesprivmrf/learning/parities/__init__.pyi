from .fit import MonomialsByParities, default_ridges, fit_parities
from .mode import parity_effects, parity_rows, posterior_mode, walsh_hadamard

__all__ = [
    "MonomialsByParities",
    "default_ridges",
    "fit_parities",
    "parity_effects",
    "parity_rows",
    "posterior_mode",
    "walsh_hadamard",
]
