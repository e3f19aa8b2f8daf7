from .replicates import replicates_of

__all__ = [
    "replicates_of",
]
