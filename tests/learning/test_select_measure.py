"""Selection and measurement of pairs: exact counts, sensitivities by brute force, the choice's law, an audit."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from repeats import few
from scipy import stats

from bayesprivmrf.audit import audit
from bayesprivmrf.learning import select_measure
from bayesprivmrf.marginals import DEFAULT_MEMORY_LIMIT
from bayesprivmrf.mechanisms.select_measure import measured_on_rows
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import Adjacency, DiscreteGaussian, selection_rho, selection_scale

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


def plan_of(
    cards, form="tables", count=None, scale=5.0, noise=0.3
) -> select_measure.MeasurementPlan:
    free = [v for v, k in enumerate(cards) if k > 1]
    candidates = np.array(list(itertools.combinations(free, 2))).reshape(-1, 2)
    return select_measure.MeasurementPlan(
        cardinalities=tuple(cards),
        form=form,
        candidates=candidates,
        count=len(candidates) if count is None else count,
        one_way=DiscreteGaussian(noise),
        two_way=DiscreteGaussian(noise),
        selection_scale=None if count is None else scale,
    )


def ones(codes: np.ndarray) -> np.ndarray:
    return np.ones(len(codes), dtype=np.int64)


def source(seed: int) -> SimulatedNoise:
    return SimulatedNoise(np.random.default_rng(seed))


@pytest.mark.parametrize("cards", [(2, 2, 2), (3, 2, 4), (2, 1, 3)])
def test_counts_of_pairs_are_exact_whether_rows_are_merged_or_not(cards):
    rng = np.random.default_rng(1)
    codes = np.stack([rng.integers(0, k, 400) for k in cards], axis=1).astype(np.uint8)
    distinct, counts = np.unique(codes, axis=0, return_counts=True)
    quiet = plan_of(cards, noise=1e-3)
    plain = measured_on_rows(codes, ones(codes), 400.0, quiet, source(2))
    merged = measured_on_rows(distinct, counts.astype(np.int64), 400.0, quiet, source(2))
    expected = []
    for i, j in quiet.candidates:
        table = np.zeros((cards[i], cards[j]), dtype=int)
        np.add.at(table, (codes[:, i], codes[:, j]), 1)
        expected.append(table.ravel())
    assert np.array_equal(plain.two_way, np.concatenate(expected))
    assert np.array_equal(merged.two_way, plain.two_way)
    assert np.array_equal(merged.one_way, plain.one_way)


def test_moments_are_sums_of_spins_and_of_their_products():
    codes = np.random.default_rng(3).integers(0, 2, (300, 5)).astype(np.uint8)
    spins = 2 * codes.astype(int) - 1
    plan = plan_of((2,) * 5, form="moments", noise=1e-3)
    measured = measured_on_rows(codes, ones(codes), 300.0, plan, source(4))
    assert np.array_equal(measured.one_way, spins.sum(axis=0))
    assert np.array_equal(measured.two_way, (spins.T @ spins)[tuple(plan.candidates.T)])


def slow_scores(codes: np.ndarray, cards, shares) -> np.ndarray:
    """The docstring's formula, record by record."""
    D, p = int(shares[0].sum()), len(cards)
    u = np.zeros((p, p), dtype=int)
    for i, j in itertools.permutations(range(p), 2):
        if cards[i] > 1 and cards[j] > 1:
            table = np.zeros((cards[i], cards[j]), dtype=int)
            for record in codes:
                left, right = -shares[i].copy(), -shares[j].copy()
                left[record[i]] += D
                right[record[j]] += D
                table += np.multiply.outer(left, right)
            bounds = [2 * (D - int(shares[v].min())) for v in (i, j)]
            u[i, j] = np.abs(table).sum() // math.ceil(bounds[0] * bounds[1] / select_measure.STEPS)
    return u


@pytest.mark.parametrize("cards", [(2, 2, 2), (3, 2, 1, 4)])
def test_scores_are_the_centred_tables_norms(cards):
    rng = np.random.default_rng(5)
    codes = np.stack([rng.integers(0, k, 30) for k in cards], axis=1).astype(np.uint8)
    plan = plan_of(cards)
    one_way = np.concatenate([np.bincount(codes[:, v], minlength=k) for v, k in enumerate(cards)])
    shares = select_measure.public_shares(one_way, 30.0, plan)
    assert all(share.sum() == 1024 and share.min() >= 1 for share in shares)
    assert np.array_equal(
        select_measure.dependence_scores(
            select_measure.pair_sums(codes, ones(codes), cards), cards, shares
        ),
        slow_scores(codes, cards, shares),
    )


def test_scores_of_billions_of_records_and_thousands_of_states_stay_within_64_bits():
    largest = math.isqrt(
        DEFAULT_MEMORY_LIMIT // (8 * 7)
    )  # states that SelectMeasure accepts in all
    for states in (2, 257, 4096, 4097, largest):
        one_way = np.ones(states, dtype=np.int64)
        plan = plan_of((states, 2))
        shares = select_measure.public_shares(np.append(one_way, [0, 0]), 30.0, plan)
        D = int(shares[0].sum())
        assert all(share.sum() == D and share.min() >= 1 for share in shares)
        assert 4 * D**2 * 2**32 < 2**63


def test_with_equal_shares_the_score_is_the_size_of_the_sum_of_products():
    codes = np.random.default_rng(6).integers(0, 2, (50, 4)).astype(np.uint8)
    spins = 2 * codes.astype(int) - 1
    shares = [np.array([512, 512])] * 4
    scores = select_measure.dependence_scores(
        select_measure.pair_sums(codes, ones(codes), (2,) * 4), (2,) * 4, shares
    )
    off = ~np.eye(4, dtype=bool)
    assert np.array_equal(scores[off], select_measure.STEPS * np.abs(spins.T @ spins)[off])


def neighbours(cards, size: int):
    """All data sets of `size` records up to order, each with each way to add a record or to replace one."""
    cells = list(itertools.product(*map(range, cards)))
    for records in itertools.combinations_with_replacement(cells, size):
        for new in cells:
            yield ADD, records, (*records, new)
            for old in set(records):
                rest = list(records)
                rest.remove(old)
                yield REPLACE, records, (*rest, new)


@pytest.mark.parametrize("cards", few([(3, 2, 2), (2, 2, 2)]))
def test_no_neighbour_moves_the_scores_beyond_their_range_and_some_reach_it(cards):
    rng = np.random.default_rng(7)
    for shares in (
        [np.array([512, 512]) if k == 2 else np.array([341, 341, 342]) for k in cards],
        [
            np.sort(rng.multinomial(1021, [0.8, 0.2] if k == 2 else [0.7, 0.2, 0.1])) + 1
            for k in cards
        ],
    ):
        D = int(shares[0].sum())
        shares = [np.append(s[:-1], D - s[:-1].sum()) for s in shares]

        @functools.cache  # a data set is the neighbour of many
        def scores_of(records, shares=shares):
            codes = np.array(records, dtype=np.uint8).reshape(-1, len(cards))
            return select_measure.dependence_scores(
                select_measure.pair_sums(codes, ones(codes), cards), cards, shares
            )[np.triu_indices(3, 1)]

        widest = {ADD: 0, REPLACE: 0}
        for relation, before, after in neighbours(cards, 2):
            change = scores_of(tuple(sorted(after))) - scores_of(tuple(sorted(before)))
            bound = select_measure.STEPS if relation is ADD else 2 * select_measure.STEPS
            assert np.abs(change).max() <= bound
            widest[relation] = max(widest[relation], change.max() - change.min())
        for relation in (ADD, REPLACE):
            assert widest[relation] <= select_measure.score_range(relation)
        if cards == (2, 2, 2) and shares[0][0] == 512:
            assert widest[ADD] == select_measure.score_range(ADD)
            assert widest[REPLACE] == select_measure.score_range(REPLACE)


@pytest.mark.parametrize("edges", ["path", "cycle of four", "complete"])
def test_sensitivity_of_sums_of_products_matches_brute_force(edges):
    p = 4 if edges == "cycle of four" else 5
    pairs = {
        "path": [(i, i + 1) for i in range(p - 1)],
        "cycle of four": [(0, 1), (1, 2), (2, 3), (0, 3)],
        "complete": list(itertools.combinations(range(p), 2)),
    }[edges]
    records = [np.array(x) for x in itertools.product((-1, 1), repeat=p)]
    vectors = [np.array([x[i] * x[j] for i, j in pairs]) for x in records]
    added = max(float(np.linalg.norm(v)) for v in vectors)
    replaced = max(float(np.linalg.norm(v - w)) for v in vectors for w in vectors)
    assert select_measure.pairs_sensitivity(p, len(pairs), "moments", ADD) == pytest.approx(
        added, rel=1e-12
    )
    assert select_measure.pairs_sensitivity(p, len(pairs), "moments", REPLACE) == pytest.approx(
        replaced, rel=1e-12
    )


def test_sensitivity_of_pair_tables_matches_brute_force():
    cards, pairs = (3, 2, 2), [(0, 1), (1, 2)]
    cells = list(itertools.product(*map(range, cards)))
    plan = plan_of(cards, noise=1e-3)
    keep = [k for k, pair in enumerate(plan.candidates) if tuple(pair) in pairs]
    sizes = np.cumsum([0, *[cards[i] * cards[j] for i, j in plan.candidates]])

    def tables(record):
        codes = np.array([record], dtype=np.uint8)
        flat = measured_on_rows(codes, ones(codes), 1.0, plan, source(8)).two_way
        return np.concatenate([flat[sizes[k] : sizes[k + 1]] for k in keep])

    vectors = [tables(cell) for cell in cells]
    added = max(float(np.linalg.norm(v)) for v in vectors)
    replaced = max(float(np.linalg.norm(v - w)) for v in vectors for w in vectors)
    assert select_measure.pairs_sensitivity(3, 2, "tables", ADD) == pytest.approx(added, rel=1e-12)
    assert select_measure.pairs_sensitivity(3, 2, "tables", REPLACE) == pytest.approx(
        replaced, rel=1e-12
    )


def test_no_data_and_one_state_variables_are_no_trouble():
    for cards in ((2, 2, 1), (1, 1, 2)):
        codes = np.zeros((0, 3), dtype=np.uint8)
        plan = plan_of(cards)
        measured = measured_on_rows(codes, ones(codes), 1.0, plan, source(9))
        assert measured.one_way.shape == (sum(cards),)
        assert measured.pairs.shape == (len(plan.candidates), 2)


def test_dependent_pairs_are_chosen():
    rng = np.random.default_rng(10)
    codes = rng.integers(0, 3, (4000, 6)).astype(np.uint8)
    for i, j in ((0, 3), (1, 4)):
        copied = rng.random(4000) < 0.3
        codes[copied, j] = codes[copied, i]
    plan = plan_of((3,) * 6, count=2, scale=20 * select_measure.STEPS, noise=20.0)
    measured = measured_on_rows(codes, ones(codes), 4000.0, plan, source(11))
    assert measured.pairs.tolist() == [[0, 3], [1, 4]]


def test_the_weaker_of_the_chosen_count_however_far_the_strongest_is():
    # a strong pair 10^6 scales above must not make all others alike
    scores = np.array([[10**9, 50_000, 0, 0, 0, 0]])
    for seed in range(50):
        assert set(source(seed).choose_several(scores, 1000.0, 2)[0]) == {0, 1}


def test_choices_at_once_pay_for_their_rounding():
    scale = selection_scale(2.0, 1e-6, 1000, at_once=True)
    assert selection_rho(2.0, scale, 1000, at_once=True) <= 1e-6
    assert scale > selection_scale(2.0, 1e-6, 1000)
    assert selection_rho(2.0, scale, 1000) < 1e-6


CHOICES = 20


def chosen_of(favoured: bool, scale: float, seed: int):
    """How many of the first 20 candidates are among the 20 chosen of 40; a neighbour moves them by M each way."""
    noise = source(seed)
    half = (
        np.repeat([select_measure.STEPS, 0], CHOICES)
        if favoured
        else np.repeat([0, select_measure.STEPS], CHOICES)
    )

    def run(runs: int) -> np.ndarray:
        chosen = noise.choose_several(np.tile(half, (runs, 1)), scale, CHOICES)
        return (chosen < CHOICES).sum(axis=1)

    return run


def law_of_chosen(up: float) -> np.ndarray:
    """Law of that number: choices in turn, each among the first half with odds `up` a candidate."""
    law = {(0, 0): 1.0}
    for _ in range(CHOICES):
        step: dict[tuple[int, int], float] = {}
        for (a, b), probability in law.items():
            left, right = (CHOICES - a) * up, float(CHOICES - b)
            for key, share in (((a + 1, b), left), ((a, b + 1), right)):
                step[key] = step.get(key, 0.0) + probability * share / (left + right)
        law = step
    return np.array([law[(a, CHOICES - a)] for a in range(CHOICES + 1)])


def exact_curve(scale: float):
    p, q = (law_of_chosen(math.exp(sign * select_measure.STEPS / scale)) for sign in (1, -1))

    def epsilon(delta: float) -> float:
        low, high = 0.0, CHOICES * 2 * select_measure.STEPS / scale
        for _ in range(60):
            middle = (low + high) / 2
            above = np.maximum(p - math.exp(middle) * q, 0).sum() > delta
            low, high = (middle, high) if above else (low, middle)
        return high

    return epsilon


def test_several_choices_at_once_have_the_law_of_choices_in_turn():
    scale = 4.0 * select_measure.STEPS
    seen = np.bincount(chosen_of(True, scale, 12)(40_000), minlength=CHOICES + 1)
    expected = 40_000 * law_of_chosen(math.exp(select_measure.STEPS / scale))
    kept = expected > 5
    assert (
        stats.chisquare(seen[kept], expected[kept] * seen[kept].sum() / expected[kept].sum()).pvalue
        > 1e-4
    )


@pytest.mark.parametrize(("share", "caught"), [(1.0, False), (0.9, True)])
def test_an_audit_passes_the_choice_and_catches_nine_tenths_of_its_scale(share, caught):
    scale = selection_scale(select_measure.score_range(ADD), 0.5, CHOICES, at_once=True)
    result = audit(
        chosen_of(True, share * scale, 13),
        chosen_of(False, share * scale, 14),
        exact_curve(scale),
        runs=60_000,
        deltas=(0.3, 0.2, 0.1),
    )
    assert result.is_violated == caught


@pytest.mark.parametrize(("share", "caught"), [(1.0, False), (0.9, True)])
def test_an_audit_passes_the_measurements_and_catches_nine_tenths_of_their_noise(share, caught):
    # one record more, whose products are all one: the sums' mean moves by sqrt(m) = 3 of its deviations over 3 sigma
    m, rho = 9, 2.0
    sigma = select_measure.pairs_sensitivity(6, m, "moments", ADD) / math.sqrt(2 * rho)
    law = DiscreteGaussian(share * sigma)

    def run(shift: int, seed: int):
        noise = source(seed)
        return lambda runs: noise.add(np.full(runs * m, shift), law).reshape(runs, m).sum(axis=1)

    mu = math.sqrt(2 * rho)

    def epsilon(delta: float) -> float:
        def spent(e: float) -> float:
            return stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu)

        low, high = 0.0, 60.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if spent(middle) > delta else (low, middle)
        return high

    result = audit(run(1, 15), run(0, 16), epsilon, runs=60_000, deltas=(0.3, 0.2, 0.1))
    assert result.is_violated == caught
