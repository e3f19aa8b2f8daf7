from .coded import CodedRecords
from .coding import Coding
from .counting import ExactCounts, count_tables
from .frame import guarded

__all__ = ["CodedRecords", "Coding", "ExactCounts", "count_tables", "guarded"]
