from .mode import transition_mode
from .rows import NoisySums, TransitionRows

__all__ = ["NoisySums", "TransitionRows", "transition_mode"]
