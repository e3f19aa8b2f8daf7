"""Distant times of a chain: a table of them tests the order, and rows say where none did."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf import sequences
from bayesprivmrf.errors import ConsistencyWarning, ModelError
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.noise import Gaussian, Laplace

TIMES = ["jan", "feb", "mar", "apr", "may"]
STEPS = list(pairwise(TIMES))
STATES = ["in", "out"]
DISTANT = q.table("jan", "may")
ONE = np.array([[0.8, 0.2], [0.3, 0.7]])
STAYERS = np.array([[0.98, 0.02], [0.02, 0.98]])
MOVERS = np.array([[0.5, 0.5], [0.5, 0.5]])


def people(matrices, size=2000, seed=1):
    rng = np.random.default_rng(seed)
    kind = rng.integers(len(matrices), size=size)
    codes = rng.integers(2, size=(size, len(TIMES)))
    for t in range(1, len(TIMES)):
        codes[:, t] = rng.random(size) > np.array(matrices)[kind, codes[:, t - 1], 0]
    return pd.DataFrame(np.array(STATES)[codes], columns=TIMES)


def chain(share="transitions", order=1):
    return bpm.markov_chain(STATES, len(TIMES), order, share, names=TIMES)


def released(network, data, queries, seed=1):
    return LaplaceStatistics(epsilon=1.0, queries=queries).release(network, data, rng=seed)


def steps_of(kind):
    if kind == "steps":
        return [q.table(*step) for step in STEPS]
    return [q.pooled(STEPS), q.table("jan")]


@pytest.mark.parametrize("kind", ["steps", "sum"])
@pytest.mark.parametrize("estimator", [bpm.NoiseAwareMAP(), bpm.NaiveMLE()], ids=lambda e: e.method)
def test_people_who_differ_are_told_from_a_chain_by_a_table_of_distant_times(kind, estimator):
    release = released(chain(), people([STAYERS, MOVERS]), [*steps_of(kind), DISTANT])
    with pytest.warns(ConsistencyWarning, match="the table of jan and may"):
        fit = estimator.fit(release)
    assert fit.status == "not trusted"
    assert "contradicts the order of this chain" in fit.problems[0]
    assert "declare order 2" in fit.problems[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.ConsistencyWarning")
def test_a_right_order_is_seldom_accused():
    """100 releases: at most one tenth, and three standard errors, have a p-value below 0.1."""
    tails = []
    network = chain()
    for seed in range(100):
        data = people([ONE], 1000, seed)
        release = released(network, data, [*steps_of("sum"), DISTANT], seed)
        tails.append(bpm.NaiveMLE().fit(release).stats["order_tail"])
    error = np.sqrt(0.1 * 0.9 / len(tails))
    assert np.mean(np.array(tails) < 0.1) <= 0.1 + 3 * error
    # the p-values are not all near 1, as those of a test without power would be
    assert np.mean(np.array(tails) < 0.5) >= 0.3


def test_a_distant_table_changes_no_number_of_the_fit():
    data = people([ONE])
    release = released(chain(), data, [*steps_of("steps"), DISTANT])
    steps = bpm.NoisyStatistics.from_measurements(
        chain(), release.measurements[:-1], guarantee=release.guarantee, total=release.total
    )
    whole = bpm.NoiseAwareMAP().fit(release)
    alone = bpm.NoiseAwareMAP().fit(steps)
    np.testing.assert_allclose(whole.marginals.flat, alone.marginals.flat, atol=0.002)


def notes(fit, variables, **settings):
    return set(fit.interval(variables, **settings)["note"])


@pytest.mark.parametrize("share", ["transitions", "potentials"])
def test_rows_far_apart_say_that_memory_was_not_tested_unless_it_was(share):
    data = people([ONE])
    fit = bpm.NoiseAwareMAP().fit(released(chain(share), data, steps_of("steps")))
    frame = fit.interval(["jan", "may"])
    said = "memory beyond one step not tested: measure (jan, may)"
    assert frame["note"].str.contains(said, regex=False).all()
    assert (frame["status"] == "model").all()
    assert said in frame.to_csv()
    assert all(said in note for note in notes(fit, ["may"], given={"jan": "in"}))
    assert all("measure (jan, apr)" in note for note in notes(fit, ["jan", "feb", "apr"]))
    assert not any("memory" in note for note in notes(fit, ["jan", "feb"]))
    tested = bpm.NoiseAwareMAP().fit(released(chain(share), data, [*steps_of("steps"), DISTANT]))
    assert tested.status == "converged"
    assert not any("memory" in note for note in notes(tested, ["jan", "may"]))
    assert all("memory" in note for note in notes(tested, ["jan", "apr"]))


def test_times_of_a_chain_say_that_memory_was_not_tested_unless_it_was():
    data = people([ONE])
    fit = bpm.NoiseAwareMAP().fit(released(chain(), data, steps_of("steps")))
    tested = bpm.NoiseAwareMAP().fit(released(chain(), data, [*steps_of("steps"), DISTANT]))
    for table in (sequences.sojourn_times, sequences.stationary_law, time_to_out):
        frame = table(fit)
        said = "memory beyond one step not tested: measure (jan, may)"
        assert frame["note"].str.contains(said, regex=False).all()
        assert frame["status"].isin(["model", "doubtful"]).all()
        assert not table(tested)["note"].str.contains("memory").any()
    assert not sequences.transition_matrix(fit)["note"].str.contains("memory").any()


def time_to_out(fit):
    return sequences.hitting_times(fit, "out")


def test_memory_is_counted_from_the_order_of_the_chain():
    windows = [q.table(*TIMES[t : t + 3]) for t in range(3)]
    fit = bpm.NoiseAwareMAP().fit(released(chain(order=2), people([ONE]), windows))
    assert not any("memory" in note for note in notes(fit, ["jan", "mar"]))
    assert all("memory beyond 2 steps" in note for note in notes(fit, ["jan", "apr"]))


def test_sums_over_distant_times_test_the_order_too():
    apart = q.pooled([(TIMES[t], TIMES[t + 2]) for t in range(3)])
    release = released(chain(), people([STAYERS, MOVERS]), [*steps_of("sum"), apart])
    with pytest.warns(ConsistencyWarning, match="contradicts the order"):
        bpm.NoiseAwareMAP().fit(release)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
def test_the_posterior_is_not_trusted_either_and_a_file_keeps_the_notes(tmp_path):
    queries = [*steps_of("sum"), DISTANT]
    # a mean of a few draws is enough to be judged
    settings = {"rng": 1, "progress_bar": False, "draws": 50, "tune": 50, "chains": 2}
    settings["time_limit"] = 1e-9
    with pytest.warns(ConsistencyWarning, match="contradicts the order"):
        wrong = bpm.LatentCounts().fit(
            released(chain(), people([STAYERS, MOVERS]), queries), **settings
        )
    assert wrong.status == "not trusted"
    right = bpm.LatentCounts().fit(released(chain(), people([ONE]), queries), **settings)
    right.save(tmp_path / "posterior.nc")
    loaded = bpm.load_posterior(tmp_path / "posterior.nc")
    for fit in (right, loaded):
        assert not any("memory" in note for note in notes(fit, ["jan", "may"]))
        assert all("memory" in note for note in notes(fit, ["jan", "apr"]))


def test_distant_times_alone_are_refused():
    release = released(chain(), people([ONE]), [DISTANT])
    with pytest.raises(ModelError, match="measurements of its steps"):
        bpm.NoiseAwareMAP().fit(release)


def test_a_group_variable_beside_one_transition_matrix_is_refused_by_name():
    steps = tuple(("sex", *step) for step in STEPS)
    states = {"sex": ["f", "m"]} | dict.fromkeys(TIMES, STATES)
    model = ModelSpecification(
        domain=Domain.from_states(states), cliques=steps, ties=(steps,), shares_transitions=True
    )
    release = bpm.NoisyStatistics.from_tables(
        bpm.declare(states, steps),
        {step: np.full((2, 2, 2), 100.0) for step in steps},
        noise=Laplace(1.0),
    )
    for estimator in (bpm.NoiseAwareMAP(), bpm.NaiveMLE()):
        with pytest.raises(ModelError, match=r"'sex'\] in every step.*takes no covariate"):
            estimator.fit(release, model=model)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.ConsistencyWarning")
def test_the_tails_of_the_noise_of_the_steps_count():
    """A residual that a few draws of Laplace noise decide is less surprising than one of normal noise."""
    data = people([ONE])
    release = released(chain(), data, [*steps_of("sum"), DISTANT])
    *steps, distant = release.measurements
    # people who are more alike than a chain of order 1 predicts
    shift = np.array([200, -200, -200, 200])
    moved = replace(distant, values=distant.values + shift, noise=Gaussian(2.0))
    tails = []
    for noise in (Gaussian(600.0), Laplace(600.0 / np.sqrt(2))):
        measurements = [*(replace(step, noise=noise) for step in steps), moved]
        fit = bpm.NaiveMLE().fit(
            bpm.NoisyStatistics.from_measurements(chain(), measurements, total=2000)
        )
        tails.append(fit.stats["order_tail"])
    normal, heavy = tails
    assert 1e-4 < normal < 0.005
    assert heavy > 2 * normal
