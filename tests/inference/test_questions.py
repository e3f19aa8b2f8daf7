"""Conditionals, probabilities, what they rest on, and balanced records, against enumeration."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from inference.conftest import (
    AWKWARD,
    joint_states,
    noisy_release,
    probabilities,
    simulated_counts,
    specification,
)
from inference.posterior.drawn import drawn_posterior, release_of
from inference.test_solution import solution_of
from marginals.models import AWKWARD as LAYOUTS
from repeats import few
from scipy.stats import norm

from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.inference import (
    FittedPotentials,
    NoiseAwareMAP,
    Status,
    answers_per_record,
    limits_of_draws,
)
from bayesprivmrf.inference.asked import Asked
from bayesprivmrf.inference.noise_aware import standard_errors
from bayesprivmrf.learning.models import LearnedSolution
from bayesprivmrf.marginals import Layout, array_engine, clamped, marginal_of, sample
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.cliques import declared_independences
from bayesprivmrf.privacy import Laplace

ODD = (
    {0: [True, "x"], 1: [("t", 1), ("t", 2), 3], ("a", "b"): [1, 0], "only": ["o"]},
    [(0, 1), (1, ("a", "b")), ("only", 0)],
    [((0, "x"), (1, 3))],
)
MODELS = {**{name: model for name, model in AWKWARD.items() if name != "empty"}, "odd names": ODD}


@pytest.fixture(params=list(MODELS))
def model(request):
    return specification(*MODELS[request.param])


def questions(model, seed, count=12):
    """Asked variables, and given states or sets of states, in random orders and numbers."""
    rng = np.random.default_rng(seed)
    names = model.domain.variables
    for _ in range(count):
        order = [names[v] for v in rng.permutation(len(names))]
        asked = order[: rng.integers(1, len(order) + 1)]
        given = {}
        for v in order[len(asked) :][: rng.integers(0, len(order))]:
            states = model.domain.states_of(v)
            some = [
                states[k] for k in rng.permutation(len(states))[: rng.integers(1, len(states) + 1)]
            ]
            given[v] = [some[0], some, set(some), frozenset(some), (*some, some[0])][
                rng.integers(5)
            ]
        yield asked, given


def enumerated(model, p, asked, given):
    """Table of the asked variables among the joint states that agree with what is given; None if none does."""
    x = joint_states(model)
    fits = np.ones(len(x), dtype=bool)
    for v, state in given.items():
        several = list(state) if isinstance(state, set | frozenset | list) else [state]
        if isinstance(state, tuple) and state not in model.domain.states_of(v):
            several = list(state)
        fits &= np.isin(
            x[:, model.domain.index(v)], [model.domain.code(v, label) for label in several]
        )
    weights = p * fits
    if not weights.sum() > 0:
        return None
    positions = [model.domain.index(v) for v in asked]
    table = np.zeros([model.cardinalities[v] for v in positions])
    np.add.at(table, tuple(x[:, v] for v in positions), weights / weights.sum())
    return table


def test_conditionals_and_probabilities_are_those_of_enumeration(model):
    solution = solution_of(model, seed=1)
    p = probabilities(model, solution.potentials.flat)
    for asked, given in questions(model, 2):
        expected = enumerated(model, p, asked, given)
        if expected is None:
            with pytest.raises(ModelError, match="`given` must be able to occur"):
                solution.marginal(asked, given=given)
            continue
        found = solution.marginal(asked, given=given)
        np.testing.assert_allclose(found.to_numpy(), expected, atol=1e-12)
        assert found.dims == solution.marginal(asked).dims
        cell = tuple(np.random.default_rng(3).integers(expected.shape))
        event = {v: model.domain.states_of(v)[code] for v, code in zip(asked, cell, strict=True)}
        assert solution.probability(event, given=given) == pytest.approx(expected[cell], abs=1e-12)


def test_draws_of_a_posterior_answer_as_their_own_enumeration(model):
    posterior = drawn_posterior(release_of(model), 12)
    for asked, given in questions(model, 4, 4):
        each = [
            enumerated(
                model,
                probabilities(model, posterior.solution_at(0, d).potentials.flat),
                asked,
                given,
            )
            for d in range(12)
        ]
        if each[0] is None:
            for ask in (posterior.marginal, posterior.interval):
                with pytest.raises(
                    ModelError, match=r"`given` must be able to occur.* in draws of this posterior"
                ):
                    ask(asked, given=given)
            continue
        mean = np.mean(each, axis=0)
        np.testing.assert_allclose(
            posterior.marginal(asked, given=given).to_numpy(), mean, atol=1e-10
        )
        frame = posterior.interval(asked, prob=0.5, given=given)
        np.testing.assert_allclose(frame["estimate"], mean.ravel(), atol=1e-10)
        # limits move to 0 or 1 where the measured counts allow an empty cell, which no draw has
        upper = limits_of_draws(np.array([each]), 0.5, (0, 1))[1].ravel()
        assert (frame["upper"].to_numpy() >= upper - 1e-10).all()
        assert (frame["lower"].to_numpy() <= mean.ravel()).all()
        event = dict(
            zip(asked, frame.index[-1] if len(asked) > 1 else frame.index[-1:], strict=True)
        )
        found = posterior.probability(event, 0.5, given=given)
        assert float(found.estimate) == pytest.approx(frame["estimate"].iloc[-1], abs=1e-10)
        assert float(found.upper) == pytest.approx(frame["upper"].iloc[-1], abs=1e-10)
        assert (found.status, found.note) == tuple(frame.iloc[-1][["status", "note"]])
        assert found.draws.dims == ("chain", "draw")


def test_a_conditional_on_what_hardly_ever_happens_keeps_its_digits():
    model = specification({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, [("a", "b"), ("b", "c")])
    solution = solution_of(model)
    rare = solution.potentials.flat.copy()
    rare[[1, 3]] -= 2000.0  # b = 1 has probability exp(-2000)
    rare = type(solution)(
        specification=model, potentials=model.tables(rare), method="x", status=solution.status
    )
    for asked in (["a"], ["c"], ["a", "c"]):
        np.testing.assert_allclose(
            rare.marginal(asked, given={"b": 1}),
            solution.marginal(asked, given={"b": 1}),
            rtol=1e-9,
        )
    assert rare.probability({"b": 1}) == 0.0
    assert rare.probability({"a": 0}, given={"b": 1}) == pytest.approx(
        solution.probability({"a": 0}, given={"b": 1}), rel=1e-9
    )


def test_shares_of_records_are_those_of_each_draws_whole_counts():
    posterior = drawn_posterior(release_of(specification(*AWKWARD["tree"])), 200, concentration=1.0)
    table = np.maximum(np.rint(posterior.tree["posterior"]["counts[a,b]"].values[0]), 0)
    for given, states in (("x", [0]), ({"x", "z"}, [0, 2]), (["z", "y", "x"], [0, 1, 2])):
        counts = table[:, :, states].sum(axis=2)
        frame = posterior.interval(["a"], of="records", given={"b": given})
        if not (counts.sum(axis=1) > 0).all():
            raise AssertionError("another seed is needed")
        shares = counts / counts.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(frame["estimate"], shares.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(
            frame["lower"], limits_of_draws(shares[np.newaxis], 0.9, (0, 1))[0], atol=1e-12
        )
    with pytest.raises(ModelError, match="share a clique"):
        posterior.interval(["a"], of="records", given={"c": 0})
    none = drawn_posterior(
        release_of(specification(*AWKWARD["tree"]), total=2, records=2), 50, concentration=1.0
    )
    frame = none.interval(["a"], of="records", given={"b": "x"})
    assert frame["note"].str.contains("no record has b=x").all()


def test_questions_that_cannot_be_answered_are_refused_in_words():
    model = specification(*AWKWARD["tree"])
    solution = solution_of(model)
    posterior = drawn_posterior(release_of(model), 10)
    fitted = NoiseAwareMAP().fit(release_of(model))
    for ask in (solution.marginal, posterior.marginal, posterior.interval, fitted.interval):
        for given, error, words in (
            ({"z": 0}, ModelError, "'z' is not declared"),
            ({"b": "w"}, ModelError, "no state 'w'"),
            ({"b": pd.Series(["secret"])}, ModelError, "no state Series"),
            ({"b": {"x", "w"}}, ModelError, "no state 'w'"),
            ({"b": ("x", "w")}, ModelError, "no state 'w'"),
            ({"b": ["x", ["y"]]}, ModelError, "no state list"),
            (
                {"b": set()},
                ModelError,
                "`given` must name at least one state of 'b', got an empty set",
            ),
            ({"b": {"x": "y"}}, ModelError, "no state dict"),
            ({"b": "xy"}, ModelError, "no state 'xy'"),
            ({"a": 1}, ModelError, "other variables than those asked for, got 'a'"),
            ([("b", "x")], ModelError, r"\('b', 'x'\) is not declared"),
            ([], ModelError, "`given` must name at least one variable"),
            (["b", "b"], ModelError, "`given` must name each variable once"),
            (["a"], ModelError, "other variables than those asked for, got 'a'"),
            ({"b"}, ArgumentError, "`given` must map variables to states, or list variables"),
            ("b", ArgumentError, "got a str"),
        ):
            with pytest.raises(error, match=words) as caught:
                ask(["a"], given=given)
            assert "secret" not in str(caught.value)
    for ask in (solution.probability, posterior.probability):
        for states, error, words in (
            ({}, ModelError, "at least one variable"),
            (["a"], ArgumentError, "`states` must map variables"),
            ({"a": 2}, ModelError, "no state 2"),
        ):
            with pytest.raises(error, match=words):
                ask(states)
        with pytest.raises(ModelError, match="got 'a' in both"):
            ask({"a": 1}, given={"a": 0})
    with pytest.raises(ArgumentError, match="`prob`"):
        posterior.probability({"a": 1}, 90)


def test_loopy_inference_answers_within_a_clique_alone():
    model = specification(*AWKWARD["cycle"])
    solution = solution_of(model, inference="loopy")
    table = solution.marginal(["a", "b"])
    expected = table.sel(b=1) / table.sel(b=1).sum()
    np.testing.assert_allclose(solution.marginal(["a"], given={"b": 1}), expected)
    assert solution.probability({"a": 1}, given={"b": 1}) == pytest.approx(float(expected.sel(a=1)))
    either = table.sel(b=[1, 2]).sum("b")
    np.testing.assert_allclose(solution.marginal(["a"], given={"b": {1, 2}}), either / either.sum())
    for ask in (
        lambda: solution.marginal(["a"], given={"c": 1}),
        lambda: solution.probability({"a": 1, "c": 0}),
    ):
        with pytest.raises(ModelError, match="loopy inference only variables of one clique"):
            ask()
    fitted = NoiseAwareMAP(inference="loopy").fit(release_of(model))
    with pytest.raises(ModelError, match="loopy inference only variables of one clique"):
        fitted.interval(["a"], given={"c": 1})


@pytest.mark.parametrize("given", [{2: (0,)}, {1: (0, 2)}, {1: (1, 2), 2: (1,)}])
def test_noise_aware_conditionals_have_the_derivative_of_the_conditional(given):
    model = specification(*AWKWARD["three-way"])
    fitted = NoiseAwareMAP().fit(release_of(model, law=Laplace(3.0), records=500, total=None))
    mode = fitted.mode
    beta = mode.coordinates

    def conditional(at):
        potentials = mode.means.evidence.family.potentials(at)
        return marginal_of(model.cardinalities, model.scopes, potentials, (3,), given=given)

    evidence, prob = mode.means.evidence, 0.9
    asked = Asked(model=model, prob=prob, of="population", bound=None, variables=(3,), given=given)
    fit = FittedPotentials(
        evidence=evidence, potentials=evidence.family.potentials(beta), inference="exact"
    )
    answers = answers_per_record(asked, fit, mode.means.effects.pull_back)
    found, errors = answers.values, standard_errors(mode, answers)
    np.testing.assert_allclose(found, conditional(beta), atol=1e-10)
    steps = 1e-5 * np.eye(len(beta))
    rows = np.array([(conditional(beta + s) - conditional(beta - s)) / 2e-5 for s in steps]).T
    from bayesprivmrf.inference.noise_aware import interval as quick

    variance = quick.noise_variances(mode, rows) + quick.sampling_variances(
        mode, rows, found * (1 - found)
    )
    np.testing.assert_allclose(errors, np.sqrt(variance) / (found * (1 - found)), rtol=1e-5)
    for states in ({"c": 1}, {"b": {0, 2}}):
        frame = fitted.interval(["d"], given=states)
        np.testing.assert_allclose(
            frame["estimate"], fitted.marginal(["d"], given=states), atol=1e-9
        )


@pytest.mark.filterwarnings(
    "ignore:the release contradicts the model"
)  # its tables are of no such chain
def test_a_chain_with_one_transition_matrix_has_the_errors_of_the_conditional():
    states = {v: ["low", "middle", "high"] for v in "abcd"}
    steps = (("a", "b"), ("b", "c"), ("c", "d"))
    domain = Domain.from_states(states)
    model = ModelSpecification(domain=domain, cliques=steps, ties=(steps,), shares_transitions=True)
    fitted = NoiseAwareMAP().fit(release_of(model, records=2000, total=None))
    mode = fitted.mode

    def conditional(move):
        potentials = mode.rows.log_tables(*mode.rows.shifted(mode.coordinates, move))
        return marginal_of(
            model.cardinalities, model.scopes, potentials.ravel(), (3,), given={0: (0, 2), 1: (1,)}
        )

    moves = 1e-5 * np.eye(len(mode.coordinates))
    rows = np.array([(conditional(move) - conditional(-move)) / 2e-5 for move in moves]).T
    errors = np.sqrt(np.einsum("ij,jk,ik->i", rows, mode.covariance, rows))
    found = fitted.interval(["d"], given={"a": {"low", "high"}, "b": "middle"})
    estimates = conditional(0 * moves[0])
    np.testing.assert_allclose(found["estimate"], estimates, atol=1e-10)
    limits = np.clip([estimates + z * errors for z in norm.ppf([0.05, 0.95])], 0, 1)
    np.testing.assert_allclose(found[["lower", "upper"]].T, limits, rtol=1e-4)


def test_all_states_of_a_variable_are_no_condition():
    model = specification(*AWKWARD["three-way"])
    for fit in (
        NoiseAwareMAP().fit(release_of(model)),
        drawn_posterior(release_of(specification(*AWKWARD["tree"])), 50),
    ):
        pd.testing.assert_frame_equal(
            fit.interval(["a"])[["estimate", "lower", "upper"]],
            fit.interval(["a"], given={"b": list(fit.specification.domain.states_of("b"))})[
                ["estimate", "lower", "upper"]
            ],
            rtol=1e-9,
        )


def test_what_is_independent_has_the_interval_that_it_has_without_what_is_given():
    model = specification(*AWKWARD["disconnected"])
    fitted = NoiseAwareMAP().fit(release_of(model))
    pd.testing.assert_frame_equal(
        fitted.interval([0])[["lower", "upper"]],
        fitted.interval([0], given={2: 1})[["lower", "upper"]],
        rtol=1e-9,
    )


CHAIN = ({v: [0, 1] for v in "abcde"}, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])


@pytest.mark.parametrize(
    ("declared", "asked", "statements"),
    [
        (CHAIN, "ab", []),
        (CHAIN, "ac", ["a ⟂ c | b"]),
        (CHAIN, "ae", ["a ⟂ e | b", "a ⟂ e | c", "a ⟂ e | d"]),
        (CHAIN, "acb", ["a ⟂ c | b"]),
        (AWKWARD["disconnected"], [0, 2], ["0 ⟂ 2"]),
        (AWKWARD["cycle"], "ac", ["a ⟂ c | b, d"]),
        (AWKWARD["cycle"], "abc", ["a ⟂ c | b, d"]),
        (
            ({v: [0, 1] for v in "abc"}, [("a", "b"), ("b", "c"), ("a", "c")]),
            "abc",
            ["no interaction of a, b, c all together"],
        ),
        (AWKWARD["three-way"], "cd", ["c ⟂ d | a, b"]),
    ],
)
def test_what_an_interval_rests_on_is_named(declared, asked, statements):
    model = specification(*declared)
    assert list(declared_independences(model, [model.domain.index(v) for v in asked])) == statements


def test_each_separator_separates_and_none_is_larger_than_it_must_be():
    rng = np.random.default_rng(5)
    for seed in range(30):
        graph = nx.gnp_random_graph(9, 0.3, seed=seed)
        names = {f"v{v}": [0, 1] for v in graph}
        cliques = [*((f"v{a}", f"v{b}") for a, b in graph.edges), *((f"v{v}",) for v in graph)]
        model = specification(names, cliques)
        a, b = rng.choice(9, 2, replace=False)
        if graph.has_edge(a, b):
            continue
        for statement in declared_independences(model, [a, b]):
            _, _, right = statement.partition(" | ")
            separator = {int(name.strip()[1:]) for name in right.split(",") if name}
            without = graph.subgraph(set(graph) - separator)
            assert not nx.has_path(without, a, b)
            for v in separator:
                assert nx.has_path(graph.subgraph(set(without) | {v}), a, b)


def test_intervals_say_what_they_rest_on_where_they_are_printed():
    model = specification(*AWKWARD["tree"])
    posterior, fitted = (
        drawn_posterior(release_of(model), 10),
        NoiseAwareMAP().fit(release_of(model)),
    )
    for ask in (posterior.interval, fitted.interval):
        apart, together = ask(["a", "c"]), ask(["a", "b"])
        assert apart["note"].str.contains("declared: a ⟂ c | b", regex=False).all()
        assert (apart["status"] != "ok").all()
        assert list(apart.columns) == ["estimate", "lower", "upper", "status", "note"]
        assert not together["note"].str.contains("declared").any()
        assert (
            ask(["a"], given={"c": 1})["note"]
            .str.contains("declared: a ⟂ c | b", regex=False)
            .all()
        )
    assert "declared: a ⟂ c | b" in repr(posterior.probability({"a": 0, "c": 1}))
    assert "declared" not in repr(posterior.probability({"a": 0, "b": "x"}))
    chain = specification(*CHAIN)
    frame = NoiseAwareMAP().fit(release_of(chain)).interval(["a", "e"])
    assert frame["note"].str.contains("declared: a ⟂ e | b; ", regex=False).all()
    assert frame["note"].str.split().str.len().max() <= 20


def table_errors(model, solution, size, seed):
    """Counts less size times probability, of every clique's cells."""
    drawn = solution.sample(size, rng=seed, method="balanced")
    assert list(drawn.columns) == list(model.domain.variables)
    codes = [
        [model.domain.code(v, label) for label in drawn[v].tolist()] for v in model.domain.variables
    ]
    errors = []
    for clique, scope in zip(model.cliques, model.scopes, strict=True):
        counts = np.zeros([model.cardinalities[v] for v in scope])
        np.add.at(counts, tuple(np.array(codes[v], dtype=int) for v in scope), 1)
        errors.append(counts - size * solution.marginals[clique])
    return errors


def cells_to_the_root(model):
    """Cells of the elimination tree between each clique and its root."""
    buckets = array_engine(Layout.build(model.cardinalities, model.scopes)).tree.buckets
    cells = [0] * len(buckets)
    bounds = [0] * len(model.cliques)
    for place in reversed(range(len(buckets))):  # parents come last
        above = [cells[p] for p, other in enumerate(buckets) if place in other.children]
        cells[place] = sum(above) + int(
            np.prod([model.cardinalities[v] for v in buckets[place].scope])
        )
        for clique in buckets[place].factors:
            bounds[clique] = cells[place]
    return bounds


def test_balanced_records_keep_every_table_within_its_bound_whatever_their_number(model):
    solution = solution_of(model, seed=6)
    for size in (0, 1, 7, 1000):
        for errors, bound in zip(
            table_errors(model, solution, size, seed=size), cells_to_the_root(model), strict=True
        ):
            assert np.abs(errors).sum() <= bound + 1e-6
            assert errors.sum() == pytest.approx(0, abs=1e-6)
    if model.possible is not None:
        drawn = solution.sample(500, rng=1, method="balanced")
        assert not ((drawn[0] == "x") & (drawn[1].map(lambda label: label == 3))).any()


@pytest.mark.parametrize(
    "name", few(["three-way cliques", "isolated, with and without a scope", "cycle", "hub"])
)
def test_balanced_records_have_the_right_expectation_of_every_joint_state(name):
    """Two-sided at level 1e-6 over all joint states, from 1,000 sets of five records each."""
    cards, scopes = LAYOUTS[name]
    cards = tuple(min(k, 2) for k in cards)
    layout = Layout.build(cards, scopes)
    theta = np.random.default_rng(7).normal(size=layout.size)
    exact = marginal_of(cards, scopes, theta, tuple(range(len(cards)))).ravel()
    rng, sets, size = np.random.default_rng(8), 1000, 5
    counts = np.zeros((sets, exact.size))
    for row in counts:
        codes = sample(cards, scopes, theta, size, rng, is_balanced=True)
        np.add.at(row, np.ravel_multi_index(tuple(codes.T), cards), 1)
    error = counts.std(axis=0, ddof=1) / np.sqrt(sets)
    level = norm.isf(0.5e-6 / exact.size)
    frequent = exact > 0.02  # where the mean of 1,000 is near enough to normal
    assert np.all(
        np.abs(counts.mean(axis=0) - size * exact)[frequent] < level * error[frequent] + 1e-9
    )
    assert frequent.sum() > 3
    rest = counts[:, ~frequent].sum(axis=1)
    assert (
        abs(rest.mean() - size * exact[~frequent].sum()) < level * rest.std() / np.sqrt(sets) + 1e-9
    )


def test_balanced_records_are_more_even_than_independent_ones_and_repeat_by_seed():
    model = specification(*AWKWARD["tree"])
    solution = solution_of(model, seed=9)
    balanced = [np.abs(e).max() for e in table_errors(model, solution, 20_000, 1)]
    assert max(balanced) < 5  # a sample's cells are off by fifty
    frames = [solution.sample(50, rng=3, method="balanced") for _ in range(2)]
    assert frames[0].equals(frames[1])
    with pytest.raises(ArgumentError, match="`method` must be 'independent' or 'balanced'"):
        solution.sample(3, rng=1, method="exact")
    with pytest.raises(ModelError, match="exact inference"):
        solution_of(model, inference="loopy").sample(3, rng=1, method="balanced")
    posterior = drawn_posterior(release_of(model), 10)
    assert posterior.sample(20, rng=1, method="balanced").equals(
        posterior.solution.sample(20, rng=1, method="balanced")
    )


def test_balanced_records_of_a_learned_model_are_its_solutions_and_never_those_of_chains():
    model = specification(
        {v: [0, 1, 2] for v in range(30)}, [(a, b) for b in range(30) for a in range(b)]
    )
    wide = LearnedSolution(
        specification=model,
        potentials=model.tables(np.zeros(model.size)),
        method="x",
        status=Status.CONVERGED,
    )
    with pytest.raises(ModelTooLargeError):
        wide.sample(5, rng=1, method="balanced")
    own = solution_of(specification(*AWKWARD["tree"]))
    learned = LearnedSolution(
        specification=own.specification,
        potentials=own.potentials,
        method="x",
        status=Status.CONVERGED,
    )
    drawn = learned.sample(60, rng=1, method="balanced")
    assert drawn.equals(own.sample(60, rng=1, method="balanced"))


def test_clamped_potentials_leave_what_agrees_as_it_is():
    theta = np.arange(10.0)
    found = clamped((2, 3), ((0, 1), (0,), (1,)), np.append(theta, 10.0), {0: 1})
    np.testing.assert_array_equal(found, [*[-np.inf] * 3, 3, 4, 5, -np.inf, 7, 8, 9, 10])
    found = clamped((2, 3), ((0, 1), (1,)), np.append(theta[:6], [7, 8, 9]), {1: (2, 0)})
    np.testing.assert_array_equal(found, [0, -np.inf, 2, 3, -np.inf, 5, 7, -np.inf, 9])
    np.testing.assert_array_equal(clamped((), (), np.zeros(0), {}), np.zeros(0))


def test_a_release_of_simulated_counts_is_answered_like_any_other():
    rng = np.random.default_rng(11)
    model = specification(*AWKWARD["cycle"])
    counts, _ = simulated_counts(model, 400, rng)
    fitted = NoiseAwareMAP().fit(noisy_release(model, counts, Laplace(2.0), rng))
    frame = fitted.interval("a", given={"c": 1, "b": 0})
    assert (frame["lower"] < frame["estimate"]).all()
    assert (frame["estimate"] < frame["upper"]).all()
    assert frame["estimate"].sum() == pytest.approx(1)


def test_a_summary_has_what_decides_whether_a_posterior_is_used():
    import json
    from dataclasses import replace

    model = specification(*AWKWARD["tree"])
    posterior = drawn_posterior(release_of(model, total=None), 100, formulation="log-linear")
    problem = "the chains have not mixed: R-hat 1.2; raise `draws`"
    posterior = replace(
        posterior,
        stats={
            "r_hat": 1.2,
            "ess_bulk": 31.4,
            "ess_tail": 1234.5,
            "problems": [problem],
            "seconds": 2.0,
        },
    )
    summary = posterior.summary(prob=0.5)
    drawn = posterior.tree["posterior"]
    assert summary["status"] == "converged"
    assert summary["problems"] == [problem]
    assert summary["r_hat"] == 1.2
    assert summary["records"]["lower"] == pytest.approx(float(drawn["total"].quantile(0.25)))
    assert summary["scale_of_effect_a,b"]["upper"] == pytest.approx(
        float(drawn["scale"].sel(effect="a,b").quantile(0.75))
    )
    assert (summary["chains"], summary["draws"]) == (1, 100)
    shown = repr(summary)
    for text in (
        "PosteriorSummary",
        "have not mixed",
        "r hat",
        "1.2",
        "1,234",
        "scale of effect a",
    ):
        assert text in shown
    assert len(shown.splitlines()) < 20
    assert json.loads(json.dumps(summary)) == summary
    known = drawn_posterior(release_of(model), 10).summary(prob=0.5)
    assert known["prob"] == 0.5
    assert known["records"] == 200
    assert known["problems"] == []
    assert "none" in repr(known)
    with pytest.raises(ArgumentError, match="`prob`"):
        posterior.summary(90)
