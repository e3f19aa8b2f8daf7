from .fit import MonomialsByParities, default_ridges, fit_parities, multiplicative_weights
from .mode import (
    noisy_parity_sums,
    parity_effects,
    parity_rows,
    parity_sums,
    posterior_mode,
    walsh_hadamard,
)

__all__ = [
    "MonomialsByParities",
    "default_ridges",
    "fit_parities",
    "multiplicative_weights",
    "noisy_parity_sums",
    "parity_effects",
    "parity_rows",
    "parity_sums",
    "posterior_mode",
    "walsh_hadamard",
]
