from .choices import choose_atoms
from .logistic_regression import PrivateLogisticRegression
from .mechanism import PrivateFrankWolfe
from .search import frank_wolfe, log_odds, run_on_rows

__all__ = [
    "PrivateFrankWolfe",
    "PrivateLogisticRegression",
    "choose_atoms",
    "frank_wolfe",
    "log_odds",
    "run_on_rows",
]
