from .couplings import FittedCouplings, details_of, fall_back, fit_merged
from .map import CouplingsByMeasurement
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
    "Measured",
    "MeasurementPlan",
    "PairTargets",
    "all_pairs",
    "dependence_scores",
    "details_of",
    "fall_back",
    "fit_merged",
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
