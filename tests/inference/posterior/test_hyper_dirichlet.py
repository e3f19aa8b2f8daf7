"""The decomposable engine against exact sums over integer tables, and what follows exactly from its draws."""

import numpy as np
import pytest
from inference.conftest import (
    AWKWARD,
    joint_states,
    noisy_release,
    simulated_counts,
    specification,
    tables_of,
)
from inference.posterior.engines import HyperDirichlet, Run, draw_posterior
from inference.posterior.enumeration import exact_posterior
from inference.posterior.small_models import BINARY, UNEQUAL, ZEROS
from repeats import again
from scipy.special import logsumexp

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference import LatentCounts, gather
from bayesprivmrf.model import Effects
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace
from bayesprivmrf.release import NoisyStatistics


def evidence_of(model, records, law, seed, *, total=True):
    rng = np.random.default_rng(seed)
    counts, _ = simulated_counts(model, records, rng)
    return gather(noisy_release(model, counts, law, rng, total=records if total else None))


def sampled(formulation, *, draws=2500, chains=4, seed=1):
    """Draws of the judged variables, of the length asked for: chains that follow each other do not go on."""
    settings = {"cores": 2, "progress_bar": False}
    return draw_posterior(
        formulation,
        Run(draws=draws, tune=500, chains=chains, seed=seed),
        sampler="nutpie",
        settings=settings,
    ).draws


def errors(formulation, exact, **settings):
    """Of posterior means, in posterior standard deviations, and ratios of standard deviations; cell by cell."""
    draws = sampled(formulation, **settings)
    finished = formulation.finish(draws, np.random.default_rng(2))
    possible = exact.sd > 0
    marginals = finished.marginals.reshape(-1, exact.mean.size)[:, possible]
    error = (marginals.mean(axis=0) - exact.mean[possible]) / exact.sd[possible]
    return np.abs(error), marginals.std(axis=0) / exact.sd[possible], finished


# What follows from draws, without a sampler.


@pytest.mark.parametrize("name", ["tree", "disconnected", "one state", "single", "empty"])
def test_marginals_of_prior_draws_agree_between_cliques_and_effects_give_them_back(name):
    model = specification(*AWKWARD[name])
    evidence = evidence_of(model, 40, DiscreteLaplace(1.0), 1)
    formulation = HyperDirichlet(evidence=evidence, concentration=0.6, total=40)
    drawn = formulation.prior_draws(3, np.random.default_rng(2))
    effects, x = Effects.of(model.cardinalities, model.scopes), joint_states(model)
    for marginals, beta, counts in zip(
        drawn.marginals[0], drawn.effects[0], drawn.counts[0], strict=True
    ):
        potentials = model.tables(effects.potentials(beta))
        log_joint = np.zeros(len(x))
        for position, scope in enumerate(model.scopes):
            log_joint = log_joint + potentials.table(position)[tuple(x[:, v] for v in scope)]
        joint = np.exp(log_joint - logsumexp(log_joint))
        assert tables_of(model, joint) == pytest.approx(marginals, abs=1e-10)
        assert (counts == np.rint(counts)).all()
        assert counts.sum() == pytest.approx(40 * len(model.scopes))
    assert drawn.total.shape == (1, 3)


def test_prior_draws_have_dirichlet_rows_and_records_of_their_own_marginals():
    """Root and rows of 4,000 draws: means and variances within five Monte Carlo standard errors."""
    formulation = HyperDirichlet(
        evidence=evidence_of(UNEQUAL, 30, DiscreteLaplace(1.0), 1), concentration=1.0, total=30
    )
    drawn = formulation.prior_draws(4000, np.random.default_rng(3))
    root, child = np.split(drawn.marginals[0], [8], axis=1)
    assert root.mean(axis=0) == pytest.approx(1 / 8, abs=0.01)
    assert root.var(axis=0) == pytest.approx(7 / 64 / 9, rel=0.15)
    rows = child.reshape(-1, 2, 3)
    margin = root.reshape(-1, 2, 2, 2).sum(axis=(1, 2))
    assert rows.sum(axis=2) == pytest.approx(margin)
    conditional = rows / margin[:, :, np.newaxis]
    assert conditional.mean(axis=0) == pytest.approx(1 / 3, abs=0.02)
    assert conditional.var(axis=0) == pytest.approx(2 / 9 / 4, rel=0.1)
    residual = (drawn.counts[0] - 30 * drawn.marginals[0]) / np.sqrt(
        30 * drawn.marginals[0] * (1 - drawn.marginals[0])
    )
    assert residual.mean(axis=0) == pytest.approx(0, abs=5 / np.sqrt(4000))
    assert residual.var(axis=0) == pytest.approx(1, abs=0.2)


def test_effects_on_a_clique_with_structural_zeros_are_nan_and_no_others():
    model = specification(
        {"a": [0, 1], "b": [0, 1], "c": [0, 1]}, [("a", "b"), ("b", "c")], [(("a", 0), ("b", 1))]
    )
    formulation = HyperDirichlet(evidence=evidence_of(model, 30, DiscreteLaplace(1.0), 1), total=30)
    drawn = formulation.prior_draws(5, np.random.default_rng(1))
    effects = Effects.of(model.cardinalities, model.scopes)
    for position, subset in enumerate(effects.subsets):
        values = drawn.effects[0, :, effects.offsets[position] : effects.offsets[position + 1]]
        assert np.isnan(values).all() if set(subset) <= {0, 1} else np.isfinite(values).all()
    assert (drawn.marginals[0, :, 1] == 0).all()
    assert (drawn.counts[0, :, 1] == 0).all()


def test_parameters_follow_the_counts_by_their_conjugate_law():
    """Given fixed tables the rows are Dirichlet(alpha + n): means of 4,000 draws within five standard errors."""
    formulation = HyperDirichlet(
        evidence=evidence_of(BINARY, 20, DiscreteLaplace(1.0), 1), concentration=0.5, total=20
    )
    n = np.array([8.0, 3.0, 0.0, 9.0, 2.0, 6.0, 12.0, 0.0])
    finished = formulation.finish({"counts": np.tile(n, (2, 2000, 1))}, np.random.default_rng(1))
    root = (n[:4] + 0.5) / 22
    rows = (n[4:] + 0.5).reshape(2, 2) / np.array([[9.0], [13.0]])
    expected = np.concatenate([root, (np.array([[9.0], [13.0]]) / 22 * rows).ravel()])
    assert finished.marginals.mean(axis=(0, 1)) == pytest.approx(
        expected, abs=5 * 0.11 / np.sqrt(4000)
    )
    assert finished.marginals[..., :4].var(axis=(0, 1)) == pytest.approx(
        root * (1 - root) / 23, rel=0.2
    )


def test_parameters_follow_the_whole_numbers_that_relaxed_counts_stand_for():
    formulation = HyperDirichlet(
        evidence=evidence_of(BINARY, 20, DiscreteLaplace(1.0), 1), concentration=0.1, total=20
    )
    relaxed = np.array([8.3, 2.6, -0.05, 9.4, 2.2, 5.8, 11.6, 0.4])
    one, other = (
        formulation.finish({"counts": np.tile(n, (1, 50, 1))}, np.random.default_rng(1))
        for n in (relaxed, np.maximum(np.rint(relaxed), 0.0))
    )
    assert (one.effects == other.effects).all()
    assert (one.marginals == other.marginals).all()


@pytest.mark.parametrize("concentration", [0.1, *again(1.0)])
@pytest.mark.slow
def test_potentials_of_empty_cells_are_as_uncertain_as_whole_records_say(concentration):
    """Widths of 90 % intervals against the engine that moves whole records: within 15 % in the mean over cells."""
    model = specification({"a": [0, 1, 2, 3], "b": ["x", "y", "z"]}, [("a", "b")])
    noisy = np.array([[300, 1, -2], [3, 120, 1], [60, -1, 2], [-3, 1, 20]])
    release = NoisyStatistics.from_tables(
        model, {("a", "b"): noisy}, noise=DiscreteLaplace(2.0), total=500
    )
    widths = []
    for formulation in ("exact", "hyper-dirichlet"):
        estimator = LatentCounts(formulation=formulation, concentration=concentration)
        posterior = estimator.fit(release, rng=1, chains=2, draws=500, tune=200, progress_bar=False)
        drawn = posterior.tree["posterior"]["potentials[a,b]"].to_numpy().reshape(-1, 12)
        low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
        widths.append(high - low)
    assert np.log(widths[1] / widths[0]).mean() == pytest.approx(0, abs=0.15)


def test_a_model_that_is_not_decomposable_is_refused_with_the_alternative():
    model = specification(*AWKWARD["cycle"])
    with pytest.raises(ModelError, match="log-linear"):
        HyperDirichlet(evidence=evidence_of(model, 50, DiscreteLaplace(1.0), 1), total=50)


# The PyMC model.


@pytest.mark.slow
def test_the_model_can_be_read_and_extended():
    """Tables by the names of variables and states; their sums are N."""
    import pymc as pm

    states = {"counts": ["x", "y"], 0: [1, 2, 3], "noisy_cell": [0, 1]}
    model = specification(states, [("counts", 0), (0, "noisy_cell")])
    evidence = evidence_of(model, 50, DiscreteLaplace(2.0), 1, total=False)
    formulation = HyperDirichlet(evidence=evidence, total_range=(20.0, 200.0))
    built = formulation.model()
    tables = [v for v in built.deterministics if v.name.startswith("counts[")]
    assert [v.type.shape for v in tables] == [(2, 3), (3, 2)]
    assert list(built.coords[built.named_vars_to_dims[tables[0].name][0]]) == ["x", "y"]
    values = built.replace_rvs_by_values([*tables, built["total"]])
    point = {"position": np.random.default_rng(1).normal(size=formulation.density.size)}
    first, second, total = built.compile_fn(values, mode="FAST_COMPILE")(point)
    assert first.sum() == pytest.approx(total)
    margin, below = first.sum(axis=0), second.sum(axis=1)
    assert np.allclose(np.where(margin >= 0, margin, 0), np.where(margin >= 0, below, 0))
    assert 20 <= total <= 200
    with built:
        pm.Deterministic("ratio", tables[0][0, 0] / built["total"])
    assert np.isfinite(built.point_logps(built.initial_point())["noisy_counts"])


def test_laws_may_differ_between_tables_and_nested_and_repeated_tables_are_sums():
    """The log-likelihood of the model at its starting point, against the noise laws' own densities."""
    pair = specification({"a": [0, 1], "b": [0, 1, 2]}, [("b", "a")])
    single = specification({"a": [0, 1], "b": [0, 1, 2]}, [("a",), ("b",)])
    rng = np.random.default_rng(1)
    counts, _ = simulated_counts(pair, 60, rng)
    releases = [
        noisy_release(pair, counts, Laplace(3.0), rng, total=60),
        noisy_release(pair, counts, Gaussian(4.0), rng, total=60),
        NoisyStatistics.from_tables(
            single,
            {("a",): np.array([31.0, 30.0]), ("b",): np.array([20.0, 23.0, 19.0])},
            noise=DiscreteLaplace(2.0),
            total=60,
        ),
    ]
    evidence = gather(releases)
    formulation = HyperDirichlet(evidence=evidence, total=60)
    model = formulation.model()
    point = model.initial_point()
    asked = [*model.replace_rvs_by_values([model["counts"]]), model.logp(model["noisy_counts"])]
    n, found = model.compile_fn(asked, mode="FAST_COMPILE")(point)
    n = n.reshape(3, 2)
    latent = np.concatenate([n.ravel(), n.ravel(), n.sum(axis=0), n.sum(axis=1)])
    residuals = evidence.noisy_counts - latent
    expected = sum(
        law.log_density(residuals[start:stop]).sum()
        for law, start, stop in zip(
            evidence.noise, evidence.offsets, evidence.offsets[1:], strict=False
        )
    )
    # the constants of the integer laws are those of their relatives, which do not depend on the counts
    constants = sum(
        (stop - start) * (relative.log_density(0.0) - law.log_density(0.0))
        for law, relative, start, stop in zip(
            evidence.noise,
            (Laplace(3.0), Gaussian(4.0), Laplace(2.0), Laplace(2.0)),
            evidence.offsets,
            evidence.offsets[1:],
            strict=False,
        )
    )
    assert found == pytest.approx(expected + constants, rel=1e-9)


def test_each_draw_s_own_shapes_are_those_of_its_parameters():
    """Where shapes are sampled, the parameters given the tables are Dirichlet of those of the same draw."""
    formulation = HyperDirichlet(
        evidence=evidence_of(BINARY, 20, DiscreteLaplace(1.0), 1), total=20
    )
    n = np.array([8.0, 3.0, 0.0, 9.0, 2.0, 6.0, 12.0, 0.0])
    shapes = np.stack(
        [np.full((2000, 8), 0.5), np.tile([50.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], (2000, 1))]
    )
    draws = {"counts": np.tile(n, (2, 2000, 1)), "shapes": shapes}
    marginals = formulation.finish(draws, np.random.default_rng(1)).marginals.mean(axis=1)
    assert marginals[0, :4] == pytest.approx((n[:4] + 0.5) / 22, abs=0.02)
    assert marginals[1, :4] == pytest.approx((n[:4] + shapes[1, 0, :4]) / 73, abs=0.02)


# Against exact sums. Each of 10,000 draws is worth half an independent one or more, so that a mean is known to
# about .014 posterior standard deviations and a standard deviation to about 1 %.


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "alpha"), [(0.5, 1.0), (3.0, 1.0), (2.0, 0.3), (6.0, 3.0)])
def test_posterior_of_a_binary_chain_is_the_exact_one(scale, alpha):
    evidence = evidence_of(BINARY, 20, DiscreteLaplace(scale), 320)
    error, ratio, finished = errors(
        HyperDirichlet(evidence=evidence, concentration=alpha, total=20),
        exact_posterior(evidence, alpha=alpha),
        draws=20_000 if alpha < 1 else 2_500,  # draws of small concentrations mix slowly
    )
    assert error.max() < 0.08
    assert np.abs(ratio - 1).max() < 0.05
    assert finished.counts[..., :4].sum(axis=-1) == pytest.approx(20)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_posterior_is_the_exact_one_over_the_whole_grid(alpha):
    """Mean error below .06 posterior standard deviations and their ratio within 3 %, averaged over the cells."""
    for records, scale in ((20, 0.5), (60, 2.0), (20, 6.0), (60, 20.0)):
        evidence = evidence_of(BINARY, records, DiscreteLaplace(scale), 900 + records)
        error, ratio, _ = errors(
            HyperDirichlet(evidence=evidence, concentration=alpha, total=records),
            exact_posterior(evidence, alpha=alpha),
            draws=16_000 if alpha < 1 else 4_000,  # draws of small concentrations mix slowly
        )
        assert np.sqrt(np.mean(error**2)) < 0.06, (records, scale)
        assert abs(ratio.mean() - 1) < 0.03, (records, scale)
        assert error.max() < 0.15, (records, scale)


@pytest.mark.slow
@pytest.mark.parametrize("model", [UNEQUAL, ZEROS], ids=["unequal cliques", "structural zeros"])
@pytest.mark.parametrize(
    ("law", "alpha"),
    [(DiscreteLaplace(2.0), 0.4), (Gaussian(1.5), 1.0), (DiscreteLaplace(2.0), 3.0)],
)
def test_unequal_cliques_and_cells_that_cannot_occur_have_the_exact_posterior(model, law, alpha):
    evidence = evidence_of(model, 14, law, 77)
    error, ratio, _ = errors(
        HyperDirichlet(evidence=evidence, concentration=alpha, total=14),
        exact_posterior(evidence, alpha=alpha),
    )
    assert np.sqrt(np.mean(error**2)) < 0.06
    assert abs(ratio.mean() - 1) < 0.03


@pytest.mark.slow
def test_a_private_total_has_the_exact_posterior():
    """Log-uniform on 8..60: the exact sum gives each N the weight log((N + 1/2) / (N - 1/2)), nearly 1/N."""
    evidence = evidence_of(BINARY, 22, DiscreteLaplace(3.0), 5, total=False)
    exact = exact_posterior(evidence, totals=range(8, 61))
    formulation = HyperDirichlet(evidence=evidence, concentration=1.0, total_range=(7.5, 60.5))
    error, ratio, finished = errors(formulation, exact)
    assert np.sqrt(np.mean(error**2)) < 0.06
    assert abs(ratio.mean() - 1) < 0.03
    assert abs(finished.total.mean() - exact.total_mean) < 0.08 * exact.total_sd
    assert finished.total.std() == pytest.approx(exact.total_sd, rel=0.05)
