"""Rules of published tables: probabilities against draws and sums, allowed counts, written forms, and refusals."""

from __future__ import annotations

import dataclasses
import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from inference.posterior.engines import Rows, TableEngine
from inference.posterior.enumeration import (
    compositions,
    exact_posterior,
    log_dirichlet_multinomial,
)
from scipy import stats

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf import queries as q
from bayesprivmrf.errors import (
    ArgumentError,
    ConsistencyWarning,
    ModelError,
    ModelTooLargeError,
)
from bayesprivmrf.inference import gather
from bayesprivmrf.noise import (
    CellKey,
    Coarsened,
    DiscreteLaplace,
    Laplace,
    NoNoise,
    RandomRounding,
    Rounded,
    Suppressed,
    noise_from_dict,
)

# changes of -1, 0, 1 by four keys from a count of 2 on; a count of 1 becomes 0 or 2; 0 is never changed
KEYS = pd.DataFrame(
    [(1, key, change) for key, change in enumerate([-1, -1, 1, 1])]
    + [(count, key, change) for count in range(2, 6) for key, change in enumerate([-1, 0, 0, 1])],
    columns=["pcv", "ckey", "pvalue"],
)
# counts below 4 become 0, and others are rounded to a multiple of 2: a threshold and a base
THRESHOLD = pd.DataFrame(
    [
        (count, key, -count if count < 4 else -(count % 2))
        for count in range(1, 12)
        for key in range(2)
    ],
    columns=["pcv", "ckey", "pvalue"],
)
RULES = {
    "nearest 5": Rounded(5),
    "nearest 10": Rounded(10),
    "down 3": Rounded(3, kind="down"),
    "midpoint 6": Rounded(6, kind="midpoint"),
    "midpoint 5": Rounded(5, kind="midpoint"),
    "random 3": RandomRounding(3),
    "random 5": RandomRounding(5),
    "graduated": RandomRounding(3, kind="graduated"),
    "ranges": Coarsened([(0, 0), (1, 9), (10, 50), (51, 2000)]),
    "keys": CellKey(KEYS),
    "threshold by keys": CellKey(THRESHOLD),
    "suppressed": Suppressed(1, 5),
    "suppressed with zero": Suppressed(0, 10),
}
EACH = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
# counts around each change of base of graduated rounding
COUNTS = np.r_[0:130, 990:1130]


@EACH
def test_probabilities_sum_to_one_and_have_the_stated_moments(rule):
    published = np.arange(-1, 1300)
    for count in COUNTS:
        chances = np.exp(rule.log_probability(published, count))
        assert chances.sum() == pytest.approx(1)
        if isinstance(rule, Suppressed):  # the code of a suppressed count is no number
            published_as = rule.estimate(published)
        else:
            published_as = published
        mean = chances @ published_as
        assert rule.mean_given(count) == pytest.approx(mean)
        variance = chances @ np.square(published_as - mean)
        assert rule.variance_given(count) == pytest.approx(variance, abs=1e-8)


@EACH
def test_the_allowed_counts_are_the_smallest_and_largest_with_a_probability(rule):
    published = np.arange(-3, 400)
    counts = np.arange(0, 2001)
    chances = rule.log_probability(published[:, np.newaxis], counts) > -np.inf
    first, last = rule.allowed(published)
    for number, row, low, high in zip(published, chances, first, last, strict=True):
        if not row.any():
            assert low > high, number
            continue
        assert low == counts[row][0], number
        assert high == counts[row][-1], number


@EACH
def test_draws_have_the_stated_probabilities(rule):
    rng = np.random.default_rng(11)
    for count in (1, 2, 4, 19, 57, 98, 1000, 1041):
        drawn = rule.draw_given(np.full(4000, count), rng)
        numbers, times = np.unique(drawn, return_counts=True)
        chances = np.exp(rule.log_probability(numbers, count))
        assert chances.sum() == pytest.approx(1)
        # a chi-square at level 1e-4 in each of about 100 cases
        if len(numbers) > 1:
            assert stats.chisquare(times, 4000 * chances).pvalue > 1e-4


# their errors are those of the range
BY_PLACE = {"ranges", "suppressed", "suppressed with zero"}


@pytest.mark.parametrize("rule", [RULES[name] for name in RULES if name not in BY_PLACE], ids=repr)
@pytest.mark.parametrize("mean", [0.2, 3.0, 17.0, 45.0])
def test_the_error_is_averaged_over_a_poisson_count(rule, mean):
    counts = np.arange(0, 150)
    weights = stats.poisson.pmf(counts, mean)
    published = np.arange(-1, 300)
    chances = np.exp(rule.log_probability(published[:, np.newaxis], counts))
    errors = np.square(rule.estimate(published)[:, np.newaxis] - counts)
    wanted = (chances * errors).sum(axis=0) @ weights
    found = float(rule.error_variance(np.array([mean]))[0])
    assert found == pytest.approx(max(wanted, 1 / 12), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        # ranges of 9, 41 and 1950 counts; at 0.2, a fifth of the way from the range of 0 alone
        ("ranges", [0.2 * 80 / 12, 80 / 12, 1680 / 12, (1950**2 - 1) / 12]),
        ("suppressed", [15 / 12] * 4),
        ("suppressed with zero", [99 / 12] * 4),
    ],
)
def test_the_error_of_a_range_is_that_of_a_uniform_distribution(name, wanted):
    found = RULES[name].error_variance(np.array([0.2, 3.0, 17.0, 900.0]))
    assert found == pytest.approx(np.array(wanted))


def test_the_error_of_graduated_rounding_holds_where_the_base_changes():
    """At means of 95 and 985 the base of the mean alone would give 4 and 16.5."""
    rule = RULES["graduated"]
    means = np.array([19.0, 95.0, 400.0, 985.0, 1000.0, 5000.0])
    counts = np.arange(6000)
    wanted = stats.poisson.pmf(counts, means[:, np.newaxis]) @ rule.variance_given(counts)
    assert rule.error_variance(means) == pytest.approx(wanted, rel=0.2)
    assert wanted[1] > 5
    assert wanted[3] > 200


@pytest.mark.parametrize(
    "rule",
    [Rounded(5), Rounded(6, kind="midpoint"), Rounded(3, kind="down"), RandomRounding(5)],
    ids=repr,
)
def test_the_largest_log_moment_is_attained_and_never_exceeded(rule):
    published = np.arange(0, 200)
    counts = np.arange(0, 40)
    chances = np.exp(rule.log_probability(published, counts[:, np.newaxis]))
    errors = rule.estimate(published) - counts[:, np.newaxis]
    for rate in (-1.0, -0.1, 0.3, 2.0):
        moments = np.log((chances * np.exp(rate * errors)).sum(axis=1))
        assert rule.log_moment(rate) == pytest.approx(moments.max())


@EACH
def test_a_rule_is_read_again_from_its_written_form(rule, tmp_path):
    assert noise_from_dict(rule.as_dict()) == rule
    network = bpm.declare(states={"a": [0, 1]}, cliques=[("a",)])
    published = rule.draw_given(np.array([7, 130]), np.random.default_rng(1))
    release = bpm.NoisyStatistics.from_tables(network, {("a",): published}, noise=rule)
    release.save(tmp_path / "counts.release", allow_unprotected=True)
    assert bpm.load_release(tmp_path / "counts.release") == release


def test_random_rounding_is_unbiased_at_every_count():
    for rule in (RandomRounding(3), RandomRounding(5), RandomRounding(3, kind="graduated")):
        np.testing.assert_array_equal(rule.mean_given(COUNTS), COUNTS)


def test_both_layouts_of_a_perturbation_table_are_one_rule():
    times = KEYS.value_counts(["pcv", "pvalue"])
    counted, changes = zip(*times.index, strict=True)
    shares = pd.DataFrame({"i": counted, "v": changes, "p": times.to_numpy() / 4})
    rule = CellKey(shares)
    numbers = np.arange(0, 10)
    counts = np.arange(0, 9)[:, np.newaxis]
    np.testing.assert_allclose(
        np.exp(rule.log_probability(numbers, counts)),
        np.exp(CellKey(KEYS).log_probability(numbers, counts)),
    )


def test_counts_above_a_table_of_750_rows_use_its_last_250():
    """The Office for National Statistics reads row 501 for 751, and row 750 for 1,000."""
    rows = pd.DataFrame({"pcv": np.arange(1, 751), "ckey": 0, "pvalue": np.arange(1, 751) % 7})
    rule = CellKey(rows)
    counts = np.array([750, 751, 1000, 1001])
    changes = rule.draw_given(counts, np.random.default_rng(0)) - counts
    np.testing.assert_array_equal(changes, np.array([750, 501, 750, 501]) % 7)


# fits

PAIR = bpm.declare(states={"a": [0, 1], "b": [0, 1]}, cliques=[("a", "b")])
TREE = bpm.declare(states={"a": [0, 1], "b": [0, 1], "c": [0, 1]}, cliques=[("a", "b"), ("b", "c")])
ENUMERATED = {
    "random 3": pytest.param(RULES["random 3"]),
    "down 3": pytest.param(RULES["down 3"], marks=pytest.mark.slow),
    "keys": pytest.param(RULES["keys"], marks=pytest.mark.slow),
}


def worst_difference(finished, mean, deviation):
    """Largest difference of mean counts in posterior deviations, and of deviations in relation to them."""
    counts = finished.counts.reshape(-1, finished.counts.shape[-1])
    of_mean = np.abs((counts.mean(axis=0) - mean) / deviation).max()
    of_deviation = np.abs(counts.std(axis=0) / deviation - 1).max()
    return of_mean, of_deviation


@pytest.mark.parametrize("rule", ENUMERATED.values(), ids=ENUMERATED)
@pytest.mark.slow
def test_cells_and_all_their_margins_have_the_posterior_of_the_sum_over_all_tables(rule):
    rng = np.random.default_rng(3)
    counts = np.array([[3, 1], [3, 6]])
    sums = {("a", "b"): counts, ("a",): counts.sum(axis=1), ("b",): counts.sum(axis=0)}
    published = {scope: rule.draw_given(table, rng) for scope, table in sums.items()}
    release = bpm.NoisyStatistics.from_tables(PAIR, published, noise=rule)
    tables = np.concatenate([compositions(total, 4) for total in range(4, 25)])
    # the prior of N is in proportion to 1 / N
    weights = log_dirichlet_multinomial(tables, 0.4) - np.log(tables.sum(axis=1))
    cells = tables.reshape(-1, 2, 2)
    for scope, found in {("a", "b"): cells, ("a",): cells.sum(2), ("b",): cells.sum(1)}.items():
        numbers = published[scope].ravel()
        weights = weights + rule.log_probability(numbers, found.reshape(len(tables), -1)).sum(1)
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    mean = weights @ tables
    deviation = np.sqrt(weights @ (tables - mean) ** 2)
    evidence = gather(release, takes_bounds=True)
    engine = TableEngine(evidence=evidence, concentration=0.4, total_range=(4, 24))
    # each draw after thousands of moves, so that 1,800 are worth 1,000 or more
    drawn = engine.sample(draws=900, tune=100, chains=2, seed=1, time_limit=0.0)
    finished = engine.finish(drawn.draws, np.random.default_rng(0))
    of_mean, of_deviation = worst_difference(finished, mean, deviation)
    assert of_mean < 0.15
    assert of_deviation < 0.12


def test_a_mixed_release_has_the_posterior_of_the_sum_over_all_tables():
    """Rounded cells, a noisy table, and an exact number of records."""
    release = bpm.NoisyStatistics.from_tables(
        TREE,
        {("a", "b"): [[3, 3], [0, 6]], ("b", "c"): [[2, 1], [3, 4]]},
        noise={("a", "b"): RandomRounding(3), ("b", "c"): Laplace(1.5)},
        total=12,
    )
    evidence = gather(release, takes_bounds=True)
    wanted = exact_posterior(evidence)
    engine = Rows(evidence=evidence, concentration=1.0, total=12)
    drawn = engine.sample(draws=4000, tune=200, chains=2, seed=1, time_limit=0.0)
    finished = engine.finish(drawn.draws, np.random.default_rng(0))
    of_mean, of_deviation = worst_difference(finished, wanted.count_mean, wanted.count_sd)
    assert of_mean < 0.12
    assert of_deviation < 0.1


@pytest.mark.parametrize(
    "estimator", [bpm.NaiveMLE(ridge=0), bpm.CGM(), bpm.NoiseAwareMAP()], ids=lambda one: one.method
)
def test_estimates_from_random_rounding_are_right_on_average(estimator):
    """Counts of 10 tables against the truth, within 6 standard errors (level 0.002 for nine cells)."""
    rng = np.random.default_rng(5)
    counts = np.array([[12, 40, 25], [31, 8, 60], [22, 17, 35]])
    network = bpm.declare(states={"a": [0, 1, 2], "b": [0, 1, 2]}, cliques=[("a", "b")])
    rule = RandomRounding(3)
    found = []
    for _ in range(10):
        tables = {
            ("a", "b"): rule.draw_given(counts, rng),
            ("a",): rule.draw_given(counts.sum(axis=1), rng),
            ("b",): rule.draw_given(counts.sum(axis=0), rng),
        }
        release = bpm.NoisyStatistics.from_tables(network, tables, noise=rule, total=250)
        found.append(np.ravel(estimator.fit(release).marginal(["a", "b"])) * 250)
    found = np.array(found)
    error = found.std(axis=0) / np.sqrt(len(found))
    # the prior of an estimator moves a cell by less than half a record
    assert (np.abs(found.mean(axis=0) - counts.ravel()) < 6 * error + 0.5).all()


@pytest.mark.slow
def test_margins_that_are_rounded_as_well_sharpen_the_cells():
    """Intervals hold the counts, and beat those of the published cells alone."""
    rng = np.random.default_rng(8)
    network = bpm.declare(states={"a": [0, 1, 2], "b": [0, 1, 2]}, cliques=[("a", "b")])
    rule = RandomRounding(3)
    held = []
    errors = []
    for _ in range(12):
        counts = rng.poisson(rng.gamma(1, 12, size=(3, 3)))
        tables = {
            ("a", "b"): rule.draw_given(counts, rng),
            ("a",): rule.draw_given(counts.sum(axis=1), rng),
            ("b",): rule.draw_given(counts.sum(axis=0), rng),
        }
        release = bpm.NoisyStatistics.from_tables(network, tables, noise=rule)
        frame = bpm.NoiseAwareMAP().fit(release).interval(["a", "b"], of="records")
        truth = counts.ravel()
        held.append((np.floor(frame.lower) <= truth) & (truth <= np.ceil(frame.upper)))
        errors.append([frame.estimate - truth, tables["a", "b"].ravel() - truth])
    # 108 cells of 12 tables: .86 less two standard errors of a share among 12
    assert np.mean(held) > 0.86 - 2 * np.sqrt(0.86 * 0.14 / 12)
    ours, published = np.square(np.array(errors)).mean(axis=(0, 2))
    assert ours < published


def test_a_count_that_suppression_shows_is_exact():
    rule = Suppressed(1, 5)
    release = bpm.NoisyStatistics.from_tables(PAIR, {("a", "b"): [[12, -1], [0, 7]]}, noise=rule)
    by_rule = {one.noise: one.values.tolist() for one in release.measurements}
    assert by_rule == {NoNoise(): [12.0, 0.0, 7.0], rule: [-1.0]}
    frame = bpm.NoiseAwareMAP().fit(release).interval(["a", "b"], of="records")
    assert frame.estimate.loc[[(0, 0), (1, 1)]].to_numpy() == pytest.approx([12, 7], abs=0.2)


WIDE_RANGES = Coarsened([(0, 0), (1, 200), (201, 400), (401, 800), (801, 1600)])


def test_counts_in_wide_ranges_are_held_by_their_intervals():
    """A normal density without the ranges' ends held .65 of them; 12 tables of 6 cells, level 3 standard errors."""
    rng = np.random.default_rng(31)
    held = []
    for _ in range(12):
        shares = rng.dirichlet(np.ones(6))
        counts = rng.multinomial(2400, shares).reshape(2, 3)
        network = bpm.declare(states={"a": [0, 1], "b": [0, 1, 2]}, cliques=[("a", "b")])
        tables = {("a", "b"): WIDE_RANGES.draw_given(np.minimum(counts, 1600), rng)}
        release = bpm.NoisyStatistics.from_tables(network, tables, noise=WIDE_RANGES)
        solution = bpm.NoiseAwareMAP().fit(release)
        frame = solution.interval(["a", "b"], of="records")
        assert set(frame.status) == {"ok"}
        truth = counts.ravel()
        held.append((np.floor(frame.lower) <= truth) & (truth <= np.ceil(frame.upper)))
    assert np.mean(held) > 0.9 - 3 * np.sqrt(0.9 * 0.1 / 72)


@pytest.mark.parametrize("published", [(1, 1, 0), (401, 1, 0), (1, 201, 801)])
def test_shares_of_uniform_counts_in_wide_ranges_are_held_by_their_intervals(published):
    """40,000 tables of counts that are uniform on the published ranges, at the level 0.9."""
    network = bpm.declare(states={"a": [0, 1, 2]}, cliques=[("a",)])
    release = bpm.NoisyStatistics.from_tables(network, {"a": [*published]}, noise=WIDE_RANGES)
    frame = bpm.NoiseAwareMAP().fit(release).interval(["a"], prob=0.9)
    ends = [WIDE_RANGES.allowed(number) for number in published]
    low, high = (np.array(each).astype(int) for each in zip(*ends, strict=True))
    counts = np.random.default_rng(32).integers(low, high + 1, (40_000, 3))
    shares = counts / counts.sum(axis=1, keepdims=True)
    held = (frame.lower.to_numpy() <= shares) & (shares <= frame.upper.to_numpy())
    assert held.mean(axis=0).min() > 0.9
    assert frame.lower.min() >= 0
    assert frame.upper.max() <= 1


@pytest.mark.parametrize("total", [None, 6300])
def test_wide_ranges_beside_noisy_counts_allow_what_both_tell(total):
    """Limits of 0.95, and counts that are uniform on the ranges beside noisy ones, each held at least so often."""
    law = DiscreteLaplace(5.0)
    rule = Suppressed(1, 500)
    release = bpm.NoisyStatistics.from_tables(
        PAIR,
        {("a", "b"): [[5000, -1], [800, -1]]},
        noise={("a", "b"): {(0, 0): law, (0, 1): rule, (1, 0): law, (1, 1): rule}},
        total=total,
    )
    solution = bpm.NoiseAwareMAP().fit(release)
    counts = solution.interval(["a"], prob=0.95, of="records")
    assert counts.upper.tolist() == pytest.approx([5500, 1300], abs=60)
    rng = np.random.default_rng(33)
    hidden = rng.integers(1, 500, (20_000, 2))
    if total is not None:
        hidden[:, 1] = 500 - hidden[:, 0]
    tables = np.stack([np.full(20_000, 5000), hidden[:, 0], np.full(20_000, 800), hidden[:, 1]], 1)
    shares = tables / tables.sum(axis=1, keepdims=True)
    frame = solution.interval(["a", "b"], prob=0.95)
    held = (frame.lower.to_numpy() <= shares) & (shares <= frame.upper.to_numpy())
    assert held.mean(axis=0).min() > 0.95
    assert frame.upper.iloc[[1, 3]].max() < 2 * 499 / 6300


def wide_beside_narrow():
    """A table with three hidden counts, of which margins determine one, and a table of another clique."""
    network = bpm.declare(
        states={"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]}, cliques=[("a", "b"), ("b", "c")]
    )
    counts = np.array([[500, 7, 12], [90, 700, 15]])
    hidden = np.array([[500, -1, -1], [90, 700, -1]])
    shown = bpm.NoisyStatistics.from_tables(
        network,
        {
            ("a", "b"): hidden,
            "b": counts.sum(axis=0),
            ("b", "c"): [[300, 291], [300, 408], [9, 18]],
        },
        noise={("a", "b"): Suppressed(1, 40), "b": NoNoise(), ("b", "c"): Rounded(3)},
    )
    return bpm.NoiseAwareMAP().fit(shown)


def test_only_rows_that_wide_ranges_leave_open_rest_on_them():
    solution = wide_beside_narrow()
    frame = solution.interval(["a", "b"], of="records")
    width = (frame.upper - frame.lower).to_numpy()
    # a count of 7 follows from the total of its column
    assert width[[0, 1, 3, 4]] == pytest.approx(0, abs=0.5)
    # 27 people in two cells of at least one: between 1 and 26 each
    assert frame.lower.iloc[2] <= 9
    assert frame.upper.iloc[2] >= 18
    frames = [
        analysis.odds_ratios(solution, "a", "b"),
        analysis.odds_ratios(solution, "b", "c"),
        solution.interval(["b", "c"]),
        solution.interval(["b"], given={"a": 0}),
    ]
    assert [set(each.status) for each in frames] == [{"doubtful"}, {"ok"}, {"ok"}, {"ok"}]
    assert set(solution.interval(["a", "c"]).status) == {"doubtful"}


def test_an_exact_count_of_zero_is_no_probability_of_zero():
    """Of a group with the probability 1 - 0.1^(1/N) nobody is among N records with probability 0.1."""
    network = bpm.declare({"a": [0, 1], "b": [0, 1, 2]}, [("a", "b")])
    release = bpm.NoisyStatistics.from_tables(
        network, {("a", "b"): [[50, 0, -1], [60, 40, 30]]}, noise=Suppressed(1, 5), total=184
    )
    solution = bpm.NoiseAwareMAP().fit(release)
    joint = solution.interval(["a", "b"])
    assert joint.upper.loc[(0, 1)] == pytest.approx(1 - 0.1 ** (1 / 184))
    within = solution.interval(["b"], given={"a": 0})
    assert within.upper.loc[1] == pytest.approx(1 - 0.1 ** (1 / 54), rel=1e-2)
    assert solution.interval(["a", "b"], of="records").upper.loc[(0, 1)] == 0
    assert analysis.odds_ratios(solution, "a", "b").estimate.isna().all()


def test_a_group_with_one_state_among_its_records_is_no_probability_of_one():
    """All N records have a state of probability 0.1^(1/N) with probability 0.1."""
    network = bpm.declare({"a": [0, 1], "b": [0, 1, 2]}, [("a", "b")])
    release = bpm.NoisyStatistics.from_tables(
        network, {("a", "b"): [[50, 0, 0], [60, 40, 30]]}, noise=Suppressed(1, 5), total=180
    )
    solution = bpm.NoiseAwareMAP().fit(release)
    within = solution.interval(["b"], given={"a": 0})
    assert within.lower.loc[0] == pytest.approx(0.1 ** (1 / 50))
    assert within.upper.loc[0] == 1
    assert solution.interval(["a", "b"], of="records").lower.loc[(0, 0)] == 50


def test_a_group_without_records_is_open_beyond_its_clique():
    """Nobody with a = 0 is among those with b = 1, and only these have c = 1."""
    tables = {("a", "b"): [[50, 0], [60, 40]], ("b", "c"): [[110, 0], [20, 20]]}
    network = bpm.declare({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, list(tables))
    plain = bpm.ModelSpecification.from_pgmpy(network)
    impossible = ((("a", 0), ("b", 1)), (("b", 0), ("c", 1)))
    for model, reach in (
        (network, 1 - 0.1 ** (1 / 50)),
        (dataclasses.replace(plain, impossible=impossible), 0),
    ):
        release = bpm.NoisyStatistics.from_tables(model, tables, noise=Suppressed(1, 5))
        within = bpm.NoiseAwareMAP().fit(release).interval(["c"], given={"a": 0})
        assert within.upper.loc[1] == pytest.approx(reach, abs=1e-12)
        assert within.lower.loc[0] == pytest.approx(1 - reach, abs=1e-12)


def test_a_structural_zero_keeps_its_probability_of_zero():
    plain = bpm.ModelSpecification.from_pgmpy(PAIR)
    model = dataclasses.replace(plain, impossible=((("a", 0), ("b", 1)),))
    release = bpm.NoisyStatistics.from_tables(
        model, {("a", "b"): [[50, 0], [60, -1]]}, noise=Suppressed(1, 5)
    )
    solution = bpm.NoiseAwareMAP().fit(release)
    assert solution.interval(["a", "b"]).upper.loc[(0, 1)] == 0
    assert solution.interval(["b"], given={"a": 0}).lower.loc[0] == 1


@pytest.mark.parametrize(("below", "is_wide"), [(5, False), (20, True), (500, True)])
def test_odds_ratios_of_widely_suppressed_counts_are_doubtful(below, is_wide):
    release = bpm.NoisyStatistics.from_tables(
        PAIR, {("a", "b"): [[512, -1], [530, 700]]}, noise=Suppressed(1, below)
    )
    solution = bpm.NoiseAwareMAP().fit(release)
    status = {"ok"}
    if is_wide:
        status = {"doubtful"}
    assert set(analysis.odds_ratios(solution, "a", "b").status) == status
    frame = solution.interval(["a", "b"], of="records")
    assert set(frame.status) == {"ok"}
    assert frame.upper.iloc[1] <= below - 1


@pytest.mark.parametrize(
    ("mean", "is_exponential"), [(3.0, False), (40.0, False), (400.0, True), (1e6, True)]
)
def test_a_wide_range_has_the_moments_of_a_count_of_large_variance_in_it(mean, is_exponential):
    """Numerical integration of the density within 401 to 800, half a record beyond its ends.

    The count is exponential where the range cuts its upper tail, and else normal with the variance μ + μ².
    """
    counts = np.linspace(400.5, 800.5, 400_001)
    spread = mean**2
    logs = -(counts - counts[0]) / mean
    if not is_exponential:
        spread += mean
        logs = -np.square(counts - mean) / (2 * spread)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    middle = weights @ counts
    variance = weights @ np.square(counts - middle)
    center, width = WIDE_RANGES.normal_given([401], [mean])
    odds = min(variance / spread / max(1 - variance / spread, 0.01), 99.0)
    assert center[0] == pytest.approx(middle + odds * (middle - mean), rel=2e-3)
    assert width[0] == pytest.approx(max(odds * spread, 1 / 12), rel=2e-2)


@pytest.mark.parametrize("mean", [0.01, 1.0, 15.0, 300.0])
def test_the_density_of_a_wide_range_stays_near_it(mean):
    """Where the fit expects too few records, it asks for no more than the range needs."""
    center, width = Coarsened([(0, 9), (10, 100_000)]).normal_given([10], [mean])
    assert 9 <= center[0] <= 3 * mean + 30
    assert 1 / 12 <= width[0] <= 2 * (mean + mean**2) + 1


# tables in wide ranges, beside exact totals of each pair of variables

CUBE = bpm.declare(
    states={"a": [0, 1, 2], "b": [0, 1, 2], "c": [0, 1, 2]}, cliques=[("a", "b", "c")]
)
FAR_MIDDLE = Coarsened([(0, 0), (1, 9), (10, 200)])


def with_totals_of_pairs(counts, shown):
    """Return a release of a cube in ranges and of its exact margins of two variables."""
    tables = {
        ("a", "b", "c"): shown,
        ("a", "b"): counts.sum(axis=2),
        ("a", "c"): counts.sum(axis=1),
        ("b", "c"): counts.sum(axis=0),
    }
    noise = dict.fromkeys(tables, NoNoise()) | {("a", "b", "c"): FAR_MIDDLE}
    return bpm.NoisyStatistics.from_tables(CUBE, tables, noise=noise, total=int(counts.sum()))


def drawn_cube(seed):
    """Return counts of a cube with interactions of all orders, 15 records a cell."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(405, rng.dirichlet(np.full(27, 3.0))).reshape(3, 3, 3)


@pytest.mark.parametrize("estimator", [bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP()], ids=repr)
def test_counts_far_from_the_middle_of_their_range_contradict_nothing(estimator):
    """Seeds that were accused when counts were compared with the middles of the ranges."""
    counts = drawn_cube(1)
    shown = FAR_MIDDLE.publish(counts)
    assert not estimator.fit(with_totals_of_pairs(counts, shown)).problems
    shown[np.unravel_index(counts.argmax(), shown.shape)] = 1
    wrong = with_totals_of_pairs(counts, shown)
    with pytest.warns(ConsistencyWarning, match="contradicts"):
        assert estimator.fit(wrong).status == "not trusted"


@pytest.mark.slow
def test_interactions_beside_exact_totals_have_intervals_that_hold():
    """90 % intervals of 81 cells; three standard errors below, with the cells of a table taken as independent."""
    held = []
    for seed in range(3):
        counts = drawn_cube(seed)
        release = with_totals_of_pairs(counts, FAR_MIDDLE.publish(counts))
        solution = bpm.NoiseAwareMAP().fit(release)
        assert solution.stats["trust_in_evidence"] == 1
        frame = solution.interval(["a", "b", "c"], of="records")
        low = np.floor(frame.lower.to_numpy())
        held.append((low <= counts.ravel()) & (counts.ravel() <= np.ceil(frame.upper.to_numpy())))
    assert np.mean(held) > 0.8


@pytest.mark.parametrize("estimator", [bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP()], ids=repr)
def test_a_mixed_release_is_read_without_bias_by_every_estimator(estimator):
    """Rounded cells, noisy totals of our own, and an exact number of records; the posterior is enumerated above.

    Eight releases of one table. The mean error of a cell is within four standard errors of 0, and the errors are no
    larger than those of the rounded cells, but for two standard errors of a ratio among forty-eight.
    """
    rng = np.random.default_rng(17)
    counts = np.array([[212, 305, 98], [140, 171, 260]])
    network = bpm.declare(states={"a": [0, 1], "b": [0, 1, 2]}, cliques=[("a", "b")])
    rule = RandomRounding(5)
    ours = []
    published = []
    for _ in range(8):
        cells = rule.draw_given(counts, rng)
        tables = {("a", "b"): cells, "b": counts.sum(axis=0) + rng.laplace(scale=1.5, size=3)}
        release = bpm.NoisyStatistics.from_tables(
            network, tables, noise={("a", "b"): rule, "b": Laplace(1.5)}, total=int(counts.sum())
        )
        estimate = estimator.fit(release).marginal(["a", "b"]).to_numpy().reshape(2, 3)
        ours.append(estimate * counts.sum() - counts)
        published.append(cells - counts)
    errors = np.array(ours)
    standard = errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
    assert (np.abs(errors.mean(axis=0)) < 4 * standard + 0.1).all()
    ratio = np.sqrt(np.square(errors).mean() / np.square(published).mean())
    assert ratio < 1 + 2 / np.sqrt(48)


# repeated numbers

CHAIN = bpm.declare(
    states={"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]}, cliques=[("a", "b"), ("b", "c")]
)
ONE_NUMBER = [Rounded(2), CellKey(KEYS), Coarsened([(0, 3), (4, 50)]), Suppressed(1, 5)]


def measured(query, values, rule):
    """One measurement, in floats."""
    return bpm.Measurement(query, np.array(values, dtype=float), rule)


@pytest.mark.parametrize("rule", ONE_NUMBER, ids=lambda rule: rule.name)
def test_a_number_of_the_same_records_is_used_once_whatever_table_repeats_it(rule):
    """The totals of b come from a table of their own, as groups of (a, b), and as rows of (b, c)."""
    shown = rule.publish([8, 12, 20]) if rule.name != "cell-key" else np.array([8.0, 12.0, 20.0])
    merged = q.weighted("a", "b", matrix=np.tile(np.eye(3, dtype=np.int64), 2), labels=list("xyz"))
    other = q.weighted("c", "b", matrix=np.tile(np.eye(3, dtype=np.int64), 2), labels=list("xyz"))
    first = measured(q.table("b"), shown, rule)
    copies = [measured(query, shown, rule) for query in (q.table("b"), merged, other)]
    release = bpm.NoisyStatistics.from_measurements(CHAIN, [first, *copies])
    assert [one.values.tolist() for one in release.measurements] == [shown.tolist()]
    # a part of the numbers, another order, and numbers that differ
    parts = [measured(q.table("b"), shown[[0, 0, 2]], rule)]
    assert shown[0] == shown[1] or parts[0].values[1] != shown[1]
    release = bpm.NoisyStatistics.from_measurements(CHAIN, [first, *parts])
    kept = release.measurements[1:]
    differ = [] if shown[0] == shown[1] else [shown[0]]
    assert [number for one in kept for number in one.values] == differ


def test_a_grand_total_is_one_number_of_every_table():
    rule = Rounded(5)
    everybody = [
        q.weighted(*scope, matrix=np.ones((1, size), dtype=np.int64), labels=["all"])
        for scope, size in ((("a",), 2), (("b", "c"), 6), (("a", "b"), 6))
    ]
    found = bpm.NoisyStatistics.from_measurements(
        CHAIN, [measured(query, [40], rule) for query in everybody]
    )
    assert [one.values.tolist() for one in found.measurements] == [[40.0]]


def test_numbers_with_chance_or_of_other_records_are_all_kept():
    random = RandomRounding(3)
    again = [measured(q.table("b"), [9, 12, 21], random)] * 2
    assert len(bpm.NoisyStatistics.from_measurements(CHAIN, again).measurements) == 2
    rule = Rounded(5)
    others = [measured(q.table("a"), [20, 20], rule), measured(q.table("c"), [20, 20], rule)]
    assert len(bpm.NoisyStatistics.from_measurements(CHAIN, others).measurements) == 2
    bases = [measured(q.table("a"), [20, 20], Rounded(base)) for base in (5, 10)]
    assert len(bpm.NoisyStatistics.from_measurements(CHAIN, bases).measurements) == 2


def test_a_table_that_is_given_twice_gives_the_intervals_of_one():
    counts = np.array([[5, 3, 4], [2, 4, 5]])
    single = {("a", "b"): counts, ("b", "c"): [[4, 3], [3, 4], [5, 4]], "b": [7, 7, 9]}
    twice = [*single.items(), (("b", "a"), counts.T), ("b", [7, 7, 9])]
    frames = [
        bpm.NoiseAwareMAP()
        .fit(bpm.NoisyStatistics.from_tables(CHAIN, tables, noise=CellKey(KEYS)))
        .interval(["a", "b"], of="records")
        for tables in (list(single.items()), twice)
    ]
    pd.testing.assert_frame_equal(frames[0], frames[1])


# bad input


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rounded(1), "base"),
        (lambda: Rounded(5, kind="up"), "kind"),
        (lambda: RandomRounding(5, kind="graduated"), "be 3 with graduated"),
        (lambda: Coarsened([(0, 3), (2, 9)]), "without overlap"),
        (lambda: Coarsened([(0, 2.5)]), "whole numbers"),
        (lambda: Coarsened("few"), "whole numbers"),
        (lambda: Suppressed(5, 5), "below"),
        (lambda: CellKey(KEYS.rename(columns={"pcv": "n"})), "columns pcv"),
        (lambda: CellKey([1, 2]), "columns pcv"),
        (lambda: CellKey(pd.concat([KEYS, KEYS])), "once"),
        (lambda: Coarsened([(0, np.inf)]), "whole numbers"),
        (lambda: Rounded(10**9), "from 2 to 100000"),
        (lambda: CellKey(KEYS.assign(pvalue=-2)), "below 0"),
        (lambda: CellKey(KEYS.assign(pvalue=np.nan)), "whole changes"),
        (lambda: CellKey(KEYS.assign(pvalue=np.inf)), "whole changes"),
        (lambda: CellKey(KEYS.assign(pcv=-1, ckey=range(len(KEYS)))), "whole counts from 0"),
        (lambda: CellKey(KEYS.assign(pcv=KEYS.pcv * 10**9)), "whole counts from 0"),
        (lambda: CellKey(KEYS.assign(ckey=KEYS.ckey + 1)), "keys that begin at 0"),
        (lambda: CellKey(KEYS.assign(ckey=KEYS.ckey / 2)), "whole keys"),
        (lambda: CellKey(KEYS.assign(ckey=np.nan)), "whole keys"),
        (lambda: CellKey(KEYS.assign(ckey="few")), "numbers in its columns"),
        (lambda: CellKey(KEYS.iloc[:0]), "whole keys"),
        (lambda: CellKey(pd.DataFrame({"i": [], "p": [], "v": []})), "have rows"),
        (lambda: CellKey("few"), "text that CellKey stored"),
        (lambda: CellKey("[1]"), "text that CellKey stored"),
        (lambda: CellKey('{"changes": [0], "chances": [[0.5]]}'), "sum to 1"),
        (lambda: CellKey('{"changes": [0], "chances": [[NaN]]}'), "probabilities from 0 to 1"),
        (lambda: CellKey('{"changes": [-1, 0], "chances": [[0.5, 0.5]]}'), "below 0"),
        (lambda: CellKey(pd.DataFrame({"i": [1], "p": [0.7], "v": [0]})), "sum to 1"),
    ],
)
def test_a_rule_that_is_none_is_refused(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("rule", "number"),
    [
        (Rounded(5), 7),
        (RandomRounding(3), 10),
        (Coarsened([(0, 0), (1, 9)]), 4),
        (Suppressed(1, 5), 3),
        (CellKey(KEYS), -1),
    ],
    ids=repr,
)
def test_a_number_that_its_rule_cannot_give_is_refused(rule, number):
    with pytest.raises(ModelError, match="no count allows"):
        bpm.Measurement(q.table("a"), np.array([number, number]), rule)


@pytest.mark.parametrize("number", [3, -2])
def test_a_cell_that_suppression_cannot_show_is_refused(number):
    tables = {("a", "b"): [[12, -1], [0, number]]}
    with pytest.raises(ModelError, match="no count allows"):
        bpm.NoisyStatistics.from_tables(PAIR, tables, noise=Suppressed(1, 5))


def test_a_range_that_is_too_long_for_a_table_is_refused():
    with pytest.raises(
        ModelTooLargeError, match=r"'coarsened' must cover at most 4,194,304 counts"
    ):
        Coarsened([(1000, 10**9)]).table(1000)


def test_the_error_of_many_means_and_a_large_base_is_found_in_blocks():
    means = np.linspace(0, 1e12, 20)
    found = Rounded(100_000).error_variance(means)
    # a wide Poisson distribution has every remainder alike
    np.testing.assert_allclose(found[1:], (100_000**2 - 1) / 12, rtol=1e-3)


def test_right_tables_with_small_counts_do_not_contradict_each_other():
    """The centers of normal densities that stand for rules are no counts: here some are 8 records from the number."""
    cells = [12, 3, 3, 3, 0, 0, 6, 3, 15, 3, 0, 0, 18, 15, 3, 3, 3, 3, 6, 0, 0, 0, 9, 3]
    tables = {
        ("age", "sex", "work"): np.reshape(cells, (4, 2, 3)),
        ("age", "sex"): [[18, 6], [18, 3], [36, 9], [6, 9]],
        ("age", "work"): [[18, 0, 3], [6, 3, 12], [21, 18, 6], [6, 12, 0]],
        ("sex", "work"): [[39, 21, 21], [6, 12, 3]],
    }
    network = bpm.declare(
        {"age": ["a", "b", "c", "d"], "sex": ["f", "m"], "work": ["no", "part", "full"]},
        [("age", "sex", "work")],
    )
    release = bpm.NoisyStatistics.from_tables(network, tables, noise=RandomRounding(3))
    solution = bpm.NoiseAwareMAP().fit(release)
    assert solution.status == "converged"
    assert solution.problems == ()
    # the test still sees tables that are not of the same records
    tables["age", "work"] = [[18, 0, 3], [6, 3, 12], [21, 18, 6], [6, 24, 0]]
    release = bpm.NoisyStatistics.from_tables(network, tables, noise=RandomRounding(3))
    with pytest.warns(ConsistencyWarning, match="disagree on"):
        assert bpm.NoiseAwareMAP().fit(release).status == "not trusted"


def test_ranges_of_tables_that_overlap_contradict_no_right_model_and_still_a_wrong_one():
    """Independence of two variables, and strong interactions; seeds whose interactions are found."""
    rule = Coarsened([(0, 0), (1, 9), (10, 49), (50, 99), (100, 499), (500, 5000)])
    network = bpm.declare(states={"a": [0, 1, 2, 3], "b": [0, 1, 2, 3]}, cliques=[("a", "b")])
    for seed, interaction in itertools.product((9000, 9002, 9004, 9005), (0.0, 4.0)):
        rng = np.random.default_rng(seed)
        shares = np.outer(rng.dirichlet(np.ones(4)), rng.dirichlet(np.full(4, 0.4)))
        shares *= np.exp(interaction * np.eye(4))
        counts = rng.multinomial(1500, (shares / shares.sum()).ravel()).reshape(4, 4)
        tables = {("a", "b"): counts, "a": counts.sum(axis=1), "b": counts.sum(axis=0)}
        shown = {scope: rule.publish(table) for scope, table in tables.items()}
        release = bpm.NoisyStatistics.from_tables(network, shown, noise=rule, total=1500)
        with warnings.catch_warnings(action="ignore", category=ConsistencyWarning):
            solution = bpm.NaiveMLE().fit(release, model=[("a",), ("b",)])
        is_accused = any("contradicts the model" in problem for problem in solution.problems)
        assert is_accused == bool(interaction)


def test_an_estimate_beyond_an_end_of_a_range_by_a_part_of_its_width_contradicts_nothing():
    """A normal density stands for the range of the first total, 801 to 1600, and the fit expects 1,732 there."""
    counts = np.array([[532, 8, 972, 77], [730, 310, 166, 413], [836, 163, 168, 425]])
    edges = [0, 1, 201, *(400 * 2**k + 1 for k in range(5))]
    rule = Coarsened([(low, high - 1) for low, high in itertools.pairwise(edges)])
    network = bpm.declare(states={"a": [0, 1, 2], "b": [0, 1, 2, 3]}, cliques=[("a", "b")])
    tables = {("a", "b"): counts, "a": counts.sum(axis=1), "b": counts.sum(axis=0)}
    shown = {names: rule.publish(own) for names, own in tables.items()}
    release = bpm.NoisyStatistics.from_tables(network, shown, noise=rule)
    assert bpm.NoiseAwareMAP().fit(release).status is bpm.Status.CONVERGED
