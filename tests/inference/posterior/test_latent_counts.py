import warnings

import numpy as np
import pytest
from inference.conftest import AWKWARD, specification
from inference.posterior.drawn import finished_of, formulation_of, release_of

from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError, SamplingWarning
from bayesprivmrf.inference import LatentCounts, gather
from bayesprivmrf.inference.posterior.latent_counts import refuse_total_outside
from bayesprivmrf.mechanisms import ExactStatistics
from bayesprivmrf.privacy import Laplace
from bayesprivmrf.release import NoisyStatistics

BAG = {"a": [0, 1], "b": [0, 1]}


@pytest.fixture(scope="module")
def release():
    return release_of(specification(BAG, [("a", "b")]), total=None)


@pytest.mark.parametrize(
    "settings",
    [
        {"formulation": "stan"},
        {"concentration": 0.0},
        {"concentration": float("nan")},
        {"scale": 0.0},
        {"scale": float("inf")},
        {"total_range": (0.0, 10.0)},
        {"total_range": (10.0, 10.0)},
        {"total_range": (1.0, float("inf"))},
        {"total_range": (1.0,)},
        {"total_range": 5},
    ],
)
def test_settings_without_a_prior_or_outside_their_range_are_named(settings):
    with pytest.raises(ArgumentError, match=f"`{next(iter(settings))}`"):
        LatentCounts(**settings)


def test_a_release_of_another_kind_or_without_noise_is_refused(release):
    import pandas as pd

    with pytest.raises(ArgumentError, match="load_release"):
        LatentCounts().fit("survey.release")
    with pytest.raises(ArgumentError, match="at least one"):
        LatentCounts().fit([])
    exact = ExactStatistics().release(
        release.specification, pd.DataFrame({"a": [0, 1], "b": [1, 1]})
    )
    with pytest.raises(ArgumentError, match="NaiveMLE"):
        LatentCounts().fit(exact)


@pytest.mark.parametrize("rng", ["seed", -1, 2.5])
def test_what_seeds_nothing_is_refused_before_sampling(release, rng):
    with pytest.raises(
        ArgumentError, match="`rng` must be a seed of at least 0 or a numpy Generator"
    ):
        LatentCounts().fit(release, rng=rng)


@pytest.mark.parametrize("total_range", [(1.0, 100.0), (400.0, 1e6)])
def test_a_range_that_the_release_s_own_estimate_contradicts_is_refused(release, total_range):
    """About 200 records, known to about 4: a total near either end would be the range's, not the release's."""
    with pytest.raises(ArgumentError, match=r"`total_range` must contain .* own estimate"):
        LatentCounts(total_range=total_range).fit(release)


def test_a_range_that_the_estimate_does_not_contradict_is_taken(release):
    evidence = gather(release)
    estimate, error = evidence.estimated_total, evidence.total_standard_error
    refuse_total_outside(evidence, (1.0, estimate - 7.9 * error))
    refuse_total_outside(evidence, (estimate + 7.9 * error, 1e6))
    with pytest.raises(ArgumentError, match="total_range"):
        refuse_total_outside(evidence, (1.0, estimate - 8.1 * error))
    refuse_total_outside(gather(release_of(release.specification, total=200)), (1.0, 2.0))
    refuse_total_outside(gather(release_of(specification({}, []), total=None)), (1.0, 2.0))


def test_normal_effects_are_the_prior_of_every_graph_unless_rows_are_asked_for(release):
    cycle = release_of(specification(*AWKWARD["cycle"]))
    assert "prior_scale_location" in formulation_of(release).settings
    for asked in ({"formulation": "hyper-dirichlet"}, {"concentration": 1.0}):
        assert any("concentration" in name for name in formulation_of(release, **asked).settings)
    assert formulation_of(release, formulation="log-linear").name == "log-linear"
    assert formulation_of(cycle).name == "log-linear"
    with pytest.raises(ModelError, match="log-linear"):
        formulation_of(cycle, formulation="hyper-dirichlet")


def test_a_setting_of_the_other_formulation_is_not_ignored(release):
    cycle = release_of(specification(*AWKWARD["cycle"]))
    with pytest.raises(ArgumentError, match="log-linear"):
        formulation_of(release, scale=1.0, concentration=1.0)
    with pytest.raises(ArgumentError, match="log-linear"):
        formulation_of(release, scale=1.0, formulation="hyper-dirichlet")
    with pytest.raises(ArgumentError, match="concentration"):
        formulation_of(cycle, concentration=2.0)


def test_a_public_total_is_known_and_a_private_one_has_a_prior_that_sees_no_table(release):
    private = formulation_of(release)
    assert private.settings["total_range"] == (1.0, 1e14)
    assert "total" in private.judged
    size = 500
    drawn = private.prior_draws(size, np.random.default_rng(1)).total
    assert np.log(drawn).mean() == pytest.approx(
        0.5 * np.log(1e14), abs=4 * np.log(1e14) / np.sqrt(12 * size) + 0.1
    )
    public = formulation_of(release_of(release.specification, total=200))
    assert "total" not in public.judged
    assert (public.prior_draws(5, np.random.default_rng(1)).total == 200).all()


def flat_release(model):
    rng = np.random.default_rng(3)
    tables = {
        clique: rng.laplace(1.0, size=shape)
        for clique, shape in zip(model.cliques, model.shapes, strict=True)
    }
    return NoisyStatistics.from_tables(model, tables, noise=Laplace(1.0), total=900)


def test_what_would_not_fit_is_refused_before_anything_is_made():
    states = {f"v{i}": range(30) for i in range(8)}
    chain = specification(states, [(f"v{i}", f"v{i + 1}") for i in range(7)])
    with pytest.raises(ModelTooLargeError, match="NoiseAwareMAP"):
        LatentCounts().fit(flat_release(chain), draws=50_000)
    grid = {(i, j): [0, 1, 2] for i in range(16) for j in range(16)}
    edges = [((i, j), (i + 1, j)) for i in range(15) for j in range(16)]
    edges += [((i, j), (i, j + 1)) for i in range(16) for j in range(15)]
    with pytest.raises(ModelTooLargeError, match=r"NoiseAwareMAP\(inference='loopy'\)"):
        LatentCounts().fit(flat_release(specification(grid, edges)), draws=10)
    # three tables of a cycle with 50 states each have 7,350 effects
    wide = specification({v: range(50) for v in "abc"}, [("a", "b"), ("b", "c"), ("c", "a")])
    with pytest.raises(ModelTooLargeError, match="effects"):
        LatentCounts().fit(flat_release(wide), draws=10)


def test_without_variables_the_posterior_is_the_prior():
    posterior = LatentCounts().fit(
        release_of(specification({}, []), total=None), rng=1, draws=50, chains=2
    )
    assert posterior.tree["posterior"].sizes["draw"] == 50
    assert posterior.stats["sampler"] == "exact"


def fit(model, **settings):
    release = release_of(
        model, records=400, total=settings.pop("total", None), law=settings.pop("law", None)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        return release, LatentCounts(**settings).fit(release, rng=1, draws=300, tune=400, chains=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["disconnected", "one state", "cycle", "three-way"])
def test_awkward_models_have_posteriors_near_their_tables(name):
    """Noise of 2 records on 400: the latent counts lie within it, and the marginals are consistent."""
    release, posterior = fit(specification(*AWKWARD[name]))
    counts = finished_of(posterior).counts.mean(axis=(0, 1))
    spread = np.sqrt(release.cell_variances())
    assert (np.abs(counts - release.tables.flat) < 4 * spread).all()
    model = posterior.specification
    for position in range(len(model.cliques)):
        start, stop = model.offsets[position : position + 2]
        assert posterior.marginals.flat[start:stop].sum() == pytest.approx(1, abs=1e-9)
    assert posterior.solution.marginals.flat == pytest.approx(posterior.marginals.flat, abs=1e-5)
    assert gather(release).total_standard_error > 0
    assert "total" in posterior.tree["posterior"]
    variables = list(model.domain.variables)[:2]
    assert posterior.interval(variables)["estimate"].sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_structural_zeros_have_no_probability_in_any_draw():
    model = specification(*AWKWARD["tree"], [(("a", 1), ("b", "x"))])
    _, posterior = fit(model, formulation="log-linear", total=400)
    assert (posterior.tree["posterior"]["marginal[a,b]"].values[..., 1, 0] == 0).all()
    assert (posterior.tree["posterior"]["counts[a,b]"].values[..., 1, 0] == 0).all()
    assert posterior.solution.marginals["a", "b"][1, 0] == 0
    posterior.marginal(["a", "c"])


@pytest.mark.slow
def test_both_formulations_tell_the_same_of_tables_with_little_noise():
    """Noise of a tenth of a sampling error: priors and engines differ, the marginals hardly do."""
    model = specification(BAG, [("a", "b")])
    release = release_of(model, records=4000, total=4000, law=Laplace(3.0))
    one, other = (
        LatentCounts(formulation=name).fit(release, rng=1, draws=500, tune=500)
        for name in ("hyper-dirichlet", "log-linear")
    )
    first, second = (p.interval(["a", "b"]) for p in (one, other))
    width = (first["upper"] - first["lower"]).to_numpy()
    for column in ("estimate", "lower", "upper"):
        assert first[column].to_numpy() == pytest.approx(
            second[column].to_numpy(), abs=0.2 * width.max()
        )


def test_the_model_of_a_release_can_be_read_and_extended(release):
    posterior = formulation_of(release)
    model = posterior.model()
    assert model.named_vars_to_dims["counts[a,b]"] == ("a", "b")
    assert list(model.coords["a"]) == ["0", "1"]
    assert "noisy_counts" in model.named_vars
