"""Size and shape of the library, counted from its source, each figure beside its goal.

    uv run python benchmarks/house.py                  # all figures, in a few seconds; a step of .ci/run
    uv run python benchmarks/house.py --list           # and the functions with more than six parameters
    uv run python benchmarks/house.py --list numbers   # and the places of each figure with "numbers" in its name

A figure beyond its goal is called ``missed``; the exit status is 0 all the same. ``--root`` names another checkout.
How things are counted:

- A code line is neither blank, nor of a docstring or an import, nor a comment alone on its line.
- Tokens are what Python's `tokenize` finds on code lines, except comments, line ends and indents; a comma and a
  bracket are one token each. A statement is any `ast.stmt` (a ``def``, an ``if`` and each line of its body) that is
  neither an import nor a docstring.
- A parallel assignment has a tuple on the left and a tuple of the same length on the right.
- Numbers inside functions are literals in bodies, defaults and decorators of functions, other than 0, 1, 2 and .5;
  negatives count as their absolute values, and each number of a tuple by itself.
- Parameters are counted without ``self`` and ``cls``, and with ``*args`` and ``**kwargs``.
- An import circle is a strongly connected set of files. Imports inside functions and for types count.
- Arrows back are the fewest imports between files that would have to go before the parts of a folder (its files and
  folders) import one another in one order.
- A name that two modules give is a class, function, type or constant of both, without leading underscore. It is not
  counted if one is made from the other, nor if both are type aliases with one text.
- A constant is a name in capitals that a module assigns. Its comment stands on the same line, alone on the line above
  it or above the constants that it follows without a blank line, or a text stands below it.
- A public name is an entry of the lists on the reference page.
"""

from __future__ import annotations

import argparse
import ast
import io
import math
import re
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx

ROOT = Path(__file__).parents[1]
PACKAGE = "bayesprivmrf"
REFERENCE = "docs/reference/index.md"  # lists of names, each with a generated page
BESIDE = "docs/reference/beside.toml"  # names that are shown on the page of another
MOST_PARAMETERS = 6  # a longer list is read with the definition beside it
PLAIN = {0, 1, 2, 0.5}  # numbers that say what they are where they stand

# the most that each figure may be; measured on the code bases of mbi, Dynamax, arviz-stats, OpenDP and Optimistix,
# or chosen half way between them and this library in November 2026
GOALS: dict[str, float] = {
    "tokens": 360_000,
    "tokens a statement": 13.8,
    "parallel assignments in 1,000 lines": 8,
    "conditional expressions in 1,000 lines": 15,
    "numbers inside functions": 1_000,
    "functions with more than six parameters": 20,
    "functions that return dict[str, Any]": 25,
    "files in the largest import circle": 4,
    "arrows back inside inference": 2,
    "public names of two modules": 35,
    "module constants without a comment": 0,
    "monkeypatch.setattr in tests": 60,
    "public names": 95,
}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# tokens that say nothing
NO_CODE = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}


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
    def nodes(self) -> list[Any]:
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[Any]:
        return [node for node in self.nodes if isinstance(node, FUNCTIONS)]

    @cached_property
    def apart(self) -> list[ast.stmt]:
        """Imports and docstrings."""
        owners = [*self.functions, self.tree]
        owners += [node for node in self.nodes if isinstance(node, ast.ClassDef)]
        docstrings = [each.body[0] for each in owners if ast.get_docstring(each, clean=False)]
        return docstrings + [n for n in self.nodes if isinstance(n, ast.Import | ast.ImportFrom)]

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        apart = {line for node in self.apart for line in lines_of(node)}
        found = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [
            each
            for each in found
            if tokenize.tok_name[each.type] not in NO_CODE and each.start[0] not in apart
        ]

    @cached_property
    def code_lines(self) -> int:
        """Lines that a token begins, ends or runs through."""
        return len({n for each in self.tokens for n in range(each.start[0], each.end[0] + 1)})

    @cached_property
    def statements(self) -> int:
        return sum(isinstance(node, ast.stmt) for node in self.nodes) - len(self.apart)

    def sources(self, names: set[str]) -> set[str]:
        """Other modules of the package that this one imports, wherever the statement stands."""
        found: set[str] = set()
        for node in (each for each in self.apart if isinstance(each, ast.ImportFrom)):
            above = self.name.split(".")
            end = len(above) - node.level + (self.path.stem == "__init__")
            parts = (above[:end] if node.level else []) + [node.module or ""]
            source = ".".join(filter(None, parts))
            if source.partition(".")[0] == PACKAGE:
                # a name may be a module of the package, or something in it
                found |= {f"{source}.{each.name}" for each in node.names} & names or {source}
        return found - {self.name}


def lines_of(node: ast.stmt) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def assigned(node: Any) -> list[str]:
    """Names that an assignment with a value gives, also in a row."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    rows = [getattr(target, "elts", [target]) for target in targets]
    return [each.id for row in rows for each in row if isinstance(each, ast.Name)]


# what is looked for in a file: nodes


def parallel_assignments(file: File) -> Iterator[Any]:
    for node in file.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            length = len(node.value.elts)
            if length and any(len(getattr(each, "elts", ())) == length for each in node.targets):
                yield node


def numbers_inside(file: File) -> Iterator[Any]:
    inside = {node for function in file.functions for node in ast.walk(function)}
    for node in file.nodes:
        value = getattr(node, "value", None)
        if node in inside and type(value) in (int, float) and value not in PLAIN:
            yield node


def long_parameter_lists(file: File) -> Iterator[Any]:
    for node in file.functions:
        names = [each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)]
        compiled = re.search("njit|kept|overload", " ".join(map(ast.unparse, node.decorator_list)))
        if len(names) - ("self" in names or "cls" in names) > MOST_PARAMETERS and not compiled:
            yield node


def untyped_returns(file: File) -> Iterator[Any]:
    return (
        node
        for node in file.functions
        if node.returns is not None and "dict[str, Any]" in ast.unparse(node.returns)
    )


def uncommented_constants(file: File) -> Iterator[Any]:
    lines = file.text.splitlines()
    tokens = tokenize.generate_tokens(io.StringIO(file.text).readline)
    commented = {each.start[0] for each in tokens if each.type == tokenize.COMMENT}
    told = set()  # last lines of constants with a comment
    for node, below in pairwise([*file.tree.body, None]):
        is_constant = any(re.fullmatch(r"_*[A-Z][A-Z0-9_]*", name) for name in assigned(node))
        is_told = (
            bool(commented & lines_of(node))
            or lines[node.lineno - 2].lstrip().startswith("#")
            or (isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant))
            or node.lineno - 1 in told
        )
        if is_constant and is_told:
            told.add(node.end_lineno)
        elif is_constant:
            yield node


# what is looked for in all files


def files_of(root: Path, folder: str = PACKAGE) -> list[File]:
    found = []
    for path in sorted((root / folder).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        found.append(File(path, name.removesuffix(".__init__")))
    return found


def imports_among(files: list[File]) -> nx.DiGraph:
    names = {each.name for each in files}
    return nx.DiGraph([(each.name, other) for each in files for other in each.sources(names)])


def arrows_back(graph: nx.DiGraph, folder: str) -> int:
    """Fewest imports that point back, over all orders of the parts of a folder."""
    arrows: Counter[tuple[str, str]] = Counter()
    inside = f"{PACKAGE}.{folder}."
    for one, other in graph.edges:
        if one.startswith(inside) and other.startswith(inside):
            part, source = (n.removeprefix(inside).partition(".")[0] for n in (one, other))
            arrows[part, source] += part != source
    total = 0
    for circle in nx.strongly_connected_components(nx.DiGraph(list(arrows))):
        # by the set of parts that stand first: imports from them to later ones, in their best order
        fewest: dict[frozenset[str], int] = {frozenset(): 0}
        for _ in circle:
            longer: dict[frozenset[str], int] = {}
            for first, count in fewest.items():
                for part in circle - first:
                    more = count + sum(arrows[each, part] for each in first)
                    longer[first | {part}] = min(more, longer.get(first | {part}, more))
            fewest = longer
        total += min(fewest.values())
    return total


def names_of_two(files: list[File]) -> list[str]:
    """Public names that two modules define, with these modules."""
    given: dict[str, dict[str, str]] = defaultdict(dict)
    for file in files:
        for node in file.tree.body:
            names = assigned(node)
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names = [node.name]
            elif isinstance(node, ast.TypeAlias):
                names = [node.name.id]
            text = ast.unparse(node)
            for name in names:
                if not name.startswith("_") and not (assigned(node) and f".{name}" in text):
                    given[name][file.name] = text
    found = []
    for name, texts in sorted(given.items()):
        first, *others = texts.values()
        is_one_type = first.startswith("type ") and {first} == {*others}
        if others and not is_one_type:
            found.append(f"{name}: {', '.join(texts)}")
    return found


def names_listed(root: Path) -> list[str]:
    """Return the names that the reference lists, with their modules, in its order."""
    text = (root / REFERENCE).read_text(encoding="utf-8")
    lists = re.findall(r"^\.\. autosummary::\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return re.findall(rf"^ +({PACKAGE}\.\S+)$", "\n".join(lists), re.MULTILINE)


def names_beside(root: Path) -> dict[str, list[str]]:
    """Return the names that are shown on the page of another, by that other name."""
    return tomllib.loads((root / BESIDE).read_text(encoding="utf-8"))


# a figure is a number, or the places that it counts
type Figures = dict[str, float | list[str]]


def places(files: list[File], find: Callable[[File], Iterable[Any]]) -> list[str]:
    return [
        f"{file.name}:{node.lineno} {ast.unparse(node).splitlines()[0][:60]}"
        for file in files
        for node in sorted(find(file), key=lambda node: node.lineno)
    ]


def densities(files: list[File]) -> Figures:
    """Figures of what a reader meets on each line."""
    lines = sum(each.code_lines for each in files)
    tokens = sum(len(each.tokens) for each in files)
    parallel = places(files, parallel_assignments)
    conditional = places(files, lambda file: (n for n in file.nodes if isinstance(n, ast.IfExp)))
    return {
        "code lines": lines,
        "tokens": tokens,
        "tokens a statement": tokens / max(sum(each.statements for each in files), 1),
        "parallel assignments": parallel,
        "parallel assignments in 1,000 lines": 1_000 * len(parallel) / max(lines, 1),
        "conditional expressions": conditional,
        "conditional expressions in 1,000 lines": 1_000 * len(conditional) / max(lines, 1),
        "numbers inside functions": places(files, numbers_inside),
        "functions with more than six parameters": places(files, long_parameter_lists),
        "functions that return dict[str, Any]": places(files, untyped_returns),
    }


def figures(root: Path) -> Figures:
    """Every figure of a checkout."""
    files = files_of(root)
    graph = imports_among(files)
    folders = {each.name.split(".")[1] for each in files if each.name.count(".") > 1}
    back = {folder: arrows_back(graph, folder) for folder in sorted(folders)}
    circles = [sorted(each) for each in nx.strongly_connected_components(graph) if len(each) > 1]
    tests = [path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.py")]
    scripts = densities(files_of(root, "benchmarks"))
    return {
        **densities(files),
        "files in the largest import circle": max(circles, key=len, default=[]),
        "arrows back inside inference": back.pop("inference", 0),
        "arrows back inside other folders": sum(back.values()),
        "public names of two modules": names_of_two(files),
        "module constants without a comment": places(files, uncommented_constants),
        "monkeypatch.setattr in tests": sum(text.count("monkeypatch.setattr(") for text in tests),
        "public names": len(names_listed(root)),
        **{f"benchmarks: {name}": value for name, value in scripts.items()},
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Count the library's size and shape.")
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout, by default this one")
    parser.add_argument(
        "--list",
        nargs="?",
        const="six parameters",
        metavar="TEXT",
        help="print the places of the figures with this text in their names",
    )
    asked = parser.parse_args(arguments)
    for name, value in figures(asked.root).items():
        count = round(value if isinstance(value, int | float) else len(value), 1)
        # the rates of the scripts have the goals of the library; their sizes have none
        is_rate = " a statement" in name or "1,000 lines" in name
        goal = GOALS.get(name.removeprefix("benchmarks: ") if is_rate else name, math.inf)
        limit = f"at most {goal:,g}" if goal < math.inf else ""
        print(f"{name:50}{count:10,}   {limit:18}{'missed' if count > goal else ''}".rstrip())
        if asked.list and asked.list in name and isinstance(value, list):
            print(*(f"    {place}" for place in value), sep="\n")


if __name__ == "__main__":
    main()
