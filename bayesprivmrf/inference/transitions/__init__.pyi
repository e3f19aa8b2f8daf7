from .mode import transition_mode

__all__ = ["transition_mode"]
