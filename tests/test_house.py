"""Rules of the house that no file shows by itself: who asks for types, who imports whom, what tests reach for."""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1]
HOUSE = "bayesprivmrf"

BASES = {"Likelihood", "Released", "LearnedParameters"}
"""Of laws, of releases, and of learned models."""
ARGUMENTS = {
    # a law or a family of laws; a law, or an array or a mapping of laws, or of variances
    ("readers.columns", "NoiseDistribution"): 1,
    ("readers.columns", "Likelihood"): 1,
    ("release.given", "Likelihood"): 3,
    # one release or a list of them
    ("inference.given_releases", "NoisyStatistics"): 1,
    # the kinds of release that a mechanism makes, of which one has tables
    ("audit.whole", "NoisyStatistics"): 1,
    # an estimate, and no release
    ("plots.style", "Released"): 1,
}
"""Where an argument of several forms is asked for its form: by the base alone, never by one law or one release."""

LATER = {
    (
        "model.pgmpy_networks",
        "model.specification",
    )  # two methods that say it in another library's words
}
"""Cycles of modules that are left when imports inside functions count: each is one arrow back within one folder."""

MOST_INSIDE, MOST_PRIVATE = 150, 30
"""Names that tests take from inside rooms, and private names that they touch: as reached; they may only fall."""


@dataclass(frozen=True)
class Module:
    path: Path
    name: str  # without the package's

    @property
    def is_package(self) -> bool:
        return self.path.stem == "__init__"

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def room(self) -> str:
        return self.name.partition(".")[0]


def modules_below(folder: Path, suffix: str = "py") -> dict[str, Module]:
    found = {}
    for path in sorted(folder.rglob(f"*.{suffix}")):
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(path, name)
    return found


REACHES = re.compile(
    rf"from {HOUSE}\.\w+\.\w|\._[A-Za-z]|import .*\b_[a-z]|^ +_[a-z]\w*,$", re.MULTILINE
)
"""What a test holds that may take a name from inside a room, or a private one; others are not parsed."""

STATEMENTS = (ast.stmt, ast.ExceptHandler, ast.match_case)
"""What an import may be inside of: it is in no expression."""


@pytest.fixture(scope="module", autouse=True)
def kept_trees():
    """Pause the garbage collector, which would look again and again at millions of nodes that are all in use."""
    gc.disable()
    yield
    gc.enable()


MODULES = modules_below(ROOT / HOUSE)
STUBS = modules_below(ROOT / HOUSE, "pyi")


def _is_for_types(node: ast.AST) -> bool:
    """Whether a statement is `if TYPE_CHECKING:`."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def _walk(
    node: ast.AST, is_inside: bool, *, for_types: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Imports below a statement, and whether each stands inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, is_inside
        elif isinstance(child, STATEMENTS) and (for_types or not _is_for_types(child)):
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _walk(child, is_inside or is_function, for_types=for_types)


@cache
def all_imports_of(
    module: Module, *, for_types: bool = False
) -> list[tuple[tuple[str, str], bool]]:
    """Modules of the house, the names taken from them, and whether that is inside a function."""
    found = []
    for node, is_inside in _walk(module.tree, is_inside=False, for_types=for_types):
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert not alias.name.startswith(f"{HOUSE}."), (
                    f"{module.name} imports by a whole path"
                )
            continue
        above = module.name.split(".") if node.level else []
        if node.level:
            above = above[: len(above) + module.is_package - node.level]
        whole = ".".join([HOUSE, *filter(None, above)] if node.level else [])
        source = ".".join(filter(None, [whole, node.module]))
        if source == HOUSE or source.startswith(f"{HOUSE}."):
            found += [((source[len(HOUSE) + 1 :], alias.name), is_inside) for alias in node.names]
    return found


def imports_of(
    module: Module, *, inside_functions: bool, for_types: bool = False
) -> list[tuple[str, str]]:
    """Modules of the house, and the names taken from them."""
    return [
        taken
        for taken, is_inside in all_imports_of(module, for_types=for_types)
        if inside_functions or not is_inside
    ]


def passed_on() -> dict[tuple[str, str], str]:
    """Where names come from that a package lists in its stub, and loads when they are first used."""
    return {
        (name, taken): source
        for name, stub in STUBS.items()
        for source, taken in imports_of(stub, inside_functions=False)
        if source != name  # a module of its own, not a name
    }


@cache
def arrows(*, inside_functions: bool, for_types: bool = False) -> nx.DiGraph:
    """Which module imports which, past the packages that pass names on."""
    listed, graph = passed_on(), nx.DiGraph()
    graph.add_nodes_from(MODULES)
    for name, module in MODULES.items():
        taken_by = imports_of(module, inside_functions=inside_functions, for_types=for_types)
        for source, taken in taken_by:
            while (source, taken) in listed:
                source = listed[source, taken]
            whole = f"{source}.{taken}".lstrip(".")
            target = whole if whole in MODULES else source
            assert target in MODULES, f"{name} imports {taken} from {source}"
            if target != name:
                graph.add_edge(name, target)
    return graph


def cycles(graph: nx.DiGraph) -> set[tuple[str, ...]]:
    return {
        tuple(sorted(found)) for found in nx.strongly_connected_components(graph) if len(found) > 1
    }


def test_no_module_imports_itself_in_a_circle():
    assert cycles(arrows(inside_functions=False)) == set()
    assert cycles(arrows(inside_functions=True)) == LATER


def test_circles_for_the_type_checker_are_of_four_files_and_of_one_folder():
    """Types too are read from below: who reads a file can stop at its imports. The contracts say what is below."""
    circles = cycles(arrows(inside_functions=True, for_types=True))
    assert max(map(len, circles)) <= 4
    for circle in circles:
        assert len({name.rpartition(".")[0] for name in circle}) == 1


def test_no_room_imports_another_in_a_circle():
    """Functions that import when they are called count as well."""
    rooms = nx.DiGraph()
    for one, other in arrows(inside_functions=True).edges:
        rooms.add_edge(MODULES[one].room, MODULES[other].room)
    rooms.remove_edges_from(nx.selfloop_edges(rooms))
    rooms.remove_nodes_from([""])  # the package itself lists what all rooms have
    assert rooms.number_of_nodes() > 25
    assert cycles(rooms) == set()


def classes_by_base() -> dict[str, str]:
    """Laws, releases and learned models, and the room in which each is defined."""
    above: dict[str, set[str]] = {}
    room = {}
    for module in MODULES.values():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                above[node.name] = {
                    ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases
                }
                room[node.name] = module.room
    found = set(BASES)
    while more := {name for name, bases in above.items() if bases & found} - found:
        found |= more
    return {name: room[name] for name in found}


def _asks_type(node: ast.expr) -> bool:
    """Whether an expression is `type(...)`, or a part of it."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "type"


def test_laws_releases_and_learned_models_are_not_asked_for_their_type_elsewhere():
    own = classes_by_base()
    assert {"DiscreteLaplace", "NoisyStatistics", "LearnedIsing", "NetworkEstimate"} <= own.keys()
    asked: Counter[tuple[str, str]] = Counter()
    for name, module in MODULES.items():
        for node in module.nodes:
            kinds: list[ast.expr] = []
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "isinstance",
                "issubclass",
            ):
                kinds = node.args[1:]
            elif isinstance(node, ast.MatchClass):
                kinds = [node.cls]
            elif isinstance(node, ast.Compare) and _asks_type(node.left):
                kinds = node.comparators
            taken = {
                getattr(part, "id", getattr(part, "attr", None))
                for kind in kinds
                for part in ast.walk(kind)
            }
            asked.update((name, kind) for kind in taken & own.keys() if own[kind] != module.room)
    assert asked == ARGUMENTS


def listed_names() -> dict[str, set[str]]:
    """What each package of the house lists for others."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in (*MODULES.values(), *STUBS.values()):
        for node in module.tree.body if module.is_package else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found[module.name].update(ast.literal_eval(node.value))
    return found


def test_tests_take_names_from_the_packages_that_list_them_and_little_from_inside():
    """From inside: by a path below a room, and not listed there; that a package on the way lists it is an error."""
    listed, inside, private, passed_by = listed_names(), 0, 0, []
    tests = modules_below(ROOT / "tests").values()
    for test in tests:
        if not REACHES.search(test.path.read_text(encoding="utf-8")):
            continue
        for node in test.nodes:
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                is_own = ast.unparse(node.value) in ("self", "cls", "super()")
                is_public = node.attr.startswith("__") or node.attr in (
                    "_replace",
                    "_asdict",
                )  # of named tuples
                private += not is_public and not is_own
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(HOUSE):
                continue
            private += sum(alias.name.startswith("_") for alias in node.names)
            parts = (node.module or "").split(".")[1:]
            above = [".".join(parts[:end]) for end in range(len(parts) + 1)]
            for name in (alias.name for alias in node.names if len(parts) > 1):
                if name not in listed[above[-1]]:
                    inside += 1
                    passed_by += [
                        f"{test.name}: {name} of {at or HOUSE}"
                        for at in above
                        if name in listed[at]
                    ]
    assert passed_by == []
    assert inside <= MOST_INSIDE
    assert private <= MOST_PRIVATE
