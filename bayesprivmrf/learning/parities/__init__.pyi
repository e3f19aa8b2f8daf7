from .fit import MonomialsByParities, default_ridges, fit_parities
from .moments import Spectrum
from .multiplicative_weights import MultiplicativeWeights
from .sums import noisy_parity_sums, parity_rows, parity_sums, walsh_hadamard

__all__ = [
    "MonomialsByParities",
    "MultiplicativeWeights",
    "Spectrum",
    "default_ridges",
    "fit_parities",
    "noisy_parity_sums",
    "parity_rows",
    "parity_sums",
    "walsh_hadamard",
]
