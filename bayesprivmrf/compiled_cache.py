"""Cache folder for compiled code where the installation and the home directory are read-only.

numba keeps compiled functions in ``__pycache__`` beside the sources, or in the user's cache folder. Where neither is
writable, as in many containers and services, numba refuses to define the functions at all. Compiled code then goes
to a private temporary folder for as long as the process runs.

numba executes the files of this folder. Other users who can write to it could run code in this process. The temporary
folder therefore belongs to the user alone, and a folder named by ``NUMBA_CACHE_DIR`` should too.

A file that was cut short, by a full disk or a killed process, makes numba fail with an error of `pickle` that names
no file. `mend_damaged_cache` makes numba forget such files of this package and compile anew.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import warnings
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from bayesprivmrf.errors import BayesPrivMRFError

# variable of the environment by which numba finds its cache, and its module that decides where to write
_VARIABLE = "NUMBA_CACHE_DIR"
_CACHING = "numba.core.caching"  # what is imported after this module
# Seconds of compiling after which a person who waits is told the reason
_SILENT = 1.0


def ensure_cache_folder() -> None:
    """Choose a temporary folder for compiled code if numba would find none; call this before importing numba.

    Warns
    -----
    RuntimeWarning
        Compiled code is lost when the process ends, or its folder is writable by other users.
    """
    if named := os.environ.get(_VARIABLE):
        if _is_open_to_others(Path(named)):
            warnings.warn(
                f"the folder that {_VARIABLE} names can be written by other users, who could run code in this "
                "process; name a private one.",
                RuntimeWarning,
                stacklevel=3,
            )
        return
    if os.access(Path(__file__).parent, os.W_OK) or _can_be_written(_user_cache() / "numba"):
        return
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="bayesprivmrf-")  # of mode 0700
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[_VARIABLE] = folder
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = folder
    warnings.warn(
        "neither the installation nor the user's cache folder can be written, so compiled code is lost when this "
        f"process ends, and each process compiles again; set {_VARIABLE} to a private folder that you can write.",
        RuntimeWarning,
        stacklevel=3,
    )


def mend_damaged_cache() -> None:
    """Let this package's functions be compiled anew where their kept code cannot be read.

    numba is changed when it is imported, because its import takes longer than that of this package. Functions of
    other packages are loaded as before.
    """
    if _CACHING in sys.modules:
        _mend(sys.modules[_CACHING])
    else:
        sys.meta_path.insert(0, _WhenImported())


class _WhenImported(MetaPathFinder):
    """A finder that waits for numba's module of caches and changes it."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != _CACHING:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_mend(module: Any) -> None:
                execute(module)
                _mend(module)

            spec.loader.exec_module = execute_and_mend
        return spec


def _mend(caching: Any) -> None:
    load = caching.Cache._load_overload

    def load_or_forget(self: Any, *given: Any) -> Any:
        try:
            return load(self, *given)
        except Exception as error:
            if isinstance(error, MemoryError) or not self._py_func.__module__.startswith(f"{__package__}."):
                raise
            try:
                self.flush()
            except OSError:
                raise BayesPrivMRFError(
                    f"compiled code that is kept in {self.cache_path!r} is damaged and cannot be replaced; delete "
                    f"the folder, or set {_VARIABLE} to a private one that you can write."
                ) from error
            return None  # as if nothing were kept: numba compiles the function and keeps it

    caching.Cache._load_overload = load_or_forget


def building(seconds: int) -> str:
    """Return the remark that something is compiled, and how long it takes."""
    return f"building the engines once (about {seconds} s on two free cores, a few minutes on a busy machine) ..."


def is_watched() -> bool:
    """Return True if somebody could see remarks and progress bars: at a terminal, or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@cache
def announce_compiling() -> None:
    """Let numba's compiling of this package be announced on standard error, once a process, where somebody watches.

    What numba loads from its cache is not compiled, and is not announced.
    """
    from numba.core import event

    class Listener(event.Listener):
        begin = spent = 0.0
        is_told = False

        def on_start(self, event: Any) -> None:
            self.begin = time.perf_counter()

        def on_end(self, event: Any) -> None:
            if self.is_told or not event.data["module"].startswith("bayesprivmrf."):
                return
            self.spent += time.perf_counter() - self.begin
            if self.spent > _SILENT:
                self.is_told = True
                if is_watched():
                    print(building(30), file=sys.stderr)

    event.register("numba:run_pass", Listener())


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())


def _can_be_written(folder: Path) -> bool:
    """Return True if a file can be created in a folder; permissions do not decide this on every file system."""
    from tempfile import TemporaryFile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _is_open_to_others(folder: Path) -> bool:
    return os.name == "posix" and folder.is_dir() and bool(folder.stat().st_mode & 0o022)
