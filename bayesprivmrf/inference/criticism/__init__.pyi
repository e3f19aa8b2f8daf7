from . import disagreement, noise_misfit
from .assumptions import function_marks, model_assumptions, query_marks, variable_marks
from .verdict import contradictions, learned_contradictions, verdict

__all__ = [
    "contradictions",
    "disagreement",
    "function_marks",
    "learned_contradictions",
    "model_assumptions",
    "noise_misfit",
    "query_marks",
    "variable_marks",
    "verdict",
]
