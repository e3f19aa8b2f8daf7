"""Rows of a posterior that reached its iteration limit are judged by their own draws."""

import arviz as az
import numpy as np
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import SamplingWarning
from bayesprivmrf.inference import Status
from bayesprivmrf.noise import DiscreteLaplace

CUT = "the fit reached its iteration limit"


def fitted(**settings):
    """A fit with few draws, whose cells differ in how well they have mixed."""
    network = bpm.declare({"a": list(range(4)), "b": list(range(4))}, [("a", "b")])
    rng = np.random.default_rng(6)
    table = rng.multinomial(400, rng.dirichlet(np.full(16, 0.3))).reshape(4, 4)
    noise = DiscreteLaplace(4.0)
    release = bpm.NoisyStatistics.from_tables(
        network, {("a", "b"): table + noise.draw((4, 4), rng)}, noise=noise
    )
    with pytest.warns(SamplingWarning):
        return bpm.LatentCounts(formulation="exact").fit(release, rng=2, **settings)


@pytest.mark.parametrize(
    ("chains", "draws"), [(1, 60), pytest.param(4, 60, marks=pytest.mark.slow)]
)
def test_statuses_of_a_short_fit_are_those_of_the_draws_of_each_row(chains, draws, tmp_path):
    short = fitted(draws=draws, chains=chains)
    assert short.status is Status.ITERATION_LIMIT
    frame = short.interval(["a", "b"])
    cells = short.quantity(
        lambda one: one.marginal(["a", "b"]), variables=["a", "b"], draws=draws * chains
    )
    drawn = cells.draws.values.reshape(chains, draws, 16)
    if chains == 1:
        drawn = drawn.reshape(2, draws // 2, 16)
    for row, (status, note) in enumerate(frame[["status", "note"]].to_numpy()):
        own = drawn[:, :, row]
        sizes = [az.ess(own, method="bulk"), az.ess(own, method="tail", prob=(0.11, 0.89))]
        is_cut = az.rhat(own, method="rank") >= 1.05 or min(sizes) < 100
        assert (status == "doubtful") == is_cut
        assert note.startswith(CUT) == is_cut
    assert cells.frame["status"].tolist() == frame["status"].tolist()
    short.save(tmp_path / "fit")
    again = bpm.load_posterior(tmp_path / "fit").interval(["a", "b"])
    assert again["status"].tolist() == frame["status"].tolist()


@pytest.mark.slow
def test_effects_and_odds_ratios_are_judged_by_their_own_draws():
    longer = fitted(draws=90)
    assert longer.status is Status.ITERATION_LIMIT
    effects = longer.effects()["status"]
    odds = bpm.analysis.odds_ratios(longer, "a", "b")["status"]
    for status in (effects, odds):
        assert 0 < (status == "doubtful").sum() < len(status)


def test_rows_of_too_few_draws_are_all_doubtful():
    short = fitted(draws=7, tune=50)
    assert set(short.interval(["a", "b"])["status"]) == {"doubtful"}
    assert set(short.effects()["status"]) <= {"doubtful", "not trusted"}
