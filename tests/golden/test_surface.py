"""What users may write and read: public names, signatures, options of commands, keys of what they print.

Where a change is meant, ``uv run python tests/golden/make_surface.py`` writes the texts anew, and their difference
goes into the same commit.
"""

import difflib
import warnings

import pytest
from golden.make_surface import FOLDER, TEXTS


def test_every_text_of_the_surface_is_kept():
    assert sorted(path.name for path in FOLDER.glob("*.txt")) == sorted(TEXTS)


@pytest.mark.parametrize("name", TEXTS)
def test_the_surface_changes_only_where_that_is_meant(name):
    kept = (FOLDER / name).read_text(encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        now = TEXTS[name]()
    lines = difflib.unified_diff(
        kept.splitlines(), now.splitlines(), "kept", "now", lineterm="", n=1
    )
    found = "\n".join(lines)
    if found:
        pytest.fail(
            f"{name} has changed:\n{found}\n\nIf that is meant, run `uv run python tests/golden/make_surface.py` and "
            "commit what it writes.",
            pytrace=False,
        )
