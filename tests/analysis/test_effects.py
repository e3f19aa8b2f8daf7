"""Effects of the log-linear model in both codings, from the curvature and from draws."""

import numpy as np
import pytest
from analysis.test_tables import COUNTS, NUMBERS, STATES, release_of
from inference.posterior.drawn import drawn_posterior

import bayesprivmrf as bpm
from bayesprivmrf import analysis
from bayesprivmrf.errors import ConsistencyWarning
from bayesprivmrf.noise import DiscreteLaplace


@pytest.fixture(scope="module")
def solution():
    return bpm.NoiseAwareMAP().fit(release_of())


def test_the_reference_interaction_at_the_first_states_is_a_log_odds_ratio(solution):
    found = solution.effects(coding="reference").loc[("smokes:ill", "yes:yes"), NUMBERS]
    ratio = analysis.odds_ratios(solution, "smokes", "ill", given={"age": "<30"})
    expected = np.log(ratio[NUMBERS].to_numpy(float)[0])
    assert found.to_numpy(float) == pytest.approx(expected, abs=1e-3)


def test_reference_effects_rebuild_the_log_probabilities(solution):
    effects = solution.effects(coding="reference")["estimate"]
    logs = np.log(solution.marginal(list(STATES)).values)
    assert effects["ill", "yes"] == pytest.approx(logs[0, 0, 1] - logs[0, 0, 0])
    whole = sum(
        effects[own, state]
        for own, state in [
            ("age", ">60"),
            ("smokes", "yes"),
            ("ill", "yes"),
            ("age:smokes", ">60:yes"),
            ("age:ill", ">60:yes"),
            ("smokes:ill", "yes:yes"),
            ("age:smokes:ill", ">60:yes:yes"),
        ]
    )
    assert whole == pytest.approx(logs[2, 1, 1] - logs[0, 0, 0])


def test_zero_sum_effects_sum_to_zero_and_rebuild_the_table(solution):
    effects = solution.effects()["estimate"]
    for effect in effects.index.get_level_values("effect").unique():
        assert effects[effect].sum() == pytest.approx(0.0, abs=1e-9)
    logs = np.log(solution.marginal(["smokes", "ill", "age"]).values)
    centered = logs.mean(axis=2)
    interaction = (
        centered - centered.mean(axis=0) - centered.mean(axis=1)[:, None] + centered.mean()
    )
    assert effects["smokes:ill", "yes:yes"] == pytest.approx(interaction[1, 1])


def test_draws_have_the_effects_of_their_models():
    posterior = drawn_posterior(release_of(COUNTS // 1000))
    found = posterior.effects(coding="reference")
    drawn = posterior.quantity(
        lambda draw: np.log(draw.marginal(list(STATES)).values), draws=100_000
    ).draws.values
    main = (drawn[..., 0, 0, 1] - drawn[..., 0, 0, 0]).mean()
    assert found.loc[("ill", "yes"), "estimate"] == pytest.approx(main)


def test_a_smaller_model_has_the_effects_of_its_cliques_alone():
    with pytest.warns(ConsistencyWarning):
        solution = bpm.NoiseAwareMAP().fit(release_of(), model=[("age", "ill"), ("smokes",)])
    names = set(solution.effects().index.get_level_values("effect"))
    assert names == {"age", "smokes", "ill", "age:ill"}


def test_structural_zeros_leave_effects_undefined():
    network = bpm.declare(
        states={"sex": ["m", "f"], "pregnant": ["no", "yes"], "ill": ["no", "yes"]},
        cliques=[("sex", "pregnant"), ("ill",)],
        impossible=[{"sex": "m", "pregnant": "yes"}],
    )
    release = bpm.NoisyStatistics.from_tables(
        network,
        {("sex", "pregnant"): np.array([[5000, 0], [4000, 500]]), ("ill",): [9000, 500]},
        noise=DiscreteLaplace(0.5),
        total=9500,
    )
    found = bpm.NoiseAwareMAP().fit(release).effects()
    is_defined = found["estimate"].notna()
    assert set(found.index[is_defined].get_level_values("effect")) == {"ill"}
    assert set(found["status"][~is_defined]) == {"not trusted"}
