"""Moves of one table of whole counts: against sums over all tables, and by the law that a right chain keeps."""

import functools
import warnings

import numpy as np
import pytest
from inference.conftest import noisy_release, simulated_counts, specification
from inference.posterior.enumeration import compositions, log_dirichlet_multinomial
from repeats import again
from scipy.stats import chisquare, ks_2samp

from bayesprivmrf import queries as q
from bayesprivmrf.compiled import kept
from bayesprivmrf.inference import LatentCounts, gather
from bayesprivmrf.inference.posterior.whole_records.table import TableEngine, move_between
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace
from bayesprivmrf.release import Measurement, NoisyStatistics

PAIR = specification({"a": [0, 1], "b": [0, 1]}, [("a", "b")])
ZERO = specification({"b": ["z", "a"], 0: [0, 1]}, [("b", 0)], [(("b", "a"), (0, 1))])
WIDE = specification({v: [0, 1, 2] for v in "ab"}, [("a", "b")])


@functools.cache
def queries_of(model):
    """Each kind of query, bound to a model of one clique of two variables, with its noise."""
    first, second = model.domain.variables
    given = [
        (q.table(first, second), DiscreteLaplace(3.0)),
        (q.coarsened(first, groups={first: {"all": list(model.domain.states[0])}}), Gaussian(1.5)),
        (q.weighted(second, matrix=[[2, -1, 1][: len(model.domain.states[1])]]), Laplace(2.0)),
        (q.parities(2), Gaussian(4.0)),
    ]
    return [(query.bind(model), law) for query, law in given]


def released(model, counts, rng, *, total=None):
    tables = model.tables(counts)
    measurements = [
        Measurement(bound.query, bound.answers(tables) + law.draw(len(bound), rng), law)
        for bound, law in queries_of(model)
    ]
    return NoisyStatistics.from_measurements(model, measurements, total=total)


def weighed(evidence, alpha, totals):
    """All tables, shape (tables, cells), and their posterior probabilities, N under 1/N."""
    possible = (
        np.ones(evidence.specification.size, bool)
        if evidence.supported is None
        else evidence.supported
    )
    tables, weights = [], []
    for total in totals:
        some = compositions(total, int(possible.sum()))
        full = np.zeros((len(some), possible.size))
        full[:, possible] = some
        weight = log_dirichlet_multinomial(some, alpha) - np.log(total)
        gaps = evidence.noisy_counts - full @ evidence.matrix.T
        for position, law in enumerate(evidence.noise):
            block = gaps[:, evidence.offsets[position] : evidence.offsets[position + 1]]
            weight = weight + law.log_density(block).sum(axis=1)
        tables.append(full)
        weights.append(weight)
    tables, weights = np.concatenate(tables), np.concatenate(weights)
    weights = np.exp(weights - weights.max())
    return tables, weights / weights.sum()


def enumerated(evidence, alpha, totals):
    """Mean and deviation of each possible cell's count, and of N, by the sum over all tables."""
    tables, weights = weighed(evidence, alpha, totals)
    tables = np.column_stack([tables, tables.sum(axis=1)])
    mean = weights @ tables
    return mean, np.sqrt(weights @ (tables - mean) ** 2)


@pytest.mark.parametrize("model", [ZERO, *again(PAIR)], ids=["impossible cell", "pair"])
@pytest.mark.parametrize("is_private", [False, True])
def test_counts_of_every_kind_of_query_are_those_of_the_sum_over_all_tables(model, is_private):
    """Means within .15 posterior standard deviations, deviations within .13: 1,100 draws, worth 750 or more."""
    rng = np.random.default_rng(5)
    counts, _ = simulated_counts(model, 15, rng)
    evidence = gather(released(model, counts, rng, total=None if is_private else 15))
    totals = range(6, 31) if is_private else [15]
    mean, sd = enumerated(evidence, 0.4, totals)
    known = {"total_range": (6, 30)} if is_private else {"total": 15}
    formulation = TableEngine(evidence=evidence, concentration=0.4, **known)
    drawn = formulation.sample(draws=550, tune=40, chains=2, seed=1, time_limit=0.0)
    finished = formulation.finish(drawn.draws, np.random.default_rng(0))
    found = np.column_stack([finished.counts.reshape(-1, model.size), finished.total.reshape(-1)])
    varies = sd > 1e-9
    assert np.abs((found.mean(axis=0) - mean)[varies] / sd[varies]).max() < 0.15
    assert found.std(axis=0)[varies] == pytest.approx(sd[varies], rel=0.13)
    np.testing.assert_allclose(found[:, ~varies] - mean[~varies], 0.0, atol=1e-6)


@kept()
def moved(starts, sums, turn, moves, state, table, data, rng):
    """Make some moves of one kind from each table, one table after another."""
    found = np.empty_like(starts)
    for r in range(len(starts)):
        state.counts[:], state.sums[:], table.places[:], table.sizes[0] = starts[r], sums[r], -1, 0
        for cell in range(starts.shape[1]):
            if starts[r, cell] > 0:
                table.places[cell], table.occupied[table.sizes[0]] = table.sizes[0], cell
                table.sizes[0] += 1
        for _ in range(moves):
            move_between(turn, state, table, data, rng)
        found[r] = state.counts
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "turn", [0, 1, 2, 3], ids=["any cell", "occupied", "of one number", "parted"]
)
def test_each_way_to_move_records_keeps_the_law_by_itself(turn):
    """100,000 tables drawn from their law have it still after eight moves: a chi-square test at 1e-4."""
    rng = np.random.default_rng(8)
    model = specification({"a": [0, 1], "b": [0, 1, 2]}, [("a", "b")])
    evidence = gather(released(model, np.array([3, 0, 1, 0, 2, 0]), rng, total=6))
    formulation = TableEngine(evidence=evidence, concentration=0.4, total=6)
    tables, weights = weighed(evidence, 0.4, [6])
    chosen = rng.choice(len(tables), 100_000, p=weights)
    starts = tables.astype(np.int64)[chosen]
    sums, chain = formulation.measured.answers(starts).astype(np.int64), formulation.chain(rng)
    found = moved(starts, sums, turn, 8, chain.state, chain.parts["cells"], formulation.data, rng)
    code = 7 ** np.arange(6)
    order = np.argsort(tables @ code)
    seen = np.bincount(
        order[np.searchsorted((tables @ code)[order], found @ code)], minlength=len(tables)
    )
    often = weights * len(found) > 20
    expected = np.append(weights[often], weights[~often].sum()) * len(found)
    assert chisquare(np.append(seen[often], seen[~often].sum()), expected).pvalue > 1e-4
    assert (found != starts).any(axis=1).mean() > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("total", [None, 20])
def test_a_chain_that_starts_in_its_law_stays_in_it(total):
    """Shapes, counts, N and noise from their joint law; the chain keeps it: two-sample tests at 1e-4 of 100."""
    rng, first, last = np.random.default_rng(3), [], []
    known = {"total": 20} if total else {"total_range": (5, 60)}
    blank = released(WIDE, np.zeros(9), np.random.default_rng(0), total=total)
    prior = TableEngine(evidence=gather(blank), **known)
    for _ in range(100):
        drawn = prior.prior_draws(1, rng)
        evidence = gather(released(WIDE, drawn.counts[0, 0], rng, total=total))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chain = TableEngine(evidence=evidence, **known)
        kept = chain.sample(draws=1, tune=1, chains=1, seed=int(rng.integers(2**32)))
        finished = chain.finish(kept.draws, rng)
        first.append(
            [
                drawn.total[0, 0],
                drawn.counts[0, 0, 0],
                *drawn.marginals[0, 0].reshape(3, 3).sum(axis=1),
            ]
        )
        last.append(
            [
                finished.total[0, 0],
                finished.counts[0, 0, 0],
                *finished.marginals[0, 0].reshape(3, 3).sum(axis=1),
            ]
        )
    for before, after in zip(np.transpose(first), np.transpose(last), strict=True):
        assert ks_2samp(before, after).pvalue > 1e-4


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
@pytest.mark.slow
def test_empty_cells_of_a_long_table_add_nothing_to_the_number_of_records():
    """2,000 records in 20 of 900 cells: with a floor of .1 in each, N is five standard errors too large."""
    rng = np.random.default_rng(0)
    counts = np.zeros(900)
    counts[:20] = rng.multinomial(2000, rng.dirichlet(np.ones(20)))
    model = specification({"a": list(range(45)), "b": list(range(20))}, [("a", "b")])
    release = noisy_release(model, counts, Gaussian(3.0), rng)
    posterior = LatentCounts().fit(release, rng=1, chains=2, draws=90, tune=100)
    assert posterior.stats["formulation"] == "exact"
    assert abs(posterior.stats["total"] - 2000) < 3 * posterior.stats["total_standard_error"]
