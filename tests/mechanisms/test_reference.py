"""Exact reference solution: the shares of the data to the last digit, marked as unprotected wherever it is shown."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

import bayesprivmrf as bpm
from bayesprivmrf import queries as q
from bayesprivmrf.mechanisms import ExactStatistics, reference

FOUR = list("abcd")
TABLE = (["u", "v", "w"], [("u", "v", "w")])
CHAIN = (["u", "v", "w", "x"], [("u", "v"), ("v", "w"), ("x", "w")])
LOOP = (["u", "v", "w", "x", "y"], [("u", "v"), ("v", "w"), ("w", "x"), ("x", "y"), ("y", "u")])
PIECES = (["u", "v", "w", "x"], [("u",), ("v", "w"), ("x", "v")])
SHAPES = {"one table": TABLE, "a chain": CHAIN, "a loop": LOOP, "pieces": PIECES}


def records(names, size, seed):
    """Dependent records, most of whose cells are empty."""
    rng = np.random.default_rng(seed)
    common = rng.integers(0, 4, size)
    codes = {
        name: np.where(rng.random(size) < 0.2, rng.integers(0, 4, size), common) for name in names
    }
    return pd.DataFrame({name: np.array(FOUR)[own] for name, own in codes.items()})


def shares(data, clique):
    index = pd.MultiIndex.from_product([FOUR] * len(clique))
    found = data.value_counts(list(clique)).reindex(index, fill_value=0)
    return found.to_numpy().reshape([4] * len(clique)) / len(data)


@pytest.mark.parametrize("shape", SHAPES)
def test_marginals_are_the_datas_own_shares_with_empty_cells(shape):
    names, cliques = SHAPES[shape]
    data = records(names, 71, seed=3)
    solution = reference(bpm.declare(dict.fromkeys(names, FOUR), cliques), data)
    assert solution.status == "converged"
    assert (shares(data, cliques[-1]) == 0).any()
    for clique in cliques:
        np.testing.assert_allclose(
            solution.marginal(list(clique)), shares(data, clique), rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("shape", SHAPES)
def test_its_network_and_its_samples_have_no_record_in_an_empty_cell(shape):
    from pgmpy.inference import VariableElimination

    names, cliques = SHAPES[shape]
    data = records(names, 60, seed=4)
    solution = reference(bpm.declare(dict.fromkeys(names, FOUR), cliques), data)
    drawn, network = solution.sample(500, rng=1), VariableElimination(solution.network)
    for clique in cliques:
        own = shares(data, clique)
        assert not shares(drawn, clique)[own == 0].any()
        asked = network.query(list(clique), show_progress=False)
        axes = [asked.variables.index(v) for v in clique]
        np.testing.assert_allclose(asked.values.transpose(axes), own, atol=1e-9)


def test_tables_without_noise_are_given_back_by_naive_maximum_likelihood():
    data = records(["u", "v", "w"], 712, seed=5)
    network = bpm.declare(dict.fromkeys("uvw", FOUR), [("u", "v", "w")])
    solution = bpm.NaiveMLE().fit(ExactStatistics().release(network, data))
    assert solution.stats["ridge"] == 0
    np.testing.assert_allclose(
        solution.marginals.flat, shares(data, "uvw").ravel(), rtol=0, atol=1e-12
    )


def test_queries_without_noise_are_given_back_with_empty_answers():
    data = records(["u", "v", "w"], 40, seed=6)
    network = bpm.declare(dict.fromkeys("uvw", FOUR), [("u", "v", "w")])
    asked = [q.table("u", "v"), q.table("v", "w")]
    solution = bpm.NaiveMLE().fit(ExactStatistics(queries=asked).release(network, data))
    assert solution.status == "converged"
    for pair in ("uv", "vw"):
        np.testing.assert_allclose(solution.marginal(list(pair)), shares(data, pair), atol=1e-9)


def test_a_chain_of_one_matrix_has_the_pooled_shares_of_transitions():
    rng = np.random.default_rng(8)
    data = pd.DataFrame(
        {f"x{t}": rng.choice(["a", "b"], 50, p=[0.7, 0.3]) for t in (1, 2, 3)}
    ).assign(x1="a")
    network = bpm.markov_chain(["a", "b", "c"], 3, share="transitions")
    solution = reference(network, data)
    pairs = [("x1", "x2"), ("x2", "x3")]
    moves = sum(
        pd.crosstab(data[a], data[b])
        .reindex(index=list("ab"), columns=list("ab"), fill_value=0)
        .to_numpy()
        for a, b in pairs
    )
    table = solution.marginal(["x1", "x2"]).values
    np.testing.assert_allclose(table[0, :2], moves[0] / moves[0].sum(), atol=1e-12)
    assert table[1:].sum() == table[:, 2].sum() == 0


def test_it_says_exact_and_unprotected_wherever_it_is_shown():
    from bayesprivmrf.plots import marginal_forest

    network = bpm.declare({"u": FOUR, "v": FOUR}, [("u", "v")])
    solution = reference(network, records("uv", 100, seed=1))
    assert solution.guarantee is None
    shown = [repr(solution), str(solution.marginal("u")), solution.sample(3, rng=1).attrs]
    figure = marginal_forest({"uniform": bpm.uniform_solution(network)}, ["u", "v"], truth=solution)
    shown.append([text.get_text() for text in figure.legends[0].get_texts()])
    for text in shown:
        assert "exact, unprotected" in str(text)


def test_it_reads_the_data_as_a_mechanism_does():
    network = bpm.declare({"u": ["a", "b", "none"]}, [("u",)])
    frame = pd.DataFrame({"u": ["a", None, "b", "b"], "id": [1, 2, 3, 3], "Freq": [2, 1, 0, 1]})
    for settings, wanted in (
        ({"missing": "none", "count": "Freq"}, [2, 1, 1]),
        ({"missing": "none", "person": "id", "at_most": 1}, [1, 1, 1]),
        ({"other": {"u": "none"}, "missing": {"u": "a"}, "count": "Freq"}, [3, 1, 0]),
    ):
        found = reference(network, frame, **settings).marginal("u").values
        np.testing.assert_allclose(found, np.array(wanted) / sum(wanted), atol=1e-15)


def test_pairs_without_an_empty_cell_are_given_back_where_potentials_go_to_infinity():
    """Haberman's example: the two empty cells of the joint table lie in no pair's table."""
    cells = [cell for cell in itertools.product([0, 1], repeat=3) if len(set(cell)) > 1]
    data = pd.DataFrame(cells * 10 + cells[:1] * 7, columns=list("abc"))
    pairs = [("a", "b"), ("b", "c"), ("a", "c")]
    solution = reference(bpm.declare(dict.fromkeys("abc", (0, 1)), pairs), data)
    for a, b in pairs:
        np.testing.assert_allclose(
            solution.marginal([a, b]), pd.crosstab(data[a], data[b]) / len(data), rtol=0, atol=1e-12
        )
    assert solution.probability({"a": 0, "b": 0, "c": 0}) < 1e-9


def test_no_other_estimate_of_a_loop_is_likelier_with_the_same_tables():
    """The fit without a ridge is the maximum entropy one: any direction that keeps the tables lowers the entropy."""
    data = records(["u", "v", "w"], 300, seed=2)
    network = bpm.declare(dict.fromkeys("uvw", FOUR), [("u", "v"), ("v", "w"), ("w", "u")])
    solution = reference(network, data)
    joint = solution.marginal(["u", "v", "w"]).values
    logs = np.log(np.where(joint > 0, joint, 1.0))
    for a, b, c in itertools.product(itertools.combinations(range(4), 2), repeat=3):
        cells = np.ix_(a, b, c)
        if (joint[cells] > 1e-300).all():  # no interaction of all three variables
            signs = np.multiply.outer(np.multiply.outer([1, -1], [1, -1]), [1, -1])
            assert abs((signs * logs[cells]).sum()) < 1e-8
