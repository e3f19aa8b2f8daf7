"""Sums without noise: the moves that are taken for enough link all data sets within them, and others are refused."""

from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pytest
from inference.conftest import AWKWARD, joint_states, specification, tables_of
from inference.posterior.engines import junction_forest
from repeats import few

from bayesprivmrf import queries as q
from bayesprivmrf.errors import ModelError
from bayesprivmrf.inference import gather
from bayesprivmrf.inference.posterior.whole_records.bounds import Bounded, CrossingError, NestedSums
from bayesprivmrf.inference.posterior.whole_records.effects import bag_evidence
from bayesprivmrf.inference.posterior.whole_records.exact_sums import ExactSums
from bayesprivmrf.noise import Within
from bayesprivmrf.privacy import Laplace, NoNoise
from bayesprivmrf.release import Measurement, NoisyStatistics

PATH = specification({v: [0, 1] for v in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d")])
CYCLE = specification({v: [0, 1] for v in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])
TRIANGLE = specification({v: [0, 1] for v in "abc"}, [("a", "b"), ("b", "c"), ("c", "a")])
THREE_WAY = specification(*AWKWARD["three-way"])
ODD = specification(
    {3: [1, 0], 1: ["x", "a", "m"], 2: [1, 0], 7: ["only"], 5: [2, 0]},
    [(1, 3, 7), (3, 2), (2, 1), (5,)],
)
NOTHING = q.coarsened("a", groups={"a": {"all": [0, 1]}})


def forest_of(bagged):
    """The junction forest of the bags."""
    model = bagged.specification
    return junction_forest(model.cardinalities, model.scopes, bagged.supported)


def held_by(model, exact=(), bounded=(), *, truth, total=None):
    """The held sums of exact and of bounded queries of a data set, whose joint counts are `truth`."""
    counts, first = tables_of(model, truth), model.domain.variables[0]
    given = [
        Measurement(q.table(first), np.zeros(len(model.domain.states_of(first))), Laplace(50.0))
    ]
    given += [Measurement(one, one.bind(model).answers(counts), NoNoise()) for one in exact]
    for one, width in bounded:
        middle = np.maximum(one.bind(model).answers(counts) - 1, 0) + width / 2
        given.append(Measurement(one, middle, Within(width / 2)))
    made = NoisyStatistics.from_measurements(model, given, total=total)
    bagged = bag_evidence(gather(made, takes_bounds=True))
    known = bagged.total_standard_error == 0
    return ExactSums(
        evidence=bagged, forest=forest_of(bagged), total=round(bagged.total) if known else None
    )


def data_sets(model, totals):
    """All data sets of so many records of the possible joint states, each the sorted tuple of its records' states."""
    unit = np.array([tables_of(model, row) for row in np.eye(len(joint_states(model)))])
    possible = np.flatnonzero(
        ~unit[:, ~(np.ones(model.size, bool) if model.possible is None else model.possible)].any(
            axis=1
        )
    )
    for records in totals:
        yield from combinations_with_replacement(possible.tolist(), records)


def fulfils(model, held, records):
    """Whether a data set is within all bounds."""
    states = joint_states(model)[list(records)].reshape(len(records), -1)
    for group, family in zip(held.groups, held.families, strict=True):
        shape = [model.cardinalities[v] for v in group.scope]
        cells = (
            np.ravel_multi_index(tuple(states[:, v] for v in group.scope), shape)
            if shape
            else np.zeros(len(records), int)
        )
        counts = np.bincount(cells, minlength=group.possible.size)
        if any(not each.lowest <= counts[each.cells].sum() <= each.highest for each in family):
            return False
    return True


def exchanged(model, held):
    """For each exchange: what two records of given joint states become, shape (states, states, 2), or -1."""
    states, sides = joint_states(model), list(held.sides())
    size, variables = states.shape
    found = np.full((len(sides), size, size, 2), -1)
    for side, (moved, _, separator) in enumerate(sides):
        is_moved = np.isin(np.arange(variables), list(moved))
        mixed = np.where(
            is_moved, states[np.newaxis], states[:, np.newaxis]
        )  # of the first, some of the second
        number = np.ravel_multi_index(tuple(np.moveaxis(mixed, -1, 0)), model.cardinalities)
        shared = states[:, np.array(separator, int)]
        may = (shared[:, np.newaxis] == shared).all(axis=-1)
        found[side][may] = np.stack([number, number.T], axis=-1)[may]
    return found.tolist()


def linked(model, held, fiber, totals):
    """How many parts the data sets fall into by one record's change, births and deaths, and the exchanges."""
    size, pairs = len(joint_states(model)), exchanged(model, held)
    place, part = {records: k for k, records in enumerate(fiber)}, list(range(len(fiber)))

    def top(k):
        while part[k] != k:
            part[k] = part[part[k]]
            k = part[k]
        return k

    for records in fiber:  # each link from one of its ends
        others = {
            tuple(sorted((*records[:k], new, *records[k + 1 :])))
            for k in range(len(records))
            for new in range(records[k] + 1, size)
        }
        if len(totals) > 1:
            others |= {tuple(sorted((*records, new))) for new in range(size)}
        for k, m in combinations(range(len(records)), 2):
            rest = (*records[:k], *records[k + 1 : m], *records[m + 1 :])
            found = (side[records[k]][records[m]] for side in pairs)
            others |= {tuple(sorted((*rest, *pair))) for pair in found if pair[0] >= 0}
        for other in others & place.keys():
            part[top(place[records])] = top(place[other])
    return len({top(k) for k in range(len(fiber))})


CASES = {
    "margins of one variable": (PATH, [q.table("a"), q.table("d")], [], 4),
    "all margins": (CYCLE, [q.table(v) for v in "abcd"], [], 4),
    "two tables that share a variable": (CYCLE, [q.table("a", "b"), q.table("b", "c")], [], 4),
    "a path of three tables": (PATH, [q.table(*clique) for clique in PATH.cliques], [], 4),
    "a cell and a margin": (PATH, [q.weighted("a", "b", matrix=[[1, 0, 0, 0]]), q.table("b")], [], 4),
    "parities of one variable": (TRIANGLE, [q.parities(1)], [], 4),
    "bounds beside a margin": (PATH, [q.table("a")], [(q.table("c", "d"), 1)], 4),
    "cells of two tables within bounds": (PATH, [], [(q.table("a", "b"), 2), (q.table("b", "c"), 1)], 4),
    "and their shared margin": (PATH, [q.table("b")], [(q.table("a", "b"), 1), (q.table("b", "c"), 1)], 4),
    "bounds and an unknown number": (PATH, [], [(q.table("a"), 2), (q.table("d"), 1)], None),
    "tables within bounds, an unknown number": (PATH, [], [(q.table("a", "b"), 1), (q.table("b", "c"), 2)], None),
    "a three-way table": (THREE_WAY, [q.table("a", "b"), q.table("d")], [(q.table("c"), 2)], 3),
    "odd names": (ODD, [q.table(1), q.table(5)], [(q.table(3), 1)], 3),
    "odd names, shared": (ODD, [q.table(1, 3), q.table(3, 2)], [(q.table(5), 1)], 3),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", few(range(3)))
def test_moves_link_every_data_set_within_the_bounds(case, seed):
    model, exact, bounded, total = CASES[case]
    rng, size = np.random.default_rng(seed), len(joint_states(model))
    truth = np.bincount(rng.integers(size, size=total or 3), minlength=size).astype(float)
    held = held_by(model, exact, bounded, truth=truth, total=total)
    totals = [total] if total else range(1, 5)
    fiber = [records for records in data_sets(model, totals) if fulfils(model, held, records)]
    assert tuple(np.repeat(np.arange(size), truth.astype(int)).tolist()) in fiber
    if len(fiber) > 4000:
        pytest.skip("many data sets, which links between small ones stand for")
    assert linked(model, held, fiber, totals) == 1
    rough = rng.uniform(0, 2, held.evidence.specification.size)
    for records in {len(fiber[0]), len(fiber[-1])}:
        cells = held.start(records, rough, rng)
        for column, group, family in zip(cells.T, held.groups, held.families, strict=True):
            counts = np.bincount(column, minlength=group.possible.size)
            assert all(each.lowest <= counts[each.cells].sum() <= each.highest for each in family)


@pytest.mark.parametrize("seed", few(range(4)))
def test_random_sums_are_refused_or_linked(seed):
    """Sums of random cells of two tables that share a variable, exact or within bounds."""
    rng, taken = np.random.default_rng(seed), 0
    model = specification({"a": [0, 1, 2], "b": [0, 1], "c": [0, 1]}, [("a", "b"), ("b", "c")])
    for _ in range(40):
        exact, bounded = [], []
        for clique, cells in ((("a", "b"), 6), (("b", "c"), 4)) * 2:
            query = q.weighted(
                *clique, matrix=[rng.integers(2, size=cells) * (rng.random(cells) < 0.6)]
            )
            if rng.random() < 0.5:
                exact.append(query)
            else:
                bounded.append((query, int(rng.integers(1, 3))))
        truth = np.bincount(rng.integers(12, size=3), minlength=12).astype(float)
        total = 3 if rng.random() < 0.7 else None
        try:
            held = held_by(model, exact, bounded, truth=truth, total=total)
            _ = held._allowed
        except ModelError:
            continue
        taken += 1
        totals = [3] if held.total is not None else range(1, 4)
        fiber = [records for records in data_sets(model, totals) if fulfils(model, held, records)]
        assert linked(model, held, fiber, totals) == 1
    assert taken > 5


def test_without_exchanges_data_sets_fall_apart():
    """The twin: changes of one record alone leave what is linked with the margins as it is."""
    held = held_by(
        CYCLE, [q.table(v) for v in "abcd"], truth=np.eye(16)[0] + np.eye(16)[15], total=2
    )
    fiber = [records for records in data_sets(CYCLE, [2]) if fulfils(CYCLE, held, records)]
    assert linked(CYCLE, held, fiber, [2]) == 1

    class Still:
        def sides(self):
            return []

    assert linked(CYCLE, Still(), fiber, [2]) == len(fiber) == 8


def test_tables_around_a_cycle_are_refused_and_would_not_be_linked():
    """Two data sets with the same three tables of pairs, which differ by the four records of the triple's parity."""
    truth = np.array([1.0, 0, 0, 1, 0, 1, 1, 0])  # the even triples
    other = 1 - truth
    assert np.array_equal(tables_of(TRIANGLE, truth), tables_of(TRIANGLE, other))
    with pytest.raises(ModelError, match=r"form a tree.*NoiseAwareMAP"):
        _ = held_by(
            TRIANGLE, [q.table(*c) for c in TRIANGLE.cliques], truth=truth, total=4
        ).families


@pytest.mark.parametrize(
    ("exact", "bounded"),
    [
        ([q.weighted("a", "b", matrix=[[1, 1, 0, 0], [0, 1, 1, 0]])], []),  # crossing sums of cells
        ([q.weighted("a", "b", matrix=[[0, 1, 2, 3]])], []),  # a score
        ([q.pooled([("a", "b"), ("b", "c")])], []),
        ([], [(q.weighted("a", "b", matrix=[[0, 1, 2, 3]]), 2)]),
        ([], [(q.table("a", "b"), 1), (q.table("b", "c"), 1), (q.table("c", "d"), 1)]),  # slices of b and c cross
    ],
)  # fmt: skip
def test_what_moves_may_not_link_is_refused(exact, bounded):
    truth = np.zeros(16)
    truth[[0, 5, 11]] = 1
    with pytest.raises(ModelError, match="nested or disjoint"):
        _ = held_by(PATH, exact, bounded, truth=truth, total=3)._allowed


def test_impossible_cells_that_could_prevent_exchanges_are_refused():
    states, cliques = {v: [0, 1, 2] for v in "abc"}, [("a", "b"), ("b", "c")]
    across = specification(states, cliques, [(("a", 0), ("b", 1))])
    truth = np.zeros(27)
    truth[[0, 26]] = 1
    with pytest.raises(ModelError, match="impossible"):
        _ = held_by(across, [q.table("b"), q.table("c")], truth=truth).groups
    inside = held_by(across, [q.table("a", "b"), q.table("c")], truth=truth)
    fiber = [records for records in data_sets(across, [2]) if fulfils(across, inside, records)]
    assert linked(across, inside, fiber, [2]) == 1


def test_bounds_without_a_table_are_refused():
    truth = np.zeros(16)
    truth[[0, 3]] = 1
    low = (q.weighted("a", matrix=[[1, 0]]), 1)
    held = held_by(PATH, [q.weighted("b", matrix=[[1, 0]])], [low], truth=truth, total=2)
    assert held.extent == (2, 2)
    given = [
        Measurement(q.table("a"), np.array([2.5, 2.5]), Within(0.5)),
        Measurement(q.table("d"), np.array([1.0, 2.0]), NoNoise()),
    ]
    made = NoisyStatistics.from_measurements(PATH, given, total=3)
    bagged = bag_evidence(gather(made, takes_bounds=True))
    with pytest.raises(ModelError, match="contradict each other"):
        _ = ExactSums(evidence=bagged, forest=forest_of(bagged), total=3).extent


def test_tables_of_nested_bounds_are_found_wherever_there_is_one():
    """Against all tables of small counts, over random families of nested sets."""
    rng = np.random.default_rng(5)
    tables = np.array(list(product(range(4), repeat=4)))
    for _ in range(200):
        family = []
        for cells in ([0], [1], [2], [0, 1], [2, 3], [0, 1, 2, 3]):
            if rng.random() < 0.6:
                low = int(rng.integers(4))
                family.append(Bounded(np.array(cells), low, low + int(rng.integers(3))))
        within = np.ones(len(tables), bool)
        for each in family:
            sums = tables[:, each.cells].sum(axis=1)
            within &= (each.lowest <= sums) & (sums <= each.highest)
        sums = set(tables[within].sum(axis=1).tolist())
        try:
            nested = NestedSums(4, family)
        except ModelError:
            assert not sums
            continue
        low, high = nested.extent
        assert low == min(sums, default=low)
        for total in range(low, min(high, 6) + 1):
            found = nested.table(total, rng.uniform(0, 3, 4))
            assert found.sum() == total
            assert all(e.lowest <= found[e.cells].sum() <= e.highest for e in family)
    with pytest.raises(CrossingError):
        NestedSums(3, [Bounded(np.array([0, 1])), Bounded(np.array([1, 2]))])
