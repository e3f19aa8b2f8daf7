from .lower_bounds import (
    Goal,
    Task,
    divergences,
    fano_nats,
    fingerprinting_records,
    for_replacing,
    log_members,
    packing_records,
    variation,
)
from .records import LAWS, FittedLaw, records_needed, rho_within

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
