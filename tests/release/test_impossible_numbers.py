"""Numbers of impossible cells: refused, or told by every fit, unless noise around 0 explains them."""

import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import ConsistencyWarning, ModelError
from bayesprivmrf.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    NoNoise,
    RandomRounding,
    Rounded,
    Within,
)

STATES = {"sex": ["m", "f"], "pregnant": ["no", "yes"]}
FREE = bpm.declare(STATES, [("sex", "pregnant")])
ZEROS = bpm.declare(STATES, [("sex", "pregnant")], impossible=[{"sex": "m", "pregnant": "yes"}])
OF_NOISE = [Laplace(2.0), DiscreteLaplace(2.0), Gaussian(3.0), DiscreteGaussian(3.0)]
SWAPPED = np.array([[61.0, 90.0], [151.0, 0.0]])
LAWS = [*OF_NOISE, NoNoise(), Rounded(5), RandomRounding(3), Within(4.0)]


def released(model, table, law):
    return bpm.NoisyStatistics.from_tables(model, {("sex", "pregnant"): table}, noise=law)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_records_in_an_impossible_cell_are_refused(law):
    table = SWAPPED
    if law in (Rounded(5), RandomRounding(3)):
        table = np.array([[60.0, 90.0], [150.0, 0.0]])
    with pytest.raises(ModelError, match="count no possible record") as refused:
        released(ZEROS, table, law)
    assert "90" not in str(refused.value)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_no_records_in_an_impossible_cell_are_right(law):
    release = released(ZEROS, [[60.0, 0.0], [150.0, 90.0]], law)
    assert release.measurements[0].values[1] == 0


@pytest.mark.parametrize("law", OF_NOISE, ids=repr)
def test_noise_in_impossible_cells_is_never_accused(law):
    # a level of a millionth: one accusation of 100 has a probability of at most 0.0001
    rng = np.random.default_rng(5)
    for noise in law.draw((100, 2, 2), rng):
        release = released(ZEROS, np.array([[60, 0], [150, 90]]) + noise, law)
        assert release.flat[1] == 0


@pytest.mark.parametrize("law", OF_NOISE, ids=repr)
@pytest.mark.parametrize(
    "estimator", [bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP()], ids=lambda each: each.method
)
def test_fit_under_a_model_that_excludes_records_is_not_trusted(estimator, law):
    release = released(FREE, SWAPPED + 0.25 * (not law.is_discrete), law)
    with pytest.warns(ConsistencyWarning, match="count no possible record"):
        found = estimator.fit(release, model=ZEROS)
    assert found.status is bpm.Status.NOT_TRUSTED
    assert found.stats["impossible_tail"] < 1e-6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_posterior_under_a_model_that_excludes_records_is_not_trusted():
    release = released(FREE, SWAPPED, DiscreteLaplace(2.0))
    found = bpm.LatentCounts().fit(release, model=ZEROS, rng=1)
    assert found.status is bpm.Status.NOT_TRUSTED
    assert any("count no possible record" in each for each in found.problems)


def test_exact_records_that_a_model_excludes_are_refused():
    with pytest.raises(ModelError, match="contradict each other"):
        bpm.NaiveMLE().fit(released(FREE, SWAPPED, NoNoise()), model=ZEROS)


def test_query_without_weight_has_noise_alone():
    query = bpm.queries.weighted("sex", matrix=[[0.0, 0.0], [1.0, 1.0]])
    right = bpm.Measurement(query, [1.5, 300.0], Laplace(2.0))
    bpm.NoisyStatistics.from_measurements(FREE, [right])
    wrong = bpm.Measurement(query, [150.0, 300.0], Laplace(2.0))
    with pytest.raises(ModelError, match="weights of the query"):
        bpm.NoisyStatistics.from_measurements(FREE, [wrong])


@pytest.mark.parametrize("law", OF_NOISE, ids=repr)
def test_power_and_level_at_the_border(law):
    """The bound is a p-value: numbers that are accused are rarer than the level under the exact tail."""
    reach = np.arange(10.0, 60.0)
    refused = []
    for value in reach:
        try:
            released(ZEROS, [[60.0, value], [150.0, 90.0]], law)
        except ModelError:
            refused.append(value)
    smallest = min(refused)
    assert refused == list(reach[reach >= smallest])
    values = (
        np.arange(smallest, smallest + 400)
        if law.is_discrete
        else np.linspace(smallest, smallest + 400, 400_001)
    )
    density = np.exp(law.log_density(values))
    exact = 2 * (density.sum() if law.is_discrete else np.trapezoid(density, values))
    assert exact < 1e-6
    # and not much rarer: half of the distance already has a tail that is common beside it
    assert smallest < 25 * np.sqrt(law.variance)
