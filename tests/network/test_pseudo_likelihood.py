from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_expit

from bayesprivmrf.errors import ArgumentError, DataError
from bayesprivmrf.network import ExternalField, IsingNetwork, PseudoLikelihood
from network.graphs import configurations, small_networks


def score(network: IsingNetwork, s: np.ndarray, beta: float) -> float:
    m = network.coupling.toarray() @ s
    return float(np.sum(m * (s - np.tanh(beta * m))))


@pytest.mark.parametrize("coupling", ["raw", "mean-degree", "degree-normalised"])
@pytest.mark.parametrize("seed", range(6))
def test_the_maximiser_is_scipys_root_of_the_score(coupling, seed):
    rng = np.random.default_rng(seed)
    network = IsingNetwork.from_graph(nx.gnp_random_graph(60, 0.1, seed=seed), coupling)
    beta = 0.1 if coupling == "raw" else 0.6
    s = (
        network.sample(beta, 1, rng)[0]
        if seed % 2
        else rng.choice(np.array([-1, 1], dtype=np.int8), 60)
    )
    root = brentq(lambda beta: score(network, s, beta), -50, 50, xtol=1e-13)
    assert network.maximum_pseudo_likelihood(s) == pytest.approx(root, abs=1e-10)
    held = network.maximum_pseudo_likelihood(s, bounds=(0.0, math.inf))
    assert held == pytest.approx(max(root, 0.0), abs=1e-10)


@pytest.mark.parametrize("name", small_networks())
def test_a_root_is_found_exactly_where_one_exists(name):
    network = small_networks()[name]
    for s in configurations(len(network)):
        pulls = network.coupling.toarray() @ s * s
        pulls[np.abs(pulls) < 1e-14] = 0
        found = network.pseudo_likelihood_estimate(s)
        if not pulls.any():
            assert math.isnan(found)
            continue
        if (pulls >= 0).all():
            assert found == math.inf
        elif (pulls <= 0).all():
            assert found == -math.inf
        else:
            assert math.isfinite(found)
            assert abs(score(network, s, found)) <= 1e-12 * np.abs(pulls).sum()
        # on [0, inf): a root exactly if sum m s >= 0 and some m s < 0, else a bound
        non_negative = network.pseudo_likelihood_estimate(s, bounds=(0.0, math.inf))
        if pulls.sum() >= -1e-14 and (pulls < 0).any():
            assert non_negative == max(found, 0.0)
            assert math.isfinite(non_negative)
        else:
            assert non_negative == (math.inf if pulls.sum() > 0 else 0.0)


@pytest.mark.parametrize("bounds", [(0.0, 5.0), (-1.0, 0.25)])
def test_no_beta_within_bounds_has_a_larger_pseudo_likelihood(bounds):
    grid = np.linspace(
        *bounds, 11
    )  # it is concave in beta, so that a better one would show beside the best
    for network in small_networks().values():
        for s in configurations(len(network)):
            best = network.maximum_pseudo_likelihood(s, bounds)
            if math.isnan(best):  # no neighbor pulls, so every beta is as good
                continue
            assert bounds[0] <= best <= bounds[1]
            beside = np.clip([best - 1e-3, best + 1e-3], *bounds)
            values = [network.log_pseudo_likelihood(beta, s) for beta in (*grid, *beside)]
            assert network.log_pseudo_likelihood(best, s) >= max(values) - 1e-12


def test_the_log_pseudo_likelihood_is_the_sum_of_the_conditionals():
    network = small_networks()["signed"]
    for s in configurations(3):
        m = network.coupling.toarray() @ s
        for beta in (-700.0, -2.0, 0.0, 0.3, 50.0):
            assert network.log_pseudo_likelihood(beta, s) == pytest.approx(
                log_expit(2 * beta * m * s).sum(), rel=1e-12
            )
    assert network.log_pseudo_likelihood(0.0, s) == pytest.approx(-3 * math.log(2))


def test_score_and_information_are_the_derivatives():
    network = IsingNetwork.from_graph(nx.gnp_random_graph(30, 0.2, seed=2), "degree-normalised")
    s = np.random.default_rng(5).choice(np.array([-1, 1]), 30)
    f, h = network.pseudo_likelihood(s), 1e-5
    for beta in (-1.0, 0.0, 0.7, 3.0):
        assert f.score(beta) == pytest.approx((f(beta + h) - f(beta - h)) / (2 * h), abs=1e-8)
        assert f.score(beta) == pytest.approx(score(network, s, beta), abs=1e-11)
        assert f.information(beta) == pytest.approx(
            (f.score(beta - h) - f.score(beta + h)) / (2 * h), abs=1e-7
        )


@pytest.mark.parametrize("field", [0.0, 0.3, -1.1, ExternalField.from_share(0.15)])
def test_with_a_field_the_estimate_is_the_root_and_the_pseudo_likelihood_that_of_the_conditionals(
    field,
):
    network = IsingNetwork.from_graph(
        nx.gnp_random_graph(25, 0.15, seed=3), "mean-degree", field=field
    )
    h, c, J = network.field.strength, network.field.center, network.coupling.toarray()
    rng, found = np.random.default_rng(4), []
    for share in (0.2, 0.5, 0.9):
        s = np.where(rng.random(25) < share, 1, -1)
        m = J @ (s - c)
        assert network.local_fields(s) == pytest.approx(m)
        for beta in (-1.5, 0.0, 2.0):
            by_hand = log_expit(2 * (beta * m + h) * s).sum()
            assert network.log_pseudo_likelihood(beta, s) == pytest.approx(by_hand, rel=1e-12)
            by_hand = np.sum(m * (s - np.tanh(beta * m + h)))
            assert network.pseudo_likelihood(s).score(beta) == pytest.approx(by_hand, abs=1e-11)
        root = brentq(lambda beta: np.sum(m * (s - np.tanh(beta * m + h))), -200, 200, xtol=1e-13)  # noqa: B023
        assert network.pseudo_likelihood_estimate(s) == pytest.approx(root, abs=1e-9)
        found.append(root)
    assert min(found) < 0 < max(found) or field == 0.3


@pytest.mark.parametrize("weak", [1e-3, 1e-9, 1e-100])
def test_the_root_is_right_where_beta_is_so_large_that_tanh_is_one(weak):
    """Ten fields of size 1 go along, and of two of size w one: 10 expit(-2 beta) + 2 w expit(-2 beta w) = w."""
    fields = np.array([1.0] * 10 + [weak, -weak])
    beta = PseudoLikelihood.from_fields(fields, np.ones(12)).maximiser()
    strong = math.log(10) + log_expit(-2 * beta)
    # w - 2 w expit(-2 beta w) = w tanh(beta w), which the strong fields' deficit must equal
    assert strong == pytest.approx(math.log(weak) + math.log(math.tanh(beta * weak)), rel=1e-12)


def test_the_root_scales_with_the_couplings():
    """Two equal fields go along and one against: tanh(beta m) m = m / 3."""
    f = PseudoLikelihood.from_fields(np.array([1.0, 1.0, -1.0]), np.ones(3))
    assert f.maximiser() == pytest.approx(math.atanh(1 / 3), rel=1e-14)
    scale = 1e-5  # the same configuration with weak couplings: beta is 1e5 times as large
    f = PseudoLikelihood.from_fields(scale * np.array([1.0, 1.0, -1.0]), np.ones(3))
    assert f.maximiser() == pytest.approx(math.atanh(1 / 3) / scale, rel=1e-14)


def test_changing_the_sign_of_every_field_changes_the_sign_of_beta():
    rng = np.random.default_rng(8)
    for _ in range(20):
        m, s = rng.normal(size=30), rng.choice(np.array([-1, 1]), 30)
        plus = PseudoLikelihood.from_fields(m, s).maximiser(None)
        assert PseudoLikelihood.from_fields(-m, s).maximiser(None) == -plus


def test_rounding_of_fields_that_cancel_makes_no_root():
    """All outcomes go along with their fields or have none: there is no root, however the sums are rounded."""
    star = IsingNetwork.from_graph([(0, k, 0.1) for k in range(1, 7)] + [(7, 8, 0.1)])
    s = np.array([1, 1, 1, 1, -1, -1, -1, 1, 1])
    below = star.pseudo_likelihood(s)
    assert below.silent == 1
    assert below.against.sum() == 3


@pytest.mark.parametrize(
    "bounds", [(1.0, 0.0), (0.0, math.nan), (2.0, 2.0), (0.0,), ("a", "b"), 3.0]
)
def test_bounds_that_are_none_are_refused(bounds):
    with pytest.raises(ArgumentError, match="bounds"):
        small_networks()["tree"].maximum_pseudo_likelihood(np.ones(5), bounds)


@pytest.mark.parametrize("beta", [math.nan, math.inf])
def test_a_beta_that_is_no_number_is_refused(beta):
    with pytest.raises(ArgumentError, match="beta"):
        small_networks()["tree"].log_pseudo_likelihood(beta, np.ones(5))


def test_fields_that_do_not_fit_are_refused():
    for fields, spins, said in (
        ([1.0], [1, 1], "one shape"),
        ([np.nan], [1], "finite"),
        ([1.0], [0], "-1 or"),
        ([1.0], [np.nan], "-1 or"),
    ):
        with pytest.raises(DataError, match=said):
            PseudoLikelihood.from_fields(np.array(fields), np.array(spins))
