"""Atomic writing of files: a file appears complete or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced_when_whole(path: Path) -> Iterator[Path]:
    """Yield a new file beside a path, and move it there when the block ends without an error.

    Its name cannot be foreseen, and it is created exclusively: no link planted in the folder is written through.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".bayesprivmrf-", suffix=path.suffix)
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, 0o666 & ~current_umask())
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def current_umask() -> int:
    """Return the mode bits that this process withholds from new files."""
    # it can only be read by setting it: to a mask that lets no other thread's file be open to all
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
