"""The pictures show what they are given."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference import Solution, Status, uniform_solution
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.plots import edge_marginals, holdout_against_epsilon

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


def test_every_cell_is_a_point_of_every_panel():
    truth, one = solution(0), solution(1)
    figure = edge_marginals(truth, {"one": one, "truth": truth})
    for panel, estimate in zip(figure.axes, (one, truth), strict=True):
        offsets = np.asarray(panel.collections[0].get_offsets())
        np.testing.assert_allclose(offsets[:, 0], truth.marginals.flat)
        np.testing.assert_allclose(offsets[:, 1], estimate.marginals.flat)
        assert panel.get_ylim()[1] > offsets.max()
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


def test_methods_at_one_epsilon_do_not_cover_each_other():
    results = pd.DataFrame(
        {"method": ["x", "y", "z"], "epsilon": [1.0] * 3, "holdout_log_likelihood": [-2.0, -2.0, -2.0]}
    )
    (panel,) = holdout_against_epsilon(results).axes
    places = np.array([line.get_xdata()[0] for line in panel.lines])
    assert np.all(np.diff(np.log10(places)) > 0.1)
    assert np.mean(np.log10(places)) == pytest.approx(0.0)
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["1"]
    assert panel.get_xlim()[0] < places.min() < places.max() < panel.get_xlim()[1]


def test_figures_are_in_no_global_list():
    from matplotlib import pyplot

    figure = edge_marginals(solution(0), {"one": solution(1)})
    assert figure._repr_png_().startswith(b"\x89PNG")  # what a notebook asks for
    assert pyplot.get_fignums() == []


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
