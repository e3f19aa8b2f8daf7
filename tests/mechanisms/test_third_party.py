"""A mechanism from outside keeps the same contract, and the base refuses what breaks it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from bayesprivmrf.errors import BayesPrivMRFError
from bayesprivmrf.mechanisms import Mechanism, StatisticsMechanism, available_mechanisms, registry
from bayesprivmrf.mechanisms.calibration import discrete_laplace_laws
from bayesprivmrf.privacy import PrivacyGuarantee

from .contract import TablesContract


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


class EntryPoint:
    def __init__(self, name, target):
        self.name, self.value, self._target = name, f"somewhere:{name}", target

    def load(self):
        return self._target


def test_installed_entry_points_are_found_checked_and_must_not_collide(monkeypatch):
    points = [EntryPoint("cube-root", CubeRootStatistics)]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    assert available_mechanisms() == {"cube-root": CubeRootStatistics}
    points.append(EntryPoint("cube-root", TestThirdParty))
    with pytest.raises(BayesPrivMRFError, match="must be a subclass of Mechanism"):
        available_mechanisms()
    points[-1] = EntryPoint("cube-root", StatisticsMechanism)
    with pytest.raises(BayesPrivMRFError, match="two packages"):
        available_mechanisms()
