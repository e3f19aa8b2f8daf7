"""Data frames: their columns, the guard that withholds the error messages of their engines, and frequency tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bayesprivmrf.checks import require
from bayesprivmrf.errors import BayesPrivMRFError, DataError, DeclarationWarning, warn_caller
from bayesprivmrf.mechanisms.reading.coding import is_missing
from bayesprivmrf.model.domain import Domain, Variable, label_key
from bayesprivmrf.model.tables import IntArray
from bayesprivmrf.readers.parquet_parts import folder_dataset, require_alike
from bayesprivmrf.readers.text_files import repeated_error


def guarded[T](
    doing: str,
    read: Callable[[], T],
    remedy: str = "run the query behind the frame by itself to see it.",
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


def opened(data: Any, whole: Collection[Hashable] = ()) -> Any:
    """Return the Arrow data set of a path to Parquet, a file or a folder; other data are returned unchanged.

    `whole` names the columns of subfolders that are whole numbers, as for `folder_dataset`.
    """
    is_path = isinstance(data, str | os.PathLike)
    if not is_path or not (".parquet" in Path(data).suffixes or os.path.isdir(data)):
        return data
    import pyarrow.dataset

    def read() -> Any:
        is_folder = os.path.isdir(data)
        if is_folder:
            return folder_dataset(data, whole)
        return pyarrow.dataset.dataset(data, format="parquet")

    return guarded("opening", read, "check that the path leads to Parquet files.")


def is_dataset(data: Any) -> bool:
    """Return True for an Arrow data set, whose rows are not in memory."""
    return any(one.__module__ == "pyarrow._dataset" for one in type(data).__mro__)


def frame_of(
    data: Any, wanted: Collection[Hashable] | None = None, domain: Domain | None = None
) -> Any:
    """Return the data as a narwhals frame; errors are raised outside the handlers, so that they have no context.

    From an Arrow data set or a path to Parquet, only the `wanted` columns are read into memory, by default all. In a
    path's folders, variables of the `domain` whose states are whole numbers are read as such, and others as text.
    """
    import narwhals.stable.v2 as nw

    if domain is None:
        named = ()
    else:
        named = zip(domain.variables, domain.states, strict=True)
    whole = [variable for variable, states in named if all(type(label) is int for label in states)]
    is_repeated = False
    data = opened(data, whole)
    if is_dataset(data):
        if wanted is None:
            among = None
        else:
            among = set(map(str, wanted))
        guarded(
            "opening",
            lambda: require_alike(data, wanted),
            "check that it leads to whole Parquet files.",
        )
        names = [name for name in data.schema.names if among is None or name in among]
        data = guarded("reading", lambda: data.to_table(columns=names))
    is_dask = type(data).__module__.partition(".")[0] == "dask"
    # the group-by of narwhals takes no cast of a sum for Dask
    remedy = "pass `data.compute()`, or read the same files by DuckDB, Polars or PySpark"
    require(not is_dask, "data", "not be a Dask frame", "one", remedy, error=DataError)
    try:
        return nw.from_native(data)
    except nw.exceptions.DuplicateError:
        is_repeated = True
    except TypeError:
        pass
    if is_repeated:
        raise repeated_error()
    must = "be a data frame (pandas, Polars, PyArrow, DuckDB, ...) or a path to Parquet"
    seen = type(data).__name__
    remedy = "pandas.DataFrame(...) makes one"
    if isinstance(data, str | os.PathLike):
        is_file = os.path.exists(data)
        seen += ", a path to another file" if is_file else ", a path where no file is"
        if is_file:
            remedy = "pandas.read_csv(path) reads a CSV file"
        else:
            remedy = "correct the path"
    raise DataError(f"`data` must {must}, got {seen}; {remedy}.")


def in_memory(frame: Any, columns: Iterable[Any]) -> Any:
    """Return an eager narwhals frame unchanged, or the given columns of a lazy frame, collected."""
    import narwhals.stable.v2 as nw

    if isinstance(frame, nw.LazyFrame):
        return frame.select(list(columns)).collect()
    return frame


def column_names(data: Any, frame: Any) -> list[Any]:
    """Return the column names of the original frame; those of pandas may be integers, or repeat."""
    import narwhals.stable.v2 as nw

    if isinstance(frame, nw.DataFrame):
        native_columns = getattr(data, "columns", None)
    else:
        native_columns = None
    if native_columns is None:
        return frame.collect_schema().names()
    if frame.implementation.is_pandas_like():
        return list(native_columns)
    return list(frame.columns)


def match_columns(
    variables: Sequence[Variable], columns: Iterable[Hashable]
) -> dict[Variable, Any]:
    """Return the column of each variable: the column of that name, or else the column named ``str(name)``.

    Raises
    ------
    DataError
        A variable has no column.
    """
    named = {label_key(column): column for column in columns}
    found: dict[Variable, Any] = {}
    for variable in variables:
        key = next(
            (key for key in (label_key(variable), label_key(str(variable))) if key in named), None
        )
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
    alike = sum(str(each) == str(column) for each in columns)
    must = f"have one column that is printed {str(column)!r}, because it {says}"
    require(alike == 1, "the data", must, alike, "rename the other columns", error=DataError)
    return column


# Largest number of records of a frequency table: sums of its counts are then exact as floats
MOST_RECORDS = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Column of a frequency table with the number of records for each row.

    A row with count c is equivalent to c equal rows. So neighbors, sensitivity and guarantee are those of the
    repeated rows: neighbors differ in one record, which changes one count by 1.

    Parameters
    ----------
    column
        Name of the column.
    variables
        The declared variables; the column must not be one of them.
    most
        Largest number of records of the whole table.
    """

    # a row with count 0 represents nobody, and its values are not read
    leaves_out_zeros: ClassVar[bool] = True

    column: Hashable
    variables: tuple[Variable, ...]
    most: int = MOST_RECORDS

    def __post_init__(self) -> None:
        kind = f"a {type(self.column).__name__}"
        require(isinstance(self.column, Hashable), "count", "be the name of a column", kind)
        is_measured = str(self.column) in map(str, self.variables)
        must = "name a column that is no declared variable"
        require(not is_measured, "count", must, repr(self.column), "leave it out of the model")

    @classmethod
    def of(
        cls, count: Hashable | None, variables: tuple[Variable, ...], most: int = MOST_RECORDS
    ) -> Counts | None:
        """Return the column named by the argument `count` of a caller, or None if it is None."""
        if count is None:
            return None
        return cls(column=count, variables=variables, most=most)

    def units(self, data: Any, frame: Any) -> IntArray:
        """Return the number of records for each row of an eager frame, shape (rows,).

        Raises
        ------
        DataError
            The column is missing; a count is missing, negative or not whole; or the sum of the counts is too large.
        """
        series = frame.get_column(self.named(data, frame))
        missing = is_missing(series).any()
        if missing:
            values = []
        else:
            values = [self._whole(value) for value in series.to_list()]
        if missing or sum(values) > self.most:
            raise self.error()
        return np.array(values, dtype=np.int64)

    def of_query(self, data: Any, frame: Any, columns: list[Any]) -> tuple[Any, Any, Any]:
        """Return a lazy frame without rows of count 0, and expressions for the count of a row and for its refusal.

        The argument `columns` is not needed here; `Persons.of_query` uses it.
        """
        import narwhals.stable.v2 as nw

        column = self.named(data, frame)
        if not frame.collect_schema()[column].is_integer():
            raise self.error()
        count = nw.col(column).cast(nw.Int64)
        refused = nw.when(count.is_null() | (count < 0) | (count > self.most)).then(1).otherwise(0)
        return frame.filter((nw.col(column) != 0) | nw.col(column).is_null()), count, refused

    def named(self, data: Any, frame: Any) -> Any:
        """Return the name of the column as the frame spells it."""
        return named_column(
            self.column,
            column_names(data, frame),
            "has the number of records for each row",
            "count",
        )

    def _whole(self, value: Any) -> int:
        is_text = isinstance(value, str) and value.strip().isascii() and value.strip().isdecimal()
        is_number = isinstance(value, int | float | Decimal | np.integer | np.floating)
        is_whole = is_text or (is_number and value == value and value % 1 == 0)
        if isinstance(value, bool) or not is_whole or not 0 <= int(value) <= self.most:
            raise self.error()
        return int(value)

    def error(self) -> DataError:
        """Return the error for invalid counts, which does not show them."""
        return DataError(
            f"column {self.column!r} must hold whole numbers, at least 0 and with a sum of at most {self.most:,}, "
            "because it is the number of records for each row; write 1,410 as 1410, and correct other values or drop "
            "their rows."
        )


def warn_of_counts(data: Any, variables: Iterable[Variable]) -> None:
    """Warn if an undeclared column has a usual name for the counts of a frequency table.

    Only the names of columns are used, which are public.
    """
    usual = {"freq", "frequency", "count", "counts", "n"}  # names in R, SPSS and other programs
    declared = set(map(str, variables))
    data = opened(data)
    if is_dataset(data):
        names = data.schema.names
    else:
        names = map(str, column_names(data, frame_of(data)))
    found = [name for name in names if name.lower() in usual and name not in declared]
    if found:
        warning = DeclarationWarning(
            f"each row counts as one record, and the column {found[0]!r} is not used",
            remedy="if it is the number of records for each row, pass its name as `count=` here, or else drop it",
            option="if it is the number of records for each row, pass its name as `--count`, or else drop it",
        )
        warn_caller(warning)
