"""The compiled densities: exact derivatives, and the same numbers as the PyMC models that are shown."""

import numpy as np
import pymc as pm
import pytest
from inference.conftest import AWKWARD, noisy_release, simulated_counts, specification
from inference.posterior.engines import HyperDirichlet
from repeats import few

from bayesprivmrf.inference import gather
from bayesprivmrf.inference.posterior.relaxed_counts.log_linear import LogLinear
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace

MODELS = {name: specification(*given) for name, given in AWKWARD.items() if name != "empty"}
MODELS["structural zero"] = specification(
    {"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]},
    [("a", "b"), ("b", "c"), ("c", "a")],
    impossible=[(("a", 1), ("b", 2))],
)
TREE = specification(
    {"a": [0, 1, 2], "b": [0, 1], "c": [0, 1, 2]},
    [("a", "b"), ("b", "c")],
    [(("a", 2), ("b", 0)), (("b", 1), ("c", 0))],
)
PANEL = specification(
    {v: ["x", "y", "z"] for v in "abc"},
    [("b", "c"), ("a", "b")],
    [(("a", "x"), ("b", "z")), (("b", "y"), ("c", "y"))],
)
LAWS = {
    "laplace": (Laplace(3.0),),
    "small laplace": (DiscreteLaplace(0.7),),
    "gaussian": (Gaussian(2.0),),
    "mixed": (Laplace(0.8), Gaussian(2.0)),
}


def formulation(make, model, laws, *, total, records=80, seed=0, **settings):
    """Of releases with one law each, of the same records; the records are public where the total is."""
    rng = np.random.default_rng(seed)
    counts, _ = simulated_counts(model, records, rng, scale=0.5)
    releases = [noisy_release(model, counts, law, rng, total=total) for law in laws]
    return make(evidence=gather(releases), total=total, total_range=(5.0, 1e5), **settings)


def with_exact_force(density):
    density.arrays[-1][-1][0] = 1e-300
    return density


def differences(function, position, step=1e-6):
    basis = step * np.eye(position.size)
    return np.array([(function(position + e) - function(position - e)) / (2 * step) for e in basis])


def require_exact(density, seed=1):
    """The pullback of random derivatives, against differences of the forward answers."""
    rng = np.random.default_rng(seed)
    position = rng.uniform(-1, 1, density.size)
    latent = density.forward(position)[0]
    by_latent = rng.normal(size=latent.size) / np.maximum(1, np.abs(latent))

    def combined(at):
        latent, prior = density.forward(at)
        return latent @ by_latent + 1.3 * prior

    found = density.pullback(position, by_latent, 1.3)
    np.testing.assert_allclose(found, differences(combined, position), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("total", [None, 80])
@pytest.mark.parametrize("concentration", [None, 0.7])
@pytest.mark.parametrize("name", ["tree", "disconnected", "one state", "single", "zeros", "steps"])
def test_derivatives_of_the_rows_density_are_exact(name, concentration, total):
    model = {"zeros": TREE, "steps": PANEL}.get(name) or MODELS[name]
    engine = formulation(
        HyperDirichlet, model, LAWS["laplace"], total=total, concentration=concentration
    )
    assert engine.forest.is_inner.any() == (name == "steps" and concentration is None)
    require_exact(engine.density)


@pytest.mark.parametrize("model", [TREE, PANEL], ids=["tree", "panel"])
def test_one_position_of_each_margin_is_free_and_standard_normal(model):
    """What softmax does not see is an axis of its own: no two positions are known by their difference alone."""
    engine = formulation(HyperDirichlet, model, LAWS["laplace"], total=80)
    density = engine.density
    margins = sum(len(table.margins) for table in engine.forest.tables)
    steps = [table.step for table in engine.forest.tables]
    # waves have a part of the margins of staying, and of those of moving, in common
    margins += sum(steps.count(step) > 1 for step in ("stay", "move"))
    position = np.random.default_rng(4).normal(size=density.size)
    latent, prior = density.forward(position)
    free = []
    for i in range(density.shapes["shapes"][0], density.size):  # the rows' own come first
        moved = position.copy()
        moved[i] += 1.5
        found, changed = density.forward(moved)
        if np.allclose(found, latent, rtol=1e-12, atol=1e-12):
            free.append(i)
            assert changed - prior == pytest.approx(
                0.5 * (position[i] ** 2 - moved[i] ** 2), rel=1e-9
            )
    assert len(free) == margins


@pytest.mark.parametrize("total", few([None, 80]))
@pytest.mark.parametrize("scale", [None, 0.6])
@pytest.mark.parametrize("name", list(MODELS))
def test_derivatives_of_the_effects_density_are_exact(name, total, scale):
    require_exact(
        formulation(LogLinear, MODELS[name], LAWS["laplace"], total=total, scale=scale).density
    )


@pytest.mark.parametrize(
    ("laws", "total"),
    [
        pytest.param("laplace", None, marks=pytest.mark.slow),
        ("small laplace", None),
        pytest.param("small laplace", 80, marks=pytest.mark.slow),
        pytest.param("gaussian", 80, marks=pytest.mark.slow),
        pytest.param("mixed", None, marks=pytest.mark.slow),
        ("mixed", 80),
    ],
)
@pytest.mark.parametrize("make", [HyperDirichlet, LogLinear])
def test_the_pymc_model_has_the_same_density_and_gradient(make, laws, total):
    """At random positions, with the exact derivative of the kernel in place of the force."""
    model = TREE if make is HyperDirichlet else MODELS["structural zero"]
    engine = formulation(make, model, LAWS[laws], total=total)
    density, shown, rng = with_exact_force(engine.density), engine.model(), np.random.default_rng(2)
    log_density, slope = (f(mode="FAST_COMPILE") for f in (shown.compile_logp, shown.compile_dlogp))
    for _ in range(3):
        position = rng.uniform(-1, 1, density.size)
        value, gradient = density.posterior(position)
        np.testing.assert_allclose(
            log_density({"position": position}), value, rtol=1e-10, atol=1e-10
        )
        np.testing.assert_allclose(slope({"position": position}), gradient, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("make", [HyperDirichlet, LogLinear])
def test_an_extended_pymc_model_has_the_gradient_of_its_density(make):
    """An outside source on a table, on N and, where it is learned, on the scale."""
    engine = formulation(make, TREE, LAWS["gaussian"], total=None)
    with engine.model() as shown:
        term = (shown["counts[a,b]"][1, 1] - 3) ** 2 + shown["total"].log()
        if make is LogLinear:
            term = term + shown["log_scale"].sum() ** 2
        pm.Potential("outside", -term / 50)
    log_density, slope = (f(mode="FAST_COMPILE") for f in (shown.compile_logp, shown.compile_dlogp))
    position = np.random.default_rng(6).uniform(-1, 1, engine.density.size)
    expected = differences(lambda at: float(log_density({"position": at})), position)
    np.testing.assert_allclose(slope({"position": position}), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [HyperDirichlet, LogLinear])
def test_the_force_differs_from_the_derivative_only_near_the_kinks(make):
    """Within a width of noise scales of a noisy count; the value does not change."""
    engine = formulation(make, TREE, LAWS["laplace"], total=80)
    position = np.random.default_rng(3).uniform(-1, 1, engine.density.size)
    value, force = engine.density.posterior(position)
    width = engine.density.arrays[-1][-1][0]
    exact_value, exact = with_exact_force(engine.density).posterior(position)
    assert 0 < width < 0.5
    assert value == exact_value
    counts = engine.density.forward(position)[0][engine.density.places["counts"]]
    noise = engine._noise
    is_near = np.abs(noise.noisy - counts) < width * noise.scales
    assert is_near.any() != np.allclose(force, exact)


def test_expanded_draws_are_the_forward_answers_of_each_position():
    density = formulation(LogLinear, MODELS["cycle"], LAWS["laplace"], total=None).density
    positions = np.random.default_rng(4).normal(size=(2, 3, density.size))
    drawn = density.expand(positions, ("log_scale", "counts", "total"))
    assert list(drawn) == ["log_scale", "counts", "total"]
    assert drawn["total"].shape == (2, 3)
    latent, _ = density.forward(positions[1, 2])
    for name, values in drawn.items():
        np.testing.assert_array_equal(values[1, 2].ravel(), latent[density.places[name]])


def test_positions_far_out_have_no_density_and_raise_nothing():
    for make in (HyperDirichlet, LogLinear):
        density = formulation(make, TREE, LAWS["laplace"], total=None).density
        for size in (1e3, -1e3, 1e200, -1e200):
            assert not density.posterior(np.full(density.size, size))[0] > 0
