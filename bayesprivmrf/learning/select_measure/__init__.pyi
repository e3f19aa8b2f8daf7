from .couplings import FittedCouplings, details_of, fall_back, fit_merged
from .growing_forest import GrowingForest
from .learned_scales import SingleNoise
from .map import CouplingsByMeasurement
from .measured_tables import MeasuredTable, MergeRule, Merging, NoisyTable
from .measurement import (
    STEPS,
    Measured,
    MeasurementPlan,
    all_pairs,
    pairs_sensitivity,
    public_shares,
    score_range,
    singles_sensitivity,
)
from .pair_counts import PairSums, dependence_scores, pair_sums
from .round_fit import RoundFit, fit_tables
from .targets import (
    NumberOfRecords,
    PairTargets,
    least_statistic,
    noise_share,
    pair_statistics,
    smallest_chosen,
    smallest_measured,
)

__all__ = [
    "STEPS",
    "CouplingsByMeasurement",
    "FittedCouplings",
    "GrowingForest",
    "Measured",
    "MeasuredTable",
    "MeasurementPlan",
    "MergeRule",
    "Merging",
    "NoisyTable",
    "NumberOfRecords",
    "PairSums",
    "PairTargets",
    "RoundFit",
    "SingleNoise",
    "all_pairs",
    "dependence_scores",
    "details_of",
    "fall_back",
    "fit_merged",
    "fit_tables",
    "least_statistic",
    "noise_share",
    "pair_statistics",
    "pair_sums",
    "pairs_sensitivity",
    "public_shares",
    "score_range",
    "singles_sensitivity",
    "smallest_chosen",
    "smallest_measured",
]
