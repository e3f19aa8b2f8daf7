"""Learners of models of pairs that are run on the hard instances of the lower bounds."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from bayesprivmrf.privacy import Adjacency

from .hard_instances import Grouped

if TYPE_CHECKING:
    import pandas as pd

EXACT, TOLD = "not private", "pairs told, GaussianStatistics"
REPLACE_ONE: dict[str, Any] = {"adjacency": Adjacency.REPLACE_ONE}


def _frame(codes: np.ndarray) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(codes, columns=[f"v{i}" for i in range(codes.shape[1])])


def released(mechanism: Any, network: Any, codes: np.ndarray, rng: np.random.Generator) -> Any:
    """Return a mechanism's release without its warnings; the figure shows where noise hides the truth."""
    with warnings.catch_warnings(action="ignore"):
        return mechanism.release(network, _frame(codes), rng=rng)


def learned_couplings(
    method: str,
    model: Grouped,
    codes: np.ndarray,
    width: float,
    degree: float,
    rho: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return couplings, shape (p, p), by one learner of a model of pairs.

    Parameters
    ----------
    method
        ``"ParityQueries"``, ``"PrivateFrankWolfe"`` or ``"SelectMeasure"``; `TOLD` measures the true pairs alone, and
        `EXACT` has no privacy.
    model, codes
        The truth, whose pairs only `TOLD` looks at, and its records.
    width, degree, rho
        Settings of the mechanism.
    rng
        Stream of the noise.
    """
    from bayesprivmrf.mechanisms import (
        GaussianStatistics,
        ParityQueries,
        PrivateFrankWolfe,
        SelectMeasure,
    )

    p = model.variables
    common: dict[str, Any] = REPLACE_ONE | {"rho": rho}
    if method == EXACT:
        spins = 2.0 * codes - 1
        return _from_means(spins.T @ spins / len(spins), width)
    if method == TOLD:
        return _from_means(means_of_pairs(GaussianStatistics(**common), model, codes, rng), width)
    if method == "ParityQueries":
        parities = ParityQueries(order=2, method="gaussian", **common)
        means = np.eye(p)
        for members, value in released(parities, model.specification, codes, rng).values.items():
            if len(members) == 2:
                i, j = (int(name[1:]) for name in members)
                means[i, j] = means[j, i] = value
        return _from_means(means, width)
    if method == "PrivateFrankWolfe":
        mechanism = PrivateFrankWolfe(width=width, single_share=0, **common)
    else:
        mechanism = SelectMeasure(degree=degree, **common)
    return released(mechanism, model.specification, codes, rng).coupling_matrix


def means_of_pairs(
    mechanism: Any, model: Grouped, codes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Means of products from noisy tables of the true pairs."""
    from bayesprivmrf.model import declare

    names = [f"v{i}" for i in range(model.variables)]
    network = declare(
        states={name: [0, 1] for name in names},
        cliques=[(names[i], names[j]) for i, j in model.groups],
    )
    tables = released(mechanism, network, codes, rng).tables
    means = np.eye(model.variables)
    for i, j in model.groups:
        table = np.asarray(tables[names[i], names[j]])
        means[i, j] = means[j, i] = (table[0, 0] + table[1, 1] - table[0, 1] - table[1, 0]) / len(
            codes
        )
    return means


def _from_means(means: np.ndarray, width: float) -> np.ndarray:
    """Couplings of independent pairs from the means of products."""
    largest = math.tanh(width)
    return np.arctanh(np.clip(means - np.diag(np.diag(means)), -largest, largest))
