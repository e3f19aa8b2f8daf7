"""What a third party's law must keep, so that a budget is never spent on noise that is not its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from bayesprivmrf.errors import PrivacyError
from bayesprivmrf.mechanisms import StatisticsMechanism
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.noise import DiscreteLaplace, NoiseLaw
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee

MODEL = ModelSpecification(domain=Domain.from_states({"a": [0, 1], "b": [0, 1]}), cliques=(("a",), ("b",)))
DATA = pd.DataFrame({"a": [0, 1] * 500, "b": [1, 0] * 500})


@dataclass(frozen=True)
class Borrowed(NoiseLaw):
    """Discrete Laplace noise by another name."""

    name: ClassVar[str] = "test-borrowed"
    is_discrete: ClassVar[bool] = True
    b: float = 1.0

    @property
    def variance(self):
        return DiscreteLaplace(self.b).variance

    @property
    def mean_absolute(self):
        return DiscreteLaplace(self.b).mean_absolute

    def log_density(self, residual):
        return DiscreteLaplace(self.b).log_density(residual)

    def score(self, residual):
        return DiscreteLaplace(self.b).score(residual)

    def draw(self, size, rng):
        return DiscreteLaplace(self.b).draw(size, rng)

    def add_exactly(self, counts, words):
        return DiscreteLaplace(self.b).add_exactly(counts, words)


@dataclass(frozen=True)
class Fraction(Borrowed):
    name: ClassVar[str] = "test-fraction"

    def add_exactly(self, counts, words):
        return counts + 0.4


@dataclass(frozen=True)
class One(Borrowed):
    name: ClassVar[str] = "test-one"

    def add_exactly(self, counts, words):
        return counts[:1]


@dataclass(frozen=True, eq=False)
class Unhashable(Borrowed):
    name: ClassVar[str] = "test-unhashable"

    def __eq__(self, other):
        return isinstance(other, Unhashable) and self.b == other.b


@dataclass(frozen=True)
class Alike(Borrowed):
    """Equal whatever its scale."""

    name: ClassVar[str] = "test-alike"
    b: float = field(default=1.0, compare=False)


@dataclass(frozen=True, kw_only=True)
class With(StatisticsMechanism):
    laws: tuple[NoiseLaw, ...]

    def _noise(self, specification):
        return self.laws

    def _promise(self, specification):
        return PrivacyGuarantee(epsilon=1.0, adjacency=Adjacency.ADD_OR_REMOVE_ONE)


class Account:
    def __init__(self):
        self.spent = []

    def spend(self, guarantee, provenance):
        self.spent.append(guarantee)


@pytest.mark.parametrize("law", [Fraction(), One()], ids=["fractions", "one number for all"])
def test_a_draw_that_is_no_whole_number_a_count_is_refused_before_the_charge(law):
    account = Account()
    with pytest.raises(PrivacyError, match="must return int64 of the counts' shape"):
        With(laws=(law, law)).release(MODEL, DATA, ledger=account)
    assert account.spent == []


@pytest.mark.filterwarnings("ignore::bayesprivmrf.errors.NoiseWarning")
def test_each_table_gets_the_noise_that_is_stated_for_it_whatever_laws_call_equal():
    for narrow, wide in ((Alike(0.01), Alike(1e6)), (Unhashable(0.01), Unhashable(1e6))):
        release = With(laws=(narrow, wide)).release(MODEL, DATA)
        assert np.abs(release.tables["a"] - 500).max() < 50
        assert np.abs(release.tables["b"] - 500).max() > 50  # less with a probability of 1e-8
