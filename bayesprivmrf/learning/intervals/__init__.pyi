from .calibrated import replicates_of

__all__ = [
    "replicates_of",
]
