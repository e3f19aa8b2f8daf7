"""One question has one answer: `interval`, `marginal`, queries, the tree of a posterior, and files."""

from functools import cache, partial
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from inference.posterior.drawn import drawn_posterior

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf import sequences
from bayesprivmrf.errors import ArgumentError, ModelError, NoIntervalError
from bayesprivmrf.inference import Solution, Status
from bayesprivmrf.mechanisms import LaplaceStatistics, SelectMeasure, reference
from bayesprivmrf.model import ModelSpecification

# random records contradict ties, scores and shared transitions, which changes the status and no estimate
pytestmark = [
    pytest.mark.filterwarnings(f"ignore::bayesprivmrf.errors.{name}")
    for name in ("ConsistencyWarning", "SamplingWarning", "NoiseWarning")
]

TWO, THREE = ["no", "yes"], ["low", "middle", "high"]
CHAIN = [("a", "b"), ("b", "c")]
RING = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
NETWORKS = {
    "tree": lambda: bpm.declare({"a": TWO, "b": THREE, "c": TWO}, CHAIN),
    "one table": lambda: bpm.declare({"a": TWO, "b": THREE}, [("a", "b")]),
    "cycle": lambda: bpm.declare({"a": TWO, "b": THREE, "c": TWO, "d": TWO}, RING),
    "disconnected": lambda: bpm.declare(
        {"a": TWO, "b": THREE, "c": TWO, "d": TWO}, [("a", "b"), ("d", "c")]
    ),
    "isolated": lambda: bpm.declare({"a": TWO, "b": THREE, "c": TWO}, [("a", "b"), ("c",)]),
    "one state": lambda: bpm.declare({"a": ["only"], "b": THREE, "c": TWO}, CHAIN),
    "three-way": lambda: bpm.declare(
        {"a": TWO, "b": THREE, "c": TWO, "d": TWO}, [("a", "b", "c"), ("c", "b", "d")]
    ),
    "ties": lambda: bpm.declare({"a": TWO, "b": TWO, "c": TWO}, CHAIN, tied=[CHAIN]),
    "scores": lambda: bpm.declare({"a": THREE, "b": THREE, "c": TWO}, CHAIN, ordinal=["a", "b"]),
    "smooth scores": lambda: bpm.declare(
        {"a": THREE, "b": THREE}, [("a", "b")], ordinal={"a": "smooth"}
    ),
    "levels": lambda: bpm.declare(
        {"a": THREE, "b": TWO},
        [("a", "b")],
        levels={"a": {"part": {"ends": ["low", "high"], "rest": ["middle"]}}},
    ),
    "zeros": lambda: bpm.declare(
        {"a": TWO, "b": THREE, "c": TWO}, CHAIN, impossible=[{"a": "yes", "b": "low"}]
    ),
    "shared potentials": lambda: bpm.markov_chain(TWO, 4),
    "shared transitions": lambda: bpm.markov_chain(TWO, 4, share="transitions"),
}


@cache
def release_of(kind):
    """A release of 300 records in which the variables of each clique depend strongly; N is private."""
    network = NETWORKS[kind]()
    model = ModelSpecification.from_pgmpy(network)
    tables = []
    for shape in model.shapes:
        scores = np.indices(shape) - (np.array(shape).reshape(-1, *[1] * len(shape)) - 1) / 2
        tables.append(1.5 * np.prod(scores, axis=0) + 0.2 * scores.sum(axis=0))
    flat = np.concatenate([table.ravel() for table in tables])
    if model.possible is not None:
        flat[~model.possible] = -np.inf
    truth = Solution(
        specification=model,
        potentials=model.tables(flat),
        method="made up",
        status=Status.CONVERGED,
    )
    return LaplaceStatistics(epsilon=2.0).release(network, truth.sample(300, rng=5), rng=6)


def scopes_of(model):
    """Cliques in both orders, single variables, a pair of no clique, and all; with states or sets given."""
    names = model.domain.variables
    apart = [
        pair
        for pair in permutations(names, 2)
        if not any({*pair} <= {*clique} for clique in model.cliques)
    ]
    asked = [
        *model.cliques,
        model.cliques[0][::-1],
        *((v,) for v in names),
        *apart[-1:],
        names[::-1],
    ]
    for scope in dict.fromkeys(asked):
        yield list(scope), None
        others = [v for v in names if v not in scope]
        for v in others[:1]:
            states = model.domain.states_of(v)
            yield list(scope), {v: states[-1] if len(scope) == 1 else set(states[-2:])}


def estimates(ask, *arguments, **settings):
    return ask(*arguments, **settings)["estimate"].to_numpy()


def answered(ask):
    """The answer, or the type of the error."""
    try:
        return ask()
    except (ArgumentError, ModelError) as error:
        return type(error)


def require_one_answer(fit, *, takes_queries=True, takes_given=True, rtol=1e-6):
    """Compare `interval` with `marginal` for every scope, and with the query of each table; return how many."""
    model, compared = fit.specification, 0
    for scope, given in scopes_of(model):
        if given and not takes_given:
            continue
        table = answered(partial(fit.marginal, scope, given=given))
        found = answered(partial(estimates, fit.interval, scope, given=given))
        if isinstance(table, type):
            assert found is table, (scope, given)
            continue
        table = table.to_numpy().ravel()
        np.testing.assert_allclose(
            found, table, rtol=rtol, atol=1e-6, err_msg=f"{scope} given {given}"
        )
        compared += 1
        in_clique = any(set(scope) <= set(clique) for clique in model.cliques)
        if takes_queries and in_clique and not given:
            asked = estimates(fit.interval, q.table(*scope))
            np.testing.assert_allclose(
                asked, table, rtol=rtol, atol=1e-6, err_msg=f"query of {scope}"
            )
    assert compared >= len(model.cliques)


# the other kinds hold a chain, a table and a variable apart as well
OF_THE_MODE = [kind for kind in NETWORKS if kind not in ("one table", "disconnected", "tree")]
# of loopy inference a kind of each: a cycle, larger cliques, zeros, and what is refused
LOOPY = ["cycle", "three-way", "zeros", "shared transitions"]


@pytest.mark.parametrize(
    ("kind", "inference"),
    [*((kind, "exact") for kind in OF_THE_MODE), *((kind, "loopy") for kind in LOOPY)],
)
def test_interval_and_marginal_of_the_noise_aware_mode_have_one_estimate(kind, inference):
    estimator = bpm.NoiseAwareMAP(inference=inference)
    if kind == "shared transitions" and inference == "loopy":
        with pytest.raises(ModelError):
            estimator.fit(release_of(kind))
        return
    fit = estimator.fit(release_of(kind))
    require_one_answer(fit)
    if fit.specification.is_restricted or fit.specification.shares_transitions:
        return
    # the records' own numbers are N times the probabilities
    for clique in fit.specification.cliques:
        expected = fit.stats["total"] * fit.marginal(clique).to_numpy().ravel()
        for asked in (list(clique), q.table(*clique)):
            np.testing.assert_allclose(
                estimates(fit.interval, asked, of="records"), expected, rtol=1e-6, atol=1e-6
            )


def test_loopy_intervals_hold_the_limits_of_exact_ones_on_a_tree_and_say_where_their_error_is_not_known():
    numbers = ["estimate", "lower", "upper"]
    for kind in ("tree", "isolated", "zeros"):
        exact, loopy = (
            bpm.NoiseAwareMAP(inference=name).fit(release_of(kind)) for name in ("exact", "loopy")
        )
        for scope, given in ((["a", "b"], None), (["b"], None), (["a"], {"b": {"middle", "high"}})):
            frames = [fit.interval(scope, given=given) for fit in (exact, loopy)]
            np.testing.assert_allclose(frames[1][numbers], frames[0][numbers], atol=3e-3)
            assert not frames[1]["note"].str.contains("loopy").any()
    frame = bpm.NoiseAwareMAP(inference="loopy").fit(release_of("cycle")).interval(["a", "b"])
    assert frame["note"].str.contains("loopy inference, whose error here is not known").all()
    assert (frame["status"] != "ok").all()
    assert frame["note"].str.split().str.len().max() <= 20


@pytest.mark.parametrize("estimator", [bpm.NaiveMLE(), bpm.CGM()])
def test_point_estimates_have_no_interval_to_disagree_with(estimator):
    fit = estimator.fit(release_of("tree"))
    with pytest.raises(NoIntervalError):
        fit.interval(["a"])
    table = fit.marginal(["a", "b"])
    np.testing.assert_allclose(fit.marginals["a", "b"], table, atol=1e-9)
    assert fit.probability({"a": "yes"}, given={"b": "low"}) == pytest.approx(
        float(fit.marginal("a", given={"b": "low"}).sel(a="yes")), abs=1e-9
    )


# the answers of all engines are read from draws by the same code, and those of the mode are asked of every model
RELAXED = {
    "hyper-dirichlet": ["zeros"],
    "log-linear": ["cycle"],
}
DRAWN = [
    "tree",
    "isolated",
    "one state",
    "three-way",
    "ties",
    "scores",
    "levels",
    "shared transitions",
]


@pytest.mark.parametrize(
    ("kind", "formulation"),
    [
        *((kind, "exact") for kind in DRAWN),
        *((kind, name) for name, kinds in RELAXED.items() for kind in kinds),
    ],
)
def test_interval_marginal_and_tree_of_a_posterior_have_one_estimate(kind, formulation):
    posterior = drawn_posterior(release_of(kind), 20, formulation=formulation)
    model, tree = posterior.specification, posterior.tree["posterior"]
    require_one_answer(posterior)
    for clique in model.cliques:
        name = ",".join(clique)
        mean = tree[f"marginal[{name}]"].mean(("chain", "draw")).to_numpy()
        np.testing.assert_allclose(posterior.marginal(clique), mean, atol=1e-6)
        np.testing.assert_allclose(posterior.marginals[clique], mean, atol=1e-6)
        np.testing.assert_allclose(posterior.solution.marginal(clique), mean, atol=1e-5)
        event = {v: model.domain.states_of(v)[-1] for v in clique}
        assert float(posterior.probability(event).estimate) == pytest.approx(
            mean.flat[-1], abs=1e-6
        )
        asked = posterior.quantity(lambda draw, clique=clique: draw.marginal(clique))
        np.testing.assert_allclose(asked.estimate, mean, atol=1e-6)
    require_counts_of_the_tree(posterior)


@pytest.mark.parametrize(
    ("kind", "formulation"),
    [
        ("shared transitions", "exact"),
        pytest.param("cycle", "log-linear", marks=pytest.mark.slow),
        pytest.param("zeros", "hyper-dirichlet", marks=pytest.mark.slow),
    ],
)
def test_a_loaded_posterior_has_the_same_answers(kind, formulation, tmp_path):
    posterior = drawn_posterior(release_of(kind), 20, formulation=formulation)
    posterior.save(tmp_path / "it.nc")
    loaded = bpm.load_posterior(tmp_path / "it.nc")
    require_one_answer(loaded)
    for scope, given in scopes_of(loaded.specification):
        frames = [
            answered(partial(fit.interval, scope, given=given)) for fit in (posterior, loaded)
        ]
        assert (
            frames[0] is frames[1] if isinstance(frames[0], type) else frames[0].equals(frames[1])
        )
    for clique, frame in require_counts_of_the_tree(posterior).items():
        pd.testing.assert_frame_equal(loaded.interval(clique, of="records"), frame)


def require_counts_of_the_tree(posterior):
    """Compare intervals of the records' counts with the tree, whose relaxed counts are rounded to whole records."""
    found = {}
    for clique in posterior.specification.cliques:
        counts = posterior.tree["posterior"][f"counts[{','.join(clique)}]"].transpose(
            "chain", "draw", ...
        )
        whole = np.maximum(np.rint(counts.to_numpy()), 0.0)
        frame = found[clique] = posterior.interval(clique, of="records")
        np.testing.assert_allclose(frame["estimate"], whole.mean(axis=(0, 1)).ravel(), atol=1e-6)
        asked = posterior.interval(q.table(*clique), of="records")
        np.testing.assert_allclose(asked["estimate"], frame["estimate"], atol=1e-6)
        assert (frame["lower"] <= frame["estimate"] + 1).all()
        if len(clique) < 2:
            continue
        one = clique[-1]
        sums = counts.to_numpy().sum(axis=tuple(range(2, counts.ndim - 1)))
        expected = np.maximum(np.rint(sums), 0.0).mean(axis=(0, 1))
        np.testing.assert_allclose(
            estimates(posterior.interval, [one], of="records"), expected, atol=1e-6
        )
        np.testing.assert_allclose(
            estimates(posterior.interval, q.table(one), of="records"), expected, atol=1e-6
        )
        # given a state, the share of each draw's records that have it
        given = {one: posterior.specification.domain.states_of(one)[-1]}
        part = whole[..., -1]
        mass = part.sum(axis=tuple(range(2, part.ndim)), keepdims=True)
        if (mass > 0).all():
            shares = estimates(posterior.interval, list(clique[:-1]), of="records", given=given)
            np.testing.assert_allclose(shares, (part / mass).mean(axis=(0, 1)).ravel(), atol=1e-6)
    return found


@pytest.mark.slow  # compiles the samplers; the draws of the prior above have the same questions
@pytest.mark.parametrize("formulation", ["exact", "hyper-dirichlet", "log-linear"])
def test_sampled_posteriors_have_one_estimate(formulation):
    posterior = bpm.LatentCounts(formulation=formulation).fit(
        release_of("tree"), rng=1, draws=30, tune=30, chains=2, progress_bar=False
    )
    require_one_answer(posterior)
    require_counts_of_the_tree(posterior)


@pytest.mark.parametrize("fit", ["exact", "mode"])
def test_a_step_of_a_chain_is_the_conditional_distribution_of_its_next_state(fit):
    for kind in ("shared potentials", "shared transitions"):
        release = release_of(kind)
        found = (
            bpm.NoiseAwareMAP().fit(release)
            if fit == "mode"
            else drawn_posterior(release, 60, formulation=fit)
        )
        step = None if kind == "shared transitions" else 2
        matrix = sequences.transition_matrix(found, step=step)["estimate"]
        for state in TWO:
            given = {"x2": state}
            np.testing.assert_allclose(
                matrix.loc[state], found.marginal("x3", given=given), atol=1e-6
            )
            np.testing.assert_allclose(
                matrix.loc[state], estimates(found.interval, "x3", given=given), atol=1e-6
            )


def records(seed, size=300):
    """Records of the tree."""
    rng = np.random.default_rng(seed)
    a = rng.integers(2, size=size)
    b = np.where(rng.random(size) < 0.7, 2 * a, 1)
    c = np.where(rng.random(size) < 0.8, a, 1 - a)
    return pd.DataFrame({"a": np.array(TWO)[a], "b": np.array(THREE)[b], "c": np.array(TWO)[c]})


def test_waves_have_one_estimate():
    network = NETWORKS["tree"]()
    waves = [
        LaplaceStatistics(epsilon=2.0).release(network, records(seed), rng=seed) for seed in (1, 2)
    ]
    require_one_answer(bpm.NoiseAwareMAP().fit(waves, population="waves"), takes_queries=False)


def test_learned_networks_have_one_estimate(tmp_path):
    network, data = bpm.declare({"a": TWO, "b": THREE, "c": TWO}), records(3, 2000)
    rounds = SelectMeasure(rho=0.5).release(network, data, rng=1)
    rounds.save(tmp_path / "rounds.release")
    for learned in (rounds, bpm.load_release(tmp_path / "rounds.release")):
        require_one_answer(learned.solution, takes_queries=False, takes_given=False)
        for scope in (["a", "b"], ["c", "a"], ["b"]):
            table = learned.solution.marginal(scope).to_numpy().ravel()
            np.testing.assert_allclose(estimates(learned.interval, scope), table, atol=1e-9)
            np.testing.assert_allclose(
                estimates(learned.interval, scope, of="records"),
                learned.solution.total * table,
                rtol=1e-9,
            )
    # one choice: the intervals are those of the noise-aware mode of the measured tables
    pairs = SelectMeasure(rho=0.5, degree=1).release(network, data, rng=1)
    fitted = bpm.NoiseAwareMAP().fit(pairs.statistics)
    for clique in pairs.statistics.specification.cliques:
        table = fitted.marginal(clique).to_numpy().ravel()
        np.testing.assert_allclose(estimates(pairs.interval, list(clique)), table, atol=1e-6)


def test_a_reference_has_the_tables_of_the_data_and_no_interval():
    data = records(4)
    fit = reference(NETWORKS["tree"](), data)
    table = pd.crosstab(data["a"], data["b"], normalize=True).reindex(
        index=TWO, columns=THREE, fill_value=0.0
    )
    np.testing.assert_allclose(fit.marginal(["a", "b"]), table, atol=1e-9)
    with pytest.raises(NoIntervalError):
        fit.interval(["a"])
