"""DPSGD: what it releases, spends and refuses, and that it learns."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys

import numpy as np
import pandas as pd
import pytest
from notebook import html_of
from silence import no_noise_warning

import bayesprivmrf as bpm
from bayesprivmrf.errors import (
    ArgumentError,
    BayesPrivMRFError,
    DataError,
    ModelError,
    ModelTooLargeError,
    NoiseWarning,
    PrivacyError,
    UndeclaredStateError,
)
from bayesprivmrf.learning import LearnedPotentials
from bayesprivmrf.marginals import marginal_engine, sample
from bayesprivmrf.mechanisms import DPSGD, reference
from bayesprivmrf.mechanisms.reading import CodedRecords
from bayesprivmrf.noise import NoiseSource, SecureNoise
from bayesprivmrf.privacy import Adjacency, Schedule, calibrated_noise, promised_epsilon

from .contract import Account, Undrawn, released, without_generators

STATES = {"z": ["no", "yes"], 0: [7, 5, 6], "a": [True, False], "one": ["x"], "lonely": ["q", "p"]}
CLIQUES = [("z", 0), ("a", 0), ("one",), ("lonely",)]
QUICK = {"epsilon": 1.0, "delta": 1e-6, "steps": 20, "sampling_rate": 0.5}


def network(**settings):
    return bpm.declare(states=STATES, cliques=CLIQUES, **settings)


def frame(size: int, seed: int = 0) -> pd.DataFrame:
    """Records in which 0 follows z, a follows 0, and most of lonely is p."""
    rng = np.random.default_rng(seed)
    z = rng.random(size) < 0.3
    follows = np.where(rng.random(size) < 0.8, z, ~z)
    middle = np.where(follows, 5, np.where(rng.random(size) < 0.5, 7, 6))
    a = np.where(rng.random(size) < 0.9, middle == 5, middle == 7)
    return pd.DataFrame(
        {
            "z": np.where(z, "yes", "no"),
            "0": middle,
            "a": a,
            "one": ["x"] * size,
            "lonely": np.where(rng.random(size) < 0.9, "p", "q"),
        }
    )


class Replay(NoiseSource):
    """Answers the same whatever it was given."""

    is_simulated = False

    def add(self, counts, law):
        return (np.arange(counts.size, dtype=np.int64) + 5) * int(law.scale)

    def words(self, size):
        return np.arange(1, size + 1, dtype=np.uint64) << np.uint64(40)


# what is learned


def test_a_small_chain_is_recovered_at_a_large_budget():
    states = {i: ["a", "b", "c"] for i in range(4)}
    chain = bpm.declare(states=states, cliques=[(0, 1), (2, 1), (2, 3)])
    model = bpm.ModelSpecification.from_pgmpy(chain)
    theta = np.random.default_rng(1).normal(0, 1, model.size)
    truth = bpm.Solution(
        specification=model,
        potentials=model.tables(theta),
        method="truth",
        status=bpm.Status.CONVERGED,
    )
    codes = sample(model.cardinalities, model.scopes, theta, 20_000, np.random.default_rng(2))
    data = pd.DataFrame(np.array(["a", "b", "c"])[codes], columns=range(4))
    release = DPSGD(epsilon=20.0, delta=1e-6, steps=400).release(chain, data, rng=3)
    exact = reference(chain, data)
    assert bpm.kl_divergence(truth, release) < 1.5 * bpm.kl_divergence(truth, exact) + 1e-4
    assert bpm.kl_divergence(truth, bpm.uniform_solution(chain)) > 0.4
    assert release.details["status"] == "stopped early"


def test_labels_stay_with_their_states_in_awkward_domains():
    data = frame(30_000)
    release = DPSGD(epsilon=8.0, delta=1e-6, steps=100).release(network(), data, rng=1)
    solution = release.solution
    assert solution.method == "DPSGD"
    assert solution.status is bpm.Status.STOPPED_EARLY
    assert solution.is_simulated
    found = solution.marginal(["z", 0])
    for z, middle in itertools.product(["no", "yes"], [7, 5, 6]):
        share = ((data["z"] == z) & (data["0"] == middle)).mean()
        assert float(found.sel({"z": z, "0": middle})) == pytest.approx(share, abs=0.01)
    assert float(solution.marginal(["lonely"]).sel(lonely="p")) == pytest.approx(0.9, abs=0.01)
    assert float(solution.marginal(["one"]).sel(one="x")) == pytest.approx(1.0)
    graph = release.graph(0.2)
    assert set(graph.edges) == {("z", 0), (0, "a")}
    assert set(graph.nodes) == set(STATES)
    from pgmpy.inference import VariableElimination

    query = VariableElimination(release.network).query(["lonely"], show_progress=False)
    query.normalize()
    assert query.get_value(lonely="p") == pytest.approx(0.9, abs=0.01)


def test_the_release_stands_beside_solutions_in_a_comparison():
    data = frame(2_000)
    release = DPSGD(**QUICK).release(network(), data, rng=1)
    table = bpm.compare(
        {"DP-SGD": release, "uniform": bpm.uniform_solution(network())},
        truth=reference(network(), data),
        holdout=frame(500, seed=1),
    )
    assert table.loc["DP-SGD", "kl_divergence"] < table.loc["uniform", "kl_divergence"]
    assert (
        table.loc["DP-SGD", "holdout_log_likelihood"]
        > table.loc["uniform", "holdout_log_likelihood"]
    )
    assert table.loc["DP-SGD", "status"] == "stopped early"
    assert math.isnan(table.loc["DP-SGD", "seconds"])  # a duration would tell of the records


def test_impossible_cells_stay_impossible_and_records_in_them_are_refused():
    public = network(impossible=[{"z": "no", 0: 7}])
    data = frame(500)
    with pytest.raises(DataError, match="impossible"):
        DPSGD(**QUICK).release(public, data)
    allowed = data[(data["z"] == "yes") | (data["0"] != 7)]
    release = DPSGD(**QUICK).release(public, allowed, rng=1)
    assert np.isneginf(release.potentials["z", 0][0, 0])
    assert float(release.solution.marginal(["z", 0]).sel({"z": "no", "0": 7})) == 0.0
    assert release.graph(0.0).number_of_edges() == 2


# what is promised


def test_guarantee_provenance_and_details_are_stamped():
    release = DPSGD(**QUICK).release(network(), frame(300))
    guarantee = release.guarantee
    assert (guarantee.epsilon, guarantee.delta) == (1.0, 1e-6)
    assert guarantee.adjacency is Adjacency.ADD_OR_REMOVE_ONE
    assert release.provenance.mechanism == "DPSGD"
    assert not release.provenance.simulated
    assert release.provenance.settings["steps"] == 20
    assert release.details["noise_multiplier"] == pytest.approx(DPSGD(**QUICK).noise_multiplier)
    assert release.details["clip"] == 2.0  # the root of four cliques
    assert release.total == pytest.approx(300, abs=8 * release.details["total_deviation"])
    assert "epsilon = 1, delta = 1e-06" in repr(release)


def test_the_noise_multiplier_costs_the_budget_by_the_accountant():
    mechanism = DPSGD(**QUICK)
    schedules = (Schedule(sampling_rate=0.5, steps=20),)
    noise = calibrated_noise(schedules, 1.0, 1e-6)
    assert mechanism.noise_multiplier == noise.steps[0]
    assert 0.99 < promised_epsilon(schedules, noise, 1e-6) <= 1 + 1e-9
    ascent = mechanism.ascent(bpm.ModelSpecification.from_pgmpy(network()), noise.steps[0])
    assert ascent.noise.scale >= noise.steps[0] * ascent.lattice.sensitivity
    assert ascent.numerator == 1 << 52


def test_a_sampling_rate_is_rounded_up_to_what_is_drawn_and_accounted():
    mechanism = DPSGD(epsilon=1.0, delta=1e-6, sampling_rate=1e-17)
    assert mechanism.schedule.sampling_rate == 2.0**-53
    model = bpm.ModelSpecification.from_pgmpy(network())
    assert mechanism.ascent(model, 1.0).numerator == 1
    third = DPSGD(epsilon=1.0, delta=1e-6, sampling_rate=1 / 3)
    assert third.schedule.sampling_rate == third.ascent(model, 1.0).numerator / 2**53 >= 1 / 3


def test_a_release_depends_on_the_data_through_noise_alone():
    seen = []
    for size, seed in ((50, 0), (61, 1), (0, 2)):
        account = Account()
        release = released(DPSGD(**QUICK), network(), frame(size, seed), Replay(), ledger=account)
        seen.append(
            (
                release.potentials.flat.tobytes(),
                repr(release),
                html_of(release),
                repr(vars(release)),
                repr(account.spent),
            )
        )
    assert seen[0] == seen[1] == seen[2]


class CountedWords(SecureNoise):
    """The secure source, which notes how many words were asked for."""

    def __init__(self):
        super().__init__()
        self.drawn = []

    def words(self, size):
        self.drawn.append(size)
        return super().words(size)


def test_secure_releases_differ_and_draw_samples_from_the_secure_source():
    data, sources = frame(100), [CountedWords() for _ in range(4)]
    flats = {
        released(DPSGD(**QUICK), network(), data, each).potentials.flat.tobytes()
        for each in sources
    }
    assert len(flats) == 4
    assert [each.drawn.count(13) for each in sources] == [20] * 4  # a byte a record, 20 steps


def test_no_generator_of_numpy_is_asked_without_a_seed(monkeypatch):
    data = frame(100)
    without_generators(monkeypatch)
    assert not DPSGD(**QUICK).release(network(), data).provenance.simulated


def test_seeded_noise_is_marked_simulated_and_repeats():
    first, second = (DPSGD(**QUICK).release(network(), frame(50), rng=3) for _ in range(2))
    assert "protects nobody" in repr(first)
    np.testing.assert_array_equal(first.potentials.flat, second.potentials.flat)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_an_empty_frame_is_fitted_and_not_trusted():
    release = DPSGD(**QUICK).release(network(), frame(0), rng=2)
    assert np.isfinite(release.potentials.flat).all()
    assert release.total >= 1
    assert release.details["status"] == "not trusted"


def test_a_learning_rate_that_diverges_says_so():
    release = DPSGD(**QUICK, learning_rate=1e6).release(network(), frame(50), rng=2)
    assert release.details["status"] == "diverged"
    assert release.solution.status is bpm.Status.DIVERGED
    assert math.isfinite(release.solution.log_partition)


def test_the_ledger_is_charged_once_and_nothing_is_drawn_when_it_refuses():
    account = Account()
    release = DPSGD(**QUICK).release(
        network(), frame(500), ledger=account
    )  # not seeded: of 50 some runs warn
    assert account.spent == [(release.guarantee, release.provenance)]
    with pytest.raises(PrivacyError, match="budget is spent"):
        released(DPSGD(**QUICK), network(), frame(50), Undrawn(), ledger=Account(refuse=True))


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_a_saved_release_comes_back(tmp_path):
    release = DPSGD(**QUICK).release(network(impossible=[{"z": "no", 0: 7}]), frame(0), rng=3)
    release.save(tmp_path / "a.release")
    again = bpm.load_release(tmp_path / "a.release")
    assert isinstance(again, LearnedPotentials)
    assert again.specification == release.specification
    np.testing.assert_array_equal(again.potentials.flat, release.potentials.flat)
    assert (again.guarantee, again.total) == (release.guarantee, release.total)
    assert dict(again.details) == dict(release.details)
    assert repr(again) == repr(release)


# what is refused


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"steps": 0}, "steps"),
        ({"steps": 2.5}, "steps"),
        ({"steps": True}, "steps"),
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"sampling_rate": 1.5}, "sampling_rate"),
        ({"sampling_rate": math.nan}, "sampling_rate"),
        ({"clip": 0.0}, "clip"),
        ({"clip": 1e-3}, "clip"),
        ({"clip": math.inf}, "clip"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"learning_rate": 1e7}, "learning_rate"),
        ({"averaging": 1.5}, "averaging"),
        ({"averaging": math.nan}, "averaging"),
        ({"averaging": "half"}, "averaging"),
    ],
)
def test_settings_out_of_range_are_refused(settings, named):
    with pytest.raises(ArgumentError, match=f"`{named}` must"):
        DPSGD(**{"epsilon": 1.0, "delta": 1e-6} | settings)


def test_settings_are_frozen_and_keyword_only():
    mechanism = DPSGD(**QUICK)
    assert hash(mechanism) == hash(dataclasses.replace(mechanism))
    for field in dataclasses.fields(mechanism):
        assert field.kw_only
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(mechanism, field.name, None)


class Unread:
    """Data that must not be looked at."""

    def __getattr__(self, name):
        raise AssertionError("the data was read")


def test_what_is_public_is_refused_before_the_data_is_read(monkeypatch):
    wide = bpm.declare(
        states={i: range(30) for i in range(12)}, cliques=list(itertools.combinations(range(12), 2))
    )
    with pytest.raises(ModelTooLargeError, match="memory_limit"):
        DPSGD(**QUICK).release(wide, Unread())
    with pytest.raises(ModelError, match="declares none"):
        DPSGD(**QUICK).release(bpm.declare(states={"a": [0, 1]}), Unread())
    with pytest.raises(ModelError, match="at least one variable"):
        DPSGD(**QUICK).release(bpm.declare(states={}, cliques=[]), Unread())
    with pytest.raises(ArgumentError, match="`epsilon` must allow"):
        DPSGD(epsilon=1e-8, delta=1e-6, steps=1000, sampling_rate=1.0).release(network(), Unread())
    calibrated_noise.cache_clear()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(BayesPrivMRFError, match="bayesprivmrf\\[accounting\\]"):
        DPSGD(**QUICK).release(network(), Unread())


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_data_that_does_not_fit_is_refused_and_nothing_is_charged():
    account = Account()
    for data in (frame(5).drop(columns="a"), [1, 2]):
        with pytest.raises(DataError):
            DPSGD(**QUICK).release(network(), data, ledger=account)
    for column in ({"z": "maybe"}, {"z": None}):
        with pytest.raises(UndeclaredStateError):
            DPSGD(**QUICK).release(network(), frame(5).assign(**column), ledger=account)
    redirected = DPSGD(**QUICK, missing="no", other={"z": "yes"})
    redirected.release(network(), frame(5).assign(z=[None, "maybe", "no", "yes", "no"]))
    assert account.spent == []


@pytest.mark.parametrize("rng", [None, 1])
@pytest.mark.parametrize("records", [2**31 + 1, 2**36])
def test_no_number_of_records_is_refused(monkeypatch, records, rng):
    exact = CodedRecords.of(np.zeros((1, 5), np.uint8), np.array([records]))
    monkeypatch.setattr(
        "bayesprivmrf.mechanisms.record_mechanisms.read_records", lambda *_, **__: exact
    )
    release = DPSGD(**{**QUICK, "steps": 2, "sampling_rate": 1.0}).release(
        network(), frame(1), rng=rng
    )
    deviation = release.details["total_deviation"]
    assert release.total == pytest.approx(min(records, 2**34), abs=6 * deviation)
    assert np.isfinite(release.tables.flat).all()


# the release itself


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
@pytest.mark.parametrize("spoil", [np.nan, np.inf, -np.inf])
def test_potentials_that_are_not_finite_are_refused(spoil):
    release = DPSGD(**QUICK).release(network(), frame(0), rng=3)
    flat = release.potentials.flat.copy()
    flat[0] = spoil
    with pytest.raises(ModelError, match="finite"):
        dataclasses.replace(release, tables=release.model.tables(flat))
    other = bpm.ModelSpecification.from_pgmpy(
        bpm.declare(states=STATES, cliques=[("z", 0, "a"), ("lonely",), ("one",)])
    )
    with pytest.raises(ModelError, match="must be the model's"):
        dataclasses.replace(release, tables=other.tables(np.zeros(other.size)))


def test_potentials_are_in_the_gauge_of_smallest_norm():
    release = DPSGD(**QUICK).release(network(), frame(100), rng=3)
    model = release.model
    from bayesprivmrf.model import minimum_norm_potentials

    again = minimum_norm_potentials(model.cardinalities, model.scopes, release.potentials.flat)
    np.testing.assert_allclose(release.potentials.flat, again, atol=1e-9)
    engine = marginal_engine(model.cardinalities, model.scopes)
    assert np.isfinite(engine.log_partition(release.potentials.flat))


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_it_cites_what_ran():
    release = DPSGD(**QUICK).release(network(), frame(0), rng=3)
    assert "abadi2016deep" in bpm.citation(release)
    assert "koskela2020computing" in bpm.citation(release)


def test_a_release_that_noise_hides_warns_and_a_clear_one_does_not():
    with pytest.warns(
        NoiseWarning,
        match="the noise hides differences of 1 nat between potentials.*take more records",
    ) as caught:
        DPSGD(epsilon=0.01, delta=1e-6, steps=20).release(network(), frame(300), rng=1)
    assert caught[0].filename == __file__
    with no_noise_warning():
        DPSGD(epsilon=2.0, delta=1e-6, steps=20).release(network(), frame(3_000), rng=1)


def test_what_noise_hides_is_the_error_of_the_clearest_direction():
    """Noisy mean gradients of T steps at even potentials, over the curvature there: 4,000 draws, 4.5 deviations."""
    mechanism = DPSGD(epsilon=1.0, delta=1e-6, steps=50, sampling_rate=0.5)
    model = bpm.ModelSpecification.from_pgmpy(
        bpm.declare(states={0: [0, 1], 1: [0, 1]}, cliques=[(0, 1)])
    )
    ascent = mechanism.ascent(model, mechanism.noise_multiplier)
    noise = np.random.default_rng(1).normal(
        0, ascent.noise.scale / ascent.lattice.steps, (4000, 50, 4)
    )
    gradient = noise.mean(axis=1) / (0.5 * 1000)
    direction = np.array([1, -1, -1, 1]) / 2  # a coupling: indicators have covariance 1/4 along it
    found = (gradient @ direction).std() / 0.25
    assert ascent.resolution(1000) == pytest.approx(found, rel=4.5 / math.sqrt(2 * 4000))
