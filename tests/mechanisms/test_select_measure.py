"""SelectMeasure: what it finds, spends, releases and refuses."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from silence import no_noise_warning

import bayesprivmrf as bpm
from bayesprivmrf.errors import (
    ArgumentError,
    DataError,
    ModelError,
    ModelTooLargeError,
    NoiseWarning,
)
from bayesprivmrf.learning import LearnedIsing, LearnedPairwise, select_measure
from bayesprivmrf.mechanisms import SelectMeasure, promised_loss
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.privacy import selection_rho
from bayesprivmrf.release import Provenance

ADJACENCIES = ["add-or-remove-one", "replace-one"]
RING = [(i, (i + 1) % 8) for i in range(8)]


def ising_frame(
    records: int, seed: int = 0, names=tuple(range(8))
) -> tuple[pd.DataFrame, np.ndarray]:
    """Records of a ring of eight with couplings 0.6 and -0.6, states declared as ("z", "a")."""
    A = np.zeros((8, 8))
    for k, (i, j) in enumerate(RING):
        A[i, j] = A[j, i] = 0.6 if k % 3 else -0.6
    domain = Domain.from_states({name: ["z", "a"] for name in names})
    truth = LearnedIsing(
        domain=domain,
        guarantee=bpm.PrivacyGuarantee(rho=1.0, adjacency="replace-one"),
        provenance=Provenance(mechanism="truth"),
        coupling_matrix=A,
        field_vector=np.linspace(-0.4, 0.4, 8),
    )
    return truth.sample(records, rng=seed), A


def network(names=tuple(range(8)), cliques=None):
    return bpm.declare(states={name: ["z", "a"] for name in names}, cliques=cliques)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("measure", ["moments", "tables"])
def test_couplings_and_fields_are_found_with_the_declared_order_of_states(adjacency, measure):
    data, A = ising_frame(20_000)
    mechanism = SelectMeasure(rho=1.0, degree=3, measure=measure, adjacency=adjacency)
    learned = mechanism.release(network(), data, rng=1)
    assert isinstance(learned, LearnedIsing)
    assert learned.status == "converged"
    # sampling alone: a coupling's deviation is about 0.012
    assert np.abs(learned.couplings.values - A).max() < 0.06
    assert np.abs(learned.fields.values - np.linspace(-0.4, 0.4, 8)).max() < 0.08
    assert set(RING) - {(7, 0)} <= set(learned.graph(0.1).edges)
    assert (learned.total == 20_000) == (adjacency == "replace-one")


def test_tables_of_any_alphabet_are_learned_beside_one_state_and_isolated_variables():
    rng = np.random.default_rng(2)
    n = 20_000
    a = rng.integers(0, 3, n)
    b = np.where(rng.random(n) < 0.5, a, rng.integers(0, 3, n))
    data = pd.DataFrame(
        {
            "x": np.array(["m", "k", "l"])[a],
            0: np.array([30, 10, 20])[b],
            "one": "only",
            7: rng.integers(0, 2, n).astype(bool),
            "far": rng.integers(0, 4, n),
        }
    )
    variables = bpm.declare(
        states={
            "x": ["m", "k", "l"],
            0: [30, 10, 20],
            "one": ["only"],
            7: [True, False],
            "far": [3, 1, 0, 2],
        }
    )
    learned = SelectMeasure(rho=1.0, degree=0.5).release(variables, data, rng=3)
    assert isinstance(learned, LearnedPairwise)
    assert [set(edge) for edge in learned.graph().edges] == [{"x", 0}]
    # P(b | a) is 2/3 on the diagonal and 1/6 off it: a coupling of log 4 times the centred identity
    expected = math.log(4) * (np.eye(3) - 1 / 3)
    np.testing.assert_allclose(learned.couplings["x", 0].values, expected, atol=0.12)
    assert learned.couplings["x", 0].sel({"x": "k", "0": 10}) > 0.7
    assert learned.statistics is not None
    assert ("one",) in learned.statistics.specification.cliques


def test_the_noisy_tables_serve_the_other_estimators():
    data, _ = ising_frame(5000)
    learned = SelectMeasure(rho=1.0, degree=2, measure="tables").release(network(), data, rng=4)
    assert isinstance(learned.statistics, bpm.NoisyStatistics)
    solution = bpm.NoiseAwareMAP().fit(learned.statistics)
    assert len(learned.network.get_factors()) == len(learned.specification.cliques)
    assert (
        abs(solution.marginal([0, 1]).values[0, 0] - (data[[0, 1]] == "z").all(axis=1).mean())
        < 0.03
    )


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("states", [2, 3])
@pytest.mark.parametrize("degree", [2, 11])
def test_what_is_spent_adds_up_to_no_more_than_the_budget(adjacency, states, degree):
    mechanism = SelectMeasure(rho=0.37, degree=degree, adjacency=adjacency)
    variables = bpm.declare(states={v: list(range(states)) for v in range(12)})
    data = pd.DataFrame(
        np.random.default_rng(0).integers(0, states, (5000, 12)), columns=list(range(12))
    )
    learned = mechanism.release(variables, data, rng=1)
    inner = learned.map.plan
    form = "moments" if states == 2 else "tables"
    assert inner.form == form
    spent = promised_loss(
        [inner.one_way],
        select_measure.singles_sensitivity((states,) * 12, form, mechanism.adjacency),
    )
    spent += promised_loss(
        [inner.two_way],
        select_measure.pairs_sensitivity(12, inner.count, form, mechanism.adjacency),
    )
    if learned.total_noise is not None:
        spent += promised_loss([learned.total_noise], 1.0)
    assert (inner.selection_scale is None) == (degree == 11)
    if inner.selection_scale is not None:
        cost = selection_rho(
            select_measure.score_range(mechanism.adjacency),
            inner.selection_scale,
            inner.count,
            at_once=True,
        )
        spent += Fraction(cost)
    assert float(spent) > 0.999 * 0.37
    assert spent <= Fraction(0.37)


@pytest.mark.parametrize(
    ("adjacency", "measure", "degree", "measured"),
    [
        ("add-or-remove-one", "moments", 3, 12),  # 28 pairs in all; 28 / .9 against 12 / .5
        ("add-or-remove-one", "moments", 4, 28),  # against 16 / .5
        ("replace-one", "tables", 3, 12),
        ("replace-one", "tables", 4, 28),
        (
            "replace-one",
            "moments",
            3,
            28,
        ),  # a replaced record moves at most 16 products: 16 / .9 against 12 / .5
        ("replace-one", "moments", 2, 8),
    ],
)
def test_all_pairs_are_measured_where_their_noise_would_be_no_larger(
    adjacency, measure, degree, measured
):
    data, _ = ising_frame(500)
    mechanism = SelectMeasure(rho=1.0, degree=degree, measure=measure, adjacency=adjacency)
    learned = mechanism.release(network(), data, rng=1)
    assert learned.details["pairs_measured"] == measured
    assert learned.map.plan.two_way.variance <= min(
        SelectMeasure(rho=1.0, degree=d, measure=measure, adjacency=adjacency)
        .release(network(), data, rng=1)
        .map.plan.two_way.variance
        for d in (degree, 7)
    )


def test_the_noise_of_the_plan_does_not_know_the_number_of_records():
    small, large = (
        SelectMeasure(rho=1.0, degree=2).release(network(), ising_frame(n)[0], rng=5).details
        for n in (200, 5000)
    )
    for name in ("one_way_noise", "two_way_noise", "pairs_measured"):
        assert small[name] == large[name]


def test_only_couplings_inside_declared_cliques_are_learned():
    data, _ = ising_frame(5000)
    cliques = [(0, 1, 2), (3,), (4, 5), (6,), (7,)]
    learned = SelectMeasure(rho=5.0, degree=1).release(network(cliques=cliques), data, rng=6)
    assert {frozenset(edge) for edge in learned.graph().edges} <= {
        frozenset(edge) for edge in [(0, 1), (0, 2), (1, 2), (4, 5)]
    }
    assert learned.graph().number_of_edges() >= 3


def test_no_records_are_no_trouble_where_their_number_is_private():
    with pytest.warns(NoiseWarning, match="none of 8 pairs"):
        learned = SelectMeasure(rho=1.0, degree=2).release(
            network(), ising_frame(10)[0].iloc[:0], rng=7
        )
    assert np.isfinite(learned.coupling_matrix).all()
    with pytest.raises(DataError, match="at least one record"):
        SelectMeasure(rho=1.0, degree=2, adjacency="replace-one").release(
            network(), ising_frame(10)[0].iloc[:0]
        )


def test_the_same_seed_gives_the_same_release_and_the_secure_source_none():
    data, _ = ising_frame(2000)
    first, again = (
        SelectMeasure(rho=1.0, degree=2).release(network(), data, rng=8) for _ in range(2)
    )
    assert np.array_equal(first.coupling_matrix, again.coupling_matrix)
    secure = SelectMeasure(rho=1.0, degree=2).release(network(), data)
    assert not secure.provenance.simulated
    assert not np.array_equal(first.coupling_matrix, secure.coupling_matrix)


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"rho": 0.0}, ArgumentError, "rho"),
        ({"rho": math.nan}, ArgumentError, "rho"),
        ({"rho": 1e-27}, ArgumentError, "rho"),
        ({"rho": 1e9}, ArgumentError, "rho"),
        ({"degree": 0}, ArgumentError, "degree"),
        ({"degree": -1}, ArgumentError, "degree"),
        ({"degree": math.nan}, ArgumentError, "degree"),
        ({"degree": True}, ArgumentError, "degree"),
        ({"degree": "2"}, ArgumentError, "degree"),
        ({"degree": 8}, ArgumentError, "degree"),
        ({"measure": "both"}, ArgumentError, "measure"),
    ],
)
def test_settings_out_of_range_are_refused_before_anything_is_read(settings, error, match):
    with pytest.raises(error, match=match):
        SelectMeasure(**{"rho": 1.0, "degree": 2} | settings).release(network(), "no data at all")


def test_models_that_do_not_fit_are_refused_before_anything_is_read():
    mechanism = SelectMeasure(rho=1.0, degree=1)
    for variables, error, match in (
        (bpm.declare(states={"a": [0, 1]}), ModelError, "two variables"),
        (bpm.declare(states={"a": [0], "b": [0, 1]}), ModelError, "pair"),
        (
            bpm.declare(states={"a": [0, 1], "b": [0, 1]}, cliques=[("a",), ("b",)]),
            ModelError,
            "pair",
        ),
    ):
        with pytest.raises(error, match=match):
            mechanism.release(variables, "no data at all")
    with pytest.raises(ModelError, match="moments"):
        SelectMeasure(rho=1.0, degree=1, measure="moments").release(
            bpm.declare(states={"a": [0, 1], "b": [0, 1, 2]}), "no data at all"
        )
    wide = Domain.from_states({v: range(300) for v in range(100)})
    with pytest.raises(ModelTooLargeError, match="GiB"):
        mechanism.release(
            ModelSpecification(
                domain=wide, cliques=tuple((v,) for v in range(100)), cliques_declared=False
            ),
            "no data at all",
        )


def test_a_release_comes_back_from_its_file_whole(tmp_path):
    data, _ = ising_frame(3000)
    for measure in ("moments", "tables"):
        learned = SelectMeasure(rho=1.0, degree=2, measure=measure).release(network(), data, rng=9)
        learned.save(tmp_path / f"{measure}.release")
        again = bpm.load_release(tmp_path / f"{measure}.release")
        assert np.array_equal(again.coupling_matrix, learned.coupling_matrix)
        assert np.array_equal(again.field_vector, learned.field_vector)
        assert again.domain == learned.domain
        assert again.guarantee == learned.guarantee
        assert again.details == learned.details
        assert again.total == learned.total
        assert again.total_noise == learned.total_noise
        assert again.statistics == learned.statistics
        first, second = (r.couplings_interval(rng=1, replicates=3) for r in (learned, again))
        pd.testing.assert_frame_equal(first, second)


# what noise hides


def even(records: int, coupled: bool) -> pd.DataFrame:
    """Records of eight even variables; the first two agree in three cases of four, or never mind each other."""
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 2, (records, 8))
    if coupled:
        codes[:, 1] = np.where(rng.random(records) < 0.75, codes[:, 0], 1 - codes[:, 0])
    return pd.DataFrame(np.array(["z", "a"])[codes], columns=range(8))


@pytest.mark.parametrize("measure", ["moments", "tables"])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_a_release_that_noise_hides_warns_and_a_clear_one_does_not(adjacency, measure):
    settings = {"degree": 1, "measure": measure, "adjacency": adjacency}
    with pytest.warns(
        NoiseWarning, match=r"the noise hides couplings .*; take more records, spend more"
    ) as caught:
        SelectMeasure(rho=1e-5, **settings).release(network(), even(2000, True), rng=1)
    assert caught[0].filename == __file__
    with no_noise_warning():
        SelectMeasure(rho=1.0, **settings).release(network(), even(2000, True), rng=1)


def test_no_pair_kept_is_noise_or_independence():
    with pytest.warns(NoiseWarning, match="none of 4 pairs stands out from it"):
        learned = SelectMeasure(rho=0.001, degree=1).release(network(), even(3000, False), rng=1)
    assert learned.details["pairs_kept"] == 0
    with no_noise_warning():  # here sampling is the larger error: nothing is hidden by noise
        learned = SelectMeasure(rho=1.0, degree=1).release(network(), even(3000, False), rng=1)
    assert learned.details["pairs_kept"] == 0


def test_the_warning_is_made_of_the_release_alone_and_loses_nothing():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        learned = SelectMeasure(rho=1e-5, degree=1).release(network(), even(2000, True), rng=1)
    assert learned.details["pairs_measured"] == 4
    (warning,) = caught
    assert f"about {learned.total:,.0f} records" in str(warning.message)
    assert "2,000" not in str(warning.message)


@pytest.mark.parametrize("states", [2, 4])
def test_what_the_forecast_says_is_hidden_is_lost_and_what_is_not_is_kept(states):
    """Of 40 equal couplings, which have W(a, a) = .4 and are 0.4 times the forecast's size, or 3 times."""
    variables = bpm.declare(states=dict.fromkeys(range(80), tuple(range(states))))
    rng = np.random.default_rng(6)
    size = 0.4
    for times, fewest, most in ((0.4, 0.0, 0.3), (3.0, 0.9, 1.0)):
        records, rho = 4000, 0.01
        mechanism = SelectMeasure(rho=rho, degree=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoiseWarning)
            forecast = mechanism.preview(variables, total=records)["smallest_coupling"].max()
        mechanism = SelectMeasure(rho=rho * (times * forecast / size) ** 2, degree=1)
        same = np.exp(size * states / (states - 1))  # to one for each other state
        first = rng.integers(0, states, (records, 40))
        agree = rng.random((records, 40)) < same / (same + states - 1)
        second = np.where(agree, first, (first + rng.integers(1, states, first.shape)) % states)
        data = pd.DataFrame(np.hstack([first, second]), columns=range(80))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoiseWarning)
            learned = mechanism.release(variables, data, rng=1)
        found = {frozenset(edge) for edge in learned.graph().edges}
        share = np.mean([frozenset((i, i + 40)) in found for i in range(40)])
        assert fewest <= share <= most


# what is told before


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("degree", [1, 7])
def test_a_preview_has_every_step_with_what_it_costs(adjacency, degree):
    mechanism = SelectMeasure(rho=0.3, degree=degree, adjacency=adjacency)
    frame = mechanism.preview(network()).set_index("step")
    assert frame["rho"].sum() == pytest.approx(0.3, rel=1e-12)
    assert ("number of records" in frame.index) == (adjacency == "add-or-remove-one")
    assert ("choice of 4 pairs from 28" in frame.index) == (degree == 1)
    assert frame["count"].iloc[-1] == (4 if degree == 1 else 28)
    (measured,) = mechanism.outlays(network())[-1].draws
    assert frame["noise_sd"].iloc[-1] == measured.law.standard_deviation
    told = mechanism.preview(network(), total=10_000)
    np.testing.assert_allclose(told["relative_noise"], told["noise_sd"] / 10_000)
    assert told["smallest_coupling"].max() < 0.3
    with pytest.warns(NoiseWarning, match="about 10 records the noise hides") as caught:
        mechanism.preview(network(), total=10)
    assert caught[0].filename == __file__
    with pytest.raises(ArgumentError, match="`total`"):
        mechanism.preview(network(), total=-1)
