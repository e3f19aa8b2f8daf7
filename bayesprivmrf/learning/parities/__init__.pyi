from .fit import MonomialsByParities, default_ridges, fit_parities
from .mode import posterior_mode
from .moments import ParityMoments
from .multiplicative_weights import MultiplicativeWeights
from .sums import noisy_parity_sums, parity_rows, parity_sums, walsh_hadamard

__all__ = [
    "MonomialsByParities",
    "MultiplicativeWeights",
    "ParityMoments",
    "default_ridges",
    "fit_parities",
    "noisy_parity_sums",
    "parity_rows",
    "parity_sums",
    "posterior_mode",
    "walsh_hadamard",
]
