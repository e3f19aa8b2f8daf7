"""The pictures of learned models show what these hold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.learning import LearnedIsing, LearnedPairwise, simulated_survey
from bayesprivmrf.mechanisms import SelectMeasure, StableStructure
from bayesprivmrf.model import Domain
from bayesprivmrf.plots import couplings, learned_graph, marginal_forest
from bayesprivmrf.privacy import PrivacyGuarantee
from bayesprivmrf.release import Provenance

STAMP = {
    "guarantee": PrivacyGuarantee(rho=1.0, adjacency="replace-one"),
    "provenance": Provenance(mechanism="made up"),
}
FEW = ["age", "sex", "household", "tenure", "language"]


def ising(size: int = 4) -> LearnedIsing:
    A = np.zeros((size, size))
    A[0, 1] = A[1, 0] = 2.0
    A[0, 2] = A[2, 0] = -1.0
    A[1, 2] = A[2, 1] = 0.5
    domain = Domain.from_states(
        {v: [0, 1] for v in (0, ("t", 1), "c", *(f"v{i}" for i in range(3, size)))}
    )
    return LearnedIsing(domain=domain, coupling_matrix=A, field_vector=np.zeros(size), **STAMP)


@pytest.fixture(scope="module")
def survey():
    return simulated_survey(20_000, rng=1)


@pytest.fixture(scope="module")
def learned(survey):
    """Learned in rounds, from mixed alphabets; two pairs are all that may be measured."""
    variables = bpm.declare(states={v: survey.states[v] for v in FEW})
    workload = [("age", "household"), ("age", "tenure"), ("tenure", "language")]
    return SelectMeasure(rho=0.1, workload=workload).release(
        variables, survey.simulated[FEW], rng=1
    )


def test_a_learned_graph_has_edges_as_wide_as_their_couplings_are_strong():
    figure = learned_graph(ising())
    (panel,) = figure.axes
    positive, negative, nodes = panel.collections
    assert len(nodes.get_offsets()) == 4
    widths = positive.get_linewidths()
    assert widths[-1] == max(widths)  # the strongest are drawn last
    assert len(widths) == 2
    assert widths[0] < negative.get_linewidths()[0] < widths[1]
    texts = [text.get_text() for text in panel.texts]
    assert {"0", "('t', 1)", "c", "v3", "2.00", "-1.00", "0.50"} == set(texts)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "positive, up to 2.00 nats",
        "negative, up to 1.00 nats",
    ]
    (few,) = learned_graph(ising(), threshold=1.5).axes
    assert len(few.collections[0].get_linewidths()) == 1
    (none,) = learned_graph(ising(), threshold=9.0).axes
    assert len(none.texts) == 4


def test_a_graph_of_tables_has_dependences_and_no_signs(learned):
    expected = learned.graph(weight="dependence")
    figure = learned_graph(learned)
    (panel,) = figure.axes
    (edges, _) = panel.collections
    assert len(edges.get_linewidths()) == expected.number_of_edges() == 3
    largest = max(weight for *_, weight in expected.edges(data="weight"))
    label, *stars = (text.get_text() for text in figure.legends[0].get_texts())
    assert label == f"dependence given all others, up to {largest:.2f}"
    merged = {f"{variable}*" for variable in learned.merged_states}
    assert merged == {text.get_text() for text in panel.texts if text.get_text().endswith("*")}
    assert stars == ["rare states merged in the fit"] * bool(merged)
    other = learned_graph(learned, weight="largest").legends[0].get_texts()[0].get_text()
    assert other.startswith("largest entry of a coupling, up to")
    assert other.endswith("nats")


def test_a_graph_keeps_the_pairs_whose_interval_excludes_zero(survey, learned):
    few = ["sex", "smokes", "language"]
    variables = bpm.declare(states={v: list(survey.states[v])[:2] for v in few[:2]})
    data = survey.simulated[few[:2]]
    data = data[data.isin({v: list(survey.states[v])[:2] for v in few[:2]}).all(axis=1)]
    model = SelectMeasure(rho=1.0, degree=1).release(variables, data, rng=1)
    for prob in (0.5, 0.999):
        limits = model.couplings_interval(prob, 1)
        expected = int(((limits["lower"] > 0) | (limits["upper"] < 0)).sum())
        (panel,) = learned_graph(model, threshold=0.0, excludes_zero=prob, rng=1).axes
        weights = [text for text in panel.texts if text.get_text() not in few]
        assert len(weights) == expected
    with pytest.raises(ModelError, match="degree"):
        learned_graph(learned, excludes_zero=0.9)
    with pytest.raises(ArgumentError, match="`excludes_zero`"):
        learned_graph(model, excludes_zero=90)


def test_communities_stand_side_by_side_in_one_color():
    size = 8
    A = np.zeros((size, size))
    for group in ([0, 2, 4], [1, 3, 5, 6]):
        for i, j in itertools.combinations(group, 2):
            A[i, j] = A[j, i] = 1.0
    A[0, 1] = A[1, 0] = -0.1
    domain = Domain.from_states({f"v{i}": [0, 1] for i in range(size)})
    model = LearnedIsing(domain=domain, coupling_matrix=A, field_vector=np.zeros(size), **STAMP)
    (panel,) = learned_graph(model).axes
    nodes = panel.collections[-1]
    names = [text.get_text() for text in panel.texts if text.get_text().startswith("v")]
    assert names == ["v0", "v2", "v4", "v1", "v3", "v5", "v6", "v7"]
    colors = [tuple(color) for color in nodes.get_facecolors()]
    assert len(set(colors[:3])) == len(set(colors[3:7])) == 1
    assert len({colors[0], colors[3], colors[7]}) == 3
    (declared,) = learned_graph(model, order="declared").axes
    assert [t.get_text() for t in declared.texts if t.get_text().startswith("v")] == [
        f"v{i}" for i in range(size)
    ]
    with pytest.raises(ArgumentError, match="`order`"):
        learned_graph(model, order="size")


@pytest.mark.parametrize("states", [["a", "b"], ["strongly disagree", "neither", "strongly agree"]])
def test_columns_of_a_table_are_named_upright_only_where_they_do_not_fit(states):
    domain = Domain.from_states({"first": states, "second": states})
    size = 2 * len(states)
    model = LearnedPairwise(
        domain=domain, coupling_matrix=np.zeros((size, size)), field_vector=np.zeros(size), **STAMP
    )
    figure = couplings(model, ("first", "second"))
    panel = figure.axes[0]
    assert (panel.get_ylabel(), panel.get_xlabel()) == ("first", "second")
    figure.canvas.draw()
    labels = panel.get_xticklabels()
    assert {label.get_rotation() for label in labels} == {0 if len(states) == 2 else 90}
    boxes = [label.get_window_extent() for label in labels]
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))
    bar = figure.axes[-1].yaxis.label.get_window_extent()
    assert bar.y0 >= 0
    assert bar.y1 <= figure.bbox.y1


def test_a_matrix_has_every_coupling_and_blanks_for_the_rest(learned):
    figure = couplings(learned)
    panel = figure.axes[0]
    shown = np.ma.filled(panel.images[0].get_array(), np.nan)
    graph = learned.graph(weight="dependence")
    for (i, a), (j, b) in itertools.product(enumerate(FEW), repeat=2):
        weight = graph.get_edge_data(a, b, {"weight": np.nan})["weight"]
        assert shown[i, j] == pytest.approx(weight, nan_ok=True)
    assert [text.get_text() for text in panel.get_yticklabels()] == FEW
    assert [text.get_text() for text in panel.get_xticklabels()] == FEW
    numbers = [float(text.get_text()) for text in panel.texts]
    assert sorted(numbers) == pytest.approx(sorted(shown[np.isfinite(shown)]), abs=0.005)
    assert figure.axes[1].get_ylabel() == "dependence given all others"


def test_a_matrix_of_signed_couplings_is_white_at_zero():
    figure = couplings(ising())
    (image,) = figure.axes[0].images
    assert image.norm(0.0) == 0.5
    assert np.ma.filled(image.get_array(), 0.0)[0, 2] == -1.0
    assert figure.axes[1].get_ylabel() == "coupling, nats"
    large = couplings(ising(30)).axes[0]
    assert not large.texts  # numbers would not be legible
    assert len(large.get_yticklabels()) == 30


def test_tables_of_pairs_are_those_of_the_model_state_by_state(learned, survey):
    pairs = [("language", "tenure"), ("age", "tenure"), ("sex", "age"), ("household", "age")]
    figure = couplings(learned, pairs)
    panels = [panel for panel in figure.axes if panel.images and panel.get_visible()]
    for panel, (first, second) in zip(panels, pairs, strict=True):
        expected = learned.association(first, second).values / np.log(2)
        np.testing.assert_array_equal(panel.images[0].get_array(), expected)
        assert (panel.get_ylabel(), panel.get_xlabel()) == (first, second)
        assert [text.get_text() for text in panel.get_yticklabels()] == list(survey.states[first])
        assert panel.images[0].get_clim() == (-3.0, 3.0)
    np.testing.assert_allclose(
        panels[2].images[0].get_array(), 0, atol=1e-9
    )  # no pair of the workload
    bar = figure.axes[-1]
    assert [text.get_text() for text in bar.get_yticklabels()] == [
        "×1/8",
        "×1/4",
        "×1/2",
        "×1",
        "×2",
        "×4",
        "×8",
    ]
    (one,) = [panel for panel in couplings(learned, ("age", "tenure")).axes if panel.images]
    np.testing.assert_array_equal(one.images[0].get_array(), panels[1].images[0].get_array())


def test_many_states_are_named_in_part():
    domain = Domain.from_states({"long": range(60), "b": [0, 1]})
    W = np.zeros((62, 62))
    W[:60, 60:] = np.outer(np.linspace(-1, 1, 60), [1, -1])
    model = LearnedPairwise(
        domain=domain, coupling_matrix=W + W.T, field_vector=np.zeros(62), **STAMP
    )
    panel = couplings(model, ("long", "b")).axes[0]
    assert [text.get_text() for text in panel.get_yticklabels()] == [
        str(k) for k in range(0, 60, 3)
    ]


def test_a_forest_has_intervals_of_rounds_and_says_which_marginals_are_not_trusted(learned, survey):
    figure = marginal_forest(
        {"rounds": learned}, [["age", "tenure"], ["sex", "tenure"]], truth=survey.truth
    )
    (panel,) = figure.axes
    labels = [text.get_text() for text in panel.get_yticklabels()]
    assert labels[0] == "age × tenure"
    assert labels[1 + 17 * 3] == "sex × tenure, not trusted"
    assert figure.legends[0].get_texts()[0].get_text() == "rounds, 90 % interval (approximate)"
    lower = np.array([segment[0, 0] for segment in panel.collections[0].get_segments()])
    frame = learned.solution.interval(["age", "tenure"])
    np.testing.assert_allclose(lower[: len(frame)], frame["lower"])
    exact = bpm.uniform_solution(learned.specification)
    (panel,) = marginal_forest({"rounds": learned, "uniform": exact}, ["sex", "tenure"]).axes
    assert panel.get_yticklabels()[0].get_text() == "sex × tenure, not trusted: rounds"


def test_what_has_no_couplings_or_is_no_pair_is_refused(learned, survey):
    variables = bpm.declare(states={v: survey.states[v] for v in FEW})
    tree = StableStructure(epsilon=1.0, delta=1e-6).release(variables, survey.simulated[FEW], rng=1)
    for other in (survey.truth, tree, None, "learned"):
        for draw in (learned_graph, couplings):
            with pytest.raises(
                ArgumentError, match="`learned` must be a learned model with its couplings"
            ):
                draw(other)
    for threshold in (-1.0, float("nan")):
        with pytest.raises(ArgumentError, match="`threshold`"):
            learned_graph(learned, threshold=threshold)
    for draw in (learned_graph, couplings):
        with pytest.raises(ArgumentError, match="`weight`"):
            draw(learned, weight="size")
    for pairs in ([], "age", ["age"], [("age", "sex", "tenure")], [("age", "sex")] * 13, 3):
        with pytest.raises(ArgumentError, match="`pairs` must be a pair"):
            couplings(learned, pairs)
    with pytest.raises(ModelError, match="not declared"):
        couplings(learned, [("age", "wealth")])
    with pytest.raises(ModelError, match="once"):
        couplings(learned, [("age", "age")])
