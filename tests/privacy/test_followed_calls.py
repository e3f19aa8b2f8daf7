"""A privacy reviewer finds all there is by reading: where records are opened, and the calls from records to noise."""

from __future__ import annotations

import ast
import builtins
import gc
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "bayesprivmrf"

# the only files that open coded or packed records
OPEN_RECORDS = {
    "mechanisms/dpsgd.py",
    "mechanisms/frank_wolfe/search.py",
    "mechanisms/parities/mechanism.py",
    "mechanisms/reading/coded.py",
    "mechanisms/record_mechanisms.py",
    "mechanisms/select_measure/exact_tables.py",
    "mechanisms/select_measure/one_choice.py",
    "mechanisms/structure/mechanism.py",
    "mechanisms/structure/packed_records.py",
}

DRAWS = ("add", "choose", "choose_several")

# who draws noise outside mechanisms: replicates of a release, on the number of simulated rows; and an audit, on the
# numbers of made-up neighbors
DRAW_ELSEWHERE = {"audit/worst_case.py", "learning/calibrated.py"}

MECHANISMS = (
    "DPSGD",
    "ObjectivePerturbation",
    "ParityQueries",
    "PrivateFrankWolfe",
    "PrivateLogisticRegression",
    "SelectMeasure",
    "StableStructure",
    "StatisticsMechanism",
)


@dataclass(frozen=True)
class Function:
    """A function or method, with the names that its module and class give to others."""

    path: str
    owner: str
    node: ast.FunctionDef


@dataclass
class Source:
    """All functions and classes of the package, by name."""

    functions: dict[str, list[Function]] = field(default_factory=lambda: defaultdict(list))
    methods: dict[str, list[Function]] = field(default_factory=lambda: defaultdict(list))
    classes: set[str] = field(default_factory=set)


@pytest.fixture(scope="module", autouse=True)
def kept_trees():
    """Pause the garbage collector, which would look again and again at millions of nodes that are all in use."""
    gc.disable()
    yield
    gc.enable()


@cache
def files() -> tuple[tuple[str, ast.Module], ...]:
    """All modules, each by its path below the package."""
    return tuple(
        (str(path.relative_to(ROOT)), ast.parse(path.read_text()))
        for path in sorted(ROOT.rglob("*.py"))
    )


@cache
def walked() -> tuple[tuple[str, list[ast.AST]], ...]:
    """All modules, each with its nodes."""
    return tuple((path, list(ast.walk(tree))) for path, tree in files())


@cache
def source() -> Source:
    found = Source()
    for path, tree in files():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                found.functions[node.name].append(Function(path, "", node))
            if isinstance(node, ast.ClassDef):
                found.classes.add(node.name)
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef):
                        found.methods[inner.name].append(Function(path, node.name, inner))
    return found


def calls(function: Function) -> list[ast.Call]:
    return [node for node in ast.walk(function.node) if isinstance(node, ast.Call)]


def is_source(node: ast.AST) -> bool:
    """Whether an expression is the source of noise: `source`, `run.source`."""
    return (isinstance(node, ast.Name) and node.id == "source") or (
        isinstance(node, ast.Attribute) and node.attr == "source"
    )


def is_draw(call: ast.Call) -> bool:
    """Whether a call asks the source of noise: `source.add(...)`, `run.source.choose(...)`."""
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in DRAWS
    return is_method and is_source(call.func.value)  # type: ignore[attr-defined]


def called(call: ast.Call) -> list[Function]:
    """The functions that a call may be of, by its name alone: more than there are, and none is missed."""
    if isinstance(call.func, ast.Name):
        return source().functions[call.func.id]
    if isinstance(call.func, ast.Attribute):
        return [*source().methods[call.func.attr], *source().functions[call.func.attr]]
    return []


def randomise_of(mechanism: str) -> Function:
    (found,) = [each for each in source().methods["_randomise"] if each.owner == mechanism]
    return found


def followed(start: Function) -> tuple[list[Function], set[int]]:
    """The functions of mechanisms that are reached, and those of them that lead to noise, by identity."""
    reached: dict[int, Function] = {}
    callers: dict[int, set[int]] = defaultdict(set)
    waiting = [start]
    while waiting:
        function = waiting.pop()
        if id(function) in reached:
            continue
        reached[id(function)] = function
        for call in calls(function):
            for other in called(call):
                if other.path.startswith("mechanisms/"):  # all noise is drawn there
                    callers[id(other)].add(id(function))
                    waiting.append(other)
    leading = {key for key, each in reached.items() if any(is_draw(call) for call in calls(each))}
    waiting_keys = list(leading)
    while waiting_keys:
        for caller in callers[waiting_keys.pop()] - leading:
            leading.add(caller)
            waiting_keys.append(caller)
    return list(reached.values()), leading


def local_names(function: Function) -> set[str]:
    """Parameters and variables of a function, without the functions that it defines."""
    every = ast.walk(function.node)
    names = {node.arg for node in every if isinstance(node, ast.arg)}
    stored = (node for node in ast.walk(function.node) if isinstance(node, ast.Name))
    return names | {node.id for node in stored if isinstance(node.ctx, ast.Store)}


def test_only_listed_files_open_records_and_all_of_them_are_mechanisms():
    opening = set()
    for path, nodes in walked():
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr.startswith("sensitive_"):
                opening.add(path)
            # an attribute that is asked for by its text would pass unseen
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not node.value.startswith("sensitive_"), path
    assert opening == OPEN_RECORDS
    assert all(path.startswith("mechanisms/") for path in opening)


def test_records_have_no_other_members_that_open_them():
    """The fields and cached properties of both classes are all marked, but what is public of packed records."""
    public = {"first", "states"}
    for path, nodes in walked():
        for node in nodes:
            if isinstance(node, ast.ClassDef) and node.name in ("CodedRecords", "PackedRecords"):
                fields = {
                    each.target.id
                    for each in node.body
                    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                }
                assert all(each.startswith("sensitive_") for each in fields - public), path


def test_noise_is_drawn_by_mechanisms_alone():
    drawing = {
        path
        for path, nodes in walked()
        for node in nodes
        if isinstance(node, ast.Call) and is_draw(node)
    }
    elsewhere = {path for path in drawing if not path.startswith(("mechanisms/", "noise/"))}
    assert elsewhere == DRAW_ELSEWHERE


def test_the_source_of_noise_is_asked_by_plain_calls():
    """Its methods are neither kept nor looked up by their text, so that no draw is overlooked above."""
    for path, nodes in walked():
        every = [node for node in nodes if isinstance(node, ast.Call)]
        plain = {id(each.func) for each in every}
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr in DRAWS and is_source(node.value):
                assert id(node) in plain, path
        looked_up = [
            each for each in every if isinstance(each.func, ast.Name) and each.func.id == "getattr"
        ]
        assert not any(is_source(each.args[0]) for each in looked_up), path


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_way_from_records_to_noise_can_be_followed_by_reading(mechanism):
    """No call on it is of a function that was looked up: by its text, in a mapping, or held by a variable."""
    reached, leading = followed(randomise_of(mechanism))
    assert id(reached[0]) in leading, "no noise was reached"
    for function in reached:
        if id(function) not in leading:
            continue
        local = local_names(function)
        where = f"{function.path}: {function.owner}.{function.node.name}"
        for call in calls(function):
            assert isinstance(call.func, ast.Name | ast.Attribute), where
            if isinstance(call.func, ast.Name):
                name = call.func.id
                assert name not in ("getattr", "mechanism_module"), where
                assert name not in local or name in source().classes or name in dir(builtins), (
                    f"{where} calls {name}"
                )


@pytest.mark.parametrize("name", ["rounds", "candidates", "wide_rounds"])
def test_every_draw_of_a_round_follows_a_charge_in_the_same_function(name):
    tree = ast.parse((ROOT / f"mechanisms/select_measure/{name}.py").read_text())
    seen = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            inside = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
            at = [each for each in inside if isinstance(each.func, ast.Attribute)]
            charges = [each.lineno for each in at if each.func.attr == "charge"]  # type: ignore[attr-defined]
            draws = [each.lineno for each in at if is_draw(each) or each.func.attr == "draw"]  # type: ignore[attr-defined]
            seen += len(draws)
            for place in range(len(draws)):
                assert sum(line < sorted(draws)[place] for line in charges) > place or (
                    len(charges) == len(draws) == 1
                ), (name, node.name)
    assert seen
