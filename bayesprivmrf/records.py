"""Records of a file, and the declared recoding of their values into states.

This module is on the sensitive side: `read_records` and `recode` return data, not a release. They infer no state,
bound or type from the data. A value becomes a state by the rule in the model file; otherwise it stays unchanged, and
counting refuses it. `read_declaration` reads the model file, which is public.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bayesprivmrf.mechanisms.reading.coded import recode
from bayesprivmrf.model.declaration_file import read_declaration
from bayesprivmrf.readers.text_files import read_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_declaration", "read_records", "recode"]


def read_records(path: str | Path) -> pd.DataFrame:
    r"""Return the records of a CSV or Parquet file, or of a folder of Parquet files.

    Parameters
    ----------
    path
        Path of a ``.csv``, ``.csv.gz`` or ``.parquet`` file, or of a folder of Parquet files. A CSV file has a header
        and then one record in each line. It is encoded in UTF-8, and its fields are separated by commas, semicolons
        or tabs, as in the header.

    Returns
    -------
    DataFrame
        The records. The columns of a CSV file are text, so that ``01`` stays ``01`` and ``NA`` is a label. Only an
        empty field is missing, with or without quotes. The declared states determine later which columns are read as
        numbers. The columns of a Parquet file keep their types, as nullable types of pandas. Columns that the
        names of subfolders hold, such as ``year=2020/part.parquet``, are text.

    Raises
    ------
    DataError
        The file is missing, unreadable, cut short or of another type, or its records cannot be distinguished; or a
        file of a folder lacks a column that another has. See `bayesprivmrf.readers.text_files.read_table`.

    Notes
    -----
    Every line of a CSV file after the first is a record. A line with fewer fields than the header lacks its last
    values, and a blank line lacks all of them. Counting refuses missing values unless the model declares a state for
    them. A column without a name is left out.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "records.csv")
    ...     _ = file.write_text("age;ill\n01;NA\n02;\n")
    ...     records = read_records(file)
    >>> records["age"].tolist(), records["ill"].isna().tolist()
    (['01', '02'], [False, True])
    """
    return read_table(path)[0]
