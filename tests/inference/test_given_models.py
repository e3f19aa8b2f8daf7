"""Models that are given to `fit`, apart from the tables that a release measured."""

import itertools
import warnings

import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import noise
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, ModelError
from bayesprivmrf.inference import gather
from bayesprivmrf.model import Domain, ModelSpecification

# names are integers and text, and labels are in no sorted order
STATES = {3: ["no", "yes"], "b": [2, 0, 1], 1: ["z", "a"], "d": [True, False], "one": ["only"]}
GRAPHS = {
    "tree": [(3, "b"), ("b", 1), ("b", "d"), ("one",)],
    "cycle": [(3, "b"), ("b", 1), (1, "d"), ("d", 3), ("one",)],
    "disconnected": [(3, "b"), (1, "d"), ("one",)],
    "isolated": [(3, "b"), ("b", 1), ("d",), ("one",)],
    "one state": [(3, "b"), ("b", 1), ("b", "d", "one")],
    "three-way": [(1, 3, "b"), ("b", "d"), ("one",)],
    "independence": [(3,), ("b",), (1,), ("d",), ("one",)],
}


def joint_of(states, cliques, rng, spread=0.7):
    """Return a random distribution of a log-linear model, with all variables as axes."""
    names = list(states)
    shape = [len(own) for own in states.values()]
    logs = np.zeros(shape)
    for clique in cliques:
        axes = sorted(names.index(v) for v in clique)
        table = rng.normal(0, spread, [shape[a] for a in axes])
        logs = logs + table.reshape([k if a in axes else 1 for a, k in enumerate(shape)])
    weights = np.exp(logs)
    return weights / weights.sum()


def saturated(states, joint, size, scale, rng, total=None):
    """Return a release of the whole table of a sample, with normal noise."""
    names = tuple(states)
    table = rng.multinomial(size, joint.ravel()).reshape(joint.shape)
    noisy = table + rng.normal(0, scale, joint.shape)
    network = bpm.declare(states, [names])
    law = noise.Gaussian(scale)
    return bpm.NoisyStatistics.from_tables(network, {names: noisy}, noise=law, total=total), table


# draws that are not extended until they are enough
SHORT = {"time_limit": 1e-9, "progress_bar": False}


def quiet(estimator, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(*args, **kwargs)


@pytest.mark.parametrize("graph", GRAPHS)
def test_mode_maximizes_the_normal_likelihood_of_the_whole_table(graph):
    # the likelihood is enumerated: all joint states, the full sampling covariance, and no engine of the library
    rng = np.random.default_rng(5)
    cliques = GRAPHS[graph]
    joint = joint_of(STATES, cliques, rng)
    size, scale = 3000, 6.0
    release, _ = saturated(STATES, joint, size, scale, rng, total=size)
    solution = quiet(bpm.NoiseAwareMAP(scale=20.0), release, model=cliques)
    assert solution.status == "converged"
    means = solution.mode.means
    own = means.evidence.family
    tables = own.effects.potentials(np.eye(own.effects.size))
    # log potentials of every joint state, by the definition of a clique's table
    (scope,) = means.evidence.specification.scopes
    order = np.argsort(scope)
    shape = means.evidence.specification.shapes[0]
    basis = tables.reshape(-1, *shape).transpose(0, *(1 + order)).reshape(len(tables), -1)
    noisy = release.measurements[0].values.ravel()

    def moments(beta):
        logs = beta @ basis
        p = np.exp(logs - logs.max())
        p /= p.sum()
        return p, size * (np.diag(p) - np.outer(p, p))

    # iteratively reweighted least squares with the whole covariance: maximum likelihood where there is no noise
    beta = np.zeros(len(basis))
    for _ in range(200):
        p, sampling = moments(beta)
        weights = np.linalg.inv(sampling + scale**2 * np.eye(len(p)))
        slope = sampling @ basis.T
        precision = slope.T @ weights @ slope + np.eye(len(beta)) / 400
        step = np.linalg.solve(precision, slope.T @ weights @ (noisy - size * p) - beta / 400)
        beta = beta + step / max(1.0, np.abs(step).max() / 0.5)
    assert np.abs(step).max() < 1e-8
    deviations = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert np.abs((solution.mode.coordinates - beta) / deviations).max() < 0.05


@pytest.mark.parametrize("graph", GRAPHS)
def test_results_speak_of_the_cliques_of_the_model(graph):
    rng = np.random.default_rng(6)
    cliques = GRAPHS[graph]
    release, _ = saturated(STATES, joint_of(STATES, cliques, rng), 2000, 3.0, rng)
    solution = quiet(bpm.NoiseAwareMAP(), release, model=cliques)
    given = {frozenset(own) for own in cliques}
    scopes = {frozenset(factor.variables) for factor in solution.network.get_factors()}
    assert scopes == {own for own in given if not any(own < other for other in given)}
    # the network has the distribution that `marginal` gives
    values = np.zeros([2, 3])
    for i, j in itertools.product(range(2), range(3)):
        states = {3: STATES[3][i], "b": STATES["b"][j]}
        values[i, j] = solution.probability(states)
    np.testing.assert_allclose(values, solution.marginal([3, "b"]).values, atol=1e-12)
    # intervals are centered at the same distribution
    frame = solution.interval([3, "d"])
    np.testing.assert_allclose(
        frame["estimate"].to_numpy(), solution.marginal([3, "d"]).values.ravel(), atol=1e-9
    )


def test_a_model_of_the_releases_own_cliques_is_the_default():
    rng = np.random.default_rng(7)
    states = {"a": [0, 1], "b": ["x", "y", "z"], "c": [0, 1]}
    cliques = [("a", "b"), ("b", "c")]
    joint = joint_of(states, cliques, rng)
    network = bpm.declare(states, cliques)
    tables = {
        ("a", "b"): np.round(500 * joint.sum(axis=2)),
        ("b", "c"): np.round(500 * joint.sum(axis=0)),
    }
    release = bpm.NoisyStatistics.from_tables(network, tables, noise=noise.DiscreteLaplace(2.0))
    for given in (cliques, network, release.specification):
        evidence = gather(release, model=given)
        assert evidence.specification == release.specification
        assert evidence.specification.interactions is None
        one = quiet(bpm.NoiseAwareMAP(), release)
        other = quiet(bpm.NoiseAwareMAP(), release, model=given)
        np.testing.assert_array_equal(one.potentials.flat, other.potentials.flat)


@pytest.mark.slow
def test_posterior_of_independence_is_the_enumerated_one():
    # every table of the records and a fine grid of effects, with the prior that LatentCounts states
    size, scale, tau = 12, 1.5, 0.6
    states = {"a": ["u", "v"], "b": [1, 0]}
    noisy = np.array([[6.0, 2.0], [1.0, 4.0]])
    network = bpm.declare(states, [("a", "b")])
    law = noise.DiscreteGaussian(scale)
    release = bpm.NoisyStatistics.from_tables(network, {("a", "b"): noisy}, noise=law, total=size)
    grid = np.linspace(-3, 3, 121)
    tables = [own for own in itertools.product(range(size + 1), repeat=4) if sum(own) == size]
    counts = np.array(tables, float)
    seen = np.exp(-0.5 * ((noisy.ravel() - counts) ** 2).sum(axis=1) / scale**2)
    from scipy.special import gammaln

    ways = gammaln(size + 1) - gammaln(counts + 1).sum(axis=1)
    # contrasts (-1, 1) / sqrt(2) of each axis, times the constant of the other axis
    x, y = np.meshgrid(grid, grid, indexing="ij")
    sign = np.array([-1.0, 1.0]) / np.sqrt(2)
    logs = x[..., None, None] * sign[:, None] + y[..., None, None] * sign[None, :]
    logs = logs - np.log(np.exp(logs).sum(axis=(-2, -1), keepdims=True))
    flat = logs.reshape(*x.shape, 4)
    like = np.exp(ways + flat @ counts.T) @ seen
    weights = like * np.exp(-0.5 * (x**2 + y**2) / tau**2)
    weights /= weights.sum()
    wanted = (weights[..., None] * np.exp(flat)).sum(axis=(0, 1))
    per_table = np.einsum("xy,xyt->t", weights / like, np.exp(ways + flat @ counts.T)) * seen
    of_records = per_table @ counts
    posterior = quiet(
        bpm.LatentCounts(scale=tau),
        release,
        model=[("a",), ("b",)],
        rng=3,
        draws=1000,
        chains=2,
        progress_bar=False,
    )
    frame = posterior.interval(["a", "b"])
    np.testing.assert_allclose(frame["estimate"], wanted, atol=0.015)
    own = posterior.interval(["a", "b"], of="records")
    np.testing.assert_allclose(own["estimate"], of_records, atol=0.2)
    assert set(frame["status"]) <= {"model", "doubtful"}
    names = set(posterior.tree["posterior"].data_vars)
    assert {"marginal[a]", "marginal[b]", "counts[a]", "counts[b]"} <= names
    assert not any("a,b" in name for name in names)
    assert posterior.specification.cliques == (("a",), ("b",))
    solution = posterior.solution
    np.testing.assert_allclose(
        solution.marginal("a").values, posterior.marginal("a").values, atol=1e-6
    )


@pytest.mark.slow
def test_mode_and_posterior_agree_on_population_and_records():
    rng = np.random.default_rng(0)
    states = {"a": [0, 1], "b": ["x", "y", "z"], "c": [0, 1]}
    cliques = [("a", "b"), ("b", "c")]
    release, table = saturated(states, joint_of(states, cliques, rng), 2000, 3.0, rng)
    mode = quiet(bpm.NoiseAwareMAP(), release, model=cliques)
    posterior = quiet(
        bpm.LatentCounts(), release, model=cliques, rng=1, draws=250, tune=150, chains=2, **SHORT
    )
    for asked in ("a", ["a", "c"], ["a", "b", "c"]):
        for of in ("population", "records"):
            one = mode.interval(asked, of=of)
            other = posterior.interval(asked, of=of)
            width = (other["upper"] - other["lower"]).to_numpy()
            for column in ("estimate", "lower", "upper"):
                assert (np.abs(one[column] - other[column]) / width).max() < 0.2
    whole = mode.interval(["a", "b", "c"], of="records")
    held = (whole["lower"] <= table.ravel()) & (table.ravel() <= whole["upper"])
    assert held.sum() >= 8


def two_tables():
    states = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}
    network = bpm.declare(states, [("a", "b"), ("a", "c")])
    tables = {
        ("a", "b"): [[8003, 4001], [3998, 3996]],
        ("a", "c"): [[6602, 5397], [4099, 3904]],
    }
    return bpm.NoisyStatistics.from_tables(network, tables, noise=noise.DiscreteGaussian(3.0))


def test_rows_say_what_they_rest_on():
    release = two_tables()
    distant = quiet(bpm.NoiseAwareMAP(), release, model=[("a", "b"), ("b", "c")])
    assert distant.specification.cliques == (("a", "b"), ("b", "c"))
    frame = distant.interval(["a", "c"])
    assert set(frame["status"]) == {"model"}
    assert set(frame["note"]) == {"the model omits the interaction of a with c"}
    asked = distant.interval(q.table("a", "c"))
    assert set(asked["note"]) == {"the model omits the interaction of a with c"}
    assert set(distant.interval(["a", "b"])["status"]) == {"ok"}
    # the ends of the chain bear on its second step
    assert "prior" not in " ".join(distant.interval(["b", "c"])["note"])
    larger = quiet(bpm.NoiseAwareMAP(), release, model=[("a", "b", "c")])
    assert set(larger.interval(["a", "c"])["status"]) == {"ok"}
    notes = larger.interval(["b", "c"])["note"]
    assert all("nothing measured bears on it" in note for note in notes)
    assert all("nothing measured" in note for note in larger.interval(["a", "b", "c"])["note"])
    assert any("a ⟂ c | b" in one for one in distant.assumptions)


def test_a_larger_model_has_the_releases_margins():
    release = two_tables()
    solution = quiet(bpm.NoiseAwareMAP(), release, model=[("a", "b", "c")])
    own = quiet(bpm.NoiseAwareMAP(), release)
    for asked in (["a", "b"], ["a", "c"]):
        np.testing.assert_allclose(
            solution.marginal(asked).values, own.marginal(asked).values, atol=0.01
        )


BAD = {
    "unknown variable": ([("a", "x")], ModelError, "'x' is not declared"),
    "no cliques": ([], ArgumentError, "must have at least one clique"),
    "text": ("ab", ArgumentError, "must be cliques"),
    "a list of names": (["a", "b"], ArgumentError, "must be a list of variables"),
    "a number": (3, ArgumentError, "must be cliques"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_models_are_refused(case):
    given, kind, text = BAD[case]
    for estimator in (bpm.NoiseAwareMAP(), bpm.LatentCounts()):
        with pytest.raises(kind, match=text):
            estimator.fit(two_tables(), model=given)


def test_networks_of_other_states_are_refused():
    release = two_tables()
    others = {
        "other states": {"a": [0, 1], "b": [0, 2], "c": [0, 1]},
        "other order": {"a": [0, 1], "b": [1, 0], "c": [0, 1]},
        "more states": {"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]},
        "another type": {"a": [0, 1], "b": [False, True], "c": [0, 1]},
    }
    for states in others.values():
        network = bpm.declare(states, [("a", "b"), ("c",)])
        with pytest.raises(ModelError, match="states of 'b' that the release has"):
            bpm.NoiseAwareMAP().fit(release, model=network)
    domain = Domain.from_states({"a": [0, 1], "x": [0, 1]})
    with pytest.raises(ModelError, match="'x' is not declared"):
        bpm.NoiseAwareMAP().fit(
            release, model=ModelSpecification(domain=domain, cliques=(("a", "x"),))
        )
    with pytest.raises(ModelError, match="have cliques"):
        bpm.NoiseAwareMAP().fit(release, model=bpm.declare({"a": [0, 1], "b": [0, 1]}))


def test_scopes_too_large_to_join_are_refused():
    states = {f"v{k}": list(range(10)) for k in range(9)}
    network = bpm.declare(states, [(name,) for name in states])
    tables = {name: np.full(10, 50.0) for name in states}
    release = bpm.NoisyStatistics.from_tables(network, tables, noise=noise.DiscreteLaplace(2.0))
    with pytest.raises(BayesPrivMRFError, match="cells"):
        bpm.NoiseAwareMAP().fit(release, model=[tuple(states)])


def test_zeros_of_the_release_hold_under_a_given_model():
    states = {"sex": ["m", "f"], "pregnant": ["no", "yes"], "age": [0, 1]}
    network = bpm.declare(
        states, [("sex", "pregnant", "age")], impossible=[{"sex": "m", "pregnant": "yes"}]
    )
    table = np.array([[[300, 200], [0, 0]], [[250, 200], [30, 20]]], float)
    release = bpm.NoisyStatistics.from_tables(
        network, {("sex", "pregnant", "age"): table}, noise=noise.DiscreteGaussian(2.0)
    )
    solution = quiet(bpm.NoiseAwareMAP(), release, model=[("sex", "pregnant"), ("age",)])
    assert solution.probability({"sex": "m", "pregnant": "yes"}) == 0
    share = solution.marginal(["sex", "pregnant"]).values
    np.testing.assert_allclose(share, table.sum(axis=2) / table.sum(), atol=0.01)
    with pytest.raises(ModelError, match="cannot occur together"):
        bpm.NoiseAwareMAP().fit(release, model=[("sex", "age"), ("pregnant",)])


def test_ties_and_scores_of_a_given_model():
    rng = np.random.default_rng(9)
    states = {name: [0, 1, 2] for name in ("t1", "t2", "t3")}
    steps = [("t1", "t2"), ("t2", "t3")]
    release, _ = saturated(states, joint_of(states, steps, rng), 4000, 4.0, rng)
    tied = bpm.declare(states, steps, tied=[steps])
    solution = quiet(bpm.NoiseAwareMAP(), release, model=tied)
    assert solution.specification.ties
    assert solution.specification.cliques == tuple(steps)
    scored = bpm.declare(states, steps, ordinal=["t1", "t2", "t3"])
    few = quiet(bpm.NoiseAwareMAP(), release, model=scored)
    # 2 main effects of each variable, and one linear interaction of each step
    assert few.mode.coordinates.size == 6 + 2
    table = few.marginal(["t1", "t2"]).values
    cross = np.log(table[:-1, :-1] * table[1:, 1:] / (table[1:, :-1] * table[:-1, 1:]))
    np.testing.assert_allclose(cross, cross[0, 0], atol=1e-8)


def test_draws_of_a_smaller_model_are_distributions_of_it():
    rng = np.random.default_rng(2)
    states = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}
    release, _ = saturated(states, joint_of(states, [("a", "b"), ("c",)], rng), 400, 2.0, rng)
    posterior = quiet(
        bpm.LatentCounts(),
        release,
        model=[("a", "b"), ("c",)],
        rng=1,
        draws=60,
        chains=2,
        progress_bar=False,
    )
    draw = posterior.solution_at(0, 3)
    assert draw.specification.cliques == (("a", "b"), ("c",))
    joint = draw.marginal(["a", "b", "c"]).values
    product = draw.marginal(["a", "b"]).values[..., None] * draw.marginal("c").values
    np.testing.assert_allclose(joint, product, atol=1e-10)
    drawn = posterior.tree["posterior"]["marginal[a,b]"].values[0, 3]
    np.testing.assert_allclose(drawn, draw.marginal(["a", "b"]).values, atol=1e-8)


def fitted_proportionally(table, cliques, names):
    """Return the maximum likelihood table of some margins, by iterative proportional fitting."""
    fitted = np.full(table.shape, table.sum() / table.size)
    for _ in range(2000):
        for clique in cliques:
            axes = tuple(a for a, name in enumerate(names) if name not in clique)
            wanted = table.sum(axis=axes, keepdims=True)
            seen = fitted.sum(axis=axes, keepdims=True)
            fitted = fitted * np.divide(wanted, seen, out=np.zeros_like(seen), where=seen > 0)
    return fitted


@pytest.mark.parametrize("has_empty", [False, True])
@pytest.mark.parametrize("graph", [[("a", "b"), ("b", "c"), ("a", "c")], [("a", "b"), ("c",)]])
def test_naive_estimate_of_an_exact_table_is_maximum_likelihood(graph, has_empty):
    rng = np.random.default_rng(3)
    states = {"a": [0, 1], "b": ["x", "z", "y"], "c": [1, 0]}
    names = tuple(states)
    table = rng.multinomial(900, joint_of(states, graph, rng).ravel()).reshape(2, 3, 2)
    table = table.astype(float)
    if has_empty:
        table[1, 2] = 0
    network = bpm.declare(states, [names])
    release = bpm.NoisyStatistics.from_tables(network, {names: table}, noise=noise.NoNoise())
    solution = quiet(bpm.NaiveMLE(), release, model=graph)
    wanted = fitted_proportionally(table, graph, names) / table.sum()
    np.testing.assert_allclose(solution.marginal(names).values, wanted, atol=1e-6)
    mode = quiet(bpm.NoiseAwareMAP(scale=30.0), release, model=graph)
    if not has_empty:
        np.testing.assert_allclose(mode.marginal(names).values, wanted, atol=2e-4)
    with pytest.raises(ModelError, match="answers without noise exactly"):
        bpm.CGM().fit(release, model=graph)


@pytest.mark.parametrize("graph", GRAPHS)
def test_all_estimators_agree_under_little_noise(graph):
    rng = np.random.default_rng(11)
    cliques = GRAPHS[graph]
    release, _ = saturated(STATES, joint_of(STATES, cliques, rng), 200_000, 2.0, rng)
    mode = quiet(bpm.NoiseAwareMAP(), release, model=cliques)
    naive = quiet(bpm.NaiveMLE(), release, model=cliques)
    cgm = quiet(bpm.CGM(), release, model=cliques)
    for asked in ([3, "b"], [1, "d"], ["b", 1, "d"]):
        wanted = mode.marginal(asked).values
        np.testing.assert_allclose(naive.marginal(asked).values, wanted, atol=0.002)
        np.testing.assert_allclose(cgm.marginal(asked).values, wanted, atol=0.002)
    assert naive.specification == cgm.specification == mode.specification
    for solution in (naive, cgm):
        assert solution.status in ("converged", "stopped early")
        assert len(list(solution.network.get_factors())) == len(solution.specification.cliques)


def test_naive_and_cgm_of_distant_and_larger_models():
    release = two_tables()
    with pytest.raises(ModelError, match="undetermined; use CGM or NoiseAwareMAP"):
        bpm.NaiveMLE().fit(release, model=[("a", "b"), ("b", "c")])
    quiet(bpm.CGM(), release, model=[("a", "b"), ("b", "c")])
    for estimator in (bpm.NaiveMLE(), bpm.CGM()):
        solution = quiet(estimator, release, model=[("a", "b", "c")])
        table = solution.marginal(["a", "b"]).values
        np.testing.assert_allclose(table, np.array([[8, 4], [4, 4]]) / 20, atol=0.003)


def test_loopy_inference_of_a_smaller_model_is_refused():
    rng = np.random.default_rng(1)
    states = {"a": [0, 1], "b": [0, 1]}
    release, _ = saturated(states, joint_of(states, [("a",)], rng), 500, 2.0, rng)
    for estimator in (bpm.NoiseAwareMAP, bpm.NaiveMLE, bpm.CGM):
        with pytest.raises(ModelError, match="needs exact inference"):
            estimator(inference="loopy").fit(release, model=[("a",), ("b",)])


def test_files_store_the_model(tmp_path):
    rng = np.random.default_rng(4)
    states = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}
    given = bpm.declare(states, [("a", "b"), ("b", "c")], tied=[[("a", "b"), ("b", "c")]])
    release, _ = saturated(states, joint_of(states, [("a", "b")], rng), 300, 2.0, rng)
    how = {"rng": 1, "draws": 20, "tune": 20, "chains": 2, **SHORT}
    posterior = quiet(bpm.LatentCounts(), release, model=given, **how)
    posterior.save(tmp_path / "p.nc")
    again = bpm.load_posterior(tmp_path / "p.nc")
    assert again.specification == posterior.specification
    for asked, of in ((["a", "c"], "population"), (["a", "b"], "records")):
        own = posterior.interval(asked, of=of)
        assert own.equals(again.interval(asked, of=of))
    assert again.assumptions == posterior.assumptions


def left_out_release(law, scale):
    rng = np.random.default_rng(8)
    states = {"a": [0, 1], "b": ["x", "z", "y"], "c": [1, 0, 2]}
    names = tuple(states)
    joint = joint_of(states, [("a", "b"), ("b", "c")], rng)
    table = rng.multinomial(5000, joint.ravel()).reshape(joint.shape)
    noisy = table + (np.round(rng.normal(0, scale, joint.shape)) if scale else 0)
    network = bpm.declare(states, [names])
    return bpm.NoisyStatistics.from_tables(network, {names: noisy}, noise=law), noisy


@pytest.mark.parametrize("law", [noise.Gaussian(3.0), noise.DiscreteGaussian(3.0)])
def test_variables_that_the_model_leaves_out_are_summed(law):
    release, noisy = left_out_release(law, 3.0)
    network = bpm.declare({"a": [0, 1], "b": ["x", "z", "y"]}, [("a", "b")])
    summed = bpm.NoisyStatistics.from_tables(
        network, {("a", "b"): noisy.sum(axis=2)}, noise=law.summed(3)
    )
    evidence = gather(release, model=[("a", "b")])
    own = gather(summed)
    np.testing.assert_array_equal(evidence.noisy_counts, own.noisy_counts)
    assert evidence.noise == own.noise
    assert evidence.specification == own.specification
    for estimator in (bpm.NoiseAwareMAP(), bpm.NaiveMLE(), bpm.CGM()):
        one = quiet(estimator, release, model=[("b", "a")])
        other = quiet(estimator, summed)
        np.testing.assert_allclose(
            one.marginal(["a", "b"]).values, other.marginal(["a", "b"]).values, atol=1e-4
        )
        assert list(one.specification.domain.variables) == ["a", "b"]
    # the whole sample is one table of a single variable
    alone = quiet(bpm.NoiseAwareMAP(), release, model=[("c",)])
    np.testing.assert_allclose(
        alone.marginal("c").values, noisy.sum(axis=(0, 1)) / noisy.sum(), atol=0.002
    )


def test_exact_numbers_and_bounds_are_summed_over_what_is_left_out():
    release, noisy = left_out_release(noise.NoNoise(), 0)
    solution = quiet(bpm.NaiveMLE(), release, model=[("a", "b")])
    np.testing.assert_allclose(
        solution.marginal(["a", "b"]).values, noisy.sum(axis=2) / noisy.sum(), atol=1e-9
    )


def test_bounds_are_summed_over_what_is_left_out():
    states = {"a": [0, 1], "b": [0, 1, 2]}
    network = bpm.declare(states, [("a", "b")])
    law = noise.Within(4.5)
    tables = [("a", noise.NoNoise(), [30.0, 25.0]), (("a", "b"), law, np.full((2, 3), 4.5))]
    release = bpm.NoisyStatistics.from_tables(
        network,
        [(("a",), tables[0][2]), (("a", "b"), tables[1][2])],
        noise=[tables[0][1], law],
    )
    evidence = gather(release, takes_bounds=True, model=[("b",)])
    assert evidence.noise == (noise.Within(9.0),)
    np.testing.assert_array_equal(evidence.noisy_counts, [9.0, 9.0, 9.0])


def test_left_out_variables_without_a_sum_are_refused():
    # sixty midpoints of bounds on noisy counts, which estimate nothing
    many = {"a": [0, 1], "c": list(range(60))}
    law = noise.Within(4.5, noise.DiscreteLaplace(2.0))
    release = bpm.NoisyStatistics.from_measurements(
        bpm.declare(many, [("a", "c")]),
        [
            bpm.Measurement(q.table("a"), [30, 25], noise.NoNoise()),
            bpm.Measurement(q.table("a", "c"), np.full(120, 4.5), law),
        ],
    )
    with pytest.raises(ModelError, match="add 'c' to `model`"):
        gather(release, takes_bounds=True, model=[("a",)])
    states = {"a": [0, 1], "b": [0, 1, 2]}
    network = bpm.declare(states, [("a", "b")])
    measured = [
        bpm.Measurement(q.table("a", "b"), np.full(6, 50.0), noise.Gaussian(2.0)),
        bpm.Measurement(
            q.weighted("b", matrix=[[0, 1, 2]]), np.array([300.0]), noise.Gaussian(2.0)
        ),
    ]
    weighing = bpm.NoisyStatistics.from_measurements(network, measured)
    with pytest.raises(ModelError, match="whole tables, which are summed over it"):
        bpm.NoiseAwareMAP().fit(weighing, model=[("a",)])
    zeros = bpm.declare(states, [("a", "b")], impossible=[{"a": 0, "b": 2}])
    table = np.array([[100, 80, 0], [70, 60, 50]], float)
    impossible = bpm.NoisyStatistics.from_tables(
        zeros, {("a", "b"): table}, noise=noise.Gaussian(2.0)
    )
    with pytest.raises(ModelError, match="without structural zeros of it"):
        bpm.NoiseAwareMAP().fit(impossible, model=[("a",)])


@pytest.mark.parametrize("estimator", [bpm.CGM(), bpm.NaiveMLE(), bpm.NoiseAwareMAP()])
def test_structural_zeros_hold_under_a_smaller_model(estimator):
    states = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}
    network = bpm.declare(states, [("a", "b", "c")], impossible=[{"a": 0, "b": 1}])
    # c depends on b alone, so that the model is right but for the noise
    pairs = np.array([[900.0, 0.0], [300.0, 600.0]])
    table = pairs[:, :, np.newaxis] * np.array([[0.8, 0.2], [0.3, 0.7]])
    shift = np.random.default_rng(3).laplace(0, 2, table.shape) * (table > 0)
    release = bpm.NoisyStatistics.from_tables(
        network, {("a", "b", "c"): table + shift}, noise=noise.Laplace(2.0)
    )
    solution = quiet(estimator, release, model=[("a", "b"), ("b", "c")])
    found = solution.marginal(["a", "b", "c"]).values
    assert (found[0, 1] == 0).all()
    np.testing.assert_allclose(found, table / table.sum(), rtol=0, atol=0.01)
    if isinstance(estimator, bpm.NoiseAwareMAP):
        asked = solution.interval(["a", "b", "c"])["estimate"]
        np.testing.assert_allclose(asked, found.ravel(), rtol=0, atol=1e-7)


def noised(table, rng):
    """Return a table with normal noise, because exact tables that agree are refused as copies."""
    return table + rng.normal(0.0, 3.0, np.shape(table))


def test_several_releases_and_waves_under_a_given_model():
    rng = np.random.default_rng(12)
    states = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}
    cliques = [("a", "b"), ("b", "c")]
    joint = joint_of(states, cliques, rng)
    one, _ = saturated(states, joint, 20_000, 3.0, rng)
    other, _ = saturated(states, joint, 20_000, 3.0, rng)
    waves = quiet(bpm.NoiseAwareMAP(), [one, other], population="waves", model=cliques)
    np.testing.assert_allclose(waves.marginal(["a", "b", "c"]).values, joint, atol=0.015)
    assert waves.specification.cliques == (("wave", "a", "b"), ("wave", "b", "c"))
    assert set(waves.interval(["a", "c"])["status"]) == {"model"}
    # two releases of the same people, linked by the model alone
    first = bpm.NoisyStatistics.from_tables(
        bpm.declare({"a": [0, 1], "b": [0, 1]}, [("a", "b")]),
        {("a", "b"): noised(20_000 * joint.sum(axis=2), rng)},
        noise=noise.Gaussian(3.0),
    )
    second = bpm.NoisyStatistics.from_tables(
        bpm.declare({"b": [0, 1], "c": [0, 1]}, [("b", "c")]),
        {("b", "c"): noised(20_000 * joint.sum(axis=0), rng)},
        noise=noise.Gaussian(3.0),
    )
    chain = quiet(bpm.NoiseAwareMAP(), [first, second], model=cliques)
    np.testing.assert_allclose(chain.marginal(["a", "b", "c"]).values, joint, atol=0.01)
    apart = quiet(bpm.NoiseAwareMAP(), [first, second], model=[("a",), ("b", "c")])
    np.testing.assert_allclose(apart.marginal("a").values, joint.sum(axis=(1, 2)), atol=0.01)


def test_a_chain_of_shared_transitions_on_a_release():
    rng = np.random.default_rng(13)
    names = ["jan", "feb", "mar"]
    states = {name: ["in", "out"] for name in names}
    steps = [("jan", "feb"), ("feb", "mar")]
    chain = bpm.markov_chain(["in", "out"], 3, share="transitions", names=names)
    release, _ = saturated(states, joint_of(states, steps, rng), 4000, 3.0, rng)
    with pytest.raises(ModelError, match="share='potentials'"):
        bpm.NoiseAwareMAP().fit(release, model=chain)
    # tables of the steps alone can be fitted under one transition matrix
    joint = joint_of(states, steps, rng)
    network = bpm.declare(states, steps)
    tables = {
        steps[0]: noised(4000 * joint.sum(axis=2), rng),
        steps[1]: noised(4000 * joint.sum(axis=0), rng),
    }
    apart = bpm.NoisyStatistics.from_tables(network, tables, noise=noise.Gaussian(3.0))
    shared = quiet(bpm.NoiseAwareMAP(), apart, model=chain)
    assert shared.specification.shares_transitions
    free = bpm.markov_chain(["in", "out"], 3, names=names)
    # the ends of the chain, measured beside its steps
    distant = bpm.declare(states, [*steps, ("jan", "mar")])
    tables[("jan", "mar")] = noised(4000 * joint.sum(axis=1), rng)
    ends = bpm.NoisyStatistics.from_tables(distant, tables, noise=noise.Gaussian(3.0))
    for estimator in (bpm.NoiseAwareMAP(), bpm.CGM(), bpm.NaiveMLE()):
        solution = quiet(estimator, ends, model=free)
        assert solution.specification.cliques == tuple(steps)
        assert "misfit_tail" in solution.stats


def test_pymc_model_of_a_smaller_model_has_the_density_of_tables_and_effects():
    from scipy.special import gammaln

    size, scale, tau = 12, 1.5, 0.6
    states = {"a": ["u", "v"], "b": [1, 0]}
    noisy = np.array([[6.0, 2.0], [1.0, 4.0]])
    release = bpm.NoisyStatistics.from_tables(
        bpm.declare(states, [("a", "b")]),
        {("a", "b"): noisy},
        noise=noise.Gaussian(scale),
        total=size,
    )
    how = {"rng": 3, "draws": 20, "tune": 20, "chains": 2, **SHORT}
    posterior = quiet(bpm.LatentCounts(scale=tau), release, model=[("a",), ("b",)], **how)
    model = posterior.pymc_model
    density = model.compile_logp(jacobian=False, mode="FAST_COMPILE")
    outputs = [model["counts"], model["coordinates"], model["counts[a]"]]
    numbers = model.compile_fn(
        model.replace_rvs_by_values(outputs),
        inputs=model.value_vars,
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )
    rng = np.random.default_rng(1)
    start = model.initial_point()
    differences = []
    for _ in range(4):
        point = {name: value + rng.normal(0, 0.4, value.shape) for name, value in start.items()}
        counts, beta, of_a = numbers(point)
        x, y = beta / np.sqrt(2)
        logs = np.array([-x - y, -x + y, x - y, x + y])
        logs -= np.log(np.exp(logs).sum())
        np.testing.assert_allclose(counts.sum(), size)
        np.testing.assert_allclose(of_a, counts.reshape(2, 2).sum(axis=1))
        own = -0.5 * (beta**2).sum() / tau**2
        own += gammaln(size + 1) - gammaln(counts + 1).sum() + counts @ logs
        own += -0.5 * ((noisy.ravel() - counts) ** 2).sum() / scale**2
        differences.append(float(density(point)) - own)
    np.testing.assert_allclose(differences, differences[0], atol=1e-8)


def test_naive_estimate_takes_answers_that_determine_all_cells_of_a_larger_model():
    # parities are no tables, and leave no cell of the three pairs undetermined
    states = {"a": [0, 1], "b": ["x", "y", "z"], "c": [0, 1]}
    cliques = [("a", "b"), ("b", "c")]
    joint = joint_of(states, cliques, np.random.default_rng(8))
    network = bpm.declare(states, [*cliques, ("a", "c")])
    bound = q.parities(2).bind(network)
    tables = [joint.sum(axis=2), joint.sum(axis=0), joint.sum(axis=1)]
    answers = bound.answers(1e6 * np.concatenate([own.ravel() for own in tables]))
    measured = bpm.Measurement(bound.query, answers, noise.Gaussian(1.0))
    release = bpm.NoisyStatistics.from_measurements(network, [measured])
    solution = quiet(bpm.NaiveMLE(), release, model=cliques)
    for asked, own in zip(cliques, tables, strict=False):
        np.testing.assert_allclose(solution.marginal(asked).values, own, atol=1e-4)
