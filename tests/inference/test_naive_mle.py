import contextlib
from itertools import pairwise

import numpy as np
import pytest
from inference.conftest import (
    log_joint,
    noisy_release,
    probabilities,
    simulated_counts,
    specification,
    tables_of,
)
from scipy.optimize import minimize

from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference import CGM, NaiveMLE, Status, gather
from bayesprivmrf.inference.least_squares import pool
from bayesprivmrf.inference.projection import project_on_simplex, pseudo_marginals
from bayesprivmrf.privacy import Gaussian, Laplace, NoNoise
from bayesprivmrf.release import NoisyStatistics

CYCLE = specification(
    {"a": [0, 1], "b": [2, 1, 0], "c": [0, 1], "d": [0, 1]},
    [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")],
)


def test_exact_tables_are_matched_exactly_on_every_awkward_model(awkward):
    rng = np.random.default_rng(1)
    counts, _ = simulated_counts(awkward, 5000, rng)
    release = NoisyStatistics.from_tables(
        awkward, dict(awkward.tables(counts)), noise=Laplace(1e-6), total=5000
    )
    solution = NaiveMLE(ridge=0.0).fit(release)
    assert solution.status is Status.CONVERGED
    np.testing.assert_allclose(solution.marginals.flat, counts / 5000, atol=1e-5)
    np.testing.assert_allclose(
        tables_of(awkward, probabilities(awkward, solution.potentials.flat)),
        counts / 5000,
        atol=1e-5,
    )


@pytest.mark.parametrize("projection", ["simplex", "none"])
def test_estimate_maximises_the_papers_objective_on_inconsistent_tables(projection):
    rng = np.random.default_rng(2)
    counts, _ = simulated_counts(CYCLE, 300, rng)
    release = noisy_release(CYCLE, counts, Laplace(8.0), rng)
    evidence = gather(release)
    target = release.tables.flat / evidence.total
    if projection == "simplex":
        offsets = CYCLE.offsets
        target = np.concatenate([project_on_simplex(target[a:b]) for a, b in pairwise(offsets)])
    ridge = 0.02

    def negative(theta):
        p = probabilities(CYCLE, theta)
        energies = log_joint(CYCLE, theta)
        log_partition = np.logaddexp.reduce(energies)
        value = log_partition - target @ theta + ridge * theta @ theta
        return value, tables_of(CYCLE, p) - target + 2 * ridge * theta

    reference = minimize(
        negative, np.zeros(CYCLE.size), jac=True, method="BFGS", options={"gtol": 1e-9}
    )
    solution = NaiveMLE(ridge=ridge, projection=projection).fit(release)
    np.testing.assert_allclose(
        solution.marginals.flat, tables_of(CYCLE, probabilities(CYCLE, reference.x)), atol=1e-6
    )


def test_simplex_projection_is_the_nearest_point():
    rng = np.random.default_rng(3)
    for _ in range(50):
        v = rng.normal(scale=2, size=6)
        p = project_on_simplex(v)
        assert p.min() >= 0
        assert p.sum() == pytest.approx(1)
        others = rng.dirichlet(np.ones(6), size=200)
        assert (((others - v) ** 2).sum(axis=1) >= ((p - v) ** 2).sum() - 1e-12).all()


def test_consistent_projection_gives_probabilities_that_agree_and_are_nearest():
    rng = np.random.default_rng(4)
    counts, _ = simulated_counts(CYCLE, 200, rng)
    evidence = gather(noisy_release(CYCLE, counts, Laplace(10.0), rng, total=200))
    projected = pseudo_marginals(evidence, "consistent")
    tables = CYCLE.tables(projected)
    assert projected.min() >= -1e-8
    np.testing.assert_allclose(
        tables["a", "b"].sum(axis=0), tables["b", "c"].sum(axis=1), atol=1e-8
    )
    y = evidence.noisy_counts / 200
    for _ in range(200):  # any mixture of joint states is consistent and no nearer
        q = tables_of(CYCLE, rng.dirichlet(np.full(24, 0.3)))
        inner = projected + 0.1 * (q - projected)
        assert ((inner - y) ** 2).sum() >= ((projected - y) ** 2).sum() - 1e-7


@pytest.mark.parametrize("projection", ["simplex", "none", "consistent"])
def test_structural_zeros_hold_in_estimate_network_and_samples(projection):
    model = specification(
        {"a": ["x", "y"], "b": [0, 1, 2], "c": [0, 1]},
        [("a", "b"), ("b", "c"), ("c", "a")],
        [(("a", "x"), ("b", 1)), (("c", 1), ("b", 2))],
    )
    rng = np.random.default_rng(5)
    counts, _ = simulated_counts(model, 400, rng)
    release = noisy_release(model, counts, Laplace(5.0), rng)
    assert not release.tables.flat[~model.possible].any()
    solution = NaiveMLE(projection=projection).fit(release)
    assert solution.status is Status.CONVERGED
    assert not solution.marginals.flat[~model.possible].any()
    assert solution.network.get_factors()[0].values[0, 1] == 0
    drawn = solution.sample(2000, rng=1)
    assert not ((drawn["a"] == "x") & (drawn["b"] == 1)).any()
    assert not ((drawn["c"] == 1) & (drawn["b"] == 2)).any()


def test_joint_fit_pools_tables_by_precision():
    rng = np.random.default_rng(6)
    counts, _ = simulated_counts(CYCLE, 1000, rng)
    precise = noisy_release(CYCLE, counts, Gaussian(1.0), rng, total=1000)
    coarse = noisy_release(CYCLE, counts, Gaussian(3.0), rng, total=1000)
    pooled = (precise.tables.flat + coarse.tables.flat / 9) / (1 + 1 / 9)
    single = NoisyStatistics.from_tables(
        CYCLE, dict(CYCLE.tables(pooled)), noise=Gaussian(float(np.sqrt(0.9))), total=1000
    )
    together = NaiveMLE(ridge=1e-4).fit([precise, coarse])
    apart = NaiveMLE(ridge=1e-4).fit(single)
    np.testing.assert_allclose(together.marginals.flat, apart.marginals.flat, atol=1e-6)


def test_joint_fit_of_different_cliques_estimates_their_union():
    states = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}
    one = specification(states, [("a", "b"), ("c",)])
    two = specification(states, [("b", "c"), ("a",)])
    rng = np.random.default_rng(7)
    counts, _ = simulated_counts(specification(states, [("a", "b"), ("b", "c")]), 4000, rng)
    joint = specification(states, [("a", "b"), ("b", "c")]).tables(counts)
    releases = []
    for model in (one, two):
        flat = []
        for clique in model.cliques:
            if len(clique) == 2:
                flat.append(joint[clique].ravel())
            else:
                source = ("a", "b") if clique == ("a",) else ("b", "c")
                axis = 1 - source.index(clique[0])
                flat.append(joint[source].sum(axis=axis))
        exact = np.concatenate(flat)
        releases.append(
            NoisyStatistics.from_tables(
                model, dict(model.tables(exact)), noise=Laplace(1e-6), total=4000
            )
        )
    solution = NaiveMLE(ridge=0.0).fit(releases)
    assert set(map(frozenset, solution.specification.cliques)) == {frozenset("ab"), frozenset("bc")}
    np.testing.assert_allclose(
        solution.marginal(["a", "b"]).to_numpy(), joint["a", "b"] / 4000, atol=1e-5
    )
    np.testing.assert_allclose(
        solution.marginal(["b", "c"]).to_numpy(), joint["b", "c"] / 4000, atol=1e-5
    )


def test_without_ridge_an_estimate_that_does_not_exist_is_called_diverged():
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    release = NoisyStatistics.from_tables(
        model, {("a", "b"): np.array([[50, 0], [0, 50]])}, noise=Laplace(1.0), total=100
    )
    assert NaiveMLE(ridge=0.0).fit(release).status is Status.DIVERGED
    assert NaiveMLE(ridge=1e-6).fit(release).status is Status.CONVERGED


def test_default_ridge_is_the_pooled_noise_over_what_the_likelihood_believes():
    model = specification({"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]}, [("a", "b"), ("b", "c")])
    rng = np.random.default_rng(8)
    counts, _ = simulated_counts(model, 1000, rng)
    tables = dict(model.tables(counts))
    laws = {("a", "b"): Laplace(3.0), ("b", "c"): Gaussian(4.0)}
    one = NoisyStatistics.from_tables(model, tables, noise=laws, total=1000)
    np.testing.assert_allclose(
        pool(gather(one)).ridges(gather(one)), [6 * 18 / 1e6 + 1e-3, 6 * 16 / 1e6 + 1e-3]
    )
    two = NoisyStatistics.from_tables(model, tables, noise=Laplace(3.0), total=1000)
    pooled = 1 / (1 / 16 + 1 / 18)
    np.testing.assert_allclose(
        pool(gather([one, two])).ridges(gather([one, two])),
        [6 * 9 / 1e6 + 1e-3, 6 * pooled / 1e6 + 1e-3],
    )


def test_a_second_far_noisier_release_does_no_harm():
    rng = np.random.default_rng(9)
    counts, _ = simulated_counts(CYCLE, 5000, rng)
    good = noisy_release(CYCLE, counts, Laplace(2.0), rng, total=5000)
    bad = noisy_release(CYCLE, counts, Laplace(2000.0), rng, total=5000)
    alone, both = NaiveMLE().fit(good), NaiveMLE().fit([good, bad])
    np.testing.assert_allclose(both.marginals.flat, alone.marginals.flat, atol=1e-3)


@pytest.mark.parametrize("has_zeros", [False, True])
def test_consistency_projection_changes_no_estimate_with_a_ridge_for_each_table(has_zeros):
    impossible = [(("a", 0), ("b", 1))] if has_zeros else []
    model = specification(
        {"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]}, [("a", "b"), ("b", "c"), ("c", "a")], impossible
    )
    rng = np.random.default_rng(10)
    counts, _ = simulated_counts(model, 500, rng)
    laws = {("a", "b"): Laplace(2.0), ("b", "c"): Laplace(15.0), ("c", "a"): Laplace(6.0)}
    noisy = model.tables(counts + np.repeat([2.0, 15.0, 6.0], [6, 6, 4]) * rng.laplace(size=16))
    release = NoisyStatistics.from_tables(model, dict(noisy), noise=laws, total=500)
    evidence = gather(release)
    free = evidence.possible
    ridge = np.repeat(pool(evidence).ridges(evidence), np.diff(model.offsets))[free]
    target = (release.tables.flat / 500)[free]

    def negative(theta):
        full = np.full(model.size, -np.inf)
        full[free] = theta
        energies = log_joint(model, full)
        value = np.logaddexp.reduce(energies) - target @ theta + theta @ (ridge * theta)
        return value, tables_of(model, probabilities(model, full))[
            free
        ] - target + 2 * ridge * theta

    reference = minimize(
        negative, np.zeros(free.sum()), jac=True, method="BFGS", options={"gtol": 1e-9}
    )
    full = np.full(model.size, -np.inf)
    full[free] = reference.x
    solution = NaiveMLE(projection="none").fit(release)
    np.testing.assert_allclose(
        solution.marginals.flat, tables_of(model, probabilities(model, full)), atol=1e-6
    )


def test_zeros_that_others_imply_are_taken_out_as_well():
    model = specification(
        {"a": [0, 1], "b": [0, 1], "c": [0, 1]},
        [("a", "b"), ("b", "c")],
        [(("b", 1), ("c", 0)), (("b", 1), ("c", 1))],
    )
    rng = np.random.default_rng(11)
    counts, _ = simulated_counts(model, 1000, rng)
    assert counts[model.tables(counts).offsets[0] + 1] == 0  # (a, b) = (0, 1) cannot occur either
    release = noisy_release(model, counts, Laplace(3.0), rng, total=1000)
    for estimator in (NaiveMLE(ridge=0.0), NaiveMLE()):
        solution = estimator.fit(release)
        assert solution.status is Status.CONVERGED
        np.testing.assert_allclose(solution.marginals.flat, counts / 1000, atol=0.02)


def test_an_estimated_total_that_may_be_nothing_is_not_trusted():
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    nothing = NoisyStatistics.from_tables(
        model, {("a", "b"): [[-9, 3], [2, -20]]}, noise=Laplace(10.0)
    )
    for estimator in (NaiveMLE(), CGM()):
        solution = estimator.fit(nothing)
        assert solution.status is Status.NOT_TRUSTED
        assert solution.stats["total"] == 1.0
        assert solution.stats["estimated_total"] == -24.0


def test_a_network_that_factors_cannot_hold_is_refused_not_wrong():
    model = specification(
        {v: [0, 1, 2] for v in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    )
    rng = np.random.default_rng(1)
    counts, _ = simulated_counts(model, 300, rng)
    refused = 0
    for _ in range(4):
        release = noisy_release(model, counts, Laplace(4.0), rng, total=300)
        solution = NaiveMLE(ridge=1e-6, projection="none").fit(release)
        tables = solution.marginals
        with contextlib.suppress(ModelError):
            factors = [f.values for f in solution.network.get_factors()]
            joint = np.einsum("ab,bc,cd,da->abcd", *factors)
            np.testing.assert_allclose(joint.sum(axis=(2, 3)), tables["a", "b"], atol=1e-8)
            continue
        refused += 1
    assert refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ridge": -1.0}, "`ridge` must be at least 0"),
        ({"ridge": float("nan")}, "`ridge` must be at least 0"),
        ({"projection": "clip"}, "`projection` must be 'simplex', 'none' or"),
        ({"inference": "magic"}, "`inference` must be"),
        ({"iterations": 0}, "`iterations` must be a whole number of at least 1"),
        ({"tolerance": float("nan")}, "`tolerance` must be positive"),
    ],
)
def test_settings_outside_their_range_are_refused(settings, message):
    with pytest.raises(ArgumentError, match=message):
        NaiveMLE(**settings)


def test_joint_fit_refuses_one_release_twice_and_populations_of_other_size_or_states():
    rng = np.random.default_rng(12)
    counts, _ = simulated_counts(CYCLE, 1000, rng)
    one, two = (noisy_release(CYCLE, counts, Laplace(5.0), rng) for _ in range(2))
    with pytest.raises(ArgumentError, match="one release twice"):
        NaiveMLE().fit([one, two, one])
    bigger = noisy_release(CYCLE, 3 * counts, Laplace(5.0), rng)
    with pytest.raises(ModelError, match="agree on its size"):
        NaiveMLE().fit([one, bigger])
    with pytest.raises(ModelError, match="agree on its size"):
        NaiveMLE().fit([one, noisy_release(CYCLE, 3 * counts, Laplace(5.0), rng, total=3000)])
    states = {v: CYCLE.domain.states_of(v) for v in CYCLE.domain.variables}
    other = specification({**states, "b": [0, 1, 2]}, CYCLE.cliques)
    with pytest.raises(ModelError, match="same states of 'b'"):
        NaiveMLE().fit([one, noisy_release(other, counts, Laplace(5.0), rng)])


def test_fit_refuses_what_is_no_release():
    with pytest.raises(
        ArgumentError, match="a release of noisy tables or a list of them, got dict"
    ):
        NaiveMLE().fit({"a": 1})
    with pytest.raises(ArgumentError, match="at least one release"):
        NaiveMLE().fit([])
    with pytest.raises(ArgumentError, match="got int"):
        NaiveMLE().fit([3])


def test_tables_without_noise_report_the_documented_numbers_of_a_search():
    counts, _ = simulated_counts(CYCLE, 500, np.random.default_rng(1))
    release = NoisyStatistics.from_tables(CYCLE, dict(CYCLE.tables(counts)), noise=NoNoise())
    assert {"iterations", "evaluations", "seconds", "ridge"} <= set(NaiveMLE().fit(release).stats)
