"""Folders of Parquet files, with columns that the names of their subfolders hold, such as ``year=2020/part.parquet``.

Hive, Spark, DuckDB and Polars write such folders. A column of a folder is text, or it is whole numbers where its
declared states are. Its type never depends on the names that are found: otherwise one record in a folder such as
``area=unknown`` would turn the codes of all others into text. For the same reason a column has one kind of values in
all files: Arrow converts every file to the types of the first one, and would read the numbers of the others as text.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesprivmrf.checks import require
from bayesprivmrf.errors import DataError

if TYPE_CHECKING:
    import pyarrow.dataset


def folder_dataset(
    folder: str | os.PathLike[str], whole: Collection[Hashable] = ()
) -> pyarrow.dataset.FileSystemDataset:
    """Return the Arrow data set of a folder of Parquet files, with the columns that its subfolders hold.

    A column that stands in the files as well is read from them.

    Parameters
    ----------
    folder
        The folder, with Parquet files at any depth.
    whole
        Names of the columns whose declared states are whole numbers; other columns of subfolders are text.

    Raises
    ------
    DataError
        The folder has no files.
    """
    import pyarrow as pa
    import pyarrow.dataset

    root = os.path.abspath(folder)
    parts = list(pyarrow.dataset.dataset(root, format="parquet").get_fragments())
    remedy = "check that the path leads to them"
    require(parts, "a folder of data", "contain Parquet files", "none", remedy, error=DataError)
    held: set[str] = set()
    named: set[str] = set()
    for part in parts:
        held.update(part.physical_schema.names)
        steps = Path(part.path).relative_to(root).parent.parts
        named.update(step.partition("=")[0] for step in steps if "=" in step)
    numbers = set(map(str, whole))
    fields = [
        (name, pa.int64() if name in numbers else pa.string()) for name in sorted(named - held)
    ]
    if fields:
        columns = pyarrow.dataset.partitioning(pa.schema(fields), flavor="hive")
    else:
        columns = None
    return pyarrow.dataset.dataset(root, format="parquet", partitioning=columns)


def require_alike(
    dataset: pyarrow.dataset.Dataset, wanted: Collection[Hashable] | None = None
) -> None:
    """Raise an error unless every part of an Arrow data set has the wanted columns, with one kind of values.

    Parameters
    ----------
    dataset
        The data set.
    wanted
        Names of the columns that will be read; all by default.

    Raises
    ------
    DataError
        A part lacks a column, which Arrow would read as missing values; or the kinds of values differ.
    """
    import pyarrow.dataset

    if wanted is None:
        among = None
    else:
        among = set(map(str, wanted))
    kinds: dict[str, list[str | None]] = {}
    parts = _parts(dataset)
    for part in parts:
        own: dict[str, str | None] = dict.fromkeys(
            pyarrow.dataset.get_partition_keys(part.partition_expression)
        )
        own |= {field.name: _kind(field.type) for field in part.physical_schema}
        for name, kind in own.items():
            kinds.setdefault(name, []).append(kind)
    for name in sorted(kinds if among is None else among & kinds.keys()):
        must = f"have the column {name!r}, which another part has"
        what = "every part of the data"
        remedy = (
            "write it in each file, or name every subfolder like the others (such as year=2020)"
        )
        require(
            len(kinds[name]) == len(parts), what, must, "one without it", remedy, error=DataError
        )
        must = f"have one kind of values in the column {name!r}"
        remedy = "write all files with the same types"
        require(len({*kinds[name]} - {None}) < 2, what, must, "several", remedy, error=DataError)


def _parts(dataset: pyarrow.dataset.Dataset) -> list[pyarrow.dataset.Fragment]:
    """Return the parts of a data set; none of a filtered one in memory, which has one schema."""
    import pyarrow.dataset

    try:
        return list(dataset.get_fragments())
    except ValueError:  # Arrow lists no parts of a filtered data set, so its files are opened again
        if not isinstance(dataset, pyarrow.dataset.FileSystemDataset):
            return []
    again = pyarrow.dataset.dataset(
        dataset.files,
        filesystem=dataset.filesystem,
        format=dataset.format,
        partitioning=dataset.partitioning,
    )
    return list(again.get_fragments())


def _kind(dtype: Any) -> str | None:
    """Return the kind of values of an Arrow type; None for a column of missing values alone, which fits any."""
    from pyarrow import types

    if types.is_dictionary(dtype):
        dtype = dtype.value_type
    if types.is_null(dtype):
        return None
    # Arrow converts these to each other without rounding, or fails; it rounds to narrower floats and to decimals
    if types.is_integer(dtype) or types.is_float64(dtype):
        return "number"
    if types.is_string(dtype) or types.is_large_string(dtype):
        return "text"
    return str(dtype)
