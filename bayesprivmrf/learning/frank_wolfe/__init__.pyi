from .atoms import Atoms, choose_atoms
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
]
