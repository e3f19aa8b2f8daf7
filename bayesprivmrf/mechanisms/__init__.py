"""The only code that sees data: each mechanism reads records and lets out a release.

``from bayesprivmrf.mechanisms import ...`` is the line that a privacy reviewer looks for.
"""

from bayesprivmrf.errors import removed
from bayesprivmrf.mechanisms.base import Ledger, Mechanism, Stamp
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws, discrete_laplace_laws, promised_loss
from bayesprivmrf.mechanisms.dpsgd import DPSGD
from bayesprivmrf.mechanisms.exact import ExactStatistics, reference
from bayesprivmrf.mechanisms.frank_wolfe import PrivateFrankWolfe
from bayesprivmrf.mechanisms.gaussian import GaussianStatistics
from bayesprivmrf.mechanisms.laplace import LaplaceStatistics
from bayesprivmrf.mechanisms.logistic_regression import PrivateLogisticRegression
from bayesprivmrf.mechanisms.objective_perturbation import ObjectivePerturbation
from bayesprivmrf.mechanisms.parity_queries import ParityQueries
from bayesprivmrf.mechanisms.reading.coded import record_codes
from bayesprivmrf.mechanisms.reading.persons import transition_rows, wide_sequences
from bayesprivmrf.mechanisms.registry import available_mechanisms
from bayesprivmrf.mechanisms.select_measure import SelectMeasure
from bayesprivmrf.mechanisms.stable_structure import StableStructure
from bayesprivmrf.mechanisms.statistics import StatisticsMechanism

__getattr__ = removed(__name__, {"DPSGDSearch": "benchmarks/papers/dpsgd_search.py of the repository"})

__all__ = [
    "DPSGD",
    "ExactStatistics",
    "GaussianStatistics",
    "LaplaceStatistics",
    "Ledger",
    "Mechanism",
    "ObjectivePerturbation",
    "ParityQueries",
    "PrivateFrankWolfe",
    "PrivateLogisticRegression",
    "SelectMeasure",
    "StableStructure",
    "Stamp",
    "StatisticsMechanism",
    "available_mechanisms",
    "discrete_gaussian_laws",
    "discrete_laplace_laws",
    "promised_loss",
    "record_codes",
    "reference",
    "transition_rows",
    "wide_sequences",
]
