from .couplings import FittedCouplings, PairTargets, details_of, least_statistic
from .fit import Fixed, closed_form, fit_means, is_narrow
from .forecast import noise_share, smallest_chosen, smallest_measured
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
from .statistics import pair_statistics

__all__ = [
    "STEPS",
    "CouplingsByMeasurement",
    "FittedCouplings",
    "Fixed",
    "Measured",
    "MeasurementPlan",
    "PairTargets",
    "all_pairs",
    "closed_form",
    "dependence_scores",
    "details_of",
    "fit_means",
    "is_narrow",
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
