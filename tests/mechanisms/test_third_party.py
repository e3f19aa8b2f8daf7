"""A mechanism from outside keeps the same contract, and the base refuses what breaks it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, PrivacyError
from bayesprivmrf.mechanisms import (
    DPSGD,
    ExactStatistics,
    Mechanism,
    SelectMeasure,
    StatisticsMechanism,
    available_mechanisms,
    discrete_laplace_laws,
    registry,
)
from bayesprivmrf.privacy import PrivacyGuarantee

from .contract import MODEL, Account, TablesContract


@dataclass(frozen=True, kw_only=True)
class CubeRootStatistics(StatisticsMechanism):
    """Shares of epsilon that grow with the cube root of a table's size."""

    epsilon: float

    def _noise(self, specification):
        roots = [math.prod(shape) ** (1 / 3) for shape in specification.shapes]
        return discrete_laplace_laws([root / sum(roots) for root in roots], self.epsilon, self.l1_sensitivity)

    def _promise(self, specification):
        return PrivacyGuarantee(epsilon=self.epsilon, adjacency=self.adjacency)


class TestThirdParty(TablesContract):
    budget = 0.9

    def make(self, **more):
        return CubeRootStatistics(**{"epsilon": 0.9} | more)


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
def test_a_setting_of_another_mechanism_is_refused_with_the_names_of_this_ones(kind, settings, words):
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
        (PrivacyGuarantee(epsilon=1.0, adjacency="replace-one"), "got a guarantee for replace-one"),
    ],
)
def test_a_promise_that_no_release_could_carry_is_refused_before_anything_is_charged(stated, words):
    account = Account()
    with pytest.raises(PrivacyError, match=words):
        Loud(epsilon=1.0, stated=stated).release(MODEL, "never looked at", ledger=account)
    with pytest.raises(PrivacyError, match=words):
        Loud(epsilon=1.0, stated=stated).promise(MODEL)
    assert account.spent == []


class EntryPoint:
    def __init__(self, name, target):
        self.name, self.value, self._target = name, f"somewhere:{name}", target

    def load(self):
        return self._target


def test_installed_entry_points_are_found_checked_and_must_not_collide(monkeypatch):
    points = [EntryPoint("cube-root", CubeRootStatistics)]
    monkeypatch.setattr(registry, "installed", lambda group: points)
    assert available_mechanisms() == {"cube-root": CubeRootStatistics}
    points.append(EntryPoint("cube-root", TestThirdParty))
    with pytest.raises(BayesPrivMRFError, match="must be a subclass of Mechanism"):
        available_mechanisms()
    points[-1] = EntryPoint("cube-root", StatisticsMechanism)
    with pytest.raises(BayesPrivMRFError, match="two packages"):
        available_mechanisms()
