import math
import os
import re
import signal
import sys
import threading
import warnings
from dataclasses import replace
from itertools import combinations, pairwise
from types import SimpleNamespace
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
from inference.conftest import specification
from inference.posterior.drawn import STATISTICS, release_of, sampled_as
from inference.posterior.engines import Finished, HyperDirichlet, Run, draw_posterior

import bayesprivmrf as bpm
from bayesprivmrf.errors import ArgumentError, SamplingWarning
from bayesprivmrf.inference import LatentCounts, Status, gather
from bayesprivmrf.inference.posterior import nuts_run
from bayesprivmrf.inference.posterior.formulation import (
    WORK,
    ChainMixing,
    Clock,
    StepProgress,
)
from bayesprivmrf.inference.posterior.relaxed_counts import nutpie as nutpie_sampler
from bayesprivmrf.inference.posterior.results import diagnostics
from bayesprivmrf.mechanisms import LaplaceStatistics
from bayesprivmrf.privacy import DiscreteLaplace, Laplace

NUTS = LatentCounts(formulation="hyper-dirichlet")  # whole records have no trajectories to speak of


@pytest.fixture(scope="module")
def release():
    return release_of(
        specification({"a": ["x", "y", "z"]}, [("a",)]), law=DiscreteLaplace(3.0), total=200
    )


@pytest.fixture(scope="module")
def fitted(release):
    """A sampling of the usual length; a warning would be an error."""
    return NUTS.fit(release, rng=3)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
def test_equal_seeds_give_equal_posteriors_and_others_do_not(release):
    """Of few draws, whose equality alone is asked; on one core, and on as many as there are."""
    few = {"draws": 100, "tune": 100, "chains": 2, "prior": True, "time_limit": 1e-9}
    one = NUTS.fit(release, rng=1, **few)
    again = NUTS.fit(release, rng=np.random.default_rng(1), cores=1, **few)
    for group in ("posterior", "posterior_predictive", "prior", "sample_stats"):
        assert again.tree[group].to_dataset().identical(one.tree[group].to_dataset())
    other = NUTS.fit(release, rng=2, **few)
    assert not np.array_equal(
        other.tree["posterior"]["counts[a]"], one.tree["posterior"]["counts[a]"]
    )
    assert (one.stats["seed"], again.stats["seed"]) == (1, "generator")


def test_the_seed_that_was_drawn_gives_the_posterior_again(release):
    """Of few draws: nothing but their equality is asked."""
    few = {"draws": 10, "tune": 10, "chains": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        drawn = NUTS.fit(release, **few)
        again = NUTS.fit(release, rng=drawn.stats["seed"], **few)
        other = NUTS.fit(release, **few)
    assert again.tree["posterior"].to_dataset().identical(drawn.tree["posterior"].to_dataset())
    assert again.stats["seed"] == drawn.stats["seed"] != other.stats["seed"]


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.SamplingWarning")
def test_a_second_fit_of_the_same_structure_takes_the_new_release(release, fitted):
    """Other counts, other noise scale and other prior; the integer law and its relative share a kernel."""
    other = release_of(release.specification, law=Laplace(0.5), seed=7, records=4000, total=4000)
    posterior = LatentCounts(formulation="hyper-dirichlet", concentration=0.8).fit(
        other, rng=1, draws=100, tune=100, chains=2, time_limit=1e-9
    )
    counts = posterior.tree["posterior"]["counts[a]"]
    assert counts.mean(("chain", "draw")).values == pytest.approx(other.tables["a"], abs=3)
    assert np.allclose(counts.sum("a"), 4000)


def test_marginals_follow_from_the_counts_by_their_conjugate_law(release):
    """One table: E(mu | n) = (n + 1) / (N + 3), so the means over the draws agree to Monte Carlo error."""
    drawn = (
        LatentCounts(formulation="hyper-dirichlet", concentration=1.0)
        .fit(release, rng=1)
        .tree["posterior"]
    )
    expected = (drawn["counts[a]"] + 1).mean(("chain", "draw")) / 203
    spread = drawn["marginal[a]"].std(("chain", "draw"))
    assert np.abs(drawn["marginal[a]"].mean(("chain", "draw")) - expected).values == pytest.approx(
        0, abs=float(4 * spread.max() / np.sqrt(4000))
    )


def test_a_good_sampling_converges_without_a_word(fitted):
    assert fitted.status is Status.CONVERGED
    assert fitted.stats["r_hat"] < 1.01
    assert fitted.tree["sample_stats"]["lp"].shape == (4, 1000)


@pytest.fixture
def interrupted():
    """Sends SIGINT after a second of sampling; also where the test run itself ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    yield
    timer.join()
    signal.signal(signal.SIGINT, before)


def test_an_interrupted_sampling_keeps_what_was_drawn_and_says_so(release, fitted, interrupted):
    with pytest.warns(SamplingWarning, match="stopped early"):
        posterior = NUTS.fit(release, rng=1, draws=500_000, tune=50, chains=2)
    assert posterior.status is Status.STOPPED_EARLY
    drawn = posterior.tree["posterior"]["marginal[a]"]
    assert 100 < drawn.sizes["draw"] < 500_000
    assert np.isfinite(drawn).all()


def test_an_interruption_while_tuning_leaves_nothing_and_is_passed_on(release, fitted, interrupted):
    with pytest.raises(KeyboardInterrupt):
        NUTS.fit(release, rng=1, draws=10, tune=10_000_000, chains=1)


def test_chains_that_have_not_mixed_are_a_status_and_a_warning(release, fitted):
    with pytest.warns(SamplingWarning, match="raise `draws`"):
        posterior = NUTS.fit(release, rng=1, draws=20, tune=20, chains=2)
    assert posterior.status is not Status.CONVERGED
    assert posterior.solution_at(0, 3).status is posterior.status
    assert posterior.solution.status is posterior.status
    seen = []
    posterior.quantity(lambda draw: seen.append(draw.status) or 0.0, draws=4)
    assert set(seen) == {posterior.status}
    with pytest.warns(SamplingWarning, match="maxdepth"):
        posterior = NUTS.fit(release, rng=1, maxdepth=1, draws=300)
    assert posterior.status is Status.ITERATION_LIMIT
    assert posterior.stats["saturated"] > 0.8


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bogus": 1}, "bogus"),
        ({"max_treedepth": 10}, "max_treedepth"),
        ({"max_energy_error": "high"}, "max_energy_error"),
        ({"adaptation": "guess"}, "adaptation"),
        ({"maxdepth": 0}, "maxdepth"),
        ({"target_accept": 1.0}, "target_accept"),
        ({"cores": 0}, "cores"),
        ({"draws": 2.5}, "draws"),
        ({"tune": -1}, "tune"),
        ({"tune": 0}, "tune"),
        ({"chains": True}, "chains"),
        ({"seed": 4}, "rng"),
        ({"progress_rate": 4}, "set by `fit`"),
        ({"sampler": "stan"}, "sampler"),
        ({"sampler": "pymc", "maxdepth": 10}, "max_treedepth"),
        ({"sampler": "pymc", "trace": None}, "trace"),
    ],
)
def test_settings_that_a_sampler_refuses_are_named(release, fitted, settings, words):
    with pytest.raises(ArgumentError, match=words):
        NUTS.fit(release, rng=1, **settings)


@pytest.mark.slow
def test_pymc_s_own_sampler_agrees_with_nutpie(release, fitted):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        posterior = NUTS.fit(release, rng=1, sampler="pymc", draws=1000, tune=1000, chains=2)
    one, other = (p.tree["posterior"]["counts[a]"] for p in (fitted, posterior))
    error = one.std(("chain", "draw")) * np.sqrt(
        1 / fitted.stats["ess_bulk"] + 1 / posterior.stats["ess_bulk"]
    )
    gap = one.mean(("chain", "draw")) - other.mean(("chain", "draw"))
    assert (np.abs(gap) < 4 * error).all()
    assert set(posterior.tree["sample_stats"]) == set(fitted.tree["sample_stats"])
    with pytest.raises(ArgumentError, match="init"):
        NUTS.fit(release, rng=1, sampler="pymc", init="nowhere")


@pytest.mark.slow
@pytest.mark.parametrize("what", ["another source", "another prior"])
def test_what_is_added_to_the_pymc_model_moves_its_draws_as_weights_move_those_without(what):
    """Bayes' rule: draws without the added term, weighed by it, are those that `pm.sample` gives with it."""
    pair = release_of(
        specification({"a": ["x", "y"], "b": ["u", "v", "w"]}, [("a", "b")]), total=None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        posterior = LatentCounts(formulation="log-linear").fit(pair, rng=1, draws=3000)
    drawn = posterior.tree["posterior"]
    at = (
        drawn["effect"].values.tolist().index("a,b")
    )  # log scales are in the order of the tree's effects

    def some_and_scale(draws, log_scales):
        return draws["counts[a,b]"].values[..., 1, :].sum(axis=-1), log_scales[..., at]

    some, scales = some_and_scale(drawn, np.log(drawn["scale"].values))
    place, width = some.mean() + some.std(), some.std()
    with posterior.pymc_model as model:
        if what == "another source":
            term = pm.logp(pm.Normal.dist(place, width), model["counts[a,b]"][1].sum())
            weights = np.exp(-0.5 * ((some - place) / width) ** 2)
        else:
            term = pm.logp(pm.Normal.dist(-1.5, 0.5), model["log_scale"][at])
            weights = np.exp(-0.5 * ((scales + 1.5) / 0.5) ** 2)
        pm.Potential("added", term)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = pm.sample(1500, tune=1000, chains=2, cores=2, random_seed=1, progressbar=False)
    weights = weights / weights.sum()
    extended = found["posterior"]
    new_values = some_and_scale(extended, extended["log_scale"].values)
    for own, new in zip((some, scales), new_values, strict=True):
        mean = float((weights * own).sum())
        spread = math.sqrt(float((weights * (own - mean) ** 2).sum()))
        weighed = 1 / float((weights**2).sum()) * posterior.stats["ess_bulk"] / own.size
        error = spread * math.sqrt(1 / weighed + 1 / float(az.ess(new)))
        assert abs(new.mean() - mean) < 4 * error
    moved = some if what == "another source" else scales
    assert abs(float((weights * moved).sum()) - moved.mean()) > 0.3 * moved.std()


def made_up(values, **statistics):
    """A sampling of one judged variable, in good order but for what is given."""
    shape = values.shape[:2]
    energy = {"energy": np.random.default_rng(0).normal(size=shape)}
    return sampled_as(shape, {"counts": values}, **energy | statistics)


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ("none", Status.CONVERGED, None),
        ("chains apart", Status.ITERATION_LIMIT, "R-hat"),
        ("slow", Status.ITERATION_LIMIT, "effective draws"),
        ("diverging", Status.NOT_TRUSTED, "target_accept"),
        ("saturated", Status.ITERATION_LIMIT, "maxdepth"),
        ("energy", Status.NOT_TRUSTED, "E-BFMI"),
    ],
)
def test_each_failing_diagnostic_is_found_and_has_its_remedy(release, change, status, words):
    generator = np.random.default_rng(8)
    values = generator.normal(size=(4, 1000, 3))
    values[..., 2] = 7.0  # a cell that is known: nothing to judge
    statistics = {}
    if change == "chains apart":
        values[0, :, 1] += 0.5
    if change == "slow":
        values = np.repeat(generator.normal(size=(4, 20, 3)), 50, axis=1)
    if change in ("diverging", "saturated"):
        name = "diverging" if change == "diverging" else "reached_max_treedepth"
        statistics[name] = generator.random((4, 1000)) < 0.1
    if change == "energy":
        statistics["energy"] = np.cumsum(generator.normal(size=(4, 1000)), axis=1)
    diagnosis = diagnostics.diagnose(
        made_up(values, **statistics), ("counts",), gather(release), "nutpie"
    )
    assert diagnosis.status is status
    if words is None:
        assert diagnosis.problems == ()
    else:
        with pytest.warns(SamplingWarning, match=words):
            diagnostics.warn_of(diagnosis)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [np.s_[:], np.s_[2, 500, 1]])
def test_draws_that_are_not_numbers_are_not_trusted(release, value, where):
    values = np.random.default_rng(8).normal(size=(4, 1000, 3))
    values[where] = value
    diagnosis = diagnostics.diagnose(made_up(values), ("counts",), gather(release), "nutpie")
    assert diagnosis.status is Status.NOT_TRUSTED
    with pytest.warns(SamplingWarning, match="not finite"):
        diagnostics.warn_of(diagnosis)


def test_tables_that_never_move_are_told_whatever_else_moves(release):
    sampled = made_up(np.full((1, 1000, 3), 5.0))
    draws = {**sampled.draws, "coordinates": np.random.default_rng(1).standard_normal((1, 1000, 2))}
    diagnosis = diagnostics.diagnose(
        replace(sampled, draws=draws), ("counts", "coordinates"), gather(release), "nutpie"
    )
    assert diagnosis.status is Status.NOT_TRUSTED
    assert "no judged number changed" in diagnosis.problems[0]


def test_chains_that_never_move_are_not_trusted(release):
    diagnosis = diagnostics.diagnose(
        made_up(np.full((4, 1000, 3), 5.0)), ("counts",), gather(release), "nutpie"
    )
    assert diagnosis.status is Status.NOT_TRUSTED
    assert any("not moved" in problem for problem in diagnosis.problems)


@pytest.mark.parametrize("energy", [0.0, np.nan, np.inf])
def test_an_energy_that_tells_nothing_is_not_trusted(release, energy):
    values = np.random.default_rng(8).normal(size=(4, 1000, 3))
    sampled = made_up(values, energy=np.full((4, 1000), energy))
    diagnosis = diagnostics.diagnose(sampled, ("counts",), gather(release), "nutpie")
    assert diagnosis.status is Status.NOT_TRUSTED
    assert any("E-BFMI" in problem for problem in diagnosis.problems)


def test_a_table_that_can_be_but_one_needs_no_moving_chain():
    determined = gather(release_of(specification({"a": ["x"]}, [("a",)])))
    sampled = made_up(np.full((4, 1000, 1), 200.0), energy=np.zeros((4, 1000)))
    diagnosis = diagnostics.diagnose(sampled, ("counts",), determined, "nutpie")
    assert (diagnosis.status, diagnosis.problems) == (Status.CONVERGED, ())


@pytest.mark.parametrize(
    ("acceptance", "status"),
    [
        (None, Status.CONVERGED),
        (0.2, Status.CONVERGED),
        (0.19, Status.NOT_TRUSTED),
        (np.full((4, 1000), 0.1), Status.NOT_TRUSTED),
        (np.nan, Status.NOT_TRUSTED),
    ],
)
def test_a_population_whose_steps_are_refused_is_not_trusted(release, acceptance, status):
    values = np.random.default_rng(8).normal(size=(4, 1000, 3))
    blank = np.zeros((4, 1000, 0))
    finished = Finished(
        marginals=blank,
        counts=blank,
        effects=blank,
        total=blank,
        acceptance=acceptance,
        unmoved=0.5,
    )
    diagnosis = diagnostics.diagnose(
        made_up(values), ("counts",), gather(release), "nutpie", finished
    )
    assert diagnosis.status is status
    assert diagnosis.numbers["population_unmoved"] == 0.5
    if acceptance is None:
        assert "population_acceptance" not in diagnosis.numbers
    else:
        expected = pytest.approx(float(np.mean(acceptance)), nan_ok=True)
        assert diagnosis.numbers["population_acceptance"] == expected
    if status is Status.NOT_TRUSTED:
        with pytest.warns(SamplingWarning, match="population"):
            diagnostics.warn_of(diagnosis)


def test_the_population_s_acceptance_reaches_the_posterior(release, fitted):
    few = {"draws": 100, "tune": 100, "chains": 2, "time_limit": 1e-9}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        posterior = LatentCounts(formulation="log-linear").fit(release, rng=1, **few)
    assert 0.5 < posterior.stats["population_acceptance"] < 1
    assert "population_acceptance" not in fitted.stats


def test_one_chain_is_judged_by_its_halves(release):
    generator = np.random.default_rng(9)
    values = generator.normal(size=(1, 2000, 1))
    assert (
        diagnostics.diagnose(made_up(values), ("counts",), gather(release), "nutpie").status
        is Status.CONVERGED
    )
    values[0, :1000] += 1
    assert (
        diagnostics.diagnose(made_up(values), ("counts",), gather(release), "nutpie").numbers[
            "r_hat"
        ]
        > 1.05
    )


def test_a_release_that_knows_no_total_is_not_trusted():
    model = specification({"a": ["x", "y", "z"]}, [("a",)])
    drowned = release_of(model, law=Laplace(1e4), records=5, total=None)
    values = np.random.default_rng(10).normal(size=(4, 1000, 2))
    found = diagnostics.diagnose(made_up(values), ("counts",), gather(drowned), "nutpie")
    assert found.status is (Status.CONVERGED if gather(drowned).has_total else Status.NOT_TRUSTED)
    assert not gather(drowned).has_total


def formulation_of(release):
    return HyperDirichlet(evidence=gather(release), total=200)


def drawn(release, may_stop=lambda _: False, time_limit=math.inf, draws=100, tune=100, **settings):
    """Draws of chains that begin with `draws` and are continued to sixteen times that, unless they may stop."""
    found = nutpie_sampler.sample_with_nutpie(
        formulation_of(release),
        Run(draws=draws, tune=tune, chains=2, seed=5),
        settings=settings,
        stopping=nutpie_sampler.Stopping(
            lengths=[draws * n for n in (1, 2, 3, 4, 6, 8, 12, 16)],
            judge=lambda sampled: sampled,
            may_stop=may_stop,
            clock=Clock(time_limit),
        ),
    )
    assert found is not None
    return found


def posterior_drawn(release, draws=100):
    run = Run(draws=draws, tune=100, chains=2, seed=5)
    return draw_posterior(formulation_of(release), run, sampler="nutpie", settings={})


def test_a_longer_sampling_is_the_shorter_one_gone_on_with(release):
    """Of sixteen times the length each sixteenth draw is kept; the chains are tuned once."""
    whole = drawn(release, lambda _: True, draws=1600)
    kept = drawn(release)
    assert kept.stats["steps_between_draws"] == 16
    assert np.array_equal(kept.draws["counts"], whole.draws["counts"][:, 15::16])
    assert np.array_equal(kept.statistics["energy"], whole.statistics["energy"][:, 15::16])
    assert not kept.is_interrupted


def test_chains_are_looked_at_by_the_length_that_was_asked_for(release):
    """However far they are by then, and whatever the cores: else equal seeds would not give equal posteriors."""
    looks, enough = [], 3

    def third(sampled):
        looks.append(sampled.draws["counts"])
        return len(looks) == enough

    found = drawn(release, third)
    assert found.stats["steps_between_draws"] == enough
    whole = drawn(release, lambda _: True, draws=enough * 100)
    assert np.array_equal(found.draws["counts"], whole.draws["counts"][:, enough - 1 :: enough])
    assert not np.array_equal(looks[0], looks[1])


def test_a_time_limit_ends_a_sampling_where_it_is(release):
    """The first length is drawn whatever the limit; of what comes after it draws are kept at even distances."""
    first = drawn(release, time_limit=1e-9)
    assert first.stats["steps_between_draws"] == 1
    slow = drawn(release, draws=5000, time_limit=0.2)
    assert slow.draws["counts"].shape == (2, 5000, 3)
    assert 1 <= slow.stats["steps_between_draws"] < 16
    assert not first.is_interrupted
    assert not slow.is_interrupted


def test_chains_that_follow_each_other_are_sampled_once(release):
    assert drawn(release, cores=1).stats["steps_between_draws"] == 1


def test_few_draws_and_what_memory_does_not_hold_are_not_gone_on_with(monkeypatch, release):
    assert posterior_drawn(release, draws=99).stats["steps_between_draws"] == 1
    assert posterior_drawn(release).stats["steps_between_draws"] > 1
    monkeypatch.setattr(nuts_run, "MEMORY", 1)
    assert posterior_drawn(release).stats["steps_between_draws"] == 1


def test_the_energy_of_the_draws_is_judged_with_them(release):
    found = posterior_drawn(release)
    assert found.mixing == diagnostics.mixing_of(
        [found.draws[name] for name in formulation_of(release).judged], found.statistics["energy"]
    )
    assert 0.3 < found.mixing.bfmi < 3


def test_a_sampling_goes_on_until_the_energy_moves_too(release):
    """Draws that are mixed, of an energy that is a random walk."""
    shape = (4, 1000)
    walk = np.cumsum(np.random.default_rng(1).standard_normal(shape), axis=1)
    draws = [np.random.default_rng(2).standard_normal((*shape, 3))]
    assert diagnostics.is_mixed(
        diagnostics.mixing_of(draws, np.random.default_rng(3).standard_normal(shape)), 4
    )
    assert diagnostics.is_mixed(diagnostics.mixing_of(draws), 4)
    assert not diagnostics.is_mixed(diagnostics.mixing_of(draws, walk), 4)


@pytest.mark.parametrize(
    ("moved", "status"), [(0.2, Status.ITERATION_LIMIT), (0.03, Status.NOT_TRUSTED)]
)
def test_an_energy_that_moves_slowly_asks_for_longer_chains_and_one_that_is_stuck_is_not_trusted(
    release, moved, status
):
    """An autoregression whose changes have a variance of `moved` times its own is one of that E-BFMI."""
    generator, kept = np.random.default_rng(8), 1 - moved / 2
    energy = np.empty((4, 1000))
    energy[:, 0] = generator.normal(size=4)
    for at in range(1, 1000):
        energy[:, at] = kept * energy[:, at - 1] + np.sqrt(1 - kept**2) * generator.normal(size=4)
    sampled = made_up(generator.normal(size=(4, 1000, 3)), energy=energy)
    found = diagnostics.diagnose(sampled, ("counts",), gather(release), "nutpie")
    assert found.numbers["bfmi"] == pytest.approx(moved, rel=0.5)
    assert found.status is status
    assert "E-BFMI" in found.problems[0]


@pytest.mark.parametrize(
    ("is_late", "size", "words"),
    [
        (True, 1000, "raise `time_limit`$"),
        (True, 50, "raise `draws` and `tune`$"),
        (False, 1000, "raise `draws` and `tune`$"),  # no limit in seconds stopped these
    ],
)
def test_a_time_limit_is_the_remedy_where_it_stopped_the_chains(release, is_late, size, words):
    """And not where they are too few draws to tell."""
    sampled = made_up(np.random.default_rng(8).normal(size=(4, size, 3)))
    sampled = replace(sampled, is_late=is_late)
    slow = replace(sampled, mixing=ChainMixing(r_hat=1.001, bulk=100.0, tail=100.0))
    assert re.search(
        words, diagnostics.diagnose(slow, ("counts",), gather(release), "nutpie").problems[0]
    )


def drawn_by_nutpie(*made):
    """What nutpie has of chains that have made so many steps after tuning."""
    steps = np.where(np.arange(max(made)) < np.transpose([made]), 1.0, np.nan)
    statistics = dict.fromkeys(STATISTICS.values(), steps)
    return nutpie_sampler.Trace(steps[..., np.newaxis], statistics, tuning_gradients=0)


def test_a_late_chain_is_left_out_where_it_has_less_than_half_of_what_was_asked_for():
    """However far beyond that the others ran, which nobody stops at the first length."""
    trace = drawn_by_nutpie(5000, 900, 399)
    positions, statistics, is_short = nutpie_sampler.steps_made(trace, 1000, None)
    assert positions.shape == (2, 900, 1)
    assert statistics["energy"].shape == (2, 900)
    assert is_short
    assert nutpie_sampler.steps_made(drawn_by_nutpie(5000, 1000), 1000, None)[0].shape == (
        2,
        1000,
        1,
    )
    assert nutpie_sampler.steps_made(drawn_by_nutpie(0, 0), 1000, None)[0].shape == (0, 0, 1)


def test_the_diagnosis_states_the_mixing_that_was_computed_while_sampling(release):
    """The chains are not compared a second time, however far apart they are."""
    apart = np.random.default_rng(4).standard_normal((4, 500, 3)) + np.arange(4)[:, None, None]
    mixing = diagnostics.mixing_of([apart])
    assert mixing.r_hat > 1.1
    assert 1 < mixing.bulk < 100
    assert 1 < mixing.tail < 2000
    known = ChainMixing(r_hat=1.2, bulk=17.0, tail=18.0)
    found = diagnostics.diagnose(
        replace(made_up(apart), mixing=known), ("counts",), gather(release), "nutpie"
    )
    assert [found.numbers[name] for name in ("r_hat", "ess_bulk", "ess_tail")] == list(known[:3])


def test_an_interruption_of_a_longer_sampling_keeps_what_was_drawn(release):
    """And says that it was stopped."""
    looks = []

    def interrupted(_):
        looks.append(1)
        if len(looks) == 2:
            raise KeyboardInterrupt
        return False

    found = drawn(release, interrupted, draws=400, tune=300)
    assert found.draws["counts"].shape == (2, 400, 3)
    assert found.is_interrupted
    assert found.stats["steps_between_draws"] >= 2


def told(capsys):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)


@pytest.fixture
def terminal(monkeypatch):
    # of another test: a notebook draws otherwise
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")


def test_the_bar_says_that_a_first_length_goes_beyond_the_time_limit(terminal, capsys, release):
    drawn(release, draws=1500, time_limit=1e-9, progress_bar=True)
    said = told(capsys)
    assert "beyond `time_limit`: the first length is always completed" in said
    assert "1600 steps" in said


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_bar_says_how_far_the_slowest_chain_is_and_why_it_goes_on(terminal, capsys, is_shown):
    with StepProgress(1500, is_shown=is_shown) as bar:
        bar.reach(700)
        bar.aim(2500, "going on: R-hat is 1.020")
        bar.reach(1600)
    said = told(capsys)
    assert ("going on: R-hat is 1.020" in said) == is_shown
    assert ("1600/2500 steps" in said) == is_shown


USUAL, HIGHER = 0.65, (0.8, 0.9)
"""Acceptance for which steps are tuned under Laplace noise, and those of runs that repeat what diverged."""


@pytest.fixture(scope="module")
def absolute():
    """A release with Laplace noise, whose trajectories do not diverge by themselves."""
    return release_of(specification({"a": ["x", "y", "z"]}, [("a",)]), law=Laplace(3.0), total=200)


@pytest.fixture
def runs(monkeypatch):
    """Runs of nutpie in which every tenth trajectory counts as divergent, up to a `least` acceptance of 0.8.

    Chains with fewer tuning draws than `least_tune` count as far from mixing. A share `saturated` of all trajectories
    counts as of the maximum tree depth. Each run counts as so much `work`, if it is given.
    """
    made = SimpleNamespace(
        least=HIGHER[0],
        acceptances=[],
        least_tune=0,
        tunes=[],
        interrupted=None,
        saturated=0.0,
        work=None,
    )
    real = nutpie_sampler.sample_with_nutpie

    def sample(formulation, run, *, settings, stopping):
        acceptance = settings["target_accept"]
        made.acceptances.append(acceptance)
        made.tunes.append(run.tune)
        if acceptance == made.interrupted:
            raise KeyboardInterrupt

        def judged(sampled):
            lost = np.zeros(sampled.statistics["diverging"].shape, dtype=bool)
            lost[:, ::10] = acceptance < made.least
            deep = np.zeros(lost.shape, dtype=bool)
            deep[:, : round(made.saturated * lost.shape[1])] = True
            statistics = {**sampled.statistics, "diverging": lost, "reached_max_treedepth": deep}
            found = stopping.judge(replace(sampled, statistics=statistics))
            if made.work is not None:
                found = replace(found, work=made.work)
            if run.tune < made.least_tune and found.mixing is not None:
                return replace(found, mixing=found.mixing._replace(r_hat=1.2, bulk=20.0, tail=20.0))
            return found

        lossy = replace(stopping, judge=judged)
        return real(formulation, run, settings=settings, stopping=lossy)

    monkeypatch.setattr(nuts_run, "sample_with_nutpie", sample)
    return made


def fit_quickly(release, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        return NUTS.fit(release, rng=1, **{"draws": 300, "tune": 300, "chains": 2} | settings)


@pytest.mark.parametrize("least", HIGHER)
def test_trajectories_that_diverge_are_sampled_again_with_smaller_steps(absolute, runs, least):
    runs.least = least
    posterior = fit_quickly(absolute, draws=100)
    assert runs.acceptances == [USUAL, *(higher for higher in HIGHER if higher <= least)]
    assert posterior.stats["target_accept"] == least
    assert posterior.stats["diverging"] == 0


def test_trajectories_that_diverge_at_every_step_size_are_told_after_the_third(absolute, runs):
    runs.least = 1.0
    with pytest.warns(SamplingWarning, match="diverged"):
        posterior = NUTS.fit(absolute, rng=1, draws=100, tune=100, chains=2)
    assert runs.acceptances == [USUAL, *HIGHER]
    assert posterior.status is Status.NOT_TRUSTED
    assert posterior.stats["diverging"] == pytest.approx(0.1)


def test_a_step_size_that_was_asked_for_is_kept_whatever_diverges(absolute, runs):
    posterior = fit_quickly(absolute, target_accept=0.7)
    assert runs.acceptances == [0.7]
    assert posterior.status is Status.NOT_TRUSTED


def test_smaller_steps_are_not_begun_where_the_time_is_short(absolute, runs):
    with pytest.warns(SamplingWarning, match="diverged"):
        posterior = NUTS.fit(absolute, rng=1, chains=2, draws=300, tune=300, time_limit=1e-3)
    assert runs.acceptances == [USUAL]
    assert posterior.status is Status.NOT_TRUSTED


def test_an_interruption_of_smaller_steps_keeps_what_was_drawn_before(absolute, runs):
    runs.interrupted = HIGHER[0]
    with pytest.warns(SamplingWarning, match="stopped early"):
        posterior = NUTS.fit(absolute, rng=1, chains=2, draws=50, tune=100)
    assert runs.acceptances == [USUAL, HIGHER[0]]
    assert posterior.stats["target_accept"] == USUAL
    assert posterior.tree["posterior"].sizes["draw"] == 50


def test_smaller_steps_that_take_too_long_leave_what_was_drawn_before(monkeypatch, absolute, runs):
    monkeypatch.setattr(nuts_run, "_TIMES_AT_MOST", 1e-3)
    posterior = fit_quickly(absolute)
    assert runs.acceptances[:2] == [USUAL, HIGHER[0]]
    assert posterior.stats["target_accept"] == USUAL
    assert posterior.status is Status.NOT_TRUSTED
    assert posterior.tree["posterior"].sizes["draw"] == 300


def test_chains_that_are_far_from_mixing_are_tuned_for_longer(absolute, runs):
    runs.least = USUAL
    runs.least_tune = 201
    posterior = NUTS.fit(absolute, rng=1, chains=2, draws=200)
    assert runs.tunes == [200, 1000]
    assert posterior.stats["tune"] == 1000
    assert posterior.status is Status.CONVERGED


def test_longer_tuning_and_smaller_steps_may_both_be_needed(absolute, runs):
    runs.least_tune = 201
    posterior = NUTS.fit(absolute, rng=1, chains=2, draws=200)
    assert list(zip(runs.acceptances, runs.tunes, strict=True)) == [
        (USUAL, 200),
        (HIGHER[0], 200),
        (HIGHER[0], 1000),
    ]
    assert posterior.status is Status.CONVERGED


def test_longer_tuning_is_kept_where_trajectories_are_as_deep_as_before(absolute, runs):
    runs.least = USUAL
    runs.least_tune = 201
    runs.saturated = 0.5
    posterior = fit_quickly(absolute, draws=120, tune=None)
    assert runs.tunes == [200, 1000]
    assert posterior.stats["tune"] == 1000


def test_longer_tuning_that_is_not_expected_to_end_is_not_begun(absolute, runs):
    """Otherwise the first length would be kept, and the chains not continued."""
    runs.least = USUAL
    runs.least_tune = 201
    runs.work = 0.4 * WORK
    fit_quickly(absolute, draws=120, tune=None)
    assert runs.tunes == [200]


@pytest.mark.parametrize("settings", [{"tune": 200}, {"draws": 99}], ids=["tune", "few draws"])
def test_longer_tuning_is_not_begun_against_a_setting_or_for_few_draws(absolute, runs, settings):
    runs.least = USUAL
    runs.least_tune = 201
    fit_quickly(absolute, **{"draws": 120, "tune": None} | settings)
    assert runs.tunes == [200]


@pytest.mark.slow
def test_intervals_hold_the_truth_where_counts_are_nearly_none():
    """A cycle with rare states, whose counts grow exponentially with their potentials: many trajectories diverge."""
    scopes = [*pairwise("abcde"), ("a", "d")]
    rng = np.random.default_rng(0)
    links = [rng.normal(0, 1.0, (3, 3)) for _ in scopes]
    logs: Any = sum(
        np.log(rng.dirichlet([3, 1, 0.2])).reshape([3 if u == v else 1 for u in range(5)])
        for v in range(5)
    )
    for scope, link in zip(scopes, links, strict=True):
        logs = logs + link.reshape([3 if v in scope else 1 for v in "abcde"])
    joint = np.exp(logs) / np.exp(logs).sum()
    codes = np.unravel_index(
        np.random.default_rng(100).choice(3**5, 10_000, p=joint.ravel()), joint.shape
    )
    data = pd.DataFrame(dict(zip("abcde", codes, strict=True)))
    network = bpm.declare(states={v: [0, 1, 2] for v in "abcde"}, cliques=scopes)
    release = LaplaceStatistics(epsilon=1.0).release(network, data, rng=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)  # of trajectories that still diverge
        posterior = LatentCounts().fit(release, rng=1, chains=2, draws=300, tune=300)
    held = []
    for one, other in combinations(range(5), 2):
        truth = joint.sum(axis=tuple(v for v in range(5) if v not in (one, other))).ravel()
        frame = posterior.interval(["abcde"[one], "abcde"[other]])
        held.append((frame["lower"] <= truth) & (truth <= frame["upper"]))
    assert posterior.stats["target_accept"] >= USUAL
    assert np.mean(held) > 0.8  # .9 promised, of 90 cells that depend on each other
