from .fit import fit_tables
from .junction import GrowingForest
from .single_noise import SingleNoise
from .tables import MeasuredTable, MergeRule, Merging, NoisyTable

__all__ = [
    "GrowingForest",
    "MeasuredTable",
    "MergeRule",
    "Merging",
    "NoisyTable",
    "SingleNoise",
    "fit_tables",
]
