"""The list of planted faults fits the package and the tests; `run.py` checks that the tests catch them."""

import ast
from functools import cache

import pytest
from mutants.run import PACKAGE, ROOT, Mutant, all_mutants, sources

MUTANTS = all_mutants()
SOURCES = sources(PACKAGE)


def is_slow_mark(decorator):
    return ast.unparse(decorator) == "pytest.mark.slow"


@cache
def slow_by_test(file):
    """Return the test functions of a file, and for each whether it is marked slow."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assigned = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    is_slow = any(line.startswith("pytestmark =") and "mark.slow" in line for line in assigned)
    return {
        node.name: is_slow or any(map(is_slow_mark, node.decorator_list))
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
    }


@cache
def parsed(path):
    """Return a file of the package as text of its syntax tree."""
    return ast.dump(ast.parse(SOURCES[path]))


def test_there_are_faults_of_every_kind_with_names_of_their_own():
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names)) >= 30


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_fault_can_be_planted_and_its_tests_run_by_default(mutant):
    path, planted = mutant.planted_in(SOURCES)
    assert ast.dump(ast.parse(planted)) != parsed(path)
    assert mutant.harm.endswith(".")
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert slow_by_test(file)[name] is False, test


def test_a_fault_is_planted_where_its_text_stands_however_it_is_formatted(tmp_path):
    fault = Mutant("one", "f(a, b)\n", "f(b, a)\n", [], "")
    other, holder = tmp_path / "other.py", tmp_path / "deep" / "holder.py"
    texts = {other: "x = f(a, bb)\ny = nf(a, b)\n", holder: "z = f(\n    a,\n    b,\n) + 1\n"}
    assert fault.planted_in(texts) == (holder, "z = f(b, a) + 1\n")
    with pytest.raises(ValueError, match="one: the old text must stand once"):
        fault.planted_in({other: texts[other]})
    with pytest.raises(ValueError, match="one: the old text must stand once"):
        fault.planted_in({other: "f(a, b)\n", holder: "f(a, b)\n"})
