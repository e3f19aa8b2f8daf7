from .associations import association, residuals
from .hypothesis_tests import TestResult
from .independence import compare_groups, equal_odds_test, goodness_of_fit, independence_test
from .panels import homogeneity, stationarity_test, symmetry
from .ratios import odds_ratios, pooled_odds_ratio, risk_differences, risk_ratios
from .regressions import Regression, regression
from .reports import report
from .standardization import standardize

__all__ = [
    "Regression",
    "TestResult",
    "association",
    "compare_groups",
    "equal_odds_test",
    "goodness_of_fit",
    "homogeneity",
    "independence_test",
    "odds_ratios",
    "pooled_odds_ratio",
    "regression",
    "report",
    "residuals",
    "risk_differences",
    "risk_ratios",
    "standardize",
    "stationarity_test",
    "symmetry",
]
