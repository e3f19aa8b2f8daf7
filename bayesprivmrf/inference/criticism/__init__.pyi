from .assumptions import model_assumptions, query_marks, variable_marks
from .verdict import Verdict, contradictions, verdict

__all__ = ["Verdict", "contradictions", "model_assumptions", "query_marks", "variable_marks", "verdict"]
