"""Compiled functions are kept under a key that changes with every source that they reach."""

import os
import subprocess
import sys
import types

import numpy as np
import pytest

from bayesprivmrf.compiled import checksum, kept


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
        folder = tmp_path / f"{step}{constant}".replace(" ", "_").replace("*", "x").replace("+", "p")
        folder.mkdir()
        for name in ("toy_inner", "toy_outer"):
            monkeypatch.setitem(sys.modules, f"bayesprivmrf.{name}", None)
        module(folder, "toy_inner", f"from numba import njit\n@njit\ndef inner(x):\n    return {step}\n")
        outer = "from bayesprivmrf.toy_inner import inner\ndef outer(x):\n    return inner(x) + LIMIT\n"
        made = module(folder, "toy_outer", outer)
        made.LIMIT = constant
        return checksum(made.outer)

    return found


def test_the_key_changes_with_a_file_that_is_called_and_with_an_imported_constant(checksum_with):
    same, edited, other = checksum_with("x + 1", 2), checksum_with("x + 3", 2), checksum_with("x  + 1", 5)
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
