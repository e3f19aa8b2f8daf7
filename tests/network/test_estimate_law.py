"""The simulated law of a released estimate: that it is the law, once for all, of this network alone."""

from __future__ import annotations

import dataclasses

import networkx as nx
import numpy as np
import pytest

from bayesprivmrf.errors import ArgumentError, SamplingWarning
from bayesprivmrf.mechanisms import ObjectivePerturbation
from bayesprivmrf.network import EstimateLaw, ExternalField, IsingNetwork, PerturbedEstimator
from bayesprivmrf.network.perturbed_score import public_grid
from bayesprivmrf.privacy import perturbation_constants

from .estimate_laws import effective_size
from .graphs import configurations, law, small_networks

QUICK = {"configurations": 40, "noises": 3, "burn_in": 60, "progress": False}


def exact_cumulative(network, constants, bounds, beta, value):
    """P(estimate <= value), over all configurations: the noise is above the score at the upper midpoint."""
    estimator = PerturbedEstimator.of(network.coupling, constants, bounds, network.field)
    position = round(value / constants.grid)
    scores = np.array(
        [estimator.score(s).at(position + 1) for s in configurations(len(network))], dtype=float
    )
    tail = 0.5 * np.exp(
        -np.abs(scores) / constants.noise.scale
    )  # of a Laplace law, whose steps are tiny
    return float(law(network, beta) @ np.where(scores > 0, tail, 1 - tail))


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("signed", None),
        ("disconnected, with an isolated node", 0.5),
        ("tree", ExternalField.from_share(0.2)),
    ],
    ids=str,
)
def test_the_table_is_the_law_that_enumeration_gives(name, field):
    network, bounds = dataclasses.replace(small_networks()[name], field=field), (-1.0, 2.0)
    constants = perturbation_constants(network.coupling, 20.0, field=network.field)
    table = EstimateLaw.simulate(
        network,
        constants,
        bounds,
        betas=[-0.5, 0.6, 1.4],
        rng=3,
        configurations=600,
        noises=3,
        burn_in=60,
    )
    for beta, row, size in zip(table.betas, table.sorted_rows, effective_size(table), strict=True):
        for value in (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5):
            value = np.ceil(value / constants.grid) * constants.grid
            p = exact_cumulative(network, constants, bounds, beta, value)
            found = np.mean(row <= value + constants.grid / 2)
            # 54 comparisons, each off by five standard errors with a probability below 1e-6
            assert abs(found - p) <= 5 * np.sqrt(p * (1 - p) / size) + 5 / size


@pytest.mark.parametrize("bounds", [(-0.5, 0.5), None], ids=["bounds", "none"])
def test_an_estimate_is_the_first_position_whose_upper_midpoint_is_below_the_noise(bounds):
    """Looked up one position after another; noises that equal a score among them, and far beyond all."""
    network = small_networks()["cycle"]
    constants = perturbation_constants(network.coupling, 3.0)
    constants = dataclasses.replace(
        constants, grid=2**5 * constants.grid
    )  # few positions, all of which are tried
    estimator = PerturbedEstimator.of(network.coupling, constants, bounds)
    for spins in configurations(len(network))[::5]:
        score = estimator.score(spins)
        last = estimator.low + 300 if estimator.high is None else estimator.high
        steps = np.array([score.at(k + 1) for k in range(estimator.low, last + 1)])
        noise = np.concatenate(
            [steps[::7], steps[::7] + 1, steps[::7] - 1, steps[3:5], [steps[0] + 10**12]]
        )
        if bounds is not None:
            noise = np.append(noise, steps[-1] - 10**12)
        noise = np.random.default_rng(1).permutation(
            noise[noise > steps[-1]] if bounds is None else noise
        )
        first = [
            next((k for k, step in enumerate(steps[:-1]) if step < one), len(steps) - 1)
            for one in noise
        ]
        found = score.estimates(noise.reshape(1, -1))
        assert found.tolist() == [((estimator.low + np.array(first)) * constants.grid).tolist()]


def test_one_seed_gives_one_table_and_another_seed_another():
    network = small_networks()["cycle"]
    constants = perturbation_constants(network.coupling, 3.0)

    def make(seed, **more):
        return EstimateLaw.simulate(network, constants, points=6, rng=seed, **QUICK, **more)

    first = make(1)
    assert np.array_equal(first.estimates, make(1, workers=2).estimates)
    assert not np.array_equal(first.estimates, make(2).estimates)
    assert first.estimates.shape == (6, 40, 3)
    assert -5.0 <= first.ends[0] < -5.0 + constants.grid
    assert 5.0 - constants.grid < first.ends[1] <= 5.0


def test_a_cached_law_is_read_and_another_networks_is_not(tmp_path):
    networks = small_networks()
    path = tmp_path / "deep" / "law.npz"
    make = lambda name, seed: EstimateLaw.simulate(  # noqa: E731
        networks[name],
        perturbation_constants(networks[name].coupling, 3.0),
        betas=[0.0, 1.0],
        rng=seed,
        cache=path,
        **QUICK,
    )
    first = make("tree", 1)
    again = make("tree", 2)
    assert np.array_equal(first.estimates, again.estimates)
    assert (again.ends, again.spacing, again.fingerprint) == (
        first.ends,
        first.spacing,
        first.fingerprint,
    )
    assert make("cycle", 2).fingerprint != first.fingerprint


def test_the_grid_spans_what_was_asked_and_is_densest_where_order_sets_in():
    network = IsingNetwork.from_graph(nx.complete_graph(30), "mean-degree")  # norm 1
    grid = public_grid(network.coupling, (0.0, 5.0), 40)
    assert (grid[0], grid[-1], grid.size) == (0.0, 5.0, 40)
    assert 0.6 < grid[np.diff(grid).argmin()] < 1.6
    assert public_grid(network.coupling, (2.0, 3.0), 5) == pytest.approx([2, 2.25, 2.5, 2.75, 3])
    both = public_grid(network.coupling, (-2.0, 2.0), 40)
    assert both == pytest.approx(-both[::-1])


def test_what_cannot_be_simulated_is_refused():
    network = small_networks()["tree"]
    constants = perturbation_constants(network.coupling, 3.0)
    with pytest.raises(ArgumentError, match="`span` must be given for an estimate without bounds"):
        EstimateLaw.simulate(network, constants, None)
    for betas in ([1.0], [1.0, 1.0], [0.0, float("nan")], [[0.0, 1.0]]):
        with pytest.raises(ArgumentError, match="`betas` must be"):
            EstimateLaw.simulate(network, constants, betas=betas)
    for wrong in ({"configurations": 0}, {"noises": 2.5}):
        with pytest.raises(
            ArgumentError, match=r"`(configurations|noises)` must be a whole number"
        ):
            EstimateLaw.simulate(network, constants, **wrong)
    unbounded = EstimateLaw.simulate(
        network, constants, None, span=(0, 1), points=4, rng=0, **QUICK
    )
    assert unbounded.ends == (0.0, float("inf"))


def test_betas_at_which_the_heat_bath_has_not_mixed_are_told():
    frozen = IsingNetwork.from_graph(nx.cycle_graph(60))  # domains of opposite sign last
    constants = perturbation_constants(frozen.coupling, 3.0)
    with pytest.warns(SamplingWarning, match="has not mixed at 1 of 2 betas, from 6 to 6"):
        EstimateLaw.simulate(frozen, constants, (0, 6), betas=[0.1, 6.0], rng=1, **QUICK)


def test_cluster_moves_mix_and_a_cache_made_by_other_moves_is_not_read(tmp_path):
    ring = IsingNetwork.from_graph(nx.cycle_graph(60))
    constants = perturbation_constants(ring.coupling, 3.0)
    make = lambda **more: EstimateLaw.simulate(  # noqa: E731
        ring, constants, (0, 6), betas=[0.1, 6.0], cache=tmp_path / "law.npz", **QUICK | more
    )
    with pytest.warns(SamplingWarning, match='or pass `moves="swendsen-wang"`'):
        stuck = make(rng=1)
    with pytest.warns(SamplingWarning, match="has not mixed at 1 of 2 betas"):
        assert np.array_equal(make(rng=2).estimates, stuck.estimates)
    law = make(rng=1, moves="swendsen-wang")
    assert law.rhat.max() < 1.2
    assert np.array_equal(make(rng=2, moves="swendsen-wang").estimates, law.estimates)


def test_a_law_that_names_no_moves_was_made_by_heat_bath(tmp_path):
    path, older = tmp_path / "law.npz", tmp_path / "older.npz"
    network = small_networks()["tree"]
    constants = perturbation_constants(network.coupling, 3.0)
    EstimateLaw.simulate(network, constants, betas=[0.0, 1.0], rng=1, cache=path, **QUICK)
    with np.load(path) as file:
        np.savez(older, **{name: file[name] for name in file if name != "moves"})
    assert EstimateLaw.load(older).moves == "heat-bath"


def test_a_release_keeps_its_law_and_refuses_another_releases():
    network = small_networks()["cycle"]
    spins = network.sample(1.0, 1, 0)[0]
    estimate = ObjectivePerturbation(epsilon=3.0).release(network, spins, rng=1)
    kept = estimate.law(rng=1, points=6, **QUICK)
    assert estimate.law(points=6, **QUICK) is kept
    assert estimate.law(rng=1, points=6, **QUICK) is kept
    assert estimate.law(rng=2, points=6, **QUICK) is not kept
    other = ObjectivePerturbation(epsilon=4.0).release(network, spins, rng=1)
    with pytest.raises(ArgumentError, match="`law` must be simulated for the network"):
        other.interval(law=kept)
    with pytest.raises(ArgumentError, match="`law` must be simulated"):
        dataclasses.replace(estimate, bounds=(0.0, 4.0)).interval(law=kept)
    frame = estimate.interval(law=kept)
    assert -5 <= frame.loc["beta", "lower"] <= frame.loc["beta", "upper"] <= 5


def test_saving_a_law_writes_through_no_link_that_waits_beside_it(tmp_path):
    other = tmp_path / "other"
    other.write_text("precious")
    (tmp_path / "law.npz.part").symlink_to(other)
    (tmp_path / "law.npz").symlink_to(other)
    network = small_networks()["tree"]
    constants = perturbation_constants(network.coupling, 3.0)
    law = EstimateLaw.simulate(network, constants, betas=[0.0, 1.0], rng=1, **QUICK)
    law.save(tmp_path / "law.npz")
    assert other.read_text() == "precious"
    assert EstimateLaw.load(tmp_path / "law.npz").fingerprint == law.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["law.npz", "law.npz.part", "other"]
