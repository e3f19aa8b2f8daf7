"""A panel of real life courses: whether intervals hold the numbers of people who went from one state to another."""

import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.noise import Laplace

DATA = [
    folder / "shared/data/biofam/biofam_states.csv" for folder in Path(__file__).resolve().parents
]
YEARS, STATES, NEEDED = 8, 8, 52


@pytest.mark.slow
def test_intervals_hold_the_pooled_transitions_of_a_panel():
    """Eight years of 2,000 people at epsilon 1: 52 of the 64 transitions, summed over the years, in a simulated
    release. Half of the 64 hardly ever happened: a prior that expects someone everywhere would miss them.
    """
    pd = pytest.importorskip("pandas")
    path = next((path for path in DATA if path.exists()), None)
    if path is None:
        pytest.skip("the data of the panel are not here")
    courses = pd.read_csv(path).iloc[:, :YEARS].astype(int)
    years = list(courses.columns)
    network = bpm.declare(
        states={year: list(range(STATES)) for year in years}, cliques=list(pairwise(years))
    )
    true = sum(
        np.histogram2d(courses[a], courses[b], bins=STATES, range=[(-0.5, STATES - 0.5)] * 2)[0]
        for a, b in pairwise(years)
    )
    release = LaplaceStatistics(epsilon=1.0).release(network, courses, rng=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short chains
        posterior = bpm.LatentCounts().fit(
            release, rng=0, chains=2, tune=300, draws=400, time_limit=1
        )
    pooled = posterior.interval(q.pooled(list(pairwise(years))), 0.9, of="records")
    assert ((pooled["lower"] <= true.ravel()) & (true.ravel() <= pooled["upper"])).sum() >= NEEDED


@pytest.mark.slow
def test_a_panel_whose_moves_the_noise_hides_keeps_the_people_who_move():
    """Ten states at six visits; a tenth of 3,000 people move between two of them, a few in each of the hidden cells.

    The mean error of N on four releases, in posterior deviations, has the standard error .5. Under margins that each
    visit has for itself it is -2.7, because equal flows are less surprising where few people move.
    """
    states, visits, people, scale = 10, 6, 3000, 5.0
    waves = [f"t{k}" for k in range(visits)]
    network = bpm.declare(
        states={wave: list(range(states)) for wave in waves}, cliques=list(pairwise(waves))
    )
    errors = []
    for seed in range(4):
        rng = np.random.default_rng([seed, 41])
        at = [rng.integers(states, size=people)]
        for _ in waves[1:]:
            moves = rng.random(people) < 0.1
            at.append((at[-1] + moves * rng.integers(1, states, people)) % states)
        tables = {
            pair: np.histogram2d(a, b, bins=states, range=[(-0.5, states - 0.5)] * 2)[0]
            + rng.laplace(0.0, scale, (states, states))
            for pair, (a, b) in zip(pairwise(waves), pairwise(at), strict=True)
        }
        release = bpm.NoisyStatistics.from_tables(network, tables, noise=Laplace(scale))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of short chains
            posterior = bpm.LatentCounts().fit(
                release, rng=seed, chains=2, tune=300, draws=300, time_limit=1
            )
        total = posterior.tree["posterior"]["total"].values
        errors.append((total.mean() - people) / total.std())
    assert abs(np.mean(errors)) < 2.1
