from .mechanism import SelectMeasure
from .one_choice import OneChoice, measured_on_rows, select_and_measure
from .plan import RoundsPlan
from .rounds import AdaptiveRounds

__all__ = [
    "AdaptiveRounds",
    "OneChoice",
    "RoundsPlan",
    "SelectMeasure",
    "measured_on_rows",
    "select_and_measure",
]
