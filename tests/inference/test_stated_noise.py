"""Noise that is not as stated, and settings that the release contradicts: every fit says so."""

import warnings

import numpy as np
import pytest

from bayesprivmrf.errors import ConsistencyWarning
from bayesprivmrf.inference import CGM, LatentCounts, NaiveMLE, NoiseAwareMAP, Status
from bayesprivmrf.model import declare
from bayesprivmrf.noise import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, NoNoise
from bayesprivmrf.release import NoisyStatistics

LARGE = declare({"a": list(range(10)), "b": list(range(10))}, [("a", "b")])
CHAIN = declare({"a": [0, 1, 2], "b": [0, 1, 2], "c": [0, 1, 2]}, [("a", "b"), ("b", "c")])
TRIPLES = declare({v: [0, 1, 2, 3] for v in "abcd"}, [("a", "b", "c"), ("b", "c", "d")])
ESTIMATORS = [NaiveMLE(), CGM(), NoiseAwareMAP()]
of_estimators = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.method)
LAWS = [Laplace(5.0), DiscreteLaplace(5.0), Gaussian(5.0), DiscreteGaussian(5.0)]
of_laws = pytest.mark.parametrize("law", LAWS, ids=repr)


def fitted(estimator, release, **settings):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = estimator.fit(release, **settings)
    return found, [str(one.message) for one in caught if one.category is ConsistencyWarning]


def sparse(law, seed, change=np.asarray, drawn=None):
    """A hundred cells of 300 people, most of them empty."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(100, 0.1))
    table = rng.multinomial(300, shares).reshape(10, 10) + (drawn or law).draw((10, 10), rng)
    return NoisyStatistics.from_tables(LARGE, {("a", "b"): change(table)}, noise=law)


def triples(law, seed, drawn=None):
    """Two tables of 64 cells that share 16 numbers."""
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(5000, rng.dirichlet(np.ones(256))).reshape(4, 4, 4, 4)
    tables = {
        scope: counts.sum(axis=axis) + (drawn or law).draw((4, 4, 4), rng)
        for scope, axis in ((("a", "b", "c"), 3), (("b", "c", "d"), 0))
    }
    return NoisyStatistics.from_tables(TRIPLES, tables, noise=law)


def plain(seed, scale=2.0, people=2000):
    rng = np.random.default_rng(seed)
    law = rng.dirichlet(np.ones(27)).reshape(3, 3, 3)
    counts = rng.multinomial(people, law.ravel()).reshape(3, 3, 3)
    noise = Laplace(scale)
    tables = {
        ("a", "b"): counts.sum(axis=2) + noise.draw((3, 3), rng),
        ("b", "c"): counts.sum(axis=0) + noise.draw((3, 3), rng),
    }
    return NoisyStatistics.from_tables(CHAIN, tables, noise=noise)


# each law once: numbers below zero under two laws, and tables that overlap under the two others
of_made_and_laws = pytest.mark.parametrize(
    ("made", "law"),
    list(zip([sparse, triples, triples, sparse], LAWS, strict=True)),
    ids=lambda each: getattr(each, "__name__", repr(each)),
)


def clipped(table):
    return np.maximum(table, 0)


@of_laws
def test_noise_that_was_clipped_at_zero_is_told(law):
    found, said = fitted(NoiseAwareMAP(), sparse(law, 0, clipped))
    assert found.status is Status.NOT_TRUSTED
    assert "exactly zero" in found.problems[0]
    assert "`impossible`" in found.problems[0]
    assert len(said) == 1
    assert found.stats["noise_tail"] < 1e-6


def test_clipping_is_told_from_few_zeros_beside_many_large_counts():
    table = np.array([[0.0, 0.0, 901.0], [807.0, 0.0, 703.0], [652.0, 0.0, 505.0]])
    shown = NoisyStatistics.from_tables(
        declare({"a": [0, 1, 2], "b": [0, 1, 2]}, [("a", "b")]),
        {("a", "b"): table},
        noise=DiscreteLaplace(20.0),
    )
    found, _ = fitted(NaiveMLE(), shown)
    # four zeros, none of which is negative: (1 - exp(-1/20))^4, doubled, of four tests
    expected = 4 * 2 * (-np.expm1(-1 / 20)) ** 4
    assert found.stats["noise_tail"] == pytest.approx(expected, rel=1e-6)
    assert found.status is Status.NOT_TRUSTED


@of_estimators
def test_rounded_numbers_with_small_noise_are_told(estimator):
    law = DiscreteLaplace(1.0)
    table = 50 + law.draw((10, 10), np.random.default_rng(1))
    release = NoisyStatistics.from_tables(LARGE, {("a", "b"): 10 * np.rint(table / 10)}, noise=law)
    found, _ = fitted(estimator, release)
    assert found.status is Status.NOT_TRUSTED
    assert "multiples" in found.problems[0]


def test_rounding_beside_large_noise_is_no_contradiction():
    found, _ = fitted(NaiveMLE(), sparse(Laplace(50.0), 1, lambda table: 10 * np.rint(table / 10)))
    assert found.stats["noise_tail"] > 0.01


@of_made_and_laws
def test_noise_three_times_the_stated_is_told(made, law):
    found = [fitted(NaiveMLE(), made(law, seed, drawn=type(law)(15.0)))[0] for seed in range(5)]
    is_told = [each.status is Status.NOT_TRUSTED for each in found]
    assert sum(is_told) >= 4  # a power of 0.95 gives fewer with a probability of 0.02


@of_made_and_laws
def test_right_noise_is_accused_no_more_often_than_its_level(made, law):
    tails = [fitted(NaiveMLE(), made(law, seed))[0].stats["noise_tail"] for seed in range(3, 13)]
    # a level of 0.003 gives two or more of ten with a probability of 4e-4
    assert sum(tail < 0.003 for tail in tails) <= 1


SETTINGS = {
    "a narrow prior": NoiseAwareMAP(scale=0.01),
    "a large ridge": NaiveMLE(ridge=2),
    "a loose tolerance": NaiveMLE(tolerance=1e308),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_the_release_contradicts_is_named(name):
    found, said = fitted(SETTINGS[name], plain(7))
    assert found.status is Status.NOT_TRUSTED
    assert found.stats["estimate_tail"] < 1e-6
    (problem,) = found.problems
    setting = {"a narrow prior": "scale", "a large ridge": "ridge"}.get(name, "tolerance")
    assert f"leave `{setting}` of" in problem
    assert len(said) == 1


@of_estimators
@pytest.mark.parametrize("people", [30, 2000, 200_000])
def test_default_settings_fit_their_releases(estimator, people):
    for seed in range(3):
        found, _ = fitted(estimator, plain(seed, people=people))
        assert found.status is not Status.NOT_TRUSTED
        assert found.stats["estimate_tail"] > 0.01


def one_far_cell(law, seed, people=10_000):
    """A hundred cells, of which one holds about half of the people."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(100, 0.05)) / 2
    shares[17] += 0.5
    counts = rng.multinomial(people, shares / shares.sum()).reshape(10, 10)
    return NoisyStatistics.from_tables(
        LARGE, {("a", "b"): counts + law.draw((10, 10), rng)}, noise=law
    )


def test_an_estimate_that_misses_one_number_is_told():
    # CGM takes what the empty cells' noise adds to the total from the fullest cell, and all others fit well
    found, _ = fitted(CGM(), one_far_cell(DiscreteLaplace(20.0), 0))
    assert found.status is Status.NOT_TRUSTED
    (problem,) = found.problems
    assert "one number of measurement 1, of (a, b), is" in problem
    assert "the fit expects" in problem
    assert found.stats["estimate_tail"] < 1e-4


@of_laws
def test_a_full_cell_beside_empty_ones_is_no_contradiction(law):
    for seed in range(3):
        found, _ = fitted(NoiseAwareMAP(), one_far_cell(law, seed))
        assert found.stats["estimate_tail"] > 0.01


@of_estimators
def test_a_single_record_in_a_rare_cell_is_no_contradiction(estimator):
    # under a normal distribution with the variance of its expectation the record would be far
    network = declare({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    law = Laplace(0.3)
    table = np.array([[1.0, 2000.0], [2000.0, 6000.0]])
    noise = law.draw((2, 2), np.random.default_rng(2))
    release = NoisyStatistics.from_tables(network, {("a", "b"): table + noise}, noise=law)
    found, _ = fitted(estimator, release)
    assert found.stats["estimate_tail"] > 0.01


def test_loopy_marginals_that_are_wrong_are_told():
    rng = np.random.default_rng(5)
    scopes = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("a", "c"), ("b", "d")]
    network = declare({v: [0, 1] for v in "abcd"}, scopes)
    logs = np.zeros((2, 2, 2, 2))
    for place in range(4):
        for other in range(place):
            equal = np.indices(logs.shape)[place] == np.indices(logs.shape)[other]
            logs += 0.9 * equal
    law = np.exp(logs) / np.exp(logs).sum()
    counts = rng.multinomial(100_000, law.ravel()).reshape(law.shape)
    tables = {
        scope: counts.sum(axis=tuple(k for k, v in enumerate("abcd") if v not in scope))
        + Laplace(2.0).draw((2, 2), rng)
        for scope in scopes
    }
    release = NoisyStatistics.from_tables(network, tables, noise=Laplace(2.0))
    right, _ = fitted(CGM(), release)
    wrong, _ = fitted(CGM(inference="loopy"), release)
    assert right.status is not Status.NOT_TRUSTED
    assert wrong.status is Status.NOT_TRUSTED
    assert "inference='exact'" in wrong.problems[0]


def test_an_accurate_table_beside_noisy_ones_leaves_the_naive_estimate_right():
    # the standard deviation of the first noise is far below a millionth of the others'
    rng = np.random.default_rng(8)
    counts = rng.multinomial(10_000, rng.dirichlet(np.ones(27))).reshape(3, 3, 3)
    law = DiscreteGaussian(10.0)
    release = NoisyStatistics.from_tables(
        CHAIN,
        [
            ("b", counts.sum(axis=(0, 2))),
            (("a", "b"), counts.sum(axis=2) + law.draw((3, 3), rng)),
            (("b", "c"), counts.sum(axis=0) + law.draw((3, 3), rng)),
        ],
        noise=[DiscreteGaussian(0.09), law, law],
    )
    found, _ = fitted(NaiveMLE(), release)
    assert found.status is Status.CONVERGED
    assert "undetermined_cells" not in found.stats
    error = found.marginal(["a", "b"]).to_numpy() - counts.sum(axis=2) / 10_000
    assert np.abs(error).max() < 0.01  # ten deviations of the noise


@pytest.mark.slow
def test_the_posterior_mean_is_judged_as_well():
    found, _ = fitted(LatentCounts(), plain(4), draws=100, chains=2, rng=1)
    assert found.stats["estimate_tail"] > 0.01


@pytest.mark.parametrize(
    "law", [DiscreteLaplace(20.0), DiscreteLaplace(5.0), DiscreteGaussian(8.0)]
)
def test_numbers_rounded_to_even_multiples_are_not_accused(law):
    # ties go to the even multiple, so that -1, 0 and 1 are all rounded to 0
    empty = declare({"a": list(range(100)), "b": list(range(100))}, [("a", "b")])
    noise = law.draw((100, 100), np.random.default_rng(4))
    release = NoisyStatistics.from_tables(empty, {("a", "b"): 2 * np.rint(noise / 2)}, noise=law)
    with warnings.catch_warnings(action="ignore"):  # there may be no records, which is right
        fit = NaiveMLE().fit(release)
    assert not [problem for problem in fit.problems if "noise is not as stated" in problem]
    assert fit.stats["noise_tail"] > 0.01


@of_estimators
def test_summed_noise_below_zero_is_no_contradiction(estimator):
    # tails of summed Laplace noise are heavier than normal: 4.6 standard deviations are not rare
    law = Laplace(5.0).summed(2)
    table = np.array([[100.0, 20.0], [-46.0, 40.0]])
    network = declare({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    release = NoisyStatistics.from_tables(network, {("a", "b"): table}, noise=law)
    found, _ = fitted(estimator, release)
    assert found.stats["noise_tail"] == 1.0


@pytest.mark.parametrize("exact", [(), ("a",)], ids=["noisy", "exact margin"])
def test_noise_that_is_nearly_always_0_is_not_accused_of_rounding_errors(exact):
    """Whole numbers agree; their weighted means are off by rounding, which is far above such noise."""
    rng = np.random.default_rng(5)
    network = declare(states={v: [0, 1, 2] for v in "abc"}, cliques=[("a", "b"), ("b", "c")])
    for people in (1000, 10**6):
        counts = rng.multinomial(people, rng.dirichlet(np.ones(27))).reshape(3, 3, 3)
        tables = {("a", "b"): counts.sum(axis=2), ("b", "c"): counts.sum(axis=0)}
        noise = dict.fromkeys(tables, DiscreteLaplace(0.01))
        for name in exact:
            tables[name] = counts.sum(axis=(1, 2))
            noise[name] = NoNoise()
        release = NoisyStatistics.from_tables(network, tables, noise=noise, total=people)
        assert NoiseAwareMAP().fit(release).status is Status.CONVERGED
