"""The models that a learning mechanism releases."""

from bayesprivmrf.learning.models.solution import LearnedSolution, Signal

__all__ = ["LearnedSolution", "Signal"]
