"""The list of planted faults fits the package and the tests; `run.py` checks that the tests catch them."""

import ast
from functools import cache

import pytest
from mutants.run import PACKAGE, ROOT, all_mutants

MUTANTS = all_mutants()


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


def test_there_are_faults_of_every_kind_with_names_of_their_own():
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names)) >= 30


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_fault_can_be_planted_and_its_tests_run_by_default(mutant):
    planted = mutant.planted_in((PACKAGE / mutant.file).read_text(encoding="utf-8"))
    ast.parse(planted)
    assert mutant.harm.endswith(".")
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert slow_by_test(file)[name] is False, test
