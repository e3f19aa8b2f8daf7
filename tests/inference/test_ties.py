"""Tied potentials and shared transitions, against sums over all joint states."""

import warnings
from itertools import pairwise, product

import numpy as np
import pytest
from inference.parts import MeanCounts
from scipy.sparse import csr_array

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf import sequences
from bayesprivmrf.errors import ArgumentError, ModelError, NoiseWarning
from bayesprivmrf.inference import NoiseAwareMAP, NoisySums, Status, TransitionRows, gather
from bayesprivmrf.inference.transitions import transition_mode
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.model import Effects, ModelSpecification, ties
from bayesprivmrf.privacy import Gaussian, Laplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics


def chain(length, states, first=True):
    names = [f"m{t}" for t in range(length)]
    pairs = list(pairwise(names))
    own = [(names[0],)] if first else []
    return bpm.declare(dict.fromkeys(names, range(states)), [*own, *pairs], tied=[pairs])


def triangle():
    """Three exchangeable items: one table, symmetric because it is used both ways."""
    pairs = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"), ("a", "c"), ("c", "a")]
    cliques = [("a", "b"), ("b", "c"), ("a", "c")]
    return bpm.declare({key: ["u", "v", "w"] for key in "abc"}, cliques, tied=[pairs])


NETWORKS = {
    "K2T3": chain(3, 2),
    "K3T4": chain(4, 3),
    "no potential of its own": chain(4, 3, first=False),
    "triangle": triangle(),
}


def joint_cells(model):
    """Indicators of the cliques' cells, a row for each joint state."""
    states = list(product(*(range(k) for k in model.cardinalities)))
    table = np.zeros((len(states), model.size))
    for row, state in enumerate(states):
        for position, scope in enumerate(model.scopes):
            cell = np.ravel_multi_index([state[v] for v in scope], model.shapes[position])
            table[row, model.offsets[position] + cell] = 1
    return table


def moments(cells, theta):
    weight = np.exp(cells @ theta - (cells @ theta).max())
    law = weight / weight.sum()
    return law, law @ cells


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_coordinates_span_what_the_merged_map_spans(network):
    model = ModelSpecification.from_pgmpy(network)
    effects, full = ties.coordinates_of(model), Effects.of(model.cardinalities, model.scopes)
    merged = np.array([full.coordinates(column) for column in ties.tie_matrix(model).toarray().T]).T
    assert effects.size == np.linalg.matrix_rank(merged)
    assert np.linalg.matrix_rank(np.hstack([merged, effects.matrix.toarray()])) == effects.size
    gamma = np.random.default_rng(0).normal(size=effects.size)
    assert np.allclose(effects.coordinates(effects.potentials(gamma)), gamma)
    flat = np.random.default_rng(1).normal(size=(2, effects.cells))
    assert np.allclose(effects.pull_back(flat) @ gamma, flat @ effects.potentials(gamma))
    assert effects.missed(effects.potentials(gamma)) < 1e-12 < effects.missed(flat[0])


@pytest.mark.parametrize("states", [2, 3])
def test_a_chain_has_as_many_parameters_as_it_should(states):
    size = ties.coordinates_of(ModelSpecification.from_pgmpy(chain(4, states))).size
    assert size == 3 * (states - 1) + (states - 1) ** 2


def test_a_table_used_both_ways_makes_the_items_exchangeable():
    model = ModelSpecification.from_pgmpy(triangle())
    effects = ties.coordinates_of(model)
    theta = effects.potentials(np.random.default_rng(0).normal(size=effects.size))
    law = moments(joint_cells(model), theta)[0].reshape(3, 3, 3)
    for axes in [(1, 0, 2), (0, 2, 1), (2, 1, 0)]:
        assert np.allclose(law, law.transpose(axes))


def data_of(network, size=400, seed=0):
    model = ModelSpecification.from_pgmpy(network)
    effects, cells = ties.coordinates_of(model), joint_cells(model)
    gamma = np.random.default_rng(seed).normal(size=effects.size)
    law, _ = moments(cells, effects.potentials(gamma))
    return model, cells, np.random.default_rng(seed + 1).multinomial(size, law) @ cells


def exact_tables(network, counts):
    model = ModelSpecification.from_pgmpy(network)
    tables = model.tables(counts)
    return NoisyStatistics.from_tables(network, dict(tables.items()), noise=Gaussian(1e-3))


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_naive_likelihood_matches_the_sums_over_tied_cliques(network):
    model, cells, counts = data_of(network)
    solution = bpm.NaiveMLE(ridge=0.0, tolerance=1e-9).fit(exact_tables(network, counts))
    _law, mean = moments(cells, solution.potentials.flat)
    basis = ties.tie_matrix(model)
    assert np.allclose(
        basis.T @ mean, basis.T @ counts / counts[: model.offsets[1]].sum(), atol=1e-6
    )
    assert ties.coordinates_of(model).missed(solution.potentials.flat) < 1e-8
    assert np.allclose(solution.marginals.flat, mean)
    assert solution.stats["model"] == "tied potentials"


def test_tied_likelihood_is_the_highest_of_its_family():
    network = chain(3, 2)
    model, cells, counts = data_of(network)
    solution = bpm.NaiveMLE(ridge=0.0, tolerance=1e-9).fit(exact_tables(network, counts))
    effects = ties.coordinates_of(model)
    best = effects.coordinates(solution.potentials.flat)

    def likelihood(gamma):
        theta = effects.potentials(gamma)
        return counts @ theta - 400 * np.log(np.exp(cells @ theta).sum())

    rng = np.random.default_rng(4)
    assert all(
        likelihood(best) >= likelihood(best + 0.02 * rng.normal(size=best.size)) for _ in range(200)
    )


@pytest.mark.parametrize(
    "network", [chain(3, 2), chain(4, 3), triangle()], ids=["K2T3", "K3T4", "triangle"]
)
def test_every_estimator_agrees_on_much_data_without_much_noise(network):
    model, cells, _ = data_of(network)
    effects = ties.coordinates_of(model)
    theta = effects.potentials(0.7 * np.random.default_rng(3).normal(size=effects.size))
    counts = np.rint(1e6 * moments(cells, theta)[1])
    release = NoisyStatistics.from_tables(
        network, dict(model.tables(counts).items()), noise=Laplace(1.0)
    )
    truth = moments(cells, theta)[1]
    for estimator in (bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP()):
        fit = estimator.fit(release)
        assert np.abs(fit.marginals.flat - truth).max() < 2e-3, estimator.method
        assert effects.missed(np.asarray(fit.potentials.flat)) < 1e-6
        assert fit.stats["model"] == "tied potentials"


def test_cgm_rises_in_the_tied_likelihood_of_its_latent_counts():
    network = chain(4, 2)
    model, _, counts = data_of(network)
    rng = np.random.default_rng(2)
    noisy = np.rint(counts + rng.laplace(size=len(counts)) * 8)
    release = NoisyStatistics.from_tables(
        network, dict(model.tables(noisy).items()), noise=Laplace(8.0)
    )
    one = bpm.CGM(stopping="none", steps=1).fit(release)
    many = bpm.CGM(stopping="none", steps=60).fit(release)
    blocks = bpm.CGM(stopping="none", steps=60, acceleration=5.0).fit(release)
    far = [np.abs(noisy - 400 * fit.marginals.flat).sum() for fit in (one, many)]
    assert far[1] < far[0]
    assert np.allclose(many.marginals.flat, blocks.marginals.flat, atol=1e-6)  # ties take no blocks
    assert ties.coordinates_of(model).missed(many.potentials.flat) < 1e-6


@pytest.mark.parametrize(
    "network", [chain(3, 2), chain(4, 3), triangle()], ids=["K2T3", "K3T4", "triangle"]
)
def test_what_statistics_leave_open_matches_enumeration(network):
    model, cells, counts = data_of(network)
    release = NoisyStatistics.from_tables(
        network, dict(model.tables(counts).items()), noise=Laplace(1.0)
    )
    means = MeanCounts(evidence=gather(release))
    gamma = np.random.default_rng(5).normal(size=means.effects.size)
    found = means.at(np.append(gamma, np.log(100.0)))
    law, mean = moments(cells, means.effects.potentials(gamma))
    statistics = cells @ means.effects.potentials(np.eye(means.effects.size)).T
    centred, told = cells - mean, statistics - law @ statistics
    own = centred.T @ (law[:, None] * centred)
    cross = centred.T @ (law[:, None] * told)
    inner = told.T @ (law[:, None] * told)
    assert np.allclose(
        found.unexplained, 100 * (own - cross @ np.linalg.solve(inner, cross.T)), atol=1e-8
    )
    assert np.allclose(found.mean, 100 * mean)


def pooled_release(network, names, counts, scale=3.0, seed=0):
    """Sums over the steps, and the first table; noise from a seed."""
    model = ModelSpecification.from_pgmpy(network)
    pairs = list(pairwise(names))
    asked = [q.pooled(pairs), q.table(names[0])]
    rng = np.random.default_rng(seed)
    parts = []
    for query in asked:
        answer = query.bind(model).answers(counts)
        parts.append(
            Measurement(
                query, np.rint(answer + scale * rng.laplace(size=len(answer))), Laplace(scale)
            )
        )
    return NoisyStatistics.from_measurements(network, parts)


def test_pooled_sums_tell_all_that_tied_potentials_rest_on():
    network = chain(4, 3)
    _, _, counts = data_of(network)
    release = pooled_release(network, [f"m{t}" for t in range(4)], counts)
    assert MeanCounts(evidence=gather(release)).tells_all
    untied = bpm.declare(dict.fromkeys(["m0", "m1"], range(2)), [("m0", "m1")])
    plain = NoisyStatistics.from_tables(
        untied, {("m0", "m1"): np.full((2, 2), 9)}, noise=Laplace(1.0)
    )
    assert MeanCounts(evidence=gather(plain)).tells_all


@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.ConsistencyWarning"
)  # the exact tables are made up
def test_cgm_reads_sums_over_tied_cliques():
    """With little noise, run to its end, it is at the maximum of the likelihood of B'n."""
    network = chain(4, 3)
    _, _, counts = data_of(network, size=4000)
    release = pooled_release(network, [f"m{t}" for t in range(4)], counts)
    fitted = bpm.CGM(stopping="none", steps=2000).fit(release)
    expected = bpm.NaiveMLE(ridge=0.0).fit(release)
    for pair in [("m0", "m1"), ("m2", "m3")]:
        gap = fitted.marginal(list(pair)) - expected.marginal(list(pair))
        assert abs(gap).max() < 0.01
    for method in (bpm.CGM(), bpm.NaiveMLE(), bpm.NoiseAwareMAP()):
        first, inner = (
            NoisyStatistics.from_measurements(
                network,
                [
                    Measurement(q.table(name), np.array([1333, 1333, 1334]), NoNoise()),
                    *release.measurements,
                ],
            )
            for name in ("m0", "m1")
        )
        # the first state has a potential of its own, so that the model can give its table back; inner ones share
        assert 4000 * method.fit(first).marginal("m0").to_numpy() == pytest.approx(
            [1333, 1333, 1334]
        )
        with pytest.raises(ModelError, match="without noise"):
            method.fit(inner)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.SamplingWarning"
)  # R-hat about 1.01 is enough here
def test_posterior_and_mode_of_a_tied_chain_agree():
    network = chain(4, 2)
    _, _, counts = data_of(network, size=2000)
    release = pooled_release(network, [f"m{t}" for t in range(4)], counts)
    posterior = bpm.LatentCounts().fit(release, rng=1, draws=500, tune=500, chains=2)
    mode = bpm.NoiseAwareMAP().fit(release)
    assert posterior.stats["formulation"] == "log-linear"
    assert posterior.stats["model"] == "tied potentials"
    one = sequences.transition_matrix(posterior, step=2)
    two = sequences.transition_matrix(mode, step=2)
    width = two["upper"] - two["lower"]
    assert (abs(one["estimate"] - two["estimate"]) < 0.4 * width).all()
    assert ((one["upper"] - one["lower"]) / width).between(0.7, 1.4).all()
    with pytest.raises(ModelError, match="of='population'"):
        posterior.interval(["m0", "m1"], of="records")


# one matrix of transitions


def test_tables_of_shared_transitions_match_enumeration():
    model = ModelSpecification.from_pgmpy(bpm.markov_chain(range(3), 4, share="transitions"))
    rows = TransitionRows(model=model)
    phi = np.random.default_rng(0).normal(size=rows.size)
    first, matrix = rows.probabilities(phi)
    law = np.array(
        [
            first[s[0]] * np.prod([matrix[a, b] for a, b in pairwise(s)])
            for s in product(range(3), repeat=4)
        ]
    )
    cells = joint_cells(model)
    assert np.allclose(law.sum(), 1)
    assert np.allclose(rows.tables(phi), law @ cells)
    assert np.allclose(cells @ rows.potentials(phi), np.log(law))
    step = 1e-6
    for position, unit in enumerate(step * np.eye(rows.size)):
        up, down = (rows.log_tables(*rows.shifted(phi, move)) for move in (unit, -unit))
        slope = (up - down) / (2 * step)
        assert np.allclose(rows.derivatives(phi, linear=True)[:, position], slope, atol=1e-6)
    inverse = rows.coordinates(first, matrix)
    assert np.allclose(inverse, phi)


def test_a_chain_of_order_two_has_rows_for_each_pair():
    model = ModelSpecification.from_pgmpy(
        bpm.markov_chain(list("ab"), 5, order=2, share="transitions")
    )
    rows = TransitionRows(model=model)
    phi = np.random.default_rng(0).normal(size=rows.size)
    first, matrix = rows.probabilities(phi)
    law = np.array(
        [
            first[2 * s[0] + s[1]]
            * np.prod([matrix[2 * a + b, c] for a, b, c in zip(s, s[1:], s[2:], strict=False)])
            for s in product(range(2), repeat=5)
        ]
    )
    assert np.allclose(rows.tables(phi), law @ joint_cells(model))


@pytest.mark.parametrize("share", ["potentials", "transitions"])
def test_exact_sums_give_back_the_transitions(share):
    network = bpm.markov_chain(range(3), 6, share=share)
    names = [f"x{t + 1}" for t in range(6)]
    model = ModelSpecification.from_pgmpy(network)
    first = np.array([0.5, 0.3, 0.2])
    matrix = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
    rows = TransitionRows(model=model)
    counts = 1e6 * rows.tables(rows.coordinates(first, matrix))
    pairs = list(pairwise(names))
    release = NoisyStatistics.from_measurements(
        network,
        [
            Measurement(query, np.rint(query.bind(model).answers(counts)), Laplace(1.0))
            for query in (q.pooled(pairs), q.table("x1"))
        ],
    )
    step = None if share == "transitions" else 2
    for estimator in (bpm.NaiveMLE(), bpm.NoiseAwareMAP()):
        fit = estimator.fit(release)
        found = sequences.transition_matrix(fit, step=step)["estimate"].to_numpy().reshape(3, 3)
        assert np.abs(found - matrix).max() < (1e-3 if share == "transitions" else 0.02)
    law = sequences.stationary_law(fit, step=step)["estimate"].to_numpy()
    assert np.allclose(law @ found, law)
    times = sequences.hitting_times(fit, 0, step=step)["estimate"].to_numpy()
    assert times[0] == 0
    assert np.allclose(times[1:], 1 + found[1:, 1:] @ times[1:])
    stays = sequences.sojourn_times(fit, step=step)["estimate"].to_numpy()
    assert np.allclose(stays, 1 / (1 - np.diag(found)))


@pytest.mark.parametrize("share", ["potentials", "transitions"])
def test_the_naive_estimate_of_shared_parameters_refuses_answers_that_leave_their_sums_open(share):
    """Even shares of what was not measured are no data; sums over all steps are enough."""
    network = bpm.markov_chain(range(2), 3, share=share)
    first, table = np.array([400.0, 600.0]), np.array([[560.0, 240.0], [240.0, 960.0]])  # at rest
    whole = [Measurement(q.table("x1"), first, Laplace(1.0))]
    whole.append(Measurement(q.pooled([("x1", "x2"), ("x2", "x3")]), table.ravel(), Laplace(1.0)))
    assert (
        bpm.NaiveMLE().fit(NoisyStatistics.from_measurements(network, whole)).status
        is Status.CONVERGED
    )
    for asked in (q.table("x1"), q.table("x1", "x2")):
        answers = np.full(2 ** len(asked.scope), 100.0)
        release = NoisyStatistics.from_measurements(
            network, [Measurement(asked, answers, Laplace(1.0))]
        )
        with pytest.raises(ModelError, match="needs the sums of the cells that share them"):
            bpm.NaiveMLE().fit(release)


@pytest.mark.parametrize("measured", [("x1", "x2"), ("x2", "x3"), ("x3", "x4")])
def test_steps_that_were_not_measured_follow_from_those_that_were(measured):
    """The table of one step tells the matrix of all, whichever step it is."""
    network = bpm.markov_chain(range(2), 4, share="transitions")
    counts = 1500 * np.array([[8, 2], [2, 3]])  # of states at rest, which any step may have
    release = NoisyStatistics.from_measurements(
        network, [Measurement(q.table(*measured), counts.ravel(), Laplace(1.0))]
    )
    found = NoiseAwareMAP().fit(release)
    assert found.status is Status.CONVERGED
    assert np.abs(found.marginal(list(measured)).values - counts / counts.sum()).max() < 1e-3


@pytest.mark.slow
def test_the_covariance_of_transitions_is_that_of_repeated_releases():
    network = bpm.markov_chain(range(2), 4, share="transitions")
    model = ModelSpecification.from_pgmpy(network)
    rows, rng = TransitionRows(model=model), np.random.default_rng(0)
    first, matrix = np.array([0.6, 0.4]), np.array([[0.8, 0.2], [0.3, 0.7]])
    phi = rows.coordinates(first, matrix)
    cells = joint_cells(model)
    law = np.exp(cells @ rows.potentials(phi))
    names, found, promised = [f"x{t + 1}" for t in range(4)], [], []
    for seed in range(150):
        counts = rng.multinomial(1000, law / law.sum()) @ cells
        evidence = gather(pooled_release(network, names, counts, scale=8.0, seed=seed))
        mode = transition_mode(evidence, phi)
        found.append(rows.probabilities(mode.coordinates)[1][:, 0])
        shifted = mode.rows.shifted(mode.coordinates, np.eye(rows.size))[1]
        moved = shifted - rows.probabilities(mode.coordinates)[1]
        promised.append(np.einsum("cr,cd,dr->r", moved[:, :, 0], mode.covariance, moved[:, :, 0]))
    ratio = np.var(found, axis=0) / np.mean(promised, axis=0)
    assert ((ratio > 0.6) & (ratio < 1.5)).all()  # 150 draws: a standard error of .12
    assert np.abs(np.mean(found, axis=0) - matrix[:, 0]).max() < 0.01


def test_two_of_the_same_release_halve_the_noise():
    network = bpm.markov_chain(range(2), 4, share="transitions")
    model = ModelSpecification.from_pgmpy(network)
    rows = TransitionRows(model=model)
    counts = np.rint(1000 * rows.tables(np.zeros(rows.size)))
    names = [f"x{t + 1}" for t in range(4)]
    releases = [pooled_release(network, names, counts, scale=40.0, seed=seed) for seed in (1, 2)]
    one, both = bpm.NoiseAwareMAP().fit(releases[0]), bpm.NoiseAwareMAP().fit(releases)
    widths = [
        (table["upper"] - table["lower"]).mean()
        for table in map(sequences.transition_matrix, (one, both))
    ]
    assert widths[1] < 0.85 * widths[0]


# declarations, files, refusals


def test_ties_travel_with_networks_files_and_solutions(tmp_path):
    network = chain(4, 2)
    _, _, counts = data_of(network)
    release = pooled_release(network, [f"m{t}" for t in range(4)], counts)
    model = release.specification
    assert (
        model
        == ModelSpecification.from_pgmpy(network)
        != ModelSpecification.from_pgmpy(chain(4, 2, False))
    )
    release.save(tmp_path / "tied.release")
    again = bpm.load_release(tmp_path / "tied.release")
    assert again.specification == model
    assert again.specification.ties == model.ties
    fit = bpm.NaiveMLE().fit(again)
    assert ModelSpecification.from_pgmpy(fit.network) == model


def test_bad_ties_are_refused():
    states = {"a": [0, 1], "b": [0, 1], "c": [1, 0], "d": [0, 1, 2]}
    cliques = [("a", "b"), ("b", "c"), ("c", "d")]
    for tied, message in [
        ([[("a", "b"), ("b", "c")]], "same states in the same order"),
        ([[("a", "b"), ("c", "d")]], "same states"),
        ([[("a", "b"), ("a", "d")]], "must be a declared clique"),
        ([[("a", "b"), ("b",)]], "must be a declared clique"),
        ([[]], "at least one scope"),
        ([[("a", "b"), ("a", "b")]], "each scope once"),
    ]:
        with pytest.raises(ModelError, match=message):
            bpm.declare(states, cliques, tied=tied)
    with pytest.raises(ModelError, match="lie in tied cliques only"):
        bpm.declare(
            {"a": [0], "b": [0], "c": [0]},
            [("a", "b", "c"), ("a", "b"), ("b", "c")],
            tied=[[("a", "b"), ("b", "c")]],
        )
    with pytest.raises(ModelError, match="two groups"):
        bpm.declare(
            {key: [0, 1] for key in "abc"},
            [("a", "b"), ("b", "c"), ("a", "c")],
            tied=[[("a", "b"), ("b", "c")], [("b", "c"), ("a", "c")]],
        )
    for length, message in [(2, "order"), (0, "length")]:
        with pytest.raises(ArgumentError, match=message):
            bpm.markov_chain(list("ab"), length)
    with pytest.raises(ArgumentError, match="share"):
        bpm.markov_chain(list("ab"), 4, share="all")
    with pytest.raises(ArgumentError, match="one name for each"):
        bpm.markov_chain(list("ab"), 4, names=["p", "q"])


def test_what_has_no_estimator_refuses_with_a_remedy():
    from bayesprivmrf.mechanisms import DPSGD, SelectMeasure

    network = bpm.markov_chain(list("ab"), 4, share="transitions")
    names = [f"x{t + 1}" for t in range(4)]
    pairs = list(pairwise(names))
    tables = dict.fromkeys(pairs, np.full((2, 2), 50))
    shared = NoisyStatistics.from_tables(network, tables, noise=Laplace(2.0))
    with pytest.raises(ModelError, match="NoiseAwareMAP"):
        bpm.CGM().fit(shared)
    for estimator in (bpm.NaiveMLE(inference="loopy"), bpm.NoiseAwareMAP(inference="loopy")):
        with pytest.raises(ModelError, match="exact"):
            estimator.fit(shared)
    with pytest.raises(ArgumentError, match="scale"):
        bpm.NoiseAwareMAP(scale=1.0).fit(shared)
    tied = bpm.markov_chain(list("ab"), 4)
    separate = NoisyStatistics.from_tables(tied, tables, noise=Laplace(2.0))
    with pytest.raises(ModelError, match="pooled"):
        bpm.LatentCounts(formulation="log-linear").fit(separate)
    with pytest.raises(ModelError, match="log-linear"):
        bpm.LatentCounts(formulation="hyper-dirichlet").fit(separate)
    with pytest.raises(ModelError, match="same ties"):
        bpm.NaiveMLE().fit([separate, shared])
    for mechanism in (SelectMeasure(rho=1.0, degree=1), DPSGD(epsilon=1.0, delta=1e-6)):
        with pytest.raises(ModelError, match="ties"):
            mechanism.promise(tied)
    fit = bpm.NoiseAwareMAP().fit(separate)
    with pytest.raises(ArgumentError, match="`step` must be given, from 1 to 3"):
        sequences.transition_matrix(fit)
    with pytest.raises(ArgumentError, match="from 1 to 3, got 4"):
        sequences.transition_matrix(fit, step=4)
    with pytest.raises(ArgumentError, match="left out"):
        sequences.transition_matrix(bpm.NaiveMLE().fit(shared), step=1)
    plain = bpm.declare({key: [0, 1] for key in "ab"}, [("a", "b")])
    with pytest.raises(ModelError, match="markov_chain"):
        sequences.stationary_law(bpm.uniform_solution(plain))
    with pytest.raises(ArgumentError, match="Solution or a Posterior"):
        sequences.stationary_law(plain)


def test_a_chain_that_noise_drowns_ends_with_finite_numbers():
    network = bpm.markov_chain(["a", "b", "c"], 5, share="transitions")
    windows = q.pooled([(f"x{t}", f"x{t + 1}") for t in range(1, 5)])
    for seed in range(6):
        rng = np.random.default_rng(seed)
        first = np.array([50, 0, 0]) + np.round(rng.laplace(0, 130, 3))
        steps = np.array([200, *[0] * 8]) + np.round(rng.laplace(0, 130, 9))
        given = [
            Measurement(q.table("x1"), first, Laplace(130.0)),
            Measurement(windows, steps, Laplace(130.0)),
        ]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            solution = NoiseAwareMAP().fit(NoisyStatistics.from_measurements(network, given))
        assert solution.status is Status.NOT_TRUSTED
        # where there may be no record at all, the status and `problems` say so
        text = "the noise hides" if caught else "the number of records may be zero"
        assert any(text in problem for problem in solution.problems)
        assert all(one.category is NoiseWarning for one in caught)
        table = sequences.transition_matrix(solution)
        assert np.isfinite(table[["estimate", "lower", "upper"]].to_numpy()).all()
        assert (table["status"] == "not trusted").all()
        assert table["note"].str.contains("reaches 0 or 1").any()


def test_a_chain_of_one_state_is_refused():
    with pytest.raises(ArgumentError, match="at least two"):
        bpm.markov_chain(["a"], 4)


CHAINS = {
    "order 1": bpm.markov_chain(range(3), 4, share="transitions"),
    "order 2": bpm.markov_chain(range(2), 5, order=2, share="transitions"),
    "an end": bpm.markov_chain(["u", "v"], 4, share="transitions", end="end"),
}


@pytest.mark.parametrize("is_pooled", [False, True])
@pytest.mark.parametrize("network", CHAINS.values(), ids=CHAINS)
def test_least_squares_of_a_chain_weighs_by_the_covariance_of_all_noisy_numbers(network, is_pooled):
    model = ModelSpecification.from_pgmpy(network)
    rows, rng = TransitionRows(model=model), np.random.default_rng(3)
    phi, total, cells = rng.normal(scale=0.5, size=rows.size), 500.0, joint_cells(model)
    weights = np.exp(
        np.where(cells > 0, rows.potentials(phi), 0.0).sum(axis=1)
    )  # 0 where something is impossible
    law = weights / weights.sum()
    matrix = rng.integers(0, 2, (9, model.size)) if is_pooled else np.eye(model.size)
    noise = rng.uniform(1, 30, len(matrix))
    answers = cells @ matrix.T
    spread = answers - law @ answers
    covariance = total * (spread.T * law) @ spread + np.diag(noise)
    engine = marginal_engine(model.cardinalities, model.scopes)
    sums = NoisySums(rows=rows, matrix=csr_array(matrix.astype(float)), noise=noise, engine=engine)
    columns = rng.normal(size=(len(matrix), 5))
    whitened = sums.whitening(np.append(phi, np.log(total)))(columns)
    np.testing.assert_allclose(
        whitened.T @ whitened, columns.T @ np.linalg.solve(covariance, columns), rtol=1e-9
    )


@pytest.mark.parametrize("network", CHAINS.values(), ids=CHAINS)
def test_derivatives_of_a_chains_tables_are_those_of_finite_differences(network):
    model = ModelSpecification.from_pgmpy(network)
    rows, engine = TransitionRows(model=model), marginal_engine(model.cardinalities, model.scopes)
    phi, step = np.random.default_rng(4).normal(scale=0.5, size=rows.size), 1e-6
    cells = csr_array(np.eye(model.size))
    sums = NoisySums(rows=rows, matrix=cells, noise=np.ones(model.size), engine=engine)
    by_phi, by_c = (
        sums.jacobian(np.append(phi, 0.0), linear=each)[0][:, :-1] for each in (False, True)
    )
    numeric = [
        (rows.tables(phi + move) - rows.tables(phi - move)) / (2 * step)
        for move in step * np.eye(rows.size)
    ]
    np.testing.assert_allclose(by_phi, np.transpose(numeric), atol=1e-8)
    moved = [rows.forward(*rows.shifted(phi, move)) for move in step * np.eye(rows.size)]
    before = [rows.forward(*rows.shifted(phi, -move)) for move in step * np.eye(rows.size)]
    numeric = (np.array(moved) - np.array(before)) / (2 * step)
    np.testing.assert_allclose(by_c, numeric.T, atol=1e-8)


@pytest.mark.slow
def test_a_chain_of_sixteen_states_and_twenty_steps_is_fitted():
    network, rng = bpm.markov_chain(range(16), 20, share="transitions"), np.random.default_rng(5)
    model = ModelSpecification.from_pgmpy(network)
    rows = TransitionRows(model=model)
    matrix = rng.dirichlet(np.full(16, 2.0), size=16)
    counts = rng.poisson(50_000 * rows.tables(rows.coordinates(np.full(16, 1 / 16), matrix)))
    release = NoisyStatistics.from_tables(network, model.tables(counts), noise=Laplace(5.0))
    fit = NoiseAwareMAP().fit(release)
    assert fit.status is Status.CONVERGED
    frame = sequences.transition_matrix(fit)
    truth = matrix.ravel()
    assert (
        (frame["lower"] <= truth) & (truth <= frame["upper"])
    ).mean() > 0.84  # of 256; 90 % less 3 errors
