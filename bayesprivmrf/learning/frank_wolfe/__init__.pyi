from .atoms import Atoms
from .by_regressions import ByRegressions, FrankWolfeFit, singles_plan
from .expected_path import curved_limits, share_of_both
from .monomials import MonomialsByRegressions, Target
from .node_regressions import (
    LARGEST_STEPS,
    RESIDUAL_UNIT,
    Design,
    LogisticRegressions,
    NodeRegressions,
)
from .pairwise import (
    OneRegression,
    PairwiseByPairs,
    PairwiseByRegressions,
    PairwiseBySoftmax,
    SoftmaxRegressions,
)

__all__ = [
    "LARGEST_STEPS",
    "RESIDUAL_UNIT",
    "Atoms",
    "ByRegressions",
    "Design",
    "FrankWolfeFit",
    "LogisticRegressions",
    "MonomialsByRegressions",
    "NodeRegressions",
    "OneRegression",
    "PairwiseByPairs",
    "PairwiseByRegressions",
    "PairwiseBySoftmax",
    "SoftmaxRegressions",
    "Target",
    "curved_limits",
    "share_of_both",
    "singles_plan",
]
