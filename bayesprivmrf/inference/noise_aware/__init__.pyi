from .curvature import SampledCurvature
from .estimator import NoiseAwareMAP
from .interval import AnswersPerRecord, FittedPotentials, answers_per_record, standard_errors
from .mode import Search, Settings, noise_aware_mode, schedule_of
from .objective import Expansion, Objective

__all__ = [
    "AnswersPerRecord",
    "Expansion",
    "FittedPotentials",
    "NoiseAwareMAP",
    "Objective",
    "SampledCurvature",
    "Search",
    "Settings",
    "answers_per_record",
    "noise_aware_mode",
    "schedule_of",
    "standard_errors",
]
