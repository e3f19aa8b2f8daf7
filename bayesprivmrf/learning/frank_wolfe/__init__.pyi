from .atoms import Atoms, choose_atoms
from .by_regressions import ByRegressions
from .fields import FrankWolfeFit, singles_plan
from .logistic import SparseLogistic
from .monomials import MonomialsByRegressions, Target
from .node_regressions import UNIT, Design, LogisticRegressions, NodeRegressions
from .pairwise import PairwiseByPairs, PairwiseByRegressions, PairwiseBySoftmax
from .rare_states import curved_limits, share_of_both
from .search import LARGEST_STEPS, frank_wolfe
from .settings import default_steps
from .softmax import SoftmaxRegressions

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
