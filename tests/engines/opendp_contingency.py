"""Script that reads real contingency tables of OpenDP with their noise; OpenDP's `mbi` extra pins other versions.

``uv run --isolated --no-project --with 'opendp[mbi]==0.16.0' --with . python tests/engines/opendp_contingency.py``
"""

from __future__ import annotations

import math

import numpy as np
import opendp.prelude as dp
import polars as pl
from opendp.extras.mbi import MST, Count, Fixed

import bayesprivmrf as bpm
from bayesprivmrf.readers import from_opendp

MISSING = "unknown"  # OpenDP adds a key for it to each column
KEYS = {"smokes": ["no", "yes"], "ill": ["no", "yes"], "age": ["young", "old"]}
PAIRS = [("smokes", "ill"), ("ill", "age")]
ALGORITHMS = {"Fixed": Fixed(queries=[Count(pair) for pair in PAIRS]), "MST": MST()}
LOSSES = {"discrete-laplace": dp.loss_of(epsilon=2.0), "discrete-gaussian": dp.loss_of(rho=0.5)}


def records(size: int = 2000) -> pl.DataFrame:
    rng = np.random.default_rng(1)
    common = rng.integers(0, 2, size)
    codes = {name: np.where(rng.random(size) < 0.2, 1 - common, common) for name in KEYS}
    return pl.DataFrame({name: np.array(KEYS[name])[own] for name, own in codes.items()})


def check(noise: str, algorithm: str, data: pl.DataFrame) -> None:
    context = dp.Context.compositor(
        data=data.lazy(),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=LOSSES[noise],
        split_evenly_over=1,
    )
    table = (
        context.query()
        .select(*KEYS)
        .contingency_table(keys=KEYS, algorithm=ALGORITHMS[algorithm])
        .release()
    )
    states = {name: [*keys, MISSING] for name, keys in KEYS.items()}
    network = bpm.declare(states, [("smokes", "ill", "age")])
    release = from_opendp(network, table, noise=noise, missing=MISSING)
    assert release.measurements
    for each in release.measurements:
        assert each.noise.name == noise
        scope = each.query.scope
        exact = np.zeros([len(states[name]) for name in scope])
        for row in data.select(scope).iter_rows():
            exact[
                tuple(states[name].index(state) for name, state in zip(scope, row, strict=True))
            ] += 1
        # the chance of ten standard deviations is below 1e-5 for either noise
        assert np.abs(each.values - exact.ravel()).max() < 10 * math.sqrt(each.noise.variance)
    solution = bpm.NoiseAwareMAP().fit(release)
    assert solution.status == "converged"
    print(f"{algorithm}, {noise}: {len(release.measurements)} tables, {solution.status}")


if __name__ == "__main__":
    dp.enable_features("contrib")
    for noise in LOSSES:
        for algorithm in ALGORITHMS:
            check(noise, algorithm, records())
