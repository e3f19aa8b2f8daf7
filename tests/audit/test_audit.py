"""The audit: true mechanisms pass, twins with too little noise are caught, and its curves are exact."""

from __future__ import annotations

import functools
import math
import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from repeats import few
from scipy import stats

from bayesprivmrf.audit import audit, audit_noise, curves, gaussian_epsilon, privacy_loss
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.mechanisms import (
    ExactStatistics,
    GaussianStatistics,
    LaplaceStatistics,
    StatisticsMechanism,
)
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.noise import noise_source
from bayesprivmrf.privacy import (
    Adjacency,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    NoNoise,
    PrivacyGuarantee,
)

MODEL = ModelSpecification(
    domain=Domain.from_states({"a": [0, 1], "b": [0, 1], "c": [0, 1]}),
    cliques=(("a", "b"), ("b", "c"), ("a", "c")),
)
MECHANISMS = [
    LaplaceStatistics(epsilon=1.0),
    LaplaceStatistics(
        epsilon=2.0, adjacency="replace-one", weights={("a", "b"): 2, ("b", "c"): 1, ("a", "c"): 1}
    ),
    GaussianStatistics(rho=0.5),
    GaussianStatistics(rho=1.0, adjacency="replace-one"),
]


def laws_of(mechanism):
    """The noise laws that a release of made-up records states."""
    return mechanism.release(MODEL, pd.DataFrame({name: [0] * 1000 for name in "abc"}), rng=0).noise


def audited(mechanism, factor, runs, seed):
    """Audit of the mechanism's own laws, or of a twin whose noise is `factor` as wide."""
    laws = laws_of(mechanism)
    source = noise_source(seed)

    def add(counts, position):
        law = laws[position]
        return source.add(counts, law if factor == 1 else type(law)(law.scale * factor))

    return audit_noise(add, laws, mechanism.adjacency, runs=runs)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_the_true_mechanism_passes_and_a_twin_with_ten_percent_too_little_noise_is_caught(
    mechanism,
):
    assert not audited(mechanism, 1, 200_000, seed=7).is_violated
    assert audited(mechanism, 0.9, 200_000, seed=8).is_violated


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_the_audit_keeps_its_level_and_has_its_stated_power(mechanism):
    # 5 trials at joint error 1e-4 each: a single false alarm has probability under 1e-3
    assert not any(audited(mechanism, 1, 200_000, seed=100 + i).is_violated for i in range(5))
    assert all(audited(mechanism, 0.9, 200_000, seed=200 + i).is_violated for i in range(5))


def test_the_secure_source_passes_too():
    mechanism = MECHANISMS[0]
    laws = laws_of(mechanism)
    source = noise_source(None)
    result = audit_noise(
        lambda counts, i: source.add(counts, laws[i]), laws, mechanism.adjacency, runs=20_000
    )
    assert not result.is_violated
    assert max(result.epsilon_lower) > 0.5  # the test sees the loss that there is


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
@pytest.mark.parametrize(
    "mechanism", few([LaplaceStatistics(epsilon=3.0), GaussianStatistics(rho=2.0)]), ids=repr
)
def test_whole_releases_of_neighboring_frames_pass(mechanism):
    # through `release` itself: no other field of a release may tell the neighbors apart more than the noise allows
    frame = pd.DataFrame({"a": [0, 1], "b": [0, 1], "c": [0, 1]})
    rng = np.random.default_rng(3)
    laws = laws_of(mechanism)
    exact = ExactStatistics().release(MODEL, frame[:1]).tables.flat.astype(bool)
    law = np.repeat(laws, np.diff(MODEL.offsets))[exact][0]

    def randomizer(data):
        def statistics(runs):
            noisy = np.array(
                [mechanism.release(MODEL, data, rng=rng).tables.flat[exact] for _ in range(runs)]
            )
            return np.round((law.log_density(noisy - 1) - law.log_density(noisy)).sum(axis=1), 9)

        return statistics

    curve = privacy_loss([law] * 3, [1] * 3).epsilon
    result = audit(randomizer(frame[:1]), randomizer(frame[:0]), curve, runs=250)
    assert not result.is_violated
    assert max(result.epsilon_lower) > 0.3


def test_a_mechanism_that_forgets_a_table_in_its_budget_is_caught():
    @dataclass(frozen=True, kw_only=True)
    class Forgetful(StatisticsMechanism):
        epsilon: float

        def _noise(self, specification):
            return tuple(
                DiscreteLaplace(2 / self.epsilon) for _ in specification.cliques
            )  # three tables, not two

        def _promise(self, specification):
            return PrivacyGuarantee(epsilon=self.epsilon, adjacency=self.adjacency)

    source, mechanism = noise_source(4), Forgetful(epsilon=1.0)
    claimed, laws = mechanism.promise(MODEL), laws_of(mechanism)

    def randomizer(present):
        counts = np.full(50_000, present)
        return lambda runs: sum(np.clip(source.add(counts, law), 0, 1) for law in laws)

    assert audit(randomizer(1), randomizer(0), claimed, runs=50_000).is_violated


# the level


def triple_laplace(seed):
    """Exact pair of three tables' noise, as randomizers of the log-likelihood ratio, and its curve."""
    law, source = DiscreteLaplace(3.0), noise_source(seed)

    def randomizer(present):
        def statistics(runs):
            noisy = source.add(np.full(3 * runs, present), law).reshape(runs, 3)
            return np.round((law.log_density(noisy - 1) - law.log_density(noisy)).sum(axis=1), 9)

        return statistics

    return randomizer(1), randomizer(0), functools.cache(privacy_loss([law] * 3, [1] * 3).epsilon)


def test_a_true_promise_is_refuted_no_oftener_than_the_confidence_allows():
    # At so low a confidence half of the true promises may be refuted; measured are 2 % with the error shared between
    # the deltas and limits, and over 70 % without. Binomial noise of 200 trials is 3.5 % (fixed seed).
    first, second, curve = triple_laplace(seed=5)
    refuted = [
        audit(first, second, curve, runs=2000, confidence=0.5).is_violated for _ in range(200)
    ]
    assert np.mean(refuted) < 0.1


@pytest.mark.parametrize("half", [slice(500), slice(500, None)])
def test_the_runs_that_choose_the_event_are_not_those_that_test_it(half):
    def differs(runs):
        statistics = np.zeros(runs)
        statistics[half] = 1.0
        return statistics

    # a difference in one half of the runs is either not chosen or not confirmed
    assert max(audit(differs, np.zeros, lambda delta: 1.0, runs=1000).epsilon_lower) == 0.0
    assert min(audit(np.ones, np.zeros, lambda delta: 1.0, runs=1000).epsilon_lower) > 1.0


@pytest.mark.parametrize("confidence", [0.9, 0.9999])
def test_each_limit_is_clopper_and_pearsons_at_its_share_of_the_error(confidence):
    # one event: 900 of 1000 runs of A are ones, 300 of B, in both halves alike
    def ones(share):
        return lambda runs: np.tile(np.arange(10) < 10 * share, runs // 10).astype(float)

    deltas = (0.0, 0.1, 0.2)
    found = audit(
        ones(0.9), ones(0.3), lambda d: 9.0, runs=2000, confidence=confidence, deltas=deltas
    )
    level = (1 - confidence) / (2 * len(deltas))

    def limits(hits):
        return stats.binomtest(hits, 1000).proportion_ci(1 - 2 * level, method="exact")

    events = [(900, 300), (700, 100)]  # "is one" under A against B, "is zero" under B against A
    expected = [
        max(math.log((limits(a).low - d) / limits(b).high) for a, b in events) for d in deltas
    ]
    assert found.epsilon_lower == pytest.approx(expected, rel=1e-9)


# the curves


@pytest.mark.parametrize("tables", [1, 2, 3])
def test_the_curve_of_discrete_laplace_noise_is_that_of_repeated_randomised_response(tables):
    # one record more or less in a cell: the loss is +-1/b, + with probability 1 / (1 + exp(-1/b))
    epsilon = 0.4
    loss = privacy_loss([DiscreteLaplace(1 / epsilon)] * tables, [1] * tables)
    wins = np.arange(tables + 1)
    truth = stats.binom(tables, 1 / (1 + math.exp(-epsilon))).pmf(wins)
    expected_losses = epsilon * (2 * wins - tables)
    for at in (0.0, 0.1, 0.35):
        expected = (truth * np.maximum(0, 1 - np.exp(at - expected_losses))).sum()
        assert loss.delta(at) == pytest.approx(expected, abs=1e-12)
    assert loss.epsilon(0.0) == pytest.approx(tables * epsilon, abs=1e-9)
    single = PrivacyGuarantee(epsilon=epsilon, adjacency="replace-one").to_approximate(0.05).epsilon
    assert privacy_loss([DiscreteLaplace(1 / epsilon)], [1]).epsilon(0.05) == pytest.approx(
        single, abs=1e-9
    )


def test_the_curve_of_discrete_gaussian_noise_approaches_that_of_the_normal():
    law = DiscreteGaussian(4.0)
    for tables in (1, 2):
        mu = math.sqrt(tables) / 4.0
        for delta in (1e-5, 1e-2):
            ours = privacy_loss([law] * tables, [1] * tables).epsilon(delta)
            assert ours == pytest.approx(gaussian_epsilon(mu, delta), abs=0.02)


@pytest.mark.parametrize("law", [DiscreteLaplace(2.0), DiscreteGaussian(1.5)])
def test_a_curve_stays_below_what_the_guarantee_implies(law):
    if isinstance(law, DiscreteLaplace):
        guarantee = PrivacyGuarantee(epsilon=2 / law.scale, adjacency="add-or-remove-one")
    else:
        guarantee = PrivacyGuarantee(rho=2 / (2 * law.scale**2), adjacency="add-or-remove-one")
    loss = privacy_loss([law, law], [1, 1])
    for delta in (1e-6, 1e-3, 0.1):
        assert loss.epsilon(delta) <= guarantee.to_approximate(delta).epsilon + 1e-9


def test_the_curve_of_many_laws_is_an_upper_bound_and_close():
    # exact by enumeration of all sums, against the grid that takes over where those are too many
    laws, shifts = [DiscreteGaussian(60.0), DiscreteGaussian(90.0)], [50, -80]
    bound = privacy_loss(laws, shifts)
    (one, chances), (other, weights) = (
        curves.losses_of(*each) for each in zip(laws, shifts, strict=True)
    )
    exact = curves.PrivacyLoss(
        losses=np.add.outer(one, other).ravel(),
        probabilities=np.multiply.outer(chances, weights).ravel(),
    )
    steps = 3 * (exact.losses.max() - exact.losses.min()) / 2**18
    assert bound.probabilities.sum() == pytest.approx(1.0, abs=1e-9)
    for delta in (1e-6, 1e-3, 0.1):
        excess = bound.epsilon(delta) - exact.epsilon(delta)
        assert -1e-9 < excess <= steps + 1e-9
    assert bound.epsilon(0.1) > exact.epsilon(0.1)  # the grid was taken


def test_losses_that_lie_evenly_add_up_as_any_others():
    gaussian, laplace = (
        curves.losses_of(DiscreteGaussian(1.6), 1),
        curves.losses_of(DiscreteLaplace(0.7), 1),
    )
    released = (
        np.array([-1.0, 0.5, np.inf]),
        np.array([0.5, 0.4, 0.1]),
    )  # as of an answer that is let out
    uneven = (np.array([-0.9, 0.2, 0.5]), np.array([0.2, 0.5, 0.3]))
    cells = [
        *(gaussian, uneven, laplace, gaussian, released),
        *(curves.losses_of(DiscreteLaplace(1.0), 3), laplace),
    ]
    quick = curves.convolved(cells)
    losses, weights = np.zeros(1), np.ones(1)
    for own, chances in cells:
        sums = np.round(np.add.outer(losses, own).ravel(), 11)
        losses, place = np.unique(sums, return_inverse=True)
        weights = np.bincount(place, np.multiply.outer(weights, chances).ravel())
        losses, weights = losses[weights > 1e-30], weights[weights > 1e-30]
    by_sorting = curves.PrivacyLoss(losses=losses, probabilities=weights)
    for delta in (0.1001, 0.15, 0.3):
        assert quick.epsilon(delta) == pytest.approx(by_sorting.epsilon(delta), abs=1e-9)
    for epsilon in (-1.0, 0.0, 0.7, 5.0):
        assert quick.delta(epsilon) == pytest.approx(by_sorting.delta(epsilon), abs=1e-10)


@pytest.mark.parametrize("standard_deviation", [1.0, 20.0])
def test_the_curve_of_hundreds_of_equal_sums_is_exact(standard_deviation):
    """Of 400 cells a loss is the sum of their noises, whose law is the 400th power of one's, by squaring."""
    law, cells = DiscreteGaussian(standard_deviation), 400
    reach = int(30 * standard_deviation)
    density = np.exp(law.log_density(np.arange(-reach, reach + 1)).astype(np.longdouble))
    power, rest = np.ones(1, dtype=np.longdouble), cells
    while rest:
        if rest % 2:
            power = _trimmed(np.convolve(power, density))
        density, rest = _trimmed(np.convolve(density, density)), rest // 2
    sums = np.arange(power.size) - power.size // 2
    losses = (2 * sums + cells) / (2 * standard_deviation**2)
    loss = curves.convolved([curves.losses_of(law, 1)] * cells)
    assert loss.excess == 0
    centre = cells / (2 * standard_deviation**2)
    for epsilon in centre * np.array([0.5, 1.0, 1.3]) + 2 * math.sqrt(2 * centre):
        exact = float(power @ np.maximum(-np.expm1(epsilon - losses), 0.0))
        assert exact > 1e-14
        assert loss.delta(epsilon) == pytest.approx(exact, rel=1e-6, abs=1e-22)


def _trimmed(weights):
    """A symmetric law without entries below 1e-30 on either side."""
    first = int(np.argmax(weights > 1e-30))
    return weights[first : weights.size - first]


@pytest.mark.parametrize(
    "cells",
    [
        [([-1.0, 0.0, 1.0001], [0.2, 0.3, 0.5])] * 3,
        [([-1.0, 0.0, 1.0], [0.2, 0.3, 0.5]), ([-1.0, 1e-6, 1.0], [0.1, 0.3, 0.6])],
        [([-1.0, 0.0, 1.0], [0.2, 0.3, 0.5]), ([-1.0001, 0.0, 1.0001], [0.2, 0.3, 0.5])],
        [
            ([-0.7, 0.7], [0.4, 0.6]),
            ([-0.7, 0.7], [0.4, 0.6]),
            ([-0.7 - 1e-9, 0.7 + 1e-9], [0.4, 0.6]),
        ],
    ],
    ids=["uneven", "one of them uneven", "two steps", "steps that nearly agree"],
)
def test_losses_that_nearly_lie_evenly_are_not_moved(cells):
    """Against all sums, whatever their order: a loss that is moved to an even place could be too small."""
    arrays = [(np.array(losses), np.array(weights)) for losses, weights in cells]
    sums, products = np.zeros(1), np.ones(1)
    for losses, weights in arrays:
        sums = np.add.outer(sums, losses).ravel()
        products = np.multiply.outer(products, weights).ravel()
    for order in (arrays, arrays[::-1]):
        found = curves.convolved(order)
        for epsilon in (-1.5, 0.0, 0.6, 1.9):
            exact = products @ np.maximum(-np.expm1(epsilon - sums), 0.0)
            assert found.delta(epsilon) == pytest.approx(exact, abs=1e-10)


def test_tables_of_many_scales_are_audited_in_seconds():
    laws = [DiscreteGaussian(3.0 + 0.37 * table) for table in range(8)]
    source = noise_source(2)
    begin = time.perf_counter()
    result = audit_noise(
        lambda counts, table: source.add(counts, laws[table]), laws, "add-or-remove-one", runs=2_000
    )
    assert time.perf_counter() - begin < 20  # it took minutes, and all of the memory
    assert not result.is_violated
    mu = math.sqrt(sum(1 / law.scale**2 for law in laws))
    # discrete noise of these scales is close to the normal's, whose curve has a closed form
    assert result.epsilon_claimed[-1] == pytest.approx(
        gaussian_epsilon(mu, result.deltas[-1]), abs=0.02
    )


def test_exchanging_the_neighbors_gives_the_same_curve():
    laws = [DiscreteLaplace(1.3), DiscreteGaussian(2.0)]
    for delta in (1e-4, 0.05):
        there, back = (privacy_loss(laws, [s, -s]).epsilon(delta) for s in (1, -1))
        assert there == pytest.approx(back, abs=1e-9)


def test_the_gaussian_curve_matches_dp_accounting():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import dp_accounting
    for mu in (0.1, 1.0, 4.0):
        for delta in (1e-8, 1e-3):
            assert gaussian_epsilon(mu, delta) == pytest.approx(
                dp_accounting.get_epsilon_gaussian(1 / mu, delta), abs=1e-6
            )


# the border


def test_bad_settings_are_refused():
    def draw(runs):
        return np.zeros(runs)

    for runs in (0, 99, True, 1e5, -5):
        with pytest.raises(ArgumentError, match="`runs`"):
            audit(draw, draw, lambda delta: 1.0, runs=runs)
    for confidence in (0, 1, math.nan, "high"):
        with pytest.raises(ArgumentError, match="`confidence`"):
            audit(draw, draw, lambda delta: 1.0, runs=100, confidence=confidence)
    with pytest.raises(ArgumentError, match="finite statistics"):
        audit(lambda runs: np.full(runs, np.nan), draw, lambda delta: 1.0, runs=100)
    concentrated = PrivacyGuarantee(rho=1.0, adjacency="replace-one")
    approximate = PrivacyGuarantee(epsilon=1.0, delta=0.1, adjacency="replace-one")
    for guarantee, deltas in (
        (concentrated, [0.0]),
        (approximate, [0.0, 0.05]),
        (concentrated, []),
    ):
        with pytest.raises(ArgumentError, match="`deltas` must hold"):
            audit(draw, draw, guarantee, runs=100, deltas=deltas)
    for law in (Gaussian(1.0), NoNoise()):
        with pytest.raises(ArgumentError, match="whole numbers"):
            privacy_loss([law], [1])
    with pytest.raises(ArgumentError, match="one number for each distribution"):
        privacy_loss([DiscreteLaplace(1.0)], [])


def test_an_indistinguishable_pair_gets_the_bound_zero_and_a_disjoint_pair_a_large_one():
    rng = np.random.default_rng(0)
    guarantee = PrivacyGuarantee(rho=0.5, adjacency=Adjacency.REPLACE_ONE)

    def normal(runs):
        return rng.normal(size=runs)

    same = audit(normal, normal, guarantee, runs=1000)
    assert max(same.epsilon_lower) < 0.2
    assert 0.0 not in same.deltas  # a zero-concentrated promise says nothing at delta 0
    apart = audit(np.zeros, np.ones, guarantee, runs=1000)
    assert apart.is_violated
    assert "refuted" in str(apart)
    assert "not refuted" in str(same)
