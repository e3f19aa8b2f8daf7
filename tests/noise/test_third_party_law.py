"""A noise law from outside: it is released, saved, loaded, audited and fitted, or refused before work or spending."""

from __future__ import annotations

import inspect
import itertools
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from mechanisms.contract import MODEL, Account, TablesContract, sample, worst_log_ratio
from scipy import stats
from silence import no_noise_warning

import bayesprivmrf as bpm
from bayesprivmrf.audit import audit_noise, privacy_loss
from bayesprivmrf.cli import main
from bayesprivmrf.errors import ArgumentError, ModelError, PrivacyError
from bayesprivmrf.mechanisms import StatisticsMechanism
from bayesprivmrf.noise import NoiseLaw, SecureNoise, SimulatedNoise, noise_from_dict
from bayesprivmrf.privacy import DiscreteLaplace, Laplace, PrivacyGuarantee


@dataclass(frozen=True)
class StaircaseLaw(NoiseLaw):
    """Steps of width w about a flat top of 2 r - 1 numbers; each has p/q of the last one's probability.

    Derived in docs/developer/own-noise.md.
    """

    width: int
    flat: int
    numerator: int
    denominator: int

    name: ClassVar[str] = "test-staircase"
    is_discrete: ClassVar[bool] = True

    def __post_init__(self):
        if not (1 <= self.flat <= self.width and 0 < self.numerator < self.denominator):
            raise ArgumentError(
                f"a staircase must have 1 <= flat <= width and 0 < p < q, got {self}."
            )
        if not 2 * self.width * self.denominator < 2**63:
            raise ArgumentError(
                f"a staircase must have 2 w q < 2^63, for 64-bit integers, got {self}."
            )

    @property
    def epsilon(self):
        return math.log(self.denominator / self.numerator)

    @property
    def _mass(self):
        """Z, and the sums S0, S1, S2 of a^j (j - 1)^i over j >= 1."""
        a = self.numerator / self.denominator
        sums = a / (1 - a), a**2 / (1 - a) ** 2, a**2 * (1 + a) / (1 - a) ** 3
        return 2 * self.flat - 1 + 2 * self.width * sums[0], *sums

    @property
    def variance(self):
        (z, s0, s1, s2), r, w = self._mass, self.flat, self.width
        top = (r - 1) * r * (2 * r - 1) / 6
        squares = w * (r**2 * s0 + 2 * r * w * s1 + w**2 * s2)
        within = w * (w - 1) * (r * s0 + w * s1) + (w - 1) * w * (2 * w - 1) / 6 * s0
        return 2 / z * (top + squares + within)

    def log_density(self, residual):
        level = np.floor(
            (np.abs(np.asarray(residual, dtype=float)) + self.width - self.flat) / self.width
        )
        return -level * self.epsilon - math.log(self._mass[0])

    def score(self, residual):
        return np.zeros(np.shape(residual))

    def draw(self, size, rng):
        words = lambda count: rng.integers(0, 2**64, count, dtype=np.uint64)  # noqa: E731
        return self.add_exactly(np.zeros(size, dtype=np.int64), words)

    def add_exactly(self, counts, words):
        r, w, p, q = self.flat, self.width, self.numerator, self.denominator
        top = (2 * r - 1) * (q - p)
        drawn = self._below(top + 2 * w * p, counts.size, words)
        side, place = np.divmod(np.maximum(drawn - top, 0) // p, w)
        away = (1 - 2 * side) * (r + place + w * self._runs(counts.size, words))
        return counts + np.where(drawn < top, drawn // (q - p) - (r - 1), away).reshape(
            counts.shape
        )

    def _runs(self, size, words):
        """Lengths of runs of successes of probability p/q."""
        runs, going = np.zeros(size, dtype=np.int64), np.arange(size)
        while going.size:
            going = going[self._below(self.denominator, going.size, words) < self.numerator]
            runs[going] += 1
        return runs

    @staticmethod
    def _below(bound, size, words):
        """Whole numbers below a bound: words beyond its last whole multiple are drawn again."""
        drawn = np.array(words(size))
        last = np.uint64(2**64 - 2**64 % bound - 1)
        while (late := drawn > last).any():
            drawn[late] = words(int(late.sum()))
        return (drawn % np.uint64(bound)).astype(np.int64)


@dataclass(frozen=True)
class Renamed(NoiseLaw):
    """Laplace noise under another name and with another parameter, which says what its kernel is."""

    rate: float

    name: ClassVar[str] = "test-renamed"
    kernel: ClassVar[str] = "absolute"

    scale = property(lambda self: 1 / self.rate)
    variance = property(lambda self: Laplace(1 / self.rate).variance)

    def log_density(self, residual):
        return Laplace(self.scale).log_density(residual)

    def score(self, residual):
        return Laplace(self.scale).score(residual)

    def draw(self, size, rng):
        return rng.laplace(0, self.scale, size)


@dataclass(frozen=True, kw_only=True)
class StaircaseStatistics(StatisticsMechanism):
    """Even shares of epsilon: each of m tables has steps of ratio exp(-epsilon / (m sensitivity)), rounded up."""

    epsilon: float

    def _noise(self, specification):
        each = self.epsilon / (self.l1_sensitivity * len(specification.cliques))
        law = StaircaseLaw(2, 1, math.ceil(math.exp(-each) * 2**52) + 1, 2**52)
        return (law,) * len(specification.cliques)

    def _promise(self, specification):
        return PrivacyGuarantee(epsilon=self.epsilon, adjacency=self.adjacency)


LAWS = [
    StaircaseLaw(*numbers) for numbers in ((1, 1, 2, 5), (2, 1, 2, 3), (2, 2, 1, 7), (5, 3, 9, 10))
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_its_moments_are_those_of_its_probabilities(law):
    k = np.arange(-4000, 4001)
    probability = np.exp(law.log_density(k))
    assert probability.sum() == pytest.approx(1, rel=1e-12)
    assert law.variance == pytest.approx(probability @ k**2, rel=1e-10)


def test_steps_of_one_are_the_discrete_laplace_law():
    law, k = StaircaseLaw(1, 1, 2, 5), np.arange(-40, 41)
    same = DiscreteLaplace(1 / law.epsilon)
    np.testing.assert_allclose(law.log_density(k), same.log_density(k), rtol=1e-12)
    assert law.variance == pytest.approx(same.variance)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_move_within_a_step_costs_one_epsilon_and_one_beyond_it_more(law):
    for shift in range(1, law.width + 1):
        assert worst_log_ratio(law, shift) == pytest.approx(law.epsilon, rel=1e-12)
    assert worst_log_ratio(law, law.width + 1) == pytest.approx(2 * law.epsilon, rel=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("source", [SecureNoise(), SimulatedNoise(np.random.default_rng(3))])
def test_both_sources_draw_it(law, source):
    draws = source.add(np.zeros((100, 400), dtype=np.int64), law)
    assert (draws.shape, draws.dtype) == ((100, 400), np.int64)
    k = np.arange(-12, 13)
    expected = draws.size * np.exp(law.log_density(k))
    seen = np.array([(draws == one).sum() for one in k])
    kept = expected > 10
    rest = draws.size - expected[kept].sum(), draws.size - seen[kept].sum()
    assert stats.chisquare([*seen[kept], rest[1]], [*expected[kept], rest[0]]).pvalue > 1e-6


def test_its_secure_draw_is_exact():
    # every outcome of ideal words, small enough that none is drawn again; a third success ends a run here
    law, counted = StaircaseLaw(2, 2, 1, 3), Counter()
    below = (2 * 2 - 1) * (3 - 1) + 2 * 2 * 1  # (2r - 1)(q - p) + 2wp
    for outcome in itertools.product(range(below), range(3), range(3)):
        words = [*outcome, 2]
        noise = law.add_exactly(
            np.zeros(1, np.int64), lambda n, words=words: np.array([words.pop(0)], np.uint64)
        )
        counted[int(noise[0])] += 1
    for noise in range(-5, 6):  # at most one success: no run was cut short
        assert counted[noise] / (below * 9) == pytest.approx(
            np.exp(law.log_density(noise)), rel=1e-12
        )


class TestStaircase(TablesContract):
    budget = 0.9
    test_opendps_own_map_promises_no_more_than_was_asked = None  # it has no map of OpenDP's

    def make(self, **more):
        return StaircaseStatistics(**{"epsilon": 0.9} | more)


def staircase_release(**settings):
    with no_noise_warning():
        return StaircaseStatistics(epsilon=2.0).release(MODEL, sample(5000), **settings)


def test_a_release_is_the_same_after_a_file(tmp_path):
    release = staircase_release()
    release.save(tmp_path / "a.release")
    assert bpm.load_release(tmp_path / "a.release") == release
    assert noise_from_dict(release.noise[0].as_dict()) == release.noise[0]


def test_a_fresh_process_loads_it_by_entry_point_and_says_what_it_lacks_without(tmp_path):
    staircase_release(rng=1).save(tmp_path / "a.release")
    imports = "import math\nfrom dataclasses import dataclass\nfrom typing import ClassVar\nimport numpy as np\n"
    imports += (
        "from bayesprivmrf.errors import ArgumentError\nfrom bayesprivmrf.noise import NoiseLaw\n"
    )
    plugin = tmp_path / "site"
    (plugin / "stairs-1.0.dist-info").mkdir(parents=True)
    (plugin / "stairs.py").write_text(imports + inspect.getsource(StaircaseLaw), encoding="utf-8")
    (plugin / "stairs-1.0.dist-info" / "METADATA").write_text("Name: stairs\nVersion: 1.0\n")
    (plugin / "stairs-1.0.dist-info" / "entry_points.txt").write_text(
        "[bayesprivmrf.noise_laws]\ntest-staircase = stairs:StaircaseLaw\n"
    )
    code = "import bayesprivmrf as bpm; print(bpm.load_release('a.release').noise[0])"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
        for environment in (os.environ | {"PYTHONPATH": str(plugin)}, dict(os.environ))
    ]
    assert runs[0].stdout.strip() == str(staircase_release(rng=1).noise[0])
    assert "'test-staircase'; import or install the package that defines it" in runs[1].stderr


def test_naive_mle_takes_it_and_the_others_refuse_it_by_name():
    release = staircase_release(rng=1)
    assert bpm.NaiveMLE().fit(release).status.value == "converged"

    for estimator in (bpm.CGM(), bpm.CGM(e_step="nlbp"), bpm.NoiseAwareMAP(), bpm.LatentCounts()):
        with pytest.raises(
            ArgumentError, match="'test-staircase', whose `kernel` says neither; use NaiveMLE"
        ):
            estimator.fit(release)


def test_a_law_that_states_its_kernel_is_fitted_as_that_of_its_kernel():
    noisy = {
        clique: np.asarray(table, float) + 0.25
        for clique, table in staircase_release(rng=1).tables.items()
    }
    ours, theirs = (
        bpm.NoisyStatistics.from_tables(MODEL, noisy, noise=law)
        for law in (Renamed(0.5), Laplace(2.0))
    )
    for estimator in (
        bpm.NaiveMLE(),
        bpm.CGM(),
        bpm.CGM(e_step="nlbp", steps=3),
        bpm.NoiseAwareMAP(),
    ):
        found, expected = (estimator.fit(release) for release in (ours, theirs))
        assert found.status is expected.status
        np.testing.assert_array_equal(found.marginal(["a", 0]), expected.marginal(["a", 0]))


def published(law, **given):
    shapes = zip(MODEL.cliques, MODEL.shapes, strict=True)
    noisy = {
        clique: np.full(shape, 123.0 / np.prod(shape)) for clique, shape in shapes
    }  # which agree
    return bpm.NoisyStatistics.from_tables(MODEL, noisy, noise=law, **given)


def test_a_published_law_without_a_variance_or_the_density_of_its_kernel_is_refused():
    @dataclass(frozen=True)
    class Odd(Renamed):
        name: ClassVar[str] = "test-odd"
        wide: float = 1.0
        variance = property(lambda self: 2 * self.scale**2 * self.wide)
        scale = property(lambda self: 1 / self.rate if self.rate < 9 else math.nan)

        def log_density(self, residual):
            return super().log_density(residual) * (2 if self.rate == 3 else 1)

    with pytest.raises(ArgumentError, match="must have a finite variance"):
        published(Odd(1.0, wide=math.inf))
    for rate, words in (
        (3.0, "must have the density of its `kernel`, 'absolute'"),
        (9.0, "finite variance"),
    ):
        with pytest.raises(ArgumentError, match=words):
            bpm.CGM().fit(published(Odd(rate)))
    assert bpm.CGM().fit(published(Odd(2.0))).status.value in ("converged", "stopped early")


def test_bounds_without_their_width_are_refused_and_estimators_say_what_takes_bounds():
    @dataclass(frozen=True)
    class Bounds(Renamed):
        name: ClassVar[str] = "test-bounds"
        kernel: ClassVar[str] = "within"

    @dataclass(frozen=True)
    class Wide(Bounds):
        name: ClassVar[str] = "test-wide-bounds"
        half_width: float = 2.5

    for estimator in (bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP(), bpm.LatentCounts()):
        with pytest.raises(ArgumentError, match="`half_width` must be positive and finite"):
            estimator.fit(published(Bounds(1.0)))
    for estimator in (bpm.NaiveMLE(), bpm.CGM(), bpm.NoiseAwareMAP()):
        with pytest.raises(
            ArgumentError, match="use LatentCounts, beside a table that tells the number"
        ):
            estimator.fit(published(Wide(1.0)))
    with pytest.raises(ModelError, match="the number of records must be told"):
        bpm.LatentCounts().fit(published(Wide(1.0)))


def test_a_law_without_an_exact_draw_is_simulated_by_a_source_but_never_released():
    @dataclass(frozen=True)
    class Loose(StaircaseLaw):
        name: ClassVar[str] = "test-loose"
        add_exactly = NoiseLaw.add_exactly

        def draw(self, size, rng):
            return rng.integers(-1, 2, size)

    class LooseStatistics(StaircaseStatistics):
        def _noise(self, specification):
            return (Loose(2, 1, 1, 2),) * len(specification.cliques)

    assert SimulatedNoise(np.random.default_rng(0)).add(np.arange(3), Loose(2, 1, 1, 2)).shape == (
        3,
    )
    for refused in (
        lambda account: SecureNoise().add(np.arange(3), Loose(2, 1, 1, 2)),
        lambda account: LooseStatistics(epsilon=1.0).release(MODEL, sample(9), ledger=account),
        lambda account: LooseStatistics(epsilon=1.0).release(MODEL, sample(9), rng=1),
    ):
        account = Account()
        with pytest.raises(PrivacyError, match="'test-loose', which has no exact draw"):
            refused(account)
        assert account.spent == []


def test_two_laws_never_share_a_name_and_one_may_be_defined_anew():
    def define(name):
        made = type(name, (NoiseLaw,), {"name": "test-again", "__annotations__": {"scale": float}})
        return dataclass(frozen=True, slots=True)(made)  # which makes the class a second time

    define("First")
    define("First")
    with pytest.raises(TypeError, match=r"'test-again', which .*First has; choose another"):
        define("Second")
    with pytest.raises(TypeError, match=r"'laplace'"):
        type("Mine", (NoiseLaw,), {"name": "laplace"})


def test_a_release_is_saved_after_its_law_was_defined_anew(tmp_path):
    laws = [
        dataclass(frozen=True)(type("Kept", (StaircaseLaw,), {"name": "test-kept"}))
        for _ in range(2)
    ]
    tables = {
        clique: np.ones(shape) for clique, shape in zip(MODEL.cliques, MODEL.shapes, strict=True)
    }
    bpm.NoisyStatistics.from_tables(MODEL, tables, noise=laws[0](2, 1, 2, 3)).save(tmp_path / "r")
    assert type(bpm.load_release(tmp_path / "r").noise[0]) is laws[1]


@pytest.mark.parametrize(("given", "caught"), [((2, 3), False), ((1000, 1562), True)])
def test_an_audit_passes_it_and_catches_a_tenth_more_loss(given, caught):
    # log(1562/1000) is 1.1 log(3/2): the noise of a budget that is a tenth too large
    law, used = StaircaseLaw(2, 1, 2, 3), StaircaseLaw(2, 1, *given)
    source = SimulatedNoise(np.random.default_rng(7))
    result = audit_noise(
        lambda counts, table: source.add(counts, used), [law] * 3, "add-or-remove-one", runs=200_000
    )
    assert result.is_violated is caught
    assert privacy_loss([law] * 3, [1] * 3).epsilon(0.0) == pytest.approx(3 * law.epsilon, rel=1e-9)


@dataclass(frozen=True)
class Flat(NoiseLaw):
    """Uniform on the whole numbers within a reach: a move by one is (0, 1/(2 reach + 1))-private."""

    reach: int

    name: ClassVar[str] = "test-flat"
    is_discrete: ClassVar[bool] = True

    variance = property(lambda self: self.reach * (self.reach + 1) / 3)

    def log_density(self, residual):
        return np.where(np.abs(residual) <= self.reach, -math.log(2 * self.reach + 1), -np.inf)

    def score(self, residual):
        return np.zeros(np.shape(residual))

    def draw(self, size, rng):
        return rng.integers(-self.reach, self.reach + 1, size)

    def add_exactly(self, counts, words):
        noise = StaircaseLaw._below(2 * self.reach + 1, counts.size, words) - self.reach
        return counts + noise.reshape(counts.shape)


@dataclass(frozen=True, kw_only=True)
class FlatStatistics(StatisticsMechanism):
    delta: float
    thinner: float = 1.0

    def _noise(self, specification):
        moved = self.l1_sensitivity * len(specification.cliques)
        reach = math.ceil((moved / self.delta - 1) / 2 * self.thinner)
        return (Flat(reach),) * len(specification.cliques)

    def _promise(self, specification):
        return PrivacyGuarantee(epsilon=0.0, delta=self.delta, adjacency=self.adjacency)


def test_bounded_noise_has_the_cost_of_its_ends_and_an_audit_sees_them():
    loss = privacy_loss([Flat(7)], [1])
    assert loss.delta(0.0) == pytest.approx(1 / 15)
    assert loss.epsilon(1 / 15) == 0.0
    rng = np.random.default_rng(1)
    for add, is_violated in (
        (lambda counts, table: SimulatedNoise(rng).add(counts, Flat(7)), False),
        (lambda counts, table: counts + rng.choice([-7, 7], counts.size), True),  # the ends alone
    ):
        found = audit_noise(
            add, [Flat(7)], "add-or-remove-one", runs=20_000, deltas=(0.0, 0.01, 1 / 15)
        )
        assert found.is_violated is is_violated
    with pytest.raises(
        ArgumentError, match="not finite; noise must be what its stated distribution can give"
    ):
        audit_noise(lambda counts, table: counts + 90, [Flat(7)], "add-or-remove-one", runs=100)


@pytest.mark.parametrize(("thinner", "status"), [(1.0, 0), (0.5, 3)])
def test_a_promise_of_delta_alone_is_audited_from_the_command_line(
    thinner, status, install, capsys
):
    install("bayesprivmrf.mechanisms", {"flat": FlatStatistics})
    given = ["--set", "delta=0.1", "--set", f"thinner={thinner}", "--runs", "2000"]
    assert main(["audit", "flat", *given]) == status
    assert "delta = 0.1" in capsys.readouterr().out
