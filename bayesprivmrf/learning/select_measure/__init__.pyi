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
    dependence_scores,
    pair_sums,
    pairs_sensitivity,
    public_shares,
    score_range,
    select_and_measure,
    singles_sensitivity,
)
from .round_fit import RoundFit, fit_tables
from .targets import (
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
    "select_and_measure",
    "singles_sensitivity",
    "smallest_chosen",
    "smallest_measured",
]
