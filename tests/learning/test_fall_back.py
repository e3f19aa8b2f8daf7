"""What `SelectMeasure` with a degree releases where its fit fails: a smaller model, which says what it is."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import ModelError, NoiseWarning
from bayesprivmrf.inference import Status
from bayesprivmrf.inference.loglinear_fit import PairFit
from bayesprivmrf.learning.select_measure import MergeRule, NoisyTable, PairTargets, fall_back
from bayesprivmrf.learning.select_measure.round_fit import effect_precision
from bayesprivmrf.mechanisms import SelectMeasure
from bayesprivmrf.model import Effects, contrasts

STATES = 30

FALLBACK = "fallen_back"


def frame(records: int, seed: int) -> pd.DataFrame:
    """A chain of three variables of thirty states, of which a dozen are held, and one of two."""
    rng = np.random.default_rng(seed)
    columns = [np.minimum(rng.geometric(0.5, records) - 1, STATES - 1)]
    for share in (0.7, 0.6):
        others = np.minimum(rng.geometric(0.4, records) - 1, STATES - 1)
        columns.append(np.where(rng.random(records) < share, columns[-1], others))
    columns.append((columns[0] + (rng.random(records) < 0.2)) % 2)
    return pd.DataFrame(dict(zip("abcd", columns, strict=True)))


@cache
def released(records: int = 5_000, rho: float = 0.05, seed: int = 1) -> Any:
    network = bpm.declare(states={name: range(2 if name == "d" else STATES) for name in "abcd"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        return SelectMeasure(rho=rho, degree=2).release(network, frame(records, seed), rng=seed)


def off(learned, data: pd.DataFrame) -> tuple[float, float]:
    """Mean total variation of the pairs' tables from the records', of the model and of independent columns."""
    found = []
    for a, b in ("ab", "bc", "ac", "ad"):
        true = pd.crosstab(data[a], data[b], normalize=True)
        true = true.reindex(
            index=range(STATES), columns=range(2 if b == "d" else STATES), fill_value=0
        )
        alone = np.multiply.outer(true.sum(axis=1).to_numpy(), true.sum(axis=0).to_numpy())
        model = learned.solution.marginal([a, b]).to_numpy()
        found.append([np.abs(true.to_numpy() - other).sum() / 2 for other in (model, alone)])
    return tuple(np.mean(found, axis=0))


def test_a_fit_that_fails_falls_back_on_merged_states_and_is_nearer_than_independent_columns():
    learned = released()
    assert learned.status == "stopped early"
    assert learned.details[FALLBACK] == "65 rare states merged"
    assert (
        np.abs(learned.coupling_matrix).max() < 10
    )  # nats; the search that failed had no such bound
    model, alone = off(learned, frame(5_000, 1))
    assert model < 0.5 * alone


def test_a_warning_names_the_model_that_stands_in():
    network = bpm.declare(states={name: range(2 if name == "d" else STATES) for name in "abcd"})
    with pytest.warns(NoiseWarning, match="a smaller model replaces it: 65 rare states merged"):
        SelectMeasure(rho=0.05, degree=2).release(network, frame(5_000, 1), rng=1)


def test_a_fit_of_noise_alone_is_no_other_than_before():
    learned = released(records=10)
    assert learned.status == "not trusted"
    assert FALLBACK not in learned.details


def test_a_model_that_stands_in_has_no_intervals_of_couplings_and_says_where_those_of_tables_are(
    tmp_path,
):
    learned = released()
    with pytest.raises(
        ModelError, match=r"fell back \(65 rare states merged\); take `learned.interval"
    ):
        learned.couplings_interval()
    learned.save(tmp_path / "one.release")
    again = bpm.load_release(tmp_path / "one.release")
    assert again.details[FALLBACK] == learned.details[FALLBACK]
    assert (
        "stopped early: the fit of all pairs failed, and the model is a smaller one (65 rare"
        in str(again)
    )


@pytest.mark.slow
def test_the_remedy_that_is_named_has_intervals_of_tables():
    tables = released().interval(["a", "d"])
    assert (tables["lower"] <= tables["upper"]).to_numpy().all()


def merged_in(learned: Any, variable: str, other: str) -> list[list[int]]:
    """States of a variable that share their potentials with another state, by their couplings with another one."""
    table = learned.couplings[(variable, other)].round(9)
    groups: dict[tuple[float, ...], list[int]] = {}
    for state, row in enumerate(np.asarray(table)):
        groups.setdefault(tuple(row), []).append(state)
    return [group for group in groups.values() if len(group) > 1]


def test_a_fallen_back_model_merges_neighbors_of_an_order_and_no_missing_state(tmp_path):
    shuffled = frame(5_000, 1)
    for name in "abc":
        shuffled[name] = shuffled[name].to_numpy() * 11 % STATES  # rare states between common ones
    missing = 13  # a state that nobody has
    answers = [state for state in range(STATES) if state != missing]

    def are_neighbors(group: list[int]) -> bool:
        places = [answers.index(state) for state in group]
        return places == list(range(places[0], places[-1] + 1))

    states = {name: range(2 if name == "d" else STATES) for name in "abcd"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        mechanism = SelectMeasure(rho=0.05, degree=2, missing={"a": missing, "b": missing})
        learned = mechanism.release(bpm.declare(states=states, ordinal=["a"]), shuffled, rng=1)
    assert "rare states merged" in learned.details[FALLBACK]
    ordered, free = merged_in(learned, "a", "b"), merged_in(learned, "b", "a")
    assert ordered
    assert free
    assert not any(missing in group for group in ordered + free)
    assert all(map(are_neighbors, ordered))
    assert not all(map(are_neighbors, free))
    learned.save(tmp_path / "a.release")
    assert bpm.load_release(tmp_path / "a.release").map.as_dict() == learned.map.as_dict()
    assert learned.map.plan.rules[0] == MergeRule(is_ordered=True, apart=(missing,))


def targets_of(seed: int = 1, noise: float = 0.0, total: float = 1_000.0) -> PairTargets:
    """Means of three variables, of six states with a rare end, of five, and of two; all three pairs."""
    rng, cards = np.random.default_rng(seed), (6, 5, 2)
    shares = np.array([0.5, 0.3, 0.197, 0.001, 0.001, 0.001])
    table = shares[:, None, None] * rng.dirichlet(np.ones(10), size=6).reshape(6, 5, 2)
    pairs = [(0, 1), (0, 2), (1, 2)]
    joint = [table.sum(axis=({0, 1, 2} - set(pair)).pop()) for pair in pairs]
    alone = [table.sum(axis=tuple({0, 1, 2} - {v})) for v in range(3)]
    return PairTargets(
        cardinalities=cards,
        total=total,
        total_variance=0.0,
        pairs=np.array(pairs),
        candidates=3,
        single=[contrasts(k).T @ one for k, one in zip(cards, alone, strict=True)],
        single_noise=np.full(3, 25.0 / total**2),
        pair=[
            contrasts(cards[i]).T @ both @ contrasts(cards[j])
            + rng.normal(0, noise, (cards[i] - 1, cards[j] - 1))
            for (i, j), both in zip(pairs, joint, strict=True)
        ],
        pair_noise=max(noise, 1e-3) ** 2,
    )


def test_the_noise_of_merged_means_is_that_of_the_sums():
    """The variance of every effect of a pair's table whose cells differ in noise."""
    variance = np.random.default_rng(1).uniform(1.0, 5.0, (3, 4))
    table = NoisyTable(scope=(0, 1), values=np.zeros((3, 4)), variance=variance)
    rows, columns, even = contrasts(3) ** 2, contrasts(4) ** 2, [np.ones((k, 1)) for k in (3, 4)]
    for subset, left, right in (
        ((0,), rows, even[1]),
        ((1,), even[0], columns),
        ((0, 1), rows, columns),
    ):
        precision = effect_precision((3, 4), [table], subset)
        np.testing.assert_allclose(1 / precision, (left.T @ variance @ right).ravel())


def made(status: str, pairs: int = 0) -> PairFit:
    effects = Effects.of((6, 5, 2), ((0,), (1,), (2,)))
    return PairFit(
        effects=effects,
        coordinates=np.zeros(effects.size),
        inference="exact",
        status=Status(status),
        details={"pairs": pairs},
    )


@pytest.mark.parametrize(("largest", "said"), [(1, "1 of 3 pairs"), (0, "single variables alone")])
def test_the_pairs_that_stand_out_most_are_kept_if_merging_does_not_do(largest, said):
    targets = targets_of(noise=1e-3)
    assert targets.standing_out().all()
    asked = []

    def fit_of(part: np.ndarray) -> PairFit:
        asked.append(part)
        return made("converged" if part.sum() <= largest else "not trusted", int(part.sum()))

    found = fall_back(targets, made("not trusted"), fit_of, lambda *_: made("not trusted"))
    assert (found.status, found.details[FALLBACK]) == ("stopped early", said)
    assert found.details["pairs"] == asked[-1].sum() == largest
    assert asked[0].argmax() == targets.statistics().argmax()


def test_the_first_fit_stays_if_no_smaller_one_is_trusted():
    failed = made("not trusted")
    found = fall_back(
        targets_of(), failed, lambda _: made("not trusted"), lambda *_: made("not trusted")
    )
    assert found is failed


def test_two_states_are_not_merged():
    targets = targets_of()
    two = replace(
        targets, cardinalities=(2, 2, 2), single=[np.array([0.7])] * 3, pair=[np.zeros((1, 1))] * 3
    )
    failed = made("not trusted")
    assert fall_back(two, failed, lambda _: failed, lambda *_: made("converged")) is failed
