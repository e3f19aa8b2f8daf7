"""The pictures show what they are given."""

from __future__ import annotations

import math
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.text import Text
from notebook import png_of

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference import Solution, Status, uniform_solution
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.noise import Laplace
from bayesprivmrf.plots import (
    calibration_ranks,
    edge_marginals,
    holdout_against_epsilon,
    marginal_forest,
    noisy_against_posterior,
)
from bayesprivmrf.plots.posterior import band_of

SPECIFICATION = ModelSpecification(
    domain=Domain.from_states({"a": [0, 1], "b": [0, 1, 2]}), cliques=(("a", "b"),)
)


def solution(seed: int) -> Solution:
    potentials = np.random.default_rng(seed).normal(size=SPECIFICATION.size)
    return Solution(
        specification=SPECIFICATION,
        potentials=SPECIFICATION.tables(potentials),
        method="x",
        status=Status.CONVERGED,
    )


def interval(estimate: Solution, variables, prob):
    """Stand-in for an interval: a tenth of `prob` to either side."""
    centre = np.asarray(estimate.marginal(list(variables))).ravel()
    numbers = {"estimate": centre, "lower": centre - prob / 10, "upper": centre + prob / 10}
    return pd.DataFrame(numbers).assign(status="ok", note="measured in this release")


def with_interval(seed: int) -> SimpleNamespace:
    """What `NoiseAwareMAP` gives, as far as a figure asks: a solution with an interval."""
    own = solution(seed)
    return SimpleNamespace(
        specification=SPECIFICATION, interval=lambda variables, prob: interval(own, variables, prob)
    )


def posterior(seed: int) -> SimpleNamespace:
    """Draws of what a posterior of the one table holds: true counts around 50, noise of a given size."""
    rng = np.random.default_rng(seed)
    coords = {"a": ["0", "1"], "b": ["0", "1", "2"]}
    dims = ("chain", "draw", "a", "b")
    counts = 50 + rng.normal(scale=2.0, size=(2, 400, 2, 3))
    noisy = counts + rng.normal(scale=5.0, size=counts.shape)
    noisy[..., 1, 2] = 0.0  # a cell that cannot occur
    released = np.array([[50.0, 51.0, 49.0], [50.0, 90.0, 3.0]])
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"counts[a,b]": (dims, counts)}, coords=coords),
            "posterior_predictive": xr.Dataset({"noisy_counts[a,b]": (dims, noisy)}, coords=coords),
            "observed_data": xr.Dataset(
                {"noisy_counts[a,b]": (("a", "b"), released)}, coords=coords
            ),
        }
    )
    return SimpleNamespace(
        tree=tree,
        solution=solution(seed),
        specification=SPECIFICATION,
        marginal=solution(seed).marginal,
        interval=lambda variables, prob: interval(solution(seed), variables, prob),
    )


def points_of(panel) -> list[np.ndarray]:
    """Places of the points in a panel, one array for each call that drew some."""
    return [
        np.asarray(each.get_offsets())
        for each in panel.collections
        if isinstance(each, PathCollection)
    ]


def bars_of(panel) -> list[np.ndarray]:
    """Ends of the bars in a panel, shape (bars, 2, 2), one array for each call that drew some."""
    return [
        np.asarray(each.get_segments())
        for each in panel.collections
        if isinstance(each, LineCollection)
    ]


def test_every_cell_is_a_point_of_every_panel():
    truth, one = solution(0), solution(1)
    figure = edge_marginals(truth, {"one": one, "truth": truth})
    for panel, below, estimate in zip(figure.axes[:2], figure.axes[2:], (one, truth), strict=True):
        offsets = np.asarray(panel.collections[0].get_offsets())
        np.testing.assert_allclose(offsets[:, 0], truth.marginals.flat)
        np.testing.assert_allclose(offsets[:, 1], estimate.marginals.flat)
        assert panel.get_ylim()[1] > offsets.max()
        errors = np.asarray(below.collections[0].get_offsets())
        np.testing.assert_allclose(errors[:, 0], truth.marginals.flat)
        np.testing.assert_allclose(errors[:, 1], estimate.marginals.flat - truth.marginals.flat)
        assert below.get_xlim() == panel.get_xlim()
    assert "mean error 0" in figure.axes[1].get_title(loc="left")


def test_lines_join_the_means_and_levels_are_named():
    results = pd.DataFrame(
        {
            "method": ["cgm", "cgm", "cgm", "uniform", "cgm"],
            "epsilon": [1.0, 0.1, 1.0, math.nan, 10.0],
            "holdout_log_likelihood": [-3.0, -4.0, -2.0, -5.0, -math.inf],
        }
    )
    (panel,) = holdout_against_epsilon(results).axes
    np.testing.assert_allclose(panel.lines[0].get_xydata(), [[0.1, -4.0], [1.0, -2.5]])
    assert panel.lines[1].get_ydata()[0] == -5.0
    assert [text.get_text() for text in panel.texts] == ["uniform"]
    assert panel.get_xscale() == "log"


def test_what_is_lost_of_a_reference_is_on_a_logarithmic_axis_that_the_uniform_model_does_not_set():
    results = pd.DataFrame(
        {
            "method": ["exact", "uniform", "x", "x", "y", "y"],
            "epsilon": [math.nan, math.nan, 0.1, 1.0, 0.1, 1.0],
            "holdout_log_likelihood": [-2.0, -50.0, -4.0, -2.1, -3.0, -1.9],
        }
    )
    (panel,) = holdout_against_epsilon(results, reference="exact").axes
    np.testing.assert_allclose(panel.lines[0].get_ydata(), [2.0, 0.1])
    np.testing.assert_allclose(panel.lines[1].get_ydata(), [1.0, -0.1])
    assert panel.lines[2].get_ydata()[0] == 0.0
    assert panel.get_yscale() == "symlog"
    assert [text.get_text() for text in panel.texts] == ["exact"]
    assert panel.get_ylim()[1] < 10
    with pytest.raises(ArgumentError, match="one of \\['exact', 'uniform'\\], got 'x'"):
        holdout_against_epsilon(results, reference="x")


def test_methods_at_one_epsilon_do_not_cover_each_other():
    results = pd.DataFrame(
        {
            "method": ["x", "y", "z"],
            "epsilon": [1.0] * 3,
            "holdout_log_likelihood": [-2.0, -2.0, -2.0],
        }
    )
    (panel,) = holdout_against_epsilon(results).axes
    places = np.array([line.get_xdata()[0] for line in panel.lines])
    assert np.all(np.diff(np.log10(places)) > 0.1)
    assert np.mean(np.log10(places)) == pytest.approx(0.0)
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["1"]
    assert panel.get_xlim()[0] < places.min() < places.max() < panel.get_xlim()[1]


def test_a_forest_has_a_point_for_each_method_and_cell_and_intervals_where_there_are_some():
    methods = {"point": solution(0), "map": with_interval(1), "posterior": posterior(2)}
    figure = marginal_forest(methods, ["b", "a"], prob=0.5)
    (panel,) = figure.axes
    cells = points_of(panel)
    for seed, drawn in enumerate(cells):
        np.testing.assert_allclose(
            drawn[:, 0], np.asarray(solution(seed).marginal(["b", "a"])).ravel()
        )
    assert np.all(
        np.diff([drawn[0, 1] for drawn in cells]) > 0
    )  # beside each other, in the order given
    assert np.ptp([drawn[0, 1] for drawn in cells]) < 0.5
    strokes = bars_of(panel)
    assert len(strokes) == 2
    np.testing.assert_allclose(strokes[1][:, 0, 0], cells[2][:, 0] - 0.05)
    np.testing.assert_allclose(strokes[1][:, 1, 0], cells[2][:, 0] + 0.05)
    labels = [text.get_text() for text in panel.get_yticklabels()]
    assert labels == ["b × a", "0, 0", "0, 1", "1, 0", "1, 1", "2, 0", "2, 1"]
    assert panel.get_ylim()[0] > panel.get_ylim()[1]  # read downwards
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "point",
        "map, 50 % interval (approximate)",
        "posterior, 50 % interval",
    ]


def test_a_forest_of_many_methods_has_a_panel_a_cell_and_a_row_a_method():
    """Colors would repeat after six; here each method is named at its own row, in one color."""
    names = [f"area {number}" for number in range(30)]
    methods = {name: posterior(number % 2) for number, name in enumerate(names)}
    figure = marginal_forest(methods, ["a", "b"], truth=solution(0), prob=0.5)
    assert [panel.get_title(loc="left") for panel in figure.axes if panel.get_visible()] == [
        f"a = {a}, b = {b}" for a in (0, 1) for b in (0, 1, 2)
    ]
    first = figure.axes[0]
    assert [label.get_text() for label in first.get_yticklabels()] == names
    (bars,) = bars_of(first)
    estimate = float(np.asarray(solution(1).marginal(["a", "b"])).ravel()[0])
    np.testing.assert_allclose(bars[7, :, 0], [estimate - 0.05, estimate + 0.05])
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {
        "estimate, 50 % interval",
        "truth",
    }
    points = [tuple(color) for each in first.collections[1:] for color in each.get_facecolor()]
    assert len(set(points)) == 1
    with pytest.raises(ArgumentError, match=r"at most 300 rows.*fewer methods at a time"):
        marginal_forest(dict.fromkeys(map(str, range(200)), solution(0)), ["a", "b"])


def test_long_titles_of_neighboring_panels_do_not_overlap():
    states = {"voting_age": ["18 and over", "under 18"], "country of birth": ["abroad", "here"]}
    network = bpm.declare(states, [tuple(states)])
    release = bpm.NoisyStatistics.from_tables(
        network, {tuple(states): [[9, 8], [7, 6]]}, noise=Laplace(1.0)
    )
    fit = bpm.NaiveMLE().fit(release)
    methods = dict.fromkeys(
        (f"a municipality with a long name {number}" for number in range(8)), fit
    )
    figure = marginal_forest(methods, [["country of birth"], tuple(states)])
    figure.canvas.draw()
    panels = [panel for panel in figure.axes if panel.get_visible()]
    boxes = [
        text.get_window_extent()
        for panel in panels
        for text in panel.get_children()
        if isinstance(text, Text) and text.get_text()
    ]
    assert len(boxes) == 6
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(box.x1 <= figure.bbox.x1 for box in boxes)


def test_a_forest_marks_truth_and_held_out_frequencies_whatever_the_order_of_the_truths_states():
    reversed_domain = Domain.from_states({"b": [2, 1, 0], "a": [0, 1]})
    model = ModelSpecification(domain=reversed_domain, cliques=(("b", "a"),))
    truth = Solution(
        specification=model,
        potentials=model.tables(np.log(np.arange(1.0, 7.0))),
        method="x",
        status=Status.CONVERGED,
    )
    data = pd.DataFrame({"a": [0, 0, 1, 1], "b": [0, 0, 2, 1]})
    figure = marginal_forest({"one": solution(0)}, [["a", "b"], "b"], truth=truth, holdout=data)
    (panel,) = figure.axes
    _, true, held_out = (points[:, 0] for points in points_of(panel))
    np.testing.assert_allclose(true, np.array([5, 3, 1, 6, 4, 2, 11, 7, 3]) / 21)
    np.testing.assert_allclose(held_out, [0.5, 0, 0, 0, 0.25, 0.25, 0.5, 0.25, 0.25])
    assert [text.get_text() for text in panel.get_yticklabels()][7] == "b"
    assert "4 records" in figure.legends[0].get_texts()[-1].get_text()


def test_held_out_frequencies_of_a_frequency_table_are_those_of_its_repeated_rows():
    table = pd.DataFrame({"a": [0, 1], "n": [30, 10]})
    figure = marginal_forest({"x": solution(0)}, ["a"], holdout=table, count="n")
    crosses = figure.axes[0].collections[-1].get_offsets()[:, 0]
    np.testing.assert_allclose(sorted(crosses)[-1], 0.75)
    assert "frequency in 40 records" in figure.legends[0].get_texts()[-1].get_text()


def test_a_forest_takes_any_names_and_states():
    domain = Domain.from_states({0: [True, "x"], ("t", 1): ["only"], 2: [3, 1]})
    model = ModelSpecification(domain=domain, cliques=((0, ("t", 1)), (2,)))
    for asked in ([0, ("t", 1)], [[0], [("t", 1), 2]], 2):
        (panel,) = marginal_forest({"uniform": uniform_solution(model)}, asked).axes
        assert np.asarray(panel.collections[0].get_offsets())[0, 0] in (0.5, 1.0)


def test_noisy_tables_stand_against_true_and_replicated_counts():
    drawn = posterior(3)
    figure = noisy_against_posterior(drawn, [("b", "a")], prob=0.8, is_centred=False)
    (panel,) = figure.axes
    mean, released = points_of(panel)
    np.testing.assert_allclose(
        released, [[0, 50], [1, 51], [2, 49], [3, 50], [4, 90]]
    )  # the impossible one left out
    counts = drawn.tree["posterior"]["counts[a,b]"].values.reshape(-1, 6)
    np.testing.assert_allclose(mean[:, 1], counts.mean(axis=0)[:5])
    noisy, true = (bars[:, :, 1] for bars in bars_of(panel))
    np.testing.assert_allclose(true, np.quantile(counts, [0.1, 0.9], axis=0).T[:5])
    assert np.all(np.ptp(noisy, axis=1) > np.ptp(true, axis=1))
    assert "1 of 5 outside" in panel.get_title(loc="left")
    assert [text.get_text() for text in panel.get_xticklabels()][1] == "0, 1"
    (centred,) = noisy_against_posterior(drawn, prob=0.8).axes
    own_mean, shifted = points_of(centred)
    np.testing.assert_allclose(shifted[:, 1], released[:, 1] - counts.mean(axis=0)[:5])
    np.testing.assert_allclose(own_mean[:, 1], 0, atol=1e-9)
    assert "1 of 5 outside" in centred.get_title(loc="left")


def test_tables_inside_a_clique_and_measured_twice_are_drawn():
    drawn = posterior(3)
    tree = drawn.tree.copy(deep=True)
    for group in ("observed_data", "posterior_predictive"):
        noisy = tree[group]["noisy_counts[a,b]"]
        tree[group] = xr.Dataset(
            {"noisy_counts[b]": noisy.sum("a"), "noisy_counts[b] 2": 2 * noisy.sum("a")}
        )
    drawn = SimpleNamespace(tree=tree, specification=SPECIFICATION)
    one, two = noisy_against_posterior(drawn, ["b"], is_centred=False).axes
    counts = tree["posterior"]["counts[a,b]"].values.sum(axis=2).reshape(-1, 3)
    for panel in (one, two):
        np.testing.assert_allclose(points_of(panel)[0][:, 1], counts.mean(axis=0))
    assert two.get_title(loc="left").startswith("b 2")


def test_many_tables_make_a_grid_that_a_screen_can_hold():
    drawn = posterior(3)
    groups = {
        group: xr.Dataset(
            {f"noisy_counts[a,b] {n}": drawn.tree[group]["noisy_counts[a,b]"] for n in range(1, 17)}
        )
        for group in ("observed_data", "posterior_predictive")
    }
    tree = xr.DataTree.from_dict({"posterior": drawn.tree["posterior"].to_dataset(), **groups})
    figure = noisy_against_posterior(SimpleNamespace(tree=tree, specification=SPECIFICATION))
    width, height = figure.get_size_inches()
    assert width <= 14
    assert height <= 11
    assert len(figure.axes) == 16
    assert len({round(panel.get_position().x0, 3) for panel in figure.axes}) == 4


def test_a_table_of_too_many_cells_for_names_is_drawn_without_them():
    cells = {"a": ["0", "1"], "b": [str(code) for code in range(40)]}
    network = bpm.declare(states=cells, cliques=[("a", "b")])
    counts = np.random.default_rng(3).normal(50.0, 2.0, size=(2, 50, 2, 40))
    drawn = {"counts[a,b]": (("chain", "draw", "a", "b"), counts)}
    noisy = {"noisy_counts[a,b]": (("chain", "draw", "a", "b"), counts)}
    released = {"noisy_counts[a,b]": (("a", "b"), counts[0, 0])}
    tree = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset(drawn, coords=cells),
            "posterior_predictive": xr.Dataset(noisy, coords=cells),
            "observed_data": xr.Dataset(released, coords=cells),
        }
    )
    specification = ModelSpecification.from_pgmpy(network)
    (panel,) = noisy_against_posterior(SimpleNamespace(tree=tree, specification=specification)).axes
    assert panel.get_xlabel() == "cells in C order"
    assert len(panel.get_xticks()) == 0


def test_short_intervals_are_not_hidden_by_their_points():
    def short(seed, length):
        def own(variables, prob):
            centre = np.asarray(solution(seed).marginal(list(variables))).ravel()
            numbers = {"estimate": centre, "lower": centre - length, "upper": centre + length}
            return pd.DataFrame(numbers).assign(status="ok", note="measured in this release")

        return SimpleNamespace(specification=SPECIFICATION, interval=own)

    areas = []
    for length in (0.1, 0.001):
        (panel,) = marginal_forest({"one": short(0, length)}, ["a", "b"]).axes
        areas.append(panel.collections[-1].get_sizes()[0])
    assert areas[1] < areas[0] / 2
    methods = {"one": short(0, 0.001), "two": short(1, 0.002)}
    (panel,) = marginal_forest(methods, ["a", "b"], is_centred=True).axes
    one, two = (points[:, 0] for points in points_of(panel))
    np.testing.assert_allclose(one, 0, atol=1e-12)
    difference = np.asarray(
        solution(1).marginal(["a", "b"]) - solution(0).marginal(["a", "b"])
    ).ravel()
    np.testing.assert_allclose(two, difference)
    assert panel.get_xlabel() == "probability minus estimate by one"
    (panel,) = marginal_forest(methods, ["a", "b"], is_centred=True, truth=solution(1)).axes
    for points in points_of(panel)[1:]:
        np.testing.assert_allclose(points[:, 0], 0, atol=1e-12)
    assert panel.get_xlabel() == "probability minus truth"


@pytest.mark.slow
def test_uniform_ranks_stay_inside_their_band_as_often_as_it_says():
    rng = np.random.default_rng(4)
    draws, replications, quantities = 63, 150, 1000
    ranks = rng.integers(0, draws + 1, size=(replications, quantities))
    figure = calibration_ranks({"uniform": ranks, "low": ranks // 2}, draws=draws, prob=0.9)
    leaving = [
        int(panel.get_title(loc="left").split("\n")[2].split(" of ")[0]) for panel in figure.axes
    ]
    # 0.1 of 1000 at most, for the law is discrete: Binomial sd 9.5, and about as much from the simulated band
    assert 60 < leaving[0] < 145
    assert leaving[1] == quantities
    _, first, *others = figure.axes[1].lines  # after the line at zero
    line = first.get_ydata()
    assert line[len(line) // 2] == pytest.approx(0.5, abs=0.02)  # all ranks lie in the lower half
    assert len(others) == quantities - 1


def test_the_band_of_few_ranks_is_exact():
    # one replication: the distribution function jumps at one rank, so that nothing narrower than [0, 1] is left
    places = np.arange(5) / 4
    lower, upper = band_of(1, places, 0.95)
    np.testing.assert_array_equal(lower[:-1], 0)
    np.testing.assert_array_equal(upper[1:], 1)


def test_arguments_of_the_new_figures_are_checked():
    with pytest.raises(ArgumentError, match="at least one solution or posterior"):
        marginal_forest({}, ["a"])
    with pytest.raises(ArgumentError, match="fit a release"):
        marginal_forest({"x": SPECIFICATION.domain}, ["a"])
    with pytest.raises(ModelError, match="not declared"):
        marginal_forest({"x": solution(0)}, ["a", "z"])
    with pytest.raises(ModelError, match="each variable once"):
        marginal_forest({"x": solution(0)}, ["a", "a"])
    with pytest.raises(ArgumentError, match="at least one variable"):
        marginal_forest({"x": solution(0)}, [])
    for prob in (0.0, 1.0, 90, math.nan, "0.9", True):
        with pytest.raises(ArgumentError, match="`prob`"):
            marginal_forest({"x": solution(0)}, ["a"], prob=prob)
    other = ModelSpecification(domain=Domain.from_states({"a": [1, 0]}), cliques=(("a",),))
    with pytest.raises(ArgumentError, match=r"same variables and states.*in only one"):
        marginal_forest({"x": solution(0), "y": uniform_solution(other)}, ["a"])
    turned = ModelSpecification(
        domain=Domain.from_states({"a": [1, 0], "b": [0, 1, 2]}), cliques=(("a", "b"),)
    )
    with pytest.raises(ArgumentError, match=r"other states of \['a'\], or another order"):
        marginal_forest({"x": solution(0), "y": uniform_solution(turned)}, ["a"])
    big = ModelSpecification(domain=Domain.from_states({"a": range(301)}), cliques=(("a",),))
    with pytest.raises(ArgumentError, match="at most 300 rows"):
        marginal_forest({"x": uniform_solution(big)}, ["a"])
    strange = ModelSpecification(domain=Domain.from_states({"a": [0, 2]}), cliques=(("a",),))
    with pytest.raises(ModelError, match="`truth`"):
        marginal_forest({"x": solution(0)}, ["a"], truth=uniform_solution(strange))
    with pytest.raises(ArgumentError, match="at least one record"):
        marginal_forest(
            {"x": solution(0)}, ["a"], holdout=pd.DataFrame({"a": np.zeros(0, dtype=int)})
        )
    with pytest.raises(ArgumentError, match="measured ones are \\[a,b\\]"):
        noisy_against_posterior(posterior(0), ["a"])
    with pytest.raises(ModelError, match="not declared"):
        noisy_against_posterior(posterior(0), [("a", "c")])
    with pytest.raises(ArgumentError, match="list of measured cliques"):
        noisy_against_posterior(posterior(0), [])
    for other in (solution(0), SPECIFICATION, None):
        with pytest.raises(ArgumentError, match=r"`posterior` must be a Posterior.*LatentCounts"):
            noisy_against_posterior(other)
    for ranks, draws, message in (
        ({}, 9, "at least one name"),
        ({"x": [10]}, 9, "from 0 to 9"),
        ({"x": [0.5]}, 9, "from 0 to 9"),
        ({"x": [math.nan]}, 9, "from 0 to 9"),
        ({"x": []}, 9, "shape"),
        ({"x": ["1"]}, 9, "shape"),
        ({"x": [1]}, 0, "`draws`"),
    ):
        with pytest.raises(ArgumentError, match=message):
            calibration_ranks(ranks, draws=draws)


def test_figures_are_in_no_global_list():
    from matplotlib import pyplot

    before = pyplot.get_fignums()  # other tests may have drawn with ArviZ
    figure = edge_marginals(solution(0), {"one": solution(1)})
    assert png_of(figure).startswith(b"\x89PNG")  # what a notebook asks for
    marginal_forest({"posterior": posterior(0)}, ["a"])
    noisy_against_posterior(posterior(0))
    calibration_ranks({"x": [0, 1, 2]}, draws=2)
    assert pyplot.get_fignums() == before


def test_a_posterior_is_drawn_by_the_mean_of_its_marginals():
    panel, _ = edge_marginals(solution(0), {"posterior": posterior(1)}).axes
    np.testing.assert_allclose(
        np.asarray(panel.collections[0].get_offsets())[:, 1], solution(1).marginals.flat
    )


def test_wrong_input_is_a_clear_error():
    with pytest.raises(ArgumentError, match="at least one solution"):
        edge_marginals(solution(0), {})
    other = ModelSpecification(domain=SPECIFICATION.domain, cliques=(("a",), ("b",)))
    with pytest.raises(ArgumentError, match="cliques of the reference"):
        edge_marginals(solution(0), {"other": uniform_solution(other)})
    with pytest.raises(ArgumentError, match="epsilon"):
        holdout_against_epsilon(pd.DataFrame({"method": []}))
    with pytest.raises(ArgumentError, match="at least one row"):
        holdout_against_epsilon(
            pd.DataFrame({"method": ["x"], "epsilon": [math.nan], "holdout_log_likelihood": [1.0]})
        )
