"""What learned models of every kind have in common: a graph, couplings, a vector, a solution of one distribution."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.learning import LearnedIsing, LearnedMonomials, LearnedPairwise, LearnedPotentials
from bayesprivmrf.model import Domain, ModelSpecification, Monomials
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import Provenance

STAMP = {
    "guarantee": PrivacyGuarantee(rho=1.0, adjacency="replace-one"),
    "provenance": Provenance(mechanism="made up"),
}
BINARY = Domain.from_states(
    {"z": ["no", "yes"], 0: [True, False], "a": [1, 2], "lonely": ["p", "q"]}
)
MIXED = Domain.from_states({"z": ["no", "yes"], 0: [7, 5, 6], "one": ["x"], "a": [1, 2, 3, 4]})


def monomials(order=2) -> LearnedMonomials:
    sets = Monomials.complete(4, order)
    rng = np.random.default_rng(3)
    return LearnedMonomials(
        domain=BINARY, sets=sets, coefficients=rng.normal(size=len(sets)), **STAMP
    )


def potentials(
    domain=BINARY, cliques=(("a", "z"), (0, "a"), ("lonely",)), impossible=()
) -> LearnedPotentials:
    model = ModelSpecification(domain=domain, cliques=cliques, impossible=impossible)
    flat = np.random.default_rng(4).normal(size=model.size)
    if model.possible is not None:
        flat[~model.possible] = -np.inf
    return LearnedPotentials(domain=domain, model=model, tables=model.tables(flat), **STAMP)


def ising() -> LearnedIsing:
    A = np.zeros((4, 4))
    A[0, 1] = A[1, 0] = -0.4
    return LearnedIsing(domain=BINARY, coupling_matrix=A, field_vector=np.ones(4), **STAMP)


def pairwise() -> LearnedPairwise:
    W = np.zeros((10, 10))
    W[:2, 2:5] = np.outer([1, -1], [0.5, -0.2, -0.3])
    return LearnedPairwise(
        domain=MIXED, coupling_matrix=W + W.T, field_vector=np.zeros(10), **STAMP
    )


def log_probabilities(model) -> np.ndarray:
    """Of all records, from the potentials alone."""
    cells = np.array(list(itertools.product(*map(range, model.domain.cardinalities))))
    found = np.zeros(len(cells))
    for scope, table in zip(model.specification.scopes, model.potentials.values(), strict=True):
        found += np.asarray(table)[tuple(cells[:, list(scope)].T)]
    return found - np.log(np.exp(found).sum())


@pytest.mark.parametrize("make", [monomials, potentials])
def test_couplings_and_fields_of_two_states_say_the_same_distribution(make):
    model = make()
    A, h = model.couplings, model.fields
    assert A.dims == ("variable", "other")
    assert h.dims == ("variable",)
    assert (
        list(A.coords["other"].values)
        == list(h.coords["variable"].values)
        == list(BINARY.variables)
    )
    spins = np.array(list(itertools.product([-1, 1], repeat=4)))
    expected = np.einsum("ri,ij,rj->r", spins, A.values, spins) / 2 + spins @ h.values
    np.testing.assert_allclose(
        log_probabilities(model), expected - np.log(np.exp(expected).sum()), atol=1e-12
    )


def test_couplings_and_fields_of_any_alphabet_say_the_same_distribution():
    model = potentials(MIXED, cliques=(("a", "z"), (0, "a"), ("one", "z"), ("one",)))
    names, W, theta = MIXED.variables, model.couplings, model.fields
    expected = []
    for cell in itertools.product(*map(range, MIXED.cardinalities)):
        at = dict(zip(names, cell, strict=True))
        pairs = sum(float(W[i, j].values[at[i], at[j]]) for i, j in W)
        expected.append(pairs + sum(float(theta[v].values[at[v]]) for v in names))
    expected = np.array(expected)
    np.testing.assert_allclose(
        log_probabilities(model), expected - np.log(np.exp(expected).sum()), atol=1e-12
    )
    assert all(np.abs(W[pair].values.sum(axis=axis)).max() < 1e-12 for pair in W for axis in (0, 1))
    assert W["a", "z"].dims == ("a", "z")


@pytest.mark.parametrize("name", ["couplings", "fields"])
@pytest.mark.parametrize(
    ("model", "remedy"),
    [
        (monomials(order=3), "3 variables; use `potentials`"),
        (potentials(cliques=(("a", "z", 0), ("lonely",))), "3 variables; use `potentials`"),
        (potentials(impossible=((("a", 1), ("z", "no")),)), "impossible cells; use `potentials`"),
    ],
)
def test_a_model_of_more_than_pairs_says_what_to_use(model, remedy, name):
    with pytest.raises(ModelError, match=remedy):
        getattr(model, name)


@pytest.mark.parametrize("make", [ising, pairwise, monomials, potentials])
@pytest.mark.parametrize("threshold", [math.nan, -0.1, math.inf, -math.inf, True, "0.1"])
def test_a_threshold_that_is_no_size_is_refused(make, threshold):
    with pytest.raises(ArgumentError, match="`threshold` must be at least 0 and finite"):
        make().graph(threshold)


@pytest.mark.parametrize("make", [ising, pairwise, monomials, potentials])
def test_an_edge_is_there_where_its_weight_exceeds_the_threshold(make):
    model = make()
    whole = model.graph()
    weights = sorted(abs(weight) for *_, weight in whole.edges(data="weight"))
    assert weights
    assert all(weight > 0 for weight in weights)
    for threshold in (0.0, np.float32(0.1), weights[0], weights[-1]):
        graph = model.graph(threshold)
        assert list(graph.nodes) == list(model.domain.variables)
        expected = {frozenset(e[:2]) for e in whole.edges(data="weight") if abs(e[2]) > threshold}
        assert {frozenset(edge) for edge in graph.edges} == expected


def test_one_coupling_is_one_pair():
    assert "couplings  1 pair\n" in repr(ising())
    assert "interactions  6 of 2, 4 of 3 variables\n" in repr(monomials(order=3))


# one vector of parameters


@pytest.mark.parametrize("make", [ising, pairwise, monomials, potentials])
def test_a_vector_says_all_parameters(make):
    model = make()
    vector = model.vector()
    again = model.with_vector(vector)
    np.testing.assert_array_equal(again.vector(), vector)
    np.testing.assert_array_equal(again.potentials.flat, model.potentials.flat)
    half = model.with_vector(vector / 2)
    np.testing.assert_allclose(half.solution.potentials.flat, model.potentials.flat / 2, atol=1e-15)
    assert (half.provenance, half.domain) == (model.provenance, model.domain)


@pytest.mark.parametrize("make", [ising, pairwise, monomials])
def test_labels_say_which_entry_of_the_vector_a_coupling_or_field_is(make):
    model = make()
    for of, held in (("couplings", model.couplings), ("fields", model.fields)):
        labels, values = model.labels(of), model.vector()[model.places(of)]
        for label, value in zip(labels, values, strict=True):
            if make is ising:
                expected = (
                    held.sel(variable=label)
                    if of == "fields"
                    else held.sel(variable=label[0], other=label[1])
                )
            elif make is monomials:
                place = [BINARY.variables.index(v) for v in label]
                expected = held.values[tuple(place)]
            else:
                variables, states = (
                    (label[:1], label[1:]) if of == "fields" else (label[:2], label[2:])
                )
                table = held[variables if of == "couplings" else variables[0]]
                codes = [MIXED.code(v, state) for v, state in zip(variables, states, strict=True)]
                expected = table.values[tuple(codes)]
            assert value == pytest.approx(float(expected), abs=1e-12)
    pairs = {
        frozenset(model.labels("couplings")[k][:2]) for k in range(len(model.labels("couplings")))
    }
    assert len(pairs) == 6


def test_a_declared_model_has_no_labels_of_learned_couplings():
    with pytest.raises(ModelError, match="a model of learned potentials has no intervals"):
        potentials().couplings_interval()


# one idea, one face


@pytest.mark.parametrize("make", [ising, pairwise, monomials, potentials])
def test_the_solution_of_a_learned_model_says_its_distribution(make):
    model = make()
    solution = model.solution
    assert isinstance(solution, bpm.Solution)
    names, cards = model.domain.variables, model.domain.cardinalities
    joint = np.exp(log_probabilities(model)).reshape(cards)
    found = solution.marginal([names[3], names[0]])
    np.testing.assert_allclose(found.values, joint.sum(axis=(1, 2)).T, atol=1e-12)
    assert solution.method == "made up"
    assert solution.status is model.status is bpm.Status.APPROXIMATE
    assert bpm.kl_divergence(model, solution) == pytest.approx(0.0, abs=1e-12)
    assert bpm.kl_divergence(solution.network, model) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("make", [ising, pairwise, monomials, potentials])
def test_a_model_and_its_solution_draw_the_same_records(make):
    model = make()
    records = model.sample(40, rng=3)
    assert records.equals(model.solution.sample(40, rng=3))
    with pytest.raises(TypeError):  # the seed has a name
        model.sample(40, 3)
    for size in (-1, 2.5, True):
        with pytest.raises(ArgumentError, match="`size` must be"):
            model.sample(size, rng=1)


@pytest.mark.parametrize("status", bpm.Status)
def test_a_status_is_an_enumeration_and_its_text(status):
    model = LearnedIsing(
        domain=BINARY,
        coupling_matrix=np.zeros((4, 4)),
        field_vector=np.zeros(4),
        details={"status": status.value},
        **STAMP,
    )
    assert model.status is status is model.solution.status
    assert model.status == status.value == str(model.status) == f"{model.status}"
    assert "status" not in model.solution.stats


def test_a_model_too_wide_for_exact_inference_has_a_solution_that_refuses_marginals_alone():
    p = 60
    A = np.full((p, p), 0.01) - 0.01 * np.eye(p)
    domain = Domain.from_states({f"v{i}": [0, 1] for i in range(p)})
    wide = LearnedIsing(domain=domain, coupling_matrix=A, field_vector=np.zeros(p), **STAMP)
    with pytest.raises(ModelTooLargeError):
        wide.solution.marginal(["v0"])
    records = wide.sample(30, rng=1)
    assert records.equals(wide.solution.sample(30, rng=1))
    assert np.isnan(
        bpm.compare({"wide": wide}, holdout=records).loc["wide", "holdout_log_likelihood"]
    )


def test_a_learned_model_is_drawn_and_compared_like_its_solution():
    from bayesprivmrf.plots import edge_marginals, marginal_forest

    model = ising()
    truth = bpm.uniform_solution(model.specification)
    both = bpm.compare({"model": model, "solution": model.solution}, truth=truth)
    assert both.loc["model"].equals(both.loc["solution"])
    shown = [
        marginal_forest({"it": each}, ["z", 0], truth=model) for each in (model, model.solution)
    ]
    points = [np.ma.getdata(figure.axes[0].collections[0].get_offsets()) for figure in shown]
    np.testing.assert_array_equal(*points)
    assert edge_marginals(model, {"it": model.solution}).axes
