"""Releases of one population with different variables are one release of all their measurements."""

import numpy as np
import pytest
from inference.conftest import simulated_counts, specification

from bayesprivmrf import queries as q
from bayesprivmrf.errors import DeclarationWarning, ModelError
from bayesprivmrf.inference import CGM, LatentCounts, NaiveMLE, NoiseAwareMAP, gather
from bayesprivmrf.model import ModelSpecification, markov_chain
from bayesprivmrf.privacy import Laplace
from bayesprivmrf.release import Measurement, NoisyStatistics

STATES = {"a": [0, 1], "b": ["x", "y", "z"], "d": [0, 1], "c": [1, 0]}
UNION = specification(STATES, [("a", "b"), ("b", "c"), ("c", "d")])
FIRST = specification({v: STATES[v] for v in "ab"}, [("a", "b")])
SECOND = specification(
    {v: STATES[v] for v in "dcb"}, [("b", "c"), ("c", "d")]
)  # another order of variables
COUNTS, _ = simulated_counts(UNION, 600, np.random.default_rng(2))


def noisy(model, counts, *queries):
    rng, law = np.random.default_rng(3), Laplace(4.0)
    exact = [query.bind(model).answers(counts) for query in queries]
    return NoisyStatistics.from_measurements(
        model,
        [
            Measurement(query, values + law.draw(values.shape, rng), law)
            for query, values in zip(queries, exact, strict=True)
        ],
    )


def alone(states):
    model = specification(states, [tuple(states)])
    return noisy(model, 400 / model.size + np.arange(model.size), q.table(*states))


@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.SamplingWarning"
)  # twenty draws are not mixed
@pytest.mark.parametrize(
    "estimator", [NaiveMLE(), CGM(), NoiseAwareMAP(), LatentCounts()], ids=lambda each: each.method
)
def test_releases_with_different_variables_are_one_release_of_the_union(estimator):
    apart = [
        noisy(FIRST, COUNTS[:6], q.table("a", "b")),
        noisy(SECOND, COUNTS[6:], *(q.table(*c) for c in SECOND.cliques)),
    ]
    given = [each for release in apart for each in release.measurements]
    settings = (
        {"rng": 1, "draws": 20, "tune": 20, "chains": 2} if "posterior" in estimator.method else {}
    )
    joint = estimator.fit(apart, **settings)
    assert joint.specification == UNION
    same = estimator.fit(NoisyStatistics.from_measurements(UNION, given), **settings)
    # a sampler visits the measurements in another order, so that its draws differ
    tolerance = 0.03 if settings else 1e-4
    assert np.allclose(joint.marginals.flat, same.marginals.flat, atol=tolerance)
    if not isinstance(estimator, (NaiveMLE, CGM)):
        assert joint.interval(["a", "c"])["note"].str.contains("a ⟂ c | b", regex=False).all()


def test_answers_to_queries_are_those_of_the_model_that_was_asked():
    """Parities of "all pairs" are of the pairs that each release declared, and not of the union's."""
    apart = [noisy(FIRST, COUNTS[:6], q.parities(2)), noisy(SECOND, COUNTS[6:], q.parities(2))]
    exact = np.concatenate(
        [
            q.parities(2).bind(FIRST).answers(COUNTS[:6]),
            q.parities(2).bind(SECOND).answers(COUNTS[6:]),
        ]
    )
    np.testing.assert_allclose(gather(apart).gathered(COUNTS), exact)


def test_a_clique_of_one_release_may_lie_inside_that_of_another():
    model = specification({"c": [1, 0], "b": ["x", "y", "z"], "d": [0, 1]}, [("c", "b", "d")])
    inside = (
        noisy(FIRST, COUNTS[:6], q.table("a", "b")),
        noisy(SECOND, COUNTS[6:], q.table("b", "c")),
    )
    of_b_and_c = COUNTS[6:12].reshape(3, 2)
    larger = noisy(
        model, np.repeat(of_b_and_c.T.ravel() / 2, 2), q.table("c", "b", "d")
    )  # the same people
    joint = gather([*inside, larger])
    assert joint.specification.cliques == (("a", "b"), ("c", "b", "d"))
    assert np.isfinite(NaiveMLE().fit([*inside, larger]).marginals.flat).all()


def test_shared_variables_have_the_same_states_label_by_label_and_in_order():
    for states in ([1, 0], [0, 1, 2], [False, True]):
        with pytest.raises(ModelError, match=r"same states of 'a'.*different names"):
            gather([alone({"a": [0, 1], "b": [0, 1]}), alone({"a": states, "c": [0, 1]})])


def test_releases_without_a_link_are_said_to_tell_nothing_of_each_other():
    first, second = alone({"a": [0, 1], "b": [0, 1]}), alone({"c": [0, 1, 2, 3]})
    with pytest.warns(
        DeclarationWarning, match="links 'c' to 'a': they say nothing about each other"
    ) as caught:
        solution = NaiveMLE().fit([first, second])
    assert caught[0].filename == __file__
    assert np.allclose(
        solution.marginal(["a", "c"]), np.outer(solution.marginal(["a"]), solution.marginal(["c"]))
    )
    gather([first, second, alone({"b": [0, 1], "c": [0, 1, 2, 3]})])  # warnings are errors here


def test_shared_potentials_are_those_of_every_release():
    chain = ModelSpecification.from_pgmpy(markov_chain(["n", "y"], 3, share="transitions"))
    counts, _ = simulated_counts(chain, 400, np.random.default_rng(1))
    whole = noisy(chain, counts, *(q.table(*clique) for clique in chain.cliques))
    first = chain.domain.variables[0]
    more = specification({first: ["n", "y"], "sex": ["f", "m"]}, [(first, "sex")])
    other = noisy(more, np.array([80.0, 90, 110, 120]), q.table(first, "sex"))
    with pytest.raises(
        ModelError, match="declare the same ties, scores and levels for every release"
    ):
        gather([whole, other])


def test_a_release_of_queries_says_that_it_has_no_tables():
    release = noisy(FIRST, COUNTS[:6], q.parities(2))
    assert not release.has_tables
    with pytest.raises(ModelError, match="read `measurements`"):
        release.tables  # noqa: B018
