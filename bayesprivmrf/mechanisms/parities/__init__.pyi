from .mechanism import ParityQueries
from .multiplicative_weights import Steps, multiplicative_weights
from .sums import noisy_parity_sums, parity_sums

__all__ = ["ParityQueries", "Steps", "multiplicative_weights", "noisy_parity_sums", "parity_sums"]
