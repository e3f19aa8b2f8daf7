"""Answers without noise in the posterior of one clique: the sum over all tables that give them back."""

import numpy as np
import pytest
from inference.conftest import specification
from inference.posterior.drawn import finished_of
from inference.posterior.enumeration import compositions, log_dirichlet_multinomial

from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, ModelError
from bayesprivmrf.inference import LatentCounts
from bayesprivmrf.privacy import Laplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics

MODEL = specification(
    {"area": ["x", "y"], "sex": ["f", "m"], "ill": [0, 1]}, [("area", "sex", "ill")]
)
NOISY = np.array([1.2, 0.3, -0.8, 2.0, 0.4, 1.7, 0.2, -1.1])
LAW = Laplace(1.0)


def release_of(*exact):
    return NoisyStatistics.from_measurements(
        MODEL,
        [
            Measurement(q.table("area", "sex", "ill"), NOISY, LAW),
            *(Measurement(query, np.array(values), NoNoise()) for query, values in exact),
        ],
    )


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
def test_the_posterior_is_the_sum_over_the_tables_that_give_the_answers_back():
    """Totals of the areas are known, and so N, and beside them one cell of a table inside.

    Means within .14 of a deviation: of 1,000 draws, each after 2,000 moves, 4.4 standard errors.

    Noise half as wide again would move a mean by a fifth of one.
    """
    a_cell = q.weighted("area", "sex", matrix=[[1, 0, 0, 0]])
    exact = [(q.table("area"), [3, 2]), (a_cell, [1])]
    tables = compositions(5, 8)
    for query, values in exact:
        tables = tables[(query.bind(MODEL).answers(tables) == values).all(axis=1)]
    weight = log_dirichlet_multinomial(tables, 1.0) + LAW.log_density(NOISY - tables).sum(axis=1)
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    posterior = LatentCounts(concentration=1.0).fit(
        release_of(*exact), rng=1, draws=500, tune=100, chains=2, time_limit=1e-9
    )
    counts = finished_of(posterior).counts.reshape(-1, 8)
    assert posterior.stats["formulation"] == "exact"
    for query, values in exact:
        assert (query.bind(MODEL).answers(counts) == values).all()
    deviation = np.sqrt(weight @ tables**2 - (weight @ tables) ** 2)
    assert np.abs(counts.mean(axis=0) - weight @ tables).max() < 0.14 * deviation.max()
    people = posterior.interval("area", of="records")
    assert people[["lower", "upper"]].to_numpy() == pytest.approx(np.array([[3, 3], [2, 2]]))


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
def test_answers_that_moves_of_one_cell_do_not_keep_are_kept_by_exchanges_or_refused_with_a_remedy():
    crossing = release_of((q.table("area"), [3, 2]), (q.table("sex"), [2, 3]))
    posterior = LatentCounts().fit(crossing, rng=1, draws=20, tune=5, chains=2, time_limit=1)
    counts = finished_of(posterior).counts.reshape(-1, 2, 2, 2)
    assert (counts.sum(axis=(2, 3)) == [3, 2]).all()
    assert (counts.sum(axis=(1, 3)) == [2, 3]).all()
    scores = q.weighted("area", "sex", matrix=[[0, 1, 2, 3]])
    with pytest.raises(ModelError, match=r"nested or disjoint.*NoiseAwareMAP"):
        LatentCounts().fit(release_of((scores, [7])), rng=1)
    with pytest.raises(ArgumentError, match="NoiseAwareMAP"):
        LatentCounts(formulation="log-linear").fit(release_of((q.table("area"), [3, 2])), rng=1)
