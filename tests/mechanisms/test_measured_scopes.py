"""Queries whose scopes lie in no declared clique: their sensitivity, their release, and its fits."""

from __future__ import annotations

import itertools
import json
import pickle
import zipfile
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.inference import gather
from bayesprivmrf.mechanisms import GaussianStatistics, LaplaceStatistics
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.model.specification import over_scopes
from bayesprivmrf.privacy import Adjacency, Laplace
from bayesprivmrf.queries.query import measured_model
from bayesprivmrf.release import Measurement, NoisyStatistics

from .contract import Account, ReplayContract, Silent, cost, released

pytestmark = pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.BayesPrivMRFWarning")

# names are integers and text, labels are in no sorted order, and one variable has one state
STATES = {"jan": ["z", "y"], 6: [7, 5, 6], "dec": ["z", "y"], "one": ["only"]}
CLIQUES = [("jan", 6), (6, "dec"), ("one",)]
NETWORK = bpm.declare(STATES, CLIQUES)
ENDS = q.table("dec", "jan")
STACKS = {
    "ends": [ENDS],
    "ends beside steps": [q.table("jan", 6), q.table(6, "dec"), ENDS],
    "three together": [q.table("dec", 6, "jan"), q.table("jan", 6)],
    "parities of the cliques": [q.parities(2), ENDS],
    "merged": [q.coarsened(6, "dec", "jan", groups={6: {"odd": [5, 7], "even": [6]}}), q.table(6)],
    "weights": [q.weighted("jan", "dec", matrix=[[3, -1, 0, 2], [1, 0, 0, 0]]), q.table(6, "dec")],
    "pooled": [q.pooled([("jan", "dec"), ("dec", "jan")]), q.pooled([(6, "jan"), (6, "dec")])],
}
ADJACENCIES = list(Adjacency)
RECORDS = list(itertools.product(*STATES.values()))


def frame(records):
    columns = zip(*records, strict=True) if len(records) else [[] for _ in STATES]
    return pd.DataFrame(
        {v: pd.Series(list(c), dtype=object) for v, c in zip(STATES, columns, strict=True)}
    )


def sample(size, seed=0):
    """Records of a chain: `6` often follows `jan`, and `dec` often follows `6`."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, len(own), size) for own in STATES.values()], axis=1)
    codes[:, 1] = np.where(rng.random(size) < 0.6, codes[:, 0], codes[:, 1])
    codes[:, 2] = np.where(rng.random(size) < 0.6, codes[:, 1] % 2, codes[:, 2])
    return frame([tuple(s[c] for s, c in zip(STATES.values(), row, strict=True)) for row in codes])


def table_of(scope, record):
    """The table of a scope that one record adds, by the definition alone."""
    names = list(STATES)
    cells = itertools.product(*(STATES[v] for v in scope))
    own = tuple(record[names.index(v)] for v in scope)
    return np.array([int(cell == own) for cell in cells])


def answers_of(query, record):
    """What one record adds to the answers, by definition for all kinds but parities."""
    if hasattr(query, "order"):
        bound = query.bind(NETWORK)
        return bound.matrix @ np.concatenate([table_of(scope, record) for scope in bound.scopes])
    if hasattr(query, "scopes"):
        return sum(table_of(scope, record) for scope in query.scopes)
    table = table_of(query.scope, record)
    if hasattr(query, "weights"):
        return query.weights.toarray() @ table
    if query.groups:  # the first axis, merged to odd and even
        table = table.reshape(3, -1)
        return np.concatenate([table[0] + table[1], table[2]])
    return table


def differences(stack, adjacency):
    each = [[answers_of(query, record) for query in stack] for record in RECORDS]
    if adjacency is Adjacency.ADD_OR_REMOVE_ONE:
        return each
    return [[x - y for x, y in zip(*two, strict=True)] for two in itertools.combinations(each, 2)]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", STACKS)
def test_the_sensitivity_is_the_largest_move_over_all_neighbours(name, norm, adjacency):
    stack = STACKS[name]
    moved = [
        sum(int((np.abs(one) ** norm).sum()) for one in each)
        for each in differences(stack, adjacency)
    ]
    found = q.sensitivity(stack, NETWORK, norm=norm, adjacency=adjacency)
    assert found.is_exact
    assert found.power == max(moved)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("kind", [LaplaceStatistics, GaussianStatistics])
@pytest.mark.parametrize("name", STACKS)
def test_the_joint_loss_over_all_neighbours_attains_the_promise(name, kind, adjacency):
    stack = STACKS[name]
    budget = "epsilon" if kind is LaplaceStatistics else "rho"
    mechanism = kind(**{budget: 0.7}, queries=stack, adjacency=adjacency)
    release = mechanism.release(NETWORK, sample(60), rng=1)
    assert release.noise == mechanism.noise_laws(NETWORK)
    worst = max(
        sum(cost(law, one) for law, one in zip(release.noise, each, strict=True))
        for each in differences(stack, adjacency)
    )
    promised = getattr(mechanism.promise(NETWORK), budget)
    assert Fraction(0.7) * (1 - Fraction(1, 10**12)) <= worst <= Fraction(promised)
    # and the numbers without noise are these answers, added up
    records = RECORDS * 3
    exact = released(mechanism, NETWORK, frame(records), Silent()).flat
    wanted = [3 * sum(answers_of(query, one) for one in RECORDS) for query in stack]
    np.testing.assert_array_equal(exact, np.concatenate(wanted))


class TestReplayOfLaplaceNoise(ReplayContract):
    network = NETWORK

    def make(self, **settings):
        return LaplaceStatistics(epsilon=1.0, queries=STACKS["ends beside steps"], **settings)

    def data(self):
        return frame(RECORDS * 3)

    def others(self):
        return frame(RECORDS)


class TestReplayOfGaussianNoise(TestReplayOfLaplaceNoise):
    def make(self, **settings):
        return GaussianStatistics(rho=1.0, queries=STACKS["parities of the cliques"], **settings)


def ends_release(size=3000, stack="ends beside steps", network=NETWORK):
    mechanism = GaussianStatistics(rho=1.0, queries=STACKS[stack])
    return mechanism.release(network, sample(size), rng=3)


@pytest.mark.parametrize("name", STACKS)
def test_a_release_keeps_the_declared_model_beside_what_was_measured(name, tmp_path):
    mechanism = GaussianStatistics(rho=1.0, queries=STACKS[name])
    assert mechanism.preview(NETWORK, total=60)["numbers"].tolist() == [
        len(answers_of(query, RECORDS[0])) for query in STACKS[name]
    ]
    release = mechanism.release(NETWORK, sample(60), rng=3)
    model = release.specification
    assert model.believed == ModelSpecification.from_pgmpy(NETWORK)
    assert model.interactions == tuple(CLIQUES)
    path = tmp_path / "ends.release"
    release.save(path)
    again = bpm.load_release(path)
    assert again == release
    assert again.specification == model
    again.save(tmp_path / "again.release")
    assert path.read_bytes() == (tmp_path / "again.release").read_bytes()
    assert [one.labels for one in again.bound] == [one.labels for one in release.bound]
    assert pickle.loads(pickle.dumps(release)) == release
    assert written(path)["version"] == 9
    for network in (model, NETWORK):
        taken = NoisyStatistics.from_measurements(network, release.measurements)
        assert taken == release
        assert taken.guarantee == mechanism.promise(NETWORK)


def written(path):
    """The document of a release's file."""
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("release.json"))


def test_scopes_inside_the_cliques_leave_a_release_as_it_was(tmp_path):
    release = GaussianStatistics(rho=1.0, queries=[q.table(6, "jan")]).release(NETWORK, sample(60))
    assert release.specification == ModelSpecification.from_pgmpy(NETWORK)
    release.save(tmp_path / "inside.release")
    document = written(tmp_path / "inside.release")
    assert document["version"] == 4
    assert "interactions" not in document["content"]


@pytest.mark.parametrize("name", STACKS)
def test_measurements_of_others_may_read_scopes_that_no_clique_holds(name):
    release = ends_release(stack=name)
    same = [Measurement(one.query, one.values, one.noise) for one in release.measurements]
    labels = [one.labels for one in release.bound]
    labeled = [
        Measurement(one.query, dict(zip(rows, one.values.tolist(), strict=True)), one.noise)
        for one, rows in zip(same, labels, strict=True)
    ]
    for measured in (same, labeled):
        published = NoisyStatistics.from_measurements(NETWORK, measured)
        assert published.specification == release.specification
        assert [one.labels for one in published.bound] == labels
        np.testing.assert_array_equal(published.flat, release.flat)
        assert published.guarantee is None


def test_a_fit_to_measurements_of_others_is_that_to_the_release():
    release = ends_release(stack="merged")
    same = [Measurement(one.query, one.values, one.noise) for one in release.measurements]
    one = bpm.NoiseAwareMAP().fit(NoisyStatistics.from_measurements(NETWORK, same))
    two = bpm.NoiseAwareMAP().fit(release)
    np.testing.assert_array_equal(one.marginals.flat, two.marginals.flat)


def test_measurements_of_others_over_a_table_that_is_too_large_are_refused():
    wide = bpm.declare({v: list(range(200)) for v in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d")])
    measured = [Measurement(q.pooled([tuple("abcd")]), [1.0], Laplace(1.0))]
    with pytest.raises(ModelTooLargeError, match="at most 100,000,000"):
        NoisyStatistics.from_measurements(wide, measured)


def test_other_queries_add_no_rows_to_parities():
    release = ends_release(stack="parities of the cliques")
    alone = q.parities(2).bind(NETWORK)
    assert release.bound[0].labels == alone.labels
    assert not any("jan * dec" in label for label in alone.labels)
    assert len(release.measurements[0].values) == len(alone)
    rows = {label: float(x) for label, x in zip(alone.labels, release.flat, strict=False)}
    labeled = Measurement(q.parities(2), dict(reversed(rows.items())), release.noise[0])
    np.testing.assert_array_equal(
        labeled.aligned(release.specification).values, release.measurements[0].values
    )


# draws that are not extended until they are enough
SHORT = {"draws": 200, "tune": 150, "chains": 2, "time_limit": 1e-9, "progress_bar": False}
ESTIMATORS = {
    "NoiseAwareMAP": lambda *given, **more: bpm.NoiseAwareMAP().fit(*given, **more),
    "NaiveMLE": lambda *given, **more: bpm.NaiveMLE().fit(*given, **more),
    "CGM": lambda *given, **more: bpm.CGM().fit(*given, **more),
    "LatentCounts": lambda *given, **more: bpm.LatentCounts().fit(
        *given, rng=1, draws=20, tune=20, chains=2, progress_bar=False, **more
    ),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("stack", ["ends beside steps", "three together", "ends"])
def test_a_fit_is_that_of_the_declared_model_to_the_same_numbers(name, stack):
    if (name, stack) == ("NaiveMLE", "ends"):
        with pytest.raises(ModelError, match="leave 12 of their cells undetermined"):
            ESTIMATORS[name](ends_release(stack=stack))
        return
    release = ends_release(stack=stack)
    # a release that declares the measured scopes as cliques, of which the chain is then a smaller model
    declared = bpm.declare(STATES, release.specification.cliques)
    same = [Measurement(one.query, one.values, one.noise) for one in release.measurements]
    other = NoisyStatistics.from_measurements(declared, same)
    one = ESTIMATORS[name](release)
    two = ESTIMATORS[name](other, model=NETWORK)
    assert one.specification == two.specification == ModelSpecification.from_pgmpy(NETWORK)
    assert one.status == two.status
    asked = ["jan", "dec"]
    np.testing.assert_array_equal(one.marginal(asked).values, two.marginal(asked).values)
    np.testing.assert_array_equal(one.marginals.flat, two.marginals.flat)
    if name in ("NoiseAwareMAP", "LatentCounts"):
        for of in ("population", "records"):
            left, right = one.interval(asked, of=of), two.interval(asked, of=of)
            columns = ["estimate", "lower", "upper"]
            np.testing.assert_array_equal(left[columns], right[columns])
    if name == "LatentCounts":
        drawn = one.tree["posterior"].dataset
        assert {"marginal[jan,6]", "marginal[6,dec]"} <= set(drawn)
        assert drawn.equals(two.tree["posterior"].dataset)


def test_the_measurement_is_evidence_about_the_declared_model():
    # of a chain, the ends depend on each other through the middle alone, and so do they in the fit
    evidence = gather(ends_release())
    assert evidence.specification.interactions == tuple(CLIQUES)
    assert len(evidence.noisy_counts) == 16
    solution = bpm.NoiseAwareMAP().fit(ends_release())
    middle = solution.marginal([6]).values
    first = solution.marginal(["jan", 6]).values
    second = solution.marginal([6, "dec"]).values
    np.testing.assert_allclose(
        solution.marginal(["jan", "dec"]).values, (first / middle) @ second, atol=1e-9
    )
    assert set(solution.interval(["jan", "dec"])["note"]) == {
        "simulated; the model omits the interaction of jan with dec"
    }


def test_another_model_can_still_be_given():
    release = ends_release()
    larger = bpm.NoiseAwareMAP().fit(release, model=[*CLIQUES, ("jan", "dec")])
    assert larger.specification.interactions is None
    records = sample(3000)
    share = pd.crosstab(records["jan"], records["dec"]).loc[STATES["jan"], STATES["dec"]] / 3000
    np.testing.assert_allclose(larger.marginal(["jan", "dec"]).values, share, atol=0.01)
    # as does a release of the same people that declares a clique over the ends
    declared = bpm.declare(STATES, [*CLIQUES, ("jan", "dec")])
    more = GaussianStatistics(rho=1.0).release(declared, sample(3000), rng=4)
    both = bpm.NoiseAwareMAP().fit([release, more])
    assert both.specification == ModelSpecification.from_pgmpy(declared)


def test_structural_zeros_stay_those_of_the_declared_cliques():
    network = bpm.declare(STATES, CLIQUES, impossible=[{"jan": "z", 6: 7}])
    records = sample(2000)
    records = records[~((records["jan"] == "z") & (records[6] == 7))]
    release = GaussianStatistics(rho=1.0, queries=STACKS["three together"]).release(
        network, records, rng=1
    )
    table = release.measurements[0].values.reshape(2, 3, 2)
    assert not table[:, 0, 0].any()
    solution = bpm.NoiseAwareMAP().fit(release)
    assert solution.specification == ModelSpecification.from_pgmpy(network)
    assert solution.probability({"jan": "z", 6: 7}) == 0


def test_waves_share_the_declared_model():
    releases = [ends_release(), ends_release(size=2000)]
    solution = bpm.NoiseAwareMAP().fit(releases, population="waves")
    given = bpm.NoiseAwareMAP().fit(releases, population="waves", model=NETWORK)
    np.testing.assert_array_equal(solution.marginals.flat, given.marginals.flat)


def test_published_tables_may_lie_in_no_clique():
    release = ends_release()
    tables = {
        ("jan", 6): release.measurements[0].values.reshape(2, 3),
        (6, "dec"): release.measurements[1].values.reshape(3, 2),
        ("jan", "dec"): release.measurements[2].values.reshape(2, 2).T,
        "one": [3000.0],
    }
    published = NoisyStatistics.from_tables(NETWORK, tables, noise=Laplace(4.0))
    assert published.specification.believed == ModelSpecification.from_pgmpy(NETWORK)
    assert published.has_tables
    declared = bpm.declare(STATES, [*CLIQUES, ("jan", "dec")])
    other = NoisyStatistics.from_tables(declared, tables, noise=Laplace(4.0))
    one = bpm.NoiseAwareMAP().fit(published)
    two = bpm.NoiseAwareMAP().fit(other, model=NETWORK)
    np.testing.assert_array_equal(one.marginals.flat, two.marginals.flat)
    by_cell = {**tables, ("jan", "dec"): np.array([[1.0, 2.0], [3.0, 4.0]])}
    noise = {scope: Laplace(4.0) for scope in tables} | {("jan", "dec"): [[1.0, 2.0], [3.0, 4.0]]}
    assert not NoisyStatistics.from_tables(NETWORK, by_cell, noise=noise).has_tables


def test_a_posterior_with_such_a_release_is_read_again(tmp_path):
    posterior = ESTIMATORS["LatentCounts"](ends_release())
    posterior.save(tmp_path / "ends.nc")
    again = bpm.load_posterior(tmp_path / "ends.nc")
    asked = ["jan", "dec"]
    for of in ("population", "records"):
        one, two = posterior.interval(asked, of=of), again.interval(asked, of=of)
        np.testing.assert_array_equal(one["estimate"], two["estimate"])


STEPS = ["home", "work"]
MONTHS = ["jan", "apr", "jul", "dec"]
CHAIN_QUERIES = [
    q.table("jan"),
    q.pooled([("jan", "apr"), ("apr", "jul"), ("jul", "dec")]),
    q.table("jan", "dec"),
]


def chain_release(share):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, (2000, 4))
    for step in (1, 2, 3):
        stays = rng.random(2000) < 0.5
        codes[:, step] = np.where(stays, codes[:, step - 1], codes[:, step])
    records = pd.DataFrame(np.array(STEPS)[codes], columns=MONTHS)
    network = bpm.markov_chain(STEPS, 4, share=share, names=MONTHS)
    mechanism = GaussianStatistics(rho=1.0, queries=CHAIN_QUERIES)
    return mechanism.release(network, records, rng=1)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
def test_tied_steps_and_their_ends_agree_by_mode_and_posterior():
    """Draws that are not extended are enough: they miss limits by less than half of the fifth of a width allowed."""
    release = chain_release("potentials")
    mode = bpm.NoiseAwareMAP().fit(release)
    assert mode.status == "converged"
    posterior = bpm.LatentCounts().fit(release, rng=1, **SHORT)
    assert mode.specification == posterior.specification == release.specification.believed
    for asked in (["jan", "dec"], ["jan", "apr"], "jul"):
        one, other = mode.interval(asked), posterior.interval(asked)
        width = (other["upper"] - other["lower"]).to_numpy()
        for column in ("estimate", "lower", "upper"):
            assert (np.abs(one[column] - other[column]) / width).max() < 0.2
    # the measured ends tell more than the steps alone
    steps = NoisyStatistics.from_measurements(
        bpm.markov_chain(STEPS, 4, names=MONTHS), release.measurements[:2]
    )
    alone = bpm.NoiseAwareMAP().fit(steps).interval(["jan", "dec"])
    both = mode.interval(["jan", "dec"])
    narrower = (both["upper"] - both["lower"]) / (alone["upper"] - alone["lower"])
    assert narrower.mean() < 1


def test_one_transition_matrix_takes_such_a_release_and_every_fit_of_steps_does(tmp_path):
    release = chain_release("transitions")
    release.save(tmp_path / "chain.release")
    assert bpm.load_release(tmp_path / "chain.release") == release
    for estimator in (bpm.NaiveMLE(), bpm.NoiseAwareMAP()):
        fitted = estimator.fit(release)
        assert fitted.specification.shares_transitions
        assert 0.0 <= fitted.stats["order_tail"] <= 1.0
    with pytest.raises(ModelError, match="share='potentials'"):
        bpm.CGM().fit(release)
    network = bpm.markov_chain(STEPS, 4, share="transitions", names=MONTHS)
    without = NoisyStatistics.from_measurements(network, release.measurements[:2])
    assert bpm.NoiseAwareMAP().fit(without).specification.shares_transitions


def test_what_no_estimator_could_fit_is_refused_before_anything_is_spent():
    # each clique has two variables, and the queries pair all of them
    names = [f"v{k}" for k in range(30)]
    network = bpm.declare({v: [0, 1, 2] for v in names}, list(itertools.pairwise(names)))
    queries = [q.table(*pair) for pair in itertools.combinations(names, 2)]
    account = Account()
    mechanism = LaplaceStatistics(epsilon=1.0, queries=queries)
    with pytest.raises(ModelTooLargeError, match=r"in no declared clique.*smaller scopes"):
        mechanism.release(network, None, ledger=account)
    with pytest.raises(ModelTooLargeError, match="in no declared clique"):
        mechanism.promise(network)
    assert account.spent == []
    wide = bpm.declare({v: list(range(200)) for v in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d")])
    with pytest.raises(ModelTooLargeError, match="at most 100,000,000"):
        LaplaceStatistics(epsilon=1.0, queries=[q.table(*"abcd")]).promise(wide)


def test_what_was_not_declared_stays_refused():
    for scope, text in ((("jan", "nobody"), "nobody"), (("jan", "jan"), "once")):
        with pytest.raises((ModelError, ArgumentError), match=text):
            LaplaceStatistics(epsilon=1.0, queries=[q.table(*scope)]).promise(NETWORK)
    with pytest.raises(ModelError, match="together in no clique"):
        ENDS.bind(NETWORK)  # a query alone is bound to the declared tables
    tables = {("jan", "nobody"): np.ones((2, 2))}
    with pytest.raises(ModelError, match="or inside one, got"):
        NoisyStatistics.from_tables(NETWORK, tables, noise=Laplace(1.0))
    loopy = bpm.NoiseAwareMAP(inference="loopy")
    with pytest.raises(ModelError, match="needs exact inference"):
        loopy.fit(ends_release())


def test_measured_scopes_add_to_a_model_and_never_take_from_it():
    domain = Domain.from_states({v: [0, 1] for v in "abc"})
    model = ModelSpecification(domain=domain, cliques=(("a", "b"), ("b", "c")))
    assert over_scopes(model, [("b", "a"), ("c",)]) is model
    larger = over_scopes(model, [("c", "a")])
    assert larger.cliques == (("a", "b"), ("b", "c"), ("c", "a"))
    assert larger.believed == model
    assert over_scopes(larger, [("a", "b", "c")]).interactions == model.cliques
    assert measured_model(model, [q.table("a", "b"), q.parities(2)]) is model
    # no lead of rows, as where every cell is determined
    assert larger.on_interactions(np.zeros((0, larger.size))).shape == (0, model.size)
