"""Bounded cells among bounded or exact totals of two directions: against the sum over all tables they allow."""

import itertools

import numpy as np
import pytest
from inference.posterior.engines import TableEngine
from inference.posterior.enumeration import log_dirichlet_multinomial

import bayesprivmrf as bpm
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference import gather
from bayesprivmrf.noise import Coarsened, NoNoise, RandomRounding, Rounded, Suppressed

SQUARE = bpm.declare(states={"a": [0, 1, 2], "b": [0, 1, 2]}, cliques=[("a", "b")])
NARROW = bpm.declare(states={"a": [0, 1], "b": [0, 1, 2]}, cliques=[("a", "b")])
CONCENTRATION = 0.4
EXACT = NoNoise()


def totals_of(tables):
    """Cells, totals of rows and totals of columns of tables of shape (..., rows, columns)."""
    return {("a", "b"): tables, ("a",): tables.sum(axis=-1), ("b",): tables.sum(axis=-2)}


def published(network, counts, rules):
    """Numbers of cells, totals of rows and totals of columns, by a rule each, and their release."""
    rng = np.random.default_rng(0)
    sums = totals_of(counts)
    numbers = {
        scope: table if rule == EXACT else rule.draw_given(table, rng)
        for (scope, table), rule in zip(sums.items(), rules, strict=True)
    }
    noise = dict(zip(sums, rules, strict=True))
    return numbers, bpm.NoisyStatistics.from_tables(network, numbers, noise=noise)


def allowed_tables(numbers, rules, candidates):
    """The candidates that the numbers allow, shape (tables, cells), and their posterior log weights given N."""
    weights = np.zeros(len(candidates))
    for scope, rule in zip(numbers, rules, strict=True):
        found = totals_of(candidates)[scope]
        if rule == EXACT:
            own = np.where(found == numbers[scope], 0.0, -np.inf)
        else:
            own = rule.log_probability(numbers[scope], found)
        weights += own.reshape(len(candidates), -1).sum(axis=1)
    is_allowed = weights > -np.inf
    tables = candidates[is_allowed].reshape(is_allowed.sum(), -1)
    return tables, weights[is_allowed] + log_dirichlet_multinomial(tables, CONCENTRATION)


def candidates_of(counts, rules):
    """All tables with cells from 0 to 8, or with the large cells of `counts` where small ones are suppressed."""
    hidden = np.arange(counts.size)
    values = range(9)
    if isinstance(rules[0], Suppressed):
        hidden = np.flatnonzero(counts.ravel() < 5)
        values = range(1, 5)
    chosen = np.array(list(itertools.product(values, repeat=hidden.size)), dtype=np.int16)
    tables = np.tile(counts.ravel(), (len(chosen), 1))
    tables[:, hidden] = chosen
    return tables.reshape(-1, *counts.shape)


def worst_differences(release, tables, weights, total=None):
    """Differences of posterior means, in deviations, and of deviations, as shares, from the sum over tables."""
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    mean = weights @ tables
    deviation = np.sqrt(weights @ (tables - mean) ** 2)
    evidence = gather(release, takes_bounds=True)
    engine = TableEngine(
        evidence=evidence, concentration=CONCENTRATION, total=total, total_range=(1, 60)
    )
    drawn = engine.sample(draws=550, tune=50, chains=2, seed=1, time_limit=0.0)
    counts = drawn.draws["counts"].reshape(-1, tables.shape[1])
    varies = deviation > 1e-9
    assert np.array_equal(
        counts[:, ~varies], np.broadcast_to(mean[~varies], (len(counts), (~varies).sum()))
    )
    found = {tuple(row) for row in counts.astype(int)}
    assert found <= {tuple(row) for row in tables.tolist()}
    of_mean = np.abs((counts.mean(axis=0) - mean)[varies] / deviation[varies]).max()
    of_deviation = np.abs(counts.std(axis=0)[varies] / deviation[varies] - 1).max()
    return of_mean, of_deviation


CASES = {
    # the diagonal is shown: the only move is a cycle of six cells
    "a cycle of six": (SQUARE, [[9, 2, 3], [1, 8, 3], [3, 2, 7]], (Suppressed(1, 5), EXACT, EXACT)),
    "all cells hidden": (SQUARE, [[1, 2, 3], [1, 4, 2], [3, 2, 1]], (Suppressed(1, 5), EXACT, EXACT)),
    "rounded totals": (NARROW, [[1, 3, 2], [4, 0, 2]], (Coarsened([(0, 1), (2, 6)]), Rounded(3), Rounded(4))),
    "rounded at random": (NARROW, [[1, 3, 2], [4, 0, 2]], (RandomRounding(3), RandomRounding(3), EXACT)),
}  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [*list(CASES)[:1], *(pytest.param(name, marks=pytest.mark.slow) for name in list(CASES)[1:])],
)
def test_counts_are_those_of_the_sum_over_all_tables(case):
    """Means within 0.16 posterior deviations, deviations within 0.13: 1,100 draws, worth 600 or more."""
    network, counts, rules = CASES[case]
    counts = np.array(counts)
    numbers, release = published(network, counts, rules)
    tables, weights = allowed_tables(numbers, rules, candidates_of(counts, rules))
    total = None
    if EXACT in rules:
        total = counts.sum()
    else:
        weights -= np.log(tables.sum(axis=1))
    of_mean, of_deviation = worst_differences(release, tables, weights, total)
    assert of_mean < 0.16
    assert of_deviation < 0.13


def test_numbers_that_determine_every_cell_are_a_trusted_posterior():
    counts = np.array([[2, 9, 8], [7, 3, 9], [9, 8, 1]])
    _, release = published(SQUARE, counts, (Suppressed(1, 5), EXACT, EXACT))
    posterior = bpm.LatentCounts().fit(release, rng=1, draws=50, tune=10, progress_bar=False)
    frame = posterior.interval(["a", "b"], of="records")
    assert posterior.status == "converged"
    assert (frame.lower == counts.ravel()).all()
    assert (frame.upper == counts.ravel()).all()


def test_tables_of_three_directions_are_refused():
    cube = bpm.declare(states={v: [0, 1] for v in "abc"}, cliques=[("a", "b", "c")])
    pairs = {pair: np.full((2, 2), 6) for pair in itertools.combinations("abc", 2)}
    numbers = {("a", "b", "c"): np.full((2, 2, 2), -1), **pairs}
    noise = {("a", "b", "c"): Suppressed(1, 5), **dict.fromkeys(pairs, EXACT)}
    release = bpm.NoisyStatistics.from_tables(cube, numbers, noise=noise)
    with pytest.raises(ModelError, match="NoiseAwareMAP"):
        bpm.LatentCounts().fit(release, rng=1)


def test_an_error_names_numbers_that_contradict_each_other_and_no_others():
    numbers = {
        ("a", "b"): [[-1, -1, 9], [-1, 8, 7], [9, 9, 9]],
        ("a",): [18, 16, 27],
        ("b",): [15, 20, 25],
    }
    noise = {("a", "b"): Suppressed(1, 5), ("a",): EXACT, ("b",): Rounded(5)}
    release = bpm.NoisyStatistics.from_tables(SQUARE, numbers, noise=noise)
    with pytest.raises(ModelError, match="contradict each other") as caught:
        bpm.LatentCounts().fit(release, rng=1)
    # two cells of at most 4 records each and 9 more are fewer than 18
    named = str(caught.value).split("other: ")[1].split(";")[0]
    assert named == "(a=0), (a=0, b=2), (a=0, b=0), (a=0, b=1)"
