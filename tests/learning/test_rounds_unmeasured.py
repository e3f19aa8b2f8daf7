"""Bounds on the candidate tables that rounds did not measure."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.inference import Status
from bayesprivmrf.learning.select_measure import RoundFit
from bayesprivmrf.mechanisms import SelectMeasure
from bayesprivmrf.mechanisms.select_measure.unmeasured import Unmeasured
from bayesprivmrf.model import Effects

RECORDS = 50_000
NAMES = list("abcdefghijkl")


@pytest.fixture(scope="module")
def released():
    """A release of a chain of twelve columns, in a model that is too small for most pairs, and the records."""
    found = []
    for seed in range(1):
        rng = np.random.default_rng([seed, 3])
        codes = rng.integers(0, 2, (RECORDS, len(NAMES)))
        for v in range(1, len(NAMES)):
            codes[:, v] = np.where(rng.random(RECORDS) < 0.5, codes[:, v - 1], codes[:, v])
        data = pd.DataFrame(codes, columns=NAMES)
        network = bpm.declare(states={name: [0, 1] for name in NAMES})
        found.append(
            (SelectMeasure(rho=0.1, maximum_cells=128).release(network, data, rng=seed), data)
        )
    return found


def unmeasured(learned):
    scopes = [set(each.query.scope) for each in learned.statistics.measurements]
    return [
        pair for pair in combinations(NAMES, 2) if not any(set(pair) <= scope for scope in scopes)
    ]


def test_a_pair_that_was_not_measured_is_within_its_bound(released):
    """Each bound holds with a probability of 90 %; at least 0.8 of all bounds hold, and the notes state them."""
    held = []
    for learned, data in released:
        for i, j, bound in learned.details["not_measured"]:
            pair = [NAMES[int(i)], NAMES[int(j)]]
            assert tuple(pair) in unmeasured(learned)
            shares = pd.crosstab(data[pair[0]], data[pair[1]]).to_numpy() / RECORDS
            held.append(
                0.5 * np.abs(shares - learned.solution.marginal(pair).to_numpy()).sum() <= bound
            )
            frame = learned.solution.interval(pair, of="records")
            assert (
                frame["note"]
                .str.contains(f"total variation at most {bound:.2g}", regex=False)
                .all()
            )
    assert len(held) >= 20
    assert np.mean(held) >= 0.8
    assert (
        min(bound for learned, _ in released for *_, bound in learned.details["not_measured"])
        < 0.02
    )


def test_the_status_of_a_row_is_by_its_bound_and_its_reach(released):
    """`model` where the interval reaches as far as the bound; `not trusted` only beyond a bound of 0.05."""
    for learned, _ in released:
        for i, j, bound in learned.details["not_measured"]:
            frame = learned.solution.interval([NAMES[int(i)], NAMES[int(j)]], of="records")
            reach = np.minimum(
                frame["estimate"] - frame["lower"], frame["upper"] - frame["estimate"]
            )
            # limits are whole numbers of records
            assert (frame.loc[reach >= bound * learned.total + 1, "status"] == "model").all()
            assert (frame.loc[reach <= bound * learned.total - 1, "status"] != "model").all()
            worse = "doubtful" if bound <= 0.05 else "not trusted"
            assert set(frame["status"]) <= {"model", worse}


def test_bounds_are_kept_in_files(released, tmp_path):
    learned, _ = released[0]
    learned.save(tmp_path / "learned.release")
    again = bpm.load_release(tmp_path / "learned.release")
    i, j, _ = learned.details["not_measured"][0]
    pair = [NAMES[int(i)], NAMES[int(j)]]
    pd.testing.assert_frame_equal(again.solution.interval(pair), learned.solution.interval(pair))


def test_a_bound_is_dropped_where_other_states_are_one_than_in_its_round():
    """Two measurements of a variable may merge different states to as many groups."""
    effects = Effects.of([2, 2], [(0,), (1,)])
    fit = RoundFit(
        effects=effects,
        coordinates=np.zeros(effects.size),
        total=1000.0,
        status=Status.CONVERGED,
        off=0.0,
        evaluations=1,
    )
    groups, others = (
        (np.array([0, 1, 1]), np.array([0, 1])),
        (np.array([0, 1, 0]), np.array([0, 1])),
    )
    told = Unmeasured(groups=groups).bounded(fit, [(0, 1)], np.array([50.0 + 10.0 + 1.2816 * 5.0]))
    assert told.at_most(fit, groups, 0.0) == [[0, 1, pytest.approx(0.0333, abs=1e-4)]]
    assert told.at_most(fit, others, 0.0) == []
