"""Queries against counting by hand, and their sensitivities against all neighbours."""

from __future__ import annotations

import functools
import itertools
from fractions import Fraction

import numpy as np
import pytest
from fuzz.calls import NASTY
from scipy import sparse

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.errors import ArgumentError, BayesPrivMRFError, ModelError, ModelTooLargeError
from bayesprivmrf.model import Monomials
from bayesprivmrf.privacy import Adjacency, largest_sum, squared_l2_sensitivity

CYCLE = bpm.declare(
    {"a": ["z", "y"], 0: [7, 5, 6], "c": [True, False], "d": [2, 1, 3]},
    [("a", 0), (0, "c"), ("c", "d"), ("d", "a")],
)
THREE_WAY = bpm.declare(
    {"a": ["z", "y"], 0: [7, 5, 6], "one": ["only"], "d": ["v", "u"], "alone": [1, 0]},
    [("a", 0, "d"), (0, "one"), ("alone",)],
)
CHAIN = bpm.declare(
    {"m1": ["h", "w", "o"], "m2": ["h", "w", "o"], "m3": ["h", "w", "o"], 0: ["x", "y"]},
    [("m1", "m2"), ("m2", "m3"), (0,)],
)
ODD = {0: {"odd": [5, 7], "even": [6]}}
TRIANGLE = bpm.declare({v: [0, 1] for v in "abc"}, [("a", "b"), ("b", "c"), ("c", "a")])
UNEQUAL = [[0, 1, 1, 0]]
STACKS = {
    "odd cycle": (TRIANGLE, [q.weighted(*pair, matrix=UNEQUAL) for pair in ("ab", "bc", "ca")]),
    "cycle, one": (CYCLE, [q.table(0, "a")]),
    "cycle, all": (
        CYCLE,
        [q.table("a", 0), q.table("c", 0), q.table("d", "c"), q.table("a", "d"), q.table("d")],
    ),
    "cycle, coarse": (
        CYCLE,
        [q.coarsened(0, groups=ODD), q.coarsened("d", "a", d={"all": [3, 2, 1]}), q.table("a")],
    ),
    "cycle, parities": (CYCLE, [q.parities(2)]),
    "cycle, mixed": (
        CYCLE,
        [
            q.parities(1, with_empty=False),
            q.weighted("d", "c", matrix=[[3, -1, 0, 0, 2, -2], [0] * 6]),
        ],
    ),
    "three-way": (
        THREE_WAY,
        [q.table("d", 0), q.table("one"), q.table("alone"), q.coarsened("d", 0, "a", groups=ODD)],
    ),
    "three-way, one state": (THREE_WAY, [q.table("one")]),
    "three-way, parities": (THREE_WAY, [q.parities(3), q.table("a")]),
    "three-way, weighted": (
        THREE_WAY,
        [
            q.weighted(0, "d", matrix=np.random.default_rng(1).integers(-4, 5, (4, 6))),
            q.weighted("alone", matrix=[[-4, 5]]),
        ],
    ),
    "chain, pooled": (CHAIN, [q.pooled([("m1", "m2"), ("m2", "m3")])]),
    "chain, pooled backwards": (CHAIN, [q.pooled([("m1", "m2"), ("m3", "m2")]), q.table("m1")]),
    "chain, all": (
        CHAIN,
        [
            q.pooled([("m1",), ("m2",), ("m3",)]),
            q.table("m2", "m3"),
            q.weighted("m1", "m2", matrix=[[1, 0, 0, 0, -7, 0, 0, 0, 2]]),
            q.table(0),
        ],
    ),
}


def records_of(network) -> tuple[bpm.ModelSpecification, list[tuple]]:
    model = bpm.ModelSpecification.from_pgmpy(network)
    return model, list(itertools.product(*model.domain.states))


def counts_of(model, records) -> np.ndarray:
    """Tables of the model's cliques, counted one record after the other."""
    parts = []
    for clique in model.cliques:
        cells = list(itertools.product(*(model.domain.states_of(v) for v in clique)))
        at = [model.domain.index(v) for v in clique]
        parts += [sum(tuple(record[i] for i in at) == cell for record in records) for cell in cells]
    return np.array(parts)


def brute(stack, network, adjacency, norm, scales):
    """Largest power of the distance of the answers of neighbours, over all of them, exact."""
    model, records = records_of(network)
    bound = [query.bind(model) for query in stack]
    inverse = [Fraction(1) / Fraction(scale) ** norm for scale in scales]
    rows = [len(one) for one in bound]
    answers = [
        np.concatenate([one.answers(counts_of(model, [record])) for one in bound])
        for record in records
    ]
    nothing = np.concatenate([one.answers(counts_of(model, [])) for one in bound])
    assert not nothing.any()
    others = [nothing] if adjacency is Adjacency.ADD_OR_REMOVE_ONE else answers
    powers = np.abs(np.array(answers)[:, None] - np.array(others)) ** norm
    by_query = [part.sum(axis=-1) for part in np.split(powers, np.cumsum(rows)[:-1], axis=-1)]
    distinct = {tuple(map(int, one)) for one in np.stack(by_query, axis=-1).reshape(-1, len(stack))}
    return max(sum(w * one for w, one in zip(inverse, each, strict=True)) for each in distinct)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", STACKS)
def test_the_sensitivity_is_attained_and_never_exceeded(name, norm, adjacency):
    network, stack = STACKS[name]
    subsets = [[query] for query in stack] + ([stack] if len(stack) > 1 else [])
    for part in subsets:
        found = q.sensitivity(part, network, norm=norm, adjacency=adjacency)
        exact = brute(part, network, adjacency, norm, [1] * len(part))
        assert found.power == exact
        assert found.is_exact
        assert Fraction(found.value) ** norm >= exact
        assert found.value**norm == pytest.approx(float(exact), rel=1e-12)
        assert moved_by(found, part, network, norm) == exact


def moved_by(found, stack, network, norm):
    """Power of the distance between the neighbours that were named."""
    model = bpm.ModelSpecification.from_pgmpy(network)
    one, *other = [counts_of(model, [tuple(record.values())]) for record in found.neighbours]
    difference = one - other[0] if other else one
    return sum(
        int((np.abs(query.bind(model).answers(difference)) ** norm).sum()) for query in stack
    )


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", STACKS)
def test_unequal_scales_weigh_the_stacked_norm(name, norm, adjacency):
    network, stack = STACKS[name]
    scales = np.random.default_rng(len(name)).uniform(0.1, 9, len(stack)).tolist()
    found = q.sensitivity(stack, network, norm=norm, adjacency=adjacency, scales=scales)
    exact = brute(stack, network, adjacency, norm, scales)
    assert Fraction(found.power) >= exact
    assert found.power == pytest.approx(float(exact), rel=1e-13)
    assert found.is_exact


def test_the_maxima_query_by_query_are_only_a_bound():
    first, second = q.weighted("a", matrix=[[5, 0]]), q.weighted("a", matrix=[[0, 3]])
    together = q.sensitivity([first, second], CYCLE, norm=1)
    assert (together.value, q.sensitivity(first, CYCLE, norm=1).value) == (5, 5)


LIMITS = [(1, 1), (20, 20), (2**20, 1)]


@functools.cache
def largest_move(name, adjacency, norm):
    network, stack = STACKS[name]
    return brute(stack, network, adjacency, norm, [1] * len(stack))


@pytest.mark.parametrize(
    ("name", "limits", "norm", "adjacency"),
    [
        pytest.param(name, limits, norm, adjacency, id=f"{name}-{limits}-{norm}-{adjacency.value}")
        for (i, name), (j, limits) in itertools.product(enumerate(STACKS), enumerate(LIMITS))
        for k, adjacency in enumerate(Adjacency)
        for norm in [1 + (i + j + k) % 2]
    ],
)
def test_where_tables_are_too_large_the_bound_is_never_below_and_labelled(
    name, limits, norm, adjacency, monkeypatch
):
    """Each stack under all limits, norms and relations, two of the three in all pairs."""
    network, stack = STACKS[name]
    monkeypatch.setitem(q.sensitivity.__globals__, "LARGEST_PAIRS", limits[0])
    monkeypatch.setattr(largest_sum, "_LARGEST_TABLE", limits[1])
    found = q.sensitivity(stack, network, norm=norm, adjacency=adjacency)
    exact = largest_move(name, adjacency, norm)
    assert found.power >= exact >= moved_by(found, stack, network, norm)
    assert found.is_exact == (found.power == moved_by(found, stack, network, norm))
    assert not found.is_exact or found.power == exact


def test_a_bound_that_nobody_attains_is_no_exact_value(monkeypatch):
    network, stack = STACKS["odd cycle"]
    assert q.sensitivity(stack, network, norm=1).power == 2
    monkeypatch.setattr(largest_sum, "_LARGEST_TABLE", 1)
    found = q.sensitivity(stack, network, norm=1)
    assert (found.power, found.is_exact) == (3, False)


def test_a_pooled_table_too_large_to_enumerate_is_certified_by_a_record():
    length, states = 30, list("uvwxyz")
    names = [f"m{t}" for t in range(length)]
    pairs = list(itertools.pairwise(names))
    network = bpm.declare(dict.fromkeys(names, states), pairs)
    stack = [q.pooled(pairs), q.table("m0")]
    m = length - 1
    for adjacency, norm, power in [
        ("add-or-remove-one", 1, m + 1),
        ("add-or-remove-one", 2, m**2 + 1),
        ("replace-one", 1, 2 * m + 2),
        ("replace-one", 2, 2 * m**2 + 2),
    ]:
        found = q.sensitivity(stack, network, norm=norm, adjacency=adjacency)
        assert (found.power, found.is_exact) == (power, True)
        assert moved_by(found, stack, network, norm) == power


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_large_tables_take_no_square_of_their_cells(adjacency):
    states = {v: list(range(k)) for v, k in {"a": 90, "b": 70, "c": 60}.items()}
    network = bpm.declare(states, [("a", "b"), ("b", "c"), ("c", "a")])
    stack = [q.table("a", "b"), q.table("b", "c"), q.table("c", "a"), q.table("a")]
    found = q.sensitivity(stack, network, norm=2, adjacency=adjacency)
    assert (found.power, found.is_exact) == (
        4 if adjacency is Adjacency.ADD_OR_REMOVE_ONE else 8,
        True,
    )


@pytest.mark.parametrize("with_empty", [True, False])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_parities_of_two_states_are_those_of_the_parity_mechanism(adjacency, with_empty):
    names = list("abcde")
    for cliques in ([("a", "b", "c"), ("c", "d"), ("e",), ("d", "a")], None):
        network = bpm.declare({name: [0, 1] for name in names}, cliques)
        model = bpm.ModelSpecification.from_pgmpy(network)
        sets = Monomials.of(model, 3)
        found = q.parities(3, with_empty=with_empty).bind(network)
        expected = [" * ".join(names[v] for v in one) or "records" for one in sets]
        assert found.labels == tuple(expected[not with_empty :])
        squared = squared_l2_sensitivity(sets, adjacency, with_empty=with_empty)
        assert q.sensitivity(found.query, network, norm=2, adjacency=adjacency).power == squared


def test_parities_inside_many_cliques_are_exact_under_replacement():
    network = bpm.declare(
        {i: [0, 1] for i in range(16)}, [(i, (i + 1) % 16, (i + 5) % 16) for i in range(16)]
    )
    squared = squared_l2_sensitivity(
        Monomials.of(bpm.ModelSpecification.from_pgmpy(network), 3), Adjacency.REPLACE_ONE
    )
    found = q.sensitivity(q.parities(3), network, norm=2, adjacency="replace-one")
    assert (found.power, found.is_exact) == (squared, True)
    assert moved_by(found, [q.parities(3)], network, 2) == squared


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_sum_of_many_parts_is_rounded_up(adjacency):
    network = bpm.declare(
        {i: [0, 1] for i in range(40)}, [(i, (i + 1) % 40, (i + 2) % 40) for i in range(40)]
    )
    stack, scales = (
        [q.parities(3), *(q.table(i) for i in range(40))],
        [0.3, *np.linspace(0.1, 7, 40).tolist()],
    )
    found = q.sensitivity(stack, network, norm=2, adjacency=adjacency, scales=scales)
    weights = [1 / Fraction(scale) ** 2 for scale in scales]
    moved = [Fraction(moved_by(found, [query], network, 2)) for query in stack]
    exact = sum(w * one for w, one in zip(weights, moved, strict=True))
    assert found.is_exact
    assert exact <= Fraction(found.power) <= exact * (1 + Fraction(1, 10**12))


def test_parities_fix_the_margins():
    model = bpm.ModelSpecification.from_pgmpy(THREE_WAY)
    found = q.parities(3).bind(model)
    assert (
        np.linalg.matrix_rank(found.matrix.toarray()) == len(found) == 13
    )  # 12 cells of the triple, and the lone one


def test_answers_are_counts_of_the_records_and_keep_leading_axes():
    model, cells = records_of(CYCLE)
    rng = np.random.default_rng(3)
    records = [cells[i] for i in rng.integers(0, len(cells), 40)]
    flat = counts_of(model, records)
    merged = q.coarsened(0, "a", groups=ODD).bind(CYCLE)
    assert merged.labels == ("0=odd, a=z", "0=odd, a=y", "0=even, a=z", "0=even, a=y")
    by_hand = [
        sum((r[1] == 6) == e and r[0] == a for r in records) for e in (False, True) for a in "zy"
    ]
    answers = merged.answers(model.tables(flat))
    assert answers.tolist() == by_hand
    assert answers.dtype.kind == "i"
    assert merged.answers(np.stack([[flat], [2 * flat]])).tolist() == [
        [by_hand],
        [[2 * n for n in by_hand]],
    ]
    spins = q.parities(2).bind(CYCLE)
    sums = dict(zip(spins.labels, spins.answers(flat).tolist(), strict=True))
    assert sums["records"] == 40
    assert sums["a * 0=6"] == sum(
        (2 * (r[0] == "y") - 1) * ((r[1] == 6) - (r[1] == 7)) for r in records
    )
    chain, steps = records_of(CHAIN)
    walked = [steps[i] for i in rng.integers(0, len(steps), 40)]
    moves = q.pooled([("m1", "m2"), ("m2", "m3")]).bind(chain)
    assert moves.labels[1] == "h, w"
    assert moves.answers(counts_of(chain, walked))[1] == sum(
        ("h", "w") in (r[:2], r[1:3]) for r in walked
    ) + sum(r[:2] == r[1:3] == ("h", "w") for r in walked)


@pytest.mark.parametrize("name", STACKS)
def test_the_matrix_on_the_cliques_gives_what_each_scope_shows(name):
    network, stack = STACKS[name]
    model, records = records_of(network)
    for bound in (query.bind(model) for query in stack):
        assert bound.in_cliques.shape == (len(bound), model.size)
        for record in records[:: max(1, len(records) // 7)]:
            shown = 0
            for scope, block in zip(bound.scopes, bound.blocks, strict=True):
                cells = list(itertools.product(*(model.domain.states_of(v) for v in scope)))
                shown = (
                    shown
                    + block[:, [cells.index(tuple(record[model.domain.index(v)] for v in scope))]]
                )
            assert (
                bound.answers(counts_of(model, [record])).tolist()
                == shown.toarray().ravel().tolist()
            )


def test_queries_are_values():
    assert q.table("a", 0) == q.coarsened("a", 0) != q.table(0, "a")
    one, other = (
        q.weighted("a", matrix=[[1, 2]]),
        q.weighted("a", matrix=sparse.csr_array([[1.0, 2.0]])),
    )
    assert one == other != q.weighted("a", matrix=[[2, 1]])
    assert len({one, other, q.parities(2), q.parities(2), q.pooled([("a",)]), q.table("a")}) == 4
    assert (
        repr(q.coarsened("a", a={"all": ["z", "y"]}))
        == "coarsened('a', groups={'a': {'all': ['z', 'y']}})"
    )


def test_records_declared_impossible_are_counted_among_the_neighbours():
    model = bpm.ModelSpecification(
        domain=bpm.Domain.from_states({"a": [0, 1]}), cliques=(("a",),), impossible=((("a", 1),),)
    )
    found = q.sensitivity(q.weighted("a", matrix=[[1, 9]]), model, norm=1)
    assert (found.power, found.neighbours) == (9, ({"a": 1},))


NARROW = bpm.declare({"a": [0, 1], "b": [0, 1, 2], "c": [0, 1]}, [("a", "b"), ("c",)])
BAD_SHAPES = [
    (lambda: q.table(), "at least one variable"),
    (lambda: q.table(["a", "b"]), "names of variables"),
    (lambda: q.table("a", "a"), "each variable once"),
    (lambda: q.coarsened("a", b={"x": [0]}), "in its scope"),
    (lambda: q.coarsened("a", a=[0, 1]), "must map each group"),
    (lambda: q.coarsened("a", a={}), "must map each group"),
    (lambda: q.coarsened("a", a={"x": []}), "at least one state"),
    (lambda: q.coarsened("a", groups=[1]), "must map variables"),
    (lambda: q.coarsened("a", groups={"a": {0: [0, 1]}}, a={0: [0, 1]}), "once"),
    (lambda: q.weighted("a", matrix=[[0.5, 1]]), "whole numbers, got 0.5"),
    (lambda: q.weighted("a", matrix=[[np.nan, 1]]), "whole numbers"),
    (lambda: q.weighted("a", matrix=[[np.inf, 1]]), "at most 2"),
    (lambda: q.weighted("a", matrix=[[1e9, 1]]), "at most 2"),
    (lambda: q.weighted("a", matrix=[1, 2]), "two-dimensional array"),
    (lambda: q.weighted("a", matrix=np.zeros((0, 2))), "at least one row"),
    (lambda: q.weighted("a", matrix="no"), "numbers"),
    (lambda: q.weighted("a", matrix=sparse.csr_array([[1j, 1]])), "numbers"),
    (lambda: q.weighted("a", matrix=[[1, 2]], labels=["x", "y"]), "each of 1 rows"),
    (lambda: q.parities(0), "at least 1"),
    (lambda: q.parities(2, with_empty=1), "True or False"),
    (lambda: q.pooled([]), "at least one scope"),
    (lambda: q.pooled([()]), "at least one variable"),
    (lambda: q.pooled(["a", "b"]), "must be a sequence"),
    (lambda: q.pooled([("a",), ("a",)]), "each scope once"),
    (lambda: q.sensitivity([], NARROW, norm=1), "at least one query"),
    (lambda: q.sensitivity(["a"], NARROW, norm=1), "must hold queries"),
    (lambda: q.sensitivity(3, NARROW, norm=1), "must be a sequence"),
    (lambda: q.sensitivity(q.table("a"), NARROW, norm=3), "from 1 to 2"),
    (lambda: q.sensitivity(q.table("a"), NARROW, norm=1, adjacency="none"), "adjacency"),
    (lambda: q.sensitivity(q.table("a"), NARROW, norm=1, scales=[1, 2]), "each of 1 queries"),
    (lambda: q.sensitivity(q.table("a"), NARROW, norm=1, scales=[-1]), "positive"),
    (lambda: q.sensitivity(q.table("a"), NARROW, norm=2, scales=[1e-200]), "lie between"),
    (lambda: q.sensitivity(q.table("a"), NARROW, norm=1, scales=3), "must be a sequence"),
    (lambda: q.coarsened("b", b={"x": [0, 1]}).bind(NARROW), "got 2 no times"),
    (lambda: q.coarsened("b", b={"x": [0, 1], "y": [1, 2]}).bind(NARROW), "got 1 2 times"),
    (lambda: q.table("a").bind(NARROW).answers(np.zeros(3)), "8 cells"),
]
BAD_MODELS = [
    (lambda: q.coarsened("a", a={"x": "01"}), "must be a sequence"),
    (lambda: q.table("nobody").bind(NARROW), "not declared"),
    (lambda: q.table(("a", "b")).bind(NARROW), "not declared"),
    (lambda: q.table("a", "c").bind(NARROW), "together in no clique"),
    (lambda: q.coarsened("b", b={"x": [0, 1, 9]}).bind(NARROW), "no state 9"),
    (lambda: q.coarsened("b", b={"x": [0, 1], 1: [2], "1": []}).bind(NARROW), "at least one state"),
    (lambda: q.coarsened("b", b={"1": [0, 1], 1: [2]}).bind(NARROW), "both print"),
    (lambda: q.weighted("b", matrix=[[1, 2]]).bind(NARROW), "each of the 3 cells"),
    (lambda: q.pooled([("a",), ("b",)]).bind(NARROW), "same states in the same order"),
    (lambda: q.sensitivity(q.table("nobody"), NARROW, norm=1), "not declared"),
]


@pytest.mark.parametrize(("call", "text"), BAD_SHAPES, ids=[text for _, text in BAD_SHAPES])
def test_a_wrong_argument_is_one_clear_error(call, text):
    with pytest.raises(ArgumentError, match=text):
        call()


@pytest.mark.parametrize(("call", "text"), BAD_MODELS, ids=[text for _, text in BAD_MODELS])
def test_what_the_model_does_not_declare_is_one_clear_error(call, text):
    with pytest.raises((ModelError, ArgumentError), match=text):
        call()


CALLS = {
    "table": (lambda *scope: q.table(*scope).bind(NARROW), ["a", "b"]),
    "coarsened": (
        lambda *given: q.coarsened(given[0], groups=given[1]).bind(NARROW),
        ["a", {"a": {"x": [0, 1]}}],
    ),
    "a group": (lambda states: q.coarsened("a", a={"x": states}).bind(NARROW), [[0, 1]]),
    "groups": (lambda groups: q.coarsened("a", a=groups).bind(NARROW), [{"x": [0, 1]}]),
    "a state": (lambda state: q.coarsened("a", a={"x": [0, state]}).bind(NARROW), [1]),
    "weighted": (
        lambda v, m, names: q.weighted(v, matrix=m, labels=names).bind(NARROW),
        ["a", [[1, 2]], ["x"]],
    ),
    "parities": (lambda order, empty: q.parities(order, with_empty=empty).bind(NARROW), [2, True]),
    "pooled": (lambda scopes: q.pooled(scopes).bind(NARROW), [[("a",), ("c",)]]),
    "a pooled scope": (lambda scope: q.pooled([scope]).bind(NARROW), [("a",)]),
    "bind": (lambda network: q.table("a").bind(network), [NARROW]),
    "answers": (lambda tables: q.table("a").bind(NARROW).answers(tables), [np.zeros(8)]),
    "sensitivity": (
        lambda stack, network, norm, adjacency, scales: q.sensitivity(
            stack, network, norm=norm, adjacency=adjacency, scales=scales
        ),
        [[q.table("a")], NARROW, 1, "replace-one", [1.0]],
    ),
    "a scale": (lambda scale: q.sensitivity(q.table("a"), NARROW, norm=1, scales=[scale]), [1.0]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_no_bad_call_fails_raw(name):
    call, arguments = CALLS[name]
    call(*arguments)
    refused = 0
    for place, nasty in itertools.product(range(len(arguments)), NASTY.values()):
        try:
            call(*arguments[:place], nasty, *arguments[place + 1 :])
        except BayesPrivMRFError:
            refused += 1
    assert refused > len(NASTY) / 2


def test_without_declared_cliques_any_scope_may_be_measured():
    network = bpm.declare({"a": list(range(200)), "b": list(range(200)), "c": list(range(30_000))})
    assert len(q.table("b", "a").bind(network)) == 40_000
    with pytest.raises(ModelTooLargeError):
        q.table("a", "b", "c").bind(network)
    with pytest.raises(ModelTooLargeError):
        q.parities(3).bind(network)


def test_a_bound_that_a_heavy_query_hides_is_not_called_exact():
    """Records that share the heavy query's states cannot attain the bound of the pooled tables, by 1 in 10^12."""
    names = [f"m{k}" for k in range(12)]
    pairs = list(itertools.pairwise(names))
    network = bpm.declare(states={name: list(range(4)) for name in names}, cliques=pairs)
    ends = [q.weighted("m0", matrix=[[0, 0, 0, 1]]), q.weighted("m1", matrix=[[1, 0, 0, 0]])]
    found = q.sensitivity([q.pooled(pairs), *ends], network, norm=2, scales=[1e-5, 1, 1])
    assert found.power >= 1_210_000_000_001
    assert not found.is_exact
