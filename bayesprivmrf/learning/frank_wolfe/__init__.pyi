from .atoms import Atoms, choose_atoms
from .by_regressions import ByRegressions, FrankWolfeFit, singles_plan
from .expected_path import curved_limits, share_of_both
from .monomials import MonomialsByRegressions, Target
from .node_regressions import UNIT, Design, LogisticRegressions, NodeRegressions
from .pairwise import PairwiseByPairs, PairwiseByRegressions, PairwiseBySoftmax, SoftmaxRegressions
from .search import LARGEST_STEPS, SparseLogistic, default_steps, frank_wolfe

__all__ = [
    "LARGEST_STEPS",
    "UNIT",
    "Atoms",
    "ByRegressions",
    "Design",
    "FrankWolfeFit",
    "LogisticRegressions",
    "MonomialsByRegressions",
    "NodeRegressions",
    "PairwiseByPairs",
    "PairwiseByRegressions",
    "PairwiseBySoftmax",
    "SoftmaxRegressions",
    "SparseLogistic",
    "Target",
    "choose_atoms",
    "curved_limits",
    "default_steps",
    "frank_wolfe",
    "share_of_both",
    "singles_plan",
]
