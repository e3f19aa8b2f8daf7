"""Released numbers that contradict each other: every point estimator says so, and of noise alone none does."""

import warnings

import numpy as np
import pytest
from repeats import few

from bayesprivmrf.errors import ConsistencyWarning
from bayesprivmrf.inference import CGM, NaiveMLE, NoiseAwareMAP, Status, gather
from bayesprivmrf.inference.criticism import disagreement, shared_margins
from bayesprivmrf.model import declare, markov_chain
from bayesprivmrf.privacy import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, NoNoise
from bayesprivmrf.queries import coarsened, table
from bayesprivmrf.release import Measurement, NoisyStatistics

PAIR = declare({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
CHAIN = declare({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, [("a", "b"), ("b", "c")])
THREE = declare({"a": ["x", "y", "z"], "b": [0, 1]}, [("a", "b")])
TIED = declare(
    {v: [0, 1] for v in "abc"}, [("a",), ("a", "b"), ("b", "c")], tied=[[("a", "b"), ("b", "c")]]
)
ROWS = markov_chain([0, 1], 3, share="transitions", names=["a", "b", "c"])
GROUPS = coarsened("a", a={"xy": ["x", "y"], "z": ["z"]})
LONG = [[500.0, 500.0], [5.0, 5.0]]
ESTIMATORS = [NaiveMLE(), CGM(), NoiseAwareMAP()]
of_estimators = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.method)


def tables(network, values, noise=None, **stamp):
    return NoisyStatistics.from_tables(network, values, noise=noise or Laplace(1.0), **stamp)


def two_releases(shift):
    other = [[500.5 - shift, 500.0], [5.0 + shift, 5.0]]
    return [tables(PAIR, {("a", "b"): values}, total=1010) for values in (LONG, other)]


def nested(shift, noise=None):
    return tables(PAIR, {("a", "b"): LONG, "a": [1000.0 - shift, 10.0 + shift]}, noise)


def cliques(shift, law=None):
    second = [[250.0 - shift, 255.0], [250.0 + shift, 255.0]]
    return tables(CHAIN, {("a", "b"): LONG, ("b", "c"): second}, law)


def answers(shift):
    first = Measurement(table("a", "b"), np.array([500.0, 500, 5, 5, 3, 3]), Laplace(1.0))
    second = Measurement(GROUPS, np.array([1010.0 - shift, 6 + shift]), Laplace(1.0))
    return NoisyStatistics.from_measurements(THREE, [first, second])


CASES = {
    "two releases": two_releases,
    "nested tables": nested,
    "cliques": cliques,
    "an exact table": lambda shift: nested(shift, {("a", "b"): Laplace(1.0), "a": NoNoise()}),
    "normal noise": lambda shift: cliques(shift, Gaussian(1.0)),
    "whole noise": lambda shift: cliques(shift, DiscreteGaussian(1.0)),
    "queries": answers,
    "waves": lambda shift: [cliques(0.5), cliques(shift)],
}


def fitted(estimator, releases, population="one"):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = estimator.fit(releases, population=population)
    return found, [(str(one.message), one.filename) for one in caught]


@pytest.mark.parametrize(
    ("case", "estimator"),
    # each of the cases is found before a fit, by one function: every estimator asks it of one, and one of every
    [*((case, NaiveMLE()) for case in CASES), ("cliques", CGM()), ("cliques", NoiseAwareMAP())],
    ids=lambda each: getattr(each, "method", each),
)
def test_tables_that_contradict_each_other_are_not_trusted_and_others_are(case, estimator):
    population = "waves" if case == "waves" else "one"
    wrong, said = fitted(estimator, CASES[case](240.0), population)
    assert wrong.status is Status.NOT_TRUSTED
    assert wrong.stats["margin_tail"] < 1e-8
    ((text, where),) = said
    assert "disagree on" in text
    assert "fit the releases apart" in text
    assert where == __file__
    right, said = fitted(estimator, CASES[case](0.0), population)
    assert right.status is not Status.NOT_TRUSTED
    assert right.stats["margin_tail"] > 1e-3
    assert not said


@of_estimators
@pytest.mark.parametrize("network", [TIED, ROWS], ids=["tied potentials", "shared transitions"])
def test_restricted_models_are_told_of_the_margin(network, estimator):
    if network is ROWS and isinstance(estimator, CGM):
        pytest.skip("CGM fits potentials alone")
    held = {
        ("a", "b"): [[400.0, 100.0], [100.0, 400.0]],
        ("b", "c"): [[10.0, 100.0], [490.0, 400.0]],
    }
    first = {("a",): [500.0, 500.0]} if network is TIED else {}
    found, said = fitted(estimator, tables(network, first | held))
    assert found.status is Status.NOT_TRUSTED
    assert ["margin[b]" in text for text, _ in said] == [True]


@pytest.mark.parametrize("estimator", [NaiveMLE(inference="loopy"), CGM(inference="loopy")])
def test_loopy_estimates_are_told_too(estimator):
    found, said = fitted(estimator, cliques(240.0))
    assert found.status is Status.NOT_TRUSTED
    assert len(said) == 1


def test_waves_are_not_of_the_same_people():
    other = tables(CHAIN, {("a", "b"): [[5.0, 5], [500, 500]], ("b", "c"): [[5.0, 500], [5, 500]]})
    _, said = fitted(NaiveMLE(), [cliques(0.0), other], "waves")
    assert ["fit each wave apart" in text for text, _ in said] == [
        True
    ]  # no margin of theirs disagrees


def test_quick_intervals_about_contradicted_tables_are_not_trusted():
    with pytest.warns(ConsistencyWarning):
        wrong = NoiseAwareMAP().fit(nested(400.0))
    right = NoiseAwareMAP().fit(nested(0.0))
    assert (wrong.interval(["a"])["status"] == "not trusted").all()
    assert (wrong.interval(["a"])["note"] == "the fit is not trusted").all()
    assert (right.interval(["a"])["status"] != "not trusted").all()


@of_estimators
@pytest.mark.parametrize("apart", [False, True], ids=["one release", "two releases"])
def test_the_warning_names_the_two_measurements_that_contradict_each_other(apart, estimator):
    values = [[500.0, 500, 5, 5], [260.0, 240, 255, 255], [5.0, 5, 500, 500]]
    scopes = [("a", "b"), ("b", "c"), ("b", "a")]
    given = [
        Measurement(table(*scope), np.array(v), Laplace(1.0))
        for scope, v in zip(scopes, values, strict=True)
    ]
    parts = [given[:2], given[2:]] if apart else [given]
    releases = [NoisyStatistics.from_measurements(CHAIN, part) for part in parts]
    _, said = fitted(estimator, releases)
    (text,) = [text for text, _ in said if "disagree" in text]
    assert (
        "most of all measurement 1, of (a, b) and measurement 3, of (b, a) (tail probability"
        in text
    )


def test_one_table_alone_contradicts_nothing():
    found, said = fitted(NaiveMLE(), tables(PAIR, {("a", "b"): LONG}))
    assert "margin_tail" not in found.stats
    assert not said


LAWS = [
    Laplace(2.0),
    Gaussian(2.0),
    DiscreteLaplace(2.0),
    DiscreteGaussian(2.0),
    DiscreteLaplace(0.2),
    DiscreteGaussian(0.25),
]


@pytest.mark.parametrize(
    ("law", "held", "cells"),
    [
        (law, *sizes)
        for place, law in enumerate(LAWS)
        for sizes in [((2, 1), (2, 4), (3, 2))[place % 3]]
    ],
    ids=str,
)
def test_noise_alone_passes_a_level_no_more_often_than_it_says(law, held, cells):
    """Of 30,000 margins, at a level of 3e-5 each."""
    names = "bcd"[:held]
    states = {"a": range(3)} | {v: range(cells) for v in names}
    network = declare(states, [("a", v) for v in names])
    release = tables(network, {("a", v): np.full((3, cells), 12 // cells) for v in names}, law)
    (margin,) = shared_margins(gather(release))
    rng, size = np.random.default_rng(3), 30_000
    tails = margin.tail(law.draw((held, size, 3, cells), rng).sum(axis=-1).astype(float))
    for level in (1e-1, 1e-2, 1e-3):
        assert (tails < level).sum() <= level * size + 4 * np.sqrt(level * size)
    assert margin.tail() == pytest.approx(margin.tail(margin.noisy[:, np.newaxis])[0])


@pytest.mark.parametrize("law", few([Laplace(2.0), DiscreteGaussian(0.25)]), ids=repr)
def test_right_releases_of_answers_pass_a_level_no_more_often_than_it_says(law):
    """Of 60 releases with two tables and an answer that is none."""
    rng = np.random.default_rng(4)
    counts = rng.poisson(30, (3, 2)).astype(float)
    asked = [table("a", "b"), table("a"), GROUPS]
    exact = [counts.ravel(), counts.sum(axis=1), np.array([counts[:2].sum(), counts[2].sum()])]
    tails = []
    for _ in range(60):
        measured = [
            Measurement(query, each + law.draw(each.shape, rng), law)
            for query, each in zip(asked, exact, strict=True)
        ]
        found = disagreement(gather(NoisyStatistics.from_measurements(THREE, measured)))
        assert found is not None
        tails.append(2 * found[0])  # the smallest of a margin's and of the answers' p-value
    for level in (1e-1, 1e-2):
        expected = level * len(tails)
        assert (np.array(tails) < level).sum() <= expected + 4 * np.sqrt(expected)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_the_log_moment_of_a_law_is_no_less_than_that_of_its_density(law):
    values = np.arange(-80, 81) if law.is_discrete else np.linspace(-80, 80, 800_001)
    weights = np.exp(law.log_density(values)) * (1 if law.is_discrete else 2e-4)
    rates = np.array([0.0, 0.01, 0.1, 0.3])
    moments = np.log(np.exp(np.multiply.outer(rates, values)) @ weights)
    assert (law.log_moment(rates) >= moments - 1e-6).all()
    if law.kernel == "absolute":
        assert law.log_moment(rates) == pytest.approx(moments, abs=1e-6)
        assert law.log_moment(1 / law.scale) == np.inf


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(5))
def test_next_to_no_noise_beside_much_is_no_contradiction_in_a_margin(seed):
    """Rounding is no noise: the smaller law's variance, 1e-12, is far below what sums of the counts round to."""
    rng, small, large = np.random.default_rng(seed), DiscreteLaplace(1 / 28), DiscreteLaplace(40.0)
    network = declare({"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]}, [("a", "b"), ("b", "c")])
    counts = rng.multinomial(20_000, np.full(12, 1 / 12)).reshape(2, 3, 2)
    values = {
        ("a", "b"): counts.sum(axis=2),
        ("b", "c"): counts.sum(axis=0) + large.draw((3, 2), rng),
    }
    fit = NaiveMLE().fit(tables(network, values, {("a", "b"): small, ("b", "c"): large}))
    assert fit.status is Status.CONVERGED
    assert fit.stats["margin_tail"] > 1e-3


@pytest.mark.filterwarnings("error")
def test_next_to_no_noise_beside_much_is_no_contradiction_in_answers():
    measured = [
        Measurement(table("a"), np.array([15_000, 5_003, 1_001]), DiscreteGaussian(0.09)),
        Measurement(
            table("a", "b"),
            np.array([8_000, 7_020, 2_490, 2_517, 510, 480]),
            DiscreteGaussian(10.0),
        ),
        Measurement(GROUPS, np.array([20_012, 985]), DiscreteGaussian(10.0)),
    ]
    fit = NaiveMLE().fit(NoisyStatistics.from_measurements(THREE, measured))
    assert fit.status is Status.CONVERGED
