from .models.base import LearnedNetwork
from .models.monomials import LearnedMonomials
from .models.pairwise import LearnedIsing, LearnedPairwise
from .models.potentials import LearnedPotentials
from .models.regression import LearnedRegression
from .parities.released import ReleasedParities
from .simulated import SimulatedSurvey, simulated_survey
from .structure.released import ReleasedGraph

__all__ = [
    "LearnedIsing",
    "LearnedMonomials",
    "LearnedNetwork",
    "LearnedPairwise",
    "LearnedPotentials",
    "LearnedRegression",
    "ReleasedGraph",
    "ReleasedParities",
    "SimulatedSurvey",
    "simulated_survey",
]
