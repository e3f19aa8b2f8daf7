from .coding import Coding
from .counting import ExactCounts, count_tables
from .frame import guarded

__all__ = ["Coding", "ExactCounts", "count_tables", "guarded"]
