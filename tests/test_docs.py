"""The README and every guide run, top to bottom, one namespace a file."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import re
import shlex
import subprocess
import sys
import tomllib
import types
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from bayesprivmrf import mechanisms
from bayesprivmrf.cli import main
from bayesprivmrf.cli.parser import command_parser
from bayesprivmrf.inference import LatentCounts
from bayesprivmrf.inference.posterior.results.diagnostics import SMALLEST_ESS
from bayesprivmrf.learning import LearnedIsing, LearnedNetwork
from benchmarks.house import GOALS, names_beside, names_listed
from benchmarks.papers.command import papers_parser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILT = {
    "_build",
    "_templates",
    "generated",
    ".jupyter_cache",
    "jupyter_execute",
}  # made by the build of the site
GUIDES = [
    ROOT / "README.md",
    *sorted(path for path in DOCS.rglob("*.md") if not BUILT & set(path.relative_to(DOCS).parts)),
]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RUN_SHELL = {"command-line.md"}
# commands that draw many releases: `tests/audit` and `tests/cli` run them
TESTED = {"audit", "compare"}
CODE, SHELL = {"python", "code-cell"}, {"shell", "bash", "console"}
FENCE = re.compile(
    r"^```(?:\{(?P<directive>[\w-]+)\}|(?P<kind>\w*))(?P<argument>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    kind: str  # language of a block, or name of a directive
    text: str
    line: int
    tags: str = ""


def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        block_of(
            found["kind"] or found["directive"] or "",
            found["text"],
            text.count("\n", 0, found.start("text")),
        )
        for found in FENCE.finditer(text)
    ]


def block_of(kind: str, text: str, line: int) -> Block:
    """The options of a code cell stand above its code, as lines or between rules of three hyphens."""
    if kind != "code-cell":
        return Block(kind, text, line)
    options = re.match(r"(---\n.*?^---\n|(?::[\w-]+:[^\n]*\n)*)", text, re.MULTILINE | re.DOTALL)
    above = options[0] if options else ""
    return Block(kind, text[len(above) :], line + above.count("\n"), above)


def commands(block: Block, program: str = "bayesprivmrf") -> list[list[str]]:
    """Return the arguments of every command of a program."""
    lines = block.text.replace("\\\n", " ").splitlines()
    found = [
        line.removeprefix(program)
        for line in lines
        if line == program or line.startswith(f"{program} ")
    ]
    return [shlex.split(line, comments=True) for line in found]


def test_every_guide_is_found():
    names = {path.name for path in GUIDES}
    assert {
        "README.md",
        "index.md",
        "command-line.md",
        "notation.md",
        "design-principles.md",
    } <= names
    shell = [block for block in blocks(DOCS / "how-to" / "command-line.md") if block.kind in SHELL]
    assert sum(len(commands(block)) for block in shell) >= 5


def test_the_options_of_a_code_cell_are_no_code():
    cell = ":tags: [hide-input]\n:label: a\nx = 1\n"
    assert block_of("code-cell", cell, 4) == Block(
        "code-cell", "x = 1\n", 6, ":tags: [hide-input]\n:label: a\n"
    )
    assert block_of("code-cell", "---\ntags: [a]\n---\nx = 1\n", 4).text == "x = 1\n"
    assert block_of("python", ":tags: [a]\n", 4).text == ":tags: [a]\n"
    kinds = [
        found["kind"] or found["directive"]
        for found in FENCE.finditer("```{code-cell} ipython3\nx = 1\n```\n")
    ]
    assert kinds == ["code-cell"]


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_a_sentence_that_wraps_before_a_number_is_not_turned_into_a_list(path):
    """A line that begins with "1." starts a list, even in the middle of a sentence; a list has a second item."""
    text = re.sub(
        r"^(`{3,}|~{3,}).*?^\1",
        "",
        path.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    first = re.split(r"^[ ]*1\. ", text, flags=re.MULTILINE)[1:]
    assert [item[:60] for item in first if not re.search(r"^[ ]*2\. ", item, re.MULTILINE)] == []


SITE_PAGES = {
    "tutorials": "index",
    "how-to": "index choose-epsilon choose-an-estimator read-a-status conditional-probabilities synthetic-data "
    "draw-the-graph frequency-tables weights-missing-covariates count-on-an-engine network-outcomes "
    "extend-the-pymc-model compare-without-privacy command-line pgmpy-operations read-noisy-tables measure-queries "
    "learn-a-model audit-a-release many-areas fit-another-model",
    "explanation": "index idea privacy mechanisms queries estimators posterior posterior-mathematics marginals "
    "given-tables select-measure frank-wolfe parities dpsgd structure lower-bounds network network-privacy chains "
    "scores-and-levels",
    "developer": "index design-principles own-mechanism own-noise own-likelihood own-estimator",
    "reference": "index glossary notation",
    "benchmarks": "index papers",
    ".": "index gallery",
}


def test_the_site_has_the_pages_that_its_sections_list():
    for folder, names in SITE_PAGES.items():
        missing = [name for name in names.split() if not (DOCS / folder / f"{name}.md").is_file()]
        assert not missing, f"docs/{folder} lacks {missing}"
        listed = set(re.findall(r"^([\w-]+)$", toctrees(DOCS / folder / "index.md"), re.MULTILINE))
        if folder not in (".", "tutorials"):
            assert listed >= set(names.split()) - {"index"}, f"docs/{folder}/index.md"


def toctrees(page: Path) -> str:
    return "\n".join(block.text for block in blocks(page) if block.kind == "toctree")


def test_the_tutorials_list_every_notebook():
    names = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    page = DOCS / "tutorials" / "index.md"
    assert re.findall(r"^(\d\d_\w+)$", toctrees(page), re.MULTILINE) == names
    assert re.findall(r"\]\((\w+)\.ipynb\)", page.read_text(encoding="utf-8")) == names


def test_addresses_of_the_former_site_lead_to_pages():
    settings = (DOCS / "conf.py").read_text(encoding="utf-8")
    (redirects,) = re.findall(r"^redirects = (\{.*?^\})", settings, re.MULTILINE | re.DOTALL)
    moved = ast.literal_eval(redirects)
    assert len(moved) == 33  # pages of the former site, but its first one, which stays where it is
    for source, target in moved.items():
        assert not (DOCS / f"{source}.md").exists(), f"docs/{source}.md is a page, and redirects"
        page = (DOCS / source).parent / target.replace(".html", ".md")
        assert page.is_file(), f"{source} redirects to {target}"


@pytest.fixture
def shorter_chains(monkeypatch):
    """Posteriors keep a fifth of the draws where a guide names no number; enough that mixing is judged."""
    defaults = inspect.unwrap(LatentCounts.fit).__kwdefaults__
    assert (defaults["draws"], defaults["tune"]) == (1000, None)
    assert 2 * SMALLEST_ESS <= 200
    monkeypatch.setitem(defaults, "draws", 200)
    monkeypatch.setitem(defaults, "tune", 100)


@pytest.fixture
def fewer_replicates(monkeypatch):
    """Intervals by simulated releases take ten of them where a guide names no number."""
    *others, replicates = LearnedNetwork.couplings_interval.__defaults__
    assert replicates == 100
    monkeypatch.setattr(LearnedNetwork.couplings_interval, "__defaults__", (*others, 10))


LONG = {"posterior.md", "network.md"}
"""Pages whose blocks take some seconds: they are among the slow tests."""


@pytest.mark.usefixtures("shorter_chains", "fewer_replicates")
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] if path.name in LONG else []) for path in GUIDES],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_guide_runs_top_to_bottom(path, tmp_path, monkeypatch):
    """No block warns: chains that have not mixed would. The site's build runs the code cells."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("guide")  # dataclasses look their module up by name
    monkeypatch.setitem(sys.modules, "guide", module)
    for block in blocks(path):
        if block.kind in CODE and "skip-execution" not in block.tags:
            # a traceback names the guide's own line
            code = compile("\n" * block.line + block.text, str(path), "exec")
            if block.kind != "code-cell":
                exec(code, module.__dict__)
        elif block.kind == "toml" and block.text.startswith("# "):
            Path(block.text.splitlines()[0].removeprefix("# ")).write_text(
                block.text, encoding="utf-8"
            )
        elif block.kind in SHELL:
            for command in commands(block):
                command_parser().parse_args(command)
                if path.name in RUN_SHELL and command[0] not in TESTED:
                    assert main(command) == 0
            for command in commands(block, "uv run python -m benchmarks.papers"):
                papers_parser().parse_args(command)


BENCHMARK_PICTURES = DOCS / "benchmarks" / "images"


def test_links_between_guides_lead_somewhere():
    """The build makes pages and pictures of benchmarks, and copies notebooks to the tutorials."""
    link = re.compile(r"\]\((?!https?:|#)(?P<target>[^)#\s]+)")
    others = ("CONTRIBUTING.md", "CHANGELOG.md", "notebooks/README.md")
    for path in [*GUIDES, *NOTEBOOKS, *map(ROOT.joinpath, others)]:
        for found in link.finditer(text_of(path)):
            target = (path.parent / found["target"]).resolve()
            if target.suffix == ".ipynb" and target.parent == DOCS / "tutorials":
                target = ROOT / "notebooks" / target.name
            is_made = (
                path.parent == target.parent == DOCS / "benchmarks"
                or target.parent == BENCHMARK_PICTURES
            )
            assert is_made or target.exists(), (
                f"{path.relative_to(ROOT)} links to {found['target']}"
            )


def way_of_select_measure() -> str:
    page = (ROOT / "docs" / "developer" / "design-principles.md").read_text(encoding="utf-8")
    return page.partition("## One method, from data to interval")[2].partition("\n## ")[0]


def test_a_reader_of_select_measure_is_led_from_data_to_interval_by_about_ten_files():
    """Each file of the two lists exists, and the file before it, or the one said, imports what it is reached by."""
    step = re.compile(r"^(\d+)\. `([\w/]+)\.py`(?:, by `(\w+)`(?: \((\d+)\))?)?: \S", re.MULTILINE)
    found = [
        (int(number), "bayesprivmrf." + path.replace("/", "."), *how)
        for number, path, *how in step.findall(way_of_select_measure())
    ]
    assert len(found) == 20
    for route in (found[:11], found[11:]):
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
    found = re.findall(
        r"^- `([\w/]+)\.py`: .*?`(\w+)(?:\(.*\))?`", way_of_select_measure(), re.MULTILINE
    )
    assert len(found) == 5
    for path, name in found:
        assert defines(importlib.import_module("bayesprivmrf." + path.replace("/", ".")), name)


def test_what_stands_beside_the_way_is_told_of_on_the_way():
    """Whoever reads on without a file beside the way was told by a file on it what the other one does."""
    way = way_of_select_measure()
    told = re.findall(
        r"^- `([\w/]+)\.py`, (?:named|described) in `([\w/]+)\.py`: \S", way, re.MULTILINE
    )
    assert len(told) == way.count("named in") + way.count("described in") > 5
    for beside, on in told:
        assert f". `{on}.py`" in way, f"{on} is not on the way"
        assert f". `{beside}.py`" not in way, f"{beside} is on the way"
        name = "bayesprivmrf." + beside.replace("/", ".")
        importlib.import_module(name)
        short = name.removeprefix("bayesprivmrf.mechanisms.")  # within the folder of the mechanisms
        assert short in (
            importlib.import_module("bayesprivmrf." + on.replace("/", ".")).__doc__ or ""
        )


def test_a_privacy_reviewer_is_told_of_every_mechanism_its_file_and_its_folder():
    page = (ROOT / "docs" / "developer" / "design-principles.md").read_text(encoding="utf-8")
    section = page.partition("## What a privacy reviewer reads")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    told = set()
    for names, files, folders, proof in rows:
        told.update(re.findall(r"`(\w+)`", names))
        own = re.findall(r"`([\w./]+)`", files)
        assert own
        assert all((ROOT / "bayesprivmrf" / "mechanisms" / file).is_file() for file in own), files
        assert all(
            (ROOT / "bayesprivmrf" / at).is_dir() for at in re.findall(r"`([\w/]+)`", folders)
        ), folders
        assert "](../" in proof
    public = {
        name for name in mechanisms.__all__ if issubclass_of_mechanism(getattr(mechanisms, name))
    }
    assert told == public - {
        "Mechanism",
        "StatisticsMechanism",
        "ExactStatistics",
    }  # bases; one that protects nobody


def test_pages_that_the_code_names_exist():
    """Comments, docstrings and messages send readers to pages; no page may move without them."""
    named = re.compile(r"\b(?:docs|notebooks)/[\w/-]+\.(?:md|ipynb)\b")
    sources = [
        path for folder in ("bayesprivmrf", "benchmarks") for path in (ROOT / folder).rglob("*.py")
    ]
    for path in [*sources, *ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / ".ci" / "run"]:
        for page in named.findall(path.read_text(encoding="utf-8")):
            made = page.startswith("docs/benchmarks/")  # by the build
            assert made or (ROOT / page).exists(), f"{path.relative_to(ROOT)} names {page}"


def test_modules_that_the_explanations_name_exist():
    """Proofs and constants are looked up where the pages say they are."""
    named = re.compile(r"`(bayesprivmrf(?:\.[a-z_]+)+)`")
    for path in (DOCS / "explanation").glob("*.md"):
        for module in named.findall(path.read_text(encoding="utf-8")):
            parent, name = module.rsplit(".", 1)
            spec = importlib.util.find_spec(module) or hasattr(
                importlib.import_module(parent), name
            )
            assert spec, f"{path.name} names {module}"


def issubclass_of_mechanism(held) -> bool:
    return isinstance(held, type) and issubclass(held, mechanisms.Mechanism)


def test_the_layers_are_those_of_the_import_contract():
    page = (ROOT / "docs" / "developer" / "design-principles.md").read_text(encoding="utf-8")
    told = re.search(r"Imports point one way: (.*?)\.\s", page, re.DOTALL)
    assert told is not None
    layers = [set(re.findall(r"`(\w+)`", layer)) for layer in told[1].split("→")]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    (held,) = [
        contract["layers"] for contract in contracts if contract["name"] == "Imports point one way"
    ]
    assert layers == [
        {name.strip().removeprefix("bayesprivmrf.") for name in layer.split(":")} for layer in held
    ]


def defines(module, name: str) -> bool:
    tree = ast.parse(inspect.getsource(module))
    targets = [
        target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets
    ]
    return name in {
        getattr(node, "name", getattr(node, "id", None)) for node in (*tree.body, *targets)
    }


def split(path: str) -> tuple[str, str]:
    module, _, name = path.rpartition(".")
    return module, name


@cache
def listed() -> list[tuple[str, str]]:
    """Modules and names that the reference lists."""
    return [split(path) for path in names_listed(ROOT) if not is_module(*split(path))]


@cache
def shown() -> dict[str, str]:
    """Names that the reference shows, listed, beside another or as one of a module, and where each is taken from."""
    beside = [split(path) for names in names_beside(ROOT).values() for path in names]
    whole = [path for path in names_listed(ROOT) if is_module(*split(path))]
    own = [(module, name) for module in whole for name in importlib.import_module(module).__all__]
    return {name: module for module, name in [*listed(), *beside, *own]}


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
        elif (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").partition(".")[0] == "bayesprivmrf"
        ):
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
    assert {name for _, name in names_used(code)} == {
        "IsingNetwork",
        "table",
        "lengths",
        "CGM",
        "Adjacency",
    }


def cells_of(path: Path, kind: str) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == kind)


def text_of(path: Path) -> str:
    return (
        cells_of(path, "markdown") if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
    )


def code_of(path: Path) -> str:
    if path.suffix == ".ipynb":
        return cells_of(path, "code")
    return "\n".join(block.text for block in blocks(path) if block.kind in CODE)


@pytest.mark.parametrize(
    "path", [*GUIDES, *NOTEBOOKS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_name_that_a_guide_uses_is_in_the_reference(path):
    """So whoever follows a guide uses what is public: what the reference does not show may change without notice."""
    on_pages = shown()
    code = re.sub(r"^[%!].*$", "", code_of(path), flags=re.MULTILINE)  # a notebook's commands
    for module, name in sorted(names_used(code)):
        assert name in on_pages, f"the reference does not show {module}.{name}"
        public = getattr(importlib.import_module(on_pages[name]), name)
        assert getattr(importlib.import_module(module), name) is public


def test_the_reference_lists_names_that_exist_each_once_and_few():
    names = [split(path) for path in names_listed(ROOT)]
    assert 60 < len(names) <= GOALS["public names"]
    assert len({name for _, name in names}) == len(names)
    for module, name in names:
        held = getattr(importlib.import_module(module), name)
        first = (inspect.getdoc(held) or "").partition("\n")[0]
        assert len(first) > 10, f"the list would say nothing of {module}.{name}"


def test_names_beside_another_exist_and_are_not_listed():
    pages = names_beside(ROOT)
    beside = [split(path) for names in pages.values() for path in names]
    assert set(pages) <= set(names_listed(ROOT))
    assert not {name for _, name in beside} & {name for _, name in listed()}
    assert len({name for _, name in beside}) == len(beside)
    for module, name in beside:
        assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"


WITHOUT_EXAMPLE = {
    "Adjacency",
    "Gaussian",
    "Laplace",
    "LearnedIsing",
    "LearnedMonomials",
    "LearnedPairwise",
    "LearnedPotentials",
    "Ledger",
    "Measurement",
    "Mechanism",
    "ModelSpecification",
    "NaiveMLE",
    "NetworkEstimate",
    "NoiseDistribution",
    "NoisyStatistics",
    "Posterior",
    "Query",
    "Released",
    "ReleasedGraph",
    "ReleasedParities",
    "SelectMeasure",
    "Solution",
    "StatisticsMechanism",
}  # classes whose page has no example yet; may only become fewer


def test_the_page_of_a_class_shows_an_example():
    classes = [
        (module, name, getattr(importlib.import_module(module), name)) for module, name in listed()
    ]
    lacking = {
        name
        for _, name, held in classes
        if isinstance(held, type) and "\nExamples\n----" not in (inspect.getdoc(held) or "")
    }
    assert lacking <= WITHOUT_EXAMPLE


def test_what_examples_take_from_the_package_is_there_after_an_import_of_it_alone():
    """A room that another import has opened is an attribute too, so that an example runs here and not elsewhere."""
    texts = [*GUIDES, *(ROOT / "bayesprivmrf").rglob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]
    taken = {
        name for path in texts for name in re.findall(r"\bbpm\.([A-Za-z]\w*)", path.read_text())
    }
    assert len(taken) > 20
    # without `hasattr`, which opens rooms
    script = f"import bayesprivmrf as bpm; print({taken} - {{*dir(bpm), *vars(bpm)}})"
    lacking = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert lacking.stdout.strip() == "set()"
