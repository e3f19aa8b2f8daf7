"""A mechanism from outside keeps the same contract, and the base refuses what breaks it."""

from __future__ import annotations

import json
import math
import traceback
import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from plug_in import entry_points

import bayesprivmrf as bpm
from bayesprivmrf.cli import main
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, DataError, PrivacyError
from bayesprivmrf.mechanisms import (
    DPSGD,
    ExactStatistics,
    Mechanism,
    SelectMeasure,
    StatisticsMechanism,
    available_mechanisms,
    discrete_laplace_laws,
)
from bayesprivmrf.noise import SecureNoise, SimulatedNoise
from bayesprivmrf.privacy import DiscreteLaplace, PrivacyGuarantee
from bayesprivmrf.release import Provenance, Released

from .contract import ADJACENCIES, MODEL, Account, ReplayContract, TablesContract


@dataclass(frozen=True, kw_only=True)
class CubeRootStatistics(StatisticsMechanism):
    """Shares of epsilon that grow with the cube root of a table's size."""

    epsilon: float

    def _noise(self, specification):
        roots = [math.prod(shape) ** (1 / 3) for shape in specification.shapes]
        return discrete_laplace_laws(
            [root / sum(roots) for root in roots], self.epsilon, self.l1_sensitivity
        )

    def _promise(self, specification):
        return PrivacyGuarantee(epsilon=self.epsilon, adjacency=self.adjacency)


class TestThirdParty(TablesContract):
    budget = 0.9

    def make(self, **more):
        return CubeRootStatistics(**{"epsilon": 0.9} | more)


class Quiet(CubeRootStatistics):
    """Draws a twentieth less noise than it promises."""

    def _noise(self, specification):
        return discrete_laplace_laws([0.5, 0.5], self.epsilon / 0.95, self.l1_sensitivity)


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_too_little_noise_does_not_pass_the_replay(adjacency):
    class Held(TestThirdParty):
        def make(self, **more):
            return Quiet(**{"epsilon": 0.9} | more)

    with pytest.raises(AssertionError, match=r"costs 0\.947., and promises 0\.9"):
        Held().test_a_release_replayed_on_neighbours_is_the_same_and_costs_no_more_than_promised(
            adjacency
        )


def test_a_mechanism_that_lacks_a_hook_cannot_be_made():
    @dataclass(frozen=True, kw_only=True)
    class Half(StatisticsMechanism):
        def _noise(self, specification):
            return ()

    with pytest.raises(TypeError, match="_promise"):
        Half()
    with pytest.raises(TypeError, match="abstract"):
        Mechanism()


@pytest.mark.parametrize(
    ("kind", "settings", "words"),
    [
        (
            CubeRootStatistics,
            {"epsilon": 1.0, "rho": 1.0},
            "no setting `rho`; it must be given `epsilon`, and",
        ),
        (
            SelectMeasure,
            {"epsilon": 1.0},
            "no setting `epsilon`; it must be given `rho`, and takes",
        ),
        (DPSGD, {"rho": 1.0}, "must be given `epsilon`, `delta`, and takes .*`steps`"),
        (ExactStatistics, {"rho": 1.0}, "must be given none"),
    ],
)
def test_a_setting_of_another_mechanism_is_refused_with_the_names_of_this_ones(
    kind, settings, words
):
    with pytest.raises(ArgumentError, match=words):
        kind(**settings)


def test_a_plug_in_with_an_init_of_its_own_takes_what_that_takes():
    class Loose(CubeRootStatistics):
        def __init__(self, budget, **more):
            super().__init__(epsilon=budget, **more)

    assert Loose(budget=2.0, adjacency="replace-one").epsilon == 2.0
    with pytest.raises(ArgumentError, match="no setting `budget`"):
        CubeRootStatistics(epsilon=2.0, budget=1.0)


@dataclass(frozen=True, kw_only=True)
class Loud(CubeRootStatistics):
    """Promises whatever it is told to."""

    stated: Any = None

    def _promise(self, specification):
        return self.stated


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        (1.0, "must promise a PrivacyGuarantee or None, got float"),
        (PrivacyGuarantee(epsilon=1.0, adjacency="replace-one"), "got one for replace-one"),
        (
            PrivacyGuarantee(epsilon=1.0, adjacency="add-or-remove-one", unit="person"),
            "must give a guarantee for add-or-remove-one neighbors that differ in a record, got one for .* a person",
        ),
    ],
)
def test_a_promise_that_no_release_could_carry_is_refused_before_anything_is_charged(stated, words):
    account = Account()
    with pytest.raises(PrivacyError, match=words):
        Loud(epsilon=1.0, stated=stated).release(MODEL, "never looked at", ledger=account)
    with pytest.raises(PrivacyError, match=words):
        Loud(epsilon=1.0, stated=stated).promise(MODEL)
    assert account.spent == []


def test_installed_entry_points_are_found_checked_and_must_not_collide(tmp_path, monkeypatch):
    group, own = "bayesprivmrf.mechanisms", available_mechanisms()
    with entry_points(tmp_path, monkeypatch, group, root=CubeRootStatistics):
        assert available_mechanisms() == own | {"root": CubeRootStatistics}
        with (
            entry_points(tmp_path, monkeypatch, group, root=CubeRootStatistics, bad=TestThirdParty),
            pytest.warns(
                RuntimeWarning,
                match="'bad' .* it must be a subclass of Mechanism; correct or remove",
            ),
        ):
            assert available_mechanisms() == own | {"root": CubeRootStatistics}
        (tmp_path / "other").mkdir()
        with (
            entry_points(tmp_path / "other", monkeypatch, group, root=StatisticsMechanism),
            pytest.raises(BayesPrivMRFError, match="must have different names"),
        ):
            available_mechanisms()


@dataclass(frozen=True, repr=False, kw_only=True)
class Histogram(Released):
    """A noisy table under another name, which estimators may read."""

    counts: tuple[int, ...]
    noise: DiscreteLaplace
    guarantee: PrivacyGuarantee
    provenance: Provenance

    kind = "test-histogram"

    def _facts(self):
        return [("privacy", self.privacy_statement())]

    def _content(self):
        return {"counts": list(self.counts), "noise": self.noise.as_dict()}

    @classmethod
    def _restored(cls, content, array, **stamp):
        return cls(counts=tuple(content.items("counts")), noise=content.law("noise"), **stamp)

    @property
    def statistics(self):
        network = bpm.declare({"bin": list(range(len(self.counts)))}, [("bin",)])
        return bpm.NoisyStatistics.from_tables(
            network, {"bin": np.array(self.counts)}, noise=self.noise
        )


@dataclass(frozen=True, kw_only=True)
class Histograms(Mechanism[Any, DiscreteLaplace, np.ndarray, Histogram]):
    """Four numbers that no data decides; `read` and `changes` break the contract."""

    runs_from_file = True
    releases = (Histogram,)

    read: Any = None
    changes: Any = None

    def _prepare(self, network):
        return DiscreteLaplace(2.0)

    def _guarantee(self, plan):
        return PrivacyGuarantee(epsilon=0.5, adjacency="add-or-remove-one")

    def _read(self, plan, data):
        return np.arange(4) * 100 if self.read is None else self.read(data)

    def _randomise(self, plan, exact, source, stamp):
        given = {"guarantee": stamp.guarantee, "provenance": stamp.provenance} | (
            self.changes or {}
        )
        if "made" in given:
            return given["made"](exact)
        return Histogram(counts=tuple(map(int, source.add(exact, plan))), noise=plan, **given)


def in_each_state(data):
    return np.array([(data[0] == state).sum() for state in (7, 5, 6, None)])


class TestAnotherKind(ReplayContract):
    def make(self, **settings):
        return Histograms(read=in_each_state)


class Counting(Histograms):
    """Lets out the exact number of records beside its noisy counts."""

    def _randomise(self, plan, exact, source, stamp):
        counts = (*map(int, source.add(exact, plan)), int(exact.sum()))
        return Histogram(
            counts=counts, noise=plan, guarantee=stamp.guarantee, provenance=stamp.provenance
        )


def test_what_no_noise_protects_does_not_pass_the_replay():
    class Held(TestAnotherKind):
        def make(self, **settings):
            return Counting(read=in_each_state)

    with pytest.raises(AssertionError, match="no noise protects"):
        Held().test_a_release_replayed_on_neighbours_is_the_same_and_costs_no_more_than_promised(
            ADJACENCIES[0]
        )


def test_the_tables_of_a_kind_carry_its_own_stamp_so_that_a_simulation_stays_one(tmp_path, capsys):
    for rng, is_simulated in ((1, True), (None, False)):
        release = Histograms().release(None, None, rng=rng)
        assert release.statistics.provenance == release.provenance
        assert release.statistics.guarantee == release.guarantee
        assert bpm.NaiveMLE().fit(release.statistics).is_simulated is is_simulated
        release.save(tmp_path / f"{rng}.release")
        assert main(["fit", str(tmp_path / f"{rng}.release"), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["guarantee"]["simulated"] is is_simulated
        assert ("protects nobody" in said["statement"]) is is_simulated


SECRET = "".join(["47", "11"])  # so that no traceback shows it as source


def secret(data):
    raise KeyError(f"value {data}, {SECRET}")


def chained(data):
    try:
        secret(data)
    except KeyError as error:
        raise RuntimeError("read") from error


@pytest.mark.parametrize(
    "hook", [{"read": secret}, {"read": chained}, {"changes": {"made": secret}}]
)
def test_an_error_of_another_library_where_data_is_read_or_noise_drawn_shows_its_type_and_place_alone(
    hook,
):
    with pytest.raises(
        DataError,
        match=r"unexpected (Key|Runtime)Error in `_\w+` of Histograms, at test_third_party.py:\d+",
    ) as caught:
        Histograms(**hook).release(None, SECRET, rng=1)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (
            lambda data: None,
            "`_read` of Histograms must return the values that get noise, got None",
        ),
        (lambda data: np.array([1.5, 2.0]), "must be whole numbers of 64 bits, got float64"),
        (lambda data: np.array([1, 2], np.uint64), "must be whole numbers of 64 bits, got uint64"),
    ],
)
def test_what_no_noise_can_be_added_to_is_refused_before_anything_is_charged(read, words):
    account = Account()
    with pytest.raises(PrivacyError, match=words):
        Histograms(read=read).release(None, None, ledger=account)
    assert account.spent == []


@pytest.mark.parametrize("source", [SecureNoise(), SimulatedNoise(np.random.default_rng(0))])
def test_a_source_cuts_no_number_to_a_whole_one(source):
    with pytest.raises(PrivacyError, match="got float64; round them to a public grid"):
        source.add(np.array([1.5]), DiscreteLaplace(1.0))


@pytest.mark.parametrize(
    "changes",
    [
        {"guarantee": PrivacyGuarantee(epsilon=1e-6, adjacency="add-or-remove-one")},
        {"guarantee": None},
        {"provenance": Provenance(mechanism="Histograms")},
        {"made": lambda exact: None},
        {"made": lambda exact: exact},
    ],
)
def test_a_release_without_its_stamp_is_withheld(changes):
    with pytest.raises(
        PrivacyError, match="must return a release with the guarantee and the provenance"
    ):
        Histograms(changes=changes).release(None, None, rng=1)


def test_a_kind_without_tables_is_not_called_a_model():
    class Bare(Histogram):
        statistics = None

    made = Histograms().release(None, None)
    bare = Bare(
        counts=made.counts, noise=made.noise, guarantee=made.guarantee, provenance=made.provenance
    )
    with pytest.raises(
        ArgumentError, match=r"got Bare; it holds no noisy tables \(its `statistics` is None\)"
    ):
        bpm.NaiveMLE().fit(bare)
    with pytest.raises(ArgumentError, match="got Histogram; give it what was measured"):
        bpm.NaiveMLE().fit(made)


@dataclass(frozen=True, kw_only=True)
class Other(Histograms):
    """Its release is made by another class from the one of its parent."""

    made: Any

    def _randomise(self, plan, exact, source, stamp):
        return self.made(super()._randomise(plan, exact, source, stamp))


def test_a_warning_of_another_library_that_is_made_an_error_is_withheld():
    """This library's own are not: they quote no data."""

    def warned(data):
        warnings.warn(f"value {SECRET} was cast", RuntimeWarning, stacklevel=1)

    with pytest.raises(DataError, match="unexpected RuntimeWarning in `_read`") as caught:
        Histograms(read=warned).release(None, None)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_statistics_that_are_no_tables_lose_no_release_that_is_paid_for():
    class Described(Histogram):
        statistics = {"mean": 1.5}  # noqa: RUF012

    def described(made):
        return Described(
            counts=made.counts,
            noise=made.noise,
            guarantee=made.guarantee,
            provenance=made.provenance,
        )

    assert Other(made=described).release(None, None).statistics == {"mean": 1.5}


def test_tables_that_cannot_be_made_lose_no_release_and_those_that_it_holds_say_that_they_are_simulated():
    class Failing(Histogram):
        statistics = property(lambda self: 1 / 0)

    @dataclass(frozen=True, kw_only=True)
    class Holding:
        guarantee: Any
        provenance: Any
        statistics: Any

    def failing(made):
        names = ("counts", "noise", "guarantee", "provenance")
        return Failing(**{name: getattr(made, name) for name in names})

    def holding(tables):
        return lambda made: Holding(
            guarantee=made.guarantee, provenance=made.provenance, statistics=tables(made)
        )

    assert isinstance(Other(made=failing).release(None, None), Failing)
    for tables in (lambda made: None, lambda made: made.statistics):
        assert isinstance(Other(made=holding(tables)).release(None, None, rng=1), Holding)
    unmarked = holding(lambda made: Histograms().release(None, None).statistics)
    with pytest.raises(
        PrivacyError, match="must return a release with the guarantee and the provenance"
    ):
        Other(made=unmarked).release(None, None, rng=1)
    other = PrivacyGuarantee(epsilon=9.0, adjacency="add-or-remove-one")
    promising = holding(lambda made: SimpleNamespace(guarantee=other, provenance=made.provenance))
    with pytest.raises(
        PrivacyError, match="must return a release with the guarantee and the provenance"
    ):
        Other(made=promising).release(None, None, rng=1)
