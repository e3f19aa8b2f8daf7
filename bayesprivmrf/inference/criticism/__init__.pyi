from . import noise_misfit
from .assumptions import function_marks, model_assumptions, query_marks, variable_marks
from .noise_misfit import learned_contradictions
from .verdict import contradictions, verdict

__all__ = [
    "contradictions",
    "function_marks",
    "learned_contradictions",
    "model_assumptions",
    "noise_misfit",
    "query_marks",
    "variable_marks",
    "verdict",
]
