import math

import numpy as np
import pandas as pd
import pytest
from inference.conftest import specification

from bayesprivmrf.errors import GuaranteeWarning, ModelError
from bayesprivmrf.inference import NaiveMLE
from bayesprivmrf.inference.given_releases import joint_total
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.privacy import Laplace, NoNoise
from bayesprivmrf.release import NoisyStatistics

ONE = specification({"a": [0, 1]}, [("a",)])


def of_two_cells(counts, scale):
    return NoisyStatistics.from_tables(ONE, {("a",): np.array(counts, float)}, noise=Laplace(scale))


def test_exact_totals_that_contradict_are_refused():
    exact = NoisyStatistics.from_tables(ONE, {("a",): np.array([300, 200])}, noise=NoNoise())
    other = NoisyStatistics.from_tables(ONE, {("a",): np.array([300, 201])}, noise=NoNoise())
    assert joint_total([exact, of_two_cells([310.0, 195.0], 4.0)]) == (500, 0)
    for second in (other, of_two_cells([9000.0, 1000.0], 4.0)):
        with pytest.raises(ModelError, match="one population"):
            joint_total([exact, second])


def test_a_release_without_variables_tells_nothing_of_the_joint_total():
    told = [of_two_cells([40.0, 55.0], 2.0), of_two_cells([48.0, 60.0], 4.0)]
    nothing = NoisyStatistics.from_tables(specification({}, []), {}, noise=Laplace(1.0))
    total, error = joint_total(told)
    assert total == pytest.approx((95 / 4 + 108 / 16) / (1 / 4 + 1 / 16))
    assert error == pytest.approx((1 / (4 * 4) + 1 / (4 * 16)) ** -0.5)
    for position in range(3):
        assert joint_total([*told[:position], nothing, *told[position:]]) == (total, error)
    estimate, error = joint_total([nothing])
    assert math.isnan(estimate)
    assert error == math.inf


def test_guarantees_of_other_neighbours_or_units_are_fitted_jointly_and_the_result_says_so():
    model = specification({"a": [0, 1], "b": [0, 1, 2]}, [("a", "b")])
    data = pd.DataFrame({"a": [0, 1, 1] * 2000, "b": [2, 0, 1] * 2000})
    one, same = (LaplaceStatistics(epsilon=0.5).release(model, data, rng=seed) for seed in (1, 2))
    other = LaplaceStatistics(epsilon=0.5, adjacency="replace-one").release(model, data, rng=3)
    public = NoisyStatistics.from_tables(
        model, {("a", "b"): one.tables["a", "b"] + 1}, noise=Laplace(1.0)
    )
    for releases in (one, [one, same], [one, public]):
        assert "guarantees" not in NaiveMLE().fit(releases).stats  # warnings are errors here
    with pytest.warns(
        GuaranteeWarning, match="do not add up: .*add-or-remove-one.*replace-one"
    ) as caught:
        solution = NaiveMLE().fit([one, other])
    assert caught[0].filename == __file__
    assert "do not add up" in repr(solution)
