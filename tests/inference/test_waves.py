"""Waves: releases of different people that share one model."""

from math import comb

import numpy as np
import pytest
from inference.conftest import noisy_release, simulated_counts, specification
from inference.posterior.drawn import formulation_on
from inference.posterior.engines import NormalEffects
from inference.posterior.enumeration import compositions
from inference.posterior.test_exact_effects import populations
from scipy.special import gammaln

from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference import CGM, LatentCounts, NaiveMLE, NoiseAwareMAP, gather
from bayesprivmrf.model import markov_chain
from bayesprivmrf.privacy import Gaussian, Laplace
from bayesprivmrf.release import NoisyStatistics

MODEL = specification({v: [0, 1, 2] for v in "abc"}, [("a", "b"), ("b", "c")])
SIZES = (3000, 900)


def waves_of(law, *, public=False):
    counts = [simulated_counts(MODEL, size, np.random.default_rng(1))[0] for size in SIZES]
    rng = np.random.default_rng(5)
    return counts, [
        noisy_release(MODEL, one, law, rng, total=size if public else None)
        for one, size in zip(counts, SIZES, strict=True)
    ]


@pytest.mark.parametrize("public", [False, True])
def test_the_evidence_of_waves_states_the_wave_and_the_scope_of_each_table(public):
    _, waves = waves_of(Laplace(4.0), public=public)
    evidence = gather(waves, population="waves")
    known = [evidence.table_at(position) for position in range(len(evidence.noise))]
    sizes = (
        [(None, (0,))] if public else []
    )  # the public numbers of records are the table of the waves
    assert known == [(1, (1, 2)), (1, (2, 3)), (2, (1, 2)), (2, (2, 3)), *sizes]
    assert [gather(waves[0]).table_at(position) for position in range(2)] == [
        (None, (0, 1)),
        (None, (1, 2)),
    ]


def test_the_naive_estimate_of_waves_is_that_of_their_summed_tables():
    """The product of the waves' likelihoods depends on the sum of their tables alone."""
    counts, waves = waves_of(Gaussian(1e-4))
    fitted = NaiveMLE(ridge=0.0).fit(waves, population="waves")
    pooled = noisy_release(MODEL, sum(counts), Gaussian(1e-4), np.random.default_rng(6))
    expected = NaiveMLE(ridge=0.0).fit(pooled)
    for clique in MODEL.cliques:
        gap = fitted.marginal(list(clique)) - expected.marginal(list(clique))
        assert abs(gap).max() < 1e-5
    assert fitted.marginal(["wave"]).to_numpy() == pytest.approx(
        np.array(SIZES) / sum(SIZES), abs=1e-5
    )
    assert fitted.stats["wave_totals"] == pytest.approx(SIZES, abs=0.01)


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize(
    "estimator", [NaiveMLE(), CGM(), NoiseAwareMAP()], ids=lambda each: each.method
)
def test_waves_share_one_model_and_differ_in_their_numbers(estimator, public):
    counts, waves = waves_of(Laplace(4.0), public=public)
    fitted = estimator.fit(waves, population="waves")
    shares = np.array(SIZES) / sum(SIZES)
    assert fitted.marginal("wave").to_numpy() == pytest.approx(shares, abs=1e-9 if public else 0.01)
    joint = fitted.marginal(["wave", "a", "b"]).to_numpy()
    assert joint == pytest.approx(np.multiply.outer(joint.sum((1, 2)), joint.sum(0)), abs=1e-12)
    assert joint.sum(0).ravel() == pytest.approx(sum(counts)[:9] / sum(SIZES), abs=0.02)


def test_intervals_of_waves_are_as_narrow_as_those_of_all_people_at_once():
    counts, waves = waves_of(Laplace(4.0))
    fitted = NoiseAwareMAP().fit(waves, population="waves").interval(["a", "b"])
    law = Gaussian(float(np.sqrt(2 * 2) * 4.0))  # of the sum of two draws of that noise
    pooled = noisy_release(MODEL, sum(counts), law, np.random.default_rng(6))
    expected = NoiseAwareMAP().fit(pooled).interval(["a", "b"])
    widths = [(one["upper"] - one["lower"]).to_numpy() for one in (fitted, expected)]
    assert np.median(widths[0] / widths[1]) == pytest.approx(1, abs=0.1)
    assert (fitted["note"] == "one model of all waves").all()


@pytest.mark.slow
def test_the_posterior_of_waves_is_the_sum_over_all_tables_of_each_wave():
    """Against the product of two sums, wave by wave, over draws of the prior; N = 5 is public, its parts are not."""
    total, model = 5, specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    values, law = [np.array([3.0, 0.0, 0.5, -1.0]), np.array([0.5, 1.0, -0.5, 2.0])], Laplace(1.0)
    waves = [
        NoisyStatistics.from_tables(model, {("a", "b"): v.reshape(2, 2)}, noise=law) for v in values
    ]
    formulation = NormalEffects(evidence=gather(waves, population="waves"), scale=1.0, total=total)
    prior = populations(formulation, 8000, 3).marginals[0].reshape(-1, 2, 4)
    share, p = prior.sum(2), prior.sum(1)
    assert prior == pytest.approx(share[:, :, np.newaxis] * p[:, np.newaxis], abs=1e-12)
    parts = np.zeros((2, total + 1, len(p)))
    firsts = np.zeros((2, total + 1, len(p)))  # the same, times the records of the first cell
    for wave, noisy in enumerate(values):
        for size in range(total + 1):
            tables = compositions(size, 4)
            ways = (
                gammaln(size + 1)
                - gammaln(tables + 1.0).sum(1)
                + law.log_density(noisy - tables).sum(1)
            )
            terms = np.exp(ways[:, np.newaxis] + tables @ np.log(p.T))
            parts[wave, size], firsts[wave, size] = terms.sum(0), tables[:, 0] @ terms
    weight, first, number = np.zeros(len(p)), np.zeros(len(p)), np.zeros(len(p))
    for size in range(total + 1):
        odds = comb(total, size) * share[:, 0] ** size * share[:, 1] ** (total - size)
        weight += odds * parts[0, size] * parts[1, total - size]
        first += odds * firsts[0, size] * parts[1, total - size]
        number += odds * size * parts[0, size] * parts[1, total - size]
    expected = [
        *(weight @ p / weight.sum()),
        first.sum() / weight.sum(),
        number.sum() / weight.sum(),
    ]
    drawn = formulation.sample(draws=4000, tune=300, chains=2, seed=1, time_limit=1e-9)
    finished = formulation.finish(drawn.draws, np.random.default_rng(0))
    found = finished.marginals.reshape(-1, 2, 4).sum(1)
    counts = finished.counts.reshape(-1, 2, 4)
    assert found.mean(0) == pytest.approx(expected[:4], abs=0.017)
    assert counts[:, 0, 0].mean() == pytest.approx(expected[4], abs=0.11)
    assert counts[:, 0].sum(1).mean() == pytest.approx(expected[5], abs=0.11)


@pytest.mark.slow
def test_the_posterior_of_waves_of_public_sizes_is_the_sum_over_all_tables_of_each_wave():
    """Against the product of two sums, of three and two people, over draws of the prior."""
    sizes, model = (3, 2), specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    values, law = [np.array([3.0, 0.0, 0.5, -1.0]), np.array([0.5, 1.0, -0.5, 2.0])], Laplace(1.0)
    waves = [
        NoisyStatistics.from_tables(model, {("a", "b"): v.reshape(2, 2)}, noise=law, total=size)
        for v, size in zip(values, sizes, strict=True)
    ]
    formulation = formulation_on(gather(waves, population="waves"), 10, scale=1.0)
    assert formulation.keeps_sums
    prior = populations(formulation, 10_000, 3).marginals[0].reshape(-1, 2, 4)
    share, p = prior.sum(2), prior.sum(1)
    parts, firsts = [], []
    for size, noisy in zip(sizes, values, strict=True):
        tables = compositions(size, 4)
        ways = (
            gammaln(size + 1)
            - gammaln(tables + 1.0).sum(1)
            + law.log_density(noisy - tables).sum(1)
        )
        terms = np.exp(ways[:, np.newaxis] + tables @ np.log(p.T))
        parts.append(terms.sum(0))
        firsts.append(tables[:, 0] @ terms)
    weight = share[:, 0] ** sizes[0] * share[:, 1] ** sizes[1] * parts[0] * parts[1]
    drawn = formulation.sample(draws=4000, tune=300, chains=2, seed=1, time_limit=1e-9)
    finished = formulation.finish(drawn.draws, np.random.default_rng(0))
    counts = finished.counts.reshape(-1, 2, 4)
    assert (counts.sum(2) == sizes).all()
    assert finished.marginals.reshape(-1, 2, 4).sum(1).mean(0) == pytest.approx(
        weight @ p / weight.sum(), abs=0.017
    )
    for wave in range(2):
        first = weight @ (firsts[wave] / parts[wave]) / weight.sum()
        assert counts[:, wave, 0].mean() == pytest.approx(first, abs=0.08)


@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.SamplingWarning"
)  # twenty draws are not mixed
def test_the_posterior_speaks_of_the_people_of_each_wave():
    model = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    tables = [np.array([[60, 20], [30, 10]]), np.array([[20, 8], [9, 5]])]
    waves = [
        NoisyStatistics.from_tables(model, {("a", "b"): t}, noise=Laplace(1.0)) for t in tables
    ]
    settings = {"rng": 1, "draws": 20, "tune": 20, "chains": 2}
    posterior = LatentCounts().fit(waves, population="waves", **settings)
    assert posterior.stats["formulation"] == "exact"
    people = posterior.interval(["wave", "a", "b"], of="records")
    assert people["estimate"].to_numpy() == pytest.approx(np.ravel(tables), abs=8)
    with pytest.raises(ModelError, match="relaxed"):
        _ = posterior.pymc_model


def test_waves_may_have_asked_different_questions():
    first = specification({v: [0, 1] for v in "ab"}, [("a", "b")])
    second = specification({v: [0, 1] for v in "cb"}, [("c", "b")])
    waves = [
        NoisyStatistics.from_tables(model, {model.cliques[0]: table}, noise=Laplace(2.0))
        for model, table in ((first, [[400, 100], [100, 400]]), (second, [[80, 20], [20, 80]]))
    ]
    with pytest.raises(ModelError, match="use CGM or NoiseAwareMAP"):
        NaiveMLE().fit(waves, population="waves")
    for estimator in (CGM(), NoiseAwareMAP()):
        fitted = estimator.fit(waves, population="waves")
        assert fitted.marginal(["a", "b"]).to_numpy().ravel() == pytest.approx(
            [0.4, 0.1, 0.1, 0.4], abs=0.03
        )
        assert fitted.marginal(["b", "c"]).to_numpy().ravel() == pytest.approx(
            [0.4, 0.1, 0.1, 0.4], abs=0.03
        )


def test_what_waves_cannot_be_is_refused_with_a_remedy():
    _, waves = waves_of(Laplace(4.0))
    with pytest.raises(ArgumentError, match="two releases or more"):
        NaiveMLE().fit(waves[:1], population="waves")
    with pytest.raises(ArgumentError, match="`population` must be"):
        NaiveMLE().fit(waves, population="two")
    with pytest.raises(ModelError, match="one population must agree on its size"):
        NaiveMLE().fit(waves)
    named = specification({"wave": [0, 1]}, [("wave",)])
    again = [
        NoisyStatistics.from_tables(named, {("wave",): [9, k]}, noise=Laplace(1.0)) for k in (3, 4)
    ]
    with pytest.raises(ModelError, match="rename it"):
        CGM().fit(again, population="waves")
    pairs = {("x1", "x2"): [[9, 1], [2, 8]], ("x2", "x3"): [[8, 1], [2, 9]]}
    for share in ("potentials", "transitions"):
        chain = markov_chain([0, 1], 3, share=share)
        tied = [
            NoisyStatistics.from_tables(chain, pairs, noise=law)
            for law in (Laplace(1.0), Laplace(2.0))
        ]
        with pytest.raises(ModelError, match="each wave apart"):
            NoiseAwareMAP().fit(tied, population="waves")
    with pytest.raises(ModelError, match="Leave out `formulation`"):
        LatentCounts(formulation="log-linear").fit(waves, population="waves")
