"""Likelihoods that are no added noise: a rule from outside, in every estimator, against simulation and enumeration.

The rule is `Thinned`: each person was dropped with a probability, so that a number is binomial given the count. It is
all that a third party writes; see docs/developer/own-likelihood.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from inference.posterior.engines import NormalEffects, Rows, TableEngine
from inference.posterior.enumeration import (
    compositions,
    exact_posterior,
    log_dirichlet_multinomial,
)
from scipy import stats

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf import sequences
from bayesprivmrf.audit import audit_noise
from bayesprivmrf.cli import main
from bayesprivmrf.errors import (
    ArgumentError,
    ConsistencyWarning,
    ModelError,
    PrivacyError,
    ReleaseFileError,
)
from bayesprivmrf.inference import Status, gather
from bayesprivmrf.model import ModelSpecification
from bayesprivmrf.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Likelihood,
    NoNoise,
    Within,
    noise_from_dict,
)
from bayesprivmrf.privacy import PrivacyGuarantee


@dataclass(frozen=True)
class Thinned(Likelihood):
    """Number of people who are left if each of n is kept with the same probability: binomial."""

    kept: float

    name: ClassVar[str] = "test-thinned"

    def log_probability(self, published, counts):
        return stats.binom.logpmf(published, counts, self.kept)

    def draw_given(self, counts, rng):
        return rng.binomial(np.asarray(counts, dtype=np.int64), self.kept)

    def mean_given(self, counts):
        return self.kept * np.asarray(counts, dtype=float)

    def variance_given(self, counts):
        return self.kept * (1 - self.kept) * np.asarray(counts, dtype=float)

    def allowed(self, published):
        lowest = np.asarray(published, dtype=float)
        return lowest, np.where(lowest >= 0, np.inf, -np.inf)


@dataclass(frozen=True)
class Capped(Likelihood):
    """A count, published as the largest number where it is above it: its mean stands still from there on."""

    largest: int

    name: ClassVar[str] = "test-capped"

    def log_probability(self, published, counts):
        with np.errstate(divide="ignore"):
            return np.log(np.equal(np.minimum(counts, self.largest), published).astype(float))

    def draw_given(self, counts, rng):
        return np.minimum(counts, self.largest)

    def mean_given(self, counts):
        return np.minimum(np.asarray(counts, dtype=float), self.largest)

    def variance_given(self, counts):
        return np.zeros(np.shape(counts))

    def allowed(self, published):
        lowest = np.asarray(published, dtype=float)
        return lowest, np.where(lowest < self.largest, lowest, np.inf)


RULE = Thinned(0.9)
NETWORK = bpm.declare(
    states={"a": ["x", "y"], "b": ["p", "q", "r"], "c": ["u", "v"]},
    cliques=[("a", "b"), ("b", "c")],
)
# of a and b; and of c given b
JOINT = np.array([[0.28, 0.10, 0.06], [0.10, 0.24, 0.22]])
GIVEN = np.array([[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]])
# a row of cells was thinned more than the other
RULES = [[Thinned(0.9)] * 3, [Thinned(0.5)] * 3]


def records(rng, size):
    """Counts of a, b and c, shape (2, 3, 2)."""
    return rng.multinomial(size, (JOINT[:, :, np.newaxis] * GIVEN).ravel()).reshape(2, 3, 2)


def release_of(counts, rng):
    """Two rules in one table, and added noise in another."""
    first = counts.sum(axis=2)
    thinned = np.array(
        [rule[0].draw_given(row, rng) for rule, row in zip(RULES, first, strict=True)]
    )
    other = counts.sum(axis=0) + Laplace(2.0).draw((3, 2), rng)
    return bpm.NoisyStatistics.from_tables(
        NETWORK,
        {("a", "b"): thinned, ("b", "c"): other},
        noise={("a", "b"): RULES, ("b", "c"): Laplace(2.0)},
    )


# what the rule says, and what follows


def test_what_a_rule_leaves_out_follows_from_its_mean_and_its_variance():
    published = np.array([0, 1, 7, 900])
    np.testing.assert_allclose(RULE.estimate(published), published / 0.9, atol=2e-5)
    counts = np.array([4.0, 250.0])
    np.testing.assert_allclose(RULE.error_variance(counts), counts / 9)
    assert RULE.error_variance(0.0) == 1 / 12
    assert (RULE.log_moment([0.0, 0.5]) == [0.0, np.inf]).all()
    can = (RULE.is_additive, RULE.is_exact, RULE.is_bounded, RULE.is_tabled, RULE.hides)
    assert can == (False, False, False, True, False)


@pytest.mark.parametrize("published", [0, 3, 2000])
def test_a_table_has_the_probabilities_of_all_counts_that_matter(published):
    table = RULE.table(published)
    counts = table.first + np.arange(table.log_probabilities.size)
    np.testing.assert_allclose(
        table.log_probabilities, stats.binom.logpmf(published, counts, 0.9), rtol=1e-9
    )
    assert table.above < 0
    assert table.log_probabilities[-1] < table.log_probabilities.max() - 40
    if table.first > published:
        assert table.log_probabilities[0] < table.log_probabilities.max() - 40
        assert -10 < table.below < 0
    else:  # fewer people than are left are impossible
        assert table.below == -1000


@pytest.mark.parametrize(
    "law", [DiscreteLaplace(2.0), Gaussian(3.0), NoNoise(), Within(4.5, DiscreteGaussian(2.0))]
)
def test_added_noise_exact_numbers_and_bounds_are_likelihoods(law):
    counts, published = np.arange(12.0), np.full(12, 6.0) + law.is_bounded / 2
    np.testing.assert_array_equal(
        law.log_probability(published, counts), law.log_density(published - counts)
    )
    one, two = (np.random.default_rng(3) for _ in range(2))
    np.testing.assert_array_equal(law.draw_given(counts, one), counts + law.draw(12, two))
    np.testing.assert_array_equal(law.estimate(published), published)
    np.testing.assert_array_equal(law.mean_given(counts), counts)
    assert (law.error_variance(counts) == law.variance).all()
    assert law.is_exact == (law.variance == 0)
    lowest, highest = law.allowed(published)
    inside = np.isfinite(law.log_probability(published, counts))
    assert ((lowest <= counts) & (counts <= highest))[inside].all()


def test_bounds_without_noise_allow_the_counts_between_them():
    value, law = Within.between(2, 7)
    lowest, highest = law.allowed(np.array([value]))
    assert (lowest.item(), highest.item()) == (2, 7)


def test_a_release_is_saved_and_read_by_the_name_of_its_rule(tmp_path):
    release = release_of(records(np.random.default_rng(1), 400), np.random.default_rng(2))
    path = tmp_path / "thinned.release"
    with pytest.raises(PrivacyError, match="allow_unprotected"):
        release.save(path)
    release.save(path, allow_unprotected=True)
    assert bpm.load_release(path) == release
    assert noise_from_dict(RULE.as_dict()) == RULE


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([3, -1], "that no count allows"),
        ([3.5, 1], "whole numbers under test-thinned"),
        ([np.nan, 1], "finite"),
    ],
)
def test_a_number_that_no_count_allows_is_refused_at_the_border(values, message):
    with pytest.raises(ModelError, match=message):
        bpm.Measurement(q.table("a"), values, RULE)


def test_a_rule_whose_mean_stands_still_is_refused_without_a_warning():
    """Its estimate has the variance 0 / 0, of which NumPy would warn beside the error."""
    with pytest.raises(ModelError, match="a mean that increases with the count"):
        bpm.Measurement(q.table("a"), [3, 10], Capped(10))


class Unnamed(Likelihood):
    """A rule whose author forgot the name."""

    log_probability = Thinned.log_probability
    draw_given = Thinned.draw_given
    mean_given = Thinned.mean_given
    variance_given = Thinned.variance_given
    allowed = Thinned.allowed


@dataclass
class Changeable(Unnamed):
    """A rule that could change after a release was made of it."""

    kept: float

    name: ClassVar[str] = "test-changeable"


# methods that a rule got wrong, and the words of the error
WRONG = {
    "log_probability": [
        (lambda rule, y, n: np.full(np.broadcast(y, n).shape, np.nan), "numbers, got NaN"),
        (lambda rule, y, n: stats.binom.pmf(y, n, 0.9), "at most 0"),
        (lambda rule, y, n: 0.0, "of the shape of its arguments"),
        (lambda rule, y, n: np.full(np.broadcast(y, n).shape, None), "return numbers"),
    ],
    "mean_given": [
        (lambda rule, n: np.asarray(n) * np.nan, "finite variance"),
        (lambda rule, n: -np.asarray(n, dtype=float), "finite variance|means that fall"),
    ],
    "variance_given": [
        (lambda rule, n: np.asarray(n) * np.nan, "finite variance"),
        (lambda rule, n: -0.1 * np.asarray(n, dtype=float), "at least 0, got negative"),
        (lambda rule, n: 2.0, "of the shape of its arguments"),
    ],
    "allowed": [
        (lambda rule, y: (np.ones(2), np.zeros(2)), "that no count allows"),
        (lambda rule, y: (np.full(2, -np.inf), np.full(2, -1.0)), "that no count allows"),
        (lambda rule, y: (np.asarray(y) + 0.2, np.asarray(y) + 0.8), "that no count allows"),
        (lambda rule, y: (np.full(2, np.nan), np.full(2, np.inf)), "numbers, got NaN"),
        (lambda rule, y: 0.0, "smallest and the largest count"),
        (lambda rule, y: (0.0, np.inf), "of the shape of its arguments"),
    ],
    "draw_given": [
        (lambda rule, n, rng: np.asarray(n) + 1, "draw numbers that the count allows"),
        (lambda rule, n, rng: np.asarray(n) * 0.5, "draw whole numbers"),
        (lambda rule, n, rng: np.full(np.shape(n), np.nan), "numbers, got NaN"),
        (lambda rule, n, rng: 3, "of the shape of its arguments"),
    ],
    "estimate": [(lambda rule, y: 1.0, "of the shape of its arguments")],
    "error_variance": [
        (lambda rule, n: -np.ones(np.shape(n)), "at least 0"),
        (lambda rule, n: 1.0, "of the shape of its arguments"),
    ],
}


@pytest.mark.parametrize(
    ("method", "wrong", "message"),
    [(method, *pair) for method, pairs in WRONG.items() for pair in pairs],
)
def test_a_method_that_is_wrong_is_refused_at_the_border(method, wrong, message):
    made = type("Wrong", (Thinned,), {method: wrong, "name": f"test-wrong-{method}"})
    with pytest.raises(ModelError, match=message):
        bpm.Measurement(q.table("a"), [7, 30], made(0.9))


def test_a_table_with_nan_far_from_the_estimate_is_refused_by_name():
    def far(rule, published, counts):
        found = stats.binom.logpmf(published, counts, 0.9)
        return np.where(np.asarray(counts) > 50, np.nan, found)

    made = type("FarNaN", (Thinned,), {"log_probability": far, "name": "test-far"})
    with pytest.raises(ModelError, match="`log_probability` of the likelihood 'test-far'"):
        made(0.9).table(40)


def test_a_rule_without_a_name_or_that_may_change_is_refused_at_the_border():
    table = q.table("a")
    with pytest.raises(ArgumentError, match="Unnamed must have a `name`"):
        bpm.Measurement(table, [7, 30], Unnamed())
    with pytest.raises(ArgumentError, match=r"'test-changeable' must be a frozen dataclass"):
        bpm.Measurement(table, [7, 30], Changeable(0.9))
    network = bpm.declare({"a": ["x", "y"]})
    cells = [Changeable(0.9), Changeable(0.5)]
    with pytest.raises(ArgumentError, match=r"'test-changeable' must be a frozen dataclass"):
        bpm.NoisyStatistics.from_tables(network, {"a": [7, 30]}, noise={"a": cells})


def test_a_rule_that_draws_nothing_can_be_fitted():
    def refuses(rule, counts, rng):
        raise NotImplementedError

    made = type("Undrawn", (Thinned,), {"draw_given": refuses, "name": "test-undrawn"})
    release = bpm.NoisyStatistics.from_tables(
        bpm.declare({"a": ["x", "y"]}), {"a": [7, 30]}, noise=made(0.9)
    )
    assert bpm.NoiseAwareMAP().fit(release).status == "converged"


def test_a_rule_without_a_written_form_says_what_it_lacks(tmp_path):
    plain = type("Plain", (Unnamed,), {"name": "test-plain", "kept": 0.9})
    other = type("Other", (Thinned,), {})
    for rule, lacks in ((plain(), "no dataclass"), (other(0.9), "the name 'test-thinned' of")):
        release = bpm.NoisyStatistics.from_tables(
            bpm.declare({"a": ["x", "y"]}), {"a": [7, 30]}, noise=rule
        )
        message = rf"no written form: `{type(rule).__name__}` must be .* got .*{lacks}"
        with pytest.raises(ReleaseFileError, match=message):
            release.save(tmp_path / "rule.release", allow_unprotected=True)
    assert list(tmp_path.iterdir()) == []


def test_a_rule_of_counts_is_refused_of_other_answers():
    parities = bpm.Measurement(q.parities(1), [9, 1, 2], RULE)
    network = bpm.declare({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
    with pytest.raises(ModelError, match="must count records"):
        bpm.NoisyStatistics.from_measurements(network, [parities])


def test_a_family_of_added_noise_is_no_rule():
    rows = pd.DataFrame({"a": ["x", "y"], "value": [3.0, 4.0], "variance": [1.0, 1.0]})
    network = bpm.declare(states={"a": ["x", "y"]})
    with pytest.raises(ArgumentError, match="a rule that adds none"):
        bpm.readers.read_counts(network, rows, noise="test-thinned")
    release = bpm.readers.read_counts(network, rows[["a", "value"]], noise=RULE)
    assert release.noise == (RULE,)


# in every estimator


def test_the_number_of_records_is_estimated_without_bias():
    """The mean of 60 estimates is within four standard errors, and the stated error is their deviation."""
    rng, size = np.random.default_rng(5), 60
    found = [release_of(records(rng, 900), rng) for _ in range(size)]
    estimates = np.array([release.estimated_total for release in found])
    assert abs(estimates.mean() - 900) < 4 * estimates.std() / math.sqrt(size)
    stated = np.mean([release.total_standard_error for release in found])
    assert estimates.std() == pytest.approx(stated, rel=4 / math.sqrt(2 * size))


@pytest.mark.parametrize("estimator", [bpm.NaiveMLE(), bpm.NoiseAwareMAP()])
def test_an_estimate_is_right_on_average(estimator):
    """Of each cell, over 12 releases of 2,000 records: within six standard errors, a level of 5 in 10,000."""
    rng = np.random.default_rng(11)
    found = []
    for _ in range(12):
        solution = estimator.fit(release_of(records(rng, 2000), rng))
        assert solution.status is not Status.NOT_TRUSTED
        found.append(np.ravel(solution.marginal(["a", "b"])))
    found = np.array(found)
    error = found.std(axis=0, ddof=1) / math.sqrt(len(found))
    np.testing.assert_array_less(np.abs(found.mean(axis=0) - JOINT.ravel()), 6 * error)


@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.SamplingWarning"
)  # draws that are not extended
@pytest.mark.slow
def test_intervals_of_records_hold_them_at_their_level():
    """Of the six cells of 6 releases, 36 intervals at 0.9: at least 25, which a true level misses once in 10,000."""
    rng = np.random.default_rng(13)
    held, errors = 0, []
    for seed in range(6):
        counts = records(rng, 300)
        posterior = bpm.LatentCounts().fit(
            release_of(counts, rng), rng=seed, draws=150, tune=100, chains=2, time_limit=1e-9
        )
        frame = posterior.interval(["a", "b"], of="records")
        truth = counts.sum(axis=2).ravel()
        held += ((frame["lower"] <= truth) & (truth <= frame["upper"])).sum()
        errors.append(frame["estimate"] - truth)
    assert held >= 25
    # their mean over the cells as well, at a level of 1e-4 by Student's distribution
    errors = np.mean(errors, axis=1)
    assert abs(errors.mean()) < 9.7 * errors.std(ddof=1) / math.sqrt(len(errors))


MATRIX = np.array([[0.8, 0.2], [0.3, 0.7]])


def thinned_chain(rng, size=3000):
    """Tables of the steps of a chain with one transition matrix, of which nine tenths of the people are left."""
    names = ["jan", "feb", "mar", "apr"]
    network = bpm.markov_chain(["in", "out"], len(names), share="transitions", names=names)
    first = rng.multinomial(size, [0.6, 0.4])
    given = []
    for step in pairwise(names):
        table = np.array([rng.multinomial(n, row) for n, row in zip(first, MATRIX, strict=True)])
        given.append(bpm.Measurement(q.table(*step), RULE.draw_given(table, rng).ravel(), RULE))
        first = table.sum(axis=0)
    return bpm.NoisyStatistics.from_measurements(network, given, total=size)


@pytest.mark.parametrize("estimator", [bpm.NaiveMLE(), bpm.NoiseAwareMAP()])
def test_a_rule_is_fitted_under_shared_transitions(estimator):
    """Each probability is within four of its standard errors: sqrt(.25 / 3000) at most, before the thinning."""
    fit = estimator.fit(thinned_chain(np.random.default_rng(17)))
    assert fit.status == "converged"
    found = sequences.transition_matrix(fit)["estimate"].to_numpy()
    np.testing.assert_allclose(found, MATRIX.ravel(), atol=4 * math.sqrt(0.25 / 3000))


@pytest.mark.slow
def test_the_posterior_of_shared_transitions_holds_them_under_a_rule():
    """Of four intervals at 0.999 none misses, but once in 250 seeds."""
    release = thinned_chain(np.random.default_rng(19), 300)
    posterior = bpm.LatentCounts().fit(release, rng=1, draws=400, chains=2, progress_bar=False)
    frame = sequences.transition_matrix(posterior, 0.999)
    assert ((frame["lower"] < MATRIX.ravel()) & (MATRIX.ravel() < frame["upper"])).all()


@pytest.mark.parametrize("estimator", [bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP()])
def test_a_rule_is_fitted_to_waves_of_different_numbers(estimator):
    """Totals and probabilities are within four standard errors of thinned counts."""
    rng = np.random.default_rng(23)
    network = bpm.declare(states={"a": ["x", "y"], "b": ["p", "q", "r"]}, cliques=[("a", "b")])
    sizes = np.array([3000, 900])
    waves = []
    for size in sizes:
        table = rng.multinomial(size, JOINT.ravel()).reshape(2, 3)
        tables = {("a", "b"): RULE.draw_given(table, rng)}
        waves.append(bpm.NoisyStatistics.from_tables(network, tables, noise=RULE))
    fit = estimator.fit(waves, population="waves")
    assert fit.status is not Status.NOT_TRUSTED
    off = np.abs(np.array(fit.stats["wave_totals"]) - sizes)
    assert (off < 4 * np.sqrt(sizes / 9)).all()
    np.testing.assert_allclose(
        fit.marginal(["a", "b"]), JOINT, atol=4 * math.sqrt(0.25 / sizes.sum())
    )


@dataclass(frozen=True)
class Promised(Thinned):
    """A rule whose author says that it hides the count."""

    name: ClassVar[str] = "test-promised"
    hides = True


def test_an_audit_refuses_a_rule_by_its_name(tmp_path, capsys):
    network = bpm.declare(states={"a": ["x", "y"]}, cliques=[("a",)])
    promise = PrivacyGuarantee(epsilon=1.0, adjacency="replace-one")
    release = bpm.NoisyStatistics.from_tables(
        network, {"a": [7, 30]}, noise=Promised(0.9), guarantee=promise
    )
    release.save(tmp_path / "promised.release")
    assert main(["audit", str(tmp_path / "promised.release")]) == 1
    assert "depends on the count: test-promised" in capsys.readouterr().err
    with pytest.raises(ArgumentError, match="`laws` must be of noise distributions, got a Thinned"):
        audit_noise(lambda counts, table: counts, [RULE], "replace-one", runs=10)


def test_a_promise_beside_a_rule_that_hides_nothing_is_refused_by_its_name():
    network = bpm.declare(states={"a": ["x", "y"]}, cliques=[("a",)])
    promise = PrivacyGuarantee(epsilon=1.0, adjacency="replace-one")
    with pytest.raises(PrivacyError, match=r"a rule does not hide the count.*under test-thinned"):
        bpm.NoisyStatistics.from_tables(network, {"a": [7, 30]}, noise=RULE, guarantee=promise)


def test_a_wrong_rule_contradicts_the_release():
    rng = np.random.default_rng(3)
    counts = records(rng, 3000)
    thinned = Thinned(0.8).draw_given(counts.sum(axis=2), rng)
    other = counts.sum(axis=0) + DiscreteLaplace(2.0).draw((3, 2), rng)
    release = bpm.NoisyStatistics.from_tables(
        NETWORK,
        {("a", "b"): thinned, ("b", "c"): other},
        noise={("a", "b"): Thinned(0.95), ("b", "c"): DiscreteLaplace(2.0)},
        total=3000,
    )
    with pytest.warns(ConsistencyWarning, match="disagree on"):
        assert bpm.CGM().fit(release).status is Status.NOT_TRUSTED


def test_the_engine_is_chosen_by_what_the_rule_can_do():
    release = release_of(records(np.random.default_rng(1), 60), np.random.default_rng(2))
    for formulation in ("hyper-dirichlet", "log-linear"):
        with pytest.raises(ArgumentError, match="formulation='exact'"):
            bpm.LatentCounts(formulation=formulation).fit(release)
    posterior = bpm.LatentCounts().fit(release, rng=1, draws=400, chains=2, progress_bar=False)
    assert posterior.stats["formulation"] == "exact"
    with pytest.raises(ModelError, match="no PyMC model"):
        _ = posterior.pymc_model
    seen = posterior.tree["observed_data"]["noisy_counts[b,c]"].values
    np.testing.assert_array_equal(np.ravel(seen), release.measurements[-1].values)


# against enumeration

TREE = bpm.declare(states={"a": [0, 1], "b": [0, 1], "c": [0, 1]}, cliques=[("a", "b"), ("b", "c")])
PAIR = bpm.declare(states={"a": [0, 1], "b": [0, 1]}, cliques=[("a", "b")])
# a rule, sums of draws with and without whole numbers, and a rule that drops most people
LAWS = {
    "thinned": RULE,
    "thinned most": Thinned(0.3),
    "sum of whole draws": DiscreteLaplace(1.0).summed(3),
    "sum of draws": Laplace(1.0).summed(2),
}


def errors_of(finished, wanted):
    """Largest error of a mean, in posterior deviations, and of a deviation of counts and of the total, relative."""
    counts = finished.counts.reshape(-1, finished.counts.shape[-1])
    off_mean = np.abs((counts.mean(axis=0) - wanted.count_mean) / wanted.count_sd).max()
    off_deviation = np.abs(counts.std(axis=0) / wanted.count_sd - 1).max()
    off_total = abs(finished.total.std() - wanted.total_sd) / max(wanted.total_sd, 1e-8)
    return off_mean, off_deviation, off_total


@pytest.mark.parametrize(
    # one table has all of them below
    ("law", "is_private"),
    [(list(LAWS)[-1], False), ("thinned", True)],
)
def test_records_of_a_tree_have_the_posterior_of_the_sum_over_all_tables(law, is_private):
    release = bpm.NoisyStatistics.from_tables(
        TREE,
        {("a", "b"): [[3, 1], [0, 4]], ("b", "c"): [[2, 1], [3, 2]]},
        noise={("a", "b"): LAWS[law], ("b", "c"): DiscreteLaplace(1.5)},
        total=None if is_private else 12,
    )
    evidence = gather(release, takes_bounds=True)
    totals = range(8, 21) if is_private else range(12, 13)
    wanted = exact_posterior(evidence, totals=totals if is_private else None)
    known = {"total_range": (8, 20)} if is_private else {"total": 12}
    formulation = Rows(evidence=evidence, concentration=1.0, **known)
    drawn = formulation.sample(draws=2500, tune=100, chains=2, seed=1, time_limit=0.0)
    finished = formulation.finish(drawn.draws, np.random.default_rng(0))
    off_mean, off_deviation, off_total = errors_of(finished, wanted)
    assert off_mean < 0.15
    assert off_deviation < 0.12
    assert off_total < 0.12


@pytest.mark.parametrize(
    "law",
    [
        pytest.param(
            law,
            id=name,
            marks=[] if name.endswith("most") or "whole" in name else [pytest.mark.slow],
        )
        for name, law in LAWS.items()
    ],
)
def test_one_table_has_the_posterior_of_the_sum_over_all_tables(law):
    release = bpm.NoisyStatistics.from_tables(PAIR, {("a", "b"): [[3, 1], [0, 4]]}, noise=law)
    evidence = gather(release, takes_bounds=True)
    wanted = exact_posterior(evidence, alpha=0.4, totals=range(8, 21))
    formulation = TableEngine(evidence=evidence, concentration=0.4, total_range=(8, 20))
    # each draw after thousands of moves, so that 1,600 are worth 1,000 or more
    drawn = formulation.sample(draws=800, tune=100, chains=2, seed=1, time_limit=0.0)
    finished = formulation.finish(drawn.draws, np.random.default_rng(0))
    off_mean, off_deviation, off_total = errors_of(finished, wanted)
    assert off_mean < 0.15
    assert off_deviation < 0.12
    assert off_total < 0.12


def test_normal_effects_have_the_posterior_of_the_sum_over_all_tables():
    """Records of one variable under a normal effect: a sum over counts, and an integral over the log odds."""
    network = bpm.declare(states={"a": [0, 1]}, cliques=[("a",)])
    release = bpm.NoisyStatistics.from_tables(network, {("a",): [7, 2]}, noise=RULE, total=11)
    evidence = gather(release, takes_bounds=True)
    formulation = NormalEffects(evidence=evidence, scale=1.0, total=11)
    drawn = formulation.sample(draws=2000, tune=200, chains=2, seed=1, time_limit=0.0)
    finished = formulation.finish(drawn.draws, np.random.default_rng(0))
    # draws of the prior, of its potentials: the model's own
    prior = formulation.prior_draws(2_500, np.random.default_rng(1))
    chance = prior.marginals.reshape(-1, 2)[:, 0]
    counts = np.arange(12)
    given = [stats.binom.pmf(n, 11, chance).mean() for n in counts]
    weights = np.exp(RULE.log_probability(7, counts) + RULE.log_probability(2, 11 - counts)) * given
    weights /= weights.sum()
    mean = weights @ counts
    sd = math.sqrt(weights @ (counts - mean) ** 2)
    assert abs(finished.counts[..., 0].mean() - mean) < 0.12 * sd
    assert finished.counts[..., 0].std() == pytest.approx(sd, rel=0.1)


def test_the_mode_is_near_the_center_of_the_enumerated_posterior():
    """Of a table with a flat prior of its cells, whose posterior mean is enumerated: within a deviation."""
    model = ModelSpecification.from_pgmpy(PAIR)
    published = np.array([14, 6, 9, 3])
    release = bpm.NoisyStatistics.from_tables(
        PAIR, {("a", "b"): published.reshape(2, 2)}, noise=Thinned(0.7), total=48
    )
    tables = compositions(48, 4)
    weights = log_dirichlet_multinomial(tables, 1.0)
    weights = weights + Thinned(0.7).log_probability(published, tables).sum(axis=1)
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    mean = weights @ tables
    sd = np.sqrt(weights @ (tables - mean) ** 2)
    assert model.size == 4
    for estimator in (bpm.CGM(), bpm.NoiseAwareMAP(), bpm.NaiveMLE(ridge=0)):
        found = 48 * np.ravel(estimator.fit(release).marginal(["a", "b"]))
        assert np.abs((found - mean) / sd).max() < 1, estimator
