"""Tests of fit, of equal odds ratios, of groups and of panels find what is there, and refuse odd questions."""

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency, kstest
from statsmodels.stats.contingency_tables import SquareTable, StratifiedTable

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.noise import DiscreteLaplace, NoNoise, RandomRounding

STATES = {"age": ["<30", "30-60", ">60"], "smokes": ["no", "yes"], "ill": ["no", "yes"]}
RECORDS = 4000
FEW = {"draws": 199, "rng": 1}
TIMES = ["x1", "x2", "x3"]
LAW = DiscreteLaplace(4.0)


def released(states, tables, noise=LAW, total=None, seed=0):
    """A release of some tables of counts by scope, with noise."""
    rng = np.random.default_rng(seed)
    noisy = {scope: noise.draw_given(np.asarray(table), rng) for scope, table in tables.items()}
    network = bpm.declare(states=states, cliques=list(tables))
    return bpm.NoisyStatistics.from_tables(network, noisy, noise=noise, total=total)


def drawn(shares, records=RECORDS, seed=0):
    shares = np.asarray(shares, dtype=float)
    rng = np.random.default_rng(seed)
    return rng.multinomial(records, shares.ravel() / shares.sum()).reshape(shares.shape)


def loglinear(interaction):
    """Joint shares of age, smokes and ill, whose log odds ratio changes with age by `interaction`."""
    smokes, ill = np.array([-0.5, 0.5]), np.array([-0.5, 0.5])
    age = np.array([-1.0, 0.0, 1.0])
    logs = (
        0.5 * np.einsum("k,j->kj", age, ill)[:, np.newaxis, :]
        + np.einsum("i,j->ij", smokes, ill)
        + interaction * np.einsum("k,i,j->kij", age, smokes, ill)
    )
    return np.exp(logs) / np.exp(logs).sum()


WHOLE = tuple(STATES)
PAIRS = [("age", "smokes"), ("age", "ill"), ("smokes", "ill")]


def test_a_needed_interaction_is_found_and_another_is_not():
    needed = released(STATES, {WHOLE: drawn(loglinear(1.5))})
    found = analysis.goodness_of_fit(needed, PAIRS, **FEW)
    assert found.p_value == pytest.approx(1 / 200)
    assert found.df == 2
    assert found.status == "ok"
    assert found.expected.shape == (3, 2, 2)
    idle = released(STATES, {WHOLE: drawn(loglinear(0.0))})
    assert analysis.goodness_of_fit(idle, PAIRS, **FEW).p_value > 0.05
    # the same question, asked as one about odds ratios
    same = analysis.equal_odds_test(needed, "smokes", "ill", over=["age"], **FEW)
    assert same.statistic == pytest.approx(found.statistic)
    assert same.p_value == found.p_value


def test_without_noise_equal_odds_are_those_of_breslow_and_day():
    counts = drawn(loglinear(0.4))
    found = analysis.equal_odds_test(
        released(STATES, {WHOLE: counts}, NoNoise()), "smokes", "ill", over=["age"], **FEW
    )
    expected = StratifiedTable(np.moveaxis(counts, 0, -1)).test_equal_odds()
    assert found.df == 2
    # Breslow and Day estimate the common odds ratio otherwise
    assert found.statistic == pytest.approx(expected.statistic, rel=0.02)


def test_a_model_with_scores_is_tested_against_the_table():
    counts = drawn(loglinear(0.0))
    release = released(STATES, {WHOLE: counts})
    scored = bpm.declare(states=STATES, cliques=PAIRS, ordinal=["age"])
    found = analysis.goodness_of_fit(release, scored, **FEW)
    assert found.df == 2 + 2  # of the interaction of three, and of each interaction with age
    assert found.p_value > 0.01


def test_separate_tables_tell_a_part_and_say_so():
    shares = loglinear(0.0)
    tables = {
        ("age", "smokes"): drawn(shares).sum(axis=2),
        ("age", "ill"): drawn(shares).sum(axis=1),
        ("smokes", "ill"): drawn(shares).sum(axis=0),
    }
    release = released(STATES, tables)
    found = analysis.goodness_of_fit(release, [("age", "smokes"), ("age", "ill")], **FEW)
    assert found.status == "model"
    assert found.df == 1
    assert found.p_value == pytest.approx(1 / 200)
    assert np.isnan(found.pearson_p_value)
    with pytest.raises(ModelError, match="leave out an interaction"):
        analysis.goodness_of_fit(release, PAIRS)


def test_groups_in_one_release_and_in_releases_of_their_own():
    shares = loglinear(0.0)
    release = released(STATES, {WHOLE: drawn(shares)})
    found = analysis.compare_groups(release, "age", **FEW)
    assert found.p_value == pytest.approx(1 / 200)
    assert found.df == 6
    alone = analysis.compare_groups(release, "age", over=["smokes"], **FEW)
    assert alone.df == 2
    assert alone.p_value > 0.01
    pair = {name: STATES[name] for name in ("smokes", "ill")}
    each = {
        name: released(pair, {("smokes", "ill"): table}, seed=seed)
        for seed, (name, table) in enumerate(zip(STATES["age"], drawn(shares), strict=True))
    }
    apart = analysis.compare_groups(each, **FEW)
    assert apart.df == 6
    assert apart.expected.shape == (3, 2, 2)
    assert apart.statistic == pytest.approx(found.statistic, rel=0.3)
    assert apart.p_value == pytest.approx(1 / 200)


def test_groups_by_pairs_of_tables():
    """Tables of the groups and one variable each: two degrees of freedom a variable."""
    shares = loglinear(0.0)
    tables = {
        ("age", "smokes"): drawn(shares).sum(axis=2),
        ("age", "ill"): drawn(shares).sum(axis=1),
    }
    found = analysis.compare_groups(released(STATES, tables), "age", **FEW)
    # no table shows how the variables depend on each other: each is tested by itself
    assert found.df == 2
    assert found.status == "model"
    assert "2 tables" in found.note
    assert found.p_value == pytest.approx(2 / (1 + 2 * 199))
    assert found.expected.shape == (3, 2, 2)
    tables["smokes", "ill"] = drawn(shares).sum(axis=0)
    joint = analysis.compare_groups(released(STATES, tables), "age", **FEW)
    assert joint.df == 4
    assert "tables times" not in joint.note


def test_dependent_variables_are_no_difference_of_groups():
    """At level 0.05, 15 releases of four copies of one variable reject 4 times or more with probability 0.006."""
    names = [f"x{number}" for number in range(4)]
    states = {"group": ["a", "b"], **{name: ["no", "yes"] for name in names}}
    rejected = 0
    for seed in range(15):
        table = drawn(np.outer([0.4, 0.6], [0.7, 0.3]), seed=seed)
        release = released(states, {("group", name): table for name in names}, NoNoise(), seed=seed)
        found = analysis.compare_groups(release, "group", draws=99, rng=seed)
        rejected += found.p_value <= 0.05
    assert rejected < 4


def test_a_hypothesis_that_no_table_determines_is_doubtful():
    states = {name: ["no", "yes"] for name in ("g", "x", "y")}
    table = drawn(np.outer([0.4, 0.6], [0.7, 0.3]))
    release = released(states, {("g", "x"): table, ("g", "y"): table})
    found = analysis.goodness_of_fit(release, [("g",), ("x", "y")], **FEW)
    assert found.status == "doubtful"
    assert "no released table shows" in found.note
    free = analysis.goodness_of_fit(release, [("g",), ("x",), ("y",)], **FEW)
    assert free.status == "model"


def test_an_impossible_cell_makes_no_test_doubtful():
    states = {name: ["low", "middle", "high"] for name in ("x", "y")}
    network = bpm.declare(
        states=states, cliques=[("x", "y")], impossible=[{"x": "low", "y": "low"}]
    )
    numbers = {("x", "y"): [[0, 20, 10], [24, 25, 9], [10, 27, 8]]}
    release = bpm.NoisyStatistics.from_tables(network, numbers, noise=DiscreteLaplace(1.0))
    assert analysis.symmetry(release, "x", "y", **FEW).status == "ok"
    assert analysis.independence_test(release, "x", "y", **FEW).status == "ok"


STAY = np.array([[0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]])
MOVE = np.array([[0.6, 0.3, 0.1], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])
PANEL = {time: ["a", "b", "c"] for time in TIMES}


def panel(first, moves, records=RECORDS, seed=0, noise=LAW):
    """A release of the steps of a chain."""
    rng = np.random.default_rng(seed)
    now = rng.multinomial(records, first)
    tables = {}
    for time, move in enumerate(moves):
        table = np.stack(
            [rng.multinomial(count, row) for count, row in zip(now, move, strict=True)]
        )
        tables[TIMES[time], TIMES[time + 1]] = table
        now = table.sum(axis=0)
    return released(PANEL, tables, noise, seed=seed)


def stationary(moves):
    values, vectors = np.linalg.eig(moves.T)
    found = np.real(vectors[:, np.argmax(np.real(values))])
    return found / found.sum()


def test_one_transition_matrix_is_enough_or_not():
    same = analysis.stationarity_test(panel([0.6, 0.2, 0.2], [STAY, STAY]), **FEW)
    assert same.df == 6
    assert same.p_value > 0.01
    other = analysis.stationarity_test(panel([0.6, 0.2, 0.2], [STAY, MOVE]), **FEW)
    assert other.p_value == pytest.approx(1 / 200)


def test_margins_over_time_are_equal_or_not():
    start = stationary(STAY)
    same = analysis.homogeneity(panel(start, [STAY, STAY]), **FEW)
    assert same.df == 4
    assert same.p_value > 0.01
    moved = analysis.homogeneity(panel([0.6, 0.2, 0.2], [STAY, STAY]), **FEW)
    assert moved.p_value == pytest.approx(1 / 200)


def test_statistics_of_margins_are_about_chi_square():
    start = stationary(STAY)
    rounds = range(40)
    found = [
        analysis.homogeneity(panel(start, [STAY, STAY], seed=seed), draws=99, rng=seed)
        for seed in rounds
    ]
    # level 1e-4 each
    assert kstest([one.statistic for one in found], chi2(4).cdf).pvalue > 1e-4
    assert kstest([one.p_value for one in found], "uniform").pvalue > 1e-4


def test_without_noise_panels_have_the_known_statistics():
    release = panel([0.4, 0.3, 0.3], [MOVE, MOVE], noise=NoNoise())
    table = SquareTable(release.tables[("x1", "x2")], shift_zeros=False)
    pair = bpm.NoisyStatistics.from_tables(
        bpm.declare(states={name: PANEL[name] for name in TIMES[:2]}, cliques=[("x1", "x2")]),
        {("x1", "x2"): release.tables[("x1", "x2")]},
        noise=NoNoise(),
    )
    margins = analysis.homogeneity(pair, **FEW)
    assert margins.df == 2
    assert margins.statistic == pytest.approx(table.homogeneity().statistic, rel=0.1)
    balance = analysis.symmetry(pair, "x1", "x2", **FEW)
    assert balance.df == 3
    assert balance.statistic == pytest.approx(table.symmetry().statistic, rel=0.01)


def test_several_releases_of_the_same_people_tell_more():
    counts = drawn(loglinear(0.6)).sum(axis=0)
    states = {name: STATES[name] for name in ("smokes", "ill")}
    loud = DiscreteLaplace(60.0)
    both = [released(states, {("smokes", "ill"): counts}, loud, seed=seed) for seed in range(2)]
    found = analysis.independence_test(both, "smokes", "ill", **FEW)
    assert found.df == 1
    middle = (both[0].flat + both[1].flat).reshape(2, 2) / 2
    expected = chi2_contingency(middle, correction=False).statistic
    # the noise of the mean has half the variance, beside about a thousand records a cell
    assert found.statistic == pytest.approx(expected / (1 + loud.variance / 2 / 1000), rel=0.15)


def test_a_query_of_sums_is_read():
    from bayesprivmrf import queries

    counts = drawn(loglinear(0.0)).sum(axis=0)
    network = bpm.declare(
        states={v: STATES[v] for v in ("smokes", "ill")}, cliques=[("smokes", "ill")]
    )
    asked = queries.parities(2)
    bound = asked.bind(bpm.ModelSpecification.from_pgmpy(network))
    exact = bound.answers(counts.ravel().astype(float))
    noisy = exact + LAW.draw(exact.shape, np.random.default_rng(0))
    release = bpm.NoisyStatistics.from_measurements(network, [bpm.Measurement(asked, noisy, LAW)])
    found = analysis.independence_test(release, "smokes", "ill", **FEW)
    assert found.df == 1
    assert found.p_value == pytest.approx(1 / 200)


def test_odd_questions_are_refused():
    release = released(STATES, {WHOLE: drawn(loglinear(0.0))})
    with pytest.raises(ModelError, match="not declared"):
        analysis.goodness_of_fit(release, [("smokes", "height")])
    with pytest.raises(ModelError, match="leave out an interaction"):
        analysis.goodness_of_fit(release, [WHOLE])
    with pytest.raises(ModelError, match="once"):
        analysis.equal_odds_test(release, "smokes", "smokes", over=["age"])
    with pytest.raises(ArgumentError, match="at least one variable"):
        analysis.equal_odds_test(release, "smokes", "ill", over=[])
    with pytest.raises(ArgumentError, match="tells the groups"):
        analysis.compare_groups(release)
    with pytest.raises(ModelError, match="two groups"):
        analysis.compare_groups({"all": release})
    with pytest.raises(ModelError, match="have the states of"):
        analysis.symmetry(release, "age", "ill")
    with pytest.raises(ModelError, match="have the states of"):
        analysis.homogeneity(release)
    with pytest.raises(ArgumentError, match="once"):
        analysis.independence_test([release, release], "smokes", "ill")
    one = released({"g": ["all"], "x": ["a", "b"]}, {("g", "x"): [[40, 50]]})
    with pytest.raises(ModelError, match="two states"):
        analysis.compare_groups(one, "g")
    empty = released({"x": [0, 1], "y": [0, 1]}, {("x", "y"): [[40, 50], [0, 0]]}, NoNoise())
    with pytest.raises(ModelError, match="records in two states of 'x'"):
        analysis.independence_test(empty, "x", "y")


def test_panels_need_a_table_of_each_step():
    moves = panel([0.6, 0.2, 0.2], [STAY, STAY])
    with pytest.raises(ModelError, match="at least three"):
        analysis.stationarity_test(moves, TIMES[:2])
    with pytest.raises(ModelError, match="a table of x1, x3"):
        analysis.homogeneity(moves, ["x1", "x3"])
    with pytest.raises(ArgumentError, match="list variables"):
        analysis.homogeneity(moves, "x1")
    whole = released(PANEL, {tuple(TIMES): np.full((3, 3, 3), 40)}, RandomRounding(base=3))
    with pytest.raises(ModelError, match="a table of x1, x2 and no other variable"):
        analysis.stationarity_test(whole)


def whole_panel(first, moves, records=RECORDS, seed=0, noise=LAW):
    """A release of the joint table of three times of a chain."""
    rng = np.random.default_rng(seed)
    shares = first[:, np.newaxis, np.newaxis] * moves[0][:, :, np.newaxis] * moves[1]
    counts = rng.multinomial(records, shares.ravel()).reshape(shares.shape)
    return released(PANEL, {tuple(TIMES): counts}, noise, seed=seed)


@pytest.mark.parametrize("test", [analysis.homogeneity, analysis.stationarity_test])
def test_without_noise_a_table_of_three_times_says_what_its_two_steps_say(test):
    whole = whole_panel(np.array([0.5, 0.3, 0.2]), [STAY, STAY], noise=NoNoise())
    counts = whole.tables[tuple(TIMES)]
    steps = {("x1", "x2"): counts.sum(axis=2), ("x2", "x3"): counts.sum(axis=0)}
    apart = test(released(PANEL, steps, NoNoise()), **FEW)
    joint = test(whole, **FEW)
    assert joint.df == apart.df
    assert joint.statistic == pytest.approx(apart.statistic, rel=0.01)
    assert joint.expected == pytest.approx(apart.expected, rel=0.01)
    assert "goodness_of_fit" in joint.note


def test_a_table_of_three_times_has_the_right_p_values_and_shows_what_changed():
    start = stationary(STAY)
    loud = DiscreteLaplace(20.0)
    found = [
        test(whole_panel(start, [STAY, STAY], seed=seed, noise=loud), draws=99, rng=seed)
        for seed in range(25)
        for test in (analysis.homogeneity, analysis.stationarity_test)
    ]
    # level 1e-4 each
    assert kstest([one.p_value for one in found[::2]], "uniform").pvalue > 1e-4
    assert kstest([one.p_value for one in found[1::2]], "uniform").pvalue > 1e-4
    moved = whole_panel(start, [STAY, MOVE], noise=loud)
    assert analysis.stationarity_test(moved, **FEW).p_value == pytest.approx(1 / 200)


def test_pearson_of_a_panel_reads_all_steps():
    release = panel([0.4, 0.3, 0.3], [STAY, STAY], noise=NoNoise(), seed=3)
    found = analysis.stationarity_test(release, **FEW)
    naive = chi2(found.df).isf(found.pearson_p_value)
    assert naive == pytest.approx(found.statistic, rel=0.02)


def test_wide_questions_are_refused():
    states = {f"x{v}": ["a", "b"] for v in range(13)}
    tables = {(f"x{v}", f"x{v + 1}"): np.full((2, 2), 100) for v in range(12)}
    release = released(states, tables)
    with pytest.raises(ModelTooLargeError, match="fewer variables"):
        analysis.compare_groups(release, "x0")
