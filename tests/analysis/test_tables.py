"""Odds ratios, risks, associations and standardized risks against textbook formulas on tables with little noise."""

import numpy as np
import pandas as pd
import pytest
from inference.posterior.drawn import drawn_posterior
from scipy.stats import norm
from scipy.stats.contingency import association as scipy_association

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.errors import ArgumentError, ModelError, NoIntervalError
from bayesprivmrf.noise import DiscreteLaplace

STATES = {"age": ["<30", "30-60", ">60"], "smokes": ["no", "yes"], "ill": ["no", "yes"]}
NUMBERS = ["estimate", "lower", "upper"]
# counts by age, smoking and illness, so large that the prior of the fit hardly matters
COUNTS = np.array(
    [
        [[40_000, 6_000], [20_000, 9_000]],
        [[30_000, 9_000], [25_000, 16_000]],
        [[20_000, 9_000], [16_000, 12_000]],
    ]
)
PROB = 0.9


def release_of(counts=COUNTS, states=STATES, cliques=None, scale=0.5):
    """A release whose noisy table is the given one."""
    network = bpm.declare(states=states, cliques=cliques or [tuple(states)])
    return bpm.NoisyStatistics.from_tables(
        network, {tuple(states): counts}, noise=DiscreteLaplace(scale), total=int(counts.sum())
    )


@pytest.fixture(scope="module")
def solution():
    return bpm.NoiseAwareMAP().fit(release_of())


@pytest.fixture(scope="module")
def posterior():
    return drawn_posterior(release_of(COUNTS // 1000))


def log_interval(estimate, error):
    reach = norm.ppf(0.5 + PROB / 2) * error
    return np.exp(np.log(estimate) + np.array([0.0, -reach, reach]))


def test_an_odds_ratio_has_woolfs_interval_where_the_noise_is_small(solution):
    found = analysis.odds_ratios(solution, "smokes", "ill", given=["age"])
    for age, table in zip(STATES["age"], COUNTS, strict=True):
        ratio = table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0])
        expected = log_interval(ratio, np.sqrt((1 / table).sum()))
        assert found.loc[age][NUMBERS].to_numpy()[0] == pytest.approx(expected, rel=0.01)
    assert found.index.names == ["age", "smokes", "ill"]
    assert found.index[0] == ("<30", "yes vs no", "yes vs no")
    assert set(found["status"]) == {"ok"}


@pytest.mark.parametrize("kind", ["local", "reference", "cumulative"])
def test_kinds_of_odds_ratios_compare_the_states_they_name(solution, kind):
    found = analysis.odds_ratios(solution, "age", "ill", kind=kind)
    table = COUNTS.sum(axis=1)
    groups = {
        "local": [(1, 0), (2, 1)],
        "reference": [(1, 0), (2, 0)],
        "cumulative": [([1, 2], 0), (2, [0, 1])],
    }[kind]
    for (upper, lower), estimate in zip(groups, found["estimate"], strict=True):
        one = table[upper].reshape(-1, 2).sum(axis=0)
        other = table[lower].reshape(-1, 2).sum(axis=0)
        expected = one[1] * other[0] / (one[0] * other[1])
        assert estimate == pytest.approx(expected, rel=0.01)


def test_a_condition_is_one_of_the_states_taken_in_turn(solution):
    turn = analysis.odds_ratios(solution, "smokes", "ill", given=["age"]).loc[">60"]
    one = analysis.odds_ratios(solution, "smokes", "ill", given={"age": ">60"})
    pd.testing.assert_frame_equal(turn, one)


def test_risks_are_compared_with_those_of_the_first_state(solution):
    table = COUNTS.sum(axis=0)
    people = table.sum(axis=1)
    risks = table[:, 1] / people
    variances = risks * (1 - risks) / people
    difference = analysis.risk_differences(solution, "smokes", "ill").loc["yes vs no", "yes"]
    reach = norm.ppf(0.5 + PROB / 2) * np.sqrt(variances.sum())
    center = risks[1] - risks[0]
    expected = [center, center - reach, center + reach]
    assert difference[NUMBERS].to_list() == pytest.approx(expected, rel=0.01)
    ratio = analysis.risk_ratios(solution, "smokes", "ill").loc["yes vs no", "yes"]
    error = np.sqrt((variances / risks**2).sum())
    expected = log_interval(risks[1] / risks[0], error)
    assert ratio[NUMBERS].to_numpy() == pytest.approx(expected, rel=0.01)


def test_the_pooled_odds_ratio_is_that_of_mantel_and_haenszel(solution):
    from statsmodels.stats.contingency_tables import StratifiedTable

    tables = StratifiedTable(np.moveaxis(COUNTS, 0, -1).astype(float))
    low, high = tables.oddsratio_pooled_confint(1 - PROB)
    found = analysis.pooled_odds_ratio(solution, "smokes", "ill", over=["age"])
    expected = [tables.oddsratio_pooled, low, high]
    assert found[NUMBERS].to_numpy()[0] == pytest.approx(expected, rel=0.01)


def test_associations_are_those_of_the_table(solution):
    table = COUNTS.sum(axis=1)
    shares = table / table.sum()
    cramer = analysis.association(solution, "age", "ill")
    assert cramer["estimate"].item() == pytest.approx(scipy_association(table), rel=0.02)
    independent = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    information = (shares * np.log(shares / independent)).sum()
    found = analysis.association(solution, "age", "ill", method="mutual information")
    assert found["estimate"].item() == pytest.approx(information, rel=0.03)
    concordant, discordant = 0.0, 0.0
    for one in np.ndindex(shares.shape):
        for other in np.ndindex(shares.shape):
            order = (one[0] - other[0]) * (one[1] - other[1])
            weight = shares[one] * shares[other]
            concordant += weight * (order > 0)
            discordant += weight * (order < 0)
    gamma = (concordant - discordant) / (concordant + discordant)
    found = analysis.association(solution, "age", "ill", method="gamma")
    assert found["estimate"].item() == pytest.approx(gamma, rel=0.02)


def test_residuals_are_departures_from_independence(solution):
    table = COUNTS.sum(axis=1)
    shares = table / table.sum()
    rows, columns = shares.sum(axis=1)[:, np.newaxis], shares.sum(axis=0)
    spread = np.sqrt(rows * columns * (1 - rows) * (1 - columns))
    expected = ((shares - rows * columns) / spread).ravel()
    found = analysis.residuals(solution, "age", "ill")
    assert found["estimate"].to_numpy() == pytest.approx(expected, abs=0.002)
    ratios = analysis.residuals(solution, "age", "ill", kind="ratio")
    expected = (shares / (rows * columns)).ravel()
    assert ratios["estimate"].to_numpy() == pytest.approx(expected, rel=0.01)


def test_standardized_risks_hold_the_distribution_of_the_others(solution):
    found = analysis.standardize(solution, "ill", on="smokes", over=["age"])
    shares = COUNTS.sum(axis=(1, 2)) / COUNTS.sum()
    risks = (COUNTS[..., 1] / COUNTS.sum(axis=-1) * shares[:, np.newaxis]).sum(axis=0)
    assert found.loc["risk", "no", "yes"]["estimate"] == pytest.approx(risks[0], rel=0.01)
    assert found.loc["risk", "yes", "yes"]["estimate"] == pytest.approx(risks[1], rel=0.01)
    difference = found.loc["difference", "yes", "yes"]
    assert difference["estimate"] == pytest.approx(risks[1] - risks[0], rel=0.01)
    assert found.loc["ratio", "yes", "yes"]["estimate"] == pytest.approx(risks[1] / risks[0], 0.01)
    assert found.index.names == ["quantity", "smokes", "ill"]
    assert "no" not in found.loc["difference"].index.get_level_values("smokes")
    assert any("common cause" in sentence for sentence in found.attrs["assumptions"])


def test_simultaneous_limits_are_wider_than_single_ones_and_narrower_than_bonferronis(solution):
    single, joint = (
        analysis.odds_ratios(solution, "smokes", "ill", given=["age"], simultaneous=own)
        for own in (False, True)
    )
    ratio = np.log(joint["upper"] / joint["lower"]) / np.log(single["upper"] / single["lower"])
    bonferroni = norm.ppf(1 - (1 - PROB) / 6) / norm.ppf(0.5 + PROB / 2)
    assert ((ratio > 1.15) & (ratio < bonferroni * 1.02)).all()


def test_a_posterior_answers_by_its_draws(posterior):
    found = analysis.odds_ratios(posterior, "smokes", "ill", given={"age": ">60"})

    def ratio(draw):
        table = draw.marginal(["smokes", "ill"], given={"age": ">60"}).values
        return np.log(table[0, 0] * table[1, 1] / (table[0, 1] * table[1, 0]))

    quantity = posterior.quantity(ratio, PROB, draws=100_000)
    draws = quantity.draws.values
    assert found["estimate"].item() == pytest.approx(np.exp(np.median(draws)))
    row = quantity.frame[["lower", "upper"]].to_numpy()[0]
    assert found[["lower", "upper"]].to_numpy()[0] == pytest.approx(np.exp(row))


def test_simultaneous_limits_of_draws_hold_the_wanted_share_of_draws(posterior):
    found = analysis.odds_ratios(posterior, "smokes", "ill", given=["age"], simultaneous=True)

    def ratios(draw):
        tables = draw.marginal(["age", "smokes", "ill"]).values
        return tables[:, 0, 0] * tables[:, 1, 1] / (tables[:, 0, 1] * tables[:, 1, 0])

    draws = posterior.quantity(ratios, draws=100_000).draws.values.reshape(-1, 3)
    lower, upper = found["lower"].to_numpy(), found["upper"].to_numpy()
    # limits are draws, but for the rounding error of a logarithm
    inside = (draws >= lower * (1 - 1e-9)) & (draws <= upper * (1 + 1e-9))
    held = inside.all(axis=1).mean()
    assert PROB <= held <= PROB + 0.03


def test_the_prior_decides_what_nothing_measured_bears_on():
    network = bpm.declare(states=STATES, cliques=[("age",), ("smokes", "ill")])
    counts = COUNTS.sum(axis=(1, 2))
    release = bpm.NoisyStatistics.from_tables(
        network,
        {("age",): counts, ("smokes", "ill"): COUNTS.sum(axis=0)},
        noise=DiscreteLaplace(0.5),
        total=int(counts.sum()),
    )
    independent = bpm.NoiseAwareMAP().fit(release)
    found = analysis.odds_ratios(independent, "age", "ill")
    assert set(found["status"]) == {"model"}
    assert found["note"].str.contains("declared").all()
    assert found["estimate"].to_numpy() == pytest.approx(1.0)
    wider = bpm.NoiseAwareMAP().fit(release, model=[("age", "ill"), ("smokes", "ill")])
    found = analysis.odds_ratios(wider, "age", "ill")
    assert set(found["status"]) == {"prior"}


def test_noise_beyond_the_counts_leaves_the_answer_to_the_prior():
    hidden = bpm.NoiseAwareMAP().fit(release_of(COUNTS // 2000, scale=60.0))
    found = analysis.odds_ratios(hidden, "smokes", "ill", given=["age"])
    assert set(found["status"]) == {"prior"}


def test_ties_and_scores_restrict_the_odds_ratios():
    states = {"x": [1, 2, 3], "y": [1, 2, 3]}
    network = bpm.declare(states=states, cliques=[("x", "y")], ordinal=["x", "y"])
    scores = np.arange(3.0)
    counts = np.rint(5_000 * np.exp(0.4 * np.outer(scores, scores))).astype(int)
    release = bpm.NoisyStatistics.from_tables(
        network, {("x", "y"): counts}, noise=DiscreteLaplace(0.5), total=int(counts.sum())
    )
    found = analysis.odds_ratios(bpm.NoiseAwareMAP().fit(release), "x", "y")
    assert len(found) == 4
    assert found["estimate"].to_numpy() == pytest.approx(np.exp(0.4), rel=0.02)


def test_structural_zeros_give_no_number():
    network = bpm.declare(
        states={"sex": ["m", "f"], "pregnant": ["no", "yes"]},
        cliques=[("sex", "pregnant")],
        impossible=[{"sex": "m", "pregnant": "yes"}],
    )
    counts = np.array([[5000, 0], [4000, 500]])
    release = bpm.NoisyStatistics.from_tables(
        network, {("sex", "pregnant"): counts}, noise=DiscreteLaplace(0.5), total=9500
    )
    found = analysis.odds_ratios(bpm.NoiseAwareMAP().fit(release), "sex", "pregnant")
    assert found[NUMBERS].isna().all(axis=None)
    assert set(found["status"]) == {"not trusted"}
    assert found["note"].str.contains("undefined").all()


def test_a_point_estimate_has_no_odds_ratios():
    release = release_of(COUNTS // 100)
    for estimator in (bpm.NaiveMLE(), bpm.CGM()):
        fit = estimator.fit(release)
        for ask in (
            lambda fit=fit: analysis.odds_ratios(fit, "smokes", "ill"),
            lambda fit=fit: analysis.standardize(fit, "ill", on="smokes", over=["age"]),
            lambda fit=fit: fit.effects(),
            lambda fit=fit: fit.joint_estimate(["ill"]),
        ):
            with pytest.raises(NoIntervalError, match="NoiseAwareMAP"):
                ask()


def test_odd_questions_are_refused(solution):
    with pytest.raises(ModelError, match="not declared"):
        analysis.odds_ratios(solution, "smoke", "ill")
    with pytest.raises(ModelError):
        analysis.odds_ratios(solution, "ill", "ill")
    with pytest.raises(ModelError, match="`given` must name other variables than those compared"):
        analysis.odds_ratios(solution, "smokes", "ill", given=["ill"])
    with pytest.raises(ArgumentError, match="local"):
        analysis.odds_ratios(solution, "smokes", "ill", kind="global")
    with pytest.raises(ArgumentError, match="cramer"):
        analysis.association(solution, "smokes", "ill", method="phi")
    with pytest.raises(ArgumentError, match="given"):
        analysis.odds_ratios(solution, "smokes", "ill", given="age")
    with pytest.raises(ArgumentError, match="given"):
        analysis.odds_ratios(solution, "smokes", "ill", given=[])
    with pytest.raises(ArgumentError, match="prob"):
        analysis.odds_ratios(solution, "smokes", "ill", prob=90)
    with pytest.raises(ArgumentError, match="over"):
        analysis.standardize(solution, "ill", on="smokes", over=[])
    with pytest.raises(ArgumentError, match="`a` and `b` must name variables with two"):
        analysis.pooled_odds_ratio(solution, "age", "ill", over=["smokes"])
    with pytest.raises(ArgumentError, match="result of an estimator"):
        analysis.odds_ratios(release_of(), "smokes", "ill")


def test_a_variable_of_one_state_has_nothing_to_compare():
    release = release_of(COUNTS[:1] // 100, {**STATES, "age": ["all"]})
    with pytest.raises(ModelError, match="two states"):
        analysis.odds_ratios(bpm.NoiseAwareMAP().fit(release), "age", "ill")


def test_a_chain_with_one_transition_matrix_has_odds_ratios():
    network = bpm.markov_chain(["low", "high"], 3, share="transitions", names=["p", "q", "r"])
    first = np.array([[800, 200], [300, 700]])
    second = np.array([[880, 220], [270, 630]])
    names = ("p", "q", "r")
    release = bpm.NoisyStatistics.from_tables(
        network,
        {names[:2]: first, names[1:]: second},
        noise=DiscreteLaplace(1.0),
        total=2000,
    )
    fit = bpm.NoiseAwareMAP().fit(release)
    found = analysis.odds_ratios(fit, *names[:2])
    assert found["estimate"].item() == pytest.approx(4 * 7 / 3, rel=0.05)
    error = np.sqrt((1 / (first + second)).sum())
    width = np.log(found["upper"] / found["lower"]).item()
    assert width == pytest.approx(2 * norm.ppf(0.95) * error, rel=0.1)


def test_a_learned_model_answers_with_the_remarks_of_its_own_intervals():
    from bayesprivmrf.mechanisms import SelectMeasure

    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, 5000)
    b = np.where(rng.random(5000) < 0.7, a, 1 - a)
    data = pd.DataFrame({"a": a, "b": b, "c": rng.integers(0, 2, 5000)})
    states = {name: [0, 1] for name in data}
    learned = SelectMeasure(rho=1.0, workload=[("a", "b")]).release(
        bpm.declare(states=states), data, rng=1
    )
    found = analysis.odds_ratios(learned, "a", "b")
    assert found["lower"].item() < (0.7 / 0.3) ** 2 < found["upper"].item()
    own = learned.interval(["b", "c"])
    distant = analysis.odds_ratios(learned, "b", "c")
    order = ["ok", "model", "prior", "doubtful", "not trusted"]
    assert order.index(distant["status"].item()) >= max(map(order.index, own["status"]))
    assert distant["note"].str.startswith("simulated;").all()
