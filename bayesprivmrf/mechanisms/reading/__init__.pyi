from .coded_records import CodedRecords
from .coding import Coding
from .counting import ExactCounts, count_tables

__all__ = [
    "CodedRecords",
    "Coding",
    "ExactCounts",
    "count_tables",
]
