"""Intervals of learned couplings: what they hold, what they say of pairs that were left out, what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, ModelError, NoIntervalError
from bayesprivmrf.learning import LearnedIsing, calibrated, select_measure
from bayesprivmrf.learning.select_measure import least_statistic
from bayesprivmrf.mechanisms import PrivateFrankWolfe, SelectMeasure
from bayesprivmrf.mechanisms.select_measure import measured_on_rows
from bayesprivmrf.model import Domain
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee
from bayesprivmrf.release import Provenance

LEVEL = 1e-3  # of each statistical test


def ising(couplings, fields=None, **settings) -> LearnedIsing:
    p = len(couplings)
    return LearnedIsing(
        domain=Domain.from_states({f"v{i}": [0, 1] for i in range(p)}),
        guarantee=PrivacyGuarantee(rho=1.0, adjacency=Adjacency.REPLACE_ONE),
        provenance=Provenance(mechanism="SelectMeasure"),
        coupling_matrix=couplings,
        field_vector=np.zeros(p) if fields is None else fields,
        **settings,
    )


def regular(p: int, seed: int, size: float = 0.3) -> LearnedIsing:
    rng = np.random.default_rng(seed)
    A, fields = np.zeros((p, p)), rng.uniform(-0.2, 0.2, p)
    for i, j in nx.random_regular_graph(3, p, seed=seed).edges:
        A[i, j] = A[j, i] = size * rng.choice([-1, 1])
    return ising(A, fields)


def covered(frame: pd.DataFrame, truth: np.ndarray) -> np.ndarray:
    return ((frame["lower"] <= truth) & (truth <= frame["upper"])).to_numpy()


def enough(hits: np.ndarray, at_least: float) -> bool:
    """Whether so few hits have a probability of `LEVEL` or more if each has the probability `at_least`."""
    return bool(hits.sum() >= binom.ppf(LEVEL, hits.size, at_least))


def held(mechanism, truths, n, seed, **settings) -> dict[str, np.ndarray]:
    """Hits of coupled pairs, of pairs without coupling, and of fields."""
    found = {"coupled": [], "free": [], "fields": []}
    for k, truth in enumerate(truths):
        rng = np.random.default_rng([seed, k])
        data = truth.sample(n, rng=rng)
        learned = mechanism.release(bpm.declare(states={v: [0, 1] for v in data}), data, rng=rng)
        place = np.triu_indices(len(truth.field_vector), 1)
        pairs = truth.coupling_matrix[place]
        hits = covered(learned.couplings_interval(0.9, rng, **settings), pairs)
        found["coupled"].append(hits[pairs != 0])
        found["free"].append(hits[pairs == 0])
        found["fields"].append(
            covered(
                learned.couplings_interval(0.9, rng, of="fields", **settings), truth.field_vector
            )
        )
    return {name: np.concatenate(parts) for name, parts in found.items()}


@pytest.mark.parametrize(
    ("adjacency", "degree"),
    [
        (Adjacency.ADD_OR_REMOVE_ONE, 4),
        pytest.param(Adjacency.REPLACE_ONE, 9, marks=pytest.mark.slow),
    ],
)
def test_intervals_of_measured_couplings_hold_the_truth(adjacency, degree):
    mechanism = SelectMeasure(rho=0.3, degree=degree, adjacency=adjacency)
    hits = held(mechanism, [regular(10, k) for k in range(6)], 4_000, 1)
    for name in ("coupled", "free", "fields"):
        assert enough(hits[name], 0.88), name
    assert hits["coupled"].mean() < 0.99  # of 90 at 90 %: intervals twice as wide would hold all


@pytest.mark.slow
def test_a_pair_that_was_left_out_has_an_interval_of_what_would_have_been():
    """At the upper limit a pair is left out with 5 % probability; below it more often."""
    truth = regular(10, 3)
    data = truth.sample(2_000, rng=4)
    variables = bpm.declare(states={v: [0, 1] for v in data})
    mechanism = SelectMeasure(rho=0.02, degree=4, adjacency="replace-one")
    learned = mechanism.release(variables, data, rng=5)
    frame = learned.couplings_interval(0.9, rng=6)
    left_out = frame[frame["estimate"] == 0]
    assert len(left_out) >= 15
    assert (left_out["lower"] < 0).all()
    assert (left_out["upper"] > 0).all()
    (i, j), limit = next(
        ((int(a[1:]), int(b[1:])), row["upper"]) for (a, b), row in left_out.iterrows()
    )
    out = {}
    for share in (0.4, 1.0):
        A = learned.coupling_matrix.copy()
        A[i, j] = A[j, i] = share * limit
        other = ising(A, learned.field_vector)
        rng, count = np.random.default_rng(7), 0
        for _ in range(200):
            codes, _ = other.solution.codes(2_000, rng)
            measured = measured_on_rows(
                codes, np.ones(2_000, dtype=int), 2_000.0, learned.map.plan, SimulatedNoise(rng)
            )
            targets = select_measure.PairTargets.of(measured, learned.map.plan, 2_000.0, 0.0)
            kept = targets.pairs[targets.standing_out()]
            count += not (kept == [min(i, j), max(i, j)]).all(axis=1).any()
        out[share] = count
    assert out[1.0] <= binom.isf(LEVEL, 200, 0.1)
    assert out[0.4] >= binom.ppf(LEVEL, 200, 0.2)


@pytest.mark.parametrize("rho", [0.02, 0.3])
def test_the_threshold_that_is_told_is_the_one_that_was_used(rho):
    truth = regular(12, 8, 0.12)
    data = truth.sample(3_000, rng=9)
    mechanism = SelectMeasure(rho=rho, degree=11, adjacency="replace-one")
    learned = mechanism.release(bpm.declare(states={v: [0, 1] for v in data}), data, rng=10)
    plan = learned.map.plan
    codes = data.to_numpy().astype(np.uint8)
    measured = measured_on_rows(
        codes,
        np.ones(len(codes), dtype=int),
        3_000.0,
        plan,
        SimulatedNoise(np.random.default_rng(10)),
    )
    targets = select_measure.PairTargets.of(measured, plan, 3_000.0, 0.0)
    kept = targets.standing_out()
    assert 0 < kept.sum() < len(kept)
    i, j = targets.pairs.T
    t, single = np.array(targets.pair)[:, 0, 0], np.array(targets.single)[:, 0]
    spread = np.array(targets.single_variances())[:, 0]
    noise = (
        targets.pair_noise
        + targets.single_noise[i] * single[j] ** 2
        + targets.single_noise[j] * single[i] ** 2
    )
    sampling = spread[i] * spread[j] / 3_000
    statistic = (t - single[i] * single[j]) ** 2 / (noise + sampling)
    share, ones = sampling / (noise + sampling), np.ones(len(i), dtype=int)
    common = {"measured": len(kept), "candidates": targets.candidates}
    assert (statistic[~kept] < least_statistic(share, ones, kept=kept.sum(), **common)[~kept]).all()
    assert (
        statistic[kept] >= least_statistic(share, ones, kept=kept.sum() - 1, **common)[kept] - 1e-9
    ).all()


def test_tables_have_limits_for_every_entry():
    rng = np.random.default_rng(11)
    x = rng.integers(0, 3, 20_000)
    y = np.where(rng.random(x.size) < 0.5, x, rng.integers(0, 3, x.size))
    data = pd.DataFrame(
        {"x": x, "y": y, "z": rng.integers(0, 2, x.size), "one": 0, "w": rng.integers(0, 4, x.size)}
    )
    states = {"x": [0, 1, 2], "y": [0, 1, 2], "z": [0, 1], "one": [0], "w": [0, 1, 2, 3]}
    learned = SelectMeasure(rho=0.5, degree=1).release(bpm.declare(states=states), data, rng=12)
    frame = learned.couplings_interval(0.9, rng=13).sort_index()
    agrees = np.log((0.5 + 0.5 / 3) / (0.5 / 3))
    exact = agrees * (np.eye(3) - 1 / 3)
    table = frame.loc["x", "y"]
    assert enough(covered(table, exact.ravel()), 0.7)  # nine entries that go together
    assert (table["upper"] - table["lower"]).max() < 0.2
    assert (frame.loc["one", "w"][["lower", "upper"]] == 0).all(axis=None)
    rest = frame.loc["x", "w"]
    assert (rest["lower"] < 0).all()
    assert (rest["upper"] > 0).all()
    fields = learned.couplings_interval(0.9, rng=14, of="fields")
    assert (fields["lower"] <= fields["upper"]).all()


@dataclass(frozen=True)
class Shrinking:
    """A map that lets out a share of each coupling, with noise, and nothing of what is small."""

    share: float
    noise: float

    def learn(self, codes, counts, total, source):
        spins = 2.0 * np.repeat(codes, 1 if counts is None else counts, axis=0) - 1
        moments = spins.T @ spins / len(spins)
        p = len(moments)
        words = source.words(p * p).reshape(p, p).astype(float) / 2.0**64
        A = self.share * np.arctanh(np.clip(moments - np.eye(p), -0.9, 0.9)) + self.noise * (
            words - 0.5
        )
        A = np.triu(np.sign(A) * np.maximum(np.abs(A) - 0.02, 0), 1)
        return A + A.T, np.zeros(p)


@pytest.mark.parametrize(("share", "status"), [(0.5, "ok"), (0.1, "doubtful")])
def test_limits_of_what_a_map_hardly_answers_to_are_doubtful(share, status):
    A = np.zeros((4, 4))
    A[0, 1] = A[1, 0] = 0.5
    shrinking, rng = Shrinking(share, 0.005), np.random.default_rng(3)
    codes, _ = ising(A).solution.codes(4_000, rng)
    found = shrinking.learn(codes, None, 4_000.0, SimulatedNoise(rng))
    learned = ising(*found, total=4_000.0, map=shrinking)
    row = replace(learned, unsupported=()).couplings_interval(0.9, rng=1, replicates=40).iloc[0]
    assert row["status"] == status
    assert ("hardly answers" in row["note"]) == (status == "doubtful")


@pytest.mark.slow
def test_what_a_map_shrinks_is_given_back():
    """Five pairs by themselves, so that the truth of the toy map is known: the plain bootstrap holds few of them."""
    p, hits, plain = 10, [], []
    for k in range(5):
        rng = np.random.default_rng([15, k])
        A = np.zeros((p, p))
        for i in range(0, p, 2):
            A[i, i + 1] = A[i + 1, i] = rng.uniform(0.3, 0.5) * rng.choice([-1, 1])
        shrinking = Shrinking(0.5, 0.1)
        codes, _ = ising(A).solution.codes(2_000, rng)
        found = shrinking.learn(codes, None, 2_000.0, SimulatedNoise(rng))
        learned = ising(*found, total=2_000.0, map=shrinking)
        truth = A[np.triu_indices(p, 1)]
        hits.append(
            covered(learned.couplings_interval(0.9, rng=k, replicates=40), truth)[truth != 0]
        )
        draws = [
            draw.vector()
            for draw in calibrated.replicates_of(learned, 20, np.random.default_rng(k))
        ]
        high, low = 2 * learned.vector() - np.quantile(draws, [0.05, 0.95], axis=0)
        plain.append(((low[: truth.size] <= truth) & (truth <= high[: truth.size]))[truth != 0])
    assert enough(np.concatenate(hits), 0.85)
    assert np.concatenate(plain).mean() < 0.5


def test_a_pair_outside_the_declared_cliques_has_no_width():
    truth = regular(6, 16)
    data = truth.sample(1_000, rng=17)
    variables = bpm.declare(
        states={v: [0, 1] for v in data}, cliques=[("v0", "v1", "v2"), ("v3", "v4", "v5")]
    )
    for mechanism in (PrivateFrankWolfe(rho=1.0, width=1.0), SelectMeasure(rho=1.0, degree=2)):
        frame = mechanism.release(variables, data, rng=18).couplings_interval(rng=19, replicates=10)
        assert (frame.loc[("v0", "v4"), ["estimate", "lower", "upper"]] == 0).all()
        assert frame.loc[("v0", "v1"), "lower"] < frame.loc[("v0", "v1"), "upper"]


def test_methods_that_do_not_fit_are_refused():
    data = regular(4, 20).sample(200, rng=21)
    variables = bpm.declare(states={v: [0, 1] for v in data})
    learned = PrivateFrankWolfe(rho=1.0, width=1.0).release(variables, data, rng=22)
    with pytest.raises(ArgumentError, match="linearised"):
        learned.couplings_interval(method="linearised")
    for gone in ("basic", "percentile", "exact"):
        with pytest.raises(ArgumentError, match=r"`method` must be 'linearised' or 'calibrated'"):
            learned.couplings_interval(method=gone)
    for wrong in ({"of": "nodes"}, {"replicates": 1}, {"prob": 1.0}, {"total": -1.0}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            learned.couplings_interval(**wrong)
    with pytest.raises(NoIntervalError, match=r"`learned.couplings_interval\(\)` has intervals"):
        learned.interval(list(data)[:1])
    with pytest.raises(ModelError, match="does not know"):
        ising(np.zeros((4, 4)), total=100.0).couplings_interval()


def test_the_same_seed_gives_the_same_limits():
    data = regular(6, 23).sample(500, rng=24)
    variables = bpm.declare(states={v: [0, 1] for v in data})
    learned = SelectMeasure(rho=1.0, degree=2).release(variables, data, rng=25)
    pd.testing.assert_frame_equal(
        learned.couplings_interval(rng=26), learned.couplings_interval(rng=26)
    )
    narrow, wide = (learned.couplings_interval(prob, rng=1) for prob in (0.5, 0.95))
    assert (wide["upper"] - wide["lower"] >= narrow["upper"] - narrow["lower"]).all()


@pytest.mark.slow
def test_intervals_of_frank_wolfe_hold_the_truth():
    mechanism = PrivateFrankWolfe(rho=0.3, width=1.1, adjacency="replace-one")
    hits = held(mechanism, [regular(10, k) for k in range(3)], 3_000, 27)
    for name, share in (("coupled", 0.85), ("free", 0.85), ("fields", 0.65)):
        assert enough(hits[name], share), name
