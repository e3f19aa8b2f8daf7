"""Queries of tables as readers are told of them, and the check that what was read is of one unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from bayesprivmrf.errors import ModelError
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.domain import Label, Variable
from bayesprivmrf.noise.base import CONTRADICTION
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.queries import Query, coarsened, table
from bayesprivmrf.release import Measurement, NoisyStatistics

type Groups = Mapping[Variable, Mapping[Label, Sequence[Label]]]


def query_of(model: ModelSpecification, scope: Sequence[Variable], groups: Groups) -> Query:
    """Return the query of a table, some of whose variables are coarsened; without variables, of all records."""
    if not scope:
        variable = model.domain.variables[0]
        return coarsened(variable, groups={variable: {"all": model.domain.states_of(variable)}})
    return coarsened(*scope, groups=groups) if groups else table(*scope)


def released(
    model: ModelSpecification,
    measurements: Sequence[Measurement],
    *,
    guarantee: PrivacyGuarantee | None,
    total: int | None,
) -> NoisyStatistics:
    """Return the release of what was read.

    Raises
    ------
    ModelError
        Its measurements tell numbers of records that contradict each other.
    """
    release = NoisyStatistics.from_measurements(model, measurements, guarantee=guarantee, total=total)
    sums, precisions = release._sums_and_precisions
    if total is not None:
        sums, precisions = np.append(sums, total), np.append(precisions, math.inf)
    if len(sums) < 2:
        return release
    best = int(np.argmax(precisions))
    gaps = np.abs(sums - sums[best]) / np.sqrt(1 / precisions + 1 / precisions[best] + 1e-12)
    worst = int(np.argmax(gaps))
    if gaps[worst] > CONTRADICTION:
        raise ModelError(
            f"the tables must be of one population and one unit, but one tells {sums[best]:,.0f} records and another "
            f"{sums[worst]:,.0f}, {gaps[worst]:.0f} standard errors apart; is one in thousands, or a share, or its "
            "variance a standard deviation?"
        )
    return release
