"""Atomic writing of files, which appear complete or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced_when_whole(path: Path) -> Iterator[Path]:
    """Yield a new file beside a path, and move it there when the block ends without an error.

    The file is created exclusively under a random name, so that a link which somebody planted in the folder is not
    followed.
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
    # The mask can only be read by setting it. Meanwhile, files of other threads are readable by their owner alone.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
