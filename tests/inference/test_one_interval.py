"""One `interval` for all results over variables: lists of conditions, and variables that no clique holds."""

import itertools

import numpy as np
import pandas as pd
import pytest
from inference.conftest import AWKWARD, noisy_release, specification
from inference.posterior.drawn import drawn_posterior, release_of
from scipy.special import expit, logit
from scipy.stats import norm

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError, NoIntervalError
from bayesprivmrf.inference import AnswersPerRecord, NaiveMLE, NoiseAwareMAP, Result
from bayesprivmrf.inference.noise_aware import standard_errors
from bayesprivmrf.marginals import Elimination, Factor, between, marginal_of
from bayesprivmrf.mechanisms import PrivateFrankWolfe, SelectMeasure, reference
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.plots import marginal_forest
from bayesprivmrf.privacy import Laplace

STATES = {"b": ["y", "x"], 0: [2, 0, 1], "a": [0, 1]}
CLIQUES = [("b", 0), (0, "a")]
MODELS = {name: model for name, model in AWKWARD.items() if name not in ("empty", "single")}
MODELS["odd names"] = (
    {0: [True, "x"], 1: [("t", 1), ("t", 2), 3], ("a", "b"): [1, 0], "only": ["o"]},
    [(0, 1), (1, ("a", "b")), ("only", 0)],
)
NUMBERS = ["estimate", "lower", "upper"]


def records(size=3000, seed=0):
    rng = np.random.default_rng(seed)
    b = rng.integers(0, 2, size)
    middle = np.where(rng.random(size) < 0.5, b, rng.integers(0, 3, size))
    a = np.where(rng.random(size) < 0.6, middle % 2, 0)
    return pd.DataFrame({"b": np.array(["x", "y"])[b], 0: middle, "a": a})


def chain_release():
    steps = (("p", "q"), ("q", "r"))
    domain = Domain.from_states({v: ["low", "high"] for v in "pqr"})
    chain = ModelSpecification(domain=domain, cliques=steps, ties=(steps,), shares_transitions=True)
    start, rows = np.array([0.5, 0.5]), np.array([[0.8, 0.2], [0.3, 0.7]])
    second = start @ rows
    counts = 2000 * np.concatenate(
        [(start[:, None] * rows).ravel(), (second[:, None] * rows).ravel()]
    )
    return noisy_release(chain, counts, Laplace(2.0), np.random.default_rng(2), total=2000)


@pytest.fixture(scope="module")
def results():
    """A result of every class over variables, by name."""
    network = bpm.declare(states=STATES, cliques=CLIQUES)
    release = bpm.mechanisms.LaplaceStatistics(epsilon=1.0).release(network, records(), rng=1)
    free = bpm.declare(states=STATES)
    rounds = SelectMeasure(rho=0.05, workload=CLIQUES).release(free, records(), rng=1)
    pairs = SelectMeasure(rho=1.0, degree=1).release(free, records(), rng=1)
    with_pairs = PrivateFrankWolfe(rho=1.0, width=1.0, steps=3).release(free, records(), rng=1)
    return {
        "uniform": bpm.uniform_solution(network),
        "naive": NaiveMLE().fit(release),
        "cgm": bpm.CGM().fit(release),
        "reference": reference(network, records()),
        "noise-aware": NoiseAwareMAP().fit(release),
        "loopy": NoiseAwareMAP(inference="loopy").fit(release),
        "transitions": NoiseAwareMAP().fit(chain_release()),
        "posterior": drawn_posterior(release_of(specification(STATES, CLIQUES)), 40),
        "rounds": rounds.solution,
        "learned in rounds": rounds,
        "learned pairs": pairs,
        "pairs' solution": pairs.solution,
        "Frank-Wolfe": with_pairs,
    }


def wide_release(model, records=200):
    """A release of uniform tables; a model of many variables has too many joint states to draw records from them."""
    counts = np.concatenate(
        [np.full(int(np.prod(shape)), records / np.prod(shape)) for shape in model.shapes]
    )
    return noisy_release(model, counts, Laplace(1.0), np.random.default_rng(1), total=records)


WITHOUT = {"uniform", "naive", "cgm", "reference", "pairs' solution", "Frank-Wolfe"}


def names_of(result):
    return result.specification.domain.variables


def test_every_result_answers_or_says_that_it_has_no_intervals(results):
    for name, result in results.items():
        assert isinstance(result, Result)
        assert type(result).interval is Result.interval
        variables = list(names_of(result))[:1]
        if name in WITHOUT:
            with pytest.raises(NoIntervalError, match="no measure of its error"):
                result.interval(variables)
        else:
            frame = result.interval(variables)
            assert list(frame.columns) == [*NUMBERS, "status", "note"]
            assert frame["note"].str.len().min() > 0
        assert float(result.marginal(variables).sum()) == pytest.approx(1.0)
        if name != "loopy":
            assert len(result.sample(5, rng=1)) == 5
        assert result.assumptions[-1] == "The records are a simple random sample of the population."
        assert isinstance(result.problems, tuple)


def test_a_list_of_conditions_has_the_rows_of_the_separate_calls(results):
    for name, result in results.items():
        first, second, *_ = names_of(result)
        states = result.specification.domain.states_of(second)
        whole = result.marginal([first], given=[second])
        assert whole.dims == tuple(map(str, (second, first)))
        for position, state in enumerate(states):
            alone = result.marginal([first], given={second: state})
            np.testing.assert_array_equal(whole.values[position], alone.values)
        if name in WITHOUT:
            continue
        frame = result.interval([first], 0.8, given=[second])
        assert list(frame.index.names) == [second, first]
        parts = [result.interval([first], 0.8, given={second: state}) for state in states]
        stacked = pd.concat(parts)
        for column in frame:
            assert list(frame[column]) == list(stacked[column])
        labels = result.specification.domain.states_of(first)
        assert list(frame.index) == list(itertools.product(states, labels))


def test_a_list_of_several_variables_takes_their_joint_states_in_turn(results):
    result = results["noise-aware"]
    frame = result.interval(["a"], given=["b", 0])
    assert list(frame.index.names) == ["b", 0, "a"]
    assert len(frame) == 12
    own = result.interval(["a"], given={"b": "x", 0: 1})
    place = list(frame.index).index(("x", 1, 0))
    assert frame.iloc[place : place + 2].to_dict("list") == own.to_dict("list")
    table = result.marginal("a", given=["b", 0])
    np.testing.assert_allclose(table.sum("a"), 1.0)
    np.testing.assert_allclose(frame["estimate"], table.values.ravel(), atol=1e-9)


def test_a_variable_that_is_called_like_a_column_keeps_its_level():
    model = specification({"status": [0, 1], "note": ["u", "v"]}, [("status", "note")])
    fit = NoiseAwareMAP().fit(release_of(model))
    frame = fit.interval(["status"], given=["note"])
    assert list(frame.index.names) == ["note_", "status_"]
    assert set(frame.reset_index().columns) == {*frame.columns, "note_", "status_"}


@pytest.mark.parametrize("name", list(MODELS))
def test_draws_of_variables_that_no_clique_holds_are_those_of_one_draw_after_the_other(name):
    model = specification(*MODELS[name])
    posterior = drawn_posterior(release_of(model), 4)
    each = [posterior.solution_at(0, draw) for draw in range(4)]
    domain = model.domain
    everything = domain.variables
    asked = [*itertools.permutations(everything, 2), everything, everything[::-1]]
    for query in map(list, asked):
        others = [v for v in everything if v not in query]
        conditions = [None, *({v: domain.states_of(v)[-1]} for v in others[:1])]
        conditions += [{v: set(domain.states_of(v)[:2])} for v in others[-1:]]
        for given in conditions:
            expected = np.mean([draw.marginal(query, given=given) for draw in each], axis=0)
            found = posterior.marginal(query, given=given)
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_draws_are_eliminated_in_parts_alike(monkeypatch):
    posterior = drawn_posterior(release_of(specification(*AWKWARD["three-way"])), 20)
    whole = posterior.interval(["a", "d", "b"])
    monkeypatch.setattr("bayesprivmrf.marginals.joint._PART", 1)
    pd.testing.assert_frame_equal(posterior.interval(["a", "d", "b"]), whole)


def test_the_cliques_between_those_asked_are_a_path():
    scopes = [(v, v + 1) for v in range(9)]
    parents = [v - 1 for v in range(9)]
    assert sorted(between(scopes, parents, [0, 9])) == list(range(9))
    assert sorted(between(scopes, parents, [3, 5])) in ([2, 3, 4], [3, 4], [3, 4, 5], [2, 3, 4, 5])
    assert between([(0,), (1,)], [-1, -1], [0]) == {0: -1}
    plan = Elimination.of([2, 3, 2], [(0, 1), (1, 2)], (0, 2))
    values = np.random.default_rng(1).random((5, 2, 3))
    other = np.random.default_rng(2).random((5, 3, 2))
    found = plan.joint([Factor(scope=(0, 1), values=values), Factor(scope=(1, 2), values=other)])
    expected = values @ other
    np.testing.assert_allclose(found, expected / expected.sum(axis=(1, 2), keepdims=True))


def test_no_draw_underflows_on_a_long_chain():
    chain = specification(
        {f"x{i}": [0, 1] for i in range(60)}, [(f"x{i}", f"x{i + 1}") for i in range(59)]
    )
    posterior = drawn_posterior(wide_release(chain), 10)
    far = posterior.marginal(["x0", "x59"])
    assert float(far.sum()) == pytest.approx(1.0)
    np.testing.assert_allclose(far.sum("x59"), posterior.marginal(["x0"]), atol=1e-9)


@pytest.mark.parametrize("name", ["tree", "cycle", "three-way", "disconnected", "one state"])
def test_a_query_of_variables_that_no_clique_holds_is_answered(name):
    model = specification(*AWKWARD[name])
    first, last = model.domain.variables[0], model.domain.variables[-1]
    if name in ("cycle", "three-way"):  # whose first and last share a clique
        first, last = "a" if name == "cycle" else "c", "c" if name == "cycle" else "d"
    release = release_of(model)
    asked = q.table(first, last)
    for fit in (NoiseAwareMAP().fit(release), drawn_posterior(release, 30)):
        table = fit.interval([first, last])
        answers = fit.interval(asked)
        np.testing.assert_allclose(answers[NUMBERS], table[NUMBERS], atol=1e-6)
        assert list(answers["status"]) == list(table["status"])
        assert not (answers["status"] == "ok").any()
        assert answers["note"].str.contains("declared:|prior|normal").all()


def test_a_query_of_scopes_within_and_without_cliques_has_the_derivative_of_its_answer():
    model = specification(
        {v: ["l", "m", "h"] for v in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d")]
    )
    fit = NoiseAwareMAP().fit(release_of(model, records=5000, total=5000))
    found = fit.interval(q.pooled([("a", "b"), ("a", "d")]))
    mode = fit.mode
    family = mode.means.evidence.family

    def answers(beta):
        flat = family.potentials(beta)
        return sum(
            marginal_of(model.cardinalities, model.scopes, flat, scope)
            for scope in ((0, 1), (0, 3))
        ).ravel()

    beta = mode.coordinates
    np.testing.assert_allclose(found["estimate"], answers(beta), atol=1e-9)
    steps = 1e-5 * np.eye(len(beta))
    rows = np.array([(answers(beta + s) - answers(beta - s)) / 2e-5 for s in steps]).T
    one = found["estimate"].to_numpy()
    answers = AnswersPerRecord(values=one, rows=rows, single=one)
    errors = standard_errors(mode, answers, (0.0, 2.0))
    half = norm.ppf(0.95) * errors
    on_log_odds = 2 * expit(logit(one / 2) + half)
    on_answers = one + half * one * (2 - one) / 2
    reached = np.maximum(on_log_odds, on_answers) - one
    np.testing.assert_allclose(found["upper"] - one, reached, rtol=1e-4)


def test_what_is_too_large_or_not_told_is_refused_with_the_remedy():
    states = {f"x{i}": list(range(10)) for i in range(12)}
    model = specification(states, [(f"x{i}", f"x{i + 1}") for i in range(11)])
    posterior = drawn_posterior(wide_release(model), 10)
    everything = list(states)
    for ask in (posterior.interval, posterior.marginal):
        with pytest.raises(
            ModelTooLargeError, match="ask for fewer variables at a time, or condition"
        ):
            ask(everything)
    solution = bpm.uniform_solution(model)
    with pytest.raises(ModelTooLargeError, match="ask for fewer variables at a time, or condition"):
        solution.marginal(everything)
    with pytest.raises(ArgumentError, match="at most 10,000 joint states, got 100,000"):
        solution.marginal(["x0"], given=everything[1:6])
    with pytest.raises(ModelError, match="share a clique"):
        posterior.interval(["x0", "x3"], of="records")
    with pytest.raises(ModelError, match="share a clique"):
        posterior.interval(q.table("x0", "x3"), of="records")
    small = specification(*AWKWARD["tree"])
    loopy = NoiseAwareMAP(inference="loopy").fit(release_of(small))
    with pytest.raises(ModelError, match="under loopy inference only variables of one clique"):
        loopy.interval(q.table("a", "c"))
    with pytest.raises(ArgumentError, match="`given` must be for variables, got a query"):
        loopy.interval(q.table("a"), given=["b"])
    impossible = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")], [(("a", 0),)])
    fit = NoiseAwareMAP().fit(release_of(impossible))
    with pytest.raises(ModelError, match="`given` must be able to occur"):
        fit.interval(["b"], given={"a": 0})


@pytest.mark.parametrize("name", ["mode", "posterior"])
def test_a_conditional_table_has_rows_without_numbers_for_states_that_cannot_occur(name):
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")], [(("a", 0),)])
    if name == "mode":
        fit = NoiseAwareMAP().fit(release_of(model))
    else:
        fit = drawn_posterior(release_of(model))
    frame = fit.interval(["b"], given=["a"])
    assert frame.loc[0, NUMBERS].isna().to_numpy().all()
    assert set(frame.loc[0, "status"]) == {"not trusted"}
    assert frame.loc[0, "note"].str.contains("cannot occur: a=0").all()
    pd.testing.assert_frame_equal(
        frame.loc[1, NUMBERS], fit.interval(["b"], given={"a": 1})[NUMBERS]
    )
    table = fit.marginal(["b"], given=["a"])
    assert np.isnan(table.sel(a=0)).all()
    assert table.sel(a=1).sum() == pytest.approx(1)
    figure = marginal_forest({"one": fit}, ["b"], given=["a"])
    assert len(figure.axes[0].get_yticklabels()) == 5


def test_a_forest_draws_a_conditional_table(results):
    fit = results["noise-aware"]
    figure = marginal_forest(
        {"one": fit}, ["a"], given=["b"], truth=results["reference"], holdout=records()
    )
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["a given b", "y: 0", "y: 1", "x: 0", "x: 1"]
    figure = marginal_forest({"one": fit}, ["a"], given={0: {1, 2}})
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["a given 0 = 2 or 1", "0", "1"]
    many = {f"fit {number}": fit for number in range(12)}
    titles = [
        panel.get_title(loc="left") for panel in marginal_forest(many, ["a"], given=["b"]).axes
    ]
    assert titles[0] == "a = 0 given b = y"
    with pytest.raises(ModelError, match="other variables than those asked for"):
        marginal_forest({"one": fit}, ["a"], given=["a"])
