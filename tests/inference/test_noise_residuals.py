"""Residuals of overlapping tables: the formula for whole tables against the projection by a decomposition."""

import numpy as np
import pytest

from bayesprivmrf.inference import gather
from bayesprivmrf.inference.noise_residuals import noise_residuals
from bayesprivmrf.model import declare
from bayesprivmrf.privacy import Gaussian, Laplace
from bayesprivmrf.release import NoisyStatistics

STATES = {"a": [0, 1], "b": [0, 1, 2], "c": [0, 1], "d": [0, 1, 2, 3]}
CYCLE = [("a", "b"), ("c", "b"), ("c", "d"), ("d", "a")]
NESTED = [("b", "a", "c"), ("a", "b"), ("c",)]
# cliques, scopes of the tables, the scale of the noise of each, and the public total
CASES = {
    "cycle": (CYCLE, CYCLE, [2.0, 3.0, 1.0, 5.0], None),
    "cycle, N public": (CYCLE, CYCLE, [2.0, 3.0, 1.0, 5.0], 900),
    "nested": (NESTED[:1], NESTED, [2.0, 1.0, 4.0], None),
    "no overlap": ([("a",), ("b",)], [("a",), ("b",)], [2.0, 2.0], None),
}


@pytest.mark.parametrize("law", [Laplace, Gaussian])
@pytest.mark.parametrize("case", CASES)
def test_residuals_of_whole_tables_are_a_projection_of_the_noise(case, law):
    cliques, scopes, scales, total = CASES[case]
    states = {v: STATES[v] for scope in scopes for v in scope}
    rng = np.random.default_rng(7)
    shapes = [[len(STATES[v]) for v in scope] for scope in scopes]
    values = [900 / np.prod(shape) + rng.normal(0, 9, shape) for shape in shapes]
    given = NoisyStatistics.from_tables(
        declare(states, cliques),
        dict(zip(scopes, values, strict=True)),
        noise={scope: law(scale) for scope, scale in zip(scopes, scales, strict=True)},
        total=total,
    )
    evidence = gather(given)
    found = noise_residuals(evidence, 100)
    assert found is not None
    # any consistent tables of N records may be taken off first
    even = np.concatenate([np.full(shape, 900 / np.prod(shape)).ravel() for shape in shapes])
    strain = (evidence.noisy_counts - even) / evidence.noise_deviation
    assert found.residuals == pytest.approx(found.projection @ strain, abs=1e-9)
    assert found.own == pytest.approx(np.diag(found.projection), abs=1e-9)
    assert found.projection @ found.projection == pytest.approx(found.projection, abs=1e-9)
