import warnings

import numpy as np
import pytest

from bayesprivmrf.errors import DeclarationWarning, ModelError, ModelTooLargeError
from bayesprivmrf.model import CliqueTables, Domain, ModelSpecification, declare
from bayesprivmrf.records import read_declaration


def specification(states, cliques, **rest):
    return ModelSpecification(domain=Domain.from_states(states), cliques=tuple(cliques), **rest)


def pgmpy_classes():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pgmpy.factors.discrete import DiscreteFactor
        from pgmpy.models import DiscreteMarkovNetwork
    return DiscreteFactor, DiscreteMarkovNetwork


BINARY = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}


def test_declared_order_of_unsorted_labels_survives_pgmpy_and_back():
    states = {"size": ["low", "high", "middle"], 0: [30, 10, 20], "only": ["one"]}
    model = ModelSpecification.from_pgmpy(declare(states, [("size", 0), (0, "only")]))
    assert model.domain == Domain.from_states(states)
    assert model.cliques == (("size", 0), (0, "only"))
    assert model.shapes == ((3, 3), (3, 1))


def test_integer_names_zero_included_pass_pgmpys_own_check():
    network = declare({0: ["x", "y"], 1: [5, 3], 7: [0, 1]}, [(0, 1), (7,)])
    assert network.check_model()
    assert ModelSpecification.from_pgmpy(network).domain.variables == (0, 1, 7)


def test_nested_and_repeated_scopes_are_measured_once():
    model = specification(BINARY, [("a", "b"), ("a",), ("b", "a"), ("c", "b", "a"), ("c",)])
    assert model.cliques == (("c", "b", "a"),)
    assert specification(BINARY, [("a", "b"), ("b", "a"), ("c",)]).cliques == (("a", "b"), ("c",))


def test_a_clique_that_is_not_measured_by_itself_is_said_once_with_the_one_that_holds_it(tmp_path):
    states = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}
    cliques = [("a",), ("a", "b"), ("b", "c"), ("c", "b")]
    with pytest.warns(
        DeclarationWarning, match=r"2 tables are measured of 4.*\('a',\) lies inside \('a', 'b'\)"
    ) as caught:
        network = declare(states, cliques)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    file = tmp_path / "model.toml"
    file.write_text(
        'cliques = [["a"], ["a", "b"]]\n'
        + "".join(f"[variables.{v}]\nstates = [0, 1]\n" for v in "ab")
    )
    with pytest.warns(DeclarationWarning, match=r"\('a',\) lies inside \('a', 'b'\)"):
        read_declaration(file)
    factor, _ = pgmpy_classes()
    network.add_factors(factor(["c"], [2], np.ones(2), {"c": [0, 1]}))
    with pytest.warns(DeclarationWarning, match=r"\('c',\) lies inside \('b', 'c'\)"):
        model = ModelSpecification.from_pgmpy(network)
    with warnings.catch_warnings():  # nothing is dropped of a specification, nor of what was kept
        warnings.simplefilter("error")
        assert ModelSpecification.from_pgmpy(model.to_pgmpy()) == model
        declare(states)
        declare(states, [("a", "b"), ("b", "c")])


def test_edges_only_network_needs_states_and_measures_pairs_and_isolated_nodes():
    _, network_class = pgmpy_classes()
    network = network_class([("a", "b")])
    network.add_node("c")
    with pytest.raises(ModelError, match=r"states of 'a' must be declared"):
        ModelSpecification.from_pgmpy(network)
    model = ModelSpecification.from_pgmpy(network, states=BINARY)
    assert model.cliques == (("a", "b"), ("c",))
    assert model.cliques_declared


def test_conflicting_states_between_factors_or_with_the_argument_are_refused():
    factor, network_class = pgmpy_classes()
    network = network_class([("a", "b"), ("b", "c")])
    ab = factor(["a", "b"], [2, 2], np.ones(4), state_names={"a": [0, 1], "b": [0, 1]})
    bc = factor(["b", "c"], [2, 2], np.ones(4), state_names={"b": [1, 0], "c": [0, 1]})
    network.add_factors(ab)
    with pytest.raises(ModelError, match=r"edge \('b', 'c'\) must be in a factor"):
        ModelSpecification.from_pgmpy(network, states=BINARY)
    network.add_factors(bc)
    with pytest.raises(ModelError, match=r"factors must agree on the states of 'b'"):
        ModelSpecification.from_pgmpy(network)
    with pytest.raises(ModelError, match=r"`states` and the factors must agree on 'b'"):
        ModelSpecification.from_pgmpy(declare(BINARY, [("a", "b", "c")]), states={"b": [1, 0]})


def test_factor_values_are_ignored_and_a_fitted_zero_is_no_structural_one():
    factor, network_class = pgmpy_classes()
    network = network_class([("a", "b")])
    names = {"a": ["no", "yes"], "b": ["x", "y"]}
    network.add_factors(factor(["a", "b"], [2, 2], [0.5, 0.0, 7.0, 2.0], state_names=names))
    with pytest.warns(DeclarationWarning, match="not read as structural zeros"):
        assert ModelSpecification.from_pgmpy(network).possible is None
    declared = declare(names, [("a", "b")], impossible=[{"a": "no", "b": "y"}])
    assert declared.get_factors()[0].values.tolist() == [[1, 0], [1, 1]]
    assert ModelSpecification.from_pgmpy(declared).possible.tolist() == [True, False, True, True]
    with pytest.warns(DeclarationWarning, match=r"copy\(\) loses them"):
        ModelSpecification.from_pgmpy(declared.copy())


def test_labels_that_an_array_would_round_or_cut_stay_what_they_are():
    model = specification({"a": [2**63, -1, 2**53 + 1], "b": ["x\0", "x "]}, [("a", "b")])
    table = model.tables(np.zeros(6)).to_xarray(("a", "b"))
    assert table.coords["a"].values.tolist() == [2**63, -1, 2**53 + 1]
    assert table.coords["b"].values.tolist() == ["x\0", "x "]


def test_structural_zeros_of_a_nested_scope_reach_the_clique_that_holds_it():
    model = specification(BINARY, [("c", "a", "b")], impossible=((("a", 1), ("b", 0)),))
    cells = model.possible.reshape(2, 2, 2)
    assert not cells[:, 1, 0].any()
    assert cells.sum() == 6
    assert ModelSpecification.from_pgmpy(model.to_pgmpy()) == model


@pytest.mark.parametrize(
    ("states", "cliques", "message"),
    [
        ({"a": []}, [("a",)], "at least one state"),
        ({"a": [1, 1.0]}, [("a",)], "must not repeat a state"),
        ({"a": [1, "1"]}, [("a",)], "both print as '1'"),
        ({0: ["x"], "0": ["x"]}, [(0,), ("0",)], "both print as '0'"),
        ({"a": [None, 1]}, [("a",)], "missing value"),
        ({"a": [float("nan"), 1]}, [("a",)], "missing value"),
        ({"a": [[1], 2]}, [("a",)], "hashable"),
        ({"a": "yes"}, [("a",)], "must be a sequence"),
        ({"a": {"x", "y"}}, [("a",)], "must be ordered, got a set"),
        ({"a": [True, 1]}, [("a",)], "True and 1"),
        ({"a": [0, 1]}, ["a"], r"write \('a',\)"),
        ({"a": [0, 1]}, "a", "must be a sequence"),
        ({"a": [0, 1]}, [()], "at least one variable"),
        ({"a": [0, 1]}, [("a", "a")], "each variable once"),
        ({"a": [0, 1]}, [("a", "z")], "'z' is not declared"),
        ({"a": [0, 1], "b": [0, 1]}, [("a",)], r"add the clique \('b',\)"),
    ],
)
def test_inconsistent_declarations_are_refused_by_name(states, cliques, message):
    with pytest.raises(ModelError, match=message):
        declare(states, cliques)


def test_impossible_assignments_must_lie_in_a_clique_and_leave_a_cell():
    with pytest.raises(ModelError, match="and lie in a clique"):
        declare(BINARY, [("a", "b"), ("c",)], impossible=[{"a": 0, "c": 1}])
    with pytest.raises(ModelError, match="every cell of"):
        declare(BINARY, [("a", "b"), ("c",)], impossible=[{"c": 0}, {"c": 1}])
    with pytest.raises(ModelError, match="has no state 9"):
        declare(BINARY, [("a", "b"), ("c",)], impossible=[{"a": 9}])


def test_a_table_too_large_is_refused_before_it_is_made():
    states = {name: list(range(100)) for name in "abcdefg"}
    with pytest.raises(ModelTooLargeError, match="declare smaller cliques"):
        declare(states, [tuple(states)])


def test_variables_alone_record_that_no_clique_was_declared():
    assert not ModelSpecification.from_pgmpy(declare(BINARY)).cliques_declared
    assert ModelSpecification.from_pgmpy(declare(BINARY, [("a",), ("b",), ("c",)])).cliques_declared


def test_the_empty_model_exists():
    model = ModelSpecification.from_pgmpy(declare({}, []))
    assert model.size == 0
    assert model.tables([]).flat.size == 0


def test_something_else_than_a_network_is_refused():
    with pytest.raises(ModelError, match="must be a pgmpy DiscreteMarkovNetwork"):
        ModelSpecification.from_pgmpy({"a": [0, 1]})


def test_tables_are_read_only_copies_and_answer_in_any_axis_order():
    model = specification({"a": [0, 1], "b": ["x", "y", "z"]}, [("a", "b")])
    values = np.arange(6)
    tables = model.tables(values)
    values[0] = 99
    assert tables["a", "b"][0, 0] == 0
    assert np.array_equal(tables["b", "a"], tables["a", "b"].T)
    with pytest.raises(ValueError, match="read-only"):
        tables["a", "b"][0, 0] = 1
    with pytest.raises(KeyError):
        tables["a",]
    assert tables.to_xarray(("b", "a")).sel(a=1, b="z").item() == 5
    with pytest.raises(ModelError, match="must hold 6 cells"):
        CliqueTables(domain=model.domain, cliques=model.cliques, flat=np.zeros(5))


def test_labels_keep_the_difference_of_true_and_one_but_not_of_one_and_one_point_zero():
    domain = Domain.from_states({"a": [1, 0], "b": [True, False]})
    assert domain.code("a", 1.0) == 0
    with pytest.raises(ModelError, match="no state True"):
        domain.code("a", True)
    with pytest.raises(ModelError, match="no state 1"):
        domain.code("b", 1)
    assert domain.code("b", np.True_) == 0
    assert domain.code("a", np.int64(1)) == 0
