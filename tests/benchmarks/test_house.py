"""The figures of `benchmarks/house.py`, on a made-up package of a few files."""

import textwrap

import pytest

from benchmarks import house

FILES = {
    "bayesprivmrf/__init__.py": "",
    "bayesprivmrf/one.py": '''
        """A file."""

        from __future__ import annotations

        from typing import TYPE_CHECKING, Any

        if TYPE_CHECKING:
            from .inference.fits.two import Other

        FIRST = 1.5  # told on its line
        # told above
        SECOND = 2
        THIRD = [3]
        """Told below."""

        FOURTH = 4
        SIXTH, SEVENTH = 6, 7
        # told above
        EIGHTH = 8
        NINTH = 9
        lower, nothing = 8, ()
        type Row = list[int]


        class Own:
            """A class."""


        def add(a: Own, b: Other = 3, *, c=(-4, 0.5)) -> dict[str, Any]:
            """Return a sum.

            Of two numbers.
            """
            from bayesprivmrf.inference.fits import two

            # alone on its line
            return two.join(a) if b else -1
        ''',
    "bayesprivmrf/inference/__init__.py": "",
    "bayesprivmrf/inference/fits/__init__.py": "",
    "bayesprivmrf/inference/fits/two.py": """
        import numba

        from ... import one
        from ...one import Own as Base
        from ..results import three

        THIRD = one.THIRD  # the same thing
        FIRST = 9  # another
        type Row = list[int]


        class Own(Base):
            def many(self, a, b, c, d, e, f):
                def inner(a, b, c, d, e, *f, g):
                    return 5

                return inner


        @numba.njit
        def join(a, b, c, d, e, f, g):
            # in a compiled function
            return a
        """,
    "bayesprivmrf/inference/results/__init__.py": "",
    "bayesprivmrf/inference/results/three.py": "from ..fits import two\nfrom ..fits import four\n",
    "bayesprivmrf/inference/fits/four.py": "",
    "benchmarks/script.py": "a, b = 1, 2\n",
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

           bayesprivmrf.inference.fits.two.Other
        ```
        """,
    "docs/reference/beside.toml": '"bayesprivmrf.one.Own" = ["bayesprivmrf.inference.two.join"]\n',
}


@pytest.fixture
def checkout(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
    return tmp_path


@pytest.fixture
def found(checkout):
    return house.figures(checkout)


def lines_of(places):
    return [place.partition(" ")[0].removeprefix("bayesprivmrf.") for place in places]


def test_code_is_counted_without_imports_and_docstrings(found):
    # one.py: `if TYPE_CHECKING:`, seven lines of constants and a text below one, two more assignments and a type,
    # a class, a function and its return; two.py: three names, five lines of a class, three of a function
    assert found["code lines"] == (1 + 8 + 2 + 1 + 2) + (3 + 5 + 3)
    # a script has one statement: seven tokens in one line
    assert found["benchmarks: tokens"] == found["benchmarks: tokens a statement"] == 7
    assert found["benchmarks: parallel assignments in 1,000 lines"] == 1000


def test_parallel_assignments_and_conditional_expressions_are_found_where_they_stand(found):
    assert lines_of(found["parallel assignments"]) == ["one:17", "one:21"]
    assert lines_of(found["conditional expressions"]) == ["one:37"]
    assert found["parallel assignments in 1,000 lines"] == pytest.approx(2000 / found["code lines"])


def test_numbers_inside_functions_are_those_of_bodies_and_defaults_but_the_plain_ones(found):
    numbers = [place.partition(" ")[2] for place in found["numbers inside functions"]]
    assert sorted(numbers) == ["3", "4", "5"]


def test_parameters_are_counted_without_self_and_outside_compiled_functions(found):
    (place,) = found["functions with more than six parameters"]
    assert "def inner" in place
    assert lines_of(found["functions that return dict[str, Any]"]) == ["one:29"]


def test_circles_count_imports_inside_functions_and_for_types(found):
    assert found["files in the largest import circle"] == [
        "bayesprivmrf.inference.fits.two",
        "bayesprivmrf.inference.results.three",
        "bayesprivmrf.one",
    ]


def test_arrows_back_are_the_fewest_that_must_go(found):
    assert found["arrows back inside inference"] == 1  # fits to results; two point the other way
    assert found["arrows back inside other folders"] == 0


def test_a_name_of_two_modules_is_counted_unless_it_is_one_thing(found):
    assert [line.partition(":")[0] for line in found["public names of two modules"]] == [
        "FIRST",
        "Own",
    ]


def test_constants_without_a_comment_names_and_patches_are_counted(found):
    assert lines_of(found["module constants without a comment"]) == ["one:16", "one:17"]
    assert found["monkeypatch.setattr in tests"] == 1
    assert found["public names"] == 3


def test_a_figure_beyond_its_goal_is_called_missed_and_its_places_are_listed(checkout, capsys):
    house.main(["--root", str(checkout), "--list"])
    printed = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert printed["module constants without a comment"].endswith("missed")
    assert not printed["public names"].endswith("missed")
    assert house.GOALS.keys() <= printed.keys()
    assert "benchmarks: tokens" in printed
    assert "    def inner" not in printed
    house.main(["--root", str(checkout), "--list", "six"])
    assert "def inner(" in capsys.readouterr().out
