from .associations import association, residuals
from .independence import TestResult, independence_test
from .ratios import odds_ratios, pooled_odds_ratio, risk_differences, risk_ratios
from .regressions import Regression, regression
from .reports import report
from .standardization import standardize

__all__ = [
    "Regression",
    "TestResult",
    "association",
    "independence_test",
    "odds_ratios",
    "pooled_odds_ratio",
    "regression",
    "report",
    "residuals",
    "risk_differences",
    "risk_ratios",
    "standardize",
]
