from .coding import Coding
from .counting import ExactCounts, count_tables

__all__ = [
    "Coding",
    "ExactCounts",
    "count_tables",
]
