import numpy as np
import pytest
from inference.conftest import (
    joint_states,
    noisy_release,
    probabilities,
    simulated_counts,
    specification,
    tables_of,
)
from scipy.optimize import linprog, minimize

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference import CGM, NaiveMLE, Status, discrepancy, e_step, gather
from bayesprivmrf.noise.kernels import ABSOLUTE, SQUARE
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace, NoNoise
from bayesprivmrf.release import NoisyStatistics

CHAIN = specification({"a": [0, 1, 2], "b": [0, 1], "c": [0, 1, 2]}, [("a", "b"), ("b", "c")])
WIDE_LOOP = specification(
    {name: list(range(4)) for name in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
)
LOOP = specification(
    {"a": [0, 1], "b": [0, 1, 2], "c": [0, 1], "d": [0, 1]},
    [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")],
)


def e_step_value(model, release, potentials, counts):
    """The published objective, equation (6): θ'n + H(n) + log p(y | n), H from the joint by brute force."""
    # the entropy of the model with marginals n / N is the conjugate of A
    total = release.total
    result = minimize(
        lambda t: (
            total * np.logaddexp.reduce(_energies(model, t)) - t @ counts,
            total * tables_of(model, probabilities(model, t)) - counts,
        ),
        np.zeros(model.size),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-7},
    )
    log_density = sum(
        law.log_density(release.tables.table(i) - model.tables(counts).table(i)).sum()
        for i, law in enumerate(release.noise)
    )
    return potentials @ counts + result.fun + log_density


def _energies(model, potentials):
    from inference.conftest import log_joint

    return log_joint(model, potentials)


@pytest.mark.parametrize("law", [Laplace(4.0), Gaussian(5.0)])
@pytest.mark.parametrize("model", [LOOP], ids=["loop"])
def test_dual_e_step_maximises_the_published_objective(model, law):
    rng = np.random.default_rng(11)
    counts, _ = simulated_counts(model, 300, rng)
    release = noisy_release(model, counts, law, rng, total=300)
    evidence = gather(release)
    theta = 0.5 * rng.normal(size=model.size)
    step = e_step.dual_e_step(e_step.EStepProblem(evidence, evidence.engine("exact"), theta))
    best = 300 * step.marginals
    value = e_step_value(model, release, theta, best)
    for _ in range(3):  # any other consistent table with total N, near or far, is no better
        other = 300 * tables_of(model, rng.dirichlet(np.ones(len(joint_states(model)))))
        for share in (1e-2, 1e-1, 0.5):
            assert (
                e_step_value(model, release, theta, best + share * (other - best)) <= value + 1e-3
            )


def test_tilt_is_the_noises_score_where_the_residual_is_not_zero():
    rng = np.random.default_rng(12)
    counts, _ = simulated_counts(LOOP, 500, rng)
    release = noisy_release(LOOP, counts, Laplace(6.0), rng, total=500)
    evidence = gather(release)
    step = e_step.dual_e_step(
        e_step.EStepProblem(evidence, evidence.engine("exact"), np.zeros(LOOP.size))
    )
    residual = evidence.noisy_counts - 500 * step.marginals
    clear = np.abs(residual) > 1.0
    assert clear.any()
    np.testing.assert_allclose(step.tilt[clear], np.sign(residual[clear]) / 6.0, atol=1e-9)
    assert np.abs(step.tilt).max() <= 1 / 6.0 + 1e-12


def test_dual_e_step_is_the_fixed_point_of_the_published_iteration_under_gaussian_noise():
    rng = np.random.default_rng(13)
    counts, _ = simulated_counts(LOOP, 200, rng)
    evidence = gather(noisy_release(LOOP, counts, Gaussian(20.0), rng, total=200))
    engine = evidence.engine("exact")
    theta = 0.3 * rng.normal(size=LOOP.size)
    dual = e_step.dual_e_step(e_step.EStepProblem(evidence, engine, theta))
    published = e_step.nonlinear_belief_propagation(
        e_step.EStepProblem(evidence, engine, theta),
        damping=0.2,
        is_smoothed=False,
        iterations=500,
        start=engine.marginals(theta)[1],
    )
    assert published.converged
    np.testing.assert_allclose(published.marginals, dual.marginals, atol=2e-4)


def test_published_iteration_with_laplace_sign_and_constant_damping_cycles_but_smoothed_settles():
    rng = np.random.default_rng(14)
    counts, _ = simulated_counts(LOOP, 10_000, rng)
    release = noisy_release(LOOP, counts, Laplace(8.0), rng, total=10_000)
    evidence = gather(release)
    engine = evidence.engine("exact")
    theta = CGM().fit(release).potentials.flat  # near the end of EM, where residuals change sign
    settings = {"iterations": 1000, "start": engine.marginals(theta)[1]}
    for damping in (1.0, 0.5, 0.1, 0.01):
        step = e_step.nonlinear_belief_propagation(
            e_step.EStepProblem(evidence, engine, theta),
            damping=damping,
            is_smoothed=False,
            **settings,
        )
        assert not step.converged
    smooth = e_step.nonlinear_belief_propagation(
        e_step.EStepProblem(evidence, engine, theta),
        damping=None,
        is_smoothed=True,
        **settings,
    )
    assert smooth.converged


def test_steps_in_a_small_box_still_move_where_the_signal_is_strong():
    rng = np.random.default_rng(24)
    counts, _ = simulated_counts(WIDE_LOOP, 1_000_000, rng)
    release = noisy_release(WIDE_LOOP, counts, Laplace(1000.0), rng, total=1_000_000)
    one = CGM(steps=1, stopping="none").fit(release)
    uniform = np.full(WIDE_LOOP.size, 1 / 16)
    expected = (
        np.sign(release.tables.flat / 1_000_000 - uniform) / 1000
    )  # every cell is far from its count
    evidence = gather(release)
    step = e_step.dual_e_step(
        e_step.EStepProblem(evidence, evidence.engine("exact"), np.zeros(WIDE_LOOP.size)),
        slack=1000.0,
    )
    np.testing.assert_allclose(step.tilt, expected, atol=1e-12)
    assert np.abs(one.marginals.flat - uniform).max() > 1e-5
    fitted = CGM().fit(release)
    assert fitted.status is Status.STOPPED_EARLY
    assert np.abs(fitted.marginals.flat - counts / 1_000_000).mean() < 1500 / 1_000_000


def test_closed_form_m_step_equals_maximum_likelihood_on_the_inferred_counts():
    rng = np.random.default_rng(15)
    counts, _ = simulated_counts(LOOP, 400, rng)
    release = noisy_release(LOOP, counts, Gaussian(10.0), rng, total=400)
    closed = CGM(steps=5, stopping="none", acceleration=1.0).fit(release)
    published = CGM(
        steps=5, stopping="none", acceleration=1.0, e_step="nlbp", damping=0.1, nlbp_iterations=400
    ).fit(release)
    np.testing.assert_allclose(published.marginals.flat, closed.marginals.flat, atol=5e-4)


def test_one_step_is_naive_maximum_likelihood_confined_to_a_box():
    rng = np.random.default_rng(16)
    counts, _ = simulated_counts(CHAIN, 200, rng)
    release = noisy_release(CHAIN, counts, Laplace(5.0), rng, total=200)
    solution = CGM(steps=1, stopping="none", acceleration=1.0).fit(release)
    y = release.tables.flat / 200
    reference = minimize(
        lambda t: (
            np.logaddexp.reduce(_energies(CHAIN, t)) - y @ t,
            tables_of(CHAIN, probabilities(CHAIN, t)) - y,
        ),
        np.zeros(CHAIN.size),
        jac=True,
        bounds=[(-1 / 5.0, 1 / 5.0)] * CHAIN.size,
        options={"gtol": 1e-10, "ftol": 0},
    )
    np.testing.assert_allclose(
        solution.marginals.flat, tables_of(CHAIN, probabilities(CHAIN, reference.x)), atol=5e-4
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_run_to_the_end_em_is_the_l1_projection_of_the_noisy_tables(seed):
    rng = np.random.default_rng(seed)
    counts, _ = simulated_counts(CHAIN, 300, rng)
    release = noisy_release(CHAIN, counts, Laplace(10.0), rng, total=300)
    solution = CGM(steps=20_000, stopping="none", acceleration=1.5).fit(release)
    y = release.tables.flat
    x = joint_states(CHAIN)
    vertices = np.array([tables_of(CHAIN, np.eye(len(x))[i]) for i in range(len(x))]).T
    size, states = vertices.shape
    cost = np.concatenate(
        [np.zeros(states), np.ones(size)]
    )  # min sum u, |y - 300 V p| <= u, p in simplex
    above = np.block([[300 * vertices, -np.eye(size)], [-300 * vertices, -np.eye(size)]])
    optimum = linprog(
        cost,
        A_ub=above,
        b_ub=np.concatenate([y, -y]),
        A_eq=np.concatenate([np.ones(states), np.zeros(size)])[None],
        b_eq=[1.0],
    )
    reached = np.abs(y - 300 * solution.marginals.flat).sum()
    assert optimum.fun - 1e-6 <= reached <= optimum.fun * 1.005


def test_blocks_of_steps_follow_the_path_of_single_steps():
    rng = np.random.default_rng(17)
    counts, _ = simulated_counts(WIDE_LOOP, 2000, rng)
    release = noisy_release(WIDE_LOOP, counts, Laplace(20.0), rng, total=2000)
    single = CGM(steps=60, stopping="none", acceleration=1.0).fit(release)
    blocks = CGM(steps=60, stopping="none", acceleration=1.5).fit(release)
    early = CGM(steps=20, stopping="none", acceleration=1.0).fit(release)
    assert single.stats["blocks"] == 60
    assert blocks.stats["blocks"] < 15
    apart = np.abs(blocks.marginals.flat - single.marginals.flat).max()
    assert apart < 0.5 * 20 / 2000  # half the noise scale
    assert apart < 0.25 * np.abs(early.marginals.flat - single.marginals.flat).max()


def test_stopping_rule_uses_the_release_alone_and_stops_before_the_noise_is_fitted():
    rng = np.random.default_rng(18)
    counts, truth = simulated_counts(WIDE_LOOP, 1000, rng)
    release = noisy_release(WIDE_LOOP, counts, Laplace(30.0), rng)
    stopped = CGM().fit(release)
    again = CGM().fit(release)
    full = CGM(stopping="none", steps=3000).fit(release)
    assert stopped.status is Status.STOPPED_EARLY
    np.testing.assert_array_equal(stopped.potentials.flat, again.potentials.flat)
    p = probabilities(WIDE_LOOP, truth)

    def kl(solution):
        energies = _energies(WIDE_LOOP, solution.potentials.flat)
        return float(p @ (np.log(p) - energies + np.logaddexp.reduce(energies)))

    assert kl(stopped) < 0.5 * kl(full)


def test_a_total_far_off_does_not_let_the_path_run_into_the_noise():
    rng = np.random.default_rng(25)
    for _ in range(5):
        counts, truth = simulated_counts(WIDE_LOOP, 1000, rng)
        noisy = noisy_release(WIDE_LOOP, counts, Laplace(60.0), rng)
        release = NoisyStatistics.from_tables(
            WIDE_LOOP, dict(noisy.tables), noise=Laplace(60.0), total=450
        )
        p = probabilities(WIDE_LOOP, truth)
        energies = _energies(WIDE_LOOP, CGM().fit(release).potentials.flat)
        kl = float(p @ (np.log(p) - energies + np.logaddexp.reduce(energies)))
        assert kl < 1.5 * float(p @ (np.log(p) + np.log(len(p))))  # uniform's


@pytest.mark.parametrize("scale", [0.5, 3.0, 40.0])
def test_expected_residual_matches_simulation(scale):
    rng = np.random.default_rng(19)
    for sampling in (0.0, 1.0, 900.0):
        draws = rng.laplace(0, scale, 400_000) + np.sqrt(sampling) * rng.normal(size=400_000)
        error = np.abs(draws).std() / np.sqrt(draws.size)
        value = float(
            discrepancy.expected_residual(np.array(scale), np.array(ABSOLUTE), np.array(sampling))
        )
        assert abs(np.abs(draws).mean() - value) < 4.5 * error  # two-sided level below 1e-5
    gaussian = float(discrepancy.expected_residual(np.array(3.0), np.array(SQUARE), np.array(16.0)))
    assert gaussian == pytest.approx(5 * np.sqrt(2 / np.pi))


def test_every_awkward_model_is_fitted_with_and_without_known_total(awkward):
    rng = np.random.default_rng(20)
    counts, _ = simulated_counts(awkward, 500, rng)
    for total in (500, None):
        solution = CGM().fit(noisy_release(awkward, counts, DiscreteLaplace(3.0), rng, total=total))
        assert solution.status in (Status.STOPPED_EARLY, Status.CONVERGED)
        p = probabilities(awkward, solution.potentials.flat)
        np.testing.assert_allclose(solution.marginals.flat, tables_of(awkward, p), atol=1e-9)


def test_structural_zeros_hold():
    model = specification(
        {"a": ["x", "y"], "b": [0, 1, 2], "c": [0, 1]},
        [("a", "b"), ("b", "c"), ("c", "a")],
        [(("a", "x"), ("b", 1))],
    )
    rng = np.random.default_rng(21)
    counts, _ = simulated_counts(model, 400, rng)
    solution = CGM().fit(noisy_release(model, counts, Laplace(5.0), rng))
    assert not solution.marginals.flat[~model.possible].any()
    assert solution.status is Status.STOPPED_EARLY


def test_joint_fit_of_two_releases_is_closer_than_either(awkward):
    if awkward.size < 4:
        pytest.skip("one or no table: nothing to pool")
    rng = np.random.default_rng(22)
    errors = np.zeros(2)
    for _ in range(4):
        counts, truth = simulated_counts(awkward, 300, rng)
        releases = [noisy_release(awkward, counts, Laplace(20.0), rng) for _ in range(4)]
        expected = tables_of(awkward, probabilities(awkward, truth))
        for k, given in enumerate([releases[0], releases]):
            errors[k] += ((CGM().fit(given).marginals.flat - expected) ** 2).sum()
    assert errors[1] < errors[0]


def test_loopy_marginals_on_a_tree_give_the_exact_estimate_and_on_a_loop_say_approximate():
    rng = np.random.default_rng(23)
    counts, _ = simulated_counts(CHAIN, 500, rng)
    release = noisy_release(CHAIN, counts, Laplace(5.0), rng)
    exact, loopy = CGM().fit(release), CGM(inference="loopy").fit(release)
    np.testing.assert_allclose(loopy.marginals.flat, exact.marginals.flat, atol=2e-4)
    counts, _ = simulated_counts(LOOP, 500, rng, scale=0.5)
    release = noisy_release(LOOP, counts, Laplace(5.0), rng)
    loopy = CGM(inference="loopy").fit(release)
    assert loopy.status is Status.APPROXIMATE
    exact = CGM().fit(release)
    np.testing.assert_allclose(loopy.marginals.flat, exact.marginals.flat, atol=0.05)
    assert NaiveMLE(inference="loopy").fit(release).status is Status.APPROXIMATE


def test_loopy_marginals_of_several_releases_go_by_the_models_own_factor_graph():
    states = {v: [0, 1] for v in "abcde"}
    tree = specification(states, [("a", "b"), ("b", "c"), ("b", "d"), ("d", "e")])
    nested = specification(states, [("b", "a"), ("c",), ("d",), ("e",)])
    rng = np.random.default_rng(26)
    counts, _ = simulated_counts(tree, 2000, rng, scale=1.5)
    releases = [noisy_release(tree, counts, Laplace(10.0), rng, total=2000) for _ in range(2)]
    exact = tree.tables(counts)
    parts = [
        exact["b", "a"].ravel(),
        exact["b", "c"].sum(0),
        exact["d", "e"].sum(1),
        exact["d", "e"].sum(0),
    ]
    releases.append(noisy_release(nested, np.concatenate(parts), Laplace(5.0), rng, total=2000))
    for estimator, loopy in (
        (CGM(), CGM(inference="loopy")),
        (NaiveMLE(), NaiveMLE(inference="loopy")),
    ):
        np.testing.assert_allclose(
            loopy.fit(releases).marginals.flat, estimator.fit(releases).marginals.flat, atol=5e-4
        )


def test_loopy_propagation_that_does_not_settle_is_not_trusted(monkeypatch):
    from bayesprivmrf.marginals.loopy import LoopyEngine

    rng = np.random.default_rng(27)
    counts, _ = simulated_counts(LOOP, 500, rng, scale=0.5)
    release = noisy_release(LOOP, counts, Laplace(5.0), rng)
    original = LoopyEngine.marginals_with_status

    def unsettled(self, potentials):
        value, marginals, _, iterations = original(self, potentials)
        return value, marginals, False, iterations

    monkeypatch.setattr(LoopyEngine, "marginals_with_status", unsettled)
    for estimator in (NaiveMLE(inference="loopy"), CGM(inference="loopy")):
        assert estimator.fit(release).status is Status.NOT_TRUSTED


def test_published_e_step_refuses_what_it_cannot_do():
    rng = np.random.default_rng(28)
    counts, _ = simulated_counts(LOOP, 500, rng)
    release = noisy_release(LOOP, counts, Laplace(5.0), rng)
    with pytest.raises(ArgumentError, match="one noisy table of each clique"):
        CGM(e_step="nlbp").fit([release, noisy_release(LOOP, counts, Laplace(5.0), rng)])
    exact = NoisyStatistics.from_tables(LOOP, dict(LOOP.tables(counts)), noise=NoNoise(), total=500)
    with pytest.raises(ArgumentError, match="needs tables with noise"):
        CGM(e_step="nlbp").fit(exact)
    np.testing.assert_allclose(CGM().fit(exact).marginals.flat, counts / 500, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "`steps` must be at least 1"),
        ({"stopping": "never"}, "`stopping` must be"),
        ({"acceleration": 0.5}, "`acceleration` must be at least 1"),
        ({"e_step": "mcmc"}, "`e_step` must be"),
        ({"damping": 0.0}, "`damping` must be positive"),
        ({"nlbp_iterations": 0}, "`nlbp_iterations` must be"),
        ({"inference": "magic"}, "`inference` must be"),
    ],
)
def test_settings_outside_their_range_are_refused(settings, message):
    with pytest.raises(ArgumentError, match=message):
        CGM(**settings)


def test_the_rule_that_stopped_too_early_is_refused_with_the_one_in_its_place():
    with pytest.raises(ArgumentError, match="use 'balance'"):
        CGM(stopping="discrepancy")
