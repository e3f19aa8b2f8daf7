"""The only code that sees data: each mechanism reads records and lets out a release.

``from bayesprivmrf.mechanisms import ...`` is the line that a privacy reviewer looks for.
"""

from __future__ import annotations

import warnings

from bayesprivmrf.deprecation import removed
from bayesprivmrf.errors import BayesPrivMRFError
from bayesprivmrf.kinds import installed
from bayesprivmrf.mechanisms.base import Ledger, Mechanism, Stamp
from bayesprivmrf.mechanisms.calibration import discrete_gaussian_laws, discrete_laplace_laws, promised_loss
from bayesprivmrf.mechanisms.dpsgd import DPSGD
from bayesprivmrf.mechanisms.frank_wolfe import PrivateFrankWolfe
from bayesprivmrf.mechanisms.logistic_regression import PrivateLogisticRegression
from bayesprivmrf.mechanisms.noisy_statistics import (
    ExactStatistics,
    GaussianStatistics,
    LaplaceStatistics,
    reference,
)
from bayesprivmrf.mechanisms.objective_perturbation import ObjectivePerturbation
from bayesprivmrf.mechanisms.parity_queries import ParityQueries
from bayesprivmrf.mechanisms.reading.coded import record_codes
from bayesprivmrf.mechanisms.reading.persons import transition_rows, wide_sequences
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


def available_mechanisms() -> dict[str, type[Mechanism]]:
    """Return the mechanism classes of all installed packages, by their entry points' names.

    A package joins with a line in the group ``bayesprivmrf.mechanisms`` of its own project file:
    ``name = "package.module:MechanismClass"``. The classes are imported by this call, and not before.

    Raises
    ------
    BayesPrivMRFError
        Two different mechanisms have the same name.

    Warns
    -----
    RuntimeWarning
        A package's mechanism cannot be imported, or is no subclass of `Mechanism`. It is left out, and all others are
        returned.

    Examples
    --------
    >>> "laplace" in available_mechanisms()
    True
    """
    found: dict[str, type[Mechanism]] = {}
    for point in installed("bayesprivmrf.mechanisms"):
        try:
            mechanism = point.load()
            if not (isinstance(mechanism, type) and issubclass(mechanism, Mechanism)):
                raise TypeError("it must be a subclass of Mechanism")
        except Exception as error:  # a fault in one package must not hide the others
            warnings.warn(
                f"the mechanism {point.name!r} ({point.value}) cannot be imported: {type(error).__name__}: {error}; "
                "correct or remove its package.",
                RuntimeWarning,
                stacklevel=2,
            )
            continue
        if found.get(point.name, mechanism) is not mechanism:
            raise BayesPrivMRFError(
                f"mechanisms of installed packages must have different names, got two named {point.name!r}; remove "
                "one of the packages."
            )
        found[point.name] = mechanism
    return found
