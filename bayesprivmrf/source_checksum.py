"""A checksum of sources, by which compiled functions kept on disk are told from those of an older version.

PyTensor and numba keep compiled code by the name of an operation and the version that it states, not by its body: a
version that someone forgets to raise would go on sampling yesterday's density.
"""

from __future__ import annotations

import zlib
from pathlib import Path


def checksum(*files: str, start: int = 0) -> int:
    """CRC-32 of the files' bytes, going on from `start`; a file that is not there counts as empty."""
    value = start
    for name in files:
        path = Path(name)
        value = zlib.crc32(path.read_bytes() if path.exists() else b"", value)
    return value
