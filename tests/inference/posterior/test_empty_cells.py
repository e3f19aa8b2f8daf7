"""Intervals of probabilities that may be 0 or 1, under a prior of finite effects."""

import numpy as np
import pytest
from inference.conftest import specification

from bayesprivmrf.inference import LatentCounts
from bayesprivmrf.privacy import Laplace
from bayesprivmrf.release import NoisyStatistics

SHORT = {"rng": 1, "draws": 200, "tune": 150, "chains": 2, "progress_bar": False}
NOISE = Laplace(2.0)


@pytest.fixture(scope="module")
def posterior():
    """Return a posterior of a table whose last cell was released below zero, beside a cell of forty people."""
    table = np.array([[400.0, 120.0, 40.0], [300.0, 90.0, -1.5]])
    model = specification({"a": [0, 1], "b": [0, 1, 2]}, [("a", "b")])
    release = NoisyStatistics.from_tables(model, {("a", "b"): table}, noise=NOISE)
    return LatentCounts(formulation="log-linear").fit(release, **SHORT)


def test_an_interval_reaches_zero_where_the_measured_count_does_not_exclude_it(posterior):
    frame = posterior.interval(["a", "b"])
    assert frame["lower"].iloc[-1] == 0
    assert (frame["lower"].iloc[:-1] > 0).all()
    assert (posterior.tree["posterior"]["marginal[a,b]"].values > 0).all()
    assert frame["upper"].iloc[-1] > 0


def test_conditional_intervals_and_single_events_reach_the_ends_too(posterior):
    frame = posterior.interval(["a"], given={"b": 2})
    assert frame["lower"].tolist() == [pytest.approx(frame["lower"].iloc[0]), 0]
    assert frame["lower"].iloc[0] > 0.5
    assert frame["upper"].iloc[0] == 1
    event = posterior.probability({"a": 1, "b": 2})
    assert float(event.lower) == 0


def test_counts_far_from_zero_keep_the_quantiles_of_the_draws(posterior):
    draws = posterior.tree["posterior"]["marginal[a,b]"].values[..., 0, 0]
    frame = posterior.interval(["a", "b"])
    assert frame["lower"].iloc[0] == pytest.approx(np.quantile(draws, 0.05), rel=1e-6)
