from .fit import MonomialsByParities, MultiplicativeWeights, default_ridges, fit_parities
from .mode import noisy_parity_sums, parity_effects, parity_rows, parity_sums, posterior_mode, walsh_hadamard

__all__ = [
    "MonomialsByParities",
    "MultiplicativeWeights",
    "default_ridges",
    "fit_parities",
    "noisy_parity_sums",
    "parity_effects",
    "parity_rows",
    "parity_sums",
    "posterior_mode",
    "walsh_hadamard",
]
