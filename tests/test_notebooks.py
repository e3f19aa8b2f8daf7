"""The notebooks as they are stored; the build of the site runs them, and a cell that fails stops the build."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NAMES = [
    "01_first_release",
    "02_posterior",
    "03_learning_a_model",
    "04_given_tables",
    "05_panels_and_chains",
    "06_event_logs",
    "07_questionnaires",
    "08_peer_effects",
    "09_a_table_in_a_paper",
    "10_rounded_tables",
]
MACHINE_PATH = re.compile(
    r"(?<![\w:/.])/(home|mnt|opt|private|root|tmp|usr|Users|var|work)/|[A-Z]:\\|site-packages|ipykernel"
)


def code_cells(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebooks_are_those_that_the_pages_name():
    assert [path.stem for path in NOTEBOOKS] == NAMES
    page = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\w+)\.ipynb\)", page) == NAMES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_opens_with_its_title_and_needs_no_file_of_the_reader(path):
    """Its data are shipped, packaged in a dependency, or simulated."""
    notebook = nbformat.read(path, as_version=4)
    assert re.match(r"# \S", notebook.cells[0].source)
    code = "\n".join(cell.source for cell in code_cells(path))
    assert "environ" not in code
    assert "shared/data" not in code


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_stored_outputs_are_of_one_run_and_name_no_place_on_a_machine(path):
    code = code_cells(path)
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    assert not [output for output in outputs if output.output_type == "error"]
    texts = [str(output.get("text", "")) for output in outputs]
    assert not [
        text for text in texts if re.search(r"\w+Warning: ", text)
    ]  # the site would not show it
    texts += [
        str(text)
        for output in outputs
        for kind, text in output.get("data", {}).items()
        if kind[:5] == "text/"
    ]
    assert not [found[0] for text in texts if (found := MACHINE_PATH.search(text))]


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
