"""Quick intervals of queries' answers, against intervals of variables and numerical derivatives."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from inference.conftest import (
    noisy_release,
    probabilities,
    simulated_counts,
    specification,
    tables_of,
)
from scipy.stats import norm

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference import NoiseAwareMAP
from bayesprivmrf.inference.noise_aware.interval import coordinate_covariance
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.privacy import DiscreteLaplace, Laplace

CYCLE = specification(
    {"b": [2, 0, 1], 0: ["y", "x"], "a": [2, 0, 1], "d": [2, 0, 1], "alone": [1], "e": [0, 1]},
    [("a", "b"), ("b", 0), (0, "d"), ("d", "a"), ("alone",), ("e",)],
)
POOLED = q.pooled([("a", "b"), ("d", "a")])
QUERIES = {
    "coarsened": q.coarsened("a", "b", groups={"a": {"low": [0, 1], "high": [2]}}),
    "signed": q.weighted("b", 0, matrix=[[3, -1, 0, 2, 0, -2], [0, 1, 1, 0, 0, 0]]),
    "parities": q.parities(2),
    "pooled": POOLED,
}

NUMBERS = ["estimate", "lower", "upper"]


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(3)
    counts, _ = simulated_counts(CYCLE, 3_000, rng, scale=0.6)
    return NoiseAwareMAP().fit(noisy_release(CYCLE, counts, Laplace(3.0), rng))


@pytest.mark.parametrize("scope", [("a", "b"), ("b", "a"), (0,), ("alone",)])
def test_a_table_has_the_intervals_of_its_variables(fitted, scope):
    asked, known = fitted.interval(q.table(*scope)), fitted.interval(list(scope))
    assert asked[NUMBERS].to_numpy() == pytest.approx(
        known[NUMBERS].to_numpy(), rel=1e-9, abs=1e-12
    )
    assert asked.index.name == "answer"
    assert (
        asked[["status", "note"]].to_numpy().tolist()
        == known[["status", "note"]].to_numpy().tolist()
    )


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_an_answer_moves_as_its_numerical_derivative_says(fitted, query):
    mode, bound, step = fitted.mode, query.bind(CYCLE), 1e-5

    def answers(coordinates):
        return bound.answers(
            mode.means.engine.linearize(mode.means.evidence.family.potentials(coordinates))[1]
        )

    moves = step * np.eye(mode.coordinates.size)
    slopes = np.array(
        [answers(mode.coordinates + m) - answers(mode.coordinates - m) for m in moves]
    ) / (2 * step)
    deviations = np.sqrt(np.einsum("ki,kl,li->i", slopes, coordinate_covariance(mode), slopes))
    frame = fitted.interval(query, prob=0.8)
    estimate = frame["estimate"].to_numpy()
    assert estimate == pytest.approx(answers(mode.coordinates))
    columns = [block.toarray() for block in bound.blocks]
    least, most = (sum(f(block, axis=1) for block in columns) for f in (np.min, np.max))
    is_free = (estimate > least) & (estimate < most)
    below, above = (estimate - least)[is_free], (most - estimate)[is_free]
    place, slope = np.log(below / above), (below + above) / (below * above)
    for name, sign, farther in (("lower", -1, np.minimum), ("upper", 1, np.maximum)):
        reach = sign * norm.ppf(0.9) * deviations[is_free]
        bent = place + slope * reach
        on_log_odds = least[is_free] + (most - least)[is_free] / (1 + np.exp(-bent))
        on_own_scale = np.clip(estimate[is_free] + reach, least[is_free], most[is_free])
        expected = farther(on_log_odds, on_own_scale)
        assert frame[name][is_free].to_numpy() == pytest.approx(expected, rel=1e-5)


def test_what_every_record_answers_alike_is_known(fitted):
    frame = fitted.interval(
        q.weighted("a", matrix=[[1, 1, 1], [0, 1, 2]], labels=["records", "mean"])
    )
    assert frame.loc["records", NUMBERS].to_numpy(float) == pytest.approx([1, 1, 1])
    assert 0 < frame["lower"]["mean"] < frame["estimate"]["mean"] < frame["upper"]["mean"] < 2


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_large_models_have_the_sampling_of_a_model_without_constraints(fitted, query):
    """Never below that of the model: a record's own variance over N, beside the same noise."""
    large = replace(fitted, mode=replace(fitted.mode, curvature=SimpleNamespace(formed=None)))
    asked, known = large.interval(query), fitted.interval(query)
    is_free = (known["upper"] > known["lower"]).to_numpy()
    ratio = np.ptp(asked[["lower", "upper"]].to_numpy()[is_free], axis=1)
    ratio /= np.ptp(known[["lower", "upper"]].to_numpy()[is_free], axis=1)
    assert (ratio > 0.995).all()
    assert (ratio < 1.1).all()


def test_loopy_inference_answers_as_exact_inference_does_on_a_tree():
    tree = specification({"a": [0, 1], "b": [2, 0, 1], "c": [0, 1]}, [("a", "b"), ("b", "c")])
    rng = np.random.default_rng(4)
    release = noisy_release(
        tree, simulated_counts(tree, 2_000, rng, scale=0.6)[0], Laplace(8.0), rng
    )
    fits = (NoiseAwareMAP(inference=name).fit(release) for name in ("exact", "loopy"))
    exact, loopy = (fit.interval(q.parities(2))[NUMBERS].to_numpy() for fit in fits)
    assert loopy == pytest.approx(exact, abs=2e-3)


def test_what_cannot_be_asked_is_refused_with_the_remedy(fitted):
    with pytest.raises(ArgumentError, match="`given` must be for variables, got a query"):
        fitted.interval(POOLED, given={"e": 1})
    with pytest.raises(ModelError, match=r"the declared variables are .*\.$") as unknown:
        fitted.interval(q.table("zz"))
    assert "together" not in str(unknown.value)
    apart = fitted.interval(q.table("a", "e"))
    np.testing.assert_allclose(apart[NUMBERS], fitted.interval(["a", "e"])[NUMBERS], atol=1e-9)


def test_answers_rest_on_what_their_tables_rest_on():
    model = specification({key: [0, 1] for key in "abc"}, [("a", "b"), ("b", "c")])
    rng = np.random.default_rng(0)
    counts, _ = simulated_counts(model, 500, rng)
    waves = [noisy_release(model, counts, Laplace(2.0), rng) for _ in range(2)]
    fit = NoiseAwareMAP().fit(waves, population="waves")
    asked, known = fit.interval(q.table("a", "b")), fit.interval(["a", "b"])
    assert asked["note"].tolist() == known["note"].tolist()
    assert known["note"].str.contains("one model of all waves").all()


def test_a_chain_of_one_transition_matrix_answers_too():
    network = bpm.markov_chain(range(3), 5, share="transitions")
    steps, rng = list(network.nodes), np.random.default_rng(8)
    matrix = np.array([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    paths = [rng.integers(3, size=4_000)]
    for _ in steps[1:]:
        paths.append((rng.random(4_000)[:, None] > matrix.cumsum(axis=1)[paths[-1]]).sum(axis=1))
    people = pd.DataFrame(dict(zip(steps, paths, strict=True)))
    release = LaplaceStatistics(epsilon=1.0).release(network, people, rng=1)
    fit = NoiseAwareMAP().fit(release)
    pairs = list(pairwise(steps))
    one, known = fit.interval(q.table(*pairs[1])), fit.interval(list(pairs[1]))
    assert one[NUMBERS].to_numpy() == pytest.approx(known[NUMBERS].to_numpy(), rel=1e-9)
    pooled = fit.interval(q.pooled(pairs))
    assert pooled["estimate"].to_numpy() == pytest.approx(
        sum(fit.marginal(list(pair)).values.ravel() for pair in pairs)
    )
    widths = [
        np.ptp(fit.interval(list(pair))[["lower", "upper"]].to_numpy(), axis=1) for pair in pairs
    ]
    assert (np.ptp(pooled[["lower", "upper"]].to_numpy(), axis=1) < sum(widths) + 1e-12).all()


@pytest.mark.slow
def test_intervals_of_pooled_and_signed_answers_hold_nearly_what_they_say():
    rng, hits = np.random.default_rng(29), []
    bounds = [POOLED.bind(CYCLE), QUERIES["signed"].bind(CYCLE)]
    for _ in range(80):
        counts, potentials = simulated_counts(CYCLE, 5_000, rng, scale=0.6)
        truth = tables_of(CYCLE, probabilities(CYCLE, potentials))
        fit = NoiseAwareMAP().fit(noisy_release(CYCLE, counts, DiscreteLaplace(10.0), rng))
        for bound in bounds:
            frame, answers = fit.interval(bound.query), bound.answers(np.asarray(truth))
            hits.append(((frame["lower"] <= answers) & (answers <= frame["upper"])).mean())
    # four standard errors, clustered by release, and the five points by which intervals are known to be short
    assert np.mean(hits) > 0.9 - 0.05 - 4 * np.std(hits) / 80**0.5
    assert np.mean(hits) < 0.98
