from .lower_bounds import (
    divergences,
    fano_nats,
    fingerprinting_records,
    for_replacing,
    log_members,
    packing_records,
    variation,
)
from .records import LAWS, FittedLaw, records_needed, rho_within
from .task import Goal, Task

__all__ = [
    "LAWS",
    "FittedLaw",
    "Goal",
    "Task",
    "divergences",
    "fano_nats",
    "fingerprinting_records",
    "for_replacing",
    "log_members",
    "packing_records",
    "records_needed",
    "rho_within",
    "variation",
]
