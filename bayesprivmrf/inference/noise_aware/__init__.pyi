from .curvature import SampledCurvature
from .estimator import NoiseAwareMAP
from .interval import standard_errors
from .mode import Search, Settings, noise_aware_mode, schedule_of
from .objective import Expansion, Objective

__all__ = [
    "Expansion",
    "NoiseAwareMAP",
    "Objective",
    "SampledCurvature",
    "Search",
    "Settings",
    "noise_aware_mode",
    "schedule_of",
    "standard_errors",
]
