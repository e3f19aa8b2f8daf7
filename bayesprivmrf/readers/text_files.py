r"""Parser of CSV and Parquet files, public or sensitive; each line of a CSV file is one row.

Privacy guarantees count records. The rows that are read must therefore correspond one to one to the records that were
written, whatever the records contain. In a CSV file records are lines:

- The header determines the separator of fields: the comma, semicolon or tab that splits it into most names.
- A line end (``\n``, ``\r\n`` or ``\r``) ends a line and does not begin one. The first line is the header, and every
  further line is a record. For example, ``"a\n1\n"`` has one record, and ``"a\n1\n\n"`` has two, the second of which
  is a blank line.
- A blank line is a record whose values are all missing. A file of one column writes a missing value in this way. In a
  file of several columns, a line with fewer fields than the header lacks its last values. Blank lines are not
  skipped. Otherwise the answer of one person, missing or not, would change the number of records, which is public
  under replace-one neighbors.
- No field contains a line end. CSV allows one in quotes, but then a stray quote in one person's answer joins all
  lines up to the next quote into one record. The parser therefore compares the rows with the lines of the file, and
  refuses a file in which they differ.
- All lines end in the same way. A program that ends its lines in a line feed may leave a carriage return in a field
  without quotes, which would otherwise be read as a line end.
- A last line without a line end must have all fields of the header, and more than one. Some programs write line ends
  only between lines, so that ``"a\n1\n"`` could mean two records, the second missing. The rule refuses the other
  files of such a program, such as ``"a\n1\n0"``.

Hence two files that differ in one answer have the same number of records, or one of them is refused.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
from typing import TYPE_CHECKING

from bayesprivmrf.checks import file_path, require
from bayesprivmrf.errors import BayesPrivMRFError, DataError
from bayesprivmrf.readers.parquet_parts import folder_dataset, require_alike

if TYPE_CHECKING:
    import pandas as pd


def read_table(
    path: str | os.PathLike[str], *, is_strict: bool = False
) -> tuple[pd.DataFrame, str]:
    """Read the rows of a CSV or Parquet file.

    Parameters
    ----------
    path
        ``.csv``, ``.csv.gz`` (a header, then one row a line; UTF-8), ``.parquet``, or a folder of Parquet files. The
        names of its subfolders may hold columns, which are read as text.
    is_strict
        If True, every line of a CSV file must have as many fields as the header, and blank lines are skipped. If
        False, a line with fewer fields lacks its last values, and a blank line lacks all of them.

    Returns
    -------
    columns : pandas.DataFrame
        One column for each name in the header. Entries of CSV files are text or missing.
    separator : str
        Separator of fields; empty for Parquet.

    Raises
    ------
    DataError
        The file is missing, unreadable, cut short, or of another type; a CSV row has more fields than the header; the
        header has a name twice; a field contains a line break; or a file of one column lacks its last line end. The
        message of the underlying parser is not shown, because it quotes the data.
    """
    import pandas as pd

    file = file_path("path", path)
    name = file.name.lower()
    problem = f"the data must be a folder or a file that ends in .csv, .csv.gz or .parquet, got {file.name!r}."
    what = f"the data file {str(path)!r}"
    try:
        is_folder = file.is_dir()
        is_parquet = is_folder or "parquet" in name.split(".")[1:]
        if not is_folder and (name.endswith((".csv", ".csv.gz")) or (is_strict and not is_parquet)):
            with gzip.open(file) if name.endswith(".gz") else file.open("rb") as opened:
                return _csv_table(opened.read(), is_strict)
        if is_parquet:
            # nullable types, because one missing value must not turn a column of integers into floats
            columns = None
            if is_folder:
                parts = folder_dataset(file)
                require_alike(parts)
                columns = parts.partitioning
            return pd.read_parquet(file, dtype_backend="numpy_nullable", partitioning=columns), ""
    except ImportError:
        problem = "reading Parquet needs pyarrow; install it, or convert the file to CSV."
    except OSError as error:
        problem = f"{what} cannot be read: {error.strerror or 'not a readable file'}."
    except EOFError:
        problem = f"{what} was cut short; take a fresh copy."
    except MemoryError:
        problem = f"{what} does not fit in memory; give a frame of a lazy engine instead."
    except pd.errors.EmptyDataError:
        problem = f"{what} must begin with a header, but is empty or begins with a blank line."
    except UnicodeDecodeError:
        problem = f"{what} must be encoded in UTF-8; convert it, say with `iconv -t UTF-8`."
    except BayesPrivMRFError:
        raise
    except Exception as error:  # parsers and decompressors raise many types
        remedy = "check its header and rows."
        if "fields in line" in str(error):
            remedy = (
                "a row has more fields than the header, its first line. Remove titles above the header, put a field "
                "that contains the separator (comma, semicolon or tab) in double quotes, and drop separators at the "
                "ends of rows."
            )
        if isinstance(error, ValueError):
            kind = ""
        else:
            kind = f" ({type(error).__name__})"
        problem = f"{what} is not well-formed{kind}: {remedy}"
    # raised outside the handlers: pandas quotes the offending field, which the exception's context would reveal
    raise DataError(problem)


def _csv_table(content: bytes, is_strict: bool) -> tuple[pd.DataFrame, str]:
    import pandas as pd

    separator = _separator(content)
    columns = 1 + re.split(rb"[\r\n]", content, maxsplit=1)[0].count(separator.encode())
    largest = 20_000  # more than any model can use, and still read in seconds
    seen = f"about {columns:,}"
    remedy = "keep those of the model"
    must = f"have at most {largest:,} columns"
    require(columns <= largest, "a text file", must, seen, remedy, error=DataError)
    if is_strict:
        # The nonblank lines, after a check that each has as many fields as the header
        lines = content.splitlines(keepends=True)
        numbers = [number for number, line in enumerate(lines, start=1) if line.strip(b"\r\n")]
        kept = [lines[number - 1] for number in numbers]
        content = b"".join(kept)
        rows = csv.reader((line.decode("utf-8-sig") for line in kept), delimiter=separator)
        fields = len(next(rows, []))
        for row in rows:
            what = f"line {numbers[rows.line_num - 1]} of a CSV file"
            must = f"have {_entries(fields)}, as the header, its first line, has"
            remedy = "remove titles above the header and notes below the table"
            if len(row) > fields:
                remedy = "remove titles above the header, and separators of thousands, which split 1,410 in two"
            require(len(row) == fields, what, must, len(row), remedy, error=DataError)
    # The header is read as an ordinary row, because pandas otherwise takes a surplus first field for an index and
    # shifts every column. The file is read in one piece, because only then is every row compared with the first.
    whole = pd.read_csv(
        io.BytesIO(content),
        header=None,
        sep=separator,
        dtype=str,
        keep_default_na=False,
        na_values=[""],
        skip_blank_lines=False,
        encoding="utf-8-sig",
        low_memory=False,
    )
    is_ended = content.endswith((b"\n", b"\r"))
    line_ends = content.count(b"\n") + content.count(b"\r") - content.count(b"\r\n")
    if len(whole) != line_ends + (not is_ended):
        what = "no field of a CSV file may hold a line break, but one does, or a double quote is left open"
        raise DataError(
            f"{what}; replace line breaks, and double every quote that is part of a text."
        )
    rest = content.replace(b"\r\n", b"")
    if sum((b"\r\n" in content, b"\r" in rest, b"\n" in rest)) > 1:
        what = "the lines of a CSV file must all end in the same way, but some end in a line feed"
        raise DataError(f"{what} and some in a carriage return; write all line ends alike.")
    if not is_ended and _last_fields(content, separator) < whole.shape[1]:
        what = "the last line of a CSV file must end in a line break if it has fewer fields than the header"
        raise DataError(f"{what}, or if the file has one column; add the line break.")
    names = whole.iloc[0]
    if names[names.notna()].duplicated().any():
        raise repeated_error()
    records = whole.iloc[1:].reset_index(drop=True).loc[:, names.notna().to_numpy()]
    return records.set_axis(names.dropna().tolist(), axis="columns"), separator


def _entries(count: int) -> str:
    if count == 1:
        return "1 entry"
    return f"{count} entries"


def _separator(content: bytes) -> str:
    """Return the separator of fields, determined by the header alone, which is public."""
    text = re.split(rb"[\r\n]", content, maxsplit=1)[0].decode("utf-8-sig", errors="replace")
    return max(",;\t", key=lambda one: len(next(csv.reader([text], delimiter=one), [])))


def repeated_error() -> DataError:
    """Return the error for two columns with the same name."""
    return DataError(
        "the columns of the data must have distinct names, got one twice; drop or rename it."
    )


def _last_fields(content: bytes, separator: str) -> int:
    """Return the number of fields of the last line; a single field counts as none, like a blank line."""
    last = content.replace(b"\r", b"\n").rsplit(b"\n", 1)[-1].decode(errors="replace")
    found = len(next(csv.reader([last], delimiter=separator), []))
    return found if found > 1 else 0
