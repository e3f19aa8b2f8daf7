from .curvature import DenseCurvature, SampledCurvature
from .estimator import NoiseAwareMAP
from .interval import AnswersPerRecord, FittedPotentials, answers_per_record, standard_errors
from .likelihood import NoiseLikelihood
from .mode import Settings, noise_aware_mode
from .objective import (
    LOCATION,
    SPREAD_BETWEEN_EFFECTS,
    SPREAD_BETWEEN_ORDERS,
    SPREAD_IN_COMMON,
    EffectsPrior,
    Expansion,
    Objective,
)

__all__ = [
    "LOCATION",
    "SPREAD_BETWEEN_EFFECTS",
    "SPREAD_BETWEEN_ORDERS",
    "SPREAD_IN_COMMON",
    "AnswersPerRecord",
    "DenseCurvature",
    "EffectsPrior",
    "Expansion",
    "FittedPotentials",
    "NoiseAwareMAP",
    "NoiseLikelihood",
    "Objective",
    "SampledCurvature",
    "Settings",
    "answers_per_record",
    "noise_aware_mode",
    "standard_errors",
]
