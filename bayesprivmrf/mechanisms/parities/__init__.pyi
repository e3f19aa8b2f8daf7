from .mechanism import ParityQueries
from .multiplicative_weights import multiplicative_weights
from .sums import noisy_parity_sums, parity_sums

__all__ = ["ParityQueries", "multiplicative_weights", "noisy_parity_sums", "parity_sums"]
