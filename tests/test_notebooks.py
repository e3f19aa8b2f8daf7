"""The notebooks run as they are stored."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LEARNING = "04_learning_interactions.ipynb"
PEERS = "03_network_peer_effects.ipynb"
GIVEN = "05_given_tables.ipynb"
SLOW = {
    "01_declare_release_infer.ipynb",
    "02_posterior.ipynb",
    PEERS,
    LEARNING,
    GIVEN,
    "06_sequences.ipynb",
}  # up to half a minute each
OWN_DATA = {PEERS, LEARNING}  # their data do not ship
MACHINE_PATH = re.compile(
    r"(?<![\w:/.])/(home|mnt|opt|private|root|tmp|usr|Users|var|work)/|[A-Z]:\\|site-packages|ipykernel"
)
BLOGS = "shared/data/polblogs/polblogs.gml"
ADULT = "shared/data/adult/adult.csv"
SHORTER_CHAINS = """\
import inspect
from bayesprivmrf.inference import LatentCounts
inspect.unwrap(LatentCounts.fit).__kwdefaults__.update(draws=200, tune=100)
del inspect, LatentCounts
"""
FILES = ("POLBLOGS_GML", "ADULT_CSV")


def code_cells(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def data_file(variable: str, place: str) -> Path | None:
    places = [Path(os.environ.get(variable, "")), *(folder / place for folder in Path(__file__).parents)]
    return next((path for path in places if path.is_file()), None)


def blogs_file() -> Path | None:
    return data_file("POLBLOGS_GML", BLOGS)


def test_the_notebooks_are_found():
    names = {path.name for path in NOTEBOOKS}
    assert names >= {"01_declare_release_infer.ipynb", "02_posterior.ipynb", *OWN_DATA}
    for page in ("README.md", "notebooks/README.md"):
        assert set(re.findall(r"(\w+\.ipynb)\)", (ROOT / page).read_text(encoding="utf-8"))) == names, page


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_stored_outputs_are_of_one_run_and_name_no_place_on_a_machine(path):
    code = code_cells(path)
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    assert not [output for output in outputs if output.output_type == "error"]
    texts = [str(output.get("text", "")) for output in outputs]
    texts += [
        str(text)
        for output in outputs
        for kind, text in output.get("data", {}).items()
        if kind[:5] == "text/"
    ]
    assert not [found[0] for text in texts if (found := MACHINE_PATH.search(text))]
    if path.name in OWN_DATA:
        assert not [text for text in texts if "MADE-UP" in text or "SIMULATED" in text]


@pytest.mark.parametrize(
    ("text", "is_place"),
    [
        ("/tmp/ipykernel_71/3.py:2: Warning", True),
        ('File "/home/ann/x.py"', True),
        ("C:\\Users\\ann", True),
        ("1/(1 + e)", False),
        ("https://example.org/home/x", False),
        ("epsilon/tmp/2", False),
    ],
)
def test_a_place_on_a_machine_is_recognised(text, is_place):
    assert bool(MACHINE_PATH.search(text)) is is_place


def executed(path, folder, monkeypatch):
    """Outputs of a run, in which posteriors keep a quarter of the draws where a notebook names no number."""
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")  # another library's notices at import
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    startup = folder / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "shorter_chains.py").write_text(SHORTER_CHAINS, encoding="utf-8")
    monkeypatch.setenv("NOTEBOOK_QUICK", "1")
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}})
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    assert not [output for output in outputs if output.output_type == "error"]
    return outputs


@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client.*")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.slow] if path.name in SLOW else []) for path in NOTEBOOKS],
    ids=lambda path: path.name,
)
def test_a_notebook_runs_and_shows_its_pictures(path, tmp_path, monkeypatch):
    for variable in FILES:
        monkeypatch.delenv(variable, raising=False)
    texts = [str(output.get("text", "")) for output in executed(path, tmp_path, monkeypatch)]
    assert any("MADE-UP" in text for text in texts) is (path.name in OWN_DATA)
    sentences = [
        line
        for text in texts
        for line in text.splitlines()
        if "satisfies" in line and " privacy  " not in line
    ]
    if path.name in OWN_DATA:  # what one could publish is marked
        assert sentences
        assert all(line.startswith("MADE-UP data: ") for line in sentences)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client.*")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.skipif(blogs_file() is None, reason="the blogs' GML does not ship")
def test_the_notebook_on_one_network_runs_on_the_blogs(tmp_path, monkeypatch):
    monkeypatch.setenv("POLBLOGS_GML", str(blogs_file()))
    outputs = executed(ROOT / "notebooks" / PEERS, tmp_path, monkeypatch)
    texts = [str(output.get("text", "")) for output in outputs]
    assert any("IsingNetwork(815 nodes, 2345 edges" in text for text in texts)
    assert any("no guarantee: 2.850" in text for text in texts)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:jupyter_client.*")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.skipif(data_file("ADULT_CSV", ADULT) is None, reason="the records of Adult do not ship")
def test_the_notebook_on_learning_runs_on_adult(tmp_path, monkeypatch):
    monkeypatch.setenv("ADULT_CSV", str(data_file("ADULT_CSV", ADULT)))
    outputs = executed(ROOT / "notebooks" / LEARNING, tmp_path, monkeypatch)
    texts = [str(output.get("text", "")) for output in outputs]
    assert not [text for text in texts if "MADE-UP" in text or "SIMULATED" in text]
    assert any("13 questions, of 2 to 100 answers" in text for text in texts)
    assert any("status converged" in text for text in texts)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 5
