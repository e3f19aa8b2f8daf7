"""Counts within bounds in the exact sampler of one table: against the sum over all tables, and at their level."""

import numpy as np
import pytest
from inference.conftest import specification
from inference.posterior.engines import TableEngine
from inference.posterior.test_exact_table import enumerated

from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ModelError, PrivacyError
from bayesprivmrf.inference import CGM, LatentCounts, NaiveMLE, NoiseAwareMAP, gather
from bayesprivmrf.noise import Within
from bayesprivmrf.privacy import (
    Adjacency,
    DiscreteGaussian,
    DiscreteLaplace,
    NoNoise,
    PrivacyGuarantee,
)
from bayesprivmrf.release import Measurement, NoisyStatistics, load_release

PAIR = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
COUNT = q.coarsened("a", groups={"a": {"all": [0, 1]}})


def of(query, bounds, base=None):
    value, law = Within.between(*bounds, base)
    return Measurement(query, np.full(len(query.bind(PAIR)), value), law)


def cell(place):
    return q.weighted("a", "b", matrix=[[float(place == k) for k in range(4)]])


NOISY = Measurement(q.table("b"), np.array([8.0, 7.0]), DiscreteLaplace(2.0))
CASES = {
    "withheld after Laplace noise": [of(q.table("a", "b"), (0, 4), DiscreteLaplace(1.5)), NOISY],
    "withheld after normal noise": [of(q.table("a"), (0, 6), DiscreteGaussian(2.0)), NOISY],
    "cells and a sum, without noise": [
        of(cell(0), (0, 3)),
        of(cell(3), (2, 5)),
        of(q.table("a"), (5, 9)),
        NOISY,
    ],
    "exact cells beside a withheld one": [
        Measurement(cell(0), np.array([6.0]), NoNoise()),
        of(cell(1), (0, 4)),
        Measurement(COUNT, np.array([15.0]), DiscreteGaussian(2.0)),
    ],
}


@pytest.mark.parametrize(
    ("case", "is_private", "draws"),
    [
        ("withheld after Laplace noise", True, 240),  # a move sums over the noise of a few cells
        (
            "withheld after normal noise",
            False,
            400,
        ),  # bounds after noise are terms of the density: N is nothing to them
        ("cells and a sum, without noise", False, 400),
        pytest.param("cells and a sum, without noise", True, 550, marks=pytest.mark.slow),
        ("exact cells beside a withheld one", True, 400),
    ],
)
def test_counts_are_those_of_the_sum_over_all_tables(case, is_private, draws):
    """Means within four standard errors of draws of which two thirds are worth as much as independent ones."""
    given = NoisyStatistics.from_measurements(PAIR, CASES[case], total=None if is_private else 15)
    evidence = gather(given, takes_bounds=True)
    mean, sd = enumerated(evidence, 0.4, range(6, 31) if is_private else [15])
    known = {"total_range": (6, 30)} if is_private else {"total": 15}
    formulation = TableEngine(evidence=evidence, concentration=0.4, **known)
    assert formulation.other is None  # relaxed counts do not keep bounds
    drawn = formulation.sample(draws=draws, tune=40, chains=2, seed=1, time_limit=0.0)
    finished = formulation.finish(drawn.draws, np.random.default_rng(0))
    found = np.column_stack([finished.counts.reshape(-1, 4), finished.total.reshape(-1)])
    varies = sd > 1e-9
    error = 1 / np.sqrt(2 * draws * 2 / 3)
    assert np.abs((found.mean(axis=0) - mean)[varies] / sd[varies]).max() < 4 * error
    # the standard error of a deviation is that of a mean over the square root of two, where tails are normal
    assert found.std(axis=0)[varies] == pytest.approx(sd[varies], rel=3.5 * error)
    np.testing.assert_allclose(found[:, ~varies] - mean[~varies], 0.0, atol=1e-6)


@pytest.mark.slow
def test_intervals_of_withheld_counts_hold_them_at_their_level():
    """Tables from the prior, counts below 10 withheld after noise: 90 % intervals of them, at a level of 1e-4.

    Quantiles of 100 draws hold 88.2 % of what is drawn as they are, which the tolerance counts.
    """
    rng, held, number = np.random.default_rng(4), 0, 0
    base, model = DiscreteLaplace(2.0), specification({"a": list(range(8))}, [("a",)])
    for trial in range(14):
        truth = rng.multinomial(120, rng.dirichlet(np.full(8, 0.7)))
        noisy = truth + base.draw(8, rng)
        pairs = [
            (float(value), base) if value >= 10 else Within.between(-40, 9, base) for value in noisy
        ]
        values, laws = np.array([value for value, _ in pairs]), np.empty(8, dtype=object)
        laws[:] = [law for _, law in pairs]
        given = NoisyStatistics.from_tables(model, {"a": values}, noise={"a": laws}, total=120)
        evidence = gather(given, takes_bounds=True)
        formulation = TableEngine(evidence=evidence, concentration=0.7, total=120)
        drawn = formulation.sample(draws=100, tune=20, chains=1, seed=trial, time_limit=0.0)
        counts = np.asarray(drawn.draws["counts"]).reshape(-1, 8) + rng.uniform(-0.5, 0.5, (100, 8))
        lower, upper = np.quantile(counts, [0.05, 0.95], axis=0)
        shaken, is_withheld = truth + rng.uniform(-0.5, 0.5, 8), noisy < 10
        held += int(((lower <= shaken) & (shaken <= upper))[is_withheld].sum())
        number += int(is_withheld.sum())
    assert number > 45
    assert abs(held - 0.9 * number) < 3.9 * np.sqrt(0.09 * number) + 0.02 * number


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
def test_a_posterior_of_withheld_counts_is_fitted_and_saved(tmp_path):
    given = NoisyStatistics.from_measurements(PAIR, CASES["exact cells beside a withheld one"])
    with pytest.raises(PrivacyError, match="allow_unprotected"):
        given.save(tmp_path / "bounds.release")
    given.save(tmp_path / "bounds.release", allow_unprotected=True)
    read = load_release(tmp_path / "bounds.release")
    assert read == given
    posterior = LatentCounts().fit(read, rng=1, draws=100, tune=50, chains=2, time_limit=1e-9)
    counts = posterior.tree["posterior"]["counts[a,b]"].to_numpy()
    assert (counts[..., 0, 0] == 6).all()
    assert counts[..., 0, 1].max() <= 4
    assert posterior.interval(["a", "b"], of="records").loc[(0, 0), "lower"] == 6
    assert len(posterior.predictive_check()) == 1  # of what has noise
    with pytest.raises(ModelError, match="PyMC relaxes the counts"):
        posterior.pymc_model  # noqa: B018


def test_bounds_tell_no_number_of_records():
    given = [of(q.table("a", "b"), (0, 9), DiscreteLaplace(1.0))]
    alone = NoisyStatistics.from_measurements(PAIR, given)
    assert np.isinf(alone.total_standard_error)
    with pytest.raises(ModelError, match="counts within bounds do not tell it"):
        gather(alone, takes_bounds=True)
    told = NoisyStatistics.from_measurements(PAIR, [*given, NOISY])
    assert (told.estimated_total, told.total_standard_error) == (
        NoisyStatistics.from_measurements(PAIR, [NOISY]).estimated_total,
        NoisyStatistics.from_measurements(PAIR, [NOISY]).total_standard_error,
    )


@pytest.mark.parametrize(
    "estimator", [NaiveMLE(), CGM(), NoiseAwareMAP()], ids=lambda each: each.method
)
def test_estimators_that_weigh_by_variance_refuse_counts_within_bounds(estimator):
    given = NoisyStatistics.from_measurements(PAIR, CASES["withheld after Laplace noise"])
    with pytest.raises(ArgumentError, match="use LatentCounts"):
        estimator.fit(given)


@pytest.mark.parametrize("formulation", ["hyper-dirichlet", "log-linear"])
def test_relaxed_counts_are_refused(formulation):
    given = NoisyStatistics.from_measurements(PAIR, CASES["withheld after Laplace noise"])
    with pytest.raises(ArgumentError, match="formulation='exact'"):
        LatentCounts(formulation=formulation).fit(given)


def test_bounds_that_the_sampler_could_not_move_in_or_that_contradict_are_refused():
    diagonal = of(q.weighted("a", "b", matrix=[[0, 1, 1, 0]]), (5, 9))
    crossed = [of(q.table("a"), (5, 9)), of(q.table("b"), (5, 9)), diagonal]
    signed = [of(q.weighted("a", "b", matrix=[[1, -1, 0, 0]]), (0, 4))]
    for given in (crossed, signed):
        with pytest.raises(ModelError, match="nested or disjoint"):
            LatentCounts().fit(NoisyStatistics.from_measurements(PAIR, given, total=15), rng=1)
    empty = [of(cell(0), (4, 9)), of(cell(1), (4, 9)), of(q.table("a"), (0, 7))]
    with pytest.raises(ModelError, match="contradict each other"):
        LatentCounts().fit(NoisyStatistics.from_measurements(PAIR, empty, total=15), rng=1)


def test_bounds_without_noise_have_no_guarantee():
    promise = PrivacyGuarantee(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)
    given = [of(q.table("a"), (0, 9))]
    with pytest.raises(PrivacyError, match="must be None where a rule does not hide the count"):
        NoisyStatistics.from_measurements(PAIR, given, total=15, guarantee=promise)
    noisy = [of(q.table("a"), (0, 9), DiscreteLaplace(2.0))]
    assert not NoisyStatistics.from_measurements(PAIR, noisy, total=15, guarantee=promise).is_exact
