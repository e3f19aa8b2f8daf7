from .base import Ledger, Mechanism, Stamp
from .calibration import discrete_gaussian_laws, discrete_laplace_laws, promised_loss
from .dpsgd import DPSGD
from .frank_wolfe import PrivateFrankWolfe, PrivateLogisticRegression
from .noisy_statistics import ExactStatistics, GaussianStatistics, LaplaceStatistics, reference
from .objective_perturbation import ObjectivePerturbation
from .parities import ParityQueries
from .reading.coded import record_codes
from .reading.events import transition_rows, wide_sequences
from .select_measure import SelectMeasure
from .statistics import StatisticsMechanism
from .structure import StableStructure

def available_mechanisms() -> dict[str, type[Mechanism]]: ...

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
