"""Release files with one value replaced, sealed again by a right checksum."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bayesprivmrf.release import file

NASTY: list[Any] = [
    None,
    True,
    -1,
    0,
    3,
    2**70,
    10**400,
    0.5,
    -1e308,
    "",
    "x",
    "nan",
    [],
    [[]],
    [None, 1],
    [[0, 1], [1, 0]],
    {},
    {"tuple": []},
    {"tuple": "ab"},
    {"name": "none", "scale": 0.0},
]


def document_and_array(path: Path) -> tuple[dict[str, Any], bytes]:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("release.json")), archive.read("tables.npy")


def write_sealed(path: Path, document: Any, array: bytes) -> None:
    """Write a file whose checksum holds, whatever it says."""
    document["sha256"] = file.checksum_of(document["content"], array)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("release.json", json.dumps(document))
        archive.writestr("tables.npy", array)


def stored(array: Any) -> bytes:
    """An array as a file holds it."""
    whole = io.BytesIO()
    np.save(whole, np.asarray(array), allow_pickle=False)
    return whole.getvalue()


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value, of long lists the first three entries."""
    if place:
        yield place
    within = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value[:3])
        if isinstance(value, list)
        else ()
    )
    for key, item in within:
        yield from places(item, (*place, key))


def edited(document: Any, place: tuple[Any, ...], new: Any) -> Any:
    """The document with another value at a place."""
    made = copy.deepcopy(document)
    holder = made
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = new
    return made
