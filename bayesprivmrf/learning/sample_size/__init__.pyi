from .instances import Grouped, log_members, packing, random_means, random_member
from .law import LAWS, FittedLaw
from .lower_bounds import (
    divergences,
    fano_nats,
    fingerprinting_error,
    fingerprinting_records,
    for_replacing,
    packing_records,
    variation,
)
from .records import records_needed
from .table_1 import TABLE_1, Entry
from .task import Task
from .theorems import UPPER_BOUNDS, UpperBound, rho_within

__all__ = [
    "LAWS",
    "TABLE_1",
    "UPPER_BOUNDS",
    "Entry",
    "FittedLaw",
    "Grouped",
    "Task",
    "UpperBound",
    "divergences",
    "fano_nats",
    "fingerprinting_error",
    "fingerprinting_records",
    "for_replacing",
    "log_members",
    "packing",
    "packing_records",
    "random_means",
    "random_member",
    "records_needed",
    "rho_within",
    "variation",
]
