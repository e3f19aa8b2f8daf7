"""Data frames: their columns, and the guard that withholds the error messages of their engines."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bayesprivmrf.errors import BayesPrivMRFError, DataError
from bayesprivmrf.model.domain import Variable, label_key
from bayesprivmrf.readers.text_files import repeated_error


def guarded[T](
    doing: str, read: Callable[[], T], remedy: str = "run the query behind the frame by itself to see it."
) -> T:
    """Return the result of a function that reads data, and withhold the error messages of the data's engine.

    An engine's message may quote a value, and the size of a failed allocation reveals the number of records.

    Parameters
    ----------
    doing
        Description of the function's work, such as "counting".
    read
        The function.
    remedy
        The remedy, which ends the message.

    Raises
    ------
    DataError
        The function raised an error that is not from this package; the error names its class and withholds its
        message.
    MemoryError
        Memory ran out; the message does not state the requested size.
    """
    failure: type[BaseException]
    try:
        return read()
    except (BayesPrivMRFError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of Polars or Arrow is no Exception
        failure = type(error)
    # raised outside the handler: inside it, the new exception would keep the old one and its message as context
    if issubclass(failure, MemoryError):
        raise MemoryError(f"{doing} ran out of memory")
    raise DataError(
        f"{doing} the data failed: its engine raised {failure.__name__}, whose message is withheld because it may "
        f"quote the data; {remedy}"
    )


def opened(data: Any) -> Any:
    """Return the Arrow data set of a path to Parquet, a file or a folder; other data are returned unchanged."""
    is_path = isinstance(data, str | os.PathLike)
    if not is_path or not (".parquet" in Path(data).suffixes or os.path.isdir(data)):
        return data
    import pyarrow.dataset

    remedy = "check that the path leads to Parquet files."
    return guarded("opening", lambda: pyarrow.dataset.dataset(data, format="parquet"), remedy)


def is_dataset(data: Any) -> bool:
    """Return True for an Arrow data set, whose rows are not in memory."""
    return any(one.__module__ == "pyarrow._dataset" for one in type(data).__mro__)


def frame_of(data: Any, wanted: Iterable[Hashable] | None = None) -> Any:
    """Return the data as a narwhals frame; errors are raised outside the handlers, so that they have no context.

    From an Arrow data set or a path to Parquet, only the `wanted` columns are read into memory, by default all.
    """
    import narwhals.stable.v2 as nw

    is_repeated, data = False, opened(data)
    if is_dataset(data):
        among = None if wanted is None else set(map(str, wanted))
        names = [name for name in data.schema.names if among is None or name in among]
        data = guarded("reading", lambda: data.to_table(columns=names))
    if type(data).__module__.partition(".")[0] == "dask":
        # the group-by of narwhals takes no cast of a sum for Dask
        raise DataError(
            "`data` must not be a Dask frame, which is not supported; pass `data.compute()`, or read the same files "
            "by DuckDB, Polars or PySpark."
        )
    try:
        return nw.from_native(data)
    except nw.exceptions.DuplicateError:
        is_repeated = True
    except TypeError:
        pass
    if is_repeated:
        raise repeated_error()
    raise DataError(
        "`data` must be a data frame (pandas, Polars, PyArrow, DuckDB, ...) or a path to Parquet, got "
        f"{type(data).__name__}; pandas.DataFrame(...) makes one."
    )


def in_memory(frame: Any, columns: Iterable[Any]) -> Any:
    """Return an eager narwhals frame unchanged, or the given columns of a lazy frame, collected."""
    import narwhals.stable.v2 as nw

    return frame.select(list(columns)).collect() if isinstance(frame, nw.LazyFrame) else frame


def column_names(data: Any, frame: Any) -> list[Any]:
    """Return the column names of the original frame; those of pandas may be integers, or repeat."""
    import narwhals.stable.v2 as nw

    native_columns = getattr(data, "columns", None) if isinstance(frame, nw.DataFrame) else None
    if native_columns is None:
        return frame.collect_schema().names()
    return list(native_columns) if frame.implementation.is_pandas_like() else list(frame.columns)


def match_columns(variables: Sequence[Variable], columns: Iterable[Hashable]) -> dict[Variable, Any]:
    """Return the column of each variable: the column of that name, or else the column named ``str(name)``.

    Raises
    ------
    DataError
        A variable has no column.
    """
    named = {label_key(column): column for column in columns}
    found: dict[Variable, Any] = {}
    for variable in variables:
        key = next((key for key in (label_key(variable), label_key(str(variable))) if key in named), None)
        if key is None:
            raise DataError(
                f"the data must have a column for each variable, but none is named {variable!r}; "
                "rename the column, or declare the variable under the column's name."
            )
        found[variable] = named[key]
    return found


def named_column(name: Hashable, columns: Sequence[Any], says: str, argument: str) -> Any:
    """Return the column that an argument names, after a check that no other column has the same printed name.

    Parameters
    ----------
    name, columns
        The name given, and those of the frame.
    says
        Meaning of the column in an error message, such as "identifies the person of a row".
    argument
        The argument's name.
    """
    try:
        column = match_columns([name], columns)[name]
    except DataError:
        raise DataError(
            f"the data must have the column {name!r}, which {says}; rename the column, or name it in `{argument}`."
        ) from None
    if sum(str(each) == str(column) for each in columns) > 1:
        raise DataError(
            f"the data must have one column that is printed {str(column)!r}, because it {says}; rename the other "
            "columns."
        )
    return column
