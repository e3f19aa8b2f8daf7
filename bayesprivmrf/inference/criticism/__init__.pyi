from .assumptions import model_assumptions, query_marks, variable_marks

__all__ = ["model_assumptions", "query_marks", "variable_marks"]
