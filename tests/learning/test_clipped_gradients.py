"""Clipped gradients in whole numbers: sensitivity by brute force, exact samples, the ascent, an audit of a step."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from bayesprivmrf.audit import audit
from bayesprivmrf.marginals import marginal_engine
from bayesprivmrf.mechanisms import gradient_ascent
from bayesprivmrf.mechanisms.gradient_ascent import (
    LARGEST_POTENTIAL,
    LARGEST_SUM,
    MARGINAL_BITS,
    ExactSum,
    draw_each,
    largest_curvature,
)
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import DiscreteGaussian

LEVEL = 1e-4
WHOLE = 1 << gradient_ascent.RATE_BITS

DOMAIN = Domain.from_states({"a": ["u", "v"], 0: [7, 5, 6], "c": [True, False], "lonely": ["x"]})
MODEL = ModelSpecification(domain=DOMAIN, cliques=(("a", 0), ("c", "a"), ("lonely",)))
RECORDS = np.array(list(itertools.product(*map(range, MODEL.cardinalities))), dtype=np.uint8)


def source(seed: int) -> SimulatedNoise:
    return SimulatedNoise(np.random.default_rng(seed))


def marginals(kind: str) -> np.ndarray:
    """Marginals at the uniform distribution, at a random one, and next to a single record."""
    rng = np.random.default_rng(5)
    spread = {"uniform": 0.0, "random": 1.0, "concentrated": 0.0}[kind]
    theta = rng.normal(0, spread, MODEL.size)
    if kind == "concentrated":
        theta[gradient_ascent.cells_of(MODEL, RECORDS[:1])[0]] = 40.0
    return marginal_engine(MODEL.cardinalities, MODEL.scopes).marginals(theta)[1]


def ascent(**settings) -> gradient_ascent.Ascent:
    lattice = settings.pop("lattice", gradient_ascent.GradientLattice.of(len(MODEL.cliques), None))
    defaults = {
        "specification": MODEL,
        "lattice": lattice,
        "numerator": WHOLE,
        "steps": 30,
        "noise": DiscreteGaussian(lattice.sensitivity),
    }
    return gradient_ascent.Ascent(**defaults | settings)


def test_cells_are_those_of_each_records_tables():
    cells = gradient_ascent.cells_of(MODEL, RECORDS)
    for record, found in zip(RECORDS, cells, strict=True):
        for place, scope in enumerate(MODEL.scopes):
            flat = np.ravel_multi_index([record[v] for v in scope], MODEL.shapes[place])
            assert found[place] == MODEL.offsets[place] + flat


@pytest.mark.parametrize("clip", [2.0**-8, 0.3, 1.0, None, 2.0, 1e6])
@pytest.mark.parametrize("kind", ["uniform", "random", "concentrated"])
def test_no_record_moves_a_sum_by_more_than_the_sensitivity(kind, clip):
    lattice = gradient_ascent.GradientLattice.of(len(MODEL.cliques), clip)
    rounded = lattice.rounded(marginals(kind))
    one = np.ones(1, dtype=np.int64)
    squares = [
        sum(
            int(v) ** 2
            for v in lattice.total(gradient_ascent.cells_of(MODEL, record[None]), one, rounded)
        )
        for record in RECORDS
    ]
    bound = Fraction(lattice.clip) * lattice.steps
    assert Fraction(lattice.sensitivity) == bound
    assert max(squares) <= bound**2
    lengths = [
        math.sqrt(
            (
                (
                    np.bincount(gradient_ascent.cells_of(MODEL, r[None])[0], minlength=MODEL.size)
                    - marginals(kind)
                )
                ** 2
            ).sum()
        )
        for r in RECORDS
    ]
    if max(lengths) > lattice.clip * (
        1 + 1e-4
    ):  # where a gradient is clipped, the bound is attained
        assert max(squares) >= bound**2 * (1 - Fraction(1, 2**11))


def test_the_longest_gradient_that_there_can_be_is_not_clipped_by_the_largest_clip():
    # at a distribution that is certain of one record, another one that differs in each table is sqrt(2m) away
    two = ModelSpecification(
        domain=Domain.from_states({i: [0, 1] for i in range(3)}), cliques=((0, 1), (2,))
    )
    lattice = gradient_ascent.GradientLattice.of(2, 100.0)
    certain = np.bincount(
        gradient_ascent.cells_of(two, np.zeros((1, 3), dtype=int))[0], minlength=two.size
    ).astype(float)
    contribution = lattice.total(
        gradient_ascent.cells_of(two, np.ones((1, 3), dtype=int)),
        np.ones(1, int),
        lattice.rounded(certain),
    )
    length = math.sqrt(float((contribution.astype(float) ** 2).sum()))
    assert lattice.sensitivity * (1 - 2.0**-11) < length <= lattice.sensitivity


@pytest.mark.parametrize("clip", [0.3, 1.0, None])
def test_a_sum_is_made_of_what_each_record_contributes_by_itself(clip):
    lattice = gradient_ascent.GradientLattice.of(len(MODEL.cliques), clip)
    rounded = lattice.rounded(marginals("random"))
    counts = np.arange(1, len(RECORDS) + 1)
    cells = gradient_ascent.cells_of(MODEL, RECORDS)
    together = lattice.total(cells, counts, rounded)
    alone = sum(
        n * lattice.total(cells[i : i + 1], np.ones(1, int), rounded)
        for i, n in enumerate(counts.tolist())
    )
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("clip", [0.3, 1.0, 1.5, None])
def test_a_sum_is_that_of_clipped_gradients_up_to_the_lattice(clip):
    lattice = gradient_ascent.GradientLattice.of(len(MODEL.cliques), clip)
    mu = marginals("random")
    gradients = np.array(
        [
            np.bincount(c, minlength=MODEL.size) - mu
            for c in gradient_ascent.cells_of(MODEL, RECORDS)
        ]
    )
    factors = np.minimum(1, lattice.clip / np.linalg.norm(gradients, axis=1))
    found = (
        lattice.total(
            gradient_ascent.cells_of(MODEL, RECORDS),
            np.ones(len(RECORDS), int),
            lattice.rounded(mu),
        )
        / lattice.steps
    )
    tolerance = len(RECORDS) * (2.0**-MARGINAL_BITS + 2 / lattice.weight)
    np.testing.assert_allclose(found, factors @ gradients, atol=tolerance)


@pytest.mark.parametrize("clip", [2.0**-8, 0.3, None])
@pytest.mark.parametrize("scale", [1, 2**20, 2**33, 2**45])
def test_a_sum_is_exact_however_many_records_there_are(clip, scale):
    lattice = gradient_ascent.GradientLattice.of(len(MODEL.cliques), clip)
    rounded = lattice.rounded(marginals("random"))
    counts = np.random.default_rng(2).integers(1, scale + 7, len(RECORDS))
    cells = gradient_ascent.cells_of(MODEL, RECORDS)
    exact = [0] * MODEL.size
    for i, n in enumerate(counts.tolist()):
        own = lattice.total(cells[i : i + 1], np.ones(1, int), rounded).tolist()
        exact = [total + n * v for total, v in zip(exact, own, strict=True)]
    held = [max(-LARGEST_SUM, min(total, LARGEST_SUM)) for total in exact]
    found = ascent(lattice=lattice, numerator=WHOLE)._sum(RECORDS, counts, rounded, source(1))
    assert found.dtype == np.int64
    assert found.tolist() == held
    if scale == 2**45:
        assert held != exact


def test_limbs_add_up_with_their_signs():
    rng = np.random.default_rng(3)
    vectors = rng.integers(-(2**62), 2**62, (40, 5))
    limbs, exact = ExactSum(5), [0] * 5
    for place, vector in enumerate(vectors):
        power = 16 * (place % 3 == 2)
        limbs.add(vector // 2**20, power)
        exact = [a + (int(v) // 2**20) * 2**power for a, v in zip(exact, vector, strict=True)]
    assert limbs.clipped().tolist() == exact
    assert ExactSum(3).clipped().tolist() == [0, 0, 0]


def test_draws_have_exactly_the_probability_of_their_numerator():
    # every first byte once, then the 45 bits that decide a tie: what comes out true is counted exactly
    numerator, seen = (37 << gradient_ascent.RATE_BITS - 8) + 12345, []

    def words(size: int) -> np.ndarray:
        seen.append(size)
        if len(seen) == 1:
            return np.arange(256, dtype=np.uint8).view(np.uint64)
        return np.full(size, ties[0] << 72 - gradient_ascent.RATE_BITS, dtype=np.uint64)

    for tie, more in (
        (0, 1),
        (12344, 1),
        (12345, 0),
        ((1 << gradient_ascent.RATE_BITS - 8) - 1, 0),
    ):
        seen.clear()
        ties = [tie]
        assert draw_each(256, numerator, words).sum() == 37 + more
        assert seen == [32, 1]


def test_all_are_drawn_at_rate_one_and_none_at_rate_zero():
    assert draw_each(1001, WHOLE, source(1).words).all()
    assert not draw_each(1001, 0, source(1).words).any()
    assert draw_each(0, WHOLE // 2, source(1).words).shape == (0,)


@pytest.mark.parametrize("rate", [0.003, 0.3, 0.9])
def test_draws_are_as_frequent_as_their_rate(rate):
    drawn = draw_each(400_000, math.ceil(rate * WHOLE), source(2).words)
    assert stats.binomtest(int(drawn.sum()), drawn.size, rate).pvalue > LEVEL
    lag = np.corrcoef(drawn[:-1], drawn[1:])[0, 1]
    assert abs(lag) < 4 / math.sqrt(drawn.size)


def test_records_of_a_merged_row_are_drawn_each_by_itself():
    counts = np.array([3, 1, 5])
    chosen = ascent(numerator=WHOLE // 4)
    noise = source(3)
    drawn = np.array([chosen.sample(counts, noise) for _ in range(4_000)])
    for row, n in enumerate(counts.tolist()):
        expected = stats.binom.pmf(np.arange(n + 1), n, 0.25) * len(drawn)
        assert stats.chisquare(np.bincount(drawn[:, row], minlength=n + 1), expected).pvalue > LEVEL
    assert np.abs(np.corrcoef(drawn.T) - np.eye(3)).max() < 4 / math.sqrt(len(drawn))


def test_more_records_than_are_drawn_at_once_are_drawn_alike():
    counts = np.array([3, (1 << 24) - 10, 60, 5_000_000, 1])
    drawn = ascent(numerator=WHOLE // 2).sample(counts, source(9))
    assert (drawn <= counts).all()
    for found, n in zip(drawn.tolist(), counts.tolist(), strict=True):
        assert stats.binomtest(found, n, 0.5).pvalue > LEVEL


def test_merging_equal_records_changes_nothing():
    rng = np.random.default_rng(4)
    counts = rng.integers(1, 9, len(RECORDS))
    apart = np.repeat(RECORDS, counts, axis=0)
    chosen = ascent(numerator=WHOLE // 3)
    merged = chosen.run(RECORDS, counts, 50.0, source(5))
    single = chosen.run(apart, np.ones(len(apart), int), 50.0, source(5))
    np.testing.assert_array_equal(merged.potentials, single.potentials)


def test_chunks_of_a_large_sample_add_up():
    """More rows than are summed at once, and the same records as few rows."""
    chosen, times = ascent(steps=2), 40_000 // len(RECORDS) + 1
    few = chosen.run(RECORDS, np.full(len(RECORDS), times), 50.0, source(6))
    rows = np.tile(RECORDS, (times, 1))
    many = chosen.run(rows, np.ones(len(rows), int), 50.0, source(6))
    np.testing.assert_array_equal(few.potentials, many.potentials)


def test_without_noise_and_clipping_the_ascent_reaches_maximum_likelihood():
    counts = np.random.default_rng(7).integers(1, 40, len(RECORDS))
    chosen = ascent(
        lattice=gradient_ascent.GradientLattice.of(len(MODEL.cliques), 100.0),
        noise=DiscreteGaussian(1.0),
        steps=2000,
        averaging=0.0,
    )
    path = chosen.run(RECORDS, counts, float(counts.sum()), source(8))
    engine = marginal_engine(MODEL.cardinalities, MODEL.scopes)
    cells = gradient_ascent.cells_of(MODEL, RECORDS)
    wanted = (
        np.bincount(cells.ravel(), weights=np.repeat(counts, cells.shape[1]), minlength=MODEL.size)
        / counts.sum()
    )
    assert np.abs(engine.marginals(path.potentials)[1] - wanted).max() < 2.0 ** (1 - MARGINAL_BITS)
    assert not path.is_bounded


def test_noise_alone_spreads_potentials_no_further_than_the_default_learning_rate_says():
    chosen = ascent(steps=100, averaging=0.0)
    none = np.zeros((0, len(MODEL.cardinalities)), dtype=np.uint8), np.zeros(0, dtype=np.int64)
    noise = source(9)
    found = np.array([chosen.run(*none, 10.0, noise).potentials for _ in range(10)])
    assert 0.1 < found.std() < 0.55


def test_impossible_cells_stay_impossible_and_get_no_noise():
    public = ModelSpecification(
        domain=DOMAIN, cliques=MODEL.cliques, impossible=((("a", "u"), (0, 7)),)
    )
    assert public.possible is not None
    codes = RECORDS[~((RECORDS[:, 0] == 0) & (RECORDS[:, 1] == 0))]
    chosen = ascent(specification=public)
    path = chosen.run(codes, np.ones(len(codes), int), 10.0, source(10))
    np.testing.assert_array_equal(np.isneginf(path.potentials), ~public.possible)
    assert chosen.drawn_noises == 30 * (public.size - 1)
    assert ascent(steps=3).drawn_noises == 3 * MODEL.size


def test_a_learning_rate_that_is_far_too_large_is_bounded_and_says_so():
    path = ascent(learning_rate=1e6).run(RECORDS, np.ones(len(RECORDS), int), 1.0, source(11))
    assert path.is_bounded
    assert np.abs(path.potentials).max() <= LARGEST_POTENTIAL
    assert path.learning_rate == 1e6


def test_the_largest_curvature_is_the_largest_eigenvalue():
    engine = marginal_engine(MODEL.cardinalities, MODEL.scopes)
    theta = np.random.default_rng(12).normal(0, 1, MODEL.size)
    product = engine.linearize(theta)[2]
    dense = np.array([product(unit) for unit in np.eye(MODEL.size)])
    assert largest_curvature(engine, theta) == pytest.approx(
        np.linalg.eigvalsh(dense).max(), rel=1e-3
    )
    single = marginal_engine([1], [(0,)])
    assert largest_curvature(single, np.zeros(1)) == 0.0


RATE, MULTIPLIER = 0.5, 0.7


def exact_curve(delta: float) -> float:
    r"""Epsilon at delta of the pair (1 - q) N(0, z^2) + q N(1, z^2), N(0, z^2), the worse of both directions."""

    def spent(epsilon: float) -> float:
        def tail(at: float) -> tuple[float, float]:
            null = float(stats.norm.sf(at / MULTIPLIER))
            return (1 - RATE) * null + RATE * float(stats.norm.sf((at - 1) / MULTIPLIER)), null

        def where(
            ratio: float,
        ) -> float:  # the likelihood ratio is 1 - q + q exp((2x - 1) / (2 z^2))
            return MULTIPLIER**2 * math.log((ratio - 1 + RATE) / RATE) + 0.5

        up, null = tail(where(math.exp(epsilon)))
        found = up - math.exp(epsilon) * null
        if math.exp(-epsilon) > 1 - RATE:
            up, null = tail(where(math.exp(-epsilon)))
            found = max(found, (1 - null) - math.exp(epsilon) * (1 - up))
        return found

    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize(("share", "caught"), [(1.0, False), (0.9, True)])
def test_an_audit_of_a_step_passes_the_noise_and_catches_nine_tenths_of_it(share, caught):
    # one record, whose gradient is clipped and so attains the sensitivity, against none
    lattice = gradient_ascent.GradientLattice.of(len(MODEL.cliques), 0.5)
    rounded = lattice.rounded(marginals("random"))
    single = np.ones(1, dtype=np.int64)
    contribution = max(
        (
            lattice.total(gradient_ascent.cells_of(MODEL, record[None]), single, rounded)
            for record in RECORDS
        ),
        key=lambda vector: float((vector.astype(float) ** 2).sum()),
    )
    direction = contribution / lattice.sensitivity**2
    law = DiscreteGaussian(share * MULTIPLIER * lattice.sensitivity)

    def statistics(present: int, seed: int):
        noise = source(seed)

        def run(runs: int) -> np.ndarray:
            drawn = draw_each(runs, round(RATE * WHOLE), noise.words) * present
            sums = noise.add(np.multiply.outer(drawn, contribution).ravel(), law).reshape(runs, -1)
            return sums @ direction

        return run

    result = audit(
        statistics(1, 13), statistics(0, 14), exact_curve, runs=100_000, deltas=(0.1, 0.03, 0.01)
    )
    assert result.is_violated == caught
