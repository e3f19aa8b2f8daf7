"""Compiled functions are kept under a key that changes with every source that they reach."""

import os
import subprocess
import sys
import types

import numpy as np
import pytest
from numba import njit

from bayesprivmrf.compiled import INNER, EntryCompiler, Part, checksum, kept


def module(folder, name, text):
    """Execute a source file as a module of the package."""
    path = folder / f"{name}.py"
    path.write_text(text)
    made = types.ModuleType(f"bayesprivmrf.{name}")
    made.__file__ = str(path)
    sys.modules[made.__name__] = made
    exec(compile(text, str(path), "exec"), made.__dict__)
    return made


@pytest.fixture
def checksum_with(tmp_path, monkeypatch):
    """Return the checksum of a function that calls into a second file, whose text and constant are given."""

    def found(step, constant):
        folder = tmp_path / f"{step}{constant}".replace(" ", "_").replace("*", "x").replace(
            "+", "p"
        )
        folder.mkdir()
        for name in ("toy_inner", "toy_outer"):
            monkeypatch.setitem(sys.modules, f"bayesprivmrf.{name}", None)
        module(
            folder,
            "toy_inner",
            f"from numba import njit\n@njit\ndef inner(x):\n    return {step}\n",
        )
        outer = (
            "from bayesprivmrf.toy_inner import inner\ndef outer(x):\n    return inner(x) + LIMIT\n"
        )
        made = module(folder, "toy_outer", outer)
        made.LIMIT = constant
        return checksum(made.outer)

    return found


def test_the_key_changes_with_a_file_that_is_called_and_with_an_imported_constant(checksum_with):
    same, edited, other = (
        checksum_with("x + 1", 2),
        checksum_with("x + 3", 2),
        checksum_with("x  + 1", 5),
    )
    assert len({same, edited, other}) == 3


@kept()
def _summed(values):
    total = 0.0
    for value in values:
        total += value
    return total


def test_a_kept_function_compiles_and_answers_as_its_source_does():
    values = np.array([0.5, 2.0, -4.0])
    assert _summed(values) == _summed.py_func(values) == -1.5
    assert _summed.__name__ == "_summed"


def test_a_function_that_closes_over_variables_is_refused():
    offset = 3.0
    with pytest.raises(TypeError, match="must not close over variables"):
        kept()(lambda x: x + offset)


def test_functions_inside_an_entry_point_are_linked_and_optimized_as_part_of_it():
    @njit(**INNER)
    def inner(x):
        if x < 0.0:
            raise ValueError("a negative number")
        return 2.0 * x

    @njit
    def used_by_python(x):
        return inner(x) + 1.0

    @njit(pipeline_class=EntryCompiler)
    def entry(x):
        return used_by_python(inner(x))

    assert entry(3.0) == 13.0
    with pytest.raises(ValueError, match="a negative number"):
        entry(-3.0)
    (part,), (callable_part,) = (
        [result.library for result in function.overloads.values()]
        for function in (inner, used_by_python)
    )
    assert isinstance(part, Part)
    assert not part.is_loaded
    # a function that Python calls as well has machine code of its own
    assert isinstance(callable_part, Part)
    assert callable_part.is_loaded
    assert used_by_python(3.0) == 7.0
    # functions that are compiled afterwards, by numba's own compiler, can call both
    assert njit(lambda x: used_by_python(x) + inner(x))(3.0) == 13.0


@pytest.mark.slow
def test_the_import_of_every_module_compiles_nothing(tmp_path):
    """Engines compile where they are first called: listing tests, and programs that only read files, are quick."""
    script = (
        "import importlib, pkgutil, bayesprivmrf, numba.core.event as event\n"
        "with event.install_recorder('numba:compile') as compiled:\n"
        "    for module in pkgutil.walk_packages(bayesprivmrf.__path__, 'bayesprivmrf.'):\n"
        "        importlib.import_module(module.name)\n"
        "assert not compiled.buffer, compiled.buffer[0]\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert not list(tmp_path.rglob("*.nbi"))  # nor is anything kept
