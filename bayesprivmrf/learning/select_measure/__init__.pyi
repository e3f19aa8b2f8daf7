from .fit import is_narrow
from .map import (
    CouplingsByMeasurement,
    FittedCouplings,
    details_of,
    noise_share,
    smallest_chosen,
    smallest_measured,
)
from .measurement import (
    STEPS,
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
from .statistics import pair_statistics
from .targets import PairTargets

__all__ = [
    "STEPS",
    "CouplingsByMeasurement",
    "FittedCouplings",
    "MeasurementPlan",
    "PairTargets",
    "all_pairs",
    "dependence_scores",
    "details_of",
    "is_narrow",
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
