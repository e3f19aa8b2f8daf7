"""Limits of the records' counts lie within what the rules of the published numbers allow."""

import numpy as np

import bayesprivmrf as bpm
from bayesprivmrf.noise import Coarsened, NoNoise, RandomRounding, Suppressed

PAIR = bpm.declare(states={"a": [0, 1], "b": [0, 1, 2]}, cliques=[("a", "b")])


def test_limits_of_records_exclude_counts_that_no_rule_allows():
    counts = np.array([[3, 9, 30], [12, 1, 8]])
    numbers = {("a", "b"): np.where(counts < 5, -1, counts), "a": counts.sum(axis=1)}
    release = bpm.NoisyStatistics.from_tables(
        PAIR, numbers, noise={("a", "b"): Suppressed(1, 6), "a": NoNoise()}
    )
    frame = bpm.NoiseAwareMAP().fit(release).interval(["a", "b"], of="records")
    # an exact total, less two cells that are shown, determines the cell that is hidden
    np.testing.assert_array_equal(frame.lower, counts.ravel())
    np.testing.assert_array_equal(frame.upper, counts.ravel())


def test_limits_of_margins_are_those_of_their_own_numbers():
    rng = np.random.default_rng(4)
    counts = np.array([[3, 9, 30], [12, 1, 8]])
    rule = RandomRounding(3)
    numbers = {("a", "b"): rule.draw_given(counts, rng), "a": rule.draw_given(counts.sum(1), rng)}
    release = bpm.NoisyStatistics.from_tables(PAIR, numbers, noise=rule)
    frame = bpm.NoiseAwareMAP().fit(release).interval(["a"], of="records", prob=0.999)
    low, high = rule.allowed(numbers["a"])
    assert (frame.lower >= low).all()
    assert (frame.upper <= high).all()


def test_the_empty_key_is_the_number_of_all_records():
    rule = RandomRounding(5)
    numbers = {("a", "b"): [[5, 10, 30], [10, 0, 10]], (): 65}
    release = bpm.NoisyStatistics.from_tables(PAIR, numbers, noise=rule)
    assert [len(one.values) for one in release.measurements] == [6, 1]
    frame = bpm.NoiseAwareMAP().fit(release).interval(["a", "b"], of="records")
    assert 55 < frame.estimate.sum() < 70


def test_limits_of_no_records_are_zero():
    ranges = Coarsened([(0, 0), (1, 9), (10, 200)])
    numbers = {("a", "b"): ranges.publish(np.zeros((2, 3), dtype=int))}
    release = bpm.NoisyStatistics.from_tables(PAIR, numbers, noise=ranges, total=0)
    frame = bpm.NoiseAwareMAP().fit(release).interval(["a", "b"], of="records")
    assert not frame[["estimate", "lower", "upper"]].to_numpy().any()
