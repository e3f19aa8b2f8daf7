"""Releases of hardly any records are not trusted, those of thousands are: whatever learns, and what intervals say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from repeats import few

import bayesprivmrf as bpm
from bayesprivmrf.errors import NoiseWarning
from bayesprivmrf.learning.models import Signal
from bayesprivmrf.mechanisms import DPSGD, ParityQueries, PrivateFrankWolfe, SelectMeasure

pytestmark = pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")

STATES = {"a": [0, 1, 2], "b": [0, 1], "c": [0, 1]}
TWO = {name: [0, 1] for name in "abcd"}
CLIQUES = [("a", "b"), ("c", "d")]


def frame(records: int, seed: int, states: dict[str, list[int]]) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns = {name: rng.integers(0, len(held), records) for name, held in states.items()}
    columns["b"] = np.where(rng.random(records) < 0.7, columns["a"] % 2, columns["b"])
    return pd.DataFrame(columns)


def released(kind: str, records: int, seed: int, adjacency: str = "add-or-remove-one"):
    states = STATES if kind in ("rounds", "tables") else TWO
    settings = {
        "rounds": SelectMeasure(rho=0.1, adjacency=adjacency),
        "tables": SelectMeasure(rho=0.1, degree=1, adjacency=adjacency),
        "moments": SelectMeasure(rho=0.1, degree=1, adjacency=adjacency),
        "tiny": SelectMeasure(rho=1e-14, degree=1, adjacency=adjacency),
        "frank-wolfe": PrivateFrankWolfe(rho=0.1, width=1.0, adjacency=adjacency),
        "parities": ParityQueries(rho=0.1, order=2, method="gaussian", adjacency=adjacency),
        "dpsgd": DPSGD(epsilon=1.0, delta=1e-5, clip=1.0, steps=20, learning_rate=0.1),
    }
    network = bpm.declare(states=states, cliques=CLIQUES if kind == "dpsgd" else None)
    found = settings[kind].release(network, frame(records, seed, states), rng=seed)
    return found.fit() if kind == "parities" else found


KINDS = ["rounds", "tables", "moments", "frank-wolfe", "parities", "dpsgd"]


@pytest.mark.parametrize("kind", [*KINDS, "tiny"])
@pytest.mark.parametrize("records", [0, 10])
def test_hardly_any_records_are_never_trusted(records, kind):
    """Of two seeds none: ten errors of the number are 34 records at least, 7 errors from 10, a tail of 1e-12."""
    assert {released(kind, records, seed).status for seed in range(2)} == {"not trusted"}


@pytest.mark.parametrize("kind", few([kind for kind in KINDS if kind != "dpsgd"], 2))
def test_ten_records_whose_number_is_public_are_not_trusted(kind):
    assert {released(kind, 10, seed, "replace-one").status for seed in range(2)} == {"not trusted"}


@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_records_are_trusted(kind):
    """Of four seeds all: 3,000 records are 90 errors of their number, and an even cell 20 deviations at least."""
    right = {"frank-wolfe": "approximate", "dpsgd": "stopped early"}.get(kind, "converged")
    assert {released(kind, 3_000, seed).status for seed in range(4)} == {right}


def test_thousands_of_records_are_not_trusted_where_the_noise_hides_them():
    assert released("tiny", 3_000, 1).status == "not trusted"


@pytest.mark.parametrize("kind", ["rounds", "tables"])
def test_intervals_and_warnings_say_that_the_model_is_of_noise_alone(kind):
    with pytest.warns(NoiseWarning, match="hides how many records there are"):
        learned = released(kind, 10, 1)
    assert learned.details["noise_hides"] == "how many records there are"
    interval = (
        learned.solution.interval("b") if kind == "rounds" else learned.couplings_interval(rng=1)
    )
    assert (interval["status"] == "not trusted").all()


def test_most_variables_must_stand_out_beside_the_number_of_records():
    seen, flat = np.array([900.0, 100.0]), np.full(200, 5.0)
    for counts, hidden in (
        ([seen, seen, flat], (2,)),
        ([seen, flat], (1,)),
        ([flat, flat, seen], (0, 1)),
    ):
        told = Signal.of(1_000.0, 5.0, [*counts, np.array([1_000.0])], [4.0] * (len(counts) + 1))
        assert told.knows_total
        assert told.hidden == hidden
        assert told.is_noise_alone == (2 * len(hidden) >= len(counts))
    assert "2 of 3" in Signal.of(1_000.0, 5.0, [flat, flat, seen], [4.0] * 3).details["noise_hides"]


def test_the_number_of_records_is_known_as_often_as_the_module_says():
    """Of 10,000 numbers each: none is known at five errors, all are at fifteen; one in 3e6 may err."""
    rng = np.random.default_rng(1)
    for records, known in ((0.0, 0), (5.0, 0), (15.0, 10_000)):
        noisy = 100 * (records + rng.normal(size=10_000))
        assert sum(Signal.of(each, 100.0, [], []).knows_total for each in noisy.tolist()) == known
    assert not Signal.of(1.0, 0.0, [], []).knows_total  # one record, exactly known
    even = [np.array([50.0, 50.0])]
    assert not Signal.of(
        100.0, 0.0, even, [8.0]
    ).knows_total  # public; by these counts its error is 11.3
    assert Signal.of(120.0, 0.0, even, [8.0]).knows_total
