"""Models whose couplings were learnt from records: released, public, and free to use.

The mechanisms that make them are `bayesprivmrf.mechanisms.PrivateFrankWolfe`, `SelectMeasure`, `ParityQueries` and
`DPSGD`.
"""

from bayesprivmrf.learning.learned import LearnedNetwork
from bayesprivmrf.learning.learned_ising import LearnedIsing
from bayesprivmrf.learning.learned_monomials import LearnedMonomials
from bayesprivmrf.learning.learned_pairwise import LearnedPairwise
from bayesprivmrf.learning.learned_potentials import LearnedPotentials, Trials
from bayesprivmrf.learning.learned_regression import LearnedRegression
from bayesprivmrf.learning.released_parities import ReleasedParities
from bayesprivmrf.learning.simulated_indicators import SimulatedIndicators, simulated_indicators

__all__ = [
    "LearnedIsing",
    "LearnedMonomials",
    "LearnedNetwork",
    "LearnedPairwise",
    "LearnedPotentials",
    "LearnedRegression",
    "ReleasedParities",
    "SimulatedIndicators",
    "Trials",
    "simulated_indicators",
]
