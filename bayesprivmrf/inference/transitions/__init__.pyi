from .mode import transition_mode
from .rows import TransitionRows

__all__ = [
    "TransitionRows",
    "transition_mode",
]
