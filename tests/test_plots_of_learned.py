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
    domain = Domain.from_states({v: [0, 1] for v in (0, ("t", 1), "c", *(f"v{i}" for i in range(3, size)))})
    return LearnedIsing(domain=domain, coupling_matrix=A, field_vector=np.zeros(size), **STAMP)


@pytest.fixture(scope="module")
def survey():
    return simulated_survey(20_000, rng=1)


@pytest.fixture(scope="module")
def learned(survey):
    """Learned in rounds, from mixed alphabets; two pairs are all that may be measured."""
    variables = bpm.declare(states={v: survey.states[v] for v in FEW})
    workload = [("age", "household"), ("age", "tenure"), ("tenure", "language")]
    return SelectMeasure(rho=0.1, workload=workload).release(variables, survey.simulated[FEW], rng=1)


def test_a_learned_graph_has_edges_as_wide_as_their_couplings_are_strong():
    figure = learned_graph(ising())
    (panel,) = figure.axes
    positive, negative, nodes = panel.collections
    assert len(nodes.get_offsets()) == 4
    widths = positive.get_linewidths()
    assert widths[0] == max(widths)
    assert len(widths) == 2
    assert widths[1] < negative.get_linewidths()[0] < widths[0]
    texts = [text.get_text() for text in panel.texts]
    assert {"0", "('t', 1)", "c", "v3", "2", "-1", "0.5"} == set(texts)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "positive, up to 2 nats",
        "negative, up to 1 nats",
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
    assert label == f"dependence given all others, up to {largest:.3g}"
    merged = {f"{variable}*" for variable in learned.merged_states}
    assert merged == {text.get_text() for text in panel.texts if text.get_text().endswith("*")}
    assert stars == ["rare states are merged in the fit"] * bool(merged)
    other = learned_graph(learned, weight="largest").legends[0].get_texts()[0].get_text()
    assert other.startswith("largest entry of a coupling, up to")
    assert other.endswith("nats")


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
        assert panel.get_title(loc="left") == f"{first} × {second}"
        assert [text.get_text() for text in panel.get_yticklabels()] == list(survey.states[first])
        assert panel.images[0].get_clim() == (-3.0, 3.0)
    np.testing.assert_allclose(panels[2].images[0].get_array(), 0, atol=1e-9)  # no pair of the workload
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
    model = LearnedPairwise(domain=domain, coupling_matrix=W + W.T, field_vector=np.zeros(62), **STAMP)
    panel = couplings(model, ("long", "b")).axes[0]
    assert [text.get_text() for text in panel.get_yticklabels()] == [str(k) for k in range(0, 60, 3)]


def test_a_forest_has_intervals_of_rounds_and_says_which_marginals_are_not_trusted(learned, survey):
    figure = marginal_forest({"rounds": learned}, [["age", "tenure"], ["sex", "tenure"]], truth=survey.truth)
    (panel,) = figure.axes
    labels = [text.get_text() for text in panel.get_yticklabels()]
    assert labels[0] == "age × tenure"
    assert labels[1 + 17 * 3] == "sex × tenure, not trusted"
    assert figure.legends[0].get_texts()[0].get_text() == "rounds, 90 % interval (approximate)"
    (stroke,) = [line.get_xdata() for line in panel.lines if np.isfinite(line.get_xdata()).any()]
    frame = learned.solution.interval(["age", "tenure"])
    np.testing.assert_allclose(stroke[0 : 3 * len(frame) : 3], frame["lower"])
    exact = bpm.uniform_solution(learned.specification)
    (panel,) = marginal_forest({"rounds": learned, "uniform": exact}, ["sex", "tenure"]).axes
    assert panel.get_yticklabels()[0].get_text() == "sex × tenure, not trusted: rounds"


def test_what_has_no_couplings_or_is_no_pair_is_refused(learned, survey):
    variables = bpm.declare(states={v: survey.states[v] for v in FEW})
    tree = StableStructure(epsilon=1.0, delta=1e-6).release(variables, survey.simulated[FEW], rng=1)
    for other in (survey.truth, tree, None, "learned"):
        for draw in (learned_graph, couplings):
            with pytest.raises(ArgumentError, match="`learned` must be a learned model with its couplings"):
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
