"""Regressions on the joint table against those of statsmodels on the records behind it."""

import time

import numpy as np
import pandas as pd
import pytest
from analysis.test_tables import COUNTS, STATES, release_of
from inference.posterior.drawn import drawn_posterior

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.errors import ArgumentError, ConsistencyWarning, ModelError
from bayesprivmrf.noise import DiscreteLaplace

PROB = 0.9


@pytest.fixture(scope="module")
def solution():
    return bpm.NoiseAwareMAP().fit(release_of())


def counted():
    """One row for each joint state, with its number of records."""
    index = pd.MultiIndex.from_product(STATES.values(), names=STATES)
    frame = index.to_frame(index=False)
    return frame.assign(count=COUNTS.ravel())


def test_a_logistic_regression_is_that_of_the_records_where_noise_is_small(solution):
    import statsmodels.api as sm

    rows = counted()
    design = pd.DataFrame(
        {
            "Intercept": 1.0,
            "age[T.30-60]": (rows["age"] == "30-60") * 1.0,
            "age[T.>60]": (rows["age"] == ">60") * 1.0,
            "smokes[T.yes]": (rows["smokes"] == "yes") * 1.0,
        }
    )
    fit = sm.GLM(
        (rows["ill"] == "yes") * 1.0,
        design,
        family=sm.families.Binomial(),
        freq_weights=rows["count"],
    ).fit(cov_type="HC0")
    found = analysis.regression(solution, "ill ~ age + smokes", prob=PROB)
    own = found.coefficients.loc["yes"].loc[design.columns]
    limits = fit.conf_int(1 - PROB)
    assert own["estimate"].to_numpy() == pytest.approx(fit.params.to_numpy(), abs=0.005)
    widths = (own["upper"] - own["lower"]).to_numpy()
    assert widths == pytest.approx((limits[1] - limits[0]).to_numpy(), rel=0.03)
    ratios = found.odds_ratios.loc["yes"].loc[design.columns]
    assert ratios["estimate"].to_numpy() == pytest.approx(np.exp(own["estimate"].to_numpy()))


def test_a_saturated_regression_has_the_conditional_probabilities(solution):
    found = analysis.regression(solution, "ill ~ age * smokes")
    expected = solution.marginal(["ill"], given=["age", "smokes"]).values.ravel()
    assert found.predictions["estimate"].to_numpy() == pytest.approx(expected)
    assert found.predictions.index.names == ["age", "smokes", "ill"]
    intervals = solution.interval(["ill"], given=["age", "smokes"])
    for name in ("lower", "upper"):
        assert found.predictions[name].to_numpy() == pytest.approx(
            intervals[name].to_numpy(), abs=1e-4
        )


def test_more_than_two_outcomes_are_compared_with_the_first(solution):
    found = analysis.regression(solution, "age ~ smokes")
    table = COUNTS.sum(axis=2)
    expected = np.log(table[2, 1] * table[0, 0] / (table[2, 0] * table[0, 1]))
    own = found.coefficients.loc[(">60", "smokes[T.yes]"), "estimate"]
    assert own == pytest.approx(expected, abs=0.01)


def test_interactions_that_the_model_excludes_are_named():
    pairs = [("age", "smokes"), ("smokes", "ill")]
    with pytest.warns(ConsistencyWarning):
        fit = bpm.NoiseAwareMAP().fit(release_of(), model=pairs)
    found = analysis.regression(fit, "ill ~ smokes + age")
    assert found.excluded == ("The model excludes the interaction of ill with age.",)
    rows = found.coefficients.loc["yes"]
    assert rows.loc[["age[T.30-60]", "age[T.>60]"], "estimate"].to_numpy() == pytest.approx(
        0.0, abs=1e-6
    )


@pytest.mark.slow
def test_two_thousand_draws_of_six_variables_take_seconds():
    states = {f"x{i}": [0, 1] for i in range(6)}
    counts = np.random.default_rng(0).integers(20, 80, [2] * 6)
    posterior = drawn_posterior(release_of(counts, states), size=2000)
    begin = time.process_time()
    found = analysis.regression(posterior, "x0 ~ x1 + x2 + x3 + x4 + x5")
    assert time.process_time() - begin < 2.5
    assert np.isfinite(found.coefficients["estimate"]).all()


def test_a_group_with_one_outcome_has_no_finite_coefficient():
    network = bpm.declare(
        states={"sex": ["m", "f"], "pregnant": ["no", "yes"]},
        cliques=[("sex", "pregnant")],
        impossible=[{"sex": "m", "pregnant": "yes"}],
    )
    release = bpm.NoisyStatistics.from_tables(
        network,
        {("sex", "pregnant"): np.array([[5000, 0], [4000, 500]])},
        noise=DiscreteLaplace(0.5),
        total=9500,
    )
    found = analysis.regression(bpm.NoiseAwareMAP().fit(release), "pregnant ~ sex")
    assert found.coefficients["estimate"].isna().all()
    assert set(found.coefficients["status"]) == {"not trusted"}


@pytest.mark.parametrize(
    ("formula", "error", "message"),
    [
        ("ill ~ smoke", ModelError, "declared variables"),
        ("ill ~ ill", ModelError, "no predictor"),
        ("smokes + age", ArgumentError, "before '~'"),
        ("ill ~ 1", ArgumentError, "predictor"),
        ("ill ~ (smokes", ArgumentError, "readable"),
        ("ill ~ smokes per day", ArgumentError, "several words in backticks"),
        ("ill + age ~ smokes", ArgumentError, "one variable"),
        (3, ArgumentError, "text"),
    ],
)
def test_formulas_without_a_meaning_are_refused(solution, formula, error, message):
    with pytest.raises(error, match=message):
        analysis.regression(solution, formula)


def test_a_name_with_a_dot_and_a_blank_stands_in_backticks():
    network = bpm.declare(
        states={"M. Work": ["no", "yes"], "is.ill": ["no", "yes"]}, cliques=[("M. Work", "is.ill")]
    )
    table = np.array([[400, 100], [200, 300]])
    release = bpm.NoisyStatistics.from_tables(
        network, {("M. Work", "is.ill"): table}, noise=DiscreteLaplace(0.5), total=1000
    )
    found = analysis.regression(bpm.NoiseAwareMAP().fit(release), "is.ill ~ `M. Work`")
    ratio = found.odds_ratios.loc[("yes", "M. Work[T.yes]"), "estimate"]
    assert ratio == pytest.approx(6.0, rel=0.05)
