from .fit import MonomialsByParities, default_ridges, fit_parities
from .mode import posterior_mode
from .moments import Elimination, Spectrum, parity_moments
from .multiplicative_weights import MultiplicativeWeights
from .sums import noisy_parity_sums, parity_rows, parity_sums, walsh_hadamard

__all__ = [
    "Elimination",
    "MonomialsByParities",
    "MultiplicativeWeights",
    "Spectrum",
    "default_ridges",
    "fit_parities",
    "noisy_parity_sums",
    "parity_moments",
    "parity_rows",
    "parity_sums",
    "posterior_mode",
    "walsh_hadamard",
]
