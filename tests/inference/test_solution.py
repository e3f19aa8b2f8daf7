import numpy as np
import pytest
import xarray as xr
from inference.conftest import (
    joint_states,
    log_joint,
    noisy_release,
    probabilities,
    simulated_counts,
    specification,
    tables_of,
)
from notebook import html_of
from scipy.stats import chi2

from bayesprivmrf.errors import ArgumentError, ModelError, NoIntervalError
from bayesprivmrf.inference import CGM, NaiveMLE, NoiseAwareMAP, Solution, Status, uniform_solution
from bayesprivmrf.model.tables import axis_names
from bayesprivmrf.privacy import Laplace


def solution_of(model, seed=0, scale=1.0, inference="exact"):
    rng = np.random.default_rng(seed)
    potentials = scale * rng.normal(size=model.size)
    if model.possible is not None:
        potentials[~model.possible] = -np.inf
    return Solution(
        specification=model,
        potentials=model.tables(potentials),
        method="test",
        status=Status.CONVERGED,
        inference=inference,
    )


def test_log_partition_and_clique_marginals_match_enumeration(awkward):
    solution = solution_of(awkward)
    energies = log_joint(awkward, solution.potentials.flat)
    assert solution.log_partition == pytest.approx(np.logaddexp.reduce(energies), abs=1e-10)
    p = probabilities(awkward, solution.potentials.flat)
    np.testing.assert_allclose(solution.marginals.flat, tables_of(awkward, p), atol=1e-12)


def test_any_marginal_matches_enumeration_in_the_order_asked(awkward):
    solution = solution_of(awkward)
    x, p = joint_states(awkward), probabilities(awkward, solution.potentials.flat)
    names = awkward.domain.variables
    if not names:
        pytest.skip("no variable to ask for")
    for query in (
        [names[-1]],
        [names[-1], names[0]] if len(names) > 1 else [names[0]],
        list(names[::-1]),
    ):
        positions = [awkward.domain.index(v) for v in query]
        shape = [awkward.cardinalities[v] for v in positions]
        flat = np.ravel_multi_index(tuple(x[:, v] for v in positions), shape)
        expected = np.bincount(flat, weights=p, minlength=int(np.prod(shape))).reshape(shape)
        answer = solution.marginal(query)
        assert isinstance(answer, xr.DataArray)
        named = dict(zip(names, axis_names(awkward.domain), strict=True))
        assert answer.dims == tuple(named[v] for v in query)
        for variable in query:
            assert answer.indexes[named[variable]].tolist() == list(
                awkward.domain.states_of(variable)
            )
        np.testing.assert_allclose(answer.to_numpy(), expected, atol=1e-12)


def test_network_answers_variable_elimination_with_the_same_distribution(awkward):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pgmpy.inference import VariableElimination
    if not awkward.size:
        pytest.skip("pgmpy needs a variable to query")
    solution = solution_of(awkward, scale=3.0)
    assert solution.network.check_model()
    for variable in awkward.domain.variables:
        answer = VariableElimination(solution.network).query([variable], show_progress=False)
        assert answer.state_names[variable] == list(awkward.domain.states_of(variable))
        np.testing.assert_allclose(
            answer.values, solution.marginal([variable]).to_numpy(), atol=1e-10
        )


def test_network_keeps_the_distribution_of_huge_cancelling_potentials():
    model = specification({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, [("a", "b"), ("b", "c")])
    potentials = np.random.default_rng(1).normal(size=8)
    expected = probabilities(model, potentials)
    shifted = model.tables(potentials)
    ab, bc = shifted["a", "b"] + [[0, 2000]], shifted["b", "c"] - [[0], [2000]]
    network = model.to_pgmpy(np.concatenate([ab.ravel(), bc.ravel()]))
    product = np.einsum("ab,bc->abc", *(factor.values for factor in network.get_factors()))
    np.testing.assert_allclose(product.ravel() / product.sum(), expected, atol=1e-12)


def test_samples_follow_the_distribution_and_carry_declared_labels():
    model = specification(
        {0: [30, 10, 20], "flag": [True, False], "c": ["z", "a"]},
        [(0, "flag"), ("flag", "c"), ("c", 0)],
    )
    solution = solution_of(model, seed=3)
    drawn = solution.sample(20_000, rng=7)
    assert list(drawn.columns) == [0, "flag", "c"]
    codes = np.column_stack(
        [
            [model.domain.code(v, label) for label in drawn[v].tolist()]
            for v in model.domain.variables
        ]
    )
    p = probabilities(model, solution.potentials.flat)
    observed = np.bincount(
        np.ravel_multi_index(tuple(codes.T), model.cardinalities), minlength=len(p)
    )
    statistic = ((observed - 20_000 * p) ** 2 / (20_000 * p)).sum()
    assert statistic < chi2.isf(1e-4, len(p) - 1)
    assert drawn.equals(solution.sample(20_000, rng=7))
    assert not drawn.equals(solution.sample(20_000, rng=8))
    assert len(solution.sample(0, rng=1)) == 0


def test_questions_outside_the_model_are_refused():
    model = specification({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, [("a", "b"), ("b", "c")])
    solution = solution_of(model)
    with pytest.raises(ModelError, match="'z' is not declared"):
        solution.marginal(["z"])
    with pytest.raises(ModelError, match="each variable once"):
        solution.marginal(["a", "a"])
    with pytest.raises(ModelError, match="at least one"):
        solution.marginal([])
    for size in (-1, 2.5, True, "many"):
        with pytest.raises(ArgumentError, match="whole number of at least 0"):
            solution.sample(size, rng=1)
    loopy = solution_of(model, inference="loopy")
    with pytest.raises(ModelError, match="of one clique"):
        loopy.marginal(["a", "c"])
    with pytest.raises(ModelError, match="exact inference"):
        loopy.sample(3, rng=1)


def test_uniform_solution_is_uniform_over_possible_states():
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")], [(("a", 0), ("b", 0))])
    np.testing.assert_allclose(uniform_solution(model).marginals.flat, [0, 1 / 3, 1 / 3, 1 / 3])


def test_representations_tell_method_status_and_numbers():
    rng = np.random.default_rng(1)
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    counts, _ = simulated_counts(model, 100, rng)
    release = noisy_release(model, counts, Laplace(2.0), rng)
    for estimator in (NaiveMLE(), CGM()):
        solution = estimator.fit(release)
        assert solution.method in repr(solution)
        assert solution.status.value in repr(solution)
        assert "evaluations" in html_of(solution)


def test_a_solution_from_simulated_noise_says_so_when_printed():
    from dataclasses import replace

    rng = np.random.default_rng(2)
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    counts, _ = simulated_counts(model, 100, rng)
    real = noisy_release(model, counts, Laplace(2.0), rng)
    other = noisy_release(model, counts, Laplace(2.0), rng)
    simulated = replace(other, provenance=replace(other.provenance, simulated=True))
    for estimator in (NaiveMLE(), CGM()):
        assert not estimator.fit(real).is_simulated
        both = estimator.fit([real, simulated])
        assert "protects nobody" in repr(both)
        assert "protects nobody" in html_of(both)
        assert "protects nobody" not in repr(estimator.fit(real))


def test_a_fit_runs_on_one_blas_thread_and_gives_the_others_back():
    from threadpoolctl import threadpool_info, threadpool_limits

    from bayesprivmrf.inference.optimize import one_blas_thread

    def threads():
        return {i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        assert one_blas_thread()(threads)() == {1}
        assert threads() == before
    for estimator in (NaiveMLE, CGM):
        assert estimator.fit.__wrapped__ is not None


def test_an_estimate_without_intervals_says_who_has_them():
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    counts = np.array([60.0, 50.0, 40.0, 50.0])
    release = noisy_release(model, counts, Laplace(1.0), np.random.default_rng(3))
    for estimator in (NaiveMLE(), CGM()):
        solution = estimator.fit(release)
        with pytest.raises(
            NoIntervalError, match=r"fit the same release by NoiseAwareMAP\(\) .* LatentCounts\(\)"
        ):
            solution.interval(["a"])
    assert list(NoiseAwareMAP().fit(release).interval(["a"]).index) == [0, 1]
