"""Size and shape of the library, counted from its source: what has grown is seen before it is merged.

    uv run python benchmarks/house.py            # counts, in a few seconds; a step of .ci/run
    uv run python benchmarks/house.py --trace    # files entered by three calls, as well

Each line has its limit, and ``missed`` where the count is beyond it; the exit status is 0 all the same. ``--root``
names another checkout. How things are counted:

- Code lines are all lines but blank ones, docstrings, imports and whole-line comments. The text below a module
  constant is not a docstring to Python, and counts.
- A module constant is a name in capitals that a module assigns by itself (not in a row with others). It has a comment
  where one stands on the same line or alone on the line above, or where a text stands below it.
- A type is the library's own where one of its classes has the name.
- An import cycle is a strongly connected set of files. Imports inside functions count.
- A public name is an entry of the lists on the reference page; the page of all errors is one. Names that stand beside
  another on its page (``docs/reference/beside.toml``) are counted by themselves.
- A file is entered where a function of it is called; the compiled ones, which Python does not see, are not counted.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[1]
PACKAGE = "bayesprivmrf"
POSTERIOR = f"{PACKAGE}.inference.posterior"
REFERENCE = "docs/reference/index.md"  # lists of names, each with a generated page
BESIDE = "docs/reference/beside.toml"  # names that are shown on the page of another
LONGEST_FILE = 400  # lines; CONTRIBUTING.md asks for shorter files
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# the most that each figure may be, and the least
MOST = {
    "code lines": 30_500,  # 29,500 for the library of November 2026, and 1,000 for the checks at its edges
    "files": 290,
    "files of the posterior": 40,
    "code lines of the posterior": 5_400,
    "module constants": 400,
    "module constants without a comment": 0,
    "import cycles among files": 2,
    "isinstance on own types": 50,
    "imports of own modules inside functions": 60,
    "monkeypatch.setattr in tests": 60,
    "public names on the reference pages": 95,
    f"files above {LONGEST_FILE} lines": 0,
    "files entered by a NoiseAwareMAP fit": 22,
    "files entered by a log-linear LatentCounts fit": 35,
    "files entered by a SelectMeasure release": 30,
}
LEAST = {
    "whole-line comments per 100 code lines": 3.0,
    "the same, in files with compiled functions": 6.0,
}


@dataclass(frozen=True)
class File:
    """A source file, and the name of its module with dots."""

    path: Path
    name: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def comments(self) -> set[int]:
        """Lines with a comment, alone or after code."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return {token.start[0] for token in tokens if token.type == tokenize.COMMENT}

    @cached_property
    def whole_line_comments(self) -> set[int]:
        lines = self.text.splitlines()
        return {line for line in self.comments if lines[line - 1].lstrip().startswith("#")}

    @cached_property
    def code(self) -> int:
        """Number of code lines."""
        lines = self.text.splitlines()
        blank = {number for number, line in enumerate(lines, 1) if not line.strip()}
        apart = blank | self.whole_line_comments
        for node in self.nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                apart |= _lines_of(node)
            is_documented = isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS))
            if is_documented and ast.get_docstring(node, clean=False) is not None:
                apart |= _lines_of(node.body[0])
        return len(lines) - len(apart)

    @property
    def is_compiled(self) -> bool:
        """Whether it holds functions that numba compiles."""
        functions = [node for node in self.nodes if isinstance(node, FUNCTIONS)]
        ways = re.compile(r"njit|\bkept\(")
        return any(
            ways.search(ast.unparse(each)) for node in functions for each in node.decorator_list
        )

    def constants(self) -> Iterator[tuple[bool, bool]]:
        """Of each module constant, whether it is of numbers, and whether it has a comment."""
        body = self.tree.body
        for position, node in enumerate(body):
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            if isinstance(node, ast.Assign):
                targets = node.targets
            else:
                targets = [node.target]
            if position + 1 < len(body):
                below = body[position + 1]
            else:
                below = None
            has_comment = (
                bool(_lines_of(node) & self.comments)
                or node.lineno - 1 in self.whole_line_comments
                or (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant))
            )
            for target in targets:
                if isinstance(target, ast.Name) and re.fullmatch(r"_*[A-Z][A-Z0-9_]*", target.id):
                    yield _has_numbers(node.value), has_comment

    def imports(self, names: set[str], *, for_types: bool) -> Iterator[tuple[set[str], bool]]:
        """Own modules that each statement imports, and whether it stands inside a function."""

        def below(node: ast.AST, is_inside: bool) -> Iterator[tuple[set[str], bool]]:
            if (
                isinstance(node, ast.If)
                and "TYPE_CHECKING" in ast.unparse(node.test)
                and not for_types
            ):
                return
            if (
                isinstance(node, ast.ImportFrom)
                and self._absolute(node).partition(".")[0] == PACKAGE
            ):
                source = self._absolute(node)
                # a name may be a module of the package, or something in it
                yield (
                    {f"{source}.{each.name}" for each in node.names} & names or {source},
                    is_inside,
                )
            for child in ast.iter_child_nodes(node):
                yield from below(child, is_inside or isinstance(node, FUNCTIONS))

        return below(self.tree, False)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        above = self.name.split(".")
        end = len(above) - node.level + (self.path.stem == "__init__")
        return ".".join([*above[:end], *filter(None, [node.module])])


def _lines_of(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _has_numbers(value: ast.AST) -> bool:
    return any(type(getattr(each, "value", None)) in (int, float) for each in ast.walk(value))


def files_of(root: Path, package: str = PACKAGE) -> dict[str, File]:
    """The files of a package, by their modules' names."""
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = File(path, name)
    return found


def cycles(files: dict[str, File], *, for_types: bool) -> int:
    graph = nx.DiGraph()
    for name, file in files.items():
        for sources, _ in file.imports(set(files), for_types=for_types):
            graph.add_edges_from((name, source) for source in sources - {name})
    return sum(len(each) > 1 for each in nx.strongly_connected_components(graph))


def asked_for_own_types(files: dict[str, File]) -> int:
    """Calls of isinstance with a class of the library."""
    nodes = [node for file in files.values() for node in file.nodes]
    own = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    count = 0
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", "") == "isinstance"
            and len(node.args) > 1
        ):
            kinds = {
                getattr(each, "id", getattr(each, "attr", None)) for each in ast.walk(node.args[1])
            }
            count += bool(kinds & own)
    return count


def names_listed(root: Path) -> list[str]:
    """Return the names that the reference lists, with their modules, in its order."""
    page = root / REFERENCE
    if page.exists():
        text = page.read_text(encoding="utf-8")
    else:
        text = ""
    lists = re.findall(r"^\.\. autosummary::\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return re.findall(rf"^ +({PACKAGE}\.\S+)$", "\n".join(lists), re.MULTILINE)


def names_beside(root: Path) -> dict[str, list[str]]:
    """Return the names that are shown on the page of another, by that other name."""
    page = root / BESIDE
    if page.exists():
        return tomllib.loads(page.read_text(encoding="utf-8"))
    return {}


def counts(root: Path) -> dict[str, float]:
    """Every figure that the source alone tells."""
    files = files_of(root)
    inside = [each for name, each in files.items() if f"{name}.".startswith(f"{POSTERIOR}.")]
    compiled = [each for each in files.values() if each.is_compiled]
    lengths = [each.text.count("\n") for each in files.values()]
    imports = [each for file in files.values() for each in file.imports(set(files), for_types=True)]
    constants = [each for file in files.values() for each in file.constants()]
    tests = [path.read_text(encoding="utf-8") for path in sorted((root / "tests").rglob("*.py"))]
    return {
        "code lines": sum(each.code for each in files.values()),
        "files": len(files),
        "files of the posterior": len(inside),
        "code lines of the posterior": sum(each.code for each in inside),
        "module constants": len(constants),
        "module constants without a comment": sum(not commented for _, commented in constants),
        "of these, numbers": sum(number and not commented for number, commented in constants),
        "whole-line comments per 100 code lines": comment_rate([*files.values()]),
        "the same, in files with compiled functions": comment_rate(compiled),
        "import cycles among files": cycles(files, for_types=True),
        "without imports for the type checker": cycles(files, for_types=False),
        "isinstance on own types": asked_for_own_types(files),
        "imports of own modules inside functions": sum(is_inside for _, is_inside in imports),
        "monkeypatch.setattr in tests": sum(text.count("monkeypatch.setattr(") for text in tests),
        "public names on the reference pages": len(names_listed(root)),
        "names shown on the page of another": sum(
            len(names) for names in names_beside(root).values()
        ),
        f"files above {LONGEST_FILE} lines": sum(length > LONGEST_FILE for length in lengths),
    }


def comment_rate(files: list[File]) -> float:
    comments = sum(len(each.whole_line_comments) for each in files)
    return round(100 * comments / max(sum(each.code for each in files), 1), 1)


def entered(call: Callable[[], object], package: Path) -> int:
    """Number of files of the package of which the call runs a function."""
    found: set[str] = set()
    monitor = sys.monitoring
    tool = sys.monitoring.PROFILER_ID
    monitor.use_tool_id(tool, "house")
    monitor.register_callback(
        tool,
        monitor.events.PY_START,
        lambda code, _: found.add(code.co_filename) if code.co_flags & 2 else None,
    )  # flag 2: a function, not a module or a class
    monitor.set_events(tool, monitor.events.PY_START)
    try:
        call()
    finally:
        monitor.set_events(tool, 0)
        monitor.free_tool_id(tool)
    return sum(Path(name).is_relative_to(package) for name in list(found))


def traced() -> dict[str, int]:
    """Files entered by three calls on a chain of four variables."""
    import pandas as pd

    import bayesprivmrf as bpm
    from bayesprivmrf.mechanisms import LaplaceStatistics, SelectMeasure

    package = Path(bpm.__file__).parent
    states = {name: ["no", "yes"] for name in "abcd"}
    rows = [[states["a"][row >> place & row % 7 & 1] for place in range(4)] for row in range(400)]
    data = pd.DataFrame(rows, columns=list(states))
    chain = bpm.declare(states, [("a", "b"), ("b", "c"), ("c", "d")])
    release = LaplaceStatistics(epsilon=1.0).release(chain, data, rng=1)
    free = bpm.declare(states)
    log_linear = bpm.LatentCounts(formulation="log-linear")
    sampling = {"draws": 20, "tune": 20, "chains": 2, "progress_bar": False, "rng": 1}
    calls: dict[str, Callable[[], object]] = {
        "files entered by a NoiseAwareMAP fit": lambda: bpm.NoiseAwareMAP().fit(release),
        "files entered by a log-linear LatentCounts fit": lambda: log_linear.fit(
            release, **sampling
        ),
        "files entered by a SelectMeasure release": lambda: SelectMeasure(rho=1.0).release(
            free, data, rng=1
        ),
    }
    with warnings.catch_warnings(action="ignore"):  # of chains that are too short to be used
        return {name: entered(call, package) for name, call in calls.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Count the library's size and shape from its source."
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout, by default this one")
    parser.add_argument(
        "--trace", action="store_true", help="run three calls, and count the files they enter"
    )
    asked = parser.parse_args(arguments)
    found = counts(asked.root)
    if asked.trace:
        sys.path.insert(0, str(asked.root.resolve()))
        found |= traced()
    for name, value in found.items():
        most = MOST.get(name)
        least = LEAST.get(name)
        is_missed = (most is not None and value > most) or (least is not None and value < least)
        if most is not None:
            limit = f"at most {most:,}"
        elif least is not None:
            limit = f"at least {least:g}"
        else:
            limit = ""
        print(f"{name:48}{value:10,g}   {limit:18}{'missed' if is_missed else ''}".rstrip())


if __name__ == "__main__":
    main()
