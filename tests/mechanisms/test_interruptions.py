"""Interruptions of a release after its charge: all results until then are released."""

from __future__ import annotations

import importlib
import signal
import time
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf.errors import InterruptionWarning, PrivacyError
from bayesprivmrf.learning.models import LearnedSolution
from bayesprivmrf.mechanisms import (
    DPSGD,
    GaussianStatistics,
    LaplaceStatistics,
    ObjectivePerturbation,
    ParityQueries,
    PrivateFrankWolfe,
    PrivateLogisticRegression,
    SelectMeasure,
    StableStructure,
)
from bayesprivmrf.mechanisms.select_measure import plan as rounds_plan
from bayesprivmrf.network import IsingNetwork
from bayesprivmrf.noise import SimulatedNoise
from benchmarks.papers.block_structure import BlockStructure
from benchmarks.papers.dpsgd_search import DPSGDSearch

from .contract import Account, Replay, released

pytestmark = pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
FITTING = "bayesprivmrf.learning.select_measure.couplings"
RECORDS = 800
VARIABLES = [f"v{i}" for i in range(6)]
STATES = {name: [0, 1] for name in VARIABLES}
NETWORK, CHAIN = (
    bpm.declare(states=STATES),
    bpm.declare(states=STATES, cliques=list(pairwise(VARIABLES))),
)
RING = IsingNetwork.from_graph([(i, (i + 1) % 60) for i in range(60)])
ASCENT = {"epsilon": 1.0, "delta": 1e-5}
LEARNERS = {
    "rounds": (SelectMeasure(rho=1.0), NETWORK),
    "one choice": (SelectMeasure(rho=1.0, degree=2), NETWORK),
    "Frank-Wolfe": (PrivateFrankWolfe(rho=1.0, width=2.0), NETWORK),
    "order 3": (PrivateFrankWolfe(rho=1.0, width=2.0, order=3), NETWORK),
    "regression": (PrivateLogisticRegression(rho=1.0, radius=2.0, target="v0"), NETWORK),
    "multiplicative weights": (ParityQueries(rho=1.0, order=2, method="pmw"), NETWORK),
    "gradient ascent": (DPSGD(**ASCENT, steps=5), CHAIN),
    "search": (DPSGDSearch(**ASCENT, grid={"steps": [5, 8]}), CHAIN),
    "parities": (ParityQueries(rho=1.0, order=2, method="gaussian"), NETWORK),
    "structure": (StableStructure(epsilon=2.0, delta=1e-5), NETWORK),
    "Laplace": (LaplaceStatistics(epsilon=1.0), CHAIN),
    "Gaussian": (GaussianStatistics(rho=1.0), CHAIN),
    "a network": (ObjectivePerturbation(epsilon=2.0), RING),
}
KEPT = [
    "rounds",
    "one choice",
    "Frank-Wolfe",
    "regression",
    "multiplicative weights",
    "gradient ascent",
]


def data(seed: int = 0, records: int = RECORDS) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    columns = [generator.random(records) > 0.5]
    for _ in VARIABLES[1:]:
        columns.append(columns[-1] ^ (generator.random(records) < 0.2))
    return pd.DataFrame(dict(zip(VARIABLES, np.array(columns, dtype=int), strict=True)))


class Interrupting(SimulatedNoise):
    """Simulated noise whose n-th draw is interrupted; the draws before and after it are made."""

    is_simulated = False  # so that a ledger is charged

    def __init__(self, at: tuple[int, ...], kind: type[BaseException] = KeyboardInterrupt) -> None:
        super().__init__(np.random.default_rng(1))
        self.at, self.kind, self.calls = at, kind, 0

    def _count(self) -> None:
        self.calls += 1
        if self.calls in self.at:
            raise self.kind("a value of the data")

    def add(self, counts, law):
        self._count()
        return super().add(counts, law)

    def words(self, size):
        self._count()
        return super().words(size)


def given(network):
    return np.ones(60, dtype=int) if network is RING else data()


def draws(mechanism, network) -> int:
    source = Interrupting(())
    released(mechanism, network, given(network), source)
    return source.calls


@pytest.mark.parametrize("name", [name for name in LEARNERS if name != "search"])
def test_one_interruption_of_any_draw_loses_no_release_and_the_whole_promise_is_stamped(name):
    mechanism, network = LEARNERS[name]
    last = draws(mechanism, network)
    for at in sorted({1, 2, last}):
        account = Account()
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            release = released(
                mechanism, network, given(network), Interrupting((at,)), ledger=account
            )
        assert release.guarantee == mechanism.promise(network) == account.spent[0][0]
        assert len(account.spent) == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, KeyboardInterrupt) for name in KEPT),
        pytest.param("search", KeyboardInterrupt, marks=pytest.mark.slow),
        ("rounds", MemoryError),
    ],
)
def test_an_interrupted_learner_stops_early_says_by_what_and_warns(monkeypatch, name, kind):
    mechanism, network = LEARNERS[name]
    at = draws(mechanism, network)
    if name == "one choice":  # its draws are over in a moment: the fit is interrupted instead
        source = Interrupting(())
        monkeypatch.setattr(f"{FITTING}.closed_form", interrupt_once(kind))
    else:
        source = Interrupting((at,), kind)
    with pytest.warns(
        InterruptionWarning, match=f"interrupted by a {kind.__name__}.*whole promise"
    ):
        release = released(mechanism, network, data(), source)
    for one in getattr(release, "releases", (release,)):
        assert one.details["status"] == "stopped early"
        assert one.details["interrupted_by"] == kind.__name__
        assert "a value of the data" not in str(one)
    if hasattr(release, "fit"):
        assert release.fit().status == "stopped early"


@pytest.mark.parametrize("taken", [0, 2])
def test_an_interrupted_ascent_states_the_steps_it_took(taken):
    mechanism, network = LEARNERS["gradient ascent"]
    words = Interrupting(())
    planned = released(mechanism, network, data(), words).details["steps"]
    before = (
        1 + (words.calls - 1) // planned * taken
    )  # one draw for the number of records, then those of each step
    with pytest.warns(InterruptionWarning):
        details = released(mechanism, network, data(), Interrupting((before + 1,))).details
    assert (details["steps"], planned > 2) == (taken, True)
    assert ("learning_rate" in details) == (taken > 0)


def interrupt_once(kind):
    """Stand in for a function: its first call is interrupted, by whatever name it is reached."""
    real, calls = importlib.import_module(FITTING).closed_form, []

    def called(*arguments):
        calls.append(1)
        if len(calls) == 1:
            raise kind
        return real(*arguments)

    return called


def test_a_second_interruption_is_obeyed():
    with pytest.raises(KeyboardInterrupt):
        released(LaplaceStatistics(epsilon=1.0), CHAIN, data(), Interrupting((1, 2)))
    with pytest.raises(KeyboardInterrupt):
        released(SelectMeasure(rho=1.0), NETWORK, data(), Interrupting((3, 4)))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, TimeoutError])
def test_one_interruption_of_the_coins_of_blocks_loses_no_structure(kind):
    mechanism = BlockStructure(epsilon=2.0, delta=1e-5)
    release = released(mechanism, NETWORK, data(), Interrupting((1,), kind))
    assert release.guarantee == mechanism.promise(NETWORK)


@pytest.mark.parametrize("name", ["rounds", "Laplace"])
def test_nothing_is_drawn_anew_once_a_warning_has_told_of_what_was_drawn(name):
    mechanism = {"rounds": SelectMeasure(rho=1e-3), "Laplace": LaplaceStatistics(epsilon=1e-3)}[
        name
    ]
    network = LEARNERS[name][1]
    whole, source = draws(mechanism, network), Interrupting(())

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with warnings.catch_warnings():  # which restores the function, too
        warnings.simplefilter("always")
        warnings.showwarning = interrupted
        with pytest.raises(KeyboardInterrupt):
            released(mechanism, network, data(), source)
    assert source.calls == whole


@pytest.mark.parametrize("is_wide", [False, True])
def test_rounds_keep_every_table_that_was_drawn(monkeypatch, is_wide):
    if is_wide:
        monkeypatch.setattr(rounds_plan, "MOST_VARIABLES", 5)
    mechanism = SelectMeasure(rho=1.0)
    whole = Interrupting(())
    tables = len(released(mechanism, NETWORK, data(), whole).statistics.measurements)
    assert tables > len(VARIABLES) + 2
    seen = set()
    for at in (1, 9, whole.calls // 2, whole.calls):
        with pytest.warns(InterruptionWarning):
            release = released(mechanism, NETWORK, data(), Interrupting((at,)))
        measured = release.statistics.measurements
        assert len(VARIABLES) <= len(measured) <= tables
        assert {each.query.scope for each in measured} >= {(v,) for v in VARIABLES}
        assert release.details["rho_spent"] <= 1.0
        assert release.solution.marginal("v0").sum() == pytest.approx(1.0)
        seen.add(len(measured))
    assert len(seen) > 2
    assert bpm.NoiseAwareMAP().fit(release.statistics).marginal("v0").sum() == pytest.approx(1.0)


def test_a_fit_that_is_interrupted_is_kept_as_far_as_it_came(monkeypatch):
    fit = importlib.import_module("bayesprivmrf.inference.optimize")
    real, calls = fit.minimize, []

    def interrupted(objective, start, **settings):
        calls.append(1)
        if len(calls) < 3:
            return real(objective, start, **settings)
        steps = []

        def counted(point):
            steps.append(1)
            if len(steps) > 4:
                raise KeyboardInterrupt
            return objective(point)

        return real(counted, start, **settings)

    monkeypatch.setattr(fit, "minimize", interrupted)
    with pytest.warns(InterruptionWarning):
        release = SelectMeasure(rho=1.0).release(NETWORK, data(), rng=1)
    assert len(calls) == 3  # no round begins after it
    assert release.status == "stopped early"
    assert release.details["rho_spent"] < 1.0
    assert sum(release.details["tables_by_round"]) == release.details["tables_measured"]
    assert np.isfinite(release.details["distance_from_optimum"])
    exact = pd.crosstab(data()["v0"], data()["v1"]).to_numpy() / RECORDS
    assert np.abs(release.solution.marginal(["v0", "v1"]).values - exact).sum() < 0.2
    assert "KeyboardInterrupt" in str(release)


@pytest.mark.slow
def test_a_timer_at_any_moment_loses_nothing():
    mechanism, generator = SelectMeasure(rho=1.0), np.random.default_rng(2)

    def interrupt(*_):
        raise KeyboardInterrupt

    begin = time.perf_counter()
    mechanism.release(NETWORK, data(), rng=1)
    whole = time.perf_counter() - begin
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(30):
            account, source = Account(), Interrupting(())
            spend = account.spend

            def armed(*given, spend=spend):  # from the charge on
                spend(*given)
                signal.setitimer(signal.ITIMER_REAL, max(generator.random() * whole, 1e-4))

            account.spend = armed
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    release = released(mechanism, NETWORK, data(), source, ledger=account)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
            assert len(release.statistics.measurements) >= len(VARIABLES)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_outside_a_release_nothing_is_swallowed():
    fitter = PrivateFrankWolfe(rho=1.0, width=2.0).release(NETWORK, data(), rng=1).map
    codes, source = data().to_numpy().astype(np.uint8), Interrupting((9,))
    with pytest.raises(KeyboardInterrupt):
        fitter.fit(codes, np.ones(RECORDS, dtype=np.int64), float(RECORDS), source)


def test_an_exit_and_a_breach_of_privacy_are_no_interruptions(monkeypatch):
    for kind in (SystemExit, PrivacyError):
        with pytest.raises(kind):
            released(SelectMeasure(rho=1.0), NETWORK, data(), Interrupting((12,), kind))


def test_an_interruption_shows_no_more_of_a_neighbor_than_the_release_does():
    class Interrupted(Replay):
        def __init__(self, at):
            self.at, self.calls = at, 0

        def add(self, counts, law):
            self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt
            return super().add(counts, law)

    records = data(records=60)
    for at in (5, 10):
        shown = []
        for neighbor in (records, records.iloc[1:], records.iloc[:-1]):
            with pytest.warns(InterruptionWarning):
                release = released(SelectMeasure(rho=1.0), NETWORK, neighbor, Interrupted(at))
            shown.append(
                (release.summary(), release.statistics.flat.tolist(), release.tables.flat.tolist())
            )
        assert shown[0] == shown[1] == shown[2]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("rounds", KeyboardInterrupt), ("rounds", ValueError), ("one choice", MemoryError)],
)
def test_a_paid_model_is_kept_if_its_judgement_fails(name, kind, monkeypatch):
    judged, calls = LearnedSolution.judged, []

    def interrupted(self, *given, **settings):
        calls.append(self)
        if len(calls) == 1:
            raise kind("a value of the data")
        return judged(self, *given, **settings)

    monkeypatch.setattr(LearnedSolution, "judged", interrupted)
    mechanism, network = LEARNERS[name]
    source, account = Interrupting(()), Account()
    with pytest.warns(InterruptionWarning, match=kind.__name__):
        kept = released(mechanism, network, data(), source, ledger=account)
    assert source.calls == draws(mechanism, network)  # drawn once
    assert len(account.spent) == 1
    assert kept.details["interrupted_by"] == kind.__name__
    assert kept.statistics is not None
