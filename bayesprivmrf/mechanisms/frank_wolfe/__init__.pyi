from .logistic_regression import PrivateLogisticRegression
from .mechanism import PrivateFrankWolfe

__all__ = ["PrivateFrankWolfe", "PrivateLogisticRegression"]
