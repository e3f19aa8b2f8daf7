"""Scores of ordered states and levels of areas, against independent fits and sums over all joint states."""

import warnings
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from inference.parts import MeanCounts

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ConsistencyWarning, ModelError
from bayesprivmrf.inference import Status, gather
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.model import ModelSpecification, ties
from bayesprivmrf.privacy import Gaussian, Laplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics

AREAS = [f"{t}{b}" for t in "wvu" for b in range(3)]
STATES = ["low", "high", "higher"]
TRACTS = {"area": {"tract": {t: [f"{t}{b}" for b in range(3)] for t in "wvu"}}}


def pair(**kwargs):
    """Two ordered variables whose labels do not sort."""
    return bpm.declare({"b": ["low", "high", "higher"], 0: [3, 1, 2, 0]}, [("b", 0)], **kwargs)


def steps(**kwargs):
    names = [f"m{t}" for t in range(4)]
    return bpm.declare(
        dict.fromkeys(names, range(3)),
        [names[:1], *pairwise(names)],
        tied=[list(pairwise(names))],
        ordinal=names,
        **kwargs,
    )


NETWORKS = {
    "both": pair(ordinal=["b", 0]),
    "one": pair(ordinal={"b": [1, 2, 10]}),
    "triangle": bpm.declare(
        {"a": range(3), "b": range(3), "c": range(2), "one": [0]},
        [("a", "b"), ("b", "c"), ("a", "c"), ("one",)],
        ordinal=["a", "b", "one"],
    ),
    "three-way": bpm.declare(
        {"a": range(3), "b": range(3), "c": range(2)}, [("a", "b", "c")], ordinal=["a", "c"]
    ),
    "tied": steps(),
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


def law_of(cells, theta):
    weight = np.exp(cells @ theta - (cells @ theta).max())
    return weight / weight.sum()


def tables_of(network, counts, noise):
    model = ModelSpecification.from_pgmpy(network)
    return NoisyStatistics.from_tables(network, dict(model.tables(counts).items()), noise=noise)


def drawn(network, size, seed=0, scale=0.7):
    model = ModelSpecification.from_pgmpy(network)
    effects, cells = ties.coordinates_of(model), joint_cells(model)
    rng = np.random.default_rng(seed)
    law = law_of(cells, effects.potentials(scale * rng.normal(size=effects.size)))
    return model, effects, cells, law, rng.multinomial(size, law) @ cells


@pytest.mark.slow
@pytest.mark.parametrize(
    "ordinal", [["b", 0], {"b": [1, 2, 10]}, {0: (0, 0.1, 5, 6), "b": "linear"}]
)
def test_the_likelihood_is_that_of_a_poisson_regression_on_scores(ordinal):
    sm = pytest.importorskip("statsmodels.api")
    network = pair(ordinal=ordinal)
    counts = np.random.default_rng(1).poisson(40, size=12).astype(float)
    solution = bpm.NaiveMLE(ridge=0.0, tolerance=1e-10).fit(
        tables_of(network, counts, Gaussian(1e-6))
    )
    form = dict.fromkeys(ordinal, "linear") if isinstance(ordinal, list) else ordinal
    rows, columns = (m.ravel() for m in np.meshgrid(range(3), range(4), indexing="ij"))
    score = {"b": [0, 1, 2], 0: [0, 1, 2, 3]} | {
        v: s for v, s in form.items() if not isinstance(s, str)
    }
    design = [*(rows == i for i in range(3)), *(columns == j for j in range(1, 4))]
    left = [np.array(score["b"])[rows]] if "b" in form else [rows == i for i in (1, 2)]
    right = [np.array(score[0])[columns]] if 0 in form else [columns == j for j in (1, 2, 3)]
    design += [one * two for one in left for two in right]
    fit = sm.GLM(counts, np.column_stack(design).astype(float), family=sm.families.Poisson()).fit(
        tol=1e-12
    )
    assert np.allclose(solution.marginals.flat * counts.sum(), fit.fittedvalues, rtol=1e-5)


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_every_estimator_finds_the_truth_in_much_data_and_stays_in_the_model(network):
    model, effects, cells, law, _ = drawn(network, 1)
    counts = np.rint(1e6 * law @ cells)
    release = tables_of(network, counts, Laplace(1.0))
    for estimator in (bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP()):
        fit = estimator.fit(release)
        assert np.abs(fit.marginals.flat - law @ cells).max() < 2e-3, estimator.method
        assert effects.missed(np.asarray(fit.potentials.flat)) < 1e-5
        assert "scores of" in fit.stats["model"]
    assert model.is_restricted


def test_one_number_holds_all_odds_ratios_of_two_ordered_variables():
    network = pair(ordinal={"b": [1, 2, 10], 0: [0, 1, 2, 3]})
    counts = np.random.default_rng(2).poisson(60, size=12).astype(float)
    table = (
        bpm.NoiseAwareMAP().fit(tables_of(network, counts, Laplace(2.0))).marginal(["b", 0]).values
    )
    logs = np.log(table)
    ratios = (logs[1:, 1:] - logs[:-1, 1:] - logs[1:, :-1] + logs[:-1, :-1]) / np.array(
        [[1.0], [8.0]]
    )
    assert np.allclose(ratios, ratios[0, 0], atol=1e-6)


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_coordinates_are_as_many_as_the_model_has_and_orthonormal(network):
    model = ModelSpecification.from_pgmpy(network)
    effects, cells = ties.coordinates_of(model), joint_cells(model)
    columns = cells @ effects.potentials(np.eye(effects.size)).T
    assert (
        np.linalg.matrix_rank(np.column_stack([columns, np.ones(len(cells))])) == effects.size + 1
    )
    gamma = np.random.default_rng(3).normal(size=effects.size)
    assert np.allclose(effects.coordinates(effects.potentials(gamma)), gamma)
    if not model.ties:
        assert np.allclose((effects.matrix.T @ effects.matrix).toarray(), np.eye(effects.size))


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_what_scores_leave_open_matches_enumeration(network):
    _, effects, cells, _, counts = drawn(network, 300)
    means = MeanCounts(evidence=gather(tables_of(network, counts, Laplace(1.0))))
    gamma = 0.5 * np.random.default_rng(5).normal(size=effects.size)
    law = law_of(cells, effects.potentials(gamma))
    statistics = cells @ effects.potentials(np.eye(effects.size)).T
    centred, told = cells - law @ cells, statistics - law @ statistics
    own, cross = centred.T @ (law[:, None] * centred), centred.T @ (law[:, None] * told)
    expected = (
        own - cross @ np.linalg.pinv(told.T @ (law[:, None] * told), hermitian=True) @ cross.T
    )
    found = means.at(np.append(gamma, np.log(100.0))).unexplained
    assert np.allclose(found, 100 * expected, atol=1e-7)


def test_smooth_scores_are_the_free_model_with_a_scale_more():
    free, smooth = pair(), pair(ordinal={"b": "smooth", 0: "smooth"})
    counts = np.random.default_rng(6).poisson(30, size=12).astype(float)
    fits = [
        bpm.NaiveMLE().fit(tables_of(network, counts, Laplace(2.0))) for network in (free, smooth)
    ]
    assert np.allclose(fits[0].marginals.flat, fits[1].marginals.flat)
    scales = bpm.NoiseAwareMAP().fit(tables_of(smooth, counts, Laplace(2.0))).stats
    assert {
        "scale_of_order_2, linear",
        "scale_of_order_2, linear, rest",
        "scale_of_order_2, rest",
    } <= set(scales)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.ConsistencyWarning"
)  # one right model in a hundred
def test_intervals_of_scores_hold_the_truth():
    network = pair(ordinal=["b", 0])
    _, effects, cells, _, _ = drawn(network, 1)
    law = law_of(
        cells, effects.potentials(0.5 * np.random.default_rng(1).normal(size=effects.size))
    )
    rng, held = np.random.default_rng(2), []
    for _ in range(60):
        counts = rng.multinomial(3000, law) @ cells + np.rint(rng.laplace(scale=12, size=12))
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", ConsistencyWarning
            )  # a right model is accused once in a hundred fits
            bounds = (
                bpm.NoiseAwareMAP()
                .fit(tables_of(network, counts, Laplace(12.0)))
                .interval(["b", 0])
            )
        held.append(((bounds["lower"] <= law) & (law <= bounds["upper"])).mean())
    # .90 held with a standard error of at most .04 by releases: level 1e-3, two-sided
    assert 0.77 < np.mean(held) < 0.99


def areas(levels=TRACTS):
    return bpm.declare({"area": AREAS, "race": [2, 0, 1]}, [("area", "race")], levels=levels)


def test_parts_of_levels_are_differences_between_areas_and_within_them():
    model = ModelSpecification.from_pgmpy(areas())
    effects = ties.coordinates_of(model)
    assert dict(zip(*np.unique(effects.kinds, return_counts=True), strict=True)) == {
        "1": 2, "1, tract": 2, "1, area": 6, "2, tract": 4, "2, area": 12,
    }  # fmt: skip
    assert not model.is_restricted
    tables = effects.potentials(np.eye(effects.size)).reshape(effects.size, 3, 3, 3)
    between = np.array([kind.endswith("tract") for kind in effects.kinds])
    within = np.array([kind.endswith("area") for kind in effects.kinds])
    assert np.allclose(tables[between], tables[between][:, :, :1])
    assert np.allclose(tables[within].sum(axis=2), 0)


def test_levels_change_the_prior_alone():
    counts = np.random.default_rng(7).poisson(20, size=27).astype(float)
    fits = [
        bpm.NaiveMLE().fit(tables_of(network, counts, Laplace(3.0)))
        for network in (areas(), areas(levels=None))
    ]
    assert np.allclose(fits[0].marginals.flat, fits[1].marginals.flat)
    assert "level tract of area" in fits[0].stats["model"]


def test_levels_that_differ_more_get_wider_scales_and_smaller_errors():
    errors = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        logs = rng.normal(0, 0.9, (3, 1, 3)) + rng.normal(0, 0.1, (3, 3, 3))
        law = np.exp(logs).reshape(9, 3) / np.exp(logs).sum()
        noisy = rng.multinomial(2000, law.ravel()) + np.rint(rng.laplace(scale=10, size=27))
        row = []
        for network in (areas(), areas(levels=None)):
            fit = bpm.NoiseAwareMAP().fit(tables_of(network, noisy, Laplace(10.0)))
            row.append(np.sum(law * np.log(law / fit.marginal(["area", "race"]).values)))
            if network.graph.get("bayesprivmrf_levels"):
                assert fit.stats["scale_of_order_2, tract"] > fit.stats["scale_of_order_2, area"]
        errors.append(row)
    nested, flat = np.array(errors).T
    assert (nested < flat).sum() >= 7  # level 9/256 were they equally good
    assert nested.mean() < 0.9 * flat.mean()


def test_several_levels_nest():
    states = list(range(12))
    levels = {
        "x": {
            "county": {0: states[:4], 1: states[4:]},
            "tract": {t: states[4 * t : 4 * t + 4] for t in range(3)},
        }
    }
    model = ModelSpecification.from_pgmpy(bpm.declare({"x": states}, [("x",)], levels=levels))
    kinds = dict(zip(*np.unique(ties.coordinates_of(model).kinds, return_counts=True), strict=True))
    assert kinds == {"1, county": 1, "1, tract": 1, "1, x": 9}


@pytest.mark.parametrize("network", [*NETWORKS.values(), areas()], ids=[*NETWORKS, "levels"])
def test_scores_and_levels_travel_with_networks_files_and_solutions(network, tmp_path):
    model = ModelSpecification.from_pgmpy(network)
    law = Laplace(10.0)
    noise = law.draw(model.size, np.random.default_rng(1))
    release = tables_of(network, 20.0 + noise, law)
    release.save(tmp_path / "a.release")
    again = bpm.load_release(tmp_path / "a.release")
    assert again.specification == model
    assert (again.specification.ordinal, again.specification.levels) == (
        model.ordinal,
        model.levels,
    )
    assert ModelSpecification.from_pgmpy(bpm.NaiveMLE().fit(again).network) == model
    assert "ordinal" in repr(model) or "levels" in repr(model)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ordinal": ["nobody"]}, "nobody"),
        ({"ordinal": {"b": [1, 2]}}, "3 finite, ascending numbers"),
        ({"ordinal": {"b": [1, 2, 2]}}, "ascending"),
        ({"ordinal": {"b": [1, 2, float("nan")]}}, "finite"),
        ({"ordinal": {"b": "quadratic"}}, "'linear', 'smooth'"),
        ({"ordinal": ["b", "b"]}, "once"),
        ({"ordinal": 3}, "`ordinal`"),
        ({"levels": [1]}, "mapping"),
        ({"levels": {"b": {"l": {0: ["low"], 1: ["high"]}}}}, "got none for"),
        ({"levels": {"b": {"l": {0: ["low", "high"], 1: ["high", "higher"]}}}}, "exactly one area"),
        ({"levels": {"b": {"l": {0: ["low", "high", "higher"], 1: []}}}}, "empty"),
        ({"levels": {"b": {"l": {0: ["low", "big"], 1: ["high", "higher"]}}}}, "big"),
        ({"levels": {"b": {"f": {0: ["low"], 1: STATES[1:]}, "c": {0: STATES[:2], 1: ["higher"]}}}}, "coarsest"),
        ({"levels": {"b": {"b": {0: ["low"], 1: STATES[1:]}}}}, "whose texts differ"),
        ({"levels": {"b": {1: {0: STATES}, "1": {0: STATES}}}}, "whose texts differ"),
        ({"ordinal": {"b": [-1e308, 0, 1e308]}}, "finite"),
        ({"levels": {"b": ["l"]}}, "names of levels"),
        ({"levels": {"b": {"l": ["low"]}}}, "each larger area"),
        ({"levels": {"b": {"R1": ["low"], "R2": ["high", "higher"]}}}, "'region' is the level's name"),
        ({"levels": {"b": {"l": {"low": "R1", "high": "R1", "higher": "R2"}}}}, "not a state to its area"),
        ({"ordinal": ["b"], "levels": {"b": {"l": {0: ["low"], 1: ["high", "higher"]}}}}, "either scores or levels"),
    ],
)  # fmt: skip
def test_bad_scores_and_levels_are_refused(given, words):
    with pytest.raises(ModelError, match=words):
        pair(**given)


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_scores_are_the_same_in_any_unit(size):
    coordinates = [
        ties.coordinates_of(ModelSpecification.from_pgmpy(pair(ordinal={"b": values})))
        for values in ([0, 1, 3], [-4 * size, -2 * size, 2 * size])
    ]
    assert np.allclose(coordinates[0].matrix.toarray(), coordinates[1].matrix.toarray())


def test_what_cannot_be_combined_is_refused():
    with pytest.raises(ModelError, match="either ties or levels"):
        bpm.declare(
            {m: range(2) for m in "abc"},
            [("a", "b"), ("b", "c")],
            tied=[[("a", "b"), ("b", "c")]],
            levels={"a": {"l": {0: [0], 1: [1]}}},
        )
    with pytest.raises(ModelError, match="share an axis"):
        bpm.declare(
            {m: range(3) for m in "abc"},
            [("a",), ("a", "b"), ("b", "c")],
            tied=[[("a", "b"), ("b", "c")]],
            ordinal=["a"],
        )
    with pytest.raises(ModelError, match="got both orders in"):
        bpm.declare(
            {m: range(3) for m in "ab"},
            [("a", "b")],
            tied=[[("a", "b"), ("b", "a")]],
            ordinal=["a", "b"],
        )


def test_estimators_that_cannot_say_so_before_work():
    network, counts = pair(ordinal=["b", 0]), np.full(12, 9.0)
    with pytest.raises(ModelError, match="tied or scored"):
        bpm.CGM(e_step="nlbp").fit(tables_of(network, counts, Laplace(1.0)))
    with pytest.raises(ModelError, match="`ordinal`"):
        bpm.NaiveMLE().fit([
            tables_of(network, counts, Laplace(1.0)), tables_of(network, counts, NoNoise()),
        ])  # fmt: skip
    with pytest.raises(ModelError, match="levels"):
        bpm.LatentCounts(formulation="hyper-dirichlet").fit(
            tables_of(areas(), np.full(27, 9.0), Laplace(1.0))
        )


def test_data_travel_from_a_mechanism_to_an_interval():
    rng = np.random.default_rng(3)
    data = pd.DataFrame(
        {"b": rng.choice(["low", "high", "higher"], 400), 0: rng.integers(0, 4, 400)}
    )
    release = LaplaceStatistics(epsilon=1.0).release(pair(ordinal=["b", 0]), data, rng=1)
    solution = bpm.NoiseAwareMAP().fit(release)
    assert solution.interval(["b", 0])["lower"].notna().all()


def test_tables_that_contradict_scores_are_said_and_others_are_not():
    network = pair(ordinal=["b", 0])
    _, effects, _, _, _ = drawn(network, 1)
    rng, scores = np.random.default_rng(3), []
    for index in range(8):
        logs = effects.potentials(0.5 * rng.normal(size=effects.size))
        is_wrong = index % 2 == 1
        logs = logs + is_wrong * rng.normal(size=12)
        law = np.exp(logs) / np.exp(logs).sum()
        noisy = rng.multinomial(5000, law) + np.rint(rng.laplace(scale=2, size=12))
        release = tables_of(network, noisy, Laplace(2.0))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit = bpm.NoiseAwareMAP().fit(release)
        is_alarmed = any("contradicts the model" in str(one.message) for one in caught)
        assert is_alarmed == (fit.status is Status.NOT_TRUSTED) == (fit.stats["misfit_tail"] < 0.01)
        scores.append(fit.stats["misfit"])
    right, wrong = np.array(scores[::2]), np.array(scores[1::2])
    # of mean 0 and deviation 1 where the model holds: level 1e-3
    assert abs(right.mean()) < 3.3 / np.sqrt(4)
    assert right.max() < 5
    assert (wrong > 4).mean() >= 0.9


def test_intervals_without_draws_name_who_has_those_of_the_records():
    fit = bpm.NoiseAwareMAP().fit(tables_of(pair(ordinal=["b"]), np.full(12, 9.0), Laplace(1.0)))
    with pytest.raises(ModelError, match="LatentCounts"):
        fit.interval(["b"], of="records")
    assert fit.interval(["b"], of="population").equals(fit.interval(["b"]))


def test_results_name_the_scores_that_they_rest_on_and_rows_that_no_table_checks_do():
    def fitted(network, *queries):
        given = [
            Measurement(one, np.full(len(one.bind(network)), 9.0), Laplace(1.0)) for one in queries
        ]
        return bpm.NoiseAwareMAP().fit(NoisyStatistics.from_measurements(network, given))

    linear, smooth = pair(ordinal=["b"]), pair(ordinal={"b": "smooth"})
    whole, margins = fitted(linear, q.table("b", 0)), fitted(linear, q.table("b"), q.table(0))
    assert "Scores of b are linear." in whole.assumptions
    assert "Scores of b are smooth." in fitted(smooth, q.table("b", 0)).assumptions
    assert not whole.interval(["b", 0])["note"].str.contains("scores").any()
    assert margins.interval(["b", 0])["note"].str.contains("scores of b are linear").all()
    assert not margins.interval("b")["note"].str.contains("scores").any()
