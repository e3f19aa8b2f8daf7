"""Compiled code is kept in a folder that the user can write and that nobody else can."""

import importlib
import importlib.util
import os
import pickle
import pkgutil
import subprocess
import sys
from types import FunctionType

import built_engines
import pytest
from numba.core.dispatcher import Dispatcher

import bayesprivmrf
from bayesprivmrf.compiled import checksum, reached_sources
from bayesprivmrf.errors import BayesPrivMRFError

PROGRAM = """
import os, stat, warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import bayesprivmrf
print(*(str(one.message) for one in said if one.category is RuntimeWarning))
folder = os.environ.get("NUMBA_CACHE_DIR")
print(folder, folder and oct(stat.S_IMODE(os.stat(folder).st_mode)))
"""


def outcome(program=PROGRAM, **environment):
    given = {
        key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"
    } | environment
    found = subprocess.run(
        [sys.executable, "-c", program], env=given, capture_output=True, text=True, check=True
    )
    return found.stdout.splitlines()


def test_nothing_is_said_or_set_where_the_installation_can_be_written():
    assert outcome() == ["", "None None"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX permissions")
def test_a_folder_that_others_can_write_is_named_as_unsafe(tmp_path):
    tmp_path.chmod(0o777)
    said, _ = outcome(NUMBA_CACHE_DIR=str(tmp_path))
    assert "NUMBA_CACHE_DIR names can be written by other users" in said
    tmp_path.chmod(0o700)
    assert outcome(NUMBA_CACHE_DIR=str(tmp_path))[0] == ""


def test_without_a_folder_to_write_compiled_code_goes_to_a_private_temporary_one(tmp_path):
    (tmp_path / "file").write_text("no folder can be made here")
    read_only = "import os; os.access = lambda *_: False\n"  # a superuser may write everywhere
    said, folder = outcome(read_only + PROGRAM, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert "set NUMBA_CACHE_DIR to a private folder" in said
    assert folder.endswith("0o700")
    assert not os.path.exists(folder.split()[0])  # it ends with the process


@pytest.fixture
def doubled(tmp_path, monkeypatch):
    """Call a kept function of a module of this package, or of another one, as a new process would."""
    import numba

    import bayesprivmrf.compiled  # noqa: F401  changes how numba loads and keeps

    folder = tmp_path / "kept"
    folder.mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(folder))
    source = tmp_path / "tiny.py"
    source.write_text(
        "from numba import njit\n@njit(cache=True)\ndef twice(x):\n    return 2 * x\n"
    )

    def call(name="bayesprivmrf.tiny"):
        spec = importlib.util.spec_from_file_location(name, source)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.twice(21), module.twice.stats

    call.folder = folder
    return call


@pytest.mark.parametrize("kind", ["nbi", "nbc"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_kept_code_that_was_cut_short_is_compiled_again_and_kept(doubled, kind, share):
    assert doubled()[0] == 42
    (kept,) = doubled.folder.rglob(f"*.{kind}")
    whole = kept.read_bytes()
    kept.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises((EOFError, pickle.UnpicklingError)):
        doubled("another_package.tiny")
    assert doubled()[0] == 42
    answer, stats = doubled()
    assert (answer, len(stats.cache_hits)) == (42, 1)


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits")
def test_on_a_full_disk_code_is_compiled_and_not_kept(doubled, monkeypatch):
    import resource

    monkeypatch.setattr(
        sys, "dont_write_bytecode", True
    )  # Python would cut its own file short as well

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            doubled("another_package.tiny")
        assert doubled()[0] == 42
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert doubled()[0] == 42


def test_code_that_names_a_class_of_an_older_version_is_compiled_again(doubled):
    doubled()
    (index,) = doubled.folder.rglob("*.nbi")
    # numba writes a version, and behind it what is kept: here a class that is not there any more
    with index.open("rb") as file:
        version = pickle.load(file)
    index.write_bytes(pickle.dumps(version) + b"cbayesprivmrf.compiled\nGone\n.")
    assert doubled()[0] == 42


def test_damaged_code_that_cannot_be_replaced_names_the_folder_and_the_remedy(doubled):
    doubled()
    (index,) = doubled.folder.rglob("*.nbi")
    index.unlink()
    index.mkdir()
    with pytest.raises(
        BayesPrivMRFError, match=f"{index.parent}.*delete the folder, or set NUMBA_CACHE_DIR"
    ):
        doubled()


def compiled_in(module, function, tmp_path, monkeypatch):
    """Compile a function in a module of the given name."""
    import numba

    path = tmp_path / "kernels.py"
    path.write_text(function)
    loader = importlib.util.spec_from_file_location(module, path)
    kernels = importlib.util.module_from_spec(loader)
    monkeypatch.setitem(sys.modules, module, kernels)
    loader.loader.exec_module(kernels)
    numba.njit(kernels.added)(1)


@pytest.mark.parametrize("is_watched", [True, False])
def test_compiling_that_takes_long_is_announced_once_where_somebody_watches(
    is_watched, monkeypatch, capsys, tmp_path
):
    from bayesprivmrf import compiled

    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    if is_watched:
        monkeypatch.setitem(sys.modules, "ipykernel", sys)  # as in a notebook
    compiled.announce_compiling.__wrapped__(silent=0.0)
    compiled_in("elsewhere", "def added(x): return x + 1", tmp_path, monkeypatch)
    assert not capsys.readouterr().err
    for number in (2, 3):
        compiled_in(
            f"bayesprivmrf.own{number}", f"def added(x): return x + {number}", tmp_path, monkeypatch
        )
    assert capsys.readouterr().err.count("once after installation") == is_watched


def compiled_functions():
    """Return the functions of each module of the package that numba compiles, with its C functions."""
    found = []
    for module in pkgutil.walk_packages(bayesprivmrf.__path__, "bayesprivmrf."):
        for name, function in vars(importlib.import_module(module.name)).items():
            # the densities are compiled for C at their first use, and are plain functions until then
            is_visit = isinstance(function, FunctionType) and name.startswith("visit_")
            if isinstance(function, Dispatcher) or is_visit:
                found.append(function)
    return found


def test_the_mark_of_the_tests_changes_with_every_file_that_compiled_code_reaches():
    reached, _ = reached_sources(*compiled_functions())
    sources = {str(path) for path in built_engines.compiled_sources()}
    assert len(reached) > 20
    assert not reached - sources


@pytest.fixture
def package_with(tmp_path, monkeypatch):
    """Return the mark of a package of three files, of which one has the given text."""

    def mark(**changed):
        texts = {
            "plain": "LIMIT = 1",
            "kernels": "from numba import njit",
            "callers": "from bayesprivmrf.compiled import kept",
        } | changed
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setattr(built_engines, "COMPILED_ELSEWHERE", ())
        monkeypatch.setattr(bayesprivmrf, "__file__", str(tmp_path / "__init__.py"))
        return built_engines.mark_file()

    return mark


def test_the_mark_of_the_tests_changes_with_compiled_files_alone(package_with):
    mark = package_with()
    assert package_with(plain="LIMIT = 2") == mark
    assert package_with(kernels="from numba import njit, types") != mark
    assert package_with(callers="from bayesprivmrf.compiled import kept, put") != mark


def test_no_checksum_is_taken_before_all_that_the_function_calls_is_defined():
    early = []
    for function in compiled_functions():
        closure = (
            function.__closure__
            if isinstance(function, FunctionType)
            else function.py_func.__closure__
        )
        if closure and closure[0].cell_contents != checksum(function):
            early.append(function.__qualname__)
    assert not early


def test_kept_code_is_compiled_again_if_a_source_in_another_file_changes():
    reached = []
    for module in pkgutil.walk_packages(bayesprivmrf.__path__, "bayesprivmrf."):
        for name, function in vars(importlib.import_module(module.name)).items():
            if not isinstance(function, Dispatcher) or function.py_func.__module__ != module.name:
                continue
            own = function.py_func
            is_kept = hasattr(function._cache, "_impl")
            if (
                not is_kept or own.__closure__
            ):  # numba sees the file itself; others are seen by the checksum
                continue
            used = [own.__globals__.get(one) for one in own.__code__.co_names]
            files = {
                one.py_func.__code__.co_filename for one in used if isinstance(one, Dispatcher)
            }
            reached += [f"{module.name}.{name}"] if files - {own.__code__.co_filename} else []
    assert not reached
