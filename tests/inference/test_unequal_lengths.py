"""Chains whose records end: what is declared, fitted and said of sequences of unequal length."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf import sequences
from bayesprivmrf.errors import ArgumentError, DataError, ModelError
from bayesprivmrf.mechanisms import ExactStatistics, LaplaceStatistics
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.model.chain import chain_of
from bayesprivmrf.privacy import Gaussian
from bayesprivmrf.release import Measurement

STATES, LENGTH = ["a", "b"], 5
TIMES = [f"x{t + 1}" for t in range(LENGTH)]
TRUTH = np.array([[0.6, 0.2, 0.2], [0.1, 0.6, 0.3], [0.0, 0.0, 1.0]])
SUMS = [q.pooled(list(pairwise(TIMES))), q.table("x1")]
START = np.array([0.6, 0.4, 0.0])


def declared(share="transitions"):
    return bpm.markov_chain(STATES, LENGTH, share=share, end="<end>")


def law_of_lengths():
    ended = [0.0]
    law = START
    for _ in range(LENGTH - 1):
        law = law @ TRUTH
        ended.append(law[2])
    return np.diff([*ended, 1.0])


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    codes = np.empty((4000, LENGTH), int)
    codes[:, 0] = rng.choice(3, len(codes), p=START)
    for t in range(1, LENGTH):
        codes[:, t] = (rng.random(len(codes))[:, None] > TRUTH.cumsum(axis=1)[codes[:, t - 1]]).sum(
            axis=1
        )
    return pd.DataFrame(np.array(["a", "b", None], dtype=object)[codes], columns=TIMES)


@pytest.fixture(scope="module")
def release(people):
    return LaplaceStatistics(epsilon=1.0, queries=SUMS, missing="<end>").release(
        declared(), people, rng=1
    )


@pytest.fixture(scope="module")
def solution(release):
    return bpm.NoiseAwareMAP().fit(release)


@pytest.mark.parametrize("share", ["potentials", "transitions"])
@pytest.mark.parametrize("order", [1, 2])
def test_nobody_begins_with_the_end_or_leaves_it(share, order):
    model = ModelSpecification.from_pgmpy(
        bpm.markov_chain(STATES, LENGTH, order, share, end="<end>")
    )
    assert chain_of(model).end == 2
    assert model.possible is not None
    first = model.possible[: model.offsets[1]].reshape(model.shapes[0])
    assert not first[2].any()
    ended = np.array([[0, 0, 0], [0, 0, 0], [1, 1, 0]], dtype=bool)
    second = model.possible[slice(*model.offsets[-2:])].reshape(model.shapes[-1])
    assert not second[..., ended].any()
    assert second[..., ~ended].any(axis=tuple(range(order - 1))).all()


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
@pytest.mark.parametrize("share", ["potentials", "transitions"])
@pytest.mark.parametrize("method", [bpm.NaiveMLE, bpm.NoiseAwareMAP])
def test_exact_sums_give_the_shares_of_the_records(people, share, method):
    """With the ends in the record the fit repeats the sums: steps taken and ends over times seen before the last."""
    exact = LaplaceStatistics(epsilon=100.0, queries=SUMS, missing="<end>").release(
        declared(share), people, rng=1
    )
    fit = method().fit(exact)
    if share == "transitions":
        codes = (
            people.apply(lambda column: column.map({"a": 0, "b": 1}))
            .fillna(2)
            .astype(int)
            .to_numpy()
        )
        counts = np.zeros((3, 3))
        for one, two in pairwise(codes.T):
            np.add.at(counts, (one, two), 1)
        expected = (counts / counts.sum(axis=1, keepdims=True))[:2].ravel()
        found = sequences.transition_matrix(fit)
        assert list(found.index) == [(i, j) for i in STATES for j in [*STATES, "<end>"]]
    else:
        found, expected = sequences.transition_matrix(fit, step=2), TRUTH[:2].ravel()
    assert np.abs(found["estimate"] - expected).max() < (0.002 if share == "transitions" else 0.05)


def test_lengths_follow_from_the_ends(solution, people):
    found = sequences.lengths(solution)
    assert list(found.index) == [1, 2, 3, 4, 5]
    assert found["estimate"].sum() == pytest.approx(1.0)
    assert ((found["lower"] <= law_of_lengths()) & (law_of_lengths() <= found["upper"])).all()
    ended = solution.marginal("x3").sel(x3="<end>")
    assert float(ended) == pytest.approx(found["estimate"][:2].sum())


def test_laws_and_times_are_those_of_going_on(solution):
    matrix = (
        sequences.transition_matrix(solution)["estimate"].unstack()[["a", "b", "<end>"]].loc[STATES]
    )
    going = matrix[STATES].div(1 - matrix["<end>"], axis=0).to_numpy()
    law = sequences.stationary_law(solution)["estimate"]
    assert law.to_numpy() @ going == pytest.approx(law.to_numpy())
    assert sequences.hitting_times(solution, "b")["estimate"]["a"] == pytest.approx(1 / going[0, 1])
    assert sequences.sojourn_times(solution)["estimate"].to_numpy() == pytest.approx(
        1 / (1 - np.diag(going))
    )
    with pytest.raises(ArgumentError, match="`lengths` says when"):
        sequences.hitting_times(solution, "<end>")


def test_a_chain_of_order_two_that_ends_has_rows_for_pairs_that_go_on(people):
    network = bpm.markov_chain(STATES, LENGTH, 2, "transitions", end="<end>")
    windows = [tuple(TIMES[t : t + 3]) for t in range(LENGTH - 2)]
    queries = [q.pooled(windows), q.table("x1", "x2")]
    release = LaplaceStatistics(epsilon=100.0, queries=queries, missing="<end>").release(
        network, people, rng=1
    )
    solution = bpm.NoiseAwareMAP().fit(release)
    found = sequences.transition_matrix(solution)
    assert list(found.index) == [
        (i, j, k) for i in STATES for j in STATES for k in [*STATES, "<end>"]
    ]
    assert np.abs(found["estimate"].to_numpy().reshape(2, 2, 3) - TRUTH[:2]).max() < 0.06
    assert sequences.lengths(solution)["estimate"].to_numpy() == pytest.approx(
        law_of_lengths(), abs=0.03
    )
    law = sequences.stationary_law(solution)["estimate"]
    assert list(law.index) == STATES
    assert law.sum() == pytest.approx(1.0)


def test_bounds_of_lengths_are_as_wide_as_repeated_releases_vary(solution):
    rng, found = np.random.default_rng(5), []
    rows = solution.mode.rows
    draws = rng.multivariate_normal(np.zeros(rows.size), solution.mode.covariance, 4000)
    ended = rows.forward(*rows.shifted(solution.mode.coordinates, draws))
    model, last = solution.specification, rows.chain.cliques[-1]
    tables = ended[:, slice(*model.offsets[last : last + 2])].reshape(-1, 3, 3)
    found = 1 - tables.sum(axis=1)[:, 2]
    told = sequences.lengths(solution, prob=0.9).loc[5]
    assert found.std() * 2 * 1.645 == pytest.approx(told["upper"] - told["lower"], rel=0.06)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")  # few draws
def test_the_posterior_of_a_chain_that_ends_says_the_same(release):
    posterior = bpm.LatentCounts().fit(
        release, rng=1, draws=150, tune=150, chains=2, time_limit=1e-9
    )
    found = sequences.transition_matrix(posterior, prob=0.999)
    assert ((found["lower"] <= TRUTH[:2].ravel()) & (TRUTH[:2].ravel() <= found["upper"])).all()
    ends = sequences.lengths(posterior, prob=0.999)
    assert ((ends["lower"] <= law_of_lengths()) & (law_of_lengths() <= ends["upper"])).all()
    assert posterior.interval(["x1"], of="records")["estimate"]["<end>"] == 0


def test_a_saved_release_keeps_the_end(release, tmp_path):
    release.save(tmp_path / "a.release", allow_unprotected=True)
    loaded = bpm.load_release(tmp_path / "a.release")
    assert loaded.specification == release.specification
    assert chain_of(loaded.specification).end == 2


def test_a_gap_inside_a_sequence_is_refused_and_nothing_is_spent(people):
    gap = people.copy()
    gap.loc[0, TIMES] = ["a", None, "a", "a", "a"]
    empty = people.copy()
    empty.loc[0, TIMES] = None
    for frame in (gap, empty):
        with pytest.raises(DataError, match="no sequence may begin with it or continue after it"):
            ExactStatistics(missing="<end>").release(declared(), frame)


def test_what_has_no_end_is_told_so():
    with pytest.raises(ArgumentError, match="`end` must differ from `states`"):
        bpm.markov_chain(STATES, 4, end="a")
    plain = bpm.markov_chain(STATES, LENGTH, share="transitions")
    exact = bpm.NaiveMLE().fit(
        bpm.NoisyStatistics.from_measurements(
            plain,
            [
                Measurement(q.table(f"x{t}", f"x{t + 1}"), np.full(4, 25), Gaussian(1.0))
                for t in range(1, LENGTH)
            ],
        )
    )
    with pytest.raises(ModelError, match="one length"):
        sequences.lengths(exact)
