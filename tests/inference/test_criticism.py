"""Goodness of fit: models that a release contradicts are not trusted, by any estimator, and right models are."""

import re
import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf import sequences
from bayesprivmrf.errors import ConsistencyWarning, ModelError, NoiseWarning, SamplingWarning
from bayesprivmrf.inference import Status
from bayesprivmrf.mechanisms import LaplaceStatistics, ParityQueries, SelectMeasure
from bayesprivmrf.noise import Gaussian, Laplace
from bayesprivmrf.release import Measurement, NoisyStatistics

TIMES = [f"x{t}" for t in range(1, 7)]
STATES = ["u", "v", "w"]
ROWS = bpm.markov_chain(STATES, 6, share="transitions")
FIRST = np.array([[0.8, 0.15, 0.05], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]])
LAST = np.array([[0.6, 0.25, 0.15], [0.3, 0.55, 0.15], [0.05, 0.15, 0.8]])
SHORT = {"rng": 1, "draws": 60, "tune": 60, "chains": 2, "time_limit": 1e-9}
POINT = {"NaiveMLE": bpm.NaiveMLE(), "CGM": bpm.CGM(), "NoiseAwareMAP": bpm.NoiseAwareMAP()}


def panel(changes, seed=3, people=1000, scale=1.0, network=ROWS):
    """Noisy tables of every step of people whose transitions change with time, or do not."""
    rng = np.random.default_rng(seed)
    now, given = rng.choice(3, people, p=[0.5, 0.3, 0.2]), []
    for t, pair in enumerate(pairwise(TIMES)):
        share = t / 4 if changes else 0.5
        rows = ((1 - share) * FIRST + share * LAST).cumsum(axis=1)[now]
        later = (rng.random(people)[:, None] > rows).sum(axis=1)
        counts = np.bincount(3 * now + later, minlength=9) + np.rint(rng.laplace(0, scale, 9))
        given.append(Measurement(q.table(*pair), counts, Laplace(scale)))
        now = later
    return NoisyStatistics.from_measurements(network, given)


def fitted(estimator, releases, **settings):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = estimator.fit(releases, **settings)
    return found, [str(one.message) for one in caught if one.category is ConsistencyWarning]


@pytest.mark.parametrize("name", ["NaiveMLE", "NoiseAwareMAP", "LatentCounts"])
def test_transitions_that_change_contradict_one_matrix_for_all_steps(name):
    estimator, settings = (
        (bpm.LatentCounts(), SHORT) if name == "LatentCounts" else (POINT[name], {})
    )
    found, told = fitted(estimator, panel(changes=True), **settings)
    assert found.status is Status.NOT_TRUSTED
    (problem,) = [
        each for each in found.problems if "contradicts the model (shared transitions)" in each
    ]
    assert told == [f"{problem}. The fit is not trusted."]
    assert re.search(r"most of all measurement [1-5], of \(x[1-5], x[2-6]\)", problem)
    assert found.stats["misfit"] > 4
    assert "problems" in repr(found)
    right, told = fitted(estimator, panel(changes=False), **settings)
    assert not told
    assert right.stats["misfit_tail"] > 0.01
    assert not [each for each in right.problems if "contradicts" in each]


@pytest.mark.parametrize("has_steps", [False, True])
def test_the_remedy_for_a_chain_depends_on_whether_its_steps_were_measured(has_steps):
    # all begin in one state and leave it at the last step, so that the sums have no constant matrix
    steps = [*pairwise(TIMES)]
    law = Laplace(1.0)
    rng = np.random.default_rng(2)
    early, late = np.zeros((2, 3, 3))
    early[0, 0], late[0, 1] = 1000, 1000
    given = [Measurement(q.table("x1"), early[0] + law.draw(3, rng), law)]
    if has_steps:
        tables = [*[early] * (len(steps) - 1), late]
        given += [
            Measurement(q.table(*step), table.ravel() + law.draw(9, rng), law)
            for step, table in zip(steps, tables, strict=True)
        ]
    else:
        sums = early * (len(steps) - 1) + late
        given.append(Measurement(q.pooled(steps), sums.ravel() + law.draw(9, rng), law))
    found, _ = fitted(bpm.NaiveMLE(), NoisyStatistics.from_measurements(ROWS, given))
    remedy = (
        "the same measurements on a chain that shares"
        if has_steps
        else "the sums over the steps as one table"
    )
    (problem,) = [each for each in found.problems if "contradicts the model" in each]
    assert f"fit {remedy}" in problem


@pytest.mark.parametrize("changes", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_chain_of_many_numbers_is_judged_as_well(changes):
    states, steps, rng = 14, 5, np.random.default_rng(11)
    network = bpm.markov_chain(range(states), steps + 1, share="transitions")
    early, late = rng.dirichlet(np.full(states, 2.0), (2, states))
    now, given = rng.integers(0, states, 4000), []
    for t, pair in enumerate(pairwise(TIMES)):
        share = 0.4 * t / (steps - 1) if changes else 0.2
        cumulated = ((1 - share) * early + share * late).cumsum(axis=1)
        later = (rng.random(len(now))[:, None] > cumulated[now]).sum(axis=1).clip(max=states - 1)
        counts = np.bincount(states * now + later, minlength=states**2) + np.rint(
            rng.laplace(0, 1, states**2)
        )
        given.append(Measurement(q.table(*pair), counts, Laplace(1.0)))  # 980 numbers in all
        now = later
    found, told = fitted(bpm.NoiseAwareMAP(), NoisyStatistics.from_measurements(network, given))
    assert bool(told) == changes
    assert (found.status is Status.NOT_TRUSTED) == changes


def test_the_predictive_check_compares_with_what_the_model_predicts():
    for changes, is_small in ((True, True), (False, False)):
        posterior, _ = fitted(bpm.LatentCounts(), panel(changes), **SHORT)
        steps = posterior.predictive_check(rng=1)
        assert (
            steps["p_value"] > 0.05
        ).all()  # latent counts follow the release, right model or not
        assert (steps["model_p_value"].min() < 0.02) == is_small
    # Pearson's statistic of a table with nine cells that add up to N
    assert steps["model_replicated"].to_numpy() == pytest.approx(9.0, rel=0.2)


@pytest.mark.parametrize("name", [*POINT, "LatentCounts"])
def test_waves_of_different_populations_contradict_one_model(name):
    network = bpm.declare({"a": [0, 1], "b": [0, 1]}, cliques=[("a", "b")])
    estimator, settings = (
        (bpm.LatentCounts(), SHORT) if name == "LatentCounts" else (POINT[name], {})
    )
    other = [[50.0, 150.0], [457.0, 343.0]]
    same = [[102.0, 305.0], [196.0, 147.0]]
    for second, is_told in ((other, True), (same, False)):
        waves = [
            NoisyStatistics.from_tables(network, {("a", "b"): np.array(table)}, noise=Laplace(1.0))
            for table in ([[200.0, 600.0], [400.0, 300.0]], second)
        ]
        found, told = fitted(estimator, waves, population="waves", **settings)
        assert any("fit each wave apart" in each for each in told) == is_told
        assert (found.stats["misfit_tail"] < 0.01) == is_told
        assert found.status is Status.NOT_TRUSTED or not is_told


@pytest.mark.parametrize("name", [*POINT])
def test_the_measurement_that_fits_worst_is_named(name):
    """One of five steps differs from the others."""
    network = bpm.markov_chain(STATES, 6)
    law = np.outer([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]) + 0.08 * np.array(
        [[2, -1, -1], [-1, 1, 0], [-1, 0, 1]]
    )
    odd = np.outer([0.5, 0.3, 0.2], [0.5, 0.3, 0.2])
    rng, given = np.random.default_rng(2), []
    for t, pair in enumerate(pairwise(TIMES)):
        noisy = 2000 * (odd if t == 2 else law).ravel() + np.rint(rng.laplace(0, 2.0, 9))
        given.append(Measurement(q.table(*pair), noisy, Laplace(2.0)))
    found, told = fitted(POINT[name], NoisyStatistics.from_measurements(network, given))
    assert found.status is Status.NOT_TRUSTED
    assert ["most of all measurement 3, of (x3, x4)" in each for each in told] == [True]


@pytest.mark.parametrize("share", ["transitions", "potentials"])
def test_right_models_are_accused_no_more_often_than_the_level_says(share):
    network = bpm.markov_chain(STATES, 6, share=share)
    estimator = bpm.NaiveMLE()
    tails = []
    for seed in range(12):
        # independent steps: both models hold
        rng = np.random.default_rng(seed)
        codes = rng.choice(3, (6, 600), p=[0.6, 0.3, 0.1])
        given = [
            Measurement(
                q.table(*pair),
                np.bincount(3 * codes[t] + codes[t + 1], minlength=9)
                + np.rint(rng.laplace(0, 3.0, 9)),
                Laplace(3.0),
            )
            for t, pair in enumerate(pairwise(TIMES))
        ]
        found, _ = fitted(estimator, NoisyStatistics.from_measurements(network, given))
        tails.append(found.stats["misfit_tail"])
    # level 1e-3 of binomial counts
    assert (np.array(tails) < 0.05).sum() <= 4
    assert (np.array(tails) < 0.01).sum() <= 2


@pytest.mark.parametrize("law", [Laplace(1.0), Gaussian(1.0)], ids=["Laplace", "Gaussian"])
@pytest.mark.parametrize("name", [*POINT])
def test_estimates_and_intervals_scale_with_the_number_of_records(law, name):
    """From 1e2 to 1e12 records: the estimate is off by a few records, the interval as wide as sampling makes it."""
    network = bpm.declare({"a": [0, 1, 2], "b": [0, 1]}, cliques=[("a", "b")])
    truth = np.array([[0.20, 0.15], [0.05, 0.30], [0.10, 0.20]])
    for power in range(2, 13):
        records = 10.0**power
        noisy = records * truth + [[2.0, -1.0], [1.0, 0.0], [-2.0, 1.0]]
        release = NoisyStatistics.from_measurements(
            network, [Measurement(q.table("a", "b"), noisy.ravel(), law)], total=int(records)
        )
        found, told = fitted(POINT[name], release)
        assert not told
        off = np.abs(found.marginal(["a", "b"]).values - truth).max()
        # NaiveMLE ends at a tolerance of 1e-7, far below the sampling error at 1e12 records
        assert off < 6 / records + 1e-7
        if name == "NoiseAwareMAP":
            assert found.status is Status.CONVERGED
            frame = found.interval(["a", "b"], prob=0.9)
            width = (frame["upper"] - frame["lower"]).to_numpy() / (2 * 1.645)
            expected = np.sqrt((truth * (1 - truth)).ravel() / records + law.variance / records**2)
            assert width == pytest.approx(expected, rel=0.25 if power < 4 else 0.03)


def test_the_posterior_of_1e12_private_records_is_as_wide_as_sampling_makes_it():
    network = bpm.declare({"a": [0, 1, 2], "b": [0, 1]}, cliques=[("a", "b")])
    truth = np.array([[0.20, 0.15], [0.05, 0.30], [0.10, 0.20]])
    noisy = 1e12 * truth + [[2.0, -1.0], [1.0, 0.0], [-2.0, 1.0]]
    release = NoisyStatistics.from_tables(network, {("a", "b"): noisy}, noise=Laplace(1.0))
    settings = {**SHORT, "draws": 300, "tune": 300}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # of so few draws
        posterior = bpm.LatentCounts(formulation="log-linear").fit(release, **settings)
    assert posterior.status in (Status.CONVERGED, Status.ITERATION_LIMIT)
    frame = posterior.interval(["a", "b"], prob=0.9)
    expected = 2 * 1.645 * np.sqrt((truth * (1 - truth)).ravel() / 1e12)
    assert (frame["upper"] - frame["lower"]).to_numpy() == pytest.approx(expected, rel=0.2)
    assert np.abs(frame["estimate"].to_numpy() - truth.ravel()).max() < 1e-6
    counts = posterior.interval(["a", "b"], prob=0.9, of="records")
    assert ((counts["upper"] - counts["lower"]) < 12).all()


@pytest.mark.parametrize(
    "estimator", [*POINT.values(), bpm.LatentCounts()], ids=[*POINT, "LatentCounts"]
)
def test_more_records_than_are_fitted_are_refused(estimator):
    network = bpm.declare({"a": [0, 1]}, cliques=[("a",)])
    release = NoisyStatistics.from_tables(
        network, {("a",): np.array([1e12, 1e12])}, noise=Laplace(1.0)
    )
    with pytest.raises(ModelError, match="at most 1,000,000,000,000 records, got about 2e\\+12"):
        estimator.fit(release)


def rare(scale, people, seed=1):
    """Noisy sums over the steps of a chain in which many transitions are rare, and its transition matrix."""
    rng, states, steps = np.random.default_rng(seed), [*"abcdef"], 6
    matrix = np.array([rng.dirichlet(np.full(6, 0.3) + 3 * row) for row in np.eye(6)])
    now, sums = rng.choice(6, people), np.zeros((6, 6))
    first = np.bincount(now, minlength=6)
    for _ in range(steps - 1):
        later = np.minimum(
            (rng.random(people)[:, None] > matrix.cumsum(axis=1)[now]).sum(axis=1), 5
        )
        np.add.at(sums, (now, later), 1)
        now = later
    network = bpm.markov_chain(states, steps, share="transitions")
    law = Laplace(scale)
    values = [
        counts + np.rint(rng.laplace(0, scale, counts.size)) for counts in (first, sums.ravel())
    ]
    asked = (q.table("x1"), q.pooled([(f"x{t}", f"x{t + 1}") for t in range(1, steps)]))
    given = [Measurement(query, own, law) for query, own in zip(asked, values, strict=True)]
    return NoisyStatistics.from_measurements(network, given), matrix


def test_rare_transitions_of_few_people_are_doubtful_and_the_others_are_not():
    """Under negligible noise, sampling alone explains the wide intervals."""
    release, matrix = rare(0.05, 300)
    solution = bpm.NoiseAwareMAP().fit(release)  # warns of nothing
    assert solution.status is Status.CONVERGED
    assert solution.stats["hidden_transitions"] == 0
    frame = sequences.transition_matrix(solution, prob=0.9)
    is_doubtful = (frame["status"] == "doubtful").to_numpy()
    assert 5 <= is_doubtful.sum() <= 25
    assert frame["note"][is_doubtful].str.contains("too few records").all()
    assert not frame["note"].str.contains("noise").any()
    held = (frame["lower"] <= matrix.ravel()) & (matrix.ravel() <= frame["upper"])
    assert held.mean() > 0.8


def test_transitions_that_noise_hides_are_told_from_those_of_few_people():
    release, _ = rare(5.0, 3000)
    solution = bpm.NoiseAwareMAP().fit(release)
    assert solution.status is Status.CONVERGED
    frame = sequences.transition_matrix(solution, prob=0.9)
    assert (
        solution.stats["hidden_transitions"]
        == frame["note"].str.contains("the noise hides it").sum()
        > 0
    )
    assert (frame["status"] != "doubtful").any()
    with pytest.warns(NoiseWarning, match="the noise hides .* of 36 transitions"):
        drowned = bpm.NoiseAwareMAP().fit(rare(80.0, 300)[0])
    assert drowned.status is Status.NOT_TRUSTED
    assert "the noise hides" in drowned.problems[-1]
    assert set(sequences.transition_matrix(drowned, prob=0.9)["status"]) == {"not trusted"}


def test_transitions_that_noise_drives_to_zero_are_fitted_in_few_rounds():
    """A table of each of ten steps, of whose cells many are empty: without Newton's curvature it takes 14 rounds."""
    rng, people, states, law = np.random.default_rng(2), 2000, 6, Laplace(20.0)
    matrix = np.array([rng.dirichlet(np.full(states, 0.15) + 4 * row) for row in np.eye(states)])
    now, given = rng.choice(states, people), []
    noisy = np.bincount(now, minlength=states) + np.rint(rng.laplace(0, 20.0, states))
    given.append(Measurement(q.table("x1"), noisy, law))
    for step in range(1, 11):
        later = np.minimum(
            (rng.random(people)[:, None] > matrix.cumsum(axis=1)[now]).sum(axis=1), states - 1
        )
        counts = np.bincount(states * now + later, minlength=states**2)
        noisy = counts + np.rint(rng.laplace(0, 20.0, states**2))
        given.append(Measurement(q.table(f"x{step}", f"x{step + 1}"), noisy, law))
        now = later
    network = bpm.markov_chain(range(states), 11, share="transitions")
    solution, _ = fitted(bpm.NoiseAwareMAP(), NoisyStatistics.from_measurements(network, given))
    assert solution.stats["rounds"] <= 6
    frame = sequences.transition_matrix(solution, prob=0.9)
    held = (frame["lower"] <= matrix.ravel()) & (matrix.ravel() <= frame["upper"])
    assert held.mean() > 0.8


TRIANGLE = bpm.declare({v: [0, 1] for v in "abc"}, [("a", "b"), ("b", "c"), ("a", "c")])


def triangle(tables, law, seed):
    """Noisy tables of the three pairs."""
    rng = np.random.default_rng(seed)
    noise = (
        rng.laplace(0, 2.0, (3, 2, 2))
        if law.kernel == "absolute"
        else rng.normal(0, 2.0, (3, 2, 2))
    )
    noisy = np.asarray(tables) + np.rint(noise)
    tables = dict(zip((("a", "b"), ("b", "c"), ("a", "c")), noisy, strict=True))
    return NoisyStatistics.from_tables(TRIANGLE, tables, noise=law)


@pytest.mark.parametrize("law", [Laplace(2.0), Gaussian(2.0)], ids=["Laplace", "Gaussian"])
@pytest.mark.parametrize("name", [*POINT, "LatentCounts"])
def test_pair_tables_that_no_distribution_has_contradict_free_potentials(name, law):
    """Of three variables with two states at most two pairs differ: 90 % of the records cannot differ in all pairs."""
    estimator, settings = (
        (bpm.LatentCounts(), SHORT) if name == "LatentCounts" else (POINT[name], {})
    )
    differ, alike = [[50.0, 450.0], [450.0, 50.0]], [[300.0, 200.0], [200.0, 300.0]]
    found, told = fitted(estimator, triangle([differ, differ, differ], law, 1), **settings)
    assert found.status is Status.NOT_TRUSTED
    assert ["contradicts every distribution" in each for each in told] == [True]
    assert re.search(r"most of all measurement [1-3], of \([ab], [bc]\)", told[0])
    assert found.stats["misfit"] > 50
    right, told = fitted(estimator, triangle([alike, alike, alike], law, 1), **settings)
    assert not told
    assert right.stats["misfit_tail"] > 0.01


@pytest.mark.parametrize("name", ["NaiveMLE", "NoiseAwareMAP"])
def test_free_potentials_are_accused_no_more_often_than_the_level_says(name):
    """Half of the records' tables lie on the border of what a distribution can have: no two variables are alike."""
    accused = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        codes = rng.integers(0, 2, (3, 500))
        codes[1 + seed % 2] = 1 - codes[0]
        tables = [
            np.bincount(2 * codes[i] + codes[j], minlength=4).reshape(2, 2)
            for i, j in ((0, 1), (1, 2), (0, 2))
        ]
        found, _ = fitted(POINT[name], triangle(tables, Laplace(2.0), seed))
        accused += found.stats.get("misfit_tail", 1.0) < 0.005
    assert accused <= 2  # level 5e-4 of a binomial count with probability 0.005


def learned_on_copies(seed, **settings):
    rng = np.random.default_rng(seed)
    codes = rng.choice(3, (1500, 5), p=[0.5, 0.3, 0.2])
    for later in range(1, 5):
        same = rng.random(1500) < 0.6
        codes[same, later] = codes[same, later - 1]
    data = pd.DataFrame(codes, columns=[*"abcde"])
    network = bpm.declare({v: [0, 1, 2] for v in "abcde"})
    return SelectMeasure(rho=0.3, **settings).release(network, data, rng=seed)


@pytest.mark.parametrize("settings", [{}, {"degree": 2}], ids=["rounds", "degree"])
def test_learned_models_are_judged_by_what_was_measured(settings):
    """A right fit is accused at most at the level; one whose measurements are other people's is not trusted."""
    tails = []
    for seed in range(8):
        learned = learned_on_copies(seed, **settings)
        tails.append(learned.solution.stats["misfit_tail"])
        assert learned.status is Status.CONVERGED
        assert not learned.solution.contradictions
    assert (np.array(tails) < 0.05).sum() <= 2
    place = next(k for k, one in enumerate(learned.statistics.measurements) if len(one.values) >= 4)
    given = [*learned.statistics.measurements]
    moved = np.zeros(given[place].values.shape)
    # beyond noise and sampling: another sample of 1,500 records differs by its own standard deviation in a cell
    moved[:2] = np.rint(10 * np.sqrt(given[place].noise.variance + 1500 / 9)) * np.array([1, -1])
    given[place] = replace(given[place], values=given[place].values + moved)
    other = NoisyStatistics.from_measurements(
        learned.statistics.specification, given, total=learned.statistics.total
    )
    contradicted = replace(learned, statistics=other)
    assert contradicted.status is Status.NOT_TRUSTED
    assert contradicted.solution.stats["misfit_tail"] < 1e-6
    assert f"most of all measurement {place + 1}, " in contradicted.problems[-1]
    assert "the release contradicts the fit" in contradicted.problems[-1]


def test_parities_that_no_distribution_has_contradict_the_fit():
    network = bpm.declare({v: [0, 1] for v in "abc"})
    rng = np.random.default_rng(1)
    data = pd.DataFrame(rng.integers(0, 2, (1000, 3)), columns=[*"abc"])
    released = ParityQueries(rho=0.5, order=2).release(network, data, rng=1)
    right = released.fit()
    assert right.status is not Status.NOT_TRUSTED
    assert right.details["misfit_tail"] > 0.01
    sums = released.sums.copy()
    sums[4:] = np.rint(-0.8 * sums[0])
    with pytest.warns(ConsistencyWarning, match="contradicts every distribution"):
        wrong = replace(released, sums=sums).fit()
    assert wrong.status is Status.NOT_TRUSTED


@pytest.mark.parametrize("seed", [0, 1])
def test_sparse_tables_of_private_records_are_possible(seed):
    """Exact counts plus noise are no contradiction, even where the search for the least misfit does not settle.

    Four in five moves of ten states are nearly impossible. The least misfit was bounded for the number of records at
    which the search had ended, and half of such releases were said to have no counts.
    """
    rng = np.random.default_rng(seed)
    states = [f"s{k}" for k in range(10)]
    names = ["t0", "t1", "t2", "t3"]
    codes = [rng.integers(0, 10, 10_000)]
    for _ in names[1:]:
        shares = rng.dirichlet(np.ones(10), size=10) * np.where(rng.random((10, 10)) < 0.8, 1e-6, 1)
        ends = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
        codes.append((rng.random((10_000, 1)) > ends[codes[-1]]).sum(axis=1))
    data = pd.DataFrame(
        {name: np.array(states)[own] for name, own in zip(names, codes, strict=True)}
    )
    network = bpm.declare(dict.fromkeys(names, states), list(pairwise(names)))
    release = LaplaceStatistics(epsilon=10.0).release(network, data, rng=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problems = bpm.NaiveMLE().fit(release).problems
    assert not any("contradicts every distribution" in problem for problem in problems)
