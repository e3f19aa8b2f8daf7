from .covariance import NoisySums
from .mode import transition_mode
from .rows import TransitionRows

__all__ = [
    "NoisySums",
    "TransitionRows",
    "transition_mode",
]
