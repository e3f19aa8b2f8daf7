"""Public external field: its constants by enumeration, and its use in everything made with a field."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import warnings
import zipfile

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from bayesprivmrf import load_release
from bayesprivmrf.errors import ArgumentError, ConsistencyWarning
from bayesprivmrf.mechanisms import ObjectivePerturbation
from bayesprivmrf.network import EstimateStatus, ExternalField, IsingNetwork, PerturbedEstimator
from bayesprivmrf.privacy import (
    CouplingNorms,
    DiscreteLaplace,
    objective_perturbation,
    perturbation_constants,
)

from .graphs import chi_square, small_networks
from .test_objective_perturbation import audited, gadget_network, gadget_sides
from .test_privacy_constants import (
    SMALL,
    all_outcomes,
    coarse,
    connected,
    exact_laws,
    flips,
    matrix,
    random_coupling,
)

__all__ = ["coarse"]  # a fixture

STRENGTHS = [0.05, 0.3, 1.0, 2.5, 9.0]
FIELDS = [
    ExternalField(0.4),
    ExternalField(-2.0),
    ExternalField.from_share(0.38),
    ExternalField.from_share(0.02),
    ExternalField(1.0, -0.5),
]
BETAS = np.concatenate([np.linspace(-4, 4, 33), [-30.0, -9.0, 0.12, 0.37, 1.2, 9.0, 30.0]])


def suprema(h):
    """Largest slopes and gap over a fine grid of arguments."""
    t = np.linspace(-h - 30, h + 30, 2_000_001)
    sech, tanh = 1 / np.cosh(t), np.tanh(t)
    gap = np.cosh(t - h) ** -2.0 - np.cosh(t + h) ** -2.0
    return (
        np.abs(tanh + (t - h) * sech**2).max(),
        np.abs(sech * (1 - (t - h) * tanh)).max(),
        np.abs(gap).max(),
    )


@pytest.mark.parametrize("h", STRENGTHS)
def test_the_slopes_of_a_field_are_their_suprema_rounded_up(h):
    for field in (ExternalField(h), ExternalField(-h, 0.3)):
        for stated, found in zip(
            (field.tanh_slope, field.sech_slope, field.square_gap), suprema(h), strict=True
        ):
            assert found <= stated <= found * (1 + 1e-8)


def test_a_field_that_vanishes_has_the_constants_of_no_field():
    nearly = ExternalField(1e-13)
    assert nearly.tanh_slope == pytest.approx(objective_perturbation.TANH_SLOPE, rel=1e-10)
    assert nearly.sech_slope == pytest.approx(1, rel=1e-10)
    for seed in range(3):
        J = random_coupling(seed, True)
        with_field, without = (
            perturbation_constants(J, 1.0, field=nearly),
            perturbation_constants(J, 1.0),
        )
        assert with_field.noise_scale == pytest.approx(without.noise_scale, rel=1e-6)
        assert with_field.curvature == pytest.approx(without.curvature, rel=1e-3)


def score_and_slope(J, beta, field):
    s = all_outcomes(J.shape[0])
    m = s @ J.toarray() - field.offsets(J)
    tanh = np.tanh(beta * m + field.strength)
    return (m * (s - tanh)).sum(axis=1), (m**2 * (1 - tanh**2)).sum(axis=1)


def largest_shares(J, field, epsilons, betas=BETAS):
    """Return the largest share of the sensitivity, and of each part of the slope's budget, that a flip uses."""
    norms = CouplingNorms.of(J, field)
    curvatures = [objective_perturbation.least_curvature(norms, epsilon) for epsilon in epsilons]
    moved, ratios = 0.0, np.zeros(len(epsilons))
    for beta in betas:
        S, G = score_and_slope(J, beta, field)
        for flip in flips(J.shape[0]):
            moved = max(moved, np.abs(S - S[flip]).max())
            ratios = np.maximum(ratios, [np.log((D + G) / (D + G[flip])).max() for D in curvatures])
    return moved / norms.sensitivity, ratios / epsilons


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_no_flip_exceeds_sensitivity_or_slope_ratio_with_a_field(field):
    couplings = [matrix(graph) for graph in connected({2, 3, 4, 5})]
    couplings += [random_coupling(seed, seed % 2 == 1) for seed in range(3)]
    couplings.append(sparse.csr_array(-matrix(nx.star_graph(4))))
    shares = [largest_shares(J, field, np.array([0.1, 1.0, 4.0]), BETAS[::2]) for J in couplings]
    moved, ratios = (
        max(share for share, _ in shares),
        np.max([ratio for _, ratio in shares], axis=0),
    )
    assert moved <= 1 + 1e-9
    assert (ratios <= 1 + 1e-9).all()
    assert moved > (
        0.7 if field.center else 0.999
    )  # the bound is attained where no offset widens it
    assert ratios.max() > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_no_flip_exceeds_sensitivity_or_slope_ratio_on_many_networks_with_a_field(field):
    couplings = [matrix(graph) for graph in connected({6})]
    couplings += [random_coupling(seed, seed % 2 == 1) for seed in range(20, 40)]
    for J in couplings:
        moved, ratios = largest_shares(J, field, np.array([0.05, 0.5, 3.0]), BETAS[::3])
        assert moved <= 1 + 1e-9
        assert (ratios <= 1 + 1e-9).all()


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("field", [FIELDS[0], FIELDS[2], FIELDS[4]], ids=str)
def test_the_computed_mechanism_keeps_epsilon_between_all_neighbors_with_a_field(
    name, field, coarse
):
    J = SMALL[name]
    constants = perturbation_constants(J, 1.5, field=field)
    laws = exact_laws(J, constants, (-3.0, 3.0), field)
    loss = max(np.log(laws / laws[flip]).max() for flip in flips(J.shape[0]))
    assert 0.3 < loss <= 1.5


@pytest.mark.parametrize("name", ["star", "signed triangle"])
def test_the_computed_score_moves_and_falls_within_its_shares_with_a_field(name, coarse):
    for field in FIELDS:
        constants = perturbation_constants(SMALL[name], 1.5, field=field)
        estimator = PerturbedEstimator.of(SMALL[name], constants, (-3.0, 3.0), field)
        scores = [estimator.score(s) for s in all_outcomes(SMALL[name].shape[0])]
        at = np.array([[s.at(k) for k in range(estimator.low, estimator.high + 1)] for s in scores])
        falls = at[:, :-1] - at[:, 1:]
        assert (falls > 0).all()
        for flip in flips(SMALL[name].shape[0]):
            assert np.abs(at - at[flip]).max() <= constants.sensitivity
            assert (falls / falls[flip]).max() <= math.exp(constants.epsilon_slope)


FIELD, PAIRS = ExternalField(2.0), 20


@pytest.fixture(scope="module")
def worst_case():
    """The gadget of `score_sensitivity` in a field, and pairs of -1 that put its scores where noise tells most."""
    network, spins, hub = gadget_network(PAIRS)
    spins = np.where([node != 0 and node[0] in ("p", "q") for node in network.nodes], -1, spins)
    constants = perturbation_constants(network.coupling, 2.0, field=FIELD)
    return dataclasses.replace(network, field=FIELD), spins, hub, constants


def test_an_audit_passes_the_noise_of_a_field_and_catches_less_of_it(worst_case):
    network, spins, hub, constants = worst_case
    position = round(FIELD.tanh_slope / (1 - 1 / 8) / constants.grid)
    here, moved = (score.at(position) for score in gadget_sides(constants, network, spins, hub))
    assert 0.98 < abs(here - moved) / constants.sensitivity <= 1
    assert -0.3 < max(here, moved) / constants.sensitivity <= 0
    assert not audited(constants.epsilon_noise, constants, network, spins, hub).is_violated
    weak = dataclasses.replace(constants, noise=DiscreteLaplace(0.85 * constants.noise.scale))
    assert audited(constants.epsilon_noise, weak, network, spins, hub).is_violated


def test_an_audit_catches_a_twin_that_forgets_the_field(worst_case):
    network, spins, hub, constants = worst_case
    forgotten = objective_perturbation.score_sensitivity(abs(network.coupling))
    scale = constants.noise.scale * forgotten / (constants.sensitivity * constants.step)
    assert 0.7 < scale / constants.noise.scale < 0.8
    forgetful = dataclasses.replace(constants, noise=DiscreteLaplace(scale))
    assert audited(constants.epsilon_noise, forgetful, network, spins, hub).is_violated


@pytest.mark.parametrize("moves", ["heat-bath", "swendsen-wang"])
@pytest.mark.parametrize("field", [FIELDS[0], FIELDS[2]], ids=str)
def test_outcomes_of_a_field_follow_its_law(moves, field):
    apart = "disconnected, with an isolated node"
    for name, beta in [*itertools.product(("signed", apart), (-0.7, 0.9)), (apart, 0.0)]:
        network = dataclasses.replace(small_networks()[name], field=field)
        spins = network.sample(beta, 4000, 5, chains=400, sweeps=5, burn_in=40, moves=moves)
        assert spins.shape == (4000, len(network))
        assert chi_square(network, beta, spins) > 1e-4


def test_a_share_keeps_the_mean_outcome_and_gives_back_beta_where_no_field_gives_its_opposite():
    graph = nx.random_regular_graph(6, 600, seed=2)
    plain = IsingNetwork.from_graph(graph, "mean-degree")
    told = IsingNetwork.from_graph(graph, "mean-degree", field=ExternalField.from_share(0.2))
    assert told.subnetwork(range(300)).field == told.field
    spins = told.sample(-0.8, 8, 3)
    assert (spins > 0).mean() == pytest.approx(0.2, abs=0.03)
    with_field = np.mean([told.pseudo_likelihood_estimate(s) for s in spins])
    without = np.mean([plain.pseudo_likelihood_estimate(s) for s in spins])
    assert with_field == pytest.approx(-0.8, abs=0.2)
    assert without > 0.3
    release = ObjectivePerturbation(epsilon=20.0).release(told, spins[0], rng=1)
    assert release.inverse_temperature < 0


def test_a_saved_estimate_keeps_its_field_and_older_files_have_none(tmp_path):
    spins = np.array([1, -1, -1, -1, 1])
    for field in (None, 0.3, ExternalField.from_share(0.4)):
        network = dataclasses.replace(small_networks()["cycle"], field=field)
        given = ObjectivePerturbation(epsilon=5.0, bounds=(-50, 50)).release(network, spins, rng=2)
        given.save(tmp_path / "r", overwrite=True)
        back = load_release(tmp_path / "r")
        assert back.network.field == network.field
        assert repr(back) == repr(given)
        with zipfile.ZipFile(tmp_path / "r") as file:
            written = json.loads(file.read("release.json"))
        assert (written["version"], "field" in written["content"]) == (
            (2, False) if field is None else (7, True)
        )
        law = given.law(rng=1, betas=[-1.0, 1.0], configurations=20, burn_in=10, progress=False)
        assert law.value_of(back) == given.inverse_temperature
    without = dataclasses.replace(given, network=dataclasses.replace(given.network, field=None))
    with pytest.raises(ArgumentError, match="`law` must be simulated for"):
        law.value_of(without)


def test_the_printed_estimate_says_which_field_it_rests_on():
    for field, said in [
        (None, "no external field: outcomes are equally likely"),
        (0.25, "field of 0.25 nats"),
    ]:
        network = IsingNetwork.from_graph(nx.cycle_graph(60), field=field)
        estimate = ObjectivePerturbation(epsilon=5.0).release(
            network, np.repeat([1, -1], 30), rng=1
        )
        assert said in repr(estimate)
        assert any(said in sentence for sentence in estimate.assumptions)
        assert ("no external field" in repr(network)) == (field is None)


def test_an_interval_says_which_field_it_rests_on_and_that_its_estimate_is_a_bound():
    quick = {"betas": [-0.8, 0.0, 0.8], "configurations": 60, "burn_in": 60, "progress": False}
    spins = np.repeat([1, -1, 1], 20)
    rows = {}
    for name, field, bounds in [
        ("free", None, (-40, 40)),
        ("told", 0.1, (-40, 40)),
        ("held", None, (-40, -3)),
    ]:
        network = IsingNetwork.from_graph(nx.cycle_graph(60), field=field)
        mechanism = ObjectivePerturbation(epsilon=9.0, bounds=bounds)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConsistencyWarning)
            estimate = mechanism.release(network, spins, rng=1)
        rows[name] = estimate.interval(rng=2, **quick).loc["beta"]
    assert "Ising model, no field" in rows["free"]["note"]
    assert "Ising model, this field" in rows["told"]["note"]
    assert rows["held"]["status"] in ("doubtful", "not trusted")
    assert "estimate at the upper bound" in rows["held"]["note"]
    assert (
        rows["free"]["status"] == "model" or "limit at the end of the span" in rows["free"]["note"]
    )


def test_a_row_of_an_interval_shows_its_numbers_on_a_screen_of_80_columns():
    network = IsingNetwork.from_graph(nx.cycle_graph(60))
    estimate = ObjectivePerturbation(epsilon=9.0, bounds=(-40, 40)).release(
        network, np.tile([1, 1, 1, -1], 15), rng=1
    )
    quick = {"betas": [-1.0, 0.0, 1.0], "configurations": 60, "burn_in": 60, "progress": False}
    frame = estimate.interval(rng=2, **quick)
    assert frame[["status", "note"]].iloc[0].tolist() == [
        "model",
        "simulated; Ising model, no field",
    ]
    with pd.option_context("display.width", 80, "display.max_columns", 0):
        shown = repr(frame).splitlines()[0].split()
    assert shown == ["estimate", "lower", "upper", "status", "note"]


@pytest.mark.parametrize("field", ["0.3", True, math.nan, math.inf, 10.5, [0.1]])
def test_what_is_no_field_is_refused(field):
    with pytest.raises(ArgumentError, match=r"`(field|strength)`"):
        IsingNetwork.from_graph([(0, 1)], field=field)


def test_shares_and_calibrations_that_a_field_does_not_have_are_refused():
    for share in (0.0, 1.0, 38, -0.1, math.nan, 1e-12):
        with pytest.raises(ArgumentError, match=r"`(share|strength)`"):
            ExternalField.from_share(share)
    with pytest.raises(ArgumentError, match="`center` of an external field"):
        ExternalField(0.0, 1.5)
    network = IsingNetwork.from_graph(nx.path_graph(4), field=0.1)
    with pytest.raises(ArgumentError, match="`calibration` must be 'tight'"):
        ObjectivePerturbation(epsilon=1.0, calibration="paper").release(
            network, [1, 1, -1, 1], rng=1
        )


def disassortative(seed=1):
    """A network of 749 nodes in two sides whose ties mostly cross, with one side's outcome mostly positive."""
    rng = np.random.default_rng(seed)
    side = np.arange(749) < 285
    graph = nx.Graph()
    graph.add_nodes_from(range(749))
    while graph.number_of_edges() < 2200:
        a, b = (int(node) for node in rng.integers(0, 749, 2))
        if a != b and (side[a] != side[b] or rng.random() < 0.3):
            graph.add_edge(a, b)
    return graph, np.where(rng.random(749) < np.where(side, 0.9, 0.06), 1, -1)


def test_neighbors_who_differ_have_a_negative_estimate_and_one_at_a_bound_is_told():
    graph, spins = disassortative()
    assert (spins > 0).mean() == pytest.approx(0.38, abs=0.02)
    network = IsingNetwork.from_graph(graph, "degree-normalised")
    root = network.pseudo_likelihood_estimate(spins)
    assert root < -0.3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(12):
            estimate = ObjectivePerturbation(epsilon=5.0).release(network, spins, rng=seed)
            assert estimate.inverse_temperature == pytest.approx(root, abs=0.6)
            assert estimate.status is EstimateStatus.INSIDE
            assert not estimate.problems
    with pytest.warns(ConsistencyWarning, match=r"at the lower bound of \[0, 5\].*with both signs"):
        held = ObjectivePerturbation(epsilon=5.0, bounds=(0, 5)).release(network, spins, rng=1)
    assert (held.inverse_temperature, held.status) == (0.0, EstimateStatus.LOWER)
    assert held.at_bound
    assert "at the lower bound" in repr(held)
    with pytest.warns(ConsistencyWarning, match="at the upper bound"):
        held = ObjectivePerturbation(epsilon=5.0, bounds=(-9, -4)).release(network, spins, rng=1)
    assert held.status is EstimateStatus.UPPER
    with warnings.catch_warnings(
        record=True
    ):  # the budget is spent: no filter may cost the release
        warnings.simplefilter("error")
        assert (
            ObjectivePerturbation(epsilon=5.0, bounds=None).release(network, spins, rng=1).at_bound
        )
