"""Folders of Parquet files, with columns that the names of their subfolders hold, such as ``year=2020/part.parquet``.

Hive, Spark, DuckDB and Polars write such folders. A column of a folder is text, or it is whole numbers where its
declared states are. Its type never depends on the names that are found: otherwise one record in a folder such as
``area=unknown`` would turn the codes of all others into text.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from bayesprivmrf.checks import require
from bayesprivmrf.errors import DataError

if TYPE_CHECKING:
    import pyarrow.dataset


def folder_columns(
    folder: str | os.PathLike[str],
    wanted: Collection[Hashable] | None = None,
    whole: Collection[Hashable] = (),
) -> pyarrow.dataset.Partitioning | None:
    """Return the columns that the names of subfolders hold, after a check that every part has the wanted columns.

    A column that stands in a file as well is read from the file.

    Parameters
    ----------
    folder
        The folder, with Parquet files at any depth.
    wanted
        Names of the columns that will be read; all by default.
    whole
        Names of the columns whose declared states are whole numbers.

    Returns
    -------
    pyarrow.dataset.Partitioning
        The columns for Arrow's readers; None if subfolders hold none.

    Raises
    ------
    DataError
        The folder has no files, or one of them lacks a wanted column, which Arrow would read as missing values.
    """
    import pyarrow as pa
    import pyarrow.dataset

    root = os.path.abspath(folder)
    files: list[set[str]] = []
    folders: list[set[str]] = []
    for part in pyarrow.dataset.dataset(root, format="parquet").get_fragments():
        files.append(set(part.physical_schema.names))
        steps = Path(part.path).relative_to(root).parent.parts
        folders.append({step.partition("=")[0] for step in steps if "=" in step})
    remedy = "check that the path leads to them"
    require(files, "a folder of data", "contain Parquet files", "none", remedy, error=DataError)
    parts = [own | named for own, named in zip(files, folders, strict=True)]
    among = None if wanted is None else set(map(str, wanted))
    lacking = sorted(
        name for name in set.union(*parts) - set.intersection(*parts) if among is None or name in among
    )
    must = f"have the column {lacking[0]!r}, which another part has" if lacking else ""
    remedy = "write it in each file, or name every subfolder like the others (such as year=2020)"
    require(
        not lacking,
        "every part of a folder of Parquet files",
        must,
        "one without it",
        remedy,
        error=DataError,
    )
    names = sorted(set.union(*folders) - set.union(*files))
    numbers = set(map(str, whole))
    fields = [(name, pa.int64() if name in numbers else pa.string()) for name in names]
    return pyarrow.dataset.partitioning(pa.schema(fields), flavor="hive") if fields else None
