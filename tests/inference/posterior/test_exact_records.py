"""Moves of whole records: against sums over all integer tables, and by the law that a right chain leaves in place."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from inference.conftest import AWKWARD, noisy_release, simulated_counts, specification
from inference.posterior.drawn import finished_of
from inference.posterior.engines import Rows
from inference.posterior.enumeration import exact_posterior
from inference.posterior.small_models import BINARY, UNEQUAL, ZEROS
from scipy.stats import ks_2samp

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.inference import LatentCounts, gather
from bayesprivmrf.inference.posterior import shape_prior
from bayesprivmrf.inference.posterior.whole_records.shape_moves import level_after, level_gain
from bayesprivmrf.privacy import DiscreteLaplace, Gaussian, Laplace
from bayesprivmrf.release import NoisyStatistics

PANEL = specification({v: ["x", "y", "z"] for v in "abc"}, [("a", "b"), ("b", "c")])


def release_of(model, records, law, seed, *, total=True):
    rng = np.random.default_rng(seed)
    counts, _ = simulated_counts(model, records, rng)
    return noisy_release(model, counts, law, rng, total=records if total else None)


def sampled(formulation, *, draws=2500, seed=1):
    drawn = formulation.sample(draws=draws, tune=300, chains=2, seed=seed, time_limit=0.0)
    return formulation.finish(drawn.draws, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("model", "law", "alpha"),
    [
        (UNEQUAL, DiscreteLaplace(2.0), 0.4),
        (ZEROS, Gaussian(1.5), 1.0),
        pytest.param(BINARY, DiscreteLaplace(6.0), 0.2, marks=pytest.mark.slow),
        pytest.param(BINARY, Laplace(2.0), 5.0, marks=pytest.mark.slow),
    ],
)
def test_marginals_are_those_of_the_sum_over_all_tables(model, law, alpha):
    """Means within .15 posterior standard deviations, five standard errors of 5,000 draws worth a fifth each."""
    evidence = gather(release_of(model, 14, law, 77))
    exact = exact_posterior(evidence, alpha=alpha)
    finished = sampled(Rows(evidence=evidence, concentration=alpha, total=14))
    drawn = finished.marginals.reshape(-1, exact.mean.size)
    possible = exact.sd > 0
    error = (drawn.mean(axis=0) - exact.mean)[possible] / exact.sd[possible]
    assert np.abs(error).max() < 0.15
    assert drawn.std(axis=0)[possible] == pytest.approx(exact.sd[possible], rel=0.12)
    assert (drawn[:, ~possible] == 0).all()


def test_a_private_number_of_records_has_its_exact_posterior():
    """Its mean within .15 deviations, five standard errors of 6,000 draws worth a fifth each."""
    evidence = gather(release_of(BINARY, 12, DiscreteLaplace(3.0), 5, total=False))
    exact = exact_posterior(evidence, totals=range(4, 36))
    finished = sampled(Rows(evidence=evidence, concentration=1.0, total_range=(4, 35)), draws=3000)
    assert finished.total.mean() == pytest.approx(exact.total_mean, abs=0.15 * exact.total_sd)
    assert finished.total.std() == pytest.approx(exact.total_sd, rel=0.12)


@pytest.mark.filterwarnings(
    "ignore::bayesprivmrf.errors.SamplingWarning"
)  # twenty draws are not mixed
@pytest.mark.parametrize("name", ["tree", "disconnected", "one state", "single", "empty"])
def test_tables_of_a_draw_are_of_its_records(name):
    model = specification(*AWKWARD[name])
    posterior = LatentCounts(formulation="exact").fit(
        release_of(model, 40, DiscreteLaplace(1.0), 1), rng=1, draws=20, tune=5, time_limit=1e-9
    )
    counts = posterior.tree["posterior"]
    assert posterior.stats["formulation"] == "exact"
    for variable in counts:
        if variable.startswith("counts"):
            tables = counts[variable].values
            assert (tables == np.rint(tables)).all()
            assert tables.reshape(4, 20, -1).sum(axis=-1) == pytest.approx(40)


def numbers_of(finished):
    """N, shares of states, a count, the learned strengths, and where those of two tables go who leave a state."""
    tables = finished.marginals[0, 0].reshape(2, 3, 3)
    return [
        finished.total[0, 0],
        *tables[0].sum(axis=1),
        finished.counts[0, 0, 0],
        *(values[0, 0] for values in finished.learned.values()),
        *tables[:, 0, 1] / tables[:, 0, 1:].sum(axis=1),
    ]


@pytest.mark.slow
def test_a_chain_that_starts_in_its_law_stays_in_it():
    """Shapes, rows, records, N and noise from their joint law; thirty sweeps later they have it still.

    Two-sample tests at 1e-4 on 250 replicates of the first and last state: a wrong acceptance ratio moves them.
    """
    model = specification({v: [0, 1, 2] for v in "abc"}, [("a", "b"), ("b", "c")])
    rng, first, last = np.random.default_rng(3), [], []
    blank = NoisyStatistics.from_tables(
        model,
        {("a", "b"): np.zeros((3, 3)), ("b", "c"): np.zeros((3, 3))},
        noise=DiscreteLaplace(2.0),
    )
    prior = Rows(evidence=gather(blank), total_range=(5, 60))
    for _ in range(250):
        drawn = prior.prior_draws(1, rng)
        noise = DiscreteLaplace(2.0)
        tables = {
            ("a", "b"): drawn.counts[0, 0, :9].reshape(3, 3) + noise.draw((3, 3), rng),
            ("b", "c"): drawn.counts[0, 0, 9:].reshape(3, 3) + noise.draw((3, 3), rng),
        }
        release = NoisyStatistics.from_tables(model, tables, noise=noise)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chain = Rows(evidence=gather(release), total_range=(5, 60))
        finished = chain.finish(
            chain.sample(draws=1, tune=30, chains=1, seed=int(rng.integers(2**32))).draws, rng
        )
        first.append(numbers_of(drawn))
        last.append(numbers_of(finished))
    for before, after in zip(np.transpose(first), np.transpose(last), strict=True):
        assert ks_2samp(before, after).pvalue > 1e-4


@pytest.mark.parametrize("model", [UNEQUAL, PANEL])
def test_derivatives_of_the_shapes_are_exact(model):
    forest = Rows(evidence=gather(release_of(model, 14, DiscreteLaplace(1.0), 1)), total=14).forest
    assert forest.is_inner.any() == (model is PANEL)
    prior = shape_prior.ShapePrior(forest=forest)
    rng = np.random.default_rng(2)
    position, weights = rng.standard_normal(prior.size), rng.standard_normal(forest.cells.size)
    found = shape_prior.row_shapes_pullback(
        position, prior.data, prior.shapes(position), weights, 0.0
    )
    for k in range(prior.size):
        step = np.zeros(prior.size)
        step[k] = 1e-6
        change = (prior.shapes(position + step) - prior.shapes(position - step)) @ weights / 2e-6
        assert found[k] == pytest.approx(change, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("model", [UNEQUAL, PANEL])
def test_a_move_of_a_position_and_the_level_multiplies_shapes_of_its_own_state_alone(model):
    forest = Rows(evidence=gather(release_of(model, 14, DiscreteLaplace(1.0), 1)), total=14).forest
    prior = shape_prior.ShapePrior(forest=forest)
    data, before = prior.data, np.random.default_rng(3).standard_normal(prior.size)
    for k, table in enumerate(forest.tables):
        for group, (states, of_cell) in enumerate(table.margins, start=int(data.clique_groups[k])):
            for s in range(states):
                after, place = before.copy(), int(data.group_starts[group]) + s
                after[place] += 0.7
                weights = shape_prior.log_weights.py_func(group, before, data)
                grown = shape_prior.log_weights.py_func(group, after, data)[s] - weights[s]
                gain, _ = level_gain(
                    data.stays[group], weights[s], grown, np.logaddexp.reduce(weights)
                )
                level = 1.5 * before[0] + before[1 + k]
                after[1 + k] += level_after(level, gain) - level
                ratio = (prior.shapes(after) - data.fixed) / (prior.shapes(before) - data.fixed)
                expected = np.where(of_cell == s, np.exp(grown), 1.0)
                assert ratio[table.start : table.stop] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")  # 1.01 is near enough
def test_relaxed_counts_have_the_posterior_of_whole_records_where_tables_are_cut_in_steps():
    """Means within .15 posterior deviations, deviations within 12 %: several hundred effective draws."""
    rng = np.random.default_rng(8)
    rows = 0.9 * np.eye(3) + 0.1 / 3
    states = [rng.integers(3, size=300)]
    for _ in range(2):
        states.append(np.array([rng.choice(3, p=rows[s]) for s in states[-1]]))
    counts = np.concatenate([np.bincount(3 * a + b, minlength=9) for a, b in pairwise(states)])
    release = noisy_release(PANEL, counts, DiscreteLaplace(4.0), rng, total=None)
    found = [
        finished_of(
            LatentCounts(formulation=name, total_range=(100, 900)).fit(
                release, rng=1, chains=4, draws=3000, time_limit=1
            )
        )
        for name in ("exact", "hyper-dirichlet")
    ]
    for what in ("marginals", "counts"):
        exact, relaxed = (getattr(one, what).reshape(-1, 18) for one in found)
        assert (np.abs(relaxed.mean(axis=0) - exact.mean(axis=0)) < 0.15 * exact.std(axis=0)).all()
        assert relaxed.std(axis=0) == pytest.approx(exact.std(axis=0), rel=0.12)


def test_what_the_exact_formulation_cannot_take_is_refused():
    with pytest.raises(ArgumentError, match="`scale`"):
        LatentCounts(formulation="exact", scale=0.5, concentration=1.0).fit(
            release_of(BINARY, 50, DiscreteLaplace(1.0), 1)
        )
    chain = release_of(BINARY, 50, DiscreteLaplace(1.0), 1)
    with pytest.raises(ArgumentError, match="`time_limit`"):
        LatentCounts(formulation="exact").fit(chain, time_limit=0.0)
