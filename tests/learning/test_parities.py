"""Sums of parities and how far one record moves them, against enumeration."""

from __future__ import annotations

import itertools
from itertools import combinations

import numpy as np
import pytest

from bayesprivmrf.errors import ArgumentError, ModelError, ModelTooLargeError
from bayesprivmrf.learning import parities
from bayesprivmrf.mechanisms.parities import noisy_parity_sums, parity_sums
from bayesprivmrf.model import Domain, ModelSpecification, Monomials
from bayesprivmrf.noise import SimulatedNoise
from bayesprivmrf.privacy import (
    Adjacency,
    DiscreteGaussian,
    parity_l2_sensitivity,
    squared_l2_sensitivity,
)
from bayesprivmrf.privacy import largest_sum as largest_sums
from bayesprivmrf.privacy.largest_sum import largest_flips, odd_intersections

CHAIN = ((0, 1, 2), (2, 3), (3, 4, 5))


def all_spins(p: int) -> np.ndarray:
    return np.array(list(itertools.product((-1, 1), repeat=p)), dtype=np.int8).reshape(-1, p)


def parity(rows: np.ndarray, members: tuple[int, ...]) -> np.ndarray:
    return np.prod(rows[:, list(members)].astype(int), axis=1)


def specification(p: int, cliques=None) -> ModelSpecification:
    domain = Domain.from_states({v: ["no", "yes"] for v in range(p)})
    if cliques is None:
        return ModelSpecification(
            domain=domain, cliques=tuple((v,) for v in range(p)), cliques_declared=False
        )
    return ModelSpecification(domain=domain, cliques=cliques)


@pytest.mark.parametrize(("p", "order"), [(1, 1), (4, 2), (5, 5), (7, 3)])
def test_all_sets_are_listed_by_size_and_each_has_its_parent(p, order):
    family = Monomials.complete(p, order)
    assert list(family) == [s for k in range(order + 1) for s in combinations(range(p), k)]
    assert family.is_complete
    assert family == Monomials.inside(p, [tuple(range(p))], order)
    for k, level in enumerate(family.levels[1:], start=1):
        assert (family.levels[k - 1][family.parents[k - 1]] == level[:, :-1]).all()
    assert [bin(mask).count("1") for mask in family.masks.tolist()] == family.orders.tolist()


def test_declared_cliques_hold_the_sets():
    family = Monomials.of(specification(6, CHAIN), 3)
    expected = {s for clique in CHAIN for k in range(4) for s in combinations(clique, k)}
    assert set(family) == expected
    assert len(list(family)) == len(expected)
    assert not family.is_complete


def test_the_sums_are_those_of_the_definition():
    rng = np.random.default_rng(1)
    for p, order in ((1, 1), (4, 3), (6, 6), (7, 2)):
        family = Monomials.complete(p, order)
        spins, counts = rng.choice([-1, 1], (40, p)).astype(np.int8), rng.integers(1, 10**9, 40)
        expected = [int(counts @ parity(spins, members)) for members in family]
        assert parity_sums(spins, counts, family).tolist() == expected
        codes = ((spins < 0) << np.arange(p)).sum(axis=1)
        table = np.bincount(codes, weights=counts, minlength=2**p)
        assert parities.walsh_hadamard(table)[family.masks].tolist() == expected
    assert (
        parities.walsh_hadamard(parities.walsh_hadamard(table)).tolist() == (2**p * table).tolist()
    )


def test_blocks_of_records_add_up():
    rng = np.random.default_rng(2)
    family = Monomials.of(specification(6, CHAIN), 3)
    spins, counts = (
        rng.choice([-1, 1], (700_001, 6)).astype(np.int8),
        np.ones(700_001, dtype=np.int64),
    )
    whole = parity_sums(spins, counts, family)
    codes = (spins > 0) @ (1 << np.arange(6))
    distinct = np.where((np.arange(64)[:, np.newaxis] >> np.arange(6)) & 1, 1, -1).astype(np.int8)
    often = np.bincount(codes, minlength=64)
    assert (parity_sums(distinct, often, family) == whole).all()
    rows = np.concatenate(parities.parity_rows(spins.T, family))
    assert (rows.sum(axis=1, dtype=int) == whole).all()
    assert parity_sums(spins[:0], counts[:0], family).tolist() == [0] * len(family)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_no_neighbour_moves_the_sums_further_and_one_moves_them_as_far(order):
    p = 4
    family, rows = Monomials.complete(p, order), all_spins(4)
    vectors = np.array([parity(rows, members) for members in family]).T
    moves = ((vectors[:, None] - vectors[None]) ** 2).sum(axis=2)
    assert moves.max() == squared_l2_sensitivity(family, Adjacency.REPLACE_ONE)
    assert (
        (vectors**2).sum(axis=1) == squared_l2_sensitivity(family, Adjacency.ADD_OR_REMOVE_ONE)
    ).all()
    for flips in range(p + 1):
        pair = (rows != rows[0]).sum(axis=1) == flips
        assert (moves[0][pair] == 4 * odd_intersections(p, order, flips)).all()


def test_the_largest_move_of_declared_cliques_is_found_by_elimination():
    rng = np.random.default_rng(3)
    for _ in range(25):
        p = int(rng.integers(2, 8))
        scopes = [rng.choice(p, min(p, int(rng.integers(1, 4))), replace=False) for _ in range(6)]
        family = Monomials.inside(p, scopes, 3)
        brute = max(
            sum(len(set(members) & set(flips)) % 2 for members in family)
            for k in range(p + 1)
            for flips in combinations(range(p), k)
        )
        assert largest_flips(family) == brute


def test_the_elimination_is_exact_on_a_grid_and_a_bound_where_tables_are_split(monkeypatch):
    side = 6
    edges = [(i * side + j, i * side + j + 1) for i in range(side) for j in range(side - 1)]
    edges += [(i * side + j, (i + 1) * side + j) for i in range(side - 1) for j in range(side)]
    family = Monomials.inside(side * side, edges, 2)
    exact = side * side // 2 + len(edges)  # every second variable flipped, as on a chess board
    assert largest_flips(family) == exact
    monkeypatch.setattr(largest_sums, "_LARGEST_TABLE", 2**3)
    assert exact <= largest_flips(family) < len(family)


def test_the_sensitivity_is_rounded_up():
    family = Monomials.complete(20, 3)
    assert squared_l2_sensitivity(family, Adjacency.REPLACE_ONE) == 4640
    assert parity_l2_sensitivity(family, Adjacency.REPLACE_ONE) ** 2 >= 4640
    assert parity_l2_sensitivity(family, Adjacency.REPLACE_ONE) == pytest.approx(
        4640**0.5, rel=1e-15
    )
    alone = Monomials.complete(3, 1)
    assert parity_l2_sensitivity(alone, Adjacency.ADD_OR_REMOVE_ONE) == 2.0
    assert squared_l2_sensitivity(alone, Adjacency.ADD_OR_REMOVE_ONE, with_empty=False) == 3


def test_the_sum_of_the_empty_set_is_noisy_unless_the_total_is_given():
    family, rows = Monomials.complete(3, 2), all_spins(3)
    counts = np.ones(8, dtype=np.int64)
    noisy = noisy_parity_sums(
        rows, counts, family, DiscreteGaussian(50.0), SimulatedNoise(np.random.default_rng(4))
    )
    assert noisy.shape == (7,)
    assert noisy[0] != 8
    given = noisy_parity_sums(
        rows,
        counts,
        family,
        DiscreteGaussian(50.0),
        SimulatedNoise(np.random.default_rng(4)),
        np.array([9]),
    )
    assert given[0] == 9
    assert (given[1:] != 0).any()


def test_bad_orders_states_and_sizes_are_refused():
    for order in (0, 7, 2.0, True, "2"):
        with pytest.raises(ArgumentError, match="order"):
            Monomials.of(specification(6), order)  # type: ignore[arg-type]
    three = ModelSpecification(
        domain=Domain.from_states({"a": [0, 1], "b": [0, 1, 2]}),
        cliques=(("a",), ("b",)),
        cliques_declared=False,
    )
    with pytest.raises(ModelError, match=r"'b' must have two states .* got 3"):
        Monomials.of(three, 2)
    with pytest.raises(ModelTooLargeError, match=r"GiB.*smaller order"):
        Monomials.of(specification(40), 20)
