"""The rules of `docs/words.py` and `docs/check_site.py`, on made-up pages."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


def script(name: str):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


words, check_site = script("words"), script("check_site")


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("---\nfile_format: mystnb\n---\n# A title of five\n", 4),
        ("One two.\n\n```python\nx = 1 + 2\n```\n\nThree.", 3),
        ("```{code-cell} ipython3\n:tags: [hide-input]\nprint(1)\n```\nAfter it.", 2),
        ("See [the other page](other.md) and `a + b` and $x + y$.", 8),
        ("$$ x + y\n = z $$\nText.", 1),
        (
            "::::{grid} 1 2 3\n:::{grid-item-card} A card\n:link: page\n:link-type: doc\n\nIts text.\n:::\n::::",
            4,
        ),
        ("| word | meaning |\n|---|---|\n| cell | one count |\n| 1.5 | 2 % |", 5),
        ("![A picture](picture.png) below <!-- a note -->", 1),
    ],
)
def test_words_are_what_a_reader_reads(markdown, expected):
    assert words.count(markdown).words == expected


def test_sentences_end_with_paragraphs_and_list_items_and_not_with_abbreviations():
    page = words.count(
        "One is short, e.g. this one. Two!\nGoes on\n\n- an item\n- another item\n\n## No sentence\n"
    )
    assert (page.sentences, page.words_in_sentences, page.words) == (5, 13, 15)


@pytest.mark.parametrize(
    ("name", "count", "is_fault"),
    [
        ("README.md", 901, True),
        ("README.md", 900, False),
        ("docs/how-to/a.md", 1_201, True),
        ("docs/explanation/a.md", 1_201, False),
        ("docs/explanation/a.md", 2_501, True),
        ("docs/explanation/network-privacy.md", 2_501, False),
        ("docs/benchmarks/tables.md", 9_999, False),
    ],
)
def test_each_kind_of_page_has_its_limit(name, count, is_fault):
    page = words.Page(name, words.kind_of(name), count, sentences=count, words_in_sentences=count)
    assert bool(page.faults()) is is_fault


def test_long_sentences_are_a_fault():
    page = words.count("word " * 21 + "end.", "docs/explanation/a.md")
    assert page.faults() == ["22.0 words a sentence, at most 20 allowed"]


@pytest.mark.parametrize(
    ("line", "has_subject"),
    [
        ("Return the mean cost of a draw.", True),
        ("Discrete Laplace noise with a given scale.", True),
        ("Return True if too many trajectories hit the limit.", True),
        ("`grid` of the release.", True),
        ("Move what is not records, given them, and keep a draw.", False),
        ("Whether more trees reached their greatest depth than may be.", False),
        ("What each learned scale is that of.", False),
        ("They are.", False),
        ("Return what is.", False),
        ("", False),
    ],
)
def test_a_docstring_names_its_subject(line, has_subject):
    assert words.has_subject(line) is has_subject


def test_the_total_fails_above_its_limit(tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# A library\n\nOne two three.\n")
    (tmp_path / "bayesprivmrf").mkdir()
    (tmp_path / "bayesprivmrf" / "one.py").write_text('"""They are."""\n')
    assert words.main(["--root", str(tmp_path)]) == 0
    assert words.main(["--root", str(tmp_path), "--docstrings"]) == 1
    (tmp_path / "docs" / "long.md").write_text("# A page\n\n" + "one " * words.MOST_IN_ALL)
    assert words.main(["--root", str(tmp_path)]) == 1
    most = words.MOST_IN_ALL
    said = f"all pages: {most + 7:,} words, at most {most:,} allowed"
    assert said in capsys.readouterr().err


def stored_notebook(folder, *outputs):
    folder.mkdir(exist_ok=True)
    cells = [
        {"cell_type": "code", "outputs": [{"output_type": "stream", "name": name, "text": [text]}]}
        for name, text in outputs
    ]
    (folder / "01.ipynb").write_text(json.dumps({"cells": [{"cell_type": "markdown"}, *cells]}))


@pytest.mark.parametrize(
    ("old", "new", "is_alike"),
    [
        ("a 0.345 ok\n", "a 0.346 ok\n", True),
        ("total 6,361\n", "total  6,370\n", True),
        ("a 0.345 ok\n", "a 0.365 ok\n", False),
        ("a 0.345 ok\n", "a 0.345 model\n", False),
        ("a\nseconds 3.2\n", "a\nseconds 8\n", True),
        ("1 of 3\n", "1 of\n", False),
    ],
)
def test_stored_outputs_are_those_of_the_site(tmp_path, old, new, is_alike):
    stored, site = tmp_path / "stored", tmp_path / "site"
    stored_notebook(stored, ("stdout", "same"), ("stdout", old), ("stderr", "one"))
    stored_notebook(site, ("stdout", "same"), ("stdout", new), ("stderr", "other"))
    fault = "01.ipynb: the output of code cell 2 is older than the site's; run the notebook and store it"
    assert check_site.old_outputs(site, stored) == ([] if is_alike else [fault])


def test_the_repeated_last_piece_of_a_stream_is_no_difference():
    whole = {"output_type": "stream", "name": "stdout", "text": ["without 0.29\n", "with 0.22\n"]}
    piece = {"output_type": "stream", "name": "stdout", "text": ["with 0.22\n"]}
    shown = check_site.shown_text({"outputs": [whole, piece]})
    assert shown == check_site.shown_text({"outputs": [whole]}) == "without 0.29\nwith 0.22"


def test_numbers_of_another_processor_are_not_compared(tmp_path):
    stored, site = tmp_path / "stored", tmp_path / "site"
    stored_notebook(stored, ("stdout", "a 0.345 ok"), ("stdout", "b 3 ok"))
    stored_notebook(site, ("stdout", "a 0.365 ok"), ("stdout", "b 3 model"))
    assert len(check_site.old_outputs(site, stored)) == 2
    path = stored / "01.ipynb"
    notebook = json.loads(path.read_text()) | {"metadata": {"processor": "another"}}
    path.write_text(json.dumps(notebook))
    (fault,) = check_site.old_outputs(site, stored)
    assert "cell 2 " in fault


def test_a_site_is_checked_as_it_is_served(tmp_path):
    (tmp_path / "how-to").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="how-to/a.html#one">fine</a> <a href="how-to/a.html#two">none</a> <a href="gone.html">gone</a>'
        '<a href="https://example.org">elsewhere</a> <img src="_images/a.png"> lib/site-packages/a.py'
    )
    (tmp_path / "_images").mkdir()
    (tmp_path / "_images" / "a.png").touch()
    (tmp_path / "how-to" / "a.html").write_text(
        '<section id="one"></section><div class="cell docutils"><div class="cell_output"></div></div>'
        '<div class="cell docutils"></div>'
    )
    (tmp_path / "searchindex.js").write_text(
        'Search.setIndex({"docnames":["how-to/read-noisy-tables","other"],"terms":{"noisi":[0,1],"tabl":0},"titleterms":{}})'
    )
    site = check_site.Site(tmp_path)
    assert site.broken() == [
        "index.html: how-to/a.html#two has no such anchor",
        "index.html: gone.html is not there",
    ]
    assert site.pictures() == 1
    assert site.with_paths() == ["index.html: an output names a folder of the machine"]
    assert site.without_output() == ["how-to/a.html: its last code cell shows nothing"]
    pytest.importorskip("sphinx")
    assert [fault for fault in site.not_found() if "noisy" in fault] == []
    assert "search does not list guides before the reference" in site.not_found()
    assert len(site.not_found()) == len(check_site.SEARCHES)
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static" / "language_data.js").write_text(check_site.SEARCH_ORDER.read_text())
    assert len(site.not_found()) == len(check_site.SEARCHES) - 1
