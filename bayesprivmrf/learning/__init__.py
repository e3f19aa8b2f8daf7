"""Releases of learned models and graphs, which are public: anything done with them is post-processing.

`PrivateFrankWolfe`, `SelectMeasure`, `ParityQueries`, `DPSGD` and `StableStructure` of `bayesprivmrf.mechanisms` make
them.
"""

from bayesprivmrf.errors import removed
from bayesprivmrf.learning.models.base import LearnedNetwork
from bayesprivmrf.learning.models.monomials import LearnedMonomials
from bayesprivmrf.learning.models.pairwise import LearnedIsing, LearnedPairwise
from bayesprivmrf.learning.models.potentials import LearnedPotentials
from bayesprivmrf.learning.models.regression import LearnedRegression
from bayesprivmrf.learning.parities.released import ReleasedParities
from bayesprivmrf.learning.simulated import SimulatedSurvey, simulated_survey
from bayesprivmrf.learning.structure.released import ReleasedGraph

# where the simulation of two-state indicators is now
_INDICATORS = (
    "benchmarks/rivals.py of the repository, and `simulated_survey` simulates other records"
)
__getattr__ = removed(
    __name__,
    {
        "Trials": "benchmarks/papers/dpsgd_search.py of the repository",
        "SimulatedIndicators": _INDICATORS,
        "simulated_indicators": _INDICATORS,
    },
)

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
