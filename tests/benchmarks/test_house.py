"""The counts of `benchmarks/house.py`, on a made-up package of three files."""

import importlib.util
import sys
import textwrap
from pathlib import Path

import pytest

_PATH = Path(__file__).parents[2] / "benchmarks" / "house.py"
_SPEC = importlib.util.spec_from_file_location("house", _PATH)
house = importlib.util.module_from_spec(_SPEC)
sys.modules["house"] = house  # a dataclass looks its module up
_SPEC.loader.exec_module(house)

FILES = {
    "bayesprivmrf/__init__.py": "",
    "bayesprivmrf/one.py": '''
        """A file."""

        from __future__ import annotations

        from typing import TYPE_CHECKING

        if TYPE_CHECKING:
            from .inner.two import Other

        __all__ = ["Own", "add"]

        FIRST = 1.5  # told on its line
        # told above
        SECOND = 2
        THIRD = [3]
        """Told below."""

        FOURTH = 4
        _FIFTH = "text"
        SIXTH, SEVENTH = 6, 7  # in a row with another
        lower = 8


        class Own:
            """A class."""


        def add(a: Own, b: Other) -> int:
            """Return a sum.

            Of two numbers.
            """
            from bayesprivmrf.inner import two

            # alone on its line
            return two.join(a) if isinstance(a, Own) else isinstance(b, (int, str))
        ''',
    "bayesprivmrf/inner/__init__.py": "",
    "bayesprivmrf/inner/two.py": """
        import numba

        from ..one import Own


        class Other(Own):
            pass


        @numba.njit
        def join(x):
            # in a compiled function
            return x
        """,
    # in two parts, so that this file has no such call
    "tests/test_it.py": "def test(monkeypatch):\n    monkeypatch" + ".setattr(one, 'FIRST', 2)\n",
    "docs/reference/index.md": """
        # Reference

        ```{eval-rst}
        .. autosummary::
           :toctree: generated

           bayesprivmrf.one.Own
           bayesprivmrf.one.add
        ```

        ```{eval-rst}
        .. autosummary::

           bayesprivmrf.inner.two.Other
        ```
        """,
    "docs/reference/beside.toml": '"bayesprivmrf.one.Own" = ["bayesprivmrf.inner.two.join"]\n',
}


@pytest.fixture
def checkout(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
    return tmp_path


def test_each_figure_is_counted_as_the_module_says(checkout):
    found = house.counts(checkout)
    # `if TYPE_CHECKING:`, `__all__`, seven lines of constants and one text below, a class, a function and its return;
    # of the other file a class of two lines and a function of three
    assert found["code lines"] == 1 + 1 + 8 + 1 + 2 + 5
    assert found["files"] == 4
    assert (found["module constants"], found["module constants without a comment"]) == (5, 2)
    assert found["of these, numbers"] == 1
    assert found["whole-line comments per 100 code lines"] == round(100 * 3 / 18, 1)
    assert found["the same, in files with compiled functions"] == 20
    assert found["import cycles among files"] == found["without imports for the type checker"] == 1
    assert found["isinstance on own types"] == 1
    assert found["imports of own modules inside functions"] == 1
    assert found["monkeypatch.setattr in tests"] == 1
    assert found["public names on the reference pages"] == 3
    assert found["names shown on the page of another"] == 1


def test_a_figure_beyond_its_limit_is_called_missed(checkout, capsys):
    house.main(["--root", str(checkout)])
    printed = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert printed["module constants without a comment"].endswith("missed")
    assert not printed["files"].endswith("missed")
    assert set(house.MOST) - {name for name in house.MOST if "entered" in name} <= printed.keys()
