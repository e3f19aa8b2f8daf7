from .instances import Grouped, log_members, packing, random_means, random_member
from .law import LAWS, FittedLaw
from .lower_bounds import fingerprinting_error, fingerprinting_records, packing_records
from .records import records_needed
from .table_1 import TABLE_1, Entry
from .task import Task
from .theorems import UPPER_BOUNDS, UpperBound

__all__ = [
    "LAWS",
    "TABLE_1",
    "UPPER_BOUNDS",
    "Entry",
    "FittedLaw",
    "Grouped",
    "Task",
    "UpperBound",
    "fingerprinting_error",
    "fingerprinting_records",
    "log_members",
    "packing",
    "packing_records",
    "random_means",
    "random_member",
    "records_needed",
]
