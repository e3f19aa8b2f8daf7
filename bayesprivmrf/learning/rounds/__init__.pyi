from .fit import RoundFit, fit_tables
from .junction import GrowingForest
from .learned_scales import SingleNoise
from .tables import MeasuredTable, MergeRule, Merging, NoisyTable

__all__ = [
    "GrowingForest",
    "MeasuredTable",
    "MergeRule",
    "Merging",
    "NoisyTable",
    "RoundFit",
    "SingleNoise",
    "fit_tables",
]
