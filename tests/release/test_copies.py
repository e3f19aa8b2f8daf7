"""Noisy numbers that are given twice are refused, and numbers that agree rightly are not."""

import itertools

import numpy as np
import pytest

from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference import NaiveMLE
from bayesprivmrf.model import declare
from bayesprivmrf.noise import DiscreteLaplace, Laplace, NoNoise, Within
from bayesprivmrf.queries import coarsened, table
from bayesprivmrf.release import Measurement, NoisyStatistics

CHAIN = declare({"a": [0, 1, 2], "b": [0, 1], "c": [0, 1]}, [("a", "b"), ("b", "c")])
PAIR = declare({"a": [0, 1, 2], "b": [0, 1]}, [("a", "b")])
NOISE = Laplace(2.0)
RNG = np.random.default_rng(5)
FIRST = np.full((3, 2), 150.0) + NOISE.draw((3, 2), RNG)
SECOND = np.full((2, 2), 225.0) + NOISE.draw((2, 2), RNG)
GIVEN = [(("a", "b"), FIRST), (("b", "c"), SECOND)]
from_tables = NoisyStatistics.from_tables

COPIES = {
    "the same table": (("a", "b"), FIRST),
    "with its axes in another order": (("b", "a"), FIRST.T),
    "its own margin": ("a", FIRST.sum(axis=1)),
    "the last table": (("b", "c"), SECOND),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_is_refused_with_its_remedy(name):
    given = [*GIVEN, COPIES[name]]
    with pytest.raises(ModelError, match="give these numbers once"):
        from_tables(CHAIN, given, noise=NOISE)


@pytest.mark.parametrize("population", ["one", "waves"])
def test_a_release_within_another_is_refused_by_a_fit(population):
    whole = from_tables(CHAIN, GIVEN, noise=NOISE)
    part = from_tables(PAIR, {("a", "b"): FIRST}, noise=NOISE)
    with pytest.raises(ModelError, match="give these numbers once"):
        NaiveMLE().fit([whole, part], population=population)


def test_answers_to_the_same_query_are_compared_by_their_rows():
    query = coarsened("a", a={"low": [0], "high": [1, 2]})
    one = Measurement(query, [300.251, 599.127], Laplace(2.0))
    again = Measurement(query, [300.251, 599.127], Laplace(3.0))
    other = Measurement(query, [300.251, 599.25], Laplace(3.0))
    with pytest.raises(ModelError, match="give these numbers once"):
        NoisyStatistics.from_measurements(
            CHAIN, [one, again, Measurement(query, [300.111111, 599.222222], NOISE)]
        )
    assert NoisyStatistics.from_measurements(CHAIN, [one, other])


def test_tables_that_were_made_from_one_noisy_table_are_refused():
    states = list(range(4))
    network = declare(dict.fromkeys("abc", states), [("a", "b"), ("b", "c")])
    whole = 20 + NOISE.draw((4, 4, 4), np.random.default_rng(2))
    parts = [(("a", "b"), whole.sum(axis=2)), (("c", "b"), whole.sum(axis=0).T)]
    with pytest.raises(ModelError, match=r"equal sums .* over all variables but 'b'"):
        from_tables(network, parts, noise=NOISE.summed(4))
    moved = [parts[0], (("c", "b"), parts[1][1] + NOISE.draw((4, 4), np.random.default_rng(3)))]
    assert from_tables(network, moved, noise=NOISE.summed(4))


def test_a_repeated_sum_among_many_tables_is_found():
    names = [f"v{i}" for i in range(9)]
    pairs = list(itertools.combinations(names, 2))
    network = declare({name: [0, 1, 2] for name in names}, pairs)
    rng = np.random.default_rng(7)
    tables = {pair: 100 + NOISE.draw((3, 3), rng) for pair in pairs}
    for one in pairs:  # all first sums of v8 agree, and say nothing: the others differ
        if one[1] == "v8":
            tables[one][0, 0] += 300 - tables[one][:, 0].sum()
    assert from_tables(network, tables, noise=NOISE)
    repeated = tables[("v2", "v8")]
    repeated[0] += tables[("v5", "v8")].sum(axis=0) - repeated.sum(axis=0)
    with pytest.raises(ModelError, match=r"equal sums .* over all variables but 'v8'"):
        from_tables(network, tables, noise=NOISE)


def test_a_table_beside_a_query_of_its_cells_is_a_copy():
    cells = coarsened("a", a={0: [0], 1: [1], 2: [2]})
    numbers = FIRST.sum(axis=1)
    given = [Measurement(cells, numbers, NOISE), Measurement(table("a"), numbers, NOISE)]
    for order in (given, given[::-1]):
        with pytest.raises(ModelError, match="give these numbers once"):
            NoisyStatistics.from_measurements(CHAIN, order)


def test_a_few_whole_sums_may_agree_by_chance():
    # two states are shared, and each sum agrees with a probability of at most 0.05
    tables = [(("a", "b"), np.full((3, 2), 20.0)), (("b", "c"), np.full((2, 2), 30.0))]
    assert from_tables(CHAIN, tables, noise=DiscreteLaplace(10.0))


def test_numbers_that_agree_rightly_are_accepted():
    whole = np.array([[3.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    repeated = [(("a", "b"), whole), (("a", "b"), whole), (("b", "c"), SECOND)]
    # few whole numbers agree by chance, exact ones and rounded ones must, and zeros may be set
    for law in (DiscreteLaplace(1.0), NoNoise(), Within(0.5)):
        assert from_tables(CHAIN, repeated, noise=[law, law, NOISE])
    moved = FIRST.sum(axis=1) + np.array([1.0, -1.0, 1.0])
    assert from_tables(CHAIN, [*GIVEN, ("a", moved)], noise=NOISE)


def test_whole_numbers_are_copies_where_chance_is_far():
    law = DiscreteLaplace(2.0)
    table = np.arange(40.0).reshape(20, 2) + 100
    network = declare({"a": list(range(20)), "b": [0, 1]}, [("a", "b")])
    with pytest.raises(ModelError, match="give these numbers once"):
        from_tables(network, [(("a", "b"), table)] * 2, noise=law)
    # rounded to a hundred they agree because of the rounding
    hundreds = 100 * np.rint(table / 100)
    assert from_tables(network, [(("a", "b"), hundreds)] * 2, noise=law)


def test_independent_measurements_are_not_refused():
    # a hundred releases of two equal tables of twelve cells: none has a chance above 1e-6 of a refusal
    network = declare({"a": list(range(12))}, [("a",)])
    for seed in range(100):
        rng = np.random.default_rng(seed)
        law = DiscreteLaplace(1.0)
        tables = [("a", 50 + law.draw(12, rng)) for _ in range(2)]
        assert from_tables(network, tables, noise=law)


def test_large_numbers_that_differ_by_their_noise_are_accepted():
    # the difference is a ten-billionth of the numbers, and a tenth of the noise
    first = np.array([512345678.123457, 487654321.765433])
    query = coarsened("a", a={"low": [0], "high": [1, 2]})
    given = [Measurement(query, first + shift, Laplace(0.5)) for shift in (0.0, 0.05123)]
    assert NoisyStatistics.from_measurements(CHAIN, given)
    with pytest.raises(ModelError, match="give these numbers once"):
        NoisyStatistics.from_measurements(CHAIN, [given[0], given[0]])


def test_agreement_within_rounding_errors_is_likely_where_they_exceed_the_noise():
    first = np.array([5.12345678e15, 4.87654321e15])
    query = coarsened("a", a={"low": [0], "high": [1, 2]})
    given = [Measurement(query, first + shift, Laplace(0.5)) for shift in (0.0, 1.0)]
    assert NoisyStatistics.from_measurements(CHAIN, given)
