"""What the guides for plug-in authors say of an addition to the library itself: few files, and these are enough."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_docs import ROOT, Block, blocks

LAW, ESTIMATOR = "own-noise.md", "own-estimator.md"
MOST = {LAW: 3, ESTIMATOR: 4}

OF_THE_ROOM = {
    "from bayesprivmrf.noise import NoiseLaw": "from bayesprivmrf.noise.base import NoiseLaw",
    "import bayesprivmrf as bpm": "from bayesprivmrf.inference.naive_mle import NaiveMLE",
    "bpm.NaiveMLE": "NaiveMLE",
}
"""A guide's example takes names from the packages; inside a room modules import one another by path."""


def guide(name: str) -> list[Block]:
    return blocks(ROOT / "docs" / "developer" / name)


def of_kind(name: str, kind: str, beginning: str = "") -> str:
    (found,) = [
        one.text
        for one in guide(name)
        if one.kind == kind and one.text.lstrip().startswith(beginning)
    ]
    return found


def changed_files(name: str) -> list[str]:
    """Files of the commit that the guide shows, the new one last."""
    listed = re.findall(r"^ (bayesprivmrf/\S+) +\| ", of_kind(name, "text"), re.MULTILINE)
    return sorted(listed, key=lambda path: not (ROOT / path).exists())


def hunks(name: str) -> list[tuple[str, str, str]]:
    """Of each place that the guide's diff changes: the file, the lines as they are, and as they become."""
    found = []
    for part in re.split(r"^--- a/", of_kind(name, "diff"), flags=re.MULTILINE)[1:]:
        head, *places = re.split(r"^@@.*@@\n", part, flags=re.MULTILINE)
        for place in places:
            lines = place.splitlines()
            before = "\n".join(line[1:] for line in lines if line[:1] != "+")
            after = "\n".join(line[1:] for line in lines if line[:1] != "-")
            found.append((head.splitlines()[0], before, after))
    return found


def copy_with(name: str, folder: Path) -> None:
    """Lay out the library in a folder, by links, with the guide's commit made to it."""
    *old, new = changed_files(name)
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in old}
    for path, before, after in hunks(name):
        assert texts[path].count(before) == 1, (
            f"{path} no longer has the lines that the guide shows"
        )
        texts[path] = texts[path].replace(before, after)
    text = next(one.text for one in guide(name) if one.kind == "python")
    for outside, inside in OF_THE_ROOM.items():
        text = text.replace(outside, inside)
    texts[new] = text
    own = {folder / path for path in texts}
    rooms = {room for path in own for room in path.parents if folder in room.parents}
    for room in sorted(rooms):
        room.mkdir()
        for entry in (ROOT / room.relative_to(folder)).iterdir():
            link = room / entry.name
            if link not in own | rooms and entry.name != "__pycache__":
                link.symlink_to(entry, target_is_directory=entry.is_dir())
    for path, text in texts.items():
        (folder / path).write_text(text, encoding="utf-8")


def run(folder: Path, code: str) -> str:
    """Run a code with the library of a folder, in a process of its own."""
    said = f"import bayesprivmrf\nassert bayesprivmrf.__file__.startswith({str(folder)!r})\n"
    ended = subprocess.run(
        [sys.executable, "-c", said + code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("name", MOST)
def test_the_commit_that_a_guide_shows_touches_few_files(name):
    *old, new = changed_files(name)
    assert len(old) + 1 <= MOST[name]
    assert not (ROOT / new).exists()
    assert all((ROOT / path).is_file() for path in old)
    assert {path for path, _, _ in hunks(name)} == set(old)
    (told,) = re.findall(r"^ (\d+) files? changed", of_kind(name, "text"), re.MULTILINE)
    assert int(told) == len(old) + 1
    added = {
        path: int(lines)
        for path, lines in re.findall(r"^ (\S+) +\| +(\d+) ", of_kind(name, "text"), re.MULTILINE)
    }
    for path in old:
        lines = [
            after.count("\n") - before.count("\n")
            for each, before, after in hunks(name)
            if each == path
        ]
        assert sum(lines) == added[path]


EXAMPLE_OF_LAW = """
import math
from dataclasses import dataclass
import numpy as np
from bayesprivmrf.noise import StaircaseLaw
"""

EXAMPLE_OF_ESTIMATOR = """
import bayesprivmrf as bpm
from bayesprivmrf import TemperedMLE
"""

AT_THE_COMMAND_LINE = """
from bayesprivmrf.cli import main
release.save("one.release")
main(["fit", "one.release", "--method", "tempered"])
"""


@pytest.mark.slow
def test_these_files_are_enough_for_a_law_that_is_released_saved_and_loaded(tmp_path):
    copy_with(LAW, tmp_path)
    loaded = "\nprint(bayesprivmrf.load_release('staircase.release').noise)"
    shown = run(tmp_path, EXAMPLE_OF_LAW + of_kind(LAW, "python", "import pandas as pd") + loaded)
    assert shown.splitlines()[-1].startswith("(StaircaseLaw(")


@pytest.mark.slow
def test_these_files_are_enough_for_an_estimator_that_fits_and_has_a_name_on_the_command_line(
    tmp_path,
):
    copy_with(ESTIMATOR, tmp_path)
    example = of_kind(ESTIMATOR, "python", "import numpy as np\nimport pandas as pd")
    assert "tempered MLE" in run(tmp_path, EXAMPLE_OF_ESTIMATOR + example + AT_THE_COMMAND_LINE)
