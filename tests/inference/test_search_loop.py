"""The loop that renews weights and descends with them held: phases, ends, averages, and searches that go on."""

from dataclasses import dataclass

import numpy as np
import pytest

from bayesprivmrf.inference import Status
from bayesprivmrf.inference.loglinear_fit import Descent, Phase, Turn, iterate


@dataclass
class Weighted:
    """Least w (x - 3)^2 + x^2 with the weight w = 1 / (1 + b^2) of the estimate b before."""

    weight: float
    point: np.ndarray
    has_settled: bool = False
    status: Status = Status.CONVERGED

    def descended(self, turn):
        share = turn.phase.share
        full = self.weight * 3 / (self.weight + 1) * np.ones(1)
        step = full - self.point
        moved = float(np.abs(step).max())
        return Descent(
            point=self.point + share * step,
            has_settled=moved < 1e-12,
            gradient=step,
            status=self.status,
        )


class Problem:
    """Notes the rounds that it was asked for."""

    def __init__(self, ends=None, fails=None):
        self.turns, self.estimates, self.ends, self.fails = [], [], ends, fails

    def renewed(self, point, last, turn):
        self.turns.append(turn)
        self.estimates.append(point)
        if last is not None and not turn.phase.weighs:
            weight = last.weighted.weight
        else:
            weight = float(1 / (1 + point[0] ** 2))
        status = Status.DIVERGED if turn.number == self.fails else Status.CONVERGED
        return Weighted(weight, point, has_settled=turn.number == self.ends, status=status)


def test_the_end_is_the_point_whose_own_weights_have_their_minimum_there():
    found = iterate(Problem().renewed, np.zeros(1), (Phase(rounds=200),))
    x = found.point[0]
    assert found.has_settled
    assert found.rounds < 200
    weight = 1 / (1 + x**2)
    assert weight * (x - 3) + x == pytest.approx(0, abs=1e-10)


def test_kept_weights_end_at_the_minimum_of_one_function():
    schedule = (Phase(rounds=1, may_end=False), Phase(rounds=50, weighs=False))
    found = iterate(Problem().renewed, np.zeros(1), schedule)
    assert found.has_settled
    assert found.point[0] == pytest.approx(3 / 2)  # w = 1, the weight at 0


def test_rounds_are_counted_through_the_phases_and_an_end_waits_for_its_phase():
    problem = Problem(ends=2)
    schedule = (Phase(rounds=3, may_end=False), Phase(rounds=0), Phase(rounds=2))
    found = iterate(problem.renewed, np.zeros(1), schedule)
    assert [turn.number for turn in problem.turns] == [1, 2, 3, 4, 5]
    assert [turn.phase for turn in problem.turns] == [schedule[0]] * 3 + [schedule[2]] * 2
    assert not found.has_settled
    assert found.is_open


def test_a_renewal_that_changes_nothing_ends_a_search_before_its_descent():
    problem = Problem(ends=3)
    found = iterate(problem.renewed, np.zeros(1), (Phase(rounds=9),))
    assert found.has_settled
    assert found.rounds == 3
    assert found.point is problem.estimates[-1]
    assert found.last.weighted is not found.weighted


def test_a_descent_that_diverges_ends_a_search():
    found = iterate(Problem(fails=2).renewed, np.zeros(1), (Phase(rounds=9, may_end=False),))
    assert found.rounds == 2
    assert found.last.descent.status is Status.DIVERGED
    assert not found.is_open


def test_estimates_and_gradients_of_a_phase_are_averaged():
    problem = Problem()
    schedule = (Phase(rounds=3, may_end=False), Phase(rounds=4, averages=True, may_end=False))
    found = iterate(problem.renewed, np.zeros(1), schedule)
    estimates = [*problem.estimates, found.point]
    np.testing.assert_allclose(found.average, np.mean(estimates[4:], axis=0))
    steps = np.diff(np.array(estimates), axis=0)[3:]
    np.testing.assert_allclose(found.average_gradient, steps.mean(axis=0))


def test_a_search_that_goes_on_ends_where_one_of_all_rounds_does():
    whole = iterate(Problem().renewed, np.zeros(1), (Phase(rounds=7, share=0.3),))
    first = iterate(Problem().renewed, np.zeros(1), (Phase(rounds=4, share=0.3),))
    assert first.is_open
    rest = iterate(Problem().renewed, np.zeros(1), (Phase(rounds=3, share=0.3),), first)
    assert rest.rounds == whole.rounds == 7
    assert rest.point == whole.point


def test_renewals_after_a_round_count_less_and_less():
    phase = Phase(rounds=6, damped_after=2)
    shares = [Turn(number, phase).renewal_share for number in range(1, 7)]
    assert shares == [1, 1, 1, 1 / 2, 1 / 3, 1 / 4]
    assert Turn(9, Phase(rounds=9)).renewal_share == 1
