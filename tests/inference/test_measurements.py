"""Estimators on answers to queries: exact where they can be, against brute force where they cannot."""

import functools

import numpy as np
import pytest
from inference.conftest import AWKWARD, simulated_counts, specification
from inference.posterior.drawn import finished_of
from inference.posterior.test_exact_effects import populations
from repeats import few

from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference import (
    CGM,
    LatentCounts,
    NaiveMLE,
    NoiseAwareMAP,
    Status,
    gather,
    least_squares,
)
from bayesprivmrf.model import Effects
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics

DECLARED = {name: given for name, given in AWKWARD.items() if given[0]}
CHAIN = specification({v: ["u", "v", "w"] for v in "abc"}, [("a", "b"), ("b", "c")])
SQUARE = specification({"a": [0, 1], "b": [0, 1, 2]}, [("a", "b")])
COARSE = q.coarsened("a", "b", b={"low": [0, 1], "2": [2]})


def release(model, counts, queries, law, rng=None, total=None):
    """Answers to queries about counts, each with the law's noise."""
    given = []
    for query in queries:
        exact = query.bind(model).answers(counts)
        noise = 0 if isinstance(law, NoNoise) else law.draw(exact.shape, rng)
        given.append(Measurement(query, exact + noise, law))
    return NoisyStatistics.from_measurements(model, given, total=total)


def asked(model, kind):
    """Queries that determine the tables of a model."""
    cells = [int(np.prod(shape)) for shape in model.shapes]
    return {
        "parities": [q.parities(3)],
        "parities, nested and repeated tables": [
            q.parities(3),
            *(q.table(clique[0]) for clique in model.cliques),
            q.table(*model.cliques[0]),
        ],
        "sums": [
            q.weighted(*clique, matrix=np.tril(np.ones((size, size))))
            for clique, size in zip(model.cliques, cells, strict=True)
        ],
        "reversed tables, some pooled": [
            *(q.pooled([clique[::-1]]) for clique in model.cliques),
            q.coarsened(
                model.cliques[0][0],
                groups={model.cliques[0][0]: {"all": model.domain.states_of(model.cliques[0][0])}},
            ),
        ],
    }[kind]


KINDS = ("parities", "parities, nested and repeated tables", "sums", "reversed tables, some pooled")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("states", "cliques"), DECLARED.values(), ids=DECLARED)
def test_naive_mle_finds_the_tables_that_exact_answers_determine(states, cliques, kind):
    model = specification(states, cliques)
    counts, _ = simulated_counts(model, 3000, np.random.default_rng(4), scale=0.5)
    given = release(model, counts, asked(model, kind), NoNoise())
    solution = NaiveMLE(ridge=1e-9).fit(given)
    assert given.estimated_total == 3000
    assert np.abs(3000 * solution.marginals.flat - counts).max() < 0.02
    assert "undetermined_cells" not in solution.stats


def test_cells_that_no_measurement_determines_are_even_and_counted():
    counts, _ = simulated_counts(CHAIN, 900, np.random.default_rng(1))
    solution = NaiveMLE(ridge=1e-9).fit(release(CHAIN, counts, [q.table("a", "b")], NoNoise()))
    assert solution.stats["undetermined_cells"] == 9
    table = solution.marginals["b", "c"]
    assert np.allclose(table, table.mean(axis=1, keepdims=True), atol=1e-5)
    merged = q.coarsened("b", "c", c={"u": ["u"], "later": ["v", "w"]})
    told = NaiveMLE(ridge=1e-9).fit(release(CHAIN, counts, [q.table("a", "b"), merged], NoNoise()))
    assert told.stats["undetermined_cells"] == 6
    assert np.allclose(
        900 * told.marginals["b", "c"][:, 0], counts[9:].reshape(3, 3)[:, 0], atol=0.02
    )


def test_a_pooled_table_tells_the_sum_over_its_scopes():
    counts, _ = simulated_counts(CHAIN, 900, np.random.default_rng(2))
    pooled = q.pooled([("a", "b"), ("b", "c")])
    solution = NaiveMLE(ridge=1e-9).fit(release(CHAIN, counts, [pooled, q.table("b")], NoNoise()))
    assert solution.stats["undetermined_cells"] > 0
    fitted = 900 * solution.marginals.flat
    assert np.allclose(
        pooled.bind(CHAIN).answers(fitted), pooled.bind(CHAIN).answers(counts), atol=0.05
    )


@pytest.mark.parametrize("estimator", [NaiveMLE(), NoiseAwareMAP()])
def test_nested_and_repeated_tables_are_read_as_several_releases_are(estimator):
    counts, _ = simulated_counts(CHAIN, 500, np.random.default_rng(3))
    rng, law = np.random.default_rng(7), Laplace(4.0)
    nested = [q.table("a", "b"), q.table("b", "c"), q.table("c", "b"), q.table("b")]
    joint = release(CHAIN, counts, nested, law, rng)
    assert gather(joint).queries is None
    assert CGM().fit(joint).status in ("converged", "stopped early")
    apart = NoisyStatistics.from_measurements(CHAIN, joint.measurements[:2])
    first, both = (estimator.fit(each).marginals.flat for each in (apart, joint))
    assert np.abs(both - first).max() > 1e-4  # what is measured again is read
    model = specification({v: ["u", "v", "w"] for v in "abc"}, [("c", "b"), ("a",)])
    other = NoisyStatistics.from_measurements(
        model, [joint.measurements[2], Measurement(q.table("a"), np.ones(3), Laplace(1e6))]
    )
    third = NoisyStatistics.from_measurements(
        specification({v: ["u", "v", "w"] for v in "abc"}, [("a",), ("b",), ("c",)]),
        [
            Measurement(q.table("a"), np.array([2.3, -1.7, 1.1]), Laplace(1e6)),
            joint.measurements[3],
            Measurement(q.table("c"), np.ones(3), Laplace(1e6)),
        ],
    )
    assert np.allclose(estimator.fit([apart, other, third]).marginals.flat, both, atol=2e-3)


def test_least_squares_is_that_of_the_textbook():
    """Against the dense solution over tables n of three variables, each a sum over joint states."""
    rng, model = np.random.default_rng(5), specification(*AWKWARD["cycle"])
    counts, _ = simulated_counts(model, 400, rng)
    given = [
        *release(model, counts, [q.parities(2), q.table("b")], Laplace(2.0), rng).measurements,
        *release(
            model,
            counts,
            [q.table("c", "d"), q.weighted("d", matrix=[[3, -1]])],
            Gaussian(9.0),
            rng,
        ).measurements,
    ]
    made = NoisyStatistics.from_measurements(model, given, total=400)
    matrix, joint = made.matrix.toarray(), _indicators(model)
    weights = 1 / np.sqrt(made.cell_variances())[:, np.newaxis]
    design = np.vstack([weights * (matrix @ joint), np.full((1, joint.shape[1]), 1e5)])
    wanted = np.append(weights[:, 0] * made.flat, 4e7)
    inverse = np.linalg.pinv(design, rcond=1e-12)
    found = least_squares.least_squares(gather(made))
    assert np.allclose(found.counts, joint @ (inverse @ wanted), atol=1e-5)
    assert np.allclose(found.variances, ((joint @ inverse)[:, :-1] ** 2).sum(axis=1), atol=1e-5)
    assert not found.undetermined.any()


def test_least_squares_by_products_is_that_by_equations():
    model = specification(*AWKWARD["three-way"])
    counts, _ = simulated_counts(model, 400, np.random.default_rng(8))
    noisy = release(
        model, counts, [q.parities(2), q.table("a")], Laplace(3.0), np.random.default_rng(9)
    )
    rows, answers, deviations = least_squares.noisy_rows(gather(noisy))
    given = Effects.of(model.cardinalities, model.scopes), rows, answers, deviations
    one, other = least_squares.by_equations(*given), least_squares.by_products(*given)
    assert np.allclose(one.counts, other.counts, atol=1e-5)
    assert np.array_equal(one.undetermined, other.undetermined)
    assert one.undetermined.sum() == 12
    assert 0.6 < (other.variances / one.variances).mean() < 1.6


def test_consistent_tables_are_the_transpose_of_coordinates():
    for states, cliques in DECLARED.values():
        model = specification(states, cliques)
        effects, rng = Effects.of(model.cardinalities, model.scopes), np.random.default_rng(6)
        beta, flat = rng.normal(size=(3, effects.size)), rng.normal(size=model.size)
        assert np.allclose(effects.margins(beta) @ flat, beta @ effects.coordinates(flat))


def _indicators(model):
    """Which cells of the cliques each joint state counts in, shape (cells, states)."""
    states = np.indices(model.cardinalities).reshape(len(model.cardinalities), -1)
    rows = np.zeros((model.size, states.shape[1]))
    for scope, shape, offset in zip(model.scopes, model.shapes, model.offsets, strict=False):
        cells = offset + np.ravel_multi_index(tuple(states[v] for v in scope), shape)
        rows[cells, np.arange(states.shape[1])] = 1
    return rows


@functools.cache
def _drawn_before(formulation, size=40_000):
    """Populations of the square by its prior, and 100 records of each; no answer has a part in them."""
    total = NoisyStatistics.from_measurements(
        SQUARE, [Measurement(q.table("a", "b"), np.zeros(6), Laplace(1.0))], total=100
    )
    estimator = LatentCounts(formulation=formulation, **FIXED[formulation])
    shares = populations(estimator._formulation(gather(total), 4000), size, 11).marginals[0]
    return shares, np.random.default_rng(12).multinomial(
        100, shares / shares.sum(axis=1, keepdims=True)
    )


def by_importance(formulation, made):
    """Posterior means of marginals and counts: draws of the prior, weighted by the noise's density at each answer."""
    shares, counts = _drawn_before(formulation)
    log_weights = np.zeros(len(counts))
    for each in made.measurements:
        answers = each.query.bind(made.specification).answers(counts)
        log_weights += each.noise.log_density(each.values - answers).sum(axis=-1)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    assert 1 / (weights**2).sum() > 400
    return weights @ shares, weights @ counts


FIXED = {"hyper-dirichlet": {"concentration": 1.0}, "log-linear": {"scale": 1.0}}


@pytest.mark.parametrize(
    "formulation", ["hyper-dirichlet", pytest.param("log-linear", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "law", few([DiscreteLaplace(15.0), Gaussian(20.0)]), ids=lambda law: law.name
)
def test_the_posterior_of_a_coarsened_table_and_parities_is_that_of_brute_force(formulation, law):
    counts = np.array([35, 3, 8, 10, 20, 24])
    queries = [COARSE, q.parities(2, with_empty=False), q.weighted("b", matrix=[[0, 1, 2]])]
    made = release(SQUARE, counts, queries, law, np.random.default_rng(12), total=100)
    posterior = LatentCounts(formulation=formulation, **FIXED[formulation]).fit(
        made, rng=3, draws=1000
    )
    marginals, latent = by_importance(formulation, made)
    assert np.abs(posterior.marginals.flat - marginals).max() < 0.015
    assert np.abs(finished_of(posterior).counts.mean(axis=(0, 1)) - latent).max() < 1.8
    assert posterior.status in ("converged", "approximate")


def test_the_noise_aware_estimate_is_near_the_posterior_mean_by_brute_force():
    counts = np.array([35, 3, 8, 10, 20, 24])
    made = release(
        SQUARE, counts, [COARSE, q.parities(1)], Laplace(15.0), np.random.default_rng(13), total=100
    )
    exact, _ = by_importance("log-linear", made)
    solution = NoiseAwareMAP(scale=1.0).fit(made)
    assert np.abs(solution.marginals.flat - exact).max() < 0.02
    interval = solution.interval(["a", "b"])
    assert ((interval["lower"] < exact) & (exact < interval["upper"])).all()


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")  # few draws
def test_a_posterior_of_queries_speaks_of_what_was_measured(tmp_path):
    counts, _ = simulated_counts(CHAIN, 300, np.random.default_rng(14))
    queries = [
        q.table("b", "a"),
        q.parities(2),
        q.parities(2),
        q.coarsened("c", c={"u/v": ["u", "v"], "w": ["w"]}),
    ]
    made = release(CHAIN, counts, queries, DiscreteLaplace(3.0), np.random.default_rng(15))
    posterior = LatentCounts().fit(made, rng=1, draws=100, tune=100, chains=2, time_limit=1e-9)
    assert posterior.stats["formulation"] == "log-linear"
    names = ["noisy_counts[b,a]", "noisy_counts[parities(2)]", "noisy_counts[parities(2)] 2"]
    observed = posterior.tree["observed_data"]
    assert set(names) < set(observed.data_vars)
    for name, each in zip(names, made.measurements, strict=False):
        assert np.array_equal(observed[name].values.ravel(), each.values)
    check = posterior.predictive_check(rng=2)
    assert list(check.index[:3]) == names
    assert (check["p_value"] > 1e-3).all()
    replicated = posterior.tree["posterior_predictive"][names[1]]
    assert abs(float(replicated[..., 0].mean()) - 300) < 30
    assert (replicated.values < 0).any()  # a parity is no count
    posterior.save(tmp_path / "posterior.nc")


@pytest.mark.parametrize("law", [Gaussian(2.0), Laplace(1.0), NoNoise()], ids=repr)
@pytest.mark.parametrize("kind", ["pairs", "parities"])
def test_what_answers_leave_open_in_a_clique_is_as_even_as_may_be(law, kind):
    """All pairs of a clique of three, in which most people are alike: least squares makes negative cells."""
    model = specification({v: [0, 1] for v in "abc"}, [("a", "b", "c")])
    counts = np.array([5000.0, 20, 20, 20, 20, 20, 20, 3000])
    queries = (
        [q.table(*pair) for pair in ("ab", "ac", "bc")] if kind == "pairs" else [q.parities(2)]
    )
    made = release(model, counts, queries, law, np.random.default_rng(0))
    naive, likeliest = NaiveMLE().fit(made), CGM(stopping="none").fit(made)
    assert naive.status is Status.CONVERGED
    truth = counts.reshape(2, 2, 2).sum(axis=2) / counts.sum()
    assert abs(naive.marginal(["a", "b"]).values - truth).max() < 0.003
    assert abs(naive.marginal(["a", "b", "c"]) - likeliest.marginal(["a", "b", "c"])).max() < 0.003


def test_answers_without_any_noise_have_no_posterior():
    made = release(SQUARE, np.arange(6.0), [COARSE, q.parities(2)], NoNoise())
    with pytest.raises(
        ArgumentError, match=r"samples the true counts behind noisy ones.*NoiseAwareMAP"
    ):
        LatentCounts().fit(made)
