from .assumptions import function_marks, model_assumptions, query_marks, variable_marks
from .noise_misfit import learned_contradictions
from .shared_margins import shared_margins
from .verdict import contradictions, disagreement, verdict

__all__ = [
    "contradictions",
    "disagreement",
    "function_marks",
    "learned_contradictions",
    "model_assumptions",
    "query_marks",
    "shared_margins",
    "variable_marks",
    "verdict",
]
