"""Made-up indicators have the law that they say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bayesprivmrf.errors import ArgumentError
from bayesprivmrf.learning import simulated_indicators


@pytest.mark.parametrize(("variables", "seed"), [(6, 1), (7, 2), (9, 3)])
def test_records_follow_the_stated_model(variables, seed):
    made = simulated_indicators(200_000, seed, variables=variables)
    names = list(made.simulated)
    states = np.array(list(itertools.product([0, 1], repeat=variables)))
    spins = 2 * states - 1
    energy = sum(
        h * spins[:, [names.index(v) for v in monomial]].prod(axis=1)
        for monomial, h in made.monomials.items()
    )
    law = np.exp(energy - energy.max())
    law /= law.sum()
    drawn = 2 * made.simulated.to_numpy().astype(float) - 1
    # 5 standard errors of each of at most 129 means: a level of 1e-4 in all
    for size in (1, 2, 3):
        for members in itertools.combinations(range(variables), size):
            expected = law @ spins[:, members].prod(axis=1)
            error = np.sqrt((1 - expected**2) / len(drawn))
            assert abs(drawn[:, members].prod(axis=1).mean() - expected) < 5 * error
    assert ((law @ states > 0.0999) & (law @ states < 0.6001)).all()


def test_the_model_has_the_stated_groups():
    made = simulated_indicators(10, 1, variables=12)
    sizes = [len(monomial) for monomial in made.monomials.index]
    assert [sizes.count(k) for k in (1, 2, 3)] == [12, 66, 3]
    group = {f"q{i}": i // 4 for i in range(12)}
    inside = [h for m, h in made.monomials.items() if len(m) == 2 and group[m[0]] == group[m[1]]]
    across = [h for m, h in made.monomials.items() if len(m) == 2 and group[m[0]] != group[m[1]]]
    assert len(inside) == 18
    assert 0.1 <= min(inside) <= max(inside) <= 0.45
    assert np.abs(across).max() <= 0.1
    assert 0 in across
    assert made.monomials["q4", "q5", "q6"] == -0.12


def test_equal_seeds_give_equal_records_and_the_print_says_what_they_are():
    first, second = (simulated_indicators(100, 5, variables=6) for _ in range(2))
    assert first.simulated.equals(second.simulated)
    assert not first.simulated.equals(simulated_indicators(100, 6, variables=6).simulated)
    assert repr(first) == "SimulatedIndicators(100 MADE-UP records of 6 indicators)"
    assert simulated_indicators(0, 5, variables=6).simulated.shape == (0, 6)


@pytest.mark.parametrize("size", [-1, 2.5, True, None])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(ArgumentError, match="`size` must be a whole number"):
        simulated_indicators(size, 1)


@pytest.mark.parametrize("variables", [5, 21, 8.0, True])
def test_too_few_or_many_variables_are_refused(variables):
    with pytest.raises(ArgumentError, match="`variables` must be a whole number from 6 to 20"):
        simulated_indicators(10, 1, variables=variables)
