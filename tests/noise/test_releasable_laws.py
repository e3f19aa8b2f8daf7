"""What a third party's law must keep, so that a budget is never spent on noise that is not its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from bayesprivmrf.errors import ArgumentError, PrivacyError
from bayesprivmrf.mechanisms import StatisticsMechanism
from bayesprivmrf.model import Domain, ModelSpecification
from bayesprivmrf.noise import DiscreteLaplace, NoiseLaw
from bayesprivmrf.noise.source import require_releasable
from bayesprivmrf.privacy import Adjacency, PrivacyGuarantee

MODEL = ModelSpecification(
    domain=Domain.from_states({"a": [0, 1], "b": [0, 1]}), cliques=(("a",), ("b",))
)
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

    def log_density(self, residual):
        return DiscreteLaplace(self.b).log_density(residual)

    def score(self, residual):
        return DiscreteLaplace(self.b).score(residual)

    def draw(self, size, rng):
        return DiscreteLaplace(self.b).draw(size, rng)

    def add_exactly(self, counts, words):
        seeded = np.random.default_rng(words(4))  # for a test: no real law may round as this does
        return counts + DiscreteLaplace(self.b).draw(counts.shape, seeded)


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


def borrowed(name, **members):
    """A law like `Borrowed` but for some members."""
    made = type(name, (Borrowed,), {"name": f"test-{name}", "__annotations__": {}, **members})
    return dataclass(frozen=True)(made)()


def valued(value):
    return property(lambda law: value)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (
            {"add_exactly": lambda law, counts, words: counts},
            "got none, or equal noise for different words",
        ),
        (
            {"add_exactly": lambda law, counts, words: counts + 1},
            "got none, or equal noise for different words",
        ),
        (
            {
                "add_exactly": lambda law, counts, words: (
                    counts + np.random.default_rng(0).integers(-3, 4, counts.shape)
                )
            },
            "got none, or equal noise for different words",
        ),
        (
            {
                "add_exactly": lambda law, counts, words: (
                    counts + np.random.default_rng().integers(-3, 4, counts.shape)
                )
            },
            "equal words that gave different noise",
        ),
        (
            {
                "add_exactly": lambda law, counts, words: (
                    counts * (words(counts.size) % 2).astype(np.int64)
                )
            },
            "equal words that gave different noise",
        ),
        (
            {
                "add_exactly": lambda law, counts, words: (
                    counts.ravel() + words(counts.size).view(np.int64) // 2**60
                )
            },
            "must return int64 of the counts' shape",
        ),
        ({"variance": valued(np.inf)}, r"must have a finite variance, got inf"),
        ({"variance": valued(np.nan)}, r"must have a finite variance, got nan"),
        ({"variance": valued(-1.0)}, r"must have a finite variance, got -1.0"),
        ({"hides": valued(False)}, "must add noise to every table"),
        ({"kernel": "absolute", "scale": 2.0}, "must have the density of its `kernel`, 'absolute'"),
        ({"kernel": "square", "scale": 1.0}, "must have the density of its `kernel`, 'square'"),
        (
            {"kernel": "absolute", "scale": 0.0},
            "positive, finite `scale`, got 'absolute' with the scale 0",
        ),
        (
            {"kernel": "square", "scale": np.nan},
            "positive, finite `scale`, got 'square' with the scale nan",
        ),
        ({"kernel": "square"}, "positive, finite `scale`"),
        ({"kernel": "round", "scale": 1.0}, "`kernel` of None, or 'absolute' or 'square'"),
        (
            {"kernel": "within", "half_width": 2.0},
            "must be that of added noise, got the kernel 'within'",
        ),
    ],
)
def test_a_law_that_is_not_what_it_says_is_refused_before_the_charge(members, words):
    account, law = Account(), borrowed("lying", **members)
    with pytest.raises((PrivacyError, ArgumentError), match=words):
        With(laws=(law, law)).release(MODEL, DATA, ledger=account)
    assert account.spent == []
    assert (
        With(laws=(Borrowed(), Borrowed())).release(MODEL, DATA, ledger=account).noise
        == (Borrowed(),) * 2
    )


@pytest.mark.parametrize("scale", [1e-3, 0.05, 0.15, 0.3, 1.0, 1e5])
def test_a_right_law_of_any_size_is_not_refused(scale):
    for _ in range(20):
        require_releasable(Borrowed(scale))


def test_the_check_of_a_law_takes_nothing_from_a_seeded_draw():
    generator = np.random.default_rng(5)
    With(laws=(Borrowed(), Borrowed())).preview(MODEL)
    first = With(laws=(Borrowed(), Borrowed())).release(MODEL, DATA, rng=generator)
    noise = np.random.default_rng(5)
    drawn = np.concatenate([DiscreteLaplace(1.0).draw((4,), noise)])
    np.testing.assert_array_equal(first.tables.flat, 500 + drawn)


@pytest.mark.parametrize("given", [Borrowed(), None, {Borrowed()}], ids=str)
def test_laws_that_are_not_one_a_table_are_refused(given):
    with pytest.raises(
        ArgumentError, match=r"must give a tuple of noise distributions, .* correct its `_noise`"
    ):
        With(laws=given).release(MODEL, DATA)


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_law_has_a_name(name):
    with pytest.raises(TypeError, match="must have a `name` that is text"):
        type("Nameless", (Borrowed,), {"name": name})
