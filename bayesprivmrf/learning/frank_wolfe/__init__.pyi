from .atoms import Atoms, choose_atoms
from .fields import FrankWolfeFit, singles_plan
from .logistic import SparseLogistic
from .monomials import MonomialsByRegressions, Target
from .node_regressions import Design, LogisticRegressions
from .pairwise import PairwiseByPairs, PairwiseByRegressions, PairwiseBySoftmax
from .paper import PaperIsing, PaperPairs, PaperRegressions
from .search import LARGEST_STEPS

__all__ = [
    "LARGEST_STEPS",
    "Atoms",
    "Design",
    "FrankWolfeFit",
    "LogisticRegressions",
    "MonomialsByRegressions",
    "PairwiseByPairs",
    "PairwiseByRegressions",
    "PairwiseBySoftmax",
    "PaperIsing",
    "PaperPairs",
    "PaperRegressions",
    "SparseLogistic",
    "Target",
    "choose_atoms",
    "singles_plan",
]
