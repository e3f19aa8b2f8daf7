"""Tables summed on a smaller scope and spread over a larger one, against cell-by-cell sums."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bayesprivmrf.errors import ModelError
from bayesprivmrf.model import Domain, ModelSpecification, cells_within, expand, parent, project

CARDINALITIES = (2, 3, 1, 4)


def targets(scope):
    return [
        target for size in range(len(scope) + 1) for target in itertools.permutations(scope, size)
    ]


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
@pytest.mark.parametrize("target", targets((3, 0, 2)))
def test_a_projected_table_holds_the_sum_of_every_cell_that_agrees(lead, target):
    scope = (3, 0, 2)
    table = np.random.default_rng(1).integers(0, 100, (*lead, *(CARDINALITIES[v] for v in scope)))
    result = project(table, scope, target)
    expected = np.zeros((*lead, *(CARDINALITIES[v] for v in target)), dtype=int)
    for cell in np.ndindex(*(CARDINALITIES[v] for v in scope)):
        state = dict(zip(scope, cell, strict=True))
        expected[(..., *(state[v] for v in target))] += table[(..., *cell)]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("scope", targets((0, 1, 3)))
def test_an_expanded_table_has_in_every_cell_the_entry_of_its_part(scope):
    target = (3, 0, 2, 1)
    table = np.random.default_rng(2).random([CARDINALITIES[v] for v in scope])
    spread = np.broadcast_to(expand(table, scope, target), [CARDINALITIES[v] for v in target])
    numbers = cells_within(CARDINALITIES, scope, target).reshape(spread.shape)
    for cell in np.ndindex(*spread.shape):
        state = dict(zip(target, cell, strict=True))
        part = tuple(state[v] for v in scope)
        assert spread[cell] == table[part] == table.ravel()[numbers[cell]]


def test_the_parent_is_the_first_scope_that_holds_all_and_none_is_said_so():
    scopes = [("a", "b"), ("c", "b", "a"), ("a", "b", "d")]
    assert parent(scopes, ("b", "a")) == 0
    assert parent(scopes, ("b", "c")) == 1
    assert parent(scopes, ()) == 0
    assert parent(scopes, ("c", "d")) is None
    domain = Domain.from_states({name: [0, 1] for name in "abcd"})
    model = ModelSpecification(domain=domain, cliques=(("a", "b", "c"), ("b", "d")))
    assert model.parent((3,)) == 1
    with pytest.raises(ModelError, match=r"'c', 'd'.* are together in no clique"):
        model.project(np.zeros(model.size), (2, 3))
