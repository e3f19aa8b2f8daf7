"""Cache folder of compiled code: read-only installations, and the announcement of compiling.

numba keeps compiled functions in ``__pycache__`` beside the sources, or in the user's cache folder. If both are
read-only, as in many containers and services, numba refuses to define the functions. Compiled code then goes to a
private temporary folder for as long as the process runs.

numba executes the files of this folder, so that users who can write to it could run code in this process. The
temporary folder therefore belongs to the user alone, and so should a folder named by ``NUMBA_CACHE_DIR``.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

# Environment variable that names numba's cache folder
_VARIABLE = "NUMBA_CACHE_DIR"


def ensure_cache_folder() -> None:
    """Choose a temporary folder for compiled code if numba cannot write to any; call this before importing numba.

    Warns
    -----
    RuntimeWarning
        Compiled code is lost when the process ends, or other users can write to its folder.
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
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    if os.access(Path(__file__).parent, os.W_OK) or _can_be_written(user_cache / "numba"):
        return
    import atexit
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="bayesprivmrf-")  # only the user can read it
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


def is_watched() -> bool:
    """Return True at a terminal and in a notebook, where somebody can see remarks and progress bars."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@cache
def announce_compiling(silent: float = 1.0) -> None:
    """Announce on standard error, once in a process, that numba compiles functions of this package.

    Functions that numba loads from its cache are not announced, and nor are the first `silent` seconds, which need no
    explanation. Nothing is written unless `is_watched`.
    """
    from numba.core import event

    class Listener(event.Listener):
        begin = spent = 0.0
        is_announced = False

        def on_start(self, event: Any) -> None:
            self.begin = time.perf_counter()

        def on_end(self, event: Any) -> None:
            if self.is_announced or not event.data["module"].startswith("bayesprivmrf."):
                return
            self.spent += time.perf_counter() - self.begin
            if self.spent > silent:
                self.is_announced = True
                if is_watched():
                    time_needed = "about 30 s on a free core, a few minutes on a busy machine"
                    print(f"building the engines once ({time_needed}) ...", file=sys.stderr)

    event.register("numba:run_pass", Listener())


def _can_be_written(folder: Path) -> bool:
    """Return True if a file can be created in a folder, which not every file system's permissions show."""
    from tempfile import TemporaryFile

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _is_open_to_others(folder: Path) -> bool:
    return os.name == "posix" and folder.is_dir() and bool(folder.stat().st_mode & 0o022)
