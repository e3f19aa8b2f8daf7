"""The README and every guide run, top to bottom, one namespace a file."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
import sys
import tomllib
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

from bayesprivmrf import mechanisms
from bayesprivmrf.cli import main
from bayesprivmrf.cli.parser import command_parser
from bayesprivmrf.inference import LatentCounts
from bayesprivmrf.inference.posterior.results.diagnostics import SMALLEST_ESS
from bayesprivmrf.learning import LearnedIsing, LearnedNetwork
from benchmarks.papers.command import papers_parser

ROOT = Path(__file__).parents[1]
GUIDES = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
]
LONG = {"chains.md"}  # some seconds each
RUN_SHELL = {"command_line.md"}
FENCE = re.compile(r"^```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(found["kind"], found["text"], text.count("\n", 0, found.start("text")))
        for found in FENCE.finditer(text)
    ]


def commands(block: Block, program: str = "bayesprivmrf") -> list[list[str]]:
    """Return the arguments of every command of a program."""
    lines = block.text.replace("\\\n", " ").splitlines()
    found = [
        line.removeprefix(program) for line in lines if line == program or line.startswith(f"{program} ")
    ]
    return [shlex.split(line, comments=True) for line in found]


def test_every_guide_is_found():
    names = {path.name for path in GUIDES}
    assert {"README.md", "index.md", "command_line.md", "notation.md", "design_principles.md"} <= names
    assert [block.kind for block in blocks(ROOT / "docs" / "command_line.md")].count("shell") == 7


@pytest.fixture
def shorter_chains(monkeypatch):
    """Posteriors keep a fifth of the draws where a guide names no number; enough that mixing is judged."""
    defaults = inspect.unwrap(LatentCounts.fit).__kwdefaults__
    assert (defaults["draws"], defaults["tune"]) == (1000, 500)
    assert 2 * SMALLEST_ESS <= 200
    monkeypatch.setitem(defaults, "draws", 200)
    monkeypatch.setitem(defaults, "tune", 100)


@pytest.fixture
def fewer_replicates(monkeypatch):
    """Intervals by simulated releases take ten of them where a guide names no number."""
    *others, replicates = LearnedNetwork.couplings_interval.__defaults__
    assert replicates == 100
    monkeypatch.setattr(LearnedNetwork.couplings_interval, "__defaults__", (*others, 10))


@pytest.mark.usefixtures("shorter_chains", "fewer_replicates")
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] if path.name in LONG else []) for path in GUIDES],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_guide_runs_top_to_bottom(path, tmp_path, monkeypatch):
    """No block warns: chains that have not mixed would."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("guide")  # dataclasses look their module up by name
    monkeypatch.setitem(sys.modules, "guide", module)
    for block in blocks(path):
        if block.kind == "python":
            code = "\n" * block.line + block.text  # so that a traceback names the guide's own line
            exec(compile(code, str(path), "exec"), module.__dict__)
        elif block.kind == "toml" and block.text.startswith("# "):
            Path(block.text.splitlines()[0].removeprefix("# ")).write_text(block.text, encoding="utf-8")
        elif block.kind in {"shell", "bash", "console"}:
            for command in commands(block):
                command_parser().parse_args(command)
                if path.name in RUN_SHELL:
                    assert main(command) == 0
            for command in commands(block, "uv run python -m benchmarks.papers"):
                papers_parser().parse_args(command)


def test_links_between_guides_lead_somewhere():
    link = re.compile(r"\]\((?!https?:|#)(?P<target>[^)#\s]+)")
    for path in [*GUIDES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for found in link.finditer(path.read_text(encoding="utf-8")):
            assert (path.parent / found["target"]).exists(), f"{path.name} links to {found['target']}"


def way_of_select_measure() -> str:
    page = (ROOT / "docs" / "developer" / "design_principles.md").read_text(encoding="utf-8")
    return page.partition("## One method, from data to interval")[2].partition("\n## ")[0]


def test_a_reader_of_select_measure_is_led_from_data_to_interval_by_eight_or_nine_files():
    """Each file of the two lists exists, and the file before it, or the one said, imports what it is reached by."""
    step = re.compile(r"^(\d+)\. `([\w/]+)\.py`(?:, by `(\w+)`(?: \((\d+)\))?)?: \S", re.MULTILINE)
    found = [
        (int(number), "bayesprivmrf." + path.replace("/", "."), *how)
        for number, path, *how in step.findall(way_of_select_measure())
    ]
    assert len(found) == 17
    for route in (found[:9], found[9:]):
        assert [number for number, *_ in route] == list(range(1, len(route) + 1))
        modules = [importlib.import_module(module) for _, module, *_ in route]
        assert len(set(modules)) == len(route)
        for place, (number, _, name, origin) in enumerate(route[1:], start=1):
            if not name:  # through what is released: a base defined there has the intervals
                base = LearnedIsing.couplings_interval
                assert base.__module__ == modules[place].__name__
                continue
            before = modules[int(origin or number - 1) - 1]
            assert vars(before)[name] is vars(modules[place])[name]
            assert defines(modules[place], name), f"{modules[place].__name__} only passes {name} on"
        assert hasattr(modules[0], "SelectMeasure")


def test_the_foundations_of_the_way_are_files_that_define_what_is_relied_on():
    found = re.findall(r"^- `([\w/]+)\.py`: .*?`(\w+)(?:\(.*\))?`", way_of_select_measure(), re.MULTILINE)
    assert len(found) == 5
    for path, name in found:
        assert defines(importlib.import_module("bayesprivmrf." + path.replace("/", ".")), name)


def test_what_stands_beside_the_way_is_told_of_on_the_way():
    """Whoever reads on without a file beside the way was told by a file on it what the other one does."""
    way = way_of_select_measure()
    told = re.findall(r"^- `([\w/]+)\.py`, (?:named|described) in `([\w/]+)\.py`: \S", way, re.MULTILINE)
    assert len(told) == way.count("named in") + way.count("described in") > 5
    for beside, on in told:
        assert f". `{on}.py`" in way, f"{on} is not on the way"
        assert f". `{beside}.py`" not in way, f"{beside} is on the way"
        name = "bayesprivmrf." + beside.replace("/", ".")
        importlib.import_module(name)
        short = name.removeprefix("bayesprivmrf.mechanisms.")  # within the folder of the mechanisms
        assert short in (importlib.import_module("bayesprivmrf." + on.replace("/", ".")).__doc__ or "")


def test_a_privacy_reviewer_is_told_of_every_mechanism_its_file_and_its_folder():
    page = (ROOT / "docs" / "developer" / "design_principles.md").read_text(encoding="utf-8")
    section = page.partition("## What a privacy reviewer reads")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    told = set()
    for names, files, folders, proof in rows:
        told.update(re.findall(r"`(\w+)`", names))
        own = re.findall(r"`([\w./]+)`", files)
        assert own
        assert all((ROOT / "bayesprivmrf" / "mechanisms" / file).is_file() for file in own), files
        assert all((ROOT / "bayesprivmrf" / at).is_dir() for at in re.findall(r"`([\w/]+)`", folders)), (
            folders
        )
        assert "](../" in proof
    public = {name for name in mechanisms.__all__ if issubclass_of_mechanism(getattr(mechanisms, name))}
    assert told == public - {
        "Mechanism",
        "StatisticsMechanism",
        "ExactStatistics",
    }  # bases; one that protects nobody


def issubclass_of_mechanism(held) -> bool:
    return isinstance(held, type) and issubclass(held, mechanisms.Mechanism)


def test_the_layers_are_those_of_the_import_contract():
    page = (ROOT / "docs" / "developer" / "design_principles.md").read_text(encoding="utf-8")
    told = re.search(r"Imports point one way: (.*?)\.\s", page, re.DOTALL)
    assert told is not None
    layers = [set(re.findall(r"`(\w+)`", layer)) for layer in told[1].split("→")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (held,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    assert layers == [
        {name.strip().removeprefix("bayesprivmrf.") for name in layer.split(":")} for layer in held
    ]


def defines(module, name: str) -> bool:
    tree = ast.parse(inspect.getsource(module))
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return name in {getattr(node, "name", getattr(node, "id", None)) for node in (*tree.body, *targets)}


def listed_by(page: str) -> list[tuple[str, str]]:
    """Modules and names that a reference page shows."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found: list[tuple[str, str]] = []
    directives = re.findall(r"^\.\. automodule:: (\S+)\n +:members:(.*)$", text, re.MULTILINE)
    assert len(directives) == text.count("automodule::")
    for module, given in directives:
        names = given.replace(",", " ").split() or importlib.import_module(module).__all__
        found += [(module, name) for name in names]
    return found


def names_used(text: str) -> set[tuple[str, str]]:
    """Modules of this library and the names that a code takes from them, by import or by attribute."""
    tree = ast.parse(text)
    modules: dict[str, types.ModuleType] = {}
    used: set[tuple[str, str]] = set()

    def module_of(node: ast.expr) -> types.ModuleType | None:
        if isinstance(node, ast.Attribute):
            held = getattr(module_of(node.value), node.attr, None)
            return held if isinstance(held, types.ModuleType) else None
        return modules.get(node.id) if isinstance(node, ast.Name) else None

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name.partition(".")[0] == "bayesprivmrf":
                    whole = importlib.import_module(name.name)
                    modules[name.asname or "bayesprivmrf"] = (
                        whole if name.asname else sys.modules["bayesprivmrf"]
                    )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "bayesprivmrf":
            for name in node.names:
                held = getattr(importlib.import_module(node.module or ""), name.name)
                if isinstance(held, types.ModuleType):
                    modules[name.asname or name.name] = held
                else:
                    used.add((node.module or "", name.name))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (above := module_of(node.value)) is not None:
            used.add((above.__name__, node.attr))
    return {(module, name) for module, name in used if not is_module(module, name)}


def is_module(module: str, name: str) -> bool:
    return isinstance(getattr(importlib.import_module(module), name), types.ModuleType)


def test_names_are_found_however_a_guide_takes_them():
    code = """
import bayesprivmrf as bpm
from bayesprivmrf import queries as q, sequences
from bayesprivmrf.privacy import Adjacency
bpm.network.IsingNetwork.from_graph; q.table("a"); sequences.lengths(bpm.CGM().fit(release)); release.total
"""
    assert {name for _, name in names_used(code)} == {"IsingNetwork", "table", "lengths", "CGM", "Adjacency"}


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_that_a_guide_uses_is_on_a_reference_page(path):
    """So whoever follows a guide uses what is public: what is on none of the pages may change without notice."""
    pages = ("api.md", "developer/reference.md", "further_names.md")
    shown = {name: module for page in pages for module, name in listed_by(page)}
    code = "\n".join(block.text for block in blocks(path) if block.kind == "python")
    for module, name in sorted(names_used(code)):
        assert name in shown, f"no reference page shows {module}.{name}"
        public = getattr(importlib.import_module(shown[name]), name)
        assert getattr(importlib.import_module(module), name) is public


def test_further_names_are_on_no_other_page_and_the_guide_of_each_names_it():
    page = (ROOT / "docs" / "further_names.md").read_text(encoding="utf-8")
    further = listed_by("further_names.md")
    others = {name for other in ("api.md", "developer/reference.md") for _, name in listed_by(other)}
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]{10,100}) \| \[[^]]+\]\(([\w/.]+)(?:#[\w-]+)?\) \|$", page, re.MULTILINE
    )
    assert sorted(name for name, _, _ in rows) == sorted(name for _, name in further)
    assert len({name for name, _, _ in rows}) == len(rows)
    assert not others & {name for _, name in further}
    for name, _, guide in rows:
        text = (ROOT / "docs" / guide).read_text(encoding="utf-8")
        assert re.search(rf"\b{name}\b", text), f"{guide} does not name {name}"


def test_the_reference_shows_at_most_sixty_names_and_each_exists():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    names = listed_by("api.md")
    assert not re.search(r":members:\s*$", page, re.MULTILINE), "a bare `:members:` would show a whole module"
    assert 0 < len(names) <= 60
    assert len({name for _, name in names}) == len(names)
    for module, name in names:
        assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"
    purposes = re.findall(r"^\| `(\w+)` \| (.+) \|$", page, re.MULTILINE)
    assert [name for name, _ in purposes] == [name for _, name in names]
    assert all(10 < len(purpose) < 100 and "|" not in purpose for _, purpose in purposes)
