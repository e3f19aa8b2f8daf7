"""What is called, or looked for, in the wrong place gets an error that says where it belongs."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import mechanisms
from bayesprivmrf.errors import ArgumentError, NoIntervalError
from bayesprivmrf.learning import LearnedPotentials
from bayesprivmrf.mechanisms import DPSGD, LaplaceStatistics, PrivateFrankWolfe, SelectMeasure
from bayesprivmrf.noise import DiscreteLaplace

STATES: Any = {"a": ["u", "v"], "b": [0, 1]}
NETWORK = bpm.declare(STATES, [("a", "b")])
DATA = pd.DataFrame({"a": ["u", "v"] * 10, "b": [0, 1] * 10})
RELEASE: Any = bpm.NoisyStatistics.from_tables(
    NETWORK, {("a", "b"): [[9, 2], [3, 8]]}, noise=DiscreteLaplace(1.0)
)
ESTIMATORS: list[Any] = [bpm.NaiveMLE, bpm.CGM, bpm.NoiseAwareMAP, bpm.LatentCounts]
MECHANISMS = [
    each
    for each in mechanisms.available_mechanisms().values()
    if each.__module__.startswith("bayesprivmrf.")
]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_an_estimator_without_parentheses_asks_for_them(estimator):
    name = estimator.__name__
    for given in ((RELEASE,), (estimator, RELEASE), ()):
        with pytest.raises(
            ArgumentError, match=rf"`{name}.fit` must be called on a {name}, got .*; write {name}\("
        ):
            estimator.fit(*given)
    with pytest.raises(ArgumentError, match=rf"write {name}\(\)\.fit"):
        estimator.fit(releases=RELEASE)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_mechanism_without_parentheses_asks_for_its_settings(mechanism):
    name, loose = mechanism.__name__, mechanism
    settings = inspect.signature(loose).parameters.values()
    needed = ", ".join(f"{one.name}=..." for one in settings if one.default is one.empty)
    for method, given in (
        ("release", (NETWORK, DATA)),
        ("promise", (NETWORK,)),
        ("preview", (mechanism, NETWORK)),
    ):
        with pytest.raises(ArgumentError) as refused:
            getattr(loose, method)(*given)
        article = "an" if name.startswith("O") else "a"
        assert str(refused.value).startswith(
            f"`{name}.{method}` must be called on {article} {name}, got "
        )
        assert f"write {name}({needed}).{method}(...)" in str(refused.value)


def test_a_method_of_an_object_is_the_method_itself():
    made = bpm.NaiveMLE()
    assert bpm.NaiveMLE.fit(made, RELEASE).status is made.fit(RELEASE).status
    asked = ["releases", "population", "model"]
    assert [*inspect.signature(bpm.NaiveMLE.fit).parameters] == ["self", *asked]
    assert [*inspect.signature(made.fit).parameters] == asked
    assert bpm.NaiveMLE.fit.__doc__ == made.fit.__doc__
    assert LaplaceStatistics.promise(LaplaceStatistics(epsilon=1.0), NETWORK) is not None


@pytest.mark.parametrize(
    ("made", "remedy"),
    [
        (LaplaceStatistics, "epsilon=..."),
        (SelectMeasure, "rho=..."),
        (DPSGD, "epsilon=..., delta=..."),
        (bpm.NoiseAwareMAP, "scale=..."),
        (bpm.LatentCounts, "formulation=..."),
        (bpm.NaiveMLE, "ridge=..."),
    ],
)
def test_a_setting_by_position_is_asked_for_by_name(made: Any, remedy):
    with pytest.raises(ArgumentError) as refused:
        made(1.0)
    message = f"the settings of {made.__name__} must be given by name, got 1.0; write {made.__name__}({remedy})."
    assert str(refused.value) == message
    with pytest.raises(ArgumentError, match="must be given by name, got a DataFrame; write"):
        made(DATA)


def test_a_class_in_place_of_an_object_is_named():
    solution = bpm.NaiveMLE().fit(RELEASE)
    made: Any = bpm.NoisyStatistics
    for call in (
        lambda: bpm.NoiseAwareMAP().fit(made),
        lambda: bpm.compare({"x": made}, truth=solution),
        lambda: bpm.kl_divergence(made, solution),
        lambda: bpm.uniform_solution(made),
        lambda: bpm.sequences.transition_matrix(made),
    ):
        with pytest.raises(ValueError, match="got the class NoisyStatistics"):
            call()


# methods that results of another kind have, and what makes those
ELSEWHERE = {
    "quantity": "LatentCounts().fit(release)",
    "edge_presence": "LatentCounts().fit(release)",
    "predictive_check": "LatentCounts().fit(release)",
    "synthetic": "LatentCounts().fit(release)",
    "network_at": "LatentCounts().fit(release)",
    "graph": "SelectMeasure(rho=...).release(network, data)",
    "association": "SelectMeasure(rho=...).release(network, data)",
    "couplings_interval": "SelectMeasure(rho=...).release(network, data)",
}


@pytest.mark.parametrize("estimator", [bpm.NaiveMLE, bpm.NoiseAwareMAP])
@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_solution_names_the_result_that_has_a_method(estimator, name):
    solution = estimator().fit(RELEASE)
    remedy = ELSEWHERE[name]
    owner = bpm.Posterior if remedy.startswith("LatentCounts") else LearnedPotentials
    assert hasattr(owner, name)  # so that the remedy is true
    with pytest.raises(AttributeError) as refused:
        getattr(solution, name)
    kind = type(solution).__name__
    assert str(refused.value).startswith(f"a {kind} has no `{name}`; ")
    assert remedy in str(refused.value)
    assert not hasattr(solution, name)


def test_releases_and_learned_models_name_what_answers():
    for name in ("interval", "marginal", "probability", "sample"):
        with pytest.raises(
            AttributeError,
            match=rf"a NoisyStatistics has no `{name}`; the result of NoiseAwareMAP\(\)",
        ):
            getattr(RELEASE, name)
        assert hasattr(bpm.NoiseAwareMAP().fit(RELEASE), name)
    learned: Any = PrivateFrankWolfe(rho=1.0, width=1.0, steps=2).release(
        bpm.declare(STATES), DATA, rng=1
    )
    with pytest.raises(AttributeError, match="has no `probability`; its `solution` has it"):
        learned.probability({"a": 0})
    assert learned.solution.marginal(["a"]).sum() == pytest.approx(1.0)


def test_attributes_that_nothing_has_keep_the_error_and_suggestion_of_python():
    solution: Any = bpm.NaiveMLE().fit(RELEASE)
    with pytest.raises(
        AttributeError, match="'Solution' object has no attribute 'margnal'"
    ) as refused:
        solution.margnal(["a"])
    assert (refused.value.name, refused.value.obj) == ("margnal", solution)
    assert not hasattr(solution, "__name__")  # which its class has


def test_errors_of_properties_are_their_own():
    solution: Any = bpm.NaiveMLE().fit(RELEASE)
    with pytest.raises(NoIntervalError, match="no measure of its error"):
        solution.interval(["a"])
    answers = bpm.NoisyStatistics.from_measurements(
        NETWORK, [bpm.Measurement(bpm.queries.table("a"), np.array([11, 9]), DiscreteLaplace(1.0))]
    )
    with pytest.raises(AttributeError, match="holds answers to queries and no tables"):
        _ = answers.tables


def test_results_are_still_copied_and_pickled():
    solution = bpm.NaiveMLE().fit(RELEASE)
    for again in (
        copy.copy(solution),
        copy.deepcopy(solution),
        pickle.loads(pickle.dumps(solution)),
    ):
        assert np.array_equal(again.potentials.flat, solution.potentials.flat)
    for made in (bpm.NoiseAwareMAP(scale=2.0), LaplaceStatistics(epsilon=1.0)):
        assert pickle.loads(pickle.dumps(made)) == copy.deepcopy(made) == made
