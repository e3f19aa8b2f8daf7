from .fit import NoisyTable, fit_tables
from .junction import GrowingForest
from .merging import Merging

__all__ = [
    "GrowingForest",
    "Merging",
    "NoisyTable",
    "fit_tables",
]
