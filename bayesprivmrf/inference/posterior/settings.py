"""Settings of the posterior's prior, as the engines read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bayesprivmrf.inference.evidence import WIDEST_RANGE

type FormulationName = Literal["auto", "hyper-dirichlet", "log-linear", "exact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorSettings:
    """Settings of a prior and of its formulation; `LatentCounts` documents and checks them.

    Parameters
    ----------
    formulation
        Name of the formulation that was asked for.
    concentration
        Prior counts per cell of Dirichlet rows; None learns them.
    scale
        Prior standard deviation of log-linear effects, nats; None learns them.
    total_range
        Lower and upper end of the log-uniform prior of a private number of records.
    """

    formulation: FormulationName = "auto"
    concentration: float | None = None
    scale: float | None = None
    total_range: tuple[float, float] = WIDEST_RANGE
