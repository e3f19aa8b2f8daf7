"""Tables of a fitted model that no clique holds, by holding some variables: the same as from all configurations."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from bayesprivmrf.inference.loglinear_fit import Eliminated
from bayesprivmrf.learning.select_measure import NoisyTable, fit_tables

CARDS = (2, 3, 1, 4, 2, 3, 2)
MODELS = {
    "tree with variables apart": [(0, 1), (1, 3), (3, 4), (2,), (5,), (6,)],
    "cycle of a triple": [(0, 1, 3), (1, 4), (4, 5), (0, 5), (2, 6)],
    "nothing coupled": [(v,) for v in range(7)],
}


@pytest.mark.parametrize("scopes", MODELS.values(), ids=MODELS)
def test_tables_of_any_variables_are_those_of_all_configurations(scopes):
    rng = np.random.default_rng(0)
    measured = [
        NoisyTable(
            scope=scope, values=rng.gamma(2.0, 50.0, [CARDS[v] for v in scope]), variance=4.0
        )
        for scope in scopes
    ]
    fit = fit_tables(CARDS, measured)
    asked = [scope for size in (1, 2, 3, 4) for scope in combinations(range(7), size)]
    all_at_once = fit.probabilities(asked)
    by_elimination = Eliminated(fit.effects).tables(fit.coordinates, asked)
    for one, other in zip(all_at_once, by_elimination, strict=True):
        assert one == pytest.approx(other, abs=1e-12)
