"""Linearised intervals of private Frank-Wolfe: the expected path against walks, coverage, where they are not."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from repeats import again
from scipy.stats import binom

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning import LearnedIsing
from bayesprivmrf.learning.frank_wolfe import Design, LogisticRegressions
from bayesprivmrf.learning.frank_wolfe.expected_path import Walk, expected_path
from bayesprivmrf.mechanisms import PrivateFrankWolfe
from bayesprivmrf.mechanisms.frank_wolfe import frank_wolfe
from bayesprivmrf.model import Domain
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee
from bayesprivmrf.release import Provenance

LEVEL = 1e-4


def model(couplings: np.ndarray, fields: np.ndarray) -> LearnedIsing:
    return LearnedIsing(
        domain=Domain.from_states({f"v{i}": [0, 1] for i in range(len(fields))}),
        guarantee=PrivacyGuarantee(rho=1.0, adjacency=Adjacency.REPLACE_ONE),
        provenance=Provenance(mechanism="PrivateFrankWolfe"),
        coupling_matrix=couplings,
        field_vector=fields,
    )


def ring(p: int, seed: int, shares: tuple[float, float]) -> LearnedIsing:
    """A ring of couplings of .25 to .45 in size, three in four positive; fields of these shares if all were alone."""
    rng, A = np.random.default_rng(seed), np.zeros((p, p))
    for i in range(p):
        j = (i + 1) % p
        A[i, j] = A[j, i] = rng.uniform(0.25, 0.45) * (1 if rng.random() < 0.75 else -1)
    return model(A, np.arctanh(2 * np.geomspace(*shares, p) - 1))


@pytest.mark.slow
def test_the_expected_path_is_the_mean_of_walks_and_its_errors_are_theirs():
    """Walks on the population itself, so that choices are all the noise: four variables, 300 steps."""
    truth = ring(4, 1, (0.2, 0.5))
    states = np.array(list(itertools.product((0, 1), repeat=4)), dtype=np.uint8)
    spins = 2.0 * states - 1
    energy = (
        np.einsum("ri,ij,rj->r", spins, truth.coupling_matrix, spins) / 2
        + spins @ truth.field_vector
    )
    counts = np.rint(20_000 * np.exp(energy) / np.exp(energy).sum()).astype(np.int64)
    settings = Walk(radius=4.0, steps=300, multiple=60.0)
    mask = np.column_stack([1 - np.eye(4), np.ones(4)])
    coefficients = 2 * np.column_stack([truth.coupling_matrix, truth.field_vector])
    path = expected_path(
        np.column_stack([spins, np.ones(16)]), counts.astype(float), coefficients, mask, settings
    )
    walks = []
    for seed in range(50):
        walk = LogisticRegressions(
            Design.with_constant(states, (2,) * 4), states, counts, 4.0, np.arange(4)
        )
        source = SimulatedNoise(np.random.default_rng(seed))
        walks.append(
            frank_wolfe(walk, steps=300, multiple=60.0, source=source, eligible=mask.astype(bool))
        )
    mean, deviation = np.mean(walks, axis=0), np.std(walks, axis=0, ddof=1)
    expected = np.sqrt(np.diagonal(path.choices, axis1=1, axis2=2))
    used = mask.astype(bool)
    # the path leaves out the curvature of the choices: a part of their deviation, beside five standard errors
    assert (
        np.abs(mean - path.mean)[used].max()
        < (0.3 * deviation + 5 * deviation / np.sqrt(50))[used].max()
    )
    ratio = deviation[used] / expected[used]
    assert ratio.min() > 0.6
    assert ratio.max() < 1.4
    # the search shrinks, and the response says by what share: what it makes of a slightly larger coupling
    assert (np.abs(path.mean) < np.abs(coefficients))[used & (np.abs(coefficients) > 0.3)].all()
    larger = coefficients.copy()
    larger[0, 1] += 0.05
    moved = expected_path(
        np.column_stack([spins, np.ones(16)]), counts.astype(float), larger, mask, settings
    )
    assert (moved.mean - path.mean)[0, 1] / 0.05 == pytest.approx(path.response[0, 1, 1], rel=0.15)


@pytest.mark.slow
def test_intervals_of_sparse_indicators_hold_the_truth_and_are_narrow():
    """Ten indicators with shares of .03 to .4; at 90 % no fewer than four in five are held."""
    hits: dict[str, list[np.ndarray]] = {"coupled": [], "free": [], "fields": []}
    widths, errors = [], []
    for seed in range(2):
        truth, rng = ring(10, seed, (0.03, 0.4)), np.random.default_rng([5, seed])
        data = truth.sample(20_000, rng=rng)
        variables = bpm.declare(states={name: [0, 1] for name in data})
        learned = PrivateFrankWolfe(rho=1.0, width=5.0).release(variables, data, rng=rng)
        assert learned.details["steps"] >= 50
        couplings = learned.couplings_interval(0.9, rng)
        assert couplings["note"].str.contains("linearised").all()
        pairs = truth.coupling_matrix[np.triu_indices(10, 1)]
        held = ((couplings["lower"] <= pairs) & (pairs <= couplings["upper"])).to_numpy()
        hits["coupled"].append(held[pairs != 0])
        hits["free"].append(held[pairs == 0])
        if seed == 0:
            fields, true = learned.couplings_interval(0.9, rng, of="fields"), truth.field_vector
            hits["fields"].append(
                ((fields["lower"] <= true) & (true <= fields["upper"])).to_numpy()
            )
        widths.append((couplings["upper"] - couplings["lower"]).mean())
        middle = (couplings["lower"] + couplings["upper"]).to_numpy() / 2
        shares = data.mean().to_numpy()
        together = (
            20_000 * np.outer(shares, shares)[np.triu_indices(10, 1)] > 200
        )  # limits of rare pairs bend
        errors.append(
            np.array([couplings["estimate"].to_numpy() - pairs, middle - pairs])[:, together]
        )
    assert max(widths) < 0.5
    raw, corrected = np.sqrt((np.concatenate(errors, axis=1) ** 2).mean(axis=1))
    assert corrected < raw  # what the search shrinks and mixes up is given back
    for name, parts in hits.items():
        found = np.concatenate(parts)
        assert found.sum() >= binom.ppf(LEVEL, found.size, 0.8), name


@pytest.mark.parametrize(
    "settings", [{"steps": 30}, *again({"order": 3}, {"single_share": 0}, {"rho": 0.001})]
)
@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
@pytest.mark.slow
def test_where_errors_are_not_known_to_first_order_the_calibrated_form_is_taken(settings):
    data = ring(5, 7, (0.2, 0.5)).sample(4_000, rng=8)
    variables = bpm.declare(states={name: [0, 1] for name in data})
    learned = PrivateFrankWolfe(**{"rho": 1.0, "width": 3.0} | settings).release(
        variables, data, rng=9
    )
    assert learned.couplings_interval(rng=10, replicates=2)["note"].str.contains("calibrated").all()
    with pytest.raises(ArgumentError, match="'linearised' for this release"):
        learned.couplings_interval(rng=10, method="linearised")


@pytest.mark.parametrize("states", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_couplings_that_the_declared_width_holds_say_so(states):
    """The largest sum of a variable is about 1.1 for three states, and 2.2 for two."""
    rng = np.random.default_rng(2)
    columns = [rng.integers(0, states, 1_000)]
    for _ in range(3):
        columns.append((columns[-1] + (rng.random(1_000) < 0.1)) % states)
    data = pd.DataFrame({f"v{i}": column for i, column in enumerate(columns)})
    variables = bpm.declare(states={name: range(states) for name in data})
    for width, is_held in ((0.3, True), (8.0, False)):
        learned = PrivateFrankWolfe(rho=20.0, width=width, steps=20).release(variables, data, rng=1)
        frame = learned.couplings_interval(rng=1, replicates=2, method="calibrated")
        held = frame["note"].str.contains("held by the declared width")
        assert held.any() == is_held
        assert (frame.loc[held, "status"] == "model").all()
        assert held[frame["estimate"].abs() > 0.1].all() or not is_held


@pytest.mark.slow
def test_a_release_can_be_asked_for_either_form_and_a_seed_gives_the_same():
    data = ring(5, 11, (0.1, 0.5)).sample(3_000, rng=12)
    variables = bpm.declare(
        states={name: [0, 1] for name in data}, cliques=[("v0", "v1", "v2"), ("v3", "v4")]
    )
    learned = PrivateFrankWolfe(rho=2.0, width=4.0).release(variables, data, rng=13)
    one, two = (learned.couplings_interval(rng=14) for _ in range(2))
    pd.testing.assert_frame_equal(one, two)
    assert (one["note"] == "simulated; linearised limits").all()
    assert (one.loc[("v0", "v4"), ["estimate", "lower", "upper"]] == 0).all()
    other = learned.couplings_interval(rng=14, method="calibrated", replicates=4)
    assert (other["note"] == "simulated; calibrated limits").all()
    assert (one["status"] == "ok").all()
    failed = replace(learned, details={**learned.details, "status": "not trusted"})
    assert (failed.couplings_interval(rng=14)["status"] == "not trusted").all()
