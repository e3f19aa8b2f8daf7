"""Releases of learned models and graphs, which are public: anything done with them is post-processing.

`PrivateFrankWolfe`, `SelectMeasure`, `ParityQueries`, `DPSGD` and `StableStructure` of `bayesprivmrf.mechanisms` make
them.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

from bayesprivmrf.errors import removed

_present, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
# where the simulation of two-state indicators is now
_INDICATORS = (
    "benchmarks/rivals.py of the repository, and `simulated_survey` simulates other records"
)
_removed = removed(
    __name__,
    {
        "Trials": "benchmarks/papers/dpsgd_search.py of the repository",
        "SimulatedIndicators": _INDICATORS,
        "simulated_indicators": _INDICATORS,
    },
)


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _present(name)
    return _removed(name)
