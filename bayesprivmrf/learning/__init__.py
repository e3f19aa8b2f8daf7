"""Models whose couplings were learned from records: released, public, and free to use.

The mechanisms that make them are `bayesprivmrf.mechanisms.PrivateFrankWolfe`, `SelectMeasure`, `ParityQueries` and
`DPSGD`.
"""

from bayesprivmrf.deprecation import removed
from bayesprivmrf.learning.models.base import LearnedNetwork
from bayesprivmrf.learning.models.monomials import LearnedMonomials
from bayesprivmrf.learning.models.pairwise import LearnedIsing, LearnedPairwise
from bayesprivmrf.learning.models.potentials import LearnedPotentials
from bayesprivmrf.learning.models.regression import LearnedRegression
from bayesprivmrf.learning.parities.released import ReleasedParities
from bayesprivmrf.learning.simulated_indicators import SimulatedIndicators, simulated_indicators
from bayesprivmrf.learning.simulated_survey import SimulatedSurvey, simulated_survey
from bayesprivmrf.learning.structure.released import ReleasedGraph

__getattr__ = removed(__name__, {"Trials": "benchmarks/papers/dpsgd_search.py of the repository"})

__all__ = [
    "LearnedIsing",
    "LearnedMonomials",
    "LearnedNetwork",
    "LearnedPairwise",
    "LearnedPotentials",
    "LearnedRegression",
    "ReleasedGraph",
    "ReleasedParities",
    "SimulatedIndicators",
    "SimulatedSurvey",
    "simulated_indicators",
    "simulated_survey",
]
