from itertools import combinations

import numpy as np
import pytest
from inference.conftest import AWKWARD, specification
from inference.posterior.engines import junction_forest

from bayesprivmrf.inference.posterior.forest import draw_log_rows, marginals_of
from bayesprivmrf.model import project

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
    tables = [
        joint.sum(axis=(3, 4)).transpose(2, 0, 1),
        joint.sum(axis=(0, 4)),
        joint.sum(axis=(0, 1, 2)),
    ]
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


STEPPED = {
    "panel": ({v: [3, 1, 2] for v in range(4)}, [(0, 1), (1, 2), (2, 3)], ()),
    "second order": ({v: ["x", "y", "z"] for v in "abcd"}, [("a", "b", "c"), ("b", "c", "d")], ()),
    "beside others": (
        {"a": [0, 1, 2], "g": [0, 1], "b": [0, 1, 2], "c": [0, 1]},
        [("a", "g", "b"), ("b", "c")],
        (),
    ),
    "cells that cannot occur": (
        {v: [0, 1, 2] for v in "abc"},
        [("a", "b"), ("b", "c")],
        [(("a", 0), ("b", 0)), (("b", 1), ("c", 0)), (("b", 1), ("c", 2))],
    ),
}


@pytest.mark.parametrize("name", STEPPED)
def test_steps_cut_a_table_into_staying_and_going_and_lose_nothing(name):
    """Rows of a joint law, multiplied along the forest, are its tables again; each record is in one cell of each."""
    model = specification(*STEPPED[name])
    forest = junction_forest(model.cardinalities, model.scopes, model.possible, model.domain.states)
    assert {table.step for table in forest.tables} >= {"stay", "move"}
    assert (np.sort(forest.cells[~forest.is_inner]) == forest.cells[forest.places]).all()
    shapes = np.random.default_rng(1).gamma(1.0, 1.0, (forest.cells.size, 50))
    log_rows = draw_log_rows(forest, shapes, np.random.default_rng(2))
    flat = np.zeros((50, model.size))
    flat[:, forest.cells[forest.places]] = marginals_of(forest, log_rows)[forest.places].T
    for shared in combinations(range(len(model.scopes)), 2):
        common = sorted(set(model.scopes[shared[0]]) & set(model.scopes[shared[1]]))
        ends = [
            np.stack(
                [project(table.reshape(shape), model.scopes[c], common).ravel() for table in part]
            )
            for c in shared
            for shape in [tuple(model.cardinalities[v] for v in model.scopes[c])]
            for part in [flat[:, model.offsets[c] : model.offsets[c + 1]]]
        ]
        assert ends[0] == pytest.approx(ends[1], abs=1e-12)
    whole = forest.with_inner(flat)
    for table in forest.tables:
        assert whole[:, table.start : table.stop].sum(axis=1) == pytest.approx(np.ones(50))
        if table.step == "stay":
            u, v = table.scope
            stays, goes = (
                whole[:, table.start : table.stop][:, table.margins[0][1] == k].sum(axis=1)
                for k in (0, 1)
            )
            states = model.cardinalities[u]
            scope = model.scopes[table.clique]
            shape = tuple(model.cardinalities[w] for w in scope)
            start, stop = model.offsets[table.clique : table.clique + 2]
            square = np.stack(
                [project(row.reshape(shape), scope, (u, v)) for row in flat[:, start:stop]]
            )
            assert stays == pytest.approx(square[:, range(states), range(states)].sum(axis=1))
            assert goes == pytest.approx(1 - stays)
    # a clique's cells given its separator have the product of their rows
    given = np.exp(forest.along_steps(log_rows))
    for clique in forest.order:
        own = ~forest.is_inner & (
            np.searchsorted(model.offsets, forest.cells, side="right") - 1 == clique
        )
        states = forest.separator_states(clique, forest.separators[clique])[
            forest.cells[own] - model.offsets[clique]
        ]
        for state in np.unique(states):
            assert given[own][states == state].sum(axis=0) == pytest.approx(np.ones(50))


@pytest.mark.parametrize(
    ("written", "turned"),
    [
        ([("a", "b"), ("b", "c")], [("b", "a"), ("c", "b")]),
        ([("a", "b", "c"), ("c", "d")], [("c", "a", "b"), ("d", "c")]),
    ],
)
def test_the_steps_are_the_same_however_a_clique_is_written(written, turned):
    """The order of a clique's variables says how its table is laid out; it is no part of what is believed."""
    steps = []
    for cliques in (written, turned):
        model = specification({v: ["x", "y", "z"] for v in sorted(set().union(*cliques))}, cliques)
        forest = junction_forest(model.cardinalities, model.scopes, None, model.domain.states)
        steps.append([(table.clique, table.step, set(table.scope)) for table in forest.tables])
        assert [t.scope for t in forest.tables if t.step == "stay"] == [
            (v - 1, v) for v in range(1, len(model.cardinalities))
        ]
    assert steps[0] == steps[1]


def test_tables_of_two_states_or_of_other_ones_are_not_cut():
    for states in ({v: [0, 1] for v in "abc"}, {"a": [0, 1, 2], "b": [0, 1, 3], "c": [2, 1, 0]}):
        model = specification(states, [("a", "b"), ("b", "c")])
        forest = junction_forest(model.cardinalities, model.scopes, None, model.domain.states)
        plain = junction_forest(model.cardinalities, model.scopes)
        assert [table.step for table in forest.tables] == ["", ""]
        assert (forest.cells == plain.cells).all()
        assert not forest.is_inner.any()
