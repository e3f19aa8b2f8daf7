from itertools import combinations

import numpy as np
import pytest
from inference.conftest import AWKWARD, specification

from bayesprivmrf.inference.posterior.junction_forest import junction_forest

DECOMPOSABLE = [name for name in AWKWARD if name not in ("cycle", "three-way")]


def forest_of(model):
    return junction_forest(model.cardinalities, model.scopes, model.possible)


def test_models_with_a_chordless_cycle_or_a_missing_clique_are_not_decomposable():
    assert forest_of(specification(*AWKWARD["cycle"])) is None
    assert forest_of(specification(*AWKWARD["three-way"])) is None
    triangle = {v: [0, 1] for v in "abc"}
    assert forest_of(specification(triangle, [("a", "b"), ("b", "c"), ("a", "c")])) is None
    assert forest_of(specification(triangle, [("a", "b", "c")])) is not None


@pytest.mark.parametrize("name", DECOMPOSABLE)
def test_shared_variables_of_two_cliques_lie_in_every_clique_between_them(name):
    model = specification(*AWKWARD[name])
    forest = forest_of(model)
    assert forest is not None
    assert sorted(forest.order) == list(range(len(model.scopes)))
    for v in range(len(model.cardinalities)):
        holders = [c for c, scope in enumerate(model.scopes) if v in scope]
        tops = [c for c in holders if forest.parents[c] not in holders]
        assert len(tops) == 1


def wide_forest(impossible=()):
    states = {"a": range(2), "b": range(3), "c": range(2), "d": range(4), "e": range(2)}
    return forest_of(
        specification(
            {v: list(s) for v, s in states.items()},
            [("c", "a", "b"), ("b", "c", "d"), ("d", "e")],
            impossible,
        )
    )


def test_rows_hold_every_cell_once_and_their_parents_cells_sum_to_their_totals():
    forest = wide_forest()
    assert sorted(forest.cells) == list(range(12 + 24 + 8))
    joint = np.random.default_rng(0).random((2, 3, 2, 4, 2))
    tables = [joint.sum(axis=(3, 4)).transpose(2, 0, 1), joint.sum(axis=(0, 4)), joint.sum(axis=(0, 1, 2))]
    flat = np.concatenate([table.ravel() for table in tables])[forest.cells]
    for row in range(len(forest.row_sizes)):
        own = flat[forest.row_starts[row] : forest.row_starts[row + 1]].sum()
        sources = forest.sources[forest.source_starts[row] : forest.source_starts[row + 1]]
        assert own == pytest.approx(flat[sources].sum() if sources.size else joint.sum())
        assert (sources < forest.row_starts[row]).all()


def test_the_root_is_the_clique_of_most_cells_and_among_equals_the_central_one():
    assert wide_forest().roots == (1,)
    chain = [(k, k + 1) for k in range(7)]
    assert junction_forest((2,) * 8, chain).roots == (3,)
    assert junction_forest((3, 2, 2, 3), [(0,), (1,), (2, 3)]).roots == (0, 1, 2)


def test_cells_that_cannot_occur_are_in_no_row():
    forest = wide_forest([(("b", 0), ("c", 1)), (("d", 3), ("e", 0))])
    full = wide_forest()
    assert set(forest.cells) < set(full.cells)
    assert forest.supported is not None
    assert (np.sort(forest.cells) == np.flatnonzero(forest.supported)).all()


def test_a_star_of_cliques_has_separators_of_several_variables():
    scopes = [(0, 1, 2), (0, 1, 3), (0, 1, 4), (5,)]
    forest = junction_forest((2,) * 6, scopes)
    assert sorted(map(len, forest.separators)) == [0, 0, 2, 2]
    for first, second in combinations(range(3), 2):
        assert set(scopes[first]) & set(scopes[second]) == {0, 1}
