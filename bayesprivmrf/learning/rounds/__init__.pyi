from .fit import fit_tables
from .junction import GrowingForest
from .tables import Merging, NoisyTable

__all__ = [
    "GrowingForest",
    "Merging",
    "NoisyTable",
    "fit_tables",
]
